"""What the coordinator keeps of groups and members, and its three kinds of watchers: the structures of D0 by what they do."""

from dataclasses import replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator.model import Committed, Phase
from tidelog.coordinator.schedule import Asked, MemberKey, Watcher
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import LIMITS, Consumer, Scene, topic_count, tps

SESSION_S = 10.0
REGISTERED: dict[str, Any] = {
    "session_timeout_ms": 9000,
    "auto_commit": False,
    "auto_offset_reset": "largest",
    "static_member": True,
    "max_processing_ms": 40_000,
    "assignor": "sticky",
    "rejoin": True,
    "client_id": "client",
    "watch_port": 9000,
}
EAGER = replace(LIMITS, incremental=False)


# -- registries ------------------------------------------------------------------------------------------------------------


@requirement("A new coordinator reads its groups and their members")
def test_a_coordinator_without_groups_does_nothing_until_somebody_registers() -> None:
    scene = Scene()
    scene.run(300.0)
    assert scene.effects == [] and not scene.machine.groups
    (a,) = scene.join("a")
    assert a.owned == tps("t", 0, 1, 2, 3)


@requirement("A member is pinged from its registration to its end")
@requirement("The first registration of a group creates its registry")
@requirement("A registration starts pings, watches topics and rebalances")
@requirement("Registries come with registrations and go with failures")
def test_a_registration_makes_its_group_and_gets_a_ping_task_and_a_rebalance() -> None:
    scene = Scene()
    a = scene.consumer("a").register()
    group = scene.machine.groups["g"]
    assert list(group.members) == ["a"] and group.generation == 0 and not group.owners and not group.offsets
    assert MemberKey("g", "a") in scene.machine._members.pings
    scene.run(1.0, lambda: bool(a.owned))
    assert group.generation == 1 and scene.of(fx.Rebalanced)[0].reason == "join"
    scene.consumer("b", group="other").register()
    assert list(group.members) == ["a"], "another group has a registry of its own"


@requirement("A group registry holds its members and their offsets")
@requirement("A group registry consists of consumer registries")
@requirement("A consumer registry holds its registration and its stream")
def test_the_registry_has_what_was_registered_and_the_stream_that_it_came_by() -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=9))
    (a,) = scene.join("a", **REGISTERED)
    member = scene.machine.groups["g"].members["a"]
    assert member.request == m.RegisterConsumerRequest(**a.request | {"admission": 0})
    assert (member.session_s, member.connection, member.host) == (9.0, a.connection, "host")
    assert member.subscription is not None and dict(member.subscription.streams) == {"t": 1}
    a.answers.clear()
    scene.run(8.0, lambda: len(member.pings) == 2)
    assert [number for number, _ in member.pings] == [1, 2], "outstanding pings"
    scene.run(9.0, lambda: len(scene.of(fx.Expired)) == 2)
    assert member.failed_pings == 2
    a.answer_ping()
    assert not member.pings and member.failed_pings == 0


@requirement("Consumer ids are stored with their group and not as znodes")
def test_what_is_stored_of_a_group_is_what_a_coordinator_needs() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", assignor="sticky")
    stored = scene.heads["g"]
    assert (stored.generation, stored.phase, stored.assignor) == (1, Phase.STABLE, "sticky")
    assert {name: each.incarnation for name, each in stored.members.items()} == {"a": a.incarnation, "b": b.incarnation}
    assert stored.empty_since_ms == -1
    a.leave()
    b.leave()
    assert not scene.heads["g"].members and scene.heads["g"].empty_since_ms == scene.wall_ms


@requirement("A group registry consists of consumer registries")
def test_each_member_has_a_registry_of_its_own() -> None:
    scene = Scene()
    members = scene.join("a", "b", "c")
    registries = scene.machine.groups["g"].members
    assert {name: each.connection for name, each in registries.items()} == {
        each.name: each.connection for each in members
    }
    assert {each.host for each in registries.values()} == {"host"}, "all of them on one"


@requirement("A group registry holds its members and their offsets")
@requirement("A group keeps the newest offset of each partition")
def test_a_group_keeps_the_newest_offset_of_each_partition_from_pings_and_stops() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.positions, b.positions = dict.fromkeys(a.owned, 5), dict.fromkeys(b.owned, 6)
    a.answer_ping()
    group = scene.machine.groups["g"]
    assert group.reported == dict.fromkeys(tps("t", 0, 1), Committed(5))
    a.positions[TopicPartition("t", 0)] = 8
    a.answer_ping()
    assert group.reported[TopicPartition("t", 0)] == Committed(8)
    scene.join("c")
    assert group.offsets[TopicPartition("t", 3)] == Committed(6), "b was stopped there"
    assert group.offsets[TopicPartition("t", 0)] == Committed(8), "stored with the rebalance"
    assert not group.reported


@requirement("A group keeps the newest offset of each partition")
def test_a_commit_and_a_leave_bring_offsets_too() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.commit(7, TopicPartition("t", 0))
    group = scene.machine.groups["g"]
    assert group.offsets == {TopicPartition("t", 0): Committed(7)}
    b.positions = dict.fromkeys(b.owned, 9)
    b.leave()
    assert group.offsets == {TopicPartition("t", 0): Committed(7)} | dict.fromkeys(tps("t", 2, 3), Committed(9))


@requirement("Topic, partition and offset form one value")
@requirement("An assigned partition comes with its start offset")
@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("Ownership is listed by consumer thread")
@requirement("A start lists partitions and offsets by consumer thread")
def test_a_start_names_the_partitions_and_offsets_of_each_thread() -> None:
    scene = Scene(topics={"t": 5}, ids={"t": b"one"})
    (a,) = scene.join("a", topic_count=topic_count("t", streams=2))
    a.commit(7, offsets=(m.OffsetInfo(topic="t", partition=3, offset=7, leader_epoch=5),))
    a.lose_connection()
    a.reconnect()
    start = a.bodies(m.StartFetcherRequest)[-1]
    threads = {each.consumer_thread_id: each.assigned_parts for each in start.ownership_info}
    assert (start.num_threads, start.coordinator_epoch, start.generation) == (2, 7, 2)
    assert {name: [part.partition for part in parts] for name, parts in threads.items()} == {
        "a-0": [0, 1, 2],
        "a-1": [3, 4],
    }
    assert threads["a-1"] == (
        m.AssignedPartition(topic="t", partition=3, offset=7, leader_epoch=5, topic_id=b"one"),
        m.AssignedPartition(topic="t", partition=4, offset=-1, leader_epoch=-1, topic_id=b"one"),
    )


@requirement("A start lists partitions and offsets by consumer thread")
def test_a_thread_without_partitions_is_not_listed() -> None:
    scene = Scene(topics={"t": 1})
    (a,) = scene.join("a", topic_count=topic_count("t", streams=2))
    (start,) = a.bodies(m.StartFetcherRequest)
    assert [each.consumer_thread_id for each in start.ownership_info] == ["a-0"]


@requirement("A member is pinged from its registration to its end")
@requirement("The members that remain after a failure are rebalanced")
@requirement("A failed member is forgotten and its group rebalanced")
@requirement("A dead member leaves no ping task, stream or registry")
@requirement("Registries come with registrations and go with failures")
def test_a_dead_member_has_no_ping_task_no_stream_and_no_registry() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.answers.clear()
    connection = a.connection
    scene.run(3 * SESSION_S, lambda: a.closed)
    assert fx.Close(connection) in scene.effects
    group = scene.machine.groups["g"]
    assert list(group.members) == ["b"]
    assert MemberKey("g", "a") not in scene.machine._members.pings
    assert not [each for each in scene.machine._desk.purgatory._at if each.member.consumer_id == "a"]
    heard = len(a.heard)
    scene.run(2 * SESSION_S)
    assert len(a.heard) == heard, "nothing is sent to it any more (A20.06)"
    assert b.owned == tps("t", 0, 1, 2, 3) and scene.of(fx.Rebalanced)[-1].reason == "failure"


@requirement("A failed member is forgotten and its group rebalanced")
def test_the_last_or_one_without_partitions_is_only_forgotten() -> None:
    scene = Scene(topics={"t": 1})
    a, b = scene.join("a", "b")
    group, wanted = scene.machine.groups["g"], len(scene.of(fx.RebalanceWanted))
    assert a.owned and not b.owned
    b.answers.clear()
    scene.run(3 * SESSION_S)
    assert list(group.members) == ["a"]
    a.answers.clear()
    scene.run(3 * SESSION_S)
    assert not group.members
    assert len(scene.of(fx.RebalanceWanted)) == wanted


# -- pings -----------------------------------------------------------------------------------------------------------------


@requirement("A member is pinged from its registration to its end")
def test_a_members_pings_begin_with_its_registration_and_end_with_its_leave() -> None:
    scene = Scene()
    a = scene.consumer("a").register()
    scene.run(SESSION_S / 3)
    assert len(a.bodies(m.PingRequest)) == 1, "the first comes within a third of the session"
    a.leave()
    a.closed = False
    heard = len(a.heard)
    scene.run(2 * SESSION_S)
    assert len(a.heard) == heard and MemberKey("g", "a") not in scene.machine._members.pings


@requirement("A member is pinged from its registration to its end")
def test_a_member_that_loses_its_stream_has_no_ping_task() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    assert MemberKey("g", "a") in scene.machine._members.pings
    a.lose_connection()
    assert MemberKey("g", "a") not in scene.machine._members.pings


@requirement("A member is pinged from its registration to its end")
@pytest.mark.parametrize("asked", ["stop", "start"])
def test_a_member_that_lets_a_request_expire_is_not_pinged(asked: str) -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard(asked)
    if asked == "stop":
        scene.consumer("c").register()
    else:
        b.reconnect()
    scene.run(SESSION_S, lambda: scene.expired(asked))
    assert scene.expired(asked) and MemberKey("g", "b") not in scene.machine._members.pings
    pings = len(b.bodies(m.PingRequest))
    scene.run(2 * SESSION_S)
    assert len(b.bodies(m.PingRequest)) == pings


@requirement("Pings go out on the stream of the latest registration")
def test_pings_go_by_the_stream_on_which_the_consumer_registered_last() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    old = a.connection
    a.reconnect()
    scene.effects.clear()
    scene.run(2 * SESSION_S)
    sent = {each.connection for each in scene.of(fx.Send)}
    assert sent == {a.connection} and a.connection != old


# -- the purgatory ---------------------------------------------------------------------------------------------------------


def watched(scene: Scene, asked: Asked, consumer: Consumer) -> bool:
    members = {(each.asked, each.member.consumer_id) for each in scene.machine._desk.purgatory._at}
    return (asked, consumer.name) in members


@requirement("A ping sets its watcher and schedules the next one")
@requirement("A member answers each request within two thirds of its session")
@requirement("Each kind of coordinator request has expiry watchers")
@requirement("Every request to a member gets an expiry watcher")
@pytest.mark.parametrize("asked", ["ping", "stop", "start"])
def test_each_request_must_be_answered_within_two_thirds_of_the_session(asked: str) -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=9))
    _a, b = scene.join("a", "b")
    b.answers.discard(asked)
    if asked == "stop":
        scene.consumer("c").register()
    elif asked == "start":
        b.reconnect()
    kind = {"ping": m.PingRequest, "stop": m.StopFetcherRequest, "start": m.StartFetcherRequest}[asked]
    before = len(b.bodies(kind)) - (asked == "start")
    scene.run(SESSION_S, lambda: len(b.bodies(kind)) > before)
    sent_at = scene.now
    assert watched(scene, Asked(asked), b)
    scene.run(SESSION_S, lambda: scene.expired(asked))
    assert abs(scene.now - sent_at - SESSION_S * 2 / 3) < 1e-6


@requirement("A member that is stopped states how far it has processed")
@requirement("An answer clears the expiry watcher of its request")
@requirement("A StartFetcher answer clears its expiry watcher")
def test_every_answer_clears_the_watcher_of_its_request() -> None:
    scene = Scene(limits=EAGER)
    a, b = scene.join("a", "b")
    a.answers.clear()
    scene.run(SESSION_S, lambda: len(scene.machine._desk.purgatory) == 2)
    assert watched(scene, Asked.PING, a)
    a.answer_ping()
    assert len(scene.machine._desk.purgatory) == 0, "one answer clears the watchers of both pings"
    scene.change_topics(t=6)
    assert watched(scene, Asked.STOP, a) and not watched(scene, Asked.STOP, b), "b has answered"
    a.answer_stop(a.bodies(m.StopFetcherRequest)[-1])
    assert not watched(scene, Asked.STOP, a) and watched(scene, Asked.START, a)
    a.answer_start(a.bodies(m.StartFetcherRequest)[-1])
    assert not watched(scene, Asked.START, a)
    scene.run(SESSION_S * 0.6)
    assert not scene.of(fx.Expired)


@requirement("A StartFetcher answer clears its expiry watcher")
@requirement("A rebalance stops all members, stores, then starts all")
@requirement("A rebalance goes on when its last member has answered")
@requirement("A handler waits until all stop and start answers are in")
@requirement("A rebalance runs only if needed and awaits all answers")
def test_an_attempt_goes_on_when_the_last_member_has_answered_and_not_before() -> None:
    scene = Scene(limits=EAGER)
    a, b = scene.join("a", "b")
    for each in (a, b):
        each.answers -= {"stop", "start"}
    scene.change_topics(t=6)
    stops = [each.bodies(m.StopFetcherRequest)[-1] for each in (a, b)]
    a.answer_stop(stops[0])
    scene.run(1.0)
    assert a.generation == 1 and scene.heads["g"].generation == 1, "b is waited for"
    b.answer_stop(stops[1])
    starts = [each.bodies(m.StartFetcherRequest)[-1] for each in (a, b)]
    assert {each.generation for each in starts} == {2}
    b.answer_start(starts[1])
    scene.run(1.0)
    assert scene.heads["g"].phase.value == "starting" and scene.state() == "CompletingRebalance"
    a.answer_start(starts[0])
    assert scene.heads["g"].phase.value == "stable" and scene.state() == "Stable"


@requirement("A failed attempt is marked and checked after each wait")
@requirement("An expired stop or start request fails its rebalance attempt")
@requirement("An expired ping adds to the failures of its member")
def test_an_expired_stop_fails_the_attempt_and_an_expired_ping_counts_against_its_member() -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=9))
    a, b = scene.join("a", "b")
    a.answers.discard("ping")
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(SESSION_S, lambda: scene.expired("stop"))
    group = scene.machine.groups["g"]
    assert group.failures == 1 and group.attempt is None and [each.failed for each in scene.of(fx.Rebalanced)][-1]
    scene.run(SESSION_S, lambda: scene.expired("ping"))
    assert group.members["a"].failed_pings == 1 and group.failures == 1


@requirement("A member answers each request within two thirds of its session")
@requirement("A failed attempt is marked and checked after each wait")
@requirement("An expired stop or start request fails its rebalance attempt")
def test_an_expired_start_fails_the_attempt() -> None:
    scene = Scene()
    scene.join("a")
    b = scene.consumer("b")
    b.answers.discard("start")
    b.register()
    scene.run(SESSION_S, lambda: scene.expired("start"))
    group = scene.machine.groups["g"]
    assert group.failures == 1 and group.attempt is None and scene.of(fx.Rebalanced)[-1].failed


@requirement("An expired stop or start request fails its rebalance attempt")
def test_an_expired_ping_does_not_affect_the_attempt() -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=9))
    a, b = scene.join("a", "b")
    a.answers.discard("ping")
    b.answers.discard("stop")
    asked = len(a.bodies(m.PingRequest))
    scene.run(SESSION_S, lambda: len(a.bodies(m.PingRequest)) > asked)
    c = scene.consumer("c").register()
    scene.run(SESSION_S, lambda: scene.expired("ping"))
    attempt = scene.machine.groups["g"].attempt
    assert attempt is not None and not attempt.failed and not scene.expired("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[-1])
    scene.run(1.0)
    assert c.owned and not any(each.failed for each in scene.of(fx.Rebalanced))


# -- handlers --------------------------------------------------------------------------------------------------------------


@requirement("A handler takes the next group and clears its request mark")
@requirement("A group stays with its handler while it is rebalanced")
@requirement("The number of rebalance handlers is a setting")
@requirement("Every rebalance handler has a queue of its own")
@requirement("Handlers rebalance different groups side by side")
@requirement("Rebalance requests go to the handlers in turn")
def test_as_many_groups_are_rebalanced_at_a_time_as_there_are_handlers_in_turn() -> None:
    scene = Scene(limits=replace(LIMITS, handlers=3))
    names = [f"g{n}" for n in range(5)]
    for name in names:
        consumer = scene.consumer("a", group=name)
        consumer.answers.discard("start")
        consumer.register()
    scene.run(1.0)
    handlers = scene.machine._rebalancer.handlers
    assert [each.current for each in handlers] == ["g0", "g1", "g2"]
    assert [list(each.queue) for each in handlers] == [["g3"], ["g4"], []]
    assert [scene.machine.groups[name].rebalance_initiated for name in names] == [False, False, False, True, True]
    first = next(each for each in scene.consumers.values() if each.group_id == "g0")
    first.answer_start(first.bodies(m.StartFetcherRequest)[0])
    assert handlers[0].current == "g3" and not handlers[0].queue, "the next of its own queue (A16.01)"


@requirement("A handler takes the next group and clears its request mark")
def test_a_handler_takes_groups_in_the_order_of_their_requests() -> None:
    scene = Scene(limits=replace(LIMITS, handlers=1))
    members = [scene.consumer("a", group=f"g{n}") for n in range(4)]
    for each in members:
        each.answers.discard("start")
        each.register()
    scene.run(1.0)
    (handler,) = scene.machine.handlers
    for each in members:
        assert handler.current == each.group_id and not scene.machine.groups[each.group_id].rebalance_initiated
        each.answer_start(each.bodies(m.StartFetcherRequest)[0])
        assert scene.state(each.group_id) == "Stable"
    assert handler.current is None


@requirement("A completed rebalance releases its handler")
def test_a_group_whose_next_request_waits_keeps_its_handler() -> None:
    scene = Scene(limits=replace(LIMITS, handlers=2))
    members = [scene.consumer("a", group=f"g{n}") for n in range(3)]
    for each in members:
        each.answers.discard("start")
        each.register()
    scene.run(1.0)
    scene.change_topics(t=6)
    first, second = scene.machine.handlers
    assert [list(each.queue) for each in (first, second)] == [["g2", "g0"], ["g1"]]
    members[0].answer_start(members[0].bodies(m.StartFetcherRequest)[0])
    assert first.current == "g2" and scene.machine.groups["g0"].current_rebalancer == 0
    members[1].answer_start(members[1].bodies(m.StartFetcherRequest)[0])
    assert second.current == "g1" and scene.machine.groups["g1"].rebalance_initiated is False


@requirement("One handler rebalances a group and one request waits")
def test_a_group_that_is_deleted_while_its_owners_are_being_stored_gives_its_handler_back() -> None:
    scene = Scene(limits=replace(LIMITS, handlers=1), holds_writes=True)
    a = scene.consumer("a").register()
    scene.run(1.0)
    assert scene.machine.groups["g"].attempt is not None
    a.leave()
    scene.delete("g")
    assert scene.machine.handlers[0].current is None
    scene.holds_writes = False
    scene.carry_out()
    assert "g" not in scene.owners
    (again,) = scene.join("a", group="g")
    assert again.owned == tps("t", 0, 1, 2, 3)


@requirement("One handler rebalances a group and one request waits")
def test_what_a_deleted_group_has_asked_for_is_not_done_for_the_next_one_of_its_name() -> None:
    scene = Scene(limits=replace(LIMITS, handlers=2))
    slow = [scene.consumer("a", group=name) for name in ("g0", "g1")]
    for each in slow:
        each.answers.discard("start")
        each.register()
    scene.run(1.0)
    waits = scene.consumer("a").register()
    scene.run(1.0)
    assert scene.machine.groups["g"].rebalance_initiated
    waits.leave()
    scene.delete("g")
    assert not any(each.queue for each in scene.machine.handlers)
    slow[1].answer_start(slow[1].bodies(m.StartFetcherRequest)[0])
    (again,) = scene.join("a", group="g")
    slow[0].answer_start(slow[0].bodies(m.StartFetcherRequest)[0])
    scene.run(5.0)
    assert again.owned == tps("t", 0, 1, 2, 3)
    assert [each.current for each in scene.machine.handlers] == [None, None]


@requirement("A group belongs to one handler until its rebalance is complete")
@requirement("A group stays with its handler while it is rebalanced")
def test_a_rebalance_goes_to_a_handler_that_does_nothing_as_long_as_there_is_one() -> None:
    """An application may take minutes to finish what it has in hand: that is no reason for other groups to wait."""
    scene = Scene(limits=replace(LIMITS, handlers=3))
    slow = scene.consumer("a", group="slow")
    slow.answers.discard("start")
    slow.register()
    scene.run(1.0)
    assert scene.machine.handlers[0].current == "slow"
    for name in ("g1", "g2", "g3", "g4"):
        (member,) = scene.join("a", group=name)
        assert member.owned, f"{name} waits behind it"


@requirement("The minimum session timeout is a setting")
def test_and_limits_are_the_ones_that_were_set() -> None:
    scene = Scene(limits=replace(LIMITS, session_min_s=6.0, rebalance_retries_max=0))
    refused = scene.consumer("a").register(session_timeout_ms=6000)
    assert refused.error is not None
    a, b = scene.join("a", "b", session_timeout_ms=6001)
    b.answers.discard("stop")
    scene.consumer("c").register(session_timeout_ms=6001)
    scene.run(5.0)
    assert len(scene.of(fx.Alarm)) == 1, "the first failure is one too many"
    assert a.owned
    assert Watcher(Asked.STOP, MemberKey("g", "b")) not in scene.machine._desk.purgatory
