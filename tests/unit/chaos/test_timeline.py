"""From a history to what is drawn: buckets, percentiles, faults, phases, positions of readers."""

import pytest

from helpers import chaos_runs
from tidelog.chaos import history as h
from tidelog.chaos.report import timeline as t
from tidelog.chaos.report.timeline import Latency, Position, timeline


def sent(number, at, took, outcome=h.OK, acks="all"):
    send = h.Send(at, number, "producer-1", "chaos", 0, f"v{number}", acks)
    return [send] if took is None else [send, h.Sent(at + took, number, outcome)]


def history(*groups):
    return sorted((record for group in groups for record in group), key=lambda record: record.t)


def test_nothing_at_all_is_an_empty_time_line():
    assert timeline([]) == t.Timeline(sends=t.Sends(0.1))


def test_a_send_counts_in_the_bucket_of_its_completion_by_level_and_outcome():
    line = timeline(
        history(
            sent(1, 0.01, 0.02),
            sent(2, 0.05, 0.06),  # completed in the second bucket
            sent(3, 0.11, 0.01, h.FAIL),
            sent(4, 0.12, 0.01, h.OK, "1"),
            sent(5, 0.13, 0.20, h.INFO, "1"),
            sent(6, 0.30, None),
        )
    )
    assert line.sends.width_s == 0.1
    assert line.sends.counts == {
        "all": {h.OK: [1, 1, 0, 0], h.FAIL: [0, 1, 0, 0]},
        "1": {h.OK: [0, 1, 0, 0], h.INFO: [0, 0, 0, 1]},
    }
    assert line.sends.totals == {"all": {h.OK: 2, h.FAIL: 1, t.UNANSWERED: 1}, "1": {h.OK: 1, h.INFO: 1}}


def test_latency_is_of_acknowledged_sends_alone_and_none_where_there_are_none():
    line = timeline(
        history(sent(1, 0.0, 0.010), sent(2, 0.01, 0.030), sent(3, 0.02, 0.05, h.FAIL), sent(4, 0.28, 0.005))
    )
    first, second, third = line.sends.latency["all"]
    assert (first.p50, first.p99, first.longest) == (pytest.approx(0.010), pytest.approx(0.030), pytest.approx(0.030))
    assert second is None
    assert third.longest == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([], None),
        ([0.2], Latency(0.2, 0.2, 0.2)),
        ([0.3, 0.1], Latency(0.1, 0.3, 0.3)),
        ([n / 100 for n in range(100, 0, -1)], Latency(0.50, 0.99, 1.00)),
        ([n / 100 for n in range(1, 102)], Latency(0.51, 1.00, 1.01)),
    ],
)
def test_percentiles_are_latencies_that_somebody_had(seconds, expected):
    assert t.percentiles(seconds) == expected


@pytest.mark.parametrize(
    ("until", "width"), [(0.0, 0.1), (24.0, 0.1), (24.1, 0.2), (120.0, 0.5), (1800.0, 10.0), (9e9, 60.0)]
)
def test_buckets_are_as_wide_as_the_page_can_show(until, width):
    assert t.bucket_width(until) == width


def step(at, what, number=1, target=("broker-1",), name="kill leader of 0"):
    return h.FaultStep(at, "kill", what, target, name, number)


def test_a_fault_is_in_force_from_its_effect_until_it_was_healed():
    (span,) = timeline(
        [step(1.0, "begin", target=()), step(1.2, "effect"), step(5.0, "heal"), step(5.5, "healed")]
    ).faults
    assert span == t.FaultSpan(1, "kill leader of 0", "kill", ("broker-1",), 1.0, 1.2, 5.0, 5.5)
    assert span.in_force(9.0) == (1.2, 5.5)


@pytest.mark.parametrize("name", ["restart", "rolling-restart", "bounce"])
def test_a_fault_that_passes_is_over_with_its_effect(name):
    (span,) = timeline([step(4.0, "begin")._replace(fault=name), step(6.5, "effect"), step(9.0, "healed")]).faults
    assert span.in_force(10.0) == (4.0, 6.5)


def test_a_crash_of_a_member_is_an_instant():
    first, second = timeline([h.Crash(2.0, "member-1"), step(3.0, "begin"), h.Crash(5.0, "member-2")]).faults[::2]
    assert (first.targets, first.in_force(9.0)) == (("member-1",), (2.0, 2.0))
    assert (second.targets, second.in_force(9.0)) == (("member-2",), (5.0, 5.0))


def test_a_fault_in_a_history_that_is_cut_off_lasts_until_there():
    (missed, in_force) = timeline([step(1.0, "begin"), step(2.0, "begin", 2), step(2.1, "effect", 2)]).faults
    assert (missed.effect, missed.healed) == (None, None)
    assert (missed.in_force(until=4.0), in_force.in_force(until=4.0)) == (None, (2.1, 4.0))


def test_phases_follow_each_other_and_the_last_one_reaches_the_end():
    line = timeline([h.Phase(0.0, "load"), h.Phase(4.0, "heal"), *sent(1, 4.5, 0.5)])
    assert line.phases == (t.PhaseSpan("load", 0.0, 4.0), t.PhaseSpan("heal", 4.0, 5.0))


def polled(at, offset, partition=0, process="consumer-1", **more):
    return h.Polled(at, process, 1, at, (h.Read("chaos", partition, ((offset - 1, "a"), (offset, "b"))),), **more)


def test_a_reader_is_at_the_offset_after_its_last_record_once_in_a_slot():
    line = timeline([polled(0.01, 1), polled(0.02, 3), polled(0.30, 5), polled(0.31, 0, partition=1)])
    first, second = line.readings
    assert (first.process, first.partition, first.positions) == (
        "consumer-1",
        0,
        (Position(0.02, 4), Position(0.30, 6)),
    )
    assert (second.partition, second.positions) == (1, (Position(0.31, 1),))


def test_members_of_groups_and_readers_of_the_final_phase_are_no_assigned_consumers():
    assert (
        timeline([polled(0.1, 1, group="g"), polled(0.2, 3, final=True), h.Polled(0.3, "c", 1, 0.3, ())]).readings == ()
    )


def test_a_whole_run_adds_up():
    records = chaos_runs.history()
    line = timeline(records)
    sends = sum(isinstance(record, h.Send) for record in records)
    assert sum(sum(totals.values()) for totals in line.sends.totals.values()) == sends
    assert line.until == chaos_runs.END
    for acks, outcomes in line.sends.counts.items():
        assert {outcome: sum(counts) for outcome, counts in outcomes.items()} == line.sends.totals[acks]
