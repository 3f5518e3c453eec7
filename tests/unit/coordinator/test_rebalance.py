"""Rebalances: who is stopped and started, in which order what is stored, and what happens when somebody does not answer."""

from dataclasses import replace

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.events import Outcome
from tidelog.coordinator.group import Step
from tidelog.coordinator.model import Committed, GroupLimits, Phase
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import LIMITS, Consumer, Scene, pattern, topic_count, tps

EAGER = replace(LIMITS, incremental=False)
T = tps("t", 0, 1, 2, 3)


def told(consumer: Consumer) -> list[str]:
    kinds = {m.StopFetcherRequest: "stop", m.StartFetcherRequest: "start"}
    return [kinds[type(each)] for each in consumer.heard if type(each) in kinds]


# -- a16: the algorithm ----------------------------------------------------------------------------------------------------


@requirement("At most one consumer of a group delivers a partition")
@requirement("A coordinator on the brokers rebalances consumer groups")
@requirement("Every partition has exactly one owner in its group")
def test_every_partition_has_exactly_one_owner_after_each_join_and_leave() -> None:
    scene = Scene(topics={"t": 7})
    everything = tps("t", *range(7))
    consumers = []
    for name in "abcd":
        consumers += scene.join(name)
        owned = [tp for each in consumers for tp in each.owned]
        assert set(owned) == everything and len(owned) == 7
    for each in consumers[:3]:
        each.leave()
        each.owned.clear()
        owned = [tp for other in consumers for tp in other.owned]
        assert set(owned) == everything and len(owned) == 7


@requirement("Every partition has exactly one owner in its group")
def test_each_topic_is_owned_by_its_subscribers() -> None:
    scene = Scene(topics={"t": 3, "u": 2})
    scene.join("a")
    scene.join("b", topic_count=topic_count("u"))
    owners = {tp: owner.consumer_id for tp, owner in scene.owners["g"].items()}
    assert owners == dict.fromkeys(tps("t", 0, 1, 2), "a") | dict.fromkeys(tps("u", 0, 1), "b")


@requirement("The coordinator tells members their share of an assignment")
@requirement("A rebalance stops all members, stores, then starts all")
@requirement("A start request names the newest offsets of its group")
def test_a_documented_rebalance_stops_everybody_stores_starts_everybody_and_confirms() -> None:
    scene = Scene(limits=EAGER)
    a, b = scene.join("a", "b")
    a.positions, b.positions = dict.fromkeys(a.owned, 5), dict.fromkeys(b.owned, 6)
    scene.effects.clear()
    (c,) = scene.join("c")
    order = []
    for each in scene.effects:
        match each:
            case fx.Send(_, message) if message.stop is not None:
                order.append("stop")
            case fx.Send(_, message) if message.start is not None:
                order.append("start")
            case fx.Write(_, _, offsets, owners, head):
                assert head is not None
                order.append(f"{head.phase.value} {len(offsets)} {len(owners)}")
    assert order == ["stop", "stop", "starting 4 1", "start", "start", "start", "stable 0 0"]
    (write,) = [each for each in scene.writes if each.offsets]
    assert set(write.offsets.values()) == {Committed(5), Committed(6)}, "forced commit (A16.05.3)"
    assert c.positions == {TopicPartition("t", 3): 6}, "the starts name what the stops brought (A16.08)"


@requirement("The coordinator tells members their share of an assignment")
@requirement("A rebalance stops all members, stores, then starts all")
@requirement("StopFetcherRequest names the consumer that is to stop")
def test_incremental_stops_only_who_loses_something_and_only_that() -> None:
    scene = Scene(topics={"t": 4, "u": 1})
    a, b = scene.join("a", "b")
    (stranger,) = scene.join("x", topic_count=topic_count("u"))
    for each in (a, b, stranger):
        each.heard.clear()
    (c,) = scene.join("c")
    assert told(a) == told(stranger) == [], "they keep what they have"
    assert told(b) == ["stop", "start"] and b.bodies(m.StopFetcherRequest)[0].revoked == (
        m.PartitionName(topic="t", partition=3),
    )
    c.leave()
    starts = [
        [p.partition for o in each.ownership_info for p in o.assigned_parts] for each in b.bodies(m.StartFetcherRequest)
    ]
    assert starts == [[2], [2, 3]], "all that it owns, also what it keeps"


@requirement("Owners and generation are stored before any fetcher starts")
def test_owners_and_generation_are_stored_before_anybody_is_started() -> None:
    scene = Scene(holds_writes=True)
    a = scene.consumer("a").register()
    scene.run(1.0)
    assert not a.owned and scene.held
    scene.carry_out()
    assert a.owned == T == set(scene.owners["g"]) and scene.heads["g"].phase is Phase.STARTING
    scene.carry_out()
    assert scene.heads["g"].phase is Phase.STABLE and scene.state() == "Stable"


@requirement("A rebalance that would change nothing is skipped")
@requirement("A rebalance runs only if needed and awaits all answers")
def test_when_nothing_would_change_nobody_is_told_anything() -> None:
    scene = Scene()
    a, _b = scene.join("a", "b")
    before = scene.heads["g"], len(a.heard)
    scene.change_topics(other=3)
    scene.run(1.0)
    assert (scene.heads["g"], len(a.heard)) == before


@requirement("A rebalance that would change nothing is skipped")
@requirement("A rebalance runs only if needed and awaits all answers")
def test_a_rebalance_that_finds_everything_as_it_should_be_is_skipped() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    generation, rebalances = scene.heads["g"].generation, len(scene.of(fx.Rebalanced))
    for each in (a, b):
        each.heard.clear()
    b.reconnect(topic_count=topic_count("t", "missing"))
    scene.run(1.0)
    assert (scene.heads["g"].generation, len(scene.of(fx.Rebalanced))) == (generation, rebalances)
    assert told(a) == [] and told(b) == ["start"], "it was told what it owns when it came back, and nothing since"
    group = scene.machine.groups["g"]
    assert group.current_rebalancer is None and not group.rebalance_initiated
    scene.change_topics(missing=1)
    scene.run(1.0)
    assert b.owned == tps("t", 2, 3) | tps("missing", 0), "then it is necessary"


@requirement("A rebalance attempt works on a fixed list of members")
def test_a_member_that_comes_during_an_attempt_waits_for_the_next_one() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(0.2)
    attempt = scene.machine.groups["g"].attempt
    assert attempt is not None and attempt.members == ("a", "b", "c")
    d = scene.consumer("d").register()
    scene.run(0.5)
    assert scene.machine.groups["g"].attempt is attempt and "d" not in attempt.members
    b.answers.add("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0])
    scene.run(1.0)
    assert [len(each.owned) for each in (a, b, c, d)] == [1, 1, 1, 1]
    assert d.bodies(m.StartFetcherRequest)[0].generation == c.bodies(m.StartFetcherRequest)[0].generation + 1


@requirement("A rebalance attempt works on a fixed list of members")
def test_an_absent_member_is_not_of_an_attempt() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.lose_connection()
    scene.change_topics(t=6)
    assert scene.of(fx.RebalanceBegun)[-1].members == 1
    assert a.owned == tps("t", 0, 1, 4, 5), "what b owns stays with it"


def test_coord_06_joins_that_come_together_are_one_rebalance() -> None:
    scene = Scene(topics={"t": 10})
    for name in "abcdefghij":
        scene.consumer(name).register()
        scene.run(0.05)
    scene.run(3.0)
    assert scene.heads["g"].generation <= 2, "the initial delay, at most extended to its limit"
    assert next(each.reason for each in scene.of(fx.Rebalanced)) == "join"


@requirement("A registration starts pings, watches topics and rebalances")
def test_a_join_waits_for_others_and_each_of_them_anew() -> None:
    scene = Scene(limits=replace(LIMITS, initial_delay_s=0.2, join_delay_s=0.1, join_delay_max_s=0.25))

    def begins_after(*joins_s: float) -> float:
        """Seconds from the first of these joins to the rebalance."""
        first, begun = scene.now, len(scene.of(fx.RebalanceBegun))
        for after_s in joins_s:
            scene.run(first + after_s - scene.now)
            scene.consumer(f"c{len(scene.consumers)}").register()
        assert len(scene.of(fx.RebalanceBegun)) == begun
        scene.run(5.0, lambda: len(scene.of(fx.RebalanceBegun)) > begun)
        taken = scene.now - first
        scene.run(1.0)
        return round(taken, 6)

    assert begins_after(0.0) == 0.2, "the group was empty"
    assert begins_after(0.0) == 0.1
    assert begins_after(0.0, 0.06) == 0.16, "the wait begins anew"
    assert begins_after(0.0, 0.08, 0.16, 0.24) == 0.25, "and ends"


@requirement("A registration starts pings, watches topics and rebalances")
def test_a_join_waits_for_the_lease_of_an_absent_owner() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    ends_at = scene.machine.groups["g"].members["a"].dead_at
    a.lose_connection()
    c = scene.consumer("c").register()
    scene.run(ends_at - scene.now - 0.01)
    assert not c.owned
    scene.run(0.02)
    assert b.owned | c.owned == T and c.owned


def test_joins_that_never_end_do_not_postpone_a_rebalance_for_ever() -> None:
    scene = Scene(topics={"t": 10}, limits=replace(LIMITS, members_max=1000))
    (_a,) = scene.join("a")
    for index in range(40):
        scene.consumer(f"b{index}").register()
        scene.run(0.05)
    assert scene.heads["g"].generation > 1


# -- requests, handlers ----------------------------------------------------------------------------------------------------


@requirement("A group belongs to one handler until its rebalance is complete")
@requirement("Added partitions cost an interested group one rebalance")
@requirement("A new topic goes to the groups with a matching pattern")
@requirement("A group stays with its handler while it is rebalanced")
@requirement("At most one rebalance request of a group is queued")
@requirement("A handler takes the next group and clears its request mark")
@requirement("One handler rebalances a group and one request waits")
def test_while_a_request_is_queued_no_other_is() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", topic_count=pattern("[tuv]"))
    a.answers.discard("stop")
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(0.2)
    group = scene.machine.groups["g"]
    for change in ({"t": 5}, {"t": 6}, {"u": 1}, {"v": 1}):
        scene.change_topics(**change)
        scene.run(0.2)
    handlers = scene.machine._rebalancer.handlers
    queued = [name for handler in handlers for name in handler.queue]
    assert queued == ["g"] and group.rebalance_initiated and group.attempt is not None
    assert [handler.current for handler in handlers if handler.queue] == ["g"], "with the handler that has it"


@requirement("A group stays with its handler while it is rebalanced")
@requirement("A group belongs to one handler until its rebalance is complete")
@requirement("A completed rebalance releases its handler")
@requirement("One handler rebalances a group and one request waits")
def test_a_group_stays_with_its_handler_until_its_rebalance_is_complete() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(0.2)
    group = scene.machine.groups["g"]
    mine = group.current_rebalancer
    assert mine is not None
    for name in ("h1", "h2", "h3"):
        scene.join("x", group=name)
    scene.run(10.0, lambda: group.attempt is None)
    assert group.attempt is None and group.current_rebalancer == mine, "in its back-off it still belongs to it"
    b.answers.add("stop")
    scene.run(20.0)
    assert group.current_rebalancer is None and scene.state() == "Stable"


@requirement("A completed rebalance releases its handler")
def test_the_next_rebalance_of_a_group_goes_to_the_next_handler() -> None:
    scene = Scene()
    taken = []
    for name in "abc":
        consumer = scene.consumer(name)
        consumer.answers.discard("start")
        consumer.register()
        scene.run(1.0)
        group = scene.machine.groups["g"]
        taken.append(group.current_rebalancer)
        consumer.answers.add("start")
        consumer.answer_start(consumer.bodies(m.StartFetcherRequest)[-1])
        assert group.current_rebalancer is None and scene.state() == "Stable"
    assert taken == [0, 1, 0]


@requirement("Handlers rebalance different groups side by side")
def test_other_groups_are_rebalanced_by_the_other_handler_meanwhile() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(0.2)
    (x,) = scene.join("x", group="h")
    assert x.owned == T and scene.state() == "PreparingRebalance"


# -- topics ----------------------------------------------------------------------------------------------------------------


@requirement("Added partitions start a rebalance of interested groups")
@requirement("Added partitions cost an interested group one rebalance")
@requirement("A matching new topic or new partitions cost one rebalance each")
def test_partitions_that_were_added_are_owned_after_one_rebalance() -> None:
    scene = Scene(topics={"t": 4, "u": 1})
    a, b = scene.join("a", "b")
    (x,) = scene.join("x", group="h")
    scene.join("y", group="i", topic_count=topic_count("u"))
    before = {group: scene.heads[group].generation for group in "ghi"}
    scene.change_topics(t=6)
    scene.run(1.0)
    assert a.owned | b.owned == x.owned == tps("t", *range(6))
    after = {group: scene.heads[group].generation for group in "ghi"}
    assert after == {"g": before["g"] + 1, "h": before["h"] + 1, "i": before["i"]}, "one for each interested group"


@requirement("A new topic goes to the groups with a matching pattern")
@requirement("A matching new topic or new partitions cost one rebalance each")
def test_a_new_topic_that_a_wildcard_matches_is_owned_and_another_is_not() -> None:
    scene = Scene(topics={"logs-a": 2, "x": 2})
    (a,) = scene.join("a", topic_count=pattern("logs-.*"))
    (b,) = scene.join("b", group="h", topic_count=pattern("logs-.*", "black_list"))
    (c,) = scene.join("c", group="i", topic_count=pattern(".*-b"))
    before = {group: scene.heads[group].generation for group in "ghi"}
    scene.change_topics(**{"logs-b": 1})
    scene.run(1.0)
    assert a.owned == tps("logs-a", 0, 1) | tps("logs-b", 0) and b.owned == tps("x", 0, 1)
    assert c.owned == tps("logs-b", 0)
    after = {group: scene.heads[group].generation for group in "ghi"}
    assert after == {"g": before["g"] + 1, "h": before["h"], "i": before["i"] + 1}
    scene.change_topics(**{"logs-b": 2})
    scene.run(1.0)
    assert a.owned >= tps("logs-b", 0, 1) == c.owned, "its partitions are watched from then on"


@requirement("A coordinator notices new topics and partitions")
@requirement("A group may subscribe to a topic before it exists")
@pytest.mark.parametrize("limits", [LIMITS, EAGER], ids=["incremental", "documented"])
def test_a_topic_may_be_subscribed_before_it_exists(limits: GroupLimits) -> None:
    scene = Scene(topics={}, limits=limits)
    (a,) = scene.join("a")
    assert not a.owned
    scene.change_topics(t=2)
    scene.run(1.0)
    assert a.owned == tps("t", 0, 1)


@requirement("A coordinator notices new topics and partitions")
@requirement("A rebalance that would change nothing is skipped")
def test_conflict_26_a_deleted_topic_has_no_owners_and_no_offsets_and_a_new_one_of_its_name_begins_anew() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    scene.run(5.0)
    assert scene.offsets["g"]
    scene.change_topics(t=0)
    scene.run(1.0)
    assert not a.owned and not scene.offsets["g"] and not scene.owners["g"]
    scene.change_topics(t=1)
    scene.run(1.0)
    assert a.owned == tps("t", 0) and a.positions[TopicPartition("t", 0)] == 0


@pytest.mark.parametrize("left", [0, 1])
def test_conflict_26_who_was_away_when_a_topic_went_or_lost_partitions_does_not_keep_them(left: int) -> None:
    scene = Scene(topics={"t": 4, "u": 2}, ids={"t": b"one"})
    _, b = scene.join("a", "b", topic_count=topic_count("t", "u"))
    assert b.owned == {*tps("t", 2, 3), *tps("u", 1)}
    b.lose_connection()
    scene.change_topics(ids={"t": b"another"} if left else None, t=left)
    scene.run(1.0)
    b.reconnect()
    scene.run(5.0)
    assert b.owned == tps("u", 1) and not scene.owners["g"].keys() & tps("t", 1, 2, 3)
    assert scene.state() == "Stable"


@requirement("A topic id separates topics that share a name")
def test_offsets_of_an_earlier_topic_of_the_name_are_forgotten_at_once() -> None:
    scene = Scene(ids={"t": b"one"})
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    scene.run(5.0)
    scene.change_topics(ids={"t": b"another"}, t=4)
    assert set(scene.offsets["g"].values()) == {Committed(0, topic_id=b"another")}


def test_coord_17_topics_that_change_during_a_rebalance_are_looked_at_again_when_it_is_over() -> None:
    scene = Scene(topics={"t": 4, "u": 2})
    a, b = scene.join("a", "b", topic_count=topic_count("t", "u"))
    for each in (a, b):
        each.positions = dict.fromkeys(each.owned, 5)
    b.answers.discard("stop")
    c = scene.consumer("c", topic_count=topic_count("t", "u")).register()
    scene.run(0.2)
    attempt = scene.machine.groups["g"].attempt
    assert attempt is not None and attempt.step is Step.STOPPING
    scene.change_topics(t=6, u=0)
    b.answers.add("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0])
    scene.run(2.0)
    everything = tps("t", *range(6))
    assert [len(each.owned) for each in (a, b, c)] == [2, 2, 2] and a.owned | b.owned | c.owned == everything
    assert set(scene.owners["g"]) == everything and set(scene.offsets["g"]) <= everything
    assert scene.state() == "Stable"


# -- somebody does not answer ----------------------------------------------------------------------------------------------


@requirement("A member that ignores a stop request loses its lease")
@requirement("A member silent during a rebalance fails only the attempt")
def test_coord_07_a_member_that_does_not_answer_stop_is_removed_when_its_lease_is_out_and_the_others_go_on() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    b.positions = dict.fromkeys(b.owned, 3)
    c = scene.consumer("c").register()
    scene.run(5.0, lambda: told(b)[-1] == "stop")
    scene.run(6.6)
    assert not [each for each in scene.of(fx.Rebalanced) if each.failed]
    scene.run(0.3)
    assert a.owned | c.owned == tps("t", 0, 1), "its partitions are still its own"
    failed = [each for each in scene.of(fx.Rebalanced) if each.failed]
    assert len(failed) == 1 and scene.expired("stop"), "two thirds of its session are over"
    scene.run(11.0)
    assert b.closed and a.owned | c.owned == T
    assert all(offset in (0, 3) for offset in c.positions.values()), "from what was committed"


def test_a_member_that_answers_stop_late_is_taken_in_again() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(7.5)
    b.answers.add("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[-1])
    scene.run(3.0)
    assert a.owned | b.owned | c.owned == T and len(a.owned) + len(b.owned) + len(c.owned) == 4
    assert b.owned and not b.closed


def test_a_member_that_does_not_answer_start_is_removed_and_its_partitions_are_given_to_others() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    c = scene.consumer("c")
    c.answers.discard("start")
    c.register()
    scene.run(30.0)
    assert c.closed and a.owned | b.owned == T


@requirement("A member answers each request within two thirds of its session")
def test_open_02_a_stop_that_takes_long_causes_no_suspicion() -> None:
    """It says that it is finishing; its pings are answered; nobody is removed, and those who lose nothing go on."""
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(0.5)
    stop = b.bodies(m.StopFetcherRequest)[0]
    b.answer_stop(stop, finishing=True)
    scene.run(25.0)
    assert not b.closed and not [each for each in scene.of(fx.Rebalanced) if each.failed] and a.owned == tps("t", 0, 1)
    b.answer_stop(stop)
    scene.run(0.5)
    assert c.owned == tps("t", 3) and b.owned == tps("t", 2)


def test_a_stop_that_takes_longer_than_the_member_said_has_expired() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", max_processing_ms=15_000)
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(0.5)
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0], finishing=True)
    scene.run(10.0)
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0], finishing=True)  # saying so again gains no time
    scene.run(6.0)
    assert scene.expired("stop")
    scene.run(11.0)
    assert b.closed and a.owned | c.owned == T


@requirement("A member answers each request within two thirds of its session")
@pytest.mark.parametrize(("max_processing_ms", "waits_s"), [(15_000, 15.0), (2_000, 10.0)])
def test_a_member_that_is_finishing_gets_a_session_or_longer(max_processing_ms: int, waits_s: float) -> None:
    scene = Scene()
    _a, b = scene.join("a", "b", max_processing_ms=max_processing_ms)
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(0.5)
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0], finishing=True)
    said_at = scene.now
    scene.run(30.0, lambda: scene.expired("stop"))
    assert scene.now - said_at == pytest.approx(waits_s)


@requirement("A closed stream fails a rebalance attempt at once")
@requirement("A channel that closes during a rebalance fails the attempt at once")
@pytest.mark.parametrize("asked", ["stop", "start"])
def test_a_stream_that_breaks_while_asked_fails_the_attempt(asked: str) -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard(asked)
    c = scene.consumer("c").register()
    scene.run(0.2)
    assert told(b)[-1] == asked
    b.lose_connection()
    assert [each.failed for each in scene.of(fx.Rebalanced)][-1] and not scene.of(fx.Expired)
    b.answers.add(asked)
    b.reconnect()
    scene.run(2.0)
    assert a.owned | b.owned | c.owned == T and len(c.owned) == 1


@requirement("The death of a member fails the running attempt at once")
@requirement("A failed attempt is marked and checked after each wait")
def test_the_death_of_a_member_fails_the_attempt_and_the_next_one_is_made_at_once() -> None:
    scene = Scene(limits=replace(LIMITS, backoff_s=5.0, backoff_max_s=5.0))
    a, b = scene.join("a", "b")
    scene.run(9.0)
    b.answers.clear()
    scene.run(4.0)
    a.answers.discard("stop")
    c = scene.consumer("c").register()
    a.leave()
    scene.run(7.0)
    assert c.owned == T, "no back-off was waited for"
    assert [each.reason for each in scene.of(fx.Rebalanced) if each.failed] == ["join"], "b died while it ran"
    assert not scene.expired("stop") and not scene.expired("start")


@requirement("A member silent during a rebalance fails only the attempt")
def test_an_attempt_fails_when_a_member_dies_before_its_time() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    scene.run(10.0)
    b.answers.clear()
    scene.run(8.0)
    scene.consumer("c").register()
    scene.run(1.0, lambda: told(b)[-1] == "stop")
    dead_at = scene.machine.groups["g"].members["b"].dead_at
    assert dead_at < scene.now + 5.0, "before two thirds of its session are over"
    scene.run(dead_at - 0.01 - scene.now)
    assert not any(each.failed for each in scene.of(fx.Rebalanced))
    scene.run(0.02)
    assert any(each.failed for each in scene.of(fx.Rebalanced)) and not scene.expired("stop")


@requirement("The death of a member fails the running attempt at once")
def test_a_death_fails_the_attempt_when_its_write_has_ended() -> None:
    limits = replace(LIMITS, backoff_s=5.0, backoff_max_s=5.0, default_assignor="sticky")
    scene = Scene(limits=limits)
    a, b = scene.join("a", "b")
    b.answers.clear()
    scene.holds_writes = True
    scene.change_topics(t=6)
    group = scene.machine.groups["g"]
    attempt = group.attempt
    assert attempt is not None and attempt.step is Step.STORING and "b" in attempt.members
    scene.run(30.0, lambda: "b" not in group.members)
    assert group.attempt is attempt and attempt.failed
    scene.holds_writes = False
    scene.carry_out()
    assert scene.of(fx.Rebalanced)[-2].failed and a.owned == tps("t", *range(6)), "no back-off was waited for"


@requirement("The death of a member starts a rebalance of its group")
def test_k01_members_that_die_at_one_time_are_one_rebalance() -> None:
    """Each look for what is to be done asks every member: thousands of looks at thousands are seconds in one step."""
    scene = Scene()
    a, *others = scene.join("a", "b", "c", "d")
    scene.run(4.0)
    scene.effects.clear()
    for each in others:
        each.lose_connection()
    scene.run(30.0)
    assert a.owned == T
    assert [(each.reason, each.failed) for each in scene.of(fx.Rebalanced)] == [("failure", False)]


@requirement("A member silent during a rebalance fails only the attempt")
def test_after_too_many_failures_it_is_alarmed_and_tried_again_all_the_same() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    for _ in range(6):
        scene.run(4.0, lambda: scene.machine.groups["g"].attempt is not None)
        b.lose_connection()
        b.reconnect()
    assert [each.group_id for each in scene.of(fx.Alarm)] == ["g"] * 3
    assert "ConsumerRebalanceFailedException: 4 attempts" in scene.of(fx.Alarm)[0].text
    b.answers.add("stop")
    scene.run(5.0)
    assert c.owned and scene.state() == "Stable"


@requirement("A member silent during a rebalance fails only the attempt")
@requirement("The pause after a failed rebalance attempt is a setting")
def test_between_attempts_there_is_a_pause_that_doubles() -> None:
    scene = Scene(limits=replace(LIMITS, backoff_s=0.4, backoff_max_s=1.6))
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    scene.consumer("c").register()
    pauses = []
    for _ in range(5):
        scene.run(9.0, lambda: scene.machine.groups["g"].attempt is not None)
        b.lose_connection()
        failed_at = scene.now
        b.reconnect()
        scene.run(9.0, lambda: scene.machine.groups["g"].attempt is not None)
        pauses.append(round((scene.now - failed_at) / 0.75, 6))
    assert pauses == [0.4, 0.8, 1.6, 1.6, 1.6]


@requirement("A crash loop of one consumer does not stop the other members")
def test_a_crash_loop_neither_stops_the_others_nor_postpones_their_rebalance() -> None:
    scene = Scene(topics={"t": 12}, limits=replace(LIMITS, members_max=50, default_assignor="sticky"))
    a, b = scene.join("a", "b")
    for each in (a, b):
        each.heard.clear()
    for index in range(12):
        looper = scene.consumer(f"loop{index}").register()
        scene.run(5.0)
        looper.lose_connection()
        kept = len(a.owned) + len(b.owned)
        assert kept >= 6, "more than half of the partitions are always processed"
    scene.run(15.0)
    assert a.owned | b.owned == tps("t", *range(12))


@requirement("A registration starts pings, watches topics and rebalances")
def test_a_join_waits_for_a_broken_stream_only_until_it_is_back() -> None:
    scene = Scene()
    a, _b = scene.join("a", "b")
    a.lose_connection()
    c = scene.consumer("c").register()
    scene.run(2.0)
    assert not c.owned
    a.reconnect()
    scene.run(0.2)
    assert c.owned


# -- ends and fences -------------------------------------------------------------------------------------------------------


def test_coord_10_a_fenced_write_ends_the_term() -> None:
    scene = Scene(holds_writes=True)
    scene.consumer("a").register()
    scene.run(1.0)
    scene.carry_out(Outcome.FENCED)
    assert scene.of(fx.Resign)


@requirement("A closed stream fails a rebalance attempt at once")
@requirement("A failed attempt is marked and checked after each wait")
def test_what_is_stored_counts_although_its_attempt_has_failed_meanwhile() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.positions = dict.fromkeys(b.owned, 5)
    scene.holds_writes = True
    c = scene.consumer("c").register()
    scene.run(0.2)
    attempt = scene.machine.groups["g"].attempt
    assert attempt is not None and attempt.step is Step.STORING and not attempt.failed
    c.lose_connection()
    assert attempt.failed
    scene.holds_writes = False
    scene.carry_out()
    group = scene.machine.groups["g"]
    assert scene.owners["g"][TopicPartition("t", 3)].consumer_id == "c"
    assert group.owned_by("c") == tps("t", 3) and group.offsets == {TopicPartition("t", 3): Committed(5)}
    assert scene.of(fx.Rebalanced)[-1].failed and group.attempt is None
    c.reconnect()
    scene.run(3.0)
    assert c.owned == tps("t", 3) and b.owned == tps("t", 2)


@requirement("A start request names the newest offsets of its group")
@requirement("Committed offsets never move back and leave no gap")
def test_a_start_names_a_commit_that_is_stored_with_its_owners_and_not_taken_note_of_yet() -> None:
    """Found by the simulator: whoever began anew with that Start began before what the group had committed."""
    scene = Scene()
    _a, b = scene.join("a", "b")
    scene.holds_writes = True
    scene.consumer("c").register()
    scene.run(0.2)
    b.commit(7, TopicPartition("t", 2))
    scene.holds_writes = False
    scene.carry_out()
    start = b.bodies(m.StartFetcherRequest)[-1]
    assert [(p.partition, p.offset) for o in start.ownership_info for p in o.assigned_parts] == [(2, 7)]


@requirement("A fetch out of range restarts at the reset policy")
@requirement("An out of range offset makes a consumer force a rebalance")
def test_a_rejoin_is_a_rebalance_of_its_group() -> None:
    """A18.02, L04: a consumer whose offset is out of range asks for one."""
    scene = Scene()
    a, b = scene.join("a", "b")
    generation = scene.heads["g"].generation
    a.lose_connection()
    a.owned.clear()
    a.reconnect(rejoin=True)
    scene.run(1.0)
    assert a.owned == tps("t", 0, 1) and scene.heads["g"].generation == generation + 1 and told(b) == ["start"]


def test_a_changed_subscription_is_a_rebalance() -> None:
    scene = Scene(topics={"t": 2, "u": 2})
    (a,) = scene.join("a")
    a.lose_connection()
    a.reconnect(topic_count=topic_count("u"))
    scene.run(1.0)
    assert a.owned == tps("u", 0, 1)


@requirement("At most one consumer of a group delivers a partition")
@pytest.mark.parametrize("limits", [LIMITS, EAGER], ids=["incremental", "documented"])
def test_no_partition_is_ever_owned_by_two(limits: object) -> None:
    scene = Scene(topics={"t": 9}, limits=replace(limits, members_max=20))  # type: ignore[type-var]
    everybody: list[Consumer] = []

    def check() -> bool:
        owned = [tp for each in everybody if not each.closed for tp in each.owned]
        assert len(owned) == len(set(owned))
        return False

    for round_ in range(12):
        everybody.append(scene.consumer(f"c{round_}").register())
        scene.run(1.0, check)
        if round_ % 3 == 2:
            everybody[round_ - 2].leave()
            everybody[round_ - 2].owned.clear()
            scene.run(0.5, check)
    scene.step(ev.Woken())
    check()


@requirement("The death of a member fails the running attempt at once")
def test_who_leaves_in_an_attempt_is_not_of_the_next_which_waits_already() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(5.0, lambda: "stop" in told(b))
    scene.change_topics(t=6)
    assert scene.machine.groups["g"].rebalance_initiated, "the next request waits"
    b.leave()
    b.owned.clear()
    assert len(b.bodies(m.StopFetcherRequest)) == 1, "it is asked for nothing any more"
    scene.run(5.0, lambda: scene.state() == "Stable")
    assert a.owned | c.owned == tps("t", *range(6)) and not a.owned & c.owned


@requirement("At most one consumer of a group delivers a partition")
def test_a_static_member_that_is_replaced_in_an_attempt_is_not_of_the_next_which_waits_already() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", static_member=True)
    b.answers.discard("stop")
    scene.consumer("c").register()
    scene.run(5.0, lambda: "stop" in told(b))
    scene.change_topics(t=7)
    scene.consumer("b", static_member=True).register()
    assert len(b.bodies(m.StopFetcherRequest)) == 1 and a.owned, "the older incarnation is asked for nothing any more"


def test_coord_04_the_stored_generation_does_not_fall_when_the_last_member_goes_while_a_newer_one_is_on_its_way() -> (
    None
):
    scene = Scene()
    (a,) = scene.join("a")
    scene.holds_writes = True
    b = scene.consumer("b").register()
    scene.run(5.0, lambda: bool(scene.held))
    b.leave()
    a.leave()
    while scene.held:
        scene.carry_out()
    generations = [write.head.generation for write in scene.writes if write.head is not None]
    assert generations == sorted(generations) and generations[-1] == 2
    assert scene.state() == "Empty"
