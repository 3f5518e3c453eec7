"""Watching a cluster in memory: every process is found, followed, and found again."""

from typing import Any

import pytest

from helpers.brokers import brokers
from helpers.chains import chain
from helpers.watched import request, watched
from tidelog.errors import TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import ProtocolEvent
from tidelog.watch import service
from tidelog.wire import messages as m
from tidelog.wire import services as s


async def test_an_election_is_seen_in_its_order_on_all_processes() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    async with watched(cluster) as seen:
        await seen.run(1.0)
        old = cluster.leader("events")
        cluster.kill(old)
        await cluster.until(lambda: cluster.leader("events") not in (-1, old), "another broker leads")
        await seen.run(1.0)
        leads = [told for told in seen.told if isinstance(told.event.fields, m.BecameLeader)][-1]
        assert [kind for _, kind in chain(seen.told, leads)] == [
            "BrokerSuspected",
            "LeaderChosen",
            "StoreWritten",
            "OrderSent",
            "OrderReceived",
            "BecameLeader",
        ]
        places = {told.name: place for place, told in enumerate(seen.told)}
        assert all(told.cause is None or places.get(told.cause, -1) < place for place, told in enumerate(seen.told))
        assert not seen.missing


async def test_a_broker_that_returns_tells_its_new_life_from_the_start() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    async with watched(cluster) as seen:
        await seen.run(1.0)
        node = cluster.node(1)
        cluster.kill(1)
        await seen.run(1.0)
        seen.told.clear()
        node.start()
        await cluster.until(lambda: 1 in dict(cluster.states[TopicPartition("events", 0)].isr), "it is back")
        await seen.run(1.0)
        assert "BecameFollower" in seen.kinds("broker-1")
        first = next(told for told in seen.told if told.process == "broker-1")
        assert first.event.number == 1 and seen.follower.incarnation("broker-1", first.life) == 2
        assert "broker-1 has started again" in seen.notes


async def test_the_next_controller_tells_how_it_was_elected() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    async with watched(cluster) as seen:
        await seen.run(1.0)
        cluster.controller.kill()
        await seen.run(1.0)
        cluster.controller.start()
        await seen.run(15.0)
        assert "ControllerElected" in seen.kinds("controller-1")
        assert not seen.missing


async def test_the_newest_events_come_first() -> None:
    cluster = await brokers(3)
    await cluster.create("events", 6)
    async with watched(cluster, last=5) as seen:
        await seen.run(0.5)
        assert seen.follower.complete
        assert {name: len(seen.kinds(name)) for name in ("broker-1", "controller-1")} == {
            "broker-1": 5,
            "controller-1": 5,
        }


async def test_a_filter_keeps_the_events_of_the_cluster() -> None:
    cluster = await brokers(3)
    await cluster.create("events", 2)
    async with watched(cluster, topics=("events",), last=1_000) as seen:
        await seen.run(0.5)
    async with watched(cluster, topics=("events",), partition=1, last=1_000) as one:
        await one.run(0.5)
    subjects = {str(told.event.subject) for told in one.told if isinstance(told.event.subject, tuple)}
    assert subjects == {"events-1"}
    assert len(one.told) < len(seen.told)
    assert "ControllerElected" in one.kinds("controller-1")


@pytest.mark.parametrize(
    ("path", "of_topic", "of_group", "of_both"),
    [
        ("/brokers/topics/events/partitions/0/state", True, False, True),
        ("/brokers/topics/other/partitions/0/state", False, False, False),
        ("/brokers/topics/other", False, True, True),
        ("/consumers/coordinator", False, True, True),
        ("/latest_producer_id_block", False, False, False),
        ("/controller", True, True, True),
    ],
)
def test_filters_keep_writes_of_their_own(path: str, of_topic: bool, of_group: bool, of_both: bool) -> None:
    write = m.StoreWritten(changes=(m.ZnodeChange(path=path, version_before=0, version=1),), more=0, result="written")
    event = ProtocolEvent(0, 1, None, write, None)
    topics, groups = {"topics": ("events",)}, {"groups": ("g",)}
    found = tuple(service.Wanted(request(**wanted)).has(event) for wanted in (topics, groups, topics | groups))
    assert found == (of_topic, of_group, of_both)


async def test_families_choose_kinds() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    async with watched(cluster, families=("controller",), last=1_000) as seen:
        await seen.run(0.5)
    assert {type(told.event.fields).__name__ for told in seen.told} == {
        "ControllerElected",
        "ControllerLoaded",
        "LeaderChosen",
    }


async def test_clocks_an_hour_apart_keep_cause_before_effect() -> None:
    cluster = await brokers(3)
    cluster.controller.clock.wall_offset_ms = 3_600_000
    await cluster.create("events")
    async with watched(cluster) as seen:
        await seen.run(0.5)
        cluster.kill(cluster.leader("events"))
        await seen.run(3.0)
    places = {told.name: place for place, told in enumerate(seen.told)}
    pairs = [(places[told.event.cause], place) for place, told in enumerate(seen.told) if told.event.cause in places]
    assert len(pairs) > 5 and all(cause < place for cause, place in pairs)


async def test_a_watcher_that_reads_late_is_told_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await brokers(1)
    recorder = cluster.world.rings[0]
    for _ in range(30_000):
        recorder.record(None, m.BrokerLost(broker_id=7))
    channel = cluster.ports_of("watch").net.channel(cluster.node(1).address, purpose="watch")
    stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
    await stream.write(request(life=recorder.life, number=100))
    first = await stream.read()
    assert first is not None and first.lost == recorder.newest - 10_000 - 100
    assert len(first.events) == service.SENT and first.events[0].number == 100 + first.lost + 1


async def test_a_process_has_few_watchers_and_refuses_the_next() -> None:
    cluster = await brokers(1)
    channel = cluster.ports_of("watch").net.channel(cluster.node(1).address, purpose="watch")
    streams = [channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL) for _ in range(service.WATCHERS + 1)]
    for stream in streams:
        await stream.write(request())
    for stream in streams[:-1]:
        assert await stream.read() is not None
    with pytest.raises(TransportError, match="THROTTLING_QUOTA_EXCEEDED: broker-1 has 8 watchers"):
        await streams[-1].read()
    streams[0].cancel()
    await cluster.wait(0.1)
    again = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
    await again.write(request())
    assert await again.read() is not None


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"process": "agent-1"}, "process: 'agent-1' is neither empty nor 'controller'"),
        ({"families": ("magic",)}, "families: 'magic' is none of liveness, controller"),
        ({"last": 10_001}, "last: 10001 is not between 0 and 10000"),
        ({"number": -1}, "life, number and age_ms: one of them is negative"),
        ({"partition": 0}, "partition: 0 of 0 topics"),
        ({"process": "controller", "member": m.WatchedMember(group_id="g")}, "process and member: both are set"),
    ],
)
async def test_a_bad_request_is_refused_with_its_field(fields: dict[str, Any], told: str) -> None:
    cluster = await brokers(1)
    channel = cluster.ports_of("watch").net.channel(cluster.node(1).address, purpose="watch")
    stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
    await stream.write(request(**fields))
    with pytest.raises(TransportError) as refused:
        await stream.read()
    assert refused.value.detail.startswith(f"INVALID_REQUEST: {told}")
