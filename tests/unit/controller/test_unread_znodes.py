"""Settings that cannot be read: a controller takes over without them, changes none, says which, and learns them when repaired."""

import json
from typing import Any

import pytest

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.meta import SetData
from tidelog.testing.meta import SimMeta
from tidelog.wire import messages as m
from tidelog.wire import services, znodes
from unit.controller.test_bad_znodes import GARBAGE, changed
from unit.controller.test_shell import cluster
from unit.controller.world import SESSION_S, World

T0 = TopicPartition("t", 0)
CONFIG = znodes.topic_config_path("t")
METRIC = "tidelog_controller_unreadable_znode"


async def tool(w: World) -> SimMeta:
    client = w.zookeeper.client()
    await client.start()
    return client


async def with_topic(w: World, configs: dict[str, str]) -> None:
    await cluster(w)
    request = m.CreateTopicsRequest(
        topics=(
            m.NewTopic(
                name="t",
                num_partitions=1,
                replication_factor=3,
                configs=tuple(m.ConfigEntry(key=key, value=value) for key, value in configs.items()),
            ),
        ),
        timeout_ms=5_000,
    )
    await w.channel(1).call(services.ADMIN_SERVICE_CREATE_TOPICS, request, 5.0)
    await w.until(lambda: all(told_settings(w, each, epoch=1) for each in w.brokers), "every broker is told")


async def taken_over_with(w: World, path: str, data: bytes) -> bytes:
    """Controller 2 acts, and finds `data` there. Returns what was there."""
    good = w.zookeeper.dump()[path].data
    w.kill_controller(1)
    await (await tool(w)).multi([SetData(path, data)])
    await w.active(2)
    return good


def told_settings(w: World, number: int, epoch: int) -> list[dict[str, str]]:
    """All that a broker was told of topic `t` by the controller with that epoch."""
    orders = [each for each in w.brokers[number].said if isinstance(each, m.LeaderAndIsrRequest)]
    states = [topic for each in orders if each.controller_epoch == epoch for topic in each.topic_states]
    return [{c.key: c.value for c in topic.configs} for topic in states if topic.topic == "t"]


async def alter(w: World, number: int) -> m.ConfigsAltered:
    change = m.ConfigChange(key="retention.ms", value="5")
    topic = m.TopicConfigChanges(name="t", changes=(change,))
    request = m.IncrementalAlterConfigsRequest(topics=(topic,), timeout_ms=5_000)
    answer = await w.channel(number).call(services.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS, request, 5.0)
    altered: m.ConfigsAltered = answer.topics[0]
    return altered


@pytest.mark.parametrize("what", [*GARBAGE, "value is a number"])
async def test_settings_that_cannot_be_read_stay_as_they_are(
    w: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    await with_topic(w, {"retention.ms": "1000"})
    good = w.zookeeper.dump()[CONFIG].data
    await taken_over_with(w, CONFIG, GARBAGE[what] if what in GARBAGE else changed(good, config={"retention.ms": 7}))
    assert f"{CONFIG}: " in caplog.text and "repair this znode" in caplog.text
    assert w.sample(2, METRIC, path=CONFIG) == 1.0
    leader = w.states()[T0].leader
    w.kill_broker(leader)
    alive = {1, 2, 3} - {leader}
    await w.until(lambda: any(T0 in w.brokers[each].leads for each in alive), "another leads")
    assert await w.create("u", factor=2, number=2) == [ErrorCode.NONE]
    assert all(told_settings(w, each, epoch=2) == [] for each in alive)
    refused = await alter(w, 2)
    assert refused.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.error_message.startswith(f"the settings of topic 't' cannot be read: {CONFIG}: ")
    await (await tool(w)).multi([SetData(CONFIG, good)])
    await w.until(lambda: all(told_settings(w, each, epoch=3) for each in alive), "the settings are told")
    assert all(told_settings(w, each, epoch=3) == [{"retention.ms": "1000"}] for each in alive)
    assert (await alter(w, 2)).error_code is ErrorCode.NONE and w.sample(2, METRIC, path=CONFIG) == 0.0


async def test_a_broker_that_knows_no_settings_deletes_nothing(w: World) -> None:
    """It may have heard of none in its life, and would take the defaults for them."""
    await with_topic(w, {"retention.ms": "-1"})
    await taken_over_with(w, CONFIG, b"junk")
    w.kill_broker(3)
    await w.until(lambda: w.in_sync(3) == 0, "its session ends")
    await w.broker(3)
    await w.until(lambda: told_settings(w, 3, epoch=2), "it is told its roles")
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert told_settings(w, 3, epoch=2)[0] == kept and told_settings(w, 1, epoch=2) == []


async def test_a_topic_whose_settings_are_unknown_does_not_grow(w: World) -> None:
    await with_topic(w, {})
    await taken_over_with(w, CONFIG, b"junk")
    request = m.CreatePartitionsRequest(topics=(m.NewPartitions(name="t", total_count=2),), timeout_ms=5_000)
    (grown,) = (await w.channel(2).call(services.ADMIN_SERVICE_CREATE_PARTITIONS, request, 5.0)).topics
    assert grown.error_code is ErrorCode.UNKNOWN_SERVER_ERROR and "cannot be read" in grown.error_message
    assert await w.delete("t", number=2) == [ErrorCode.NONE], "it can be deleted"


async def drain(w: World, number: int, *, undo: bool = False) -> Any:
    request = m.DrainBrokersRequest(
        broker_ids=(3,), undo=undo, timeout_ms=5_000, leader_throttle=0, follower_throttle=0
    )
    return await w.channel(number).call(services.ADMIN_SERVICE_DRAIN_BROKERS, request, 5.0)


async def test_a_placement_that_cannot_be_read_is_not_changed(w: World) -> None:
    await cluster(w)
    assert (await drain(w, 1)).error_code is ErrorCode.NONE
    good = await taken_over_with(w, znodes.PLACEMENT, b"junk")
    assert w.sample(2, METRIC, path=znodes.PLACEMENT) == 1.0
    assert await w.create("t", factor=2, number=2) == [ErrorCode.NONE]
    refused = await drain(w, 2)
    assert refused.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.error_message.startswith("which brokers are being drained cannot be read: /admin/placement: ")
    throttle = m.AlterPartitionReassignmentsRequest(leader_throttle=5, follower_throttle=5, timeout_ms=5_000)
    answer = await w.channel(2).call(services.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, throttle, 5.0)
    assert answer.error_message == refused.error_message
    await (await tool(w)).multi([SetData(znodes.PLACEMENT, good)])
    await w.until(lambda: w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data == b"3", "another term")
    await w.until(lambda: w.controllers[2].active, "it acts")
    assert (await drain(w, 2, undo=True)).error_code is ErrorCode.NONE


async def test_producer_ids_that_cannot_be_read_are_not_given(w: World) -> None:
    """None may be given twice."""
    await cluster(w)

    async def ask(number: int) -> Any:
        request = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=w.brokers[1].epoch)
        return await w.channel(number).call(services.CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS, request, 5.0)

    assert (await ask(1)).producer_id_start == 0
    good = await taken_over_with(w, znodes.PRODUCER_IDS, b"junk")
    assert (await ask(2)).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await w.create("t", number=2) == [ErrorCode.NONE]
    await (await tool(w)).multi([SetData(znodes.PRODUCER_IDS, good)])
    await w.until(lambda: w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data == b"3", "another term")
    await w.until(lambda: w.controllers[2].active, "it acts")
    assert (await ask(2)).producer_id_start == 1_000


async def test_terms_that_fail_come_ever_less_often(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    w.kill_controller(1)
    path = znodes.state_path("t", 0)
    good = w.zookeeper.dump()[path].data
    client = await tool(w)
    await client.multi([SetData(path, b"junk")])
    controller = await w.controller(2)
    await w.clock.sleep(SESSION_S + 60.0)
    epoch = json.loads(w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data)
    assert not controller.active and 5 < epoch < 20
    await client.multi([SetData(path, good)])
    assert await w.until(lambda: controller.active, "it acts") < 10.0
