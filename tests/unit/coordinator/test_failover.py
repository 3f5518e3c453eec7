"""A new coordinator: what it reads, whom it awaits, and that nobody is rebalanced when the same members return (COORD-9)."""

from dataclasses import replace

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator.events import Outcome
from tidelog.coordinator.model import DRIFT, DRIFT_MIN_S, Committed, Phase
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import LIMITS, Scene, topic_count, tps

LEASE_S = 10.0 * (1 + DRIFT) + DRIFT_MIN_S


@requirement("A coordinator failover rebalances no group and skips no record")
@requirement("A rolling restart of all brokers causes no rebalance")
@requirement("A new coordinator reads its groups and their members")
@requirement("A killed coordinator broker costs no committed offset")
def test_coord_09_when_the_same_members_return_they_go_on_and_nobody_is_stopped() -> None:
    old = Scene()
    a, b = old.join("a", "b")
    a.positions = dict.fromkeys(a.owned, 5)
    old.run(5.0)
    generation = old.heads["g"].generation
    new = old.failover()
    new.run(2.0)
    for each in (a, b):
        each.heard.clear()
        new.move(each)
    assert [type(each) for each in a.heard] == [m.RegisterConsumerResponse, m.StartFetcherRequest], "at once"
    assert a.owned == tps("t", 0, 1) and b.owned == tps("t", 2, 3) and a.positions[TopicPartition("t", 0)] == 5
    assert (a.epoch, a.generation) == (8, generation)
    new.run(60.0)
    assert not new.of(fx.Rebalanced) and new.heads["g"].generation == generation and new.state() == "Stable"


@requirement("A new coordinator awaits the stored members of a group")
@requirement("Failure detection covers all stored members after a takeover")
@requirement("After a failover no partition moves before its owner is back or dead")
def test_a_member_that_does_not_return_is_dead_when_its_lease_must_be_out() -> None:
    old = Scene()
    a, *_others = old.join("a", "b", "c")
    new = old.failover()
    elected_at = new.now
    new.move(a)
    new.run(20.0, lambda: len(a.owned) == 4)
    assert -1e-6 <= new.now - elected_at - LEASE_S <= 0.5
    assert list(new.heads["g"].members) == ["a"]


@requirement("After a failover no partition moves before its owner is back or dead")
def test_a_newcomer_waits_for_those_who_may_return() -> None:
    old = Scene()
    a, b = old.join("a", "b")
    new = old.failover()
    c = new.consumer("c").register()
    new.run(5.0)
    assert not c.owned
    new.move(a)
    new.move(b)
    new.run(1.0)
    assert a.owned | b.owned | c.owned == tps("t", 0, 1, 2, 3) and c.owned


@requirement("A consumer that reconnects resumes its own registration")
def test_another_incarnation_after_a_failover_waits_for_the_lease_of_the_one_that_was() -> None:
    old = Scene()
    _a, b = old.join("a", "b", static_member=True)
    new = old.failover()
    new.move(b)
    newer = new.consumer("a", static_member=True).register()
    new.run(LEASE_S - 0.1)
    assert not newer.owned
    new.run(0.5)
    assert newer.owned == tps("t", 0, 1)


@requirement("A consumer that reconnects resumes its own registration")
def test_who_is_not_static_is_refused_meanwhile() -> None:
    old = Scene()
    old.join("a", "b")
    new = old.failover()
    newer = new.consumer("a").register()
    assert newer.error is not None and newer.error.error_code is ErrorCode.DUPLICATE_CONSUMER_ID


@requirement("A new coordinator awaits the stored members of a group")
@requirement("A rebalance that would change nothing is skipped")
@requirement("Owners and generation are stored before any fetcher starts")
def test_a_rebalance_that_was_stored_and_not_started_is_finished_by_the_next_coordinator() -> None:
    old = Scene()
    a, b = old.join("a", "b")
    b.positions = dict.fromkeys(b.owned, 6)
    old.holds_writes = True
    c = old.consumer("c").register()
    old.run(0.2)
    b.answers.clear()
    (write,) = [each for each in old.held if isinstance(each, fx.Write)]
    old._store(write)  # and the coordinator dies before it hears of it
    assert old.heads["g"].phase is Phase.STARTING
    new = old.failover()
    b.answers |= {"stop", "start", "ping"}
    for each in (a, b):
        new.move(each)
    assert not new.of(fx.RebalanceWanted), "c may return"
    new.move(c)
    assert a.owned == tps("t", 0, 1) and b.owned == tps("t", 2) and c.owned == tps("t", 3)
    assert c.positions == {TopicPartition("t", 3): 6}, "what the stop brought was stored with it"
    new.run(5.0)
    assert new.heads["g"].phase is Phase.STABLE and new.state() == "Stable"


@requirement("Owners and generation are stored before any fetcher starts")
def test_owners_that_are_newer_than_the_generation_were_stopped_and_not_started() -> None:
    """The write of owners went over several multis, and the last one with the generation did not arrive."""
    old = Scene()
    a, b = old.join("a", "b")
    b.positions = dict.fromkeys(b.owned, 6)
    old.holds_writes = True
    c = old.consumer("c").register()
    old.run(0.2)
    (write,) = [each for each in old.held if isinstance(each, fx.Write)]
    old._store(fx.Write(write.write_id, write.group_id, write.offsets, write.owners, None))
    new = old.failover()
    new.move(a)
    assert new.state() == "Stable" and a.owned == tps("t", 0, 1)
    new.move(b)
    new.move(c)
    new.run(1.0)
    assert b.owned == tps("t", 2) and c.owned == tps("t", 3) and c.positions[TopicPartition("t", 3)] == 6
    assert new.heads["g"].generation > write.head.generation > old.heads["g"].generation  # type: ignore[union-attr]


@requirement("Every multi of a coordinator checks the coordinator epoch")
def test_what_an_earlier_coordinator_says_is_older_whatever_its_generation() -> None:
    old = Scene()
    a, _b = old.join("a", "b")
    for _ in range(3):
        old.change_topics(t=len(old.topics) + 4)
        old.run(1.0)
    new = old.failover()
    new.move(a)
    assert (a.epoch, a.generation) > (old.epoch, 10**6)


@requirement("Offsets count only from the owner in its generation")
def test_an_answer_for_an_earlier_coordinator_does_not_count() -> None:
    old = Scene()
    (a,) = old.join("a")
    new = old.failover()
    a.answers.discard("start")
    new.move(a)
    a.positions = dict.fromkeys(a.owned, 9)
    a.epoch = old.epoch
    a.answer_ping()
    new.run(2.0)
    assert not new.offsets["g"]


@requirement("A coordinator failover rebalances no group and skips no record")
@requirement("Committed offsets never move back and leave no gap")
@requirement("A killed coordinator broker costs no committed offset")
def test_committed_offsets_survive() -> None:
    old = Scene()
    (a,) = old.join("a")
    a.commit(42, *a.owned)
    new = old.failover()
    assert new.machine.fetch_offsets(m.FetchOffsetsRequest(group_id="g")).offsets[0].offset == 42
    (b,) = new.join("b")
    assert not b.owned
    new.run(12.0)
    assert set(b.positions.values()) == {42}


@requirement("A new coordinator reads its groups and their members")
def test_a_group_without_members_waits_for_the_first() -> None:
    old = Scene()
    (a,) = old.join("a")
    a.commit(42, *a.owned)
    a.leave()
    new = old.failover()
    new.run(300.0)
    assert new.effects == [] and new.state() == "Empty"
    (b,) = new.join("b")
    assert b.positions == dict.fromkeys(tps("t", 0, 1, 2, 3), 42)


def test_coord_10_a_deposed_coordinator_resigns_at_its_next_write() -> None:
    old = Scene(holds_writes=True)
    old.consumer("a").register()
    old.run(1.0)
    old.carry_out(Outcome.FENCED)
    assert [each.reason for each in old.of(fx.Resign)] == ["another coordinator has been elected"]


def test_partitions_of_topics_that_are_gone_are_not_loaded() -> None:
    old = Scene(topics={"t": 4, "u": 1})
    (a,) = old.join("a", topic_count='{"pattern": "static", "subscription": {"t": 1, "u": 1}}')
    a.commit(3, *a.owned)
    new = old.failover(topics={"t": 2})
    new.move(a)
    new.run(1.0)
    assert a.owned == tps("t", 0, 1)
    assert {Committed(3)} == {each for tp, each in new.machine.groups["g"].offsets.items() if tp.topic == "t"}


@requirement("Added partitions cost an interested group one rebalance")
@pytest.mark.parametrize("now", [{"t": 6}, {"t": 4, "u": 1}, {"t": 3}])
def test_what_topics_gained_or_lost_while_nobody_coordinated_is_given_out(now: dict[str, int]) -> None:
    scene = Scene(topics={"t": 4})
    members = scene.join("a", "b", topic_count=topic_count("t", "u"))
    other = scene.failover(topics=now)
    for each in members:
        other.move(each)
    other.run(5.0, lambda: other.state() == "Stable")
    owned = [tp for each in members for tp in each.owned]
    assert len(owned) == len(set(owned)) and set(owned) == {tp for t, n in now.items() for tp in tps(t, *range(n))}


@requirement("Added partitions cost an interested group one rebalance")
def test_what_topics_gained_while_no_member_was_there_is_given_out_when_they_return() -> None:
    """Simulator, groups with seed 50: the news had been looked at when nobody could be told of it, and counted as seen."""
    scene = Scene(topics={"t": 4})
    members = scene.join("a", "b")
    for each in members:
        each.lose_connection()
    scene.change_topics(t=6)
    for each in members:
        each.reconnect()
    scene.run(5.0)
    assert members[0].owned | members[1].owned == tps("t", *range(6)) and scene.state() == "Stable"


@pytest.mark.parametrize("back_after_s", [0.1, 0.4], ids=["before the first rebalance", "after it"])
def test_a_group_whose_members_all_miss_its_first_rebalance(back_after_s: float) -> None:
    scene = Scene(topics={"t": 4})
    a = scene.consumer("a").register()
    scene.run(0.3)
    a.lose_connection()
    scene.run(back_after_s)
    a.reconnect()
    scene.run(5.0)
    assert a.owned == tps("t", *range(4)) and scene.state() == "Stable"
    assert len(a.bodies(m.StartFetcherRequest)) <= 2


@pytest.mark.parametrize("first", [True, False], ids=["of the group", "of the member"])
def test_a_member_that_misses_its_first_rebalance_gets_a_share(first: bool) -> None:
    scene = Scene(topics={"t": 4})
    others = [] if first else scene.join("other")
    a = scene.consumer("a").register()
    b = scene.consumer("b").register()
    a.lose_connection()
    scene.run(3.0)
    assert b.owned
    a.reconnect()
    scene.run(5.0)
    owned = [tp for each in (a, b, *others) for tp in each.owned]
    assert a.owned and sorted(owned) == sorted(tps("t", *range(4)))


@requirement("A new coordinator awaits the stored members of a group")
def test_a_rebalance_whose_last_answer_was_lost_is_stable_in_the_store_too() -> None:
    """Its attempt has failed, and all that it wanted is done: still the store must say so, or the next coordinator repeats it."""
    scene = Scene()
    (a,) = scene.join("a")
    b = scene.consumer("b").register()
    b.answers.discard("start")
    scene.run(5.0, lambda: b.bodies(m.StartFetcherRequest) != [])
    assert scene.heads["g"].phase is Phase.STARTING
    b.lose_connection()
    b.answers.add("start")
    b.reconnect()
    scene.run(5.0)
    assert scene.heads["g"].phase is Phase.STABLE and scene.state() == "Stable"
    assert a.owned | b.owned == tps("t", 0, 1, 2, 3)


def test_coord_09_a_commit_that_comes_before_its_member_is_asked_for_again_and_drops_nothing() -> None:
    old = Scene()
    (a,) = old.join("a")
    new = old.failover()
    a.scene = new
    early = a.commit(5, TopicPartition("t", 0))
    assert new.replies[early].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    a.answers.discard("start")
    new.move(a)
    crossing = a.commit(5, TopicPartition("t", 0))
    assert new.replies[crossing].error_code is ErrorCode.REBALANCE_IN_PROGRESS, "its start is on its way"
    a.answer_start(a.bodies(m.StartFetcherRequest)[-1])
    assert new.replies[a.commit(5, TopicPartition("t", 0))].error_code is ErrorCode.NONE
    late = a.commit(9, TopicPartition("t", 0), coordinator_epoch=old.epoch)
    assert new.replies[late].error_code is ErrorCode.ILLEGAL_GENERATION
    assert new.offsets["g"][TopicPartition("t", 0)] == Committed(5)


def test_nothing_of_a_topic_that_cannot_be_read_is_dropped() -> None:
    old = Scene()
    a, b = old.join("a", "b")
    a.commit(3, *a.owned)
    b.commit(4, *b.owned)
    new = old.failover(topics={"t": 0, "u": 1})
    for each in (a, b):
        new.move(each)
    new.run(5.0)
    b.commit(5, *b.owned)
    assert new.state() == "Stable" and (a.owned, b.owned) == (tps("t", 0, 1), tps("t", 2, 3))
    assert {tp.partition: each.offset for tp, each in new.offsets["g"].items()} == {0: 3, 1: 3, 2: 5, 3: 5}
    again = new.failover()
    again.change_topics(t=5)
    assert len(again.machine.groups["g"].offsets) == 4
    for each in (a, b):
        again.move(each)
    again.run(5.0)
    assert a.owned | b.owned == tps("t", 0, 1, 2, 3, 4)


def test_a_member_that_joins_again_is_told_newer_generations() -> None:
    scene = Scene(limits=replace(LIMITS, incremental=False))
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(30.0, lambda: len(a.bodies(m.StopFetcherRequest)) > 0)
    obeyed = max(each.generation for each in a.bodies(m.StopFetcherRequest))
    assert obeyed > scene.machine.groups["g"].generation
    a.leave()
    a.heard.clear()
    a.reconnect()
    a.lose_connection()
    a.reconnect()
    scene.run(1.0)
    (start, *_) = a.bodies(m.StartFetcherRequest)
    assert start.generation > obeyed


@requirement("Every partition has exactly one owner in its group")
def test_what_was_stored_for_a_member_that_has_died_is_given_out() -> None:
    """The store no longer names the member, and the coordinator died before others were given its partitions."""
    old = Scene()
    a, b = old.join("a", "b")
    b.lose_connection()
    old.run(LEASE_S - 0.2)
    a.answers.discard("start")
    old.change_topics(t=5)
    old.run(1.0, lambda: "b" not in old.machine.groups["g"].members)
    old.holds_writes = True
    a.answer_start(a.bodies(m.StartFetcherRequest)[-1])
    old._store(old.held[0])
    assert list(old.heads["g"].members) == ["a"] and old.owners["g"][TopicPartition("t", 2)].consumer_id == "b"
    new = old.failover()
    a.answers.add("start")
    new.move(a)
    new.run(5.0)
    assert a.owned == tps("t", *range(5)) and new.state() == "Stable"
