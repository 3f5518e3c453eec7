"""What `tidelog top` makes of two overviews: statuses, lag, rates, and the worst first."""

from dataclasses import replace

import pytest

from helpers.overviews import AT, broker, described, group, later, overview, partition, topic
from tidelog.cli.top_rows import Level, Status, json_of, view_of
from tidelog.client.overview import NO_CONTROLLER, Overview

DEAD = broker(1, problem="not in the cluster", answered_at=AT - 7)


def test_an_empty_cluster_is_calm() -> None:
    view = view_of(None, overview())
    assert (view.controller, view.controller_epoch, view.partitions, view.groups) == (1, 3, (), ())
    assert (view.rate, view.problems, view.described_ago_s) == (None, (), 0.0)
    assert [(b.broker_id, b.state, b.level) for b in view.brokers] == [
        (0, "alive", Level.FINE),
        (1, "alive", Level.FINE),
        (2, "alive", Level.FINE),
    ]


@pytest.mark.parametrize(
    ("p", "status", "level"),
    [
        (partition(), Status.FINE, Level.FINE),
        (partition(leader=1), Status.NOT_PREFERRED, Level.FINE),
        (partition(recovering=True), Status.RECOVERING, Level.UNEASY),
        (partition(isr=(0, 2)), Status.UNDER_REPLICATED, Level.UNEASY),
        (partition(isr=(0,)), Status.UNDER_MIN_ISR, Level.BAD),
        (partition(leader=3, replicas=(3, 0, 1), isr=(3, 0, 1)), Status.LEADER_SILENT, Level.BAD),
        (partition(leader=4, replicas=(4, 0, 1), isr=(4, 0, 1)), Status.LEADER_SILENT, Level.BAD),
        (partition(leader=-1, isr=(0,)), Status.OFFLINE, Level.BAD),
        (partition(leader=-1, isr=(0,), vetoed=True), Status.VETOED, Level.BAD),
    ],
)
def test_of_several_troubles_a_partition_shows_the_worst(p: object, status: Status, level: Level) -> None:
    silent = broker(3, problem="no answer")
    (row,) = view_of(None, overview(topic("t", p), brokers=[broker(0), broker(1), broker(2), silent])).partitions  # type: ignore[arg-type]
    assert (row.status, row.level) == (status, level)


def test_the_worst_partition_comes_first_and_of_equal_ones_that_with_the_most_lag() -> None:
    ends = {("t", 0): 50, ("t", 1): 50, ("t", 2): 50, ("t", 3): 50}
    followers = {**ends, ("t", 1): 10, ("t", 2): 40}
    seen = overview(
        topic("t", partition(0), partition(1), partition(2), partition(3, isr=(0, 1))),
        topic("s", partition(0, leader=-1, isr=(0,))),
        brokers=[broker(0, ends), broker(1, followers), broker(2, ends)],
    )
    found = [(row.topic, row.partition, row.lag) for row in view_of(None, seen).partitions]
    assert found == [("s", 0, None), ("t", 3, 0), ("t", 1, 40), ("t", 2, 10), ("t", 0, 0)]


def test_lag_is_what_each_replica_lacks_of_the_leaders_log_and_unknown_without_the_leaders_word() -> None:
    t = topic("t", partition(isr=(0, 2)))
    dead = replace(broker(1, {("t", 0): 30}), problem="not in the cluster", answered_at=AT - 7)
    seen = overview(t, brokers=[broker(0, {("t", 0): 100}), dead, broker(2, {("t", 0): 101})])
    (row,) = view_of(None, seen).partitions
    # What the dead one held when it was seen last is what it lacks the rest of; broker 2 answered a moment after the leader.
    assert (row.log_end, row.behind, row.lag) == (100, {1: 70, 2: 0}, 70)
    (row,) = view_of(None, overview(t, brokers=[broker(0), dead, broker(2, {("t", 0): 101})])).partitions
    assert (row.log_end, row.behind, row.lag) == (None, {}, None)


def test_rates_are_the_growth_of_the_high_watermark_between_the_leaders_answers() -> None:
    before = overview(
        topic("t", partition()), topic("u", partition(leader=1)), high_watermarks={("t", 0): 10, ("u", 0): 7}
    )
    assert [row.rate for row in view_of(None, before).partitions] == [None, None]
    now = later(before, 2.0, t=210)
    view = view_of(before, now)
    assert {row.topic: row.rate for row in view.partitions} == {"t": 100.0, "u": None}, (
        "u's leader has told nothing new"
    )
    assert view.rate == 100.0
    assert [b.rate for b in view.brokers] == [100.0, 0, 0]
    # A topic that was deleted and made again begins at 0.
    assert {row.topic: row.rate for row in view_of(now, later(now, 2.0, t=3)).partitions}["t"] == 0.0


def test_a_dead_broker_keeps_what_was_known_of_it() -> None:
    t = topic("t", partition(0, leader=0, isr=(0, 2)), partition(1, leader=2, isr=(0, 2)))
    ends = {("t", 0): 100, ("t", 1): 60}
    dead = replace(DEAD, replicas=broker(1, {("t", 0): 90, ("t", 1): 60}).replicas)
    seen = overview(t, brokers=[broker(0, ends), dead, broker(2, ends)], cluster=described([t], live=(0, 2)))
    view = view_of(None, seen)
    row = view.brokers[0]
    assert (row.broker_id, row.state, row.silent_s, row.leaders, row.replicas, row.out_of_sync) == (
        1,
        "down",
        7.0,
        0,
        2,
        2,
    )
    assert (row.behind, row.rate, row.level, row.address) == (10, None, Level.BAD, "localhost:19093")
    assert [(b.out_of_sync, b.level) for b in view.brokers[1:]] == [(0, Level.FINE)] * 2
    assert view.problems == ("no answer from broker 1",)


def test_a_broker_that_the_controller_still_believes_in_is_bad_when_it_does_not_answer() -> None:
    silent = broker(2, problem="no answer", answered_at=AT - 3)
    (row, _, _) = view_of(None, overview(brokers=[broker(0), broker(1), silent])).brokers
    assert (row.state, row.silent_s, row.level) == ("alive", 3.0, Level.BAD)


def test_without_a_controller_what_is_shown_has_an_age() -> None:
    seen = overview(topic("t", partition()), problem=NO_CONTROLLER, described_at=AT - 4)
    view = view_of(None, seen)
    assert (view.controller, view.described_ago_s, len(view.partitions)) == (None, 4.0, 1)
    assert view.problems == ("no controller is active; it is tried again", "leaders and ISRs are 4 s old")
    other = view_of(None, overview(problem="no answer", described_at=AT - 4))
    assert other.problems[0] == "nothing is heard of the controller (no answer); it is tried again"
    never = view_of(None, overview(problem=NO_CONTROLLER, described_at=None, cluster=None))
    assert (never.controller, never.problems[1]) == (None, "leaders and ISRs are not known yet")


def test_when_nothing_answers_it_says_so() -> None:
    silent = [broker(number, problem="not reached", answered_at=AT - 9) for number in (0, 1, 2)]
    seen = overview(topic("t", partition()), brokers=silent, problem="unavailable", described_at=AT - 9)
    view = view_of(None, seen)
    assert view.problems == ("no broker answers (unavailable); it is tried again", "leaders and ISRs are 9 s old")
    assert view.controller == 1, "as far as is known"
    assert (view.partitions[0].status, [b.silent_s for b in view.brokers]) == (Status.LEADER_SILENT, [9.0] * 3)
    assert view_of(None, Overview(AT, 0, problem="unavailable")).problems[0].startswith("no broker answers")


def test_groups_have_lag_and_a_rate_and_the_troubled_come_first() -> None:
    seen = overview(
        topic("t", partition(0), partition(1)),
        high_watermarks={("t", 0): 100, ("t", 1): 50},
        groups=[
            group("calm", {("t", 0): 95, ("t", 1): 60}, owned=[("t", 0), ("t", 1)]),
            group("idle", {}, state="Empty"),
            group("busy", {("t", 0): 20}, owned=[("t", 0), ("t", 1)]),
            group("moving", {("t", 0): 100}, owned=[("t", 0)], state="PreparingRebalance"),
            group("lost", {("t", 0): 100}, owned=[("t", 0)], coordinator_id=1, at=AT - 6),
            group("unread", {("t", 0): 100}, owned=[("t", 0)], coordinator_id=2, at=AT - 5),
        ],
        brokers=[broker(0), DEAD, broker(2)],
    )
    rows = view_of(None, seen).groups
    assert [(row.group_id, row.lag, row.level) for row in rows] == [
        ("lost", 0, Level.BAD),
        ("unread", 0, Level.BAD),
        ("moving", 0, Level.UNEASY),
        ("busy", 80, Level.FINE),
        ("calm", 5, Level.FINE),
        ("idle", None, Level.FINE),
    ]
    assert [row.silent_s for row in rows] == [6.0, 5.0, None, None, None, None]
    assert [(row.members, row.partitions) for row in rows[3:]] == [(1, 2), (1, 2), (0, 0)]
    now = replace(seen, groups={"busy": group("busy", {("t", 0): 60, ("t", 1): 1}, at=AT + 2.0)})
    (row,) = view_of(seen, now).groups
    assert row.rate == 20.0, "a partition that had no offset before counts from the next look on"


def test_json_holds_the_same_for_programs() -> None:
    t = topic("t", partition(0, leader=-1, isr=(0,)), partition(1, leader=2, isr=(0, 2)))
    seen = overview(
        t,
        brokers=[broker(0, {("t", 1): 7}), DEAD, broker(2, {("t", 1): 9})],
        high_watermarks={("t", 1): 8},
        groups=[group("g", {("t", 1): 3}, owned=[("t", 1)])],
        cluster=described([t], live=(0, 2)),
    )
    found = json_of(view_of(None, seen))
    assert (found["controllerId"], found["leaderlessPartitions"], found["problems"]) == (
        1,
        1,
        ["no answer from broker 1"],
    )
    assert [b["state"] for b in found["brokers"]] == ["down", "alive", "alive"]
    assert [b["answers"] for b in found["brokers"]] == [False, True, True]
    assert found["partitions"][0]["leader"] is None and found["partitions"][0]["status"] == "offline"
    assert found["partitions"][1] == {
        "topic": "t",
        "partition": 1,
        "leader": 2,
        "leaderEpoch": 4,
        "replicas": [0, 1, 2],
        "isr": [0, 2],
        "highWatermark": 8,
        "logEndOffset": 9,
        "lag": 2,
        "behind": {"0": 2},
        "recordsPerS": None,
        "status": "under-replicated",
    }
    assert found["groups"][0]["lag"] == 5
