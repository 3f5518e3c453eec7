"""From looks at the cluster to spans of states and to lines."""

import math

import pytest

from helpers import chaos_runs
from tidelog.chaos import samples as s
from tidelog.chaos.report import cluster_view as v
from tidelog.chaos.report.cluster_view import Line, Seen, Span
from tidelog.chaos.report.timeline import Position, Reading

WHERE = ("chaos", 0)


def samples(*looks):
    return s.Samples(sorted(looks, key=lambda look: look.t))


def state(leader, epoch, isr=(0, 1, 2), version=0, partition=0):
    return s.PartitionState(
        topic="chaos",
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=version,
        replicas=(0, 1, 2),
        isr=isr,
    )


def told(t, *states):
    return s.Partitions(t=t, partitions=states)


def broker(t, number, log_end, high=0, epoch=1, isr_size=None, partition=0):
    replica = s.Replica(
        topic="chaos",
        partition=partition,
        leader_epoch=epoch,
        log_start=0,
        high_watermark=high,
        log_end=log_end,
        isr_size=isr_size,
    )
    return s.BrokerLook(t=t, process=f"broker-{number}", replicas=(replica,))


def test_a_state_lasts_until_another_one_is_seen():
    seen = [Seen(0.0, "a"), Seen(1.0, "a"), Seen(2.0, "b"), Seen(2.5, "b", "more")]
    assert list(v.spans("x", seen)) == [
        Span("x", "a", 0.0, 2.0),
        Span("x", "b", 2.0, 2.5),
        Span("x", "b", 2.5, 2.5, "more"),
    ]
    assert list(v.spans("x", [])) == []


def test_what_was_not_looked_at_for_long_is_not_known():
    seen = [Seen(0.0, "a"), Seen(1.0, "a"), Seen(1.0 + v.HOLE_S + 0.1, "a"), Seen(5.0, "a")]
    assert list(v.spans("x", seen)) == [Span("x", "a", 0.0, 1.0), Span("x", "a", 4.1, 5.0)]


def test_holes_are_what_nothing_covers():
    known = [(4.0, 5.0), (1.0, 2.0), (4.5, 4.6)]
    assert list(v.holes(known, 9.0, 1.0)) == [(2.0, 4.0), (5.0, 9.0)]
    assert list(v.holes(known, 9.0)) == [(5.0, 9.0)]
    assert list(v.holes([], 9.0)) == [(0.0, 9.0)] and list(v.holes([], 2.0)) == []


def test_processes_show_their_part_while_they_run():
    def states(t, **others):
        return s.ProcessStates(t=t, states={"controller-1": "running", "broker-0": "running"} | others)

    found = v.process_spans(
        samples(
            states(0.0),
            s.ControllerLook(t=0.1, process="controller-1", active=True, epoch=1),
            states(1.0),
            states(2.0, **{"controller-1": "paused", "broker-0": "stopped"}),
            s.Silent(t=2.1, source="broker-0", why="refused"),
            states(3.0, **{"broker-0": "stopped"}),
            s.Silent(t=3.1, source="broker-0", why="refused"),
            states(4.0),
            s.ControllerLook(t=4.1, process="controller-1", active=False, epoch=1),
            broker(4.1, 0, 5),
            states(5.0),
        )
    )
    assert [(span.row, span.state, span.began, span.ended) for span in found] == [
        ("broker-0", "running", 0.0, 2.0),
        ("broker-0", "stopped", 2.0, 4.0),
        ("broker-0", "silent", 4.0, 5.0),  # it runs and does not serve yet
        ("broker-0", "running", 5.0, 5.0),
        ("controller-1", "active", 0.0, 2.0),  # it was that before it was asked
        ("controller-1", "paused", 2.0, 3.0),
        ("controller-1", "running", 3.0, 5.0),  # until it says what part it has now
        ("controller-1", "standby", 5.0, 5.0),
    ]


def test_leaders_and_isr_follow_what_clients_are_told():
    states = v.partition_states(
        samples(
            told(0.0, state(1, 1)),
            told(1.0, state(-1, 1, isr=(0, 2), version=1)),
            told(2.0, state(2, 2, isr=(0, 2), version=2)),
            told(3.0, state(2, 2, isr=(), version=3)),
        )
    )
    assert v.leader_spans(states) == [
        Span("chaos-0", "broker 1", 0.0, 1.0, "epoch 1"),
        Span("chaos-0", "none", 1.0, 2.0, "epoch 1"),
        Span("chaos-0", "broker 2", 2.0, 3.0, "epoch 2"),
    ]
    assert [(span.state, span.detail) for span in v.isr_spans(states)] == [
        ("3", "0, 1, 2 of 0, 1, 2"),
        ("2", "0, 2 of 0, 1, 2"),
        ("0", "nobody of 0, 1, 2"),
    ]


def test_a_broker_that_is_behind_tells_old_news():
    old, new = state(1, 1, version=5), state(2, 2, version=6)
    found = v.partition_states(samples(told(0.0, old), told(1.0, new), told(2.0, old), told(3.0, new)))
    assert [(t, each.leader) for t, each in found[WHERE]] == [(0.0, 1), (1.0, 2), (3.0, 2)]
    assert v.elections(found) == Line("elections", (0.0, 1.0, 3.0), (0.0, 1.0, 1.0))


def test_elections_are_counted_over_all_partitions():
    found = v.partition_states(
        samples(
            told(0.0, state(1, 4), state(2, 7, partition=1)),
            told(1.0, state(2, 6), state(2, 7, partition=1)),  # two between two looks
            told(2.0, state(2, 6), state(0, 8, partition=1)),
        )
    )
    assert v.elections(found) == Line("elections", (0.0, 1.0, 2.0, 2.0), (0.0, 2.0, 3.0, 3.0))
    assert v.elections({}) == Line("elections", (), ())


def test_the_high_watermark_is_that_of_the_newest_leader():
    found = v.offsets(
        samples(
            broker(0.0, 1, 10, high=8, epoch=1, isr_size=3),
            broker(0.1, 2, 9, high=7, epoch=1),  # a follower's lags behind
            broker(1.0, 2, 12, high=9, epoch=2, isr_size=2),
            broker(1.1, 1, 11, high=8, epoch=1, isr_size=1),  # deposed, and does not know it
        )
    )[WHERE]
    assert found.high_watermark == Line("HW", (0.0, 1.0), (8, 9))
    assert found.log_ends == (Line("broker-1", (0.0, 1.1), (10, 11)), Line("broker-2", (0.1, 1.0), (9, 12)))


def test_a_silent_broker_has_a_hole_in_its_line():
    (line,) = v.offsets(samples(broker(0.0, 1, 5), s.Silent(t=1.0, source="broker-1", why=""), broker(2.0, 1, 5)))[
        WHERE
    ].log_ends
    assert line.times == (0.0, 1.0, 2.0)
    assert math.isnan(line.values[1]) and (line.values[0], line.values[2]) == (5, 5)
    (line,) = v.offsets(samples(broker(0.0, 1, 5), broker(10.0, 1, 6)))[WHERE].log_ends
    assert math.isnan(line.values[1]) and (line.values[0], line.values[2]) == (5, 6)


def committed(t, **offsets):
    found = [s.Committed(topic="chaos", partition=int(p[1:]), offset=offset) for p, offset in offsets.items()]
    return s.GroupLook(
        t=t, group="g", state="Stable", coordinator=1, coordinator_epoch=1, generation=1, members=2, committed=found
    )


def test_a_group_lags_by_what_it_has_not_committed():
    found = v.lags(
        samples(
            committed(0.0),  # no watermark is known yet
            broker(0.5, 1, 20, high=10, isr_size=3),
            broker(0.5, 2, 20, high=30, isr_size=3, partition=1),
            committed(1.0),
            committed(2.0, p0=4, p1=30),
            committed(3.0, p0=15, p1=30),  # ahead of what was last seen of the log
        ),
        [],
    )
    assert found == [Line("group g", (0.0, 1.0, 2.0, 3.0), (0, 40, 6, 0))]


def test_a_consumer_lags_while_the_log_grows_and_it_does_not():
    looks = samples(*(broker(float(t), 1, 0, high=10 * t, isr_size=3) for t in range(6)))
    reading = Reading("consumer-1", "chaos", 0, (Position(1.0, 10), Position(4.0, 15)))
    assert v.lags(looks, [reading]) == [Line("consumer-1", (1.0, 2.0, 3.0, 4.0), (0, 10, 20, 25))]


@pytest.mark.parametrize(("t", "value"), [(0.5, None), (1.0, 5), (1.5, 5), (2.5, 5), (3.0, 7), (99, 7)])
def test_the_newest_value_known_at_a_time(t, value):
    assert v.AsOf(Line("x", (1.0, 2.0, 3.0), (5, math.nan, 7)))(t) == value


def test_groups_and_controllers_are_spans():
    looks = samples(*chaos_runs.samples())
    assert [(span.row, span.state) for span in v.group_spans(looks)] == [
        ("chaos-group", "Stable"),
        ("chaos-group", "PreparingRebalance"),
        ("chaos-group", "Stable"),
    ]
    assert [(span.state, span.detail) for span in v.controller_spans(looks)] == [("controller-1", "epoch 1")]


def test_no_looks_make_no_lines():
    nothing = s.Samples()
    assert (v.process_spans(nothing), v.partition_states(nothing), v.offsets(nothing)) == ([], {}, {})
    assert (v.group_spans(nothing), v.controller_spans(nothing), v.lags(nothing, [])) == ([], [], [])


def test_of_many_partitions_the_most_eventful_are_drawn_in_their_own_order():
    all_of_them = [("chaos", n) for n in range(50)]
    chosen = v.most_eventful(all_of_them, 3, lambda where: (float(where[1] in (40, 7)),))
    assert chosen == [("chaos", 0), ("chaos", 7), ("chaos", 40)]
    assert v.most_eventful(all_of_them[:2], 3, lambda where: (0.0,)) == all_of_them[:2]
