"""Whole controllers on the twins: elections, failures of brokers and of controllers, slow and stubborn brokers."""

import asyncio
from dataclasses import dataclass

import pytest

from helpers.requirements import requirement
from tidelog.controller.events import TopicsDeleteRequested
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.ports.authorizer import Operation, Resource
from tidelog.ports.meta import Delete, SetData
from tidelog.wire import messages as m
from tidelog.wire import services, znodes
from unit.controller.world import SESSION_S, World, controller_world

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def cluster(w: World, controllers: int = 1) -> None:
    for number in range(1, controllers + 1):
        await w.controller(number)
    for number in (1, 2, 3):
        await w.broker(number)
    await w.until(lambda: all(each.full() for each in w.brokers.values()), "every broker has its full LeaderAndIsr")


@requirement("ZooKeeper lists brokers, topics and their partitions")
@requirement("One controller elects leaders for all partitions")
async def test_a_topic_is_created_led_and_known_to_everybody(w: World) -> None:
    await cluster(w)
    assert await w.create("t", partitions=6) == [ErrorCode.NONE]
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert sorted(len(each.leads) for each in w.brokers.values()) == [2, 2, 2]
    assert all(each.is_new for each in w.brokers[1].states.values())
    stored = znodes.decode_topic("t", w.zookeeper.dump()["/brokers/topics/t"].data)
    assert [len(row) for row in stored.partitions] == [3] * 6
    assert await w.delete("t", "nope") == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await w.until(lambda: not any(each.states or each.metadata for each in w.brokers.values()), "all is gone")
    assert not [path for path in w.zookeeper.dump() if "t" in path.split("/")]


@requirement("Partition i goes to broker i mod n")
async def test_the_starting_broker_differs_from_topic_to_topic(w: World) -> None:
    await cluster(w)
    names = [f"t{number}" for number in range(12)]
    assert await w.create(*names, partitions=1) == [ErrorCode.NONE] * 12
    await w.until(lambda: len(w.states()) == 12, "every topic is led")
    assert {state.leader for state in w.states().values()} == {1, 2, 3}


@requirement("A killed leader loses no acknowledged record")
@requirement("Every step of a failover has a histogram")
@requirement("One controller elects leaders for all partitions")
@requirement("Each step of a failover of many partitions is measured")
async def test_kill_a_leader_is_replaced_long_before_its_session_ends(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=12)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    w.kill_broker(1)
    took_s = await w.until(
        lambda: not any(each.leader == 1 for b in (2, 3) for each in w.brokers[b].metadata.values()),
        "nobody believes in the dead leader",
    )
    assert took_s < 0.3
    await w.until(lambda: w.everybody_knows(alive={2, 3}), "everybody knows")
    assert w.in_sync(1) == 0
    step = "tidelog_controller_broker_failover_step_seconds_count"
    assert [w.sample(1, step, step=name) for name in ("detect", "decide", "write", "notify")] == [1, 1, 1, 1]
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="suspected") == 4
    assert w.sample(1, "tidelog_controller_isr_shrinks_total", cause="broker gone") == 12
    # Then the session ends, and changes nothing any more.
    await w.clock.sleep(SESSION_S * 2)
    assert w.sample(1, "tidelog_controller_brokers", state="alive") == 2
    assert w.sample(1, "tidelog_controller_brokers", state="suspected") == 0


def unwell(w: World) -> tuple[float, ...]:
    """The counts of partitions that are offline, under-replicated, under min ISR and at min ISR."""
    kinds = ("offline", "under_replicated", "under_min_isr", "at_min_isr")
    return tuple(w.sample(1, f"tidelog_controller_{each}_partitions") for each in kinds)


async def test_partitions_that_lack_members_are_counted(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=6)
    await w.until(lambda: w.in_sync(3) == 6, "every partition is led")
    assert unwell(w) == (0, 0, 0, 0)
    w.kill_broker(3)
    await w.until(lambda: unwell(w) == (0, 6, 0, 6), "two of three are in sync")
    w.kill_broker(2)
    await w.until(lambda: unwell(w) == (0, 6, 6, 0), "one of three is in sync")


async def test_without_a_broker_every_partition_is_offline(w: World) -> None:
    """The write that says so is the last that happens: there is no broker left to tell."""
    await cluster(w)
    await w.create("t", partitions=6)
    await w.until(lambda: len(w.states()) == 6, "every partition is led")
    for number in (1, 2, 3):
        w.kill_broker(number)
    await w.clock.sleep(SESSION_S * 3)
    assert {state.leader for state in w.states().values()} == {NO_LEADER}
    assert unwell(w) == (6, 6, 6, 0)


async def test_partitions_that_are_being_moved_are_counted_until_they_are_there(w: World) -> None:
    reassigning = "tidelog_controller_reassigning_partitions"

    async def arrives(w: World, tp: TopicPartition, target: int) -> None:
        """The leader has put it into the ISR."""
        leader = w.states()[tp].leader
        told = w.brokers[leader].states  # empty until the leader has heard of the topic
        await w.until(lambda: tp in told and target in told[tp].adding_replicas, "the leader knows of the move")
        await w.alter_isr(leader, tp, {each: w.brokers[each].epoch for each in (leader, target)})
        await w.until(lambda: w.states()[tp].leader == target, "it leads there")

    await cluster(w)
    await w.create("t", partitions=2, factor=1)
    await w.until(lambda: w.states().keys() == {T0, T1}, "both are led")
    targets = {tp: state.leader % 3 + 1 for tp, state in w.states().items()}
    rows = tuple(m.PartitionAssignment(partition=tp.partition, replicas=(to,)) for tp, to in targets.items())
    topics = (m.TopicReassignment(topic="t", partitions=rows),)
    plan = m.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=9_000, leader_throttle=0, follower_throttle=0)
    assert w.sample(1, reassigning) == 0
    answer = await w.channel(1).call(services.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, plan, 30.0)
    assert (answer.error_code, w.sample(1, reassigning)) == (ErrorCode.NONE, 2)
    await arrives(w, T0, targets[T0])
    await w.until(lambda: w.sample(1, reassigning) == 1, "one goes on")
    await arrives(w, T1, targets[T1])
    await w.until(lambda: w.sample(1, reassigning) == 0, "all are there")
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="reassigned") == 2


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("A leader paused within its session drops no follower")
@pytest.mark.parametrize("fault", ["pause", "cut"])
async def test_silence_makes_no_suspect_and_the_session_decides(w: World, fault: str) -> None:
    await cluster(w)
    await w.create("t", partitions=3)
    if fault == "pause":
        w.network.pause("broker-1")
        w.brokers[1].meta.pause()
    else:
        w.network.isolate("broker-1")
        w.brokers[1].meta.cut()
    await w.clock.sleep(SESSION_S / 2)
    assert all(w.brokers[2].metadata[TopicPartition("t", p)].leader_epoch == 0 for p in range(3))
    await w.until(lambda: all(each.leader != 1 for each in w.brokers[2].metadata.values()), "the session has ended")
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="suspected") == 0
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="broker_down") == 1


@requirement("Each step of a failover of many partitions is measured")
async def test_a_failover_of_brokers_whose_sessions_end_is_measured(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=12)
    await w.until(lambda: len(w.brokers[3].metadata) == 12, "broker 3 knows the topic")
    for number in (1, 2):
        w.network.isolate(f"broker-{number}")
        w.brokers[number].meta.cut()
    await w.until(lambda: {each.leader for each in w.brokers[3].metadata.values()} == {3}, "broker 3 leads all")
    await w.clock.sleep(1.0)
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="suspected") == 0
    step = "tidelog_controller_broker_failover_step_seconds_count"
    assert all(w.sample(1, step, step=name) >= 1 for name in ("detect", "decide", "write", "notify"))


@requirement("A bounced broker is treated as a failure plus a startup")
@requirement("A restarted broker returns to its stored roles")
@requirement("A fast bounce is detected by the broker epoch")
async def test_a_broker_that_bounces_gets_everything_and_rejoins(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=3)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    old = w.brokers[1].epoch
    w.kill_broker(1)
    back = await w.broker(1, intact_since=old)
    await w.until(lambda: back.full() and w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert back.leads == set() and len(back.states) == 3
    leader = back.states[T0].leader
    isr = {each.broker_id: each.broker_epoch for each in back.states[T0].isr}
    answer = await w.alter_isr(leader, T0, {**isr, 1: old})
    assert answer.topics[0].partitions[0].error_code is ErrorCode.INELIGIBLE_REPLICA
    answer = await w.alter_isr(leader, T0, {**isr, 1: back.epoch})
    assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert len(back.states[T0].isr) == 3
    assert w.sample(1, "tidelog_controller_isr_expansions_total", cause="leader") == 1


def holder(w: World) -> tuple[int, str, int]:
    """The id and the address in /controller, and the session that owns it."""
    node = w.zookeeper.dump()[znodes.CONTROLLER]
    found = znodes.decode_controller(node.data)
    return found.controller_id, str(found.address), node.stat.ephemeral_owner


@requirement("The process that creates the controller znode is the controller")
@requirement("The controller znode is ephemeral and names the controller")
async def test_the_process_that_made_the_znode_acts_and_is_named(w: World) -> None:
    await cluster(w, controllers=2)
    assert holder(w) == (1, "controller-1:9092", w.metas[1].session_id)
    assert [w.controllers[number].active for number in (1, 2)] == [True, False]
    w.kill_controller(1)
    await w.until(lambda: w.controllers[2].active, "the standby acts")
    assert holder(w) == (2, "controller-2:9092", w.metas[2].session_id)


@requirement("A controller and a leader killed together are both replaced")
@requirement("A controller killed in mid-change leaves it complete or absent")
@requirement("A controller isolated beyond its session changes nothing on return")
@requirement("A new controller sends every decision again")
async def test_a_standby_takes_over_and_sends_everything_again(w: World) -> None:
    await cluster(w, controllers=2)
    await w.create("t", partitions=6)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    w.kill_controller(1)
    w.kill_broker(1)
    await w.until(lambda: w.controllers[2].active, "the standby acts")
    await w.until(lambda: w.everybody_knows(alive={2, 3}), "everybody knows")
    assert {each.controller_epoch for b in (2, 3) for each in [w.brokers[b].full()[-1]]} == {2}
    assert all(each.leader in (2, 3) for each in w.brokers[2].metadata.values())
    assert w.sample(2, "tidelog_controller_failovers_total") == 1


@requirement("Every step of a failover has a histogram")
async def test_a_take_over_is_measured_until_the_last_broker_has_answered(w: World) -> None:
    await cluster(w, controllers=2)
    w.brokers[3].gate.clear()
    w.kill_controller(1)
    await w.until(lambda: all(len(w.brokers[b].full()) == 2 for b in (1, 2)), "two of three are told everything")
    step = "tidelog_controller_failover_step_seconds"
    assert w.sample(2, f"{step}_count", step="notify") == 0
    await w.clock.sleep(1.5)
    w.brokers[3].gate.set()
    await w.until(lambda: w.sample(2, f"{step}_count", step="notify") == 1, "the take-over is over")
    assert w.sample(2, f"{step}_sum", step="notify") > 1.5
    assert [w.sample(2, f"{step}_count", step=name) for name in ("read", "decide")] == [1, 1]


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("seed", range(12))
async def test_a_controller_that_dies_while_it_creates_leaves_a_whole_topic_or_none(seed: int) -> None:
    async with controller_world(seed) as w:
        await cluster(w, controllers=2)
        w.in_background(w.create("t", partitions=40))
        await w.clock.sleep(0.001 * (seed + 1))
        w.kill_controller(1)
        await w.until(lambda: w.controllers[2].active, "the standby acts")
        await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
        paths = [path for path in w.zookeeper.dump() if path.startswith("/brokers/topics/t")]
        assert len(paths) in (0, 2 + 40 * 2)
        assert all(each.leader > 0 for each in w.brokers[1].metadata.values())
        if paths:
            assert await w.create("t", number=2) == [ErrorCode.TOPIC_ALREADY_EXISTS]
            assert await w.delete("t", number=2) == [ErrorCode.NONE]
        assert await w.create("t", number=2) == [ErrorCode.NONE]


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("seed", range(8))
async def test_a_controller_that_dies_while_it_deletes_is_completed(seed: int) -> None:
    async with controller_world(seed) as w:
        await cluster(w, controllers=2)
        await w.create("t", partitions=40)
        w.in_background(w.delete("t"))
        await w.clock.sleep(0.001 * (seed + 1))
        w.kill_controller(1)
        await w.until(lambda: w.controllers[2].active, "the standby acts")
        await w.clock.sleep(1.0)
        assert w.everybody_knows(alive={1, 2, 3})
        left = [path for path in w.zookeeper.dump() if path.endswith("/t")]
        assert left == [] or len(w.brokers[1].states) == 40
        assert znodes.delete_topic_path("t") not in w.zookeeper.dump()


@requirement("A paused ZooKeeper causes no split brain")
@requirement("One controller elects leaders for all partitions")
@requirement("A controller isolated beyond its session changes nothing on return")
async def test_i12_a_controller_that_wakes_after_its_session_does_nothing(w: World) -> None:
    await cluster(w, controllers=2)
    await w.create("t", partitions=3)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    w.pause_controller(1)
    await w.until(lambda: w.controllers[2].active, "the standby acts")
    w.kill_broker(1)
    await w.until(lambda: w.in_sync(1) == 0, "broker 1 has left every ISR")
    await w.until(lambda: w.everybody_knows(alive={2, 3}), "everybody knows")
    before = w.states()
    w.resume_controller(1)
    assert not w.controllers[1].active  # at the very instant it wakes
    assert await w.create("u", number=1) == [ErrorCode.NOT_CONTROLLER]
    await w.clock.sleep(5.0)
    assert not w.controllers[1].active
    assert w.states() == before
    assert {each.controller_epoch for each in (w.brokers[2], w.brokers[3])} == {2}
    # And it can be elected again.
    w.kill_controller(2)
    await w.until(lambda: w.controllers[1].active, "it acts again")
    assert await w.create("u", factor=2, number=1) == [ErrorCode.NONE]


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_a_store_that_is_away_stops_all_acts_and_none_is_lost(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    w.zookeeper.stop()
    await w.clock.sleep(SESSION_S)
    assert not w.controllers[1].active
    assert await w.create("u") == [ErrorCode.NOT_CONTROLLER]
    w.zookeeper.start()
    await w.until(lambda: w.controllers[1].active, "it acts again")
    assert await w.create("u") == [ErrorCode.NONE]


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_of_the_store_is_looked_up(w: World, applied: bool) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    leader = w.brokers[1].states[T0].leader
    w.metas[1].lose_next_answer(applied=applied)
    answer = await w.alter_isr(leader, T0, {leader: w.brokers[leader].epoch})
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.NONE]
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert len(w.brokers[leader].states[T0].isr) == 1


@requirement("The controller decides when a broker is told")
@requirement("A broker that is shutting down is not elected")
async def test_a_slow_broker_delays_nobody_else_and_hears_the_newest(w: World) -> None:
    await cluster(w)
    w.brokers[3].gate.clear()
    for name in ("t", "u", "v"):
        assert await w.create(name, partitions=2) == [ErrorCode.NONE]
    await w.delete("u")
    await w.until(lambda: w.everybody_knows(alive={1, 2}), "the others know")
    w.brokers[3].gate.set()
    await w.until(lambda: w.everybody_knows(alive={3}), "so does the slow one")
    assert "u" not in {tp.topic for tp in w.brokers[3].states}


@requirement("Control requests are repeated in order until answered")
async def test_a_request_is_repeated_until_the_broker_has_answered(w: World) -> None:
    await cluster(w)
    w.brokers[2].refusing = ErrorCode.STALE_BROKER_EPOCH  # as one that does not know yet that it is registered
    w.network.cut("controller-1", "broker-3")
    await w.create("t", partitions=3)
    await w.clock.sleep(10.0)  # longer than a request and a connection last
    assert w.brokers[2].states == w.brokers[3].states == {}
    w.brokers[2].refusing = ErrorCode.NONE
    w.network.heal("controller-1", "broker-3")
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")


@requirement("Every controller write checks the controller epoch")
async def test_a_broker_that_knows_a_newer_controller_makes_the_old_one_resign(w: World) -> None:
    await cluster(w)
    w.brokers[2].controller_epoch = 7
    await w.create("t", partitions=1, timeout_ms=1000)
    await w.until(lambda: w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data == b"2", "another term")
    await w.until(lambda: not w.controllers[1].active, "that one ends as well", 5.0)


async def test_a_damaged_znode_keeps_every_controller_from_acting_until_it_is_repaired(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    w.kill_controller(1)
    path = znodes.state_path("t", 0)
    good = w.zookeeper.dump()[path].data
    client = w.zookeeper.client()
    await client.start()
    await client.multi([SetData(path, b"junk")])
    controller = await w.controller(2)
    await w.clock.sleep(SESSION_S * 2)
    assert not controller.active
    await client.multi([SetData(path, good)])
    await w.until(lambda: controller.active, "it acts")


@requirement("An unfit sender or receiver fails AlterIsr as a whole")
async def test_requests_are_checked_where_they_enter(w: World) -> None:
    await cluster(w, controllers=2)
    channel = w.channel(1)
    deleted = await channel.call(
        services.ADMIN_SERVICE_DELETE_TOPICS, m.DeleteTopicsRequest(names=("t",), timeout_ms=-1), 5.0
    )
    assert [(each.error_code, each.error_message) for each in deleted.topics] == [
        (ErrorCode.INVALID_REQUEST, "timeout_ms -1 is negative")
    ]
    request = m.CreatePartitionsRequest(topics=(m.NewPartitions(name="t", total_count=2),), timeout_ms=-1)
    (grown,) = (await channel.call(services.ADMIN_SERVICE_CREATE_PARTITIONS, request, 5.0)).topics
    assert (grown.error_code, grown.error_message) == (ErrorCode.INVALID_REQUEST, "timeout_ms -1 is negative")
    refused = await w.create("a/b", "x" * 250, "..")
    assert refused == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 3
    long = m.TopicPartitions(topic="x" * 250, partitions=tuple(range(10_000)))
    for method, many in (
        (services.ADMIN_SERVICE_ELECT_LEADERS, m.ElectLeadersRequest(topics=(long,), timeout_ms=1_000)),
        (services.ADMIN_SERVICE_RELEASE_VETO, m.ReleaseVetoRequest(topics=(long,), timeout_ms=1_000)),
    ):
        with pytest.raises(TransportError, match=r"topics.topic has 250 characters, at most 249") as error:
            await channel.call(method, many, 5.0)
        assert error.value.status == "INVALID_ARGUMENT"
    # A standby says what it is.
    standby = w.channel(2)
    isr = await standby.call(
        services.CONTROLLER_SERVICE_ALTER_ISR,
        m.AlterIsrRequest(broker_id=1, broker_epoch=1, controller_epoch=1, sequence=1),
        5.0,
    )
    topics = await standby.call(services.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(), 5.0)
    cluster_ = await standby.call(services.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), 5.0)
    assert {isr.error_code, topics.error_code, cluster_.error_code} == {ErrorCode.NOT_CONTROLLER}
    assert await w.create("t", number=2) == [ErrorCode.NOT_CONTROLLER]
    # And the active one describes.
    await w.create("t", partitions=2)
    described = await channel.call(services.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), 5.0)
    assert (described.controller_id, described.topics, described.partitions) == (1, 1, 2)
    assert [each.broker.broker_id for each in described.brokers] == [1, 2, 3]
    assert described.cluster_id == znodes.decode_cluster_id(w.zookeeper.dump()[znodes.CLUSTER_ID].data)


async def test_a_request_that_takes_too_long_is_answered_and_goes_on(w: World) -> None:
    await cluster(w)
    w.zookeeper.stop()
    assert await w.create("t", timeout_ms=500) == [ErrorCode.REQUEST_TIMED_OUT]
    w.zookeeper.start()
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}) and w.brokers[1].states, "it was created after all")


@requirement("A topic is created with a number of partitions")
async def test_create_1000_partitions_are_led_within_2_s(w: World) -> None:
    await cluster(w)
    began_at = w.clock.now()
    assert await w.create("t", partitions=1000) == [ErrorCode.NONE]
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert w.clock.now() - began_at < 2.0


async def test_a_controller_that_stops_in_order_gives_way_at_once(w: World) -> None:
    await cluster(w, controllers=2)
    began_at = w.clock.now()
    await w.controllers[1].stop()
    await w.until(lambda: w.controllers[2].active, "the standby acts")
    assert w.clock.now() - began_at < 1.0


async def test_without_its_lease_a_controller_tells_nobody_anything(w: World) -> None:
    await cluster(w)
    w.brokers[3].refusing = ErrorCode.STALE_BROKER_EPOCH
    await w.create("t", partitions=3)
    w.zookeeper.stop()
    await w.clock.sleep(SESSION_S)
    said = [len(each.said) for each in w.brokers.values()]
    w.brokers[3].refusing = ErrorCode.NONE
    w.kill_broker(1)
    await w.clock.sleep(SESSION_S)
    assert [len(each.said) for each in w.brokers.values()] == said
    w.zookeeper.start()
    await w.until(lambda: w.everybody_knows(alive={2, 3}) and w.in_sync(1) == 0, "it goes on")


async def test_a_controller_whose_znode_is_taken_away_serves_a_new_term(w: World) -> None:
    await cluster(w)
    client = w.zookeeper.client()
    await client.start()
    await client.multi([Delete(znodes.CONTROLLER)])
    await w.until(lambda: not w.controllers[1].active, "the term is over", SESSION_S / 2)
    await w.until(lambda: w.controllers[1].active, "it is elected again")
    assert w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data == b"2"


@requirement("An AlterIsr during a controller failover reaches the successor")
async def test_a_deposed_controller_says_what_may_be_done(w: World) -> None:
    """A request that it has begun with may be done, also by the next controller; one that waits in its queue is not."""
    await cluster(w)
    await w.create("t", partitions=1)
    leader = w.states()[T0].leader
    await w.until(lambda: T0 in w.brokers[leader].leads, "its leader is told")
    w.zookeeper.stop()
    begun = asyncio.ensure_future(w.create("begun"))
    isr = asyncio.ensure_future(w.alter_isr(leader, T0, {leader: w.brokers[leader].epoch}))
    term = w.controllers[1].term
    assert term is not None
    await w.until(lambda: not term.acting, "its lease is out")
    request = m.DeleteTopicsRequest(names=("begun",), timeout_ms=0)
    queued = asyncio.ensure_future(term.ask(lambda token: TopicsDeleteRequested(request, token), repeatable=False))
    w.zookeeper.expire(w.metas[1].session_id)
    w.zookeeper.start()
    assert await begun == [ErrorCode.REQUEST_TIMED_OUT]
    assert (await isr).error_code is ErrorCode.NOT_CONTROLLER, "its leader asks the next one in any case"
    with pytest.raises(TidelogError) as refused:
        await queued
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_an_expired_session_ends_the_term_at_once(w: World) -> None:
    await cluster(w)

    def beat() -> int:
        return w.zookeeper.dump()[znodes.CONTROLLER].stat.version

    last = beat()
    await w.until(lambda: beat() > last, "a beat of the lease")
    w.zookeeper.expire(w.metas[1].session_id)
    took_s = await w.until(lambda: not w.controllers[1].active, "the term is over")
    assert took_s < 0.5  # and not only at the next beat, 1.5 s later


async def test_a_process_that_listens_without_being_registered_stays_a_suspect(w: World) -> None:
    await w.active(suspect_hold_ms=500)
    for number in (1, 2, 3):
        await w.broker(number)
    await w.until(lambda: all(each.full() for each in w.brokers.values()), "every broker has its full LeaderAndIsr")
    assert await w.create("t", partitions=3) == [ErrorCode.NONE]
    w.kill_broker(1)
    await w.until(lambda: w.in_sync(1) == 0, "broker 1 has left every ISR")
    await w.listen_unregistered(1)
    await w.clock.sleep(3.0)
    assert w.sample(1, "tidelog_controller_brokers", state="suspected") == 1


async def test_a_link_ends_with_the_life_of_its_broker(w: World) -> None:
    await cluster(w)
    w.kill_broker(1)
    await w.until(lambda: w.sample(1, "tidelog_controller_brokers", state="alive") == 2, "its session has ended")
    await w.until(lambda: w.sample(1, "tidelog_controller_brokers", state="suspected") == 0, "and its suspicion")
    await w.clock.sleep(1.0)
    lines: list[str] = []
    w.network.trace = lines.append
    await w.clock.sleep(5.0)
    assert [line for line in lines if "broker-1" in line] == []


@dataclass
class Permits:
    """What is left of everybody's permissions."""

    operations: set[Operation]

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return operation in self.operations


@requirement("An unfit sender or receiver fails AlterIsr as a whole")
async def test_r_31_a_controller_answers_who_has_no_permission_and_changes_nothing(w: World) -> None:
    permits = Permits(set(Operation))
    w.authorizer = permits
    await cluster(w)
    await w.create("t", partitions=1)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    before = w.states()
    permits.operations -= {Operation.CLUSTER_ACTION, Operation.DELETE, Operation.CREATE}
    leader = before[T0].leader
    answer = await w.alter_isr(leader, T0, {leader: w.brokers[leader].epoch})
    assert answer == m.AlterIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    denied = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await w.create("u", partitions=1) == denied == await w.delete("t")
    assert w.states() == before
    assert w.sample(1, "tidelog_requests_denied_total", api="AlterIsr") == 1
    permits.operations.add(Operation.CLUSTER_ACTION)
    answer = await w.alter_isr(leader, T0, {leader: w.brokers[leader].epoch})
    assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE


async def leave(w: World, number: int) -> m.ControlledShutdownResponse:
    epoch = w.brokers[number].epoch
    request = m.ControlledShutdownRequest(broker_id=number, broker_epoch=epoch)
    return await w.channel(1).call(services.CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN, request, 10.0)


def roles_after_leaving(w: World, number: int, before: int) -> list[int]:
    """Partitions of each LeaderAndIsr among what broker `number` was told since it had been told `before` requests."""
    told = w.brokers[number].said[before:]
    return [len(each.partition_states) for each in told if isinstance(each, m.LeaderAndIsrRequest)]


@requirement("A controlled shutdown moves leaders before the process exits")
@pytest.mark.parametrize("batched", [True, False])
async def test_bench_9_a_broker_that_leaves_is_answered_when_it_leads_nothing(w: World, batched: bool) -> None:
    """Batched: one LeaderAndIsr for each broker. The switches of the benchmark change the cost and nothing else."""

    switches = {} if batched else {"multi_max_operations": 1, "control_requests_merged": False}
    await w.controller(1, **switches, shutdown_reads_states=not batched)
    for number in (1, 2, 3):
        await w.broker(number)
    await w.until(lambda: all(each.full() for each in w.brokers.values()), "every broker has its full LeaderAndIsr")
    await w.create("t", partitions=6)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    before = len(w.brokers[2].said)
    answer = await leave(w, 1)
    assert answer == m.ControlledShutdownResponse()
    assert w.in_sync(1) == 0 and not any(state.leader == 1 for state in w.states().values())
    await w.until(lambda: sum(roles_after_leaving(w, 2, before)) == 6, "broker 2 has heard of all")
    assert roles_after_leaving(w, 2, before) == ([6] if batched else [1] * 6)
    assert w.sample(1, "tidelog_controller_leader_elections_total", reason="shutdown") == 2
    assert w.sample(1, "tidelog_controller_brokers", state="shutting_down") == 1


async def test_a_standby_and_a_stale_life_are_refused(w: World) -> None:
    await cluster(w, controllers=2)
    request = m.ControlledShutdownRequest(broker_id=1, broker_epoch=w.brokers[1].epoch - 1)
    call = services.CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN
    codes = {(await w.channel(number).call(call, request, 10.0)).error_code for number in (1, 2)}
    assert codes == {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER}


@requirement("An unclean election needs the consent of the topic")
@pytest.mark.parametrize(("silent", "leader"), [(0, 3), (3, 2)])
async def test_an_unclean_election_asks_those_that_are_alive(w: World, silent: int, leader: int) -> None:
    """The largest log leads; a broker that does not answer holds the election up for a while, not for ever."""
    await cluster(w)
    await w.create("t", partitions=1)
    await w.until(lambda: T0 in w.states(), "its state is stored")
    for number in (1, 2, 3):
        w.kill_broker(number)
    await w.clock.sleep(SESSION_S * 2)
    for number, end in ((1, (-1, 0)), (2, (0, 90)), (3, (0, 100))):
        (await w.broker(number)).end = end
    await w.until(lambda: all(each.full() for each in w.brokers.values()), "every broker has its full LeaderAndIsr")
    assert w.states()[T0].leader == NO_LEADER, "each of them may have lost records"
    if silent:
        w.brokers[silent].gate.clear()
    topics = (m.TopicPartitions(topic="t", partitions=(0,)),)
    request = m.ElectLeadersRequest(unclean=True, topics=topics, timeout_ms=10_000)
    (result,) = (await w.channel(1).call(services.ADMIN_SERVICE_ELECT_LEADERS, request, 30.0)).results
    assert (result.error_code, result.leader, w.states()[T0].leader) == (ErrorCode.NONE, leader, leader)
    assert {e.broker_id: e.end_offset for e in result.ends} == {
        number: end for number, end in ((1, 0), (2, 90), (3, 100)) if number != silent
    }
