"""Which offsets a query reads, in how many tasks, and when that is data loss."""

import pytest

from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.offsets import (
    DataLossError,
    OffsetRange,
    end_at_times,
    place,
    plan_batch,
    split,
    start_at_times,
    times_of,
)
from tidelog.pipeline.source_options import EARLIEST, LATEST, SourceOptions, Subscribe, Timestamps

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEGINNINGS = {T1: 0, T0: 10}
ENDS = {T1: 7, T0: 20}


def plan(starting=EARLIEST, ending=LATEST, fail=True, beginnings=BEGINNINGS, ends=ENDS):
    starts = place("startingOffsets", starting, beginnings, ends)
    stops = place("endingOffsets", ending, beginnings, ends)
    return plan_batch(starts, stops, beginnings, ends, fail_on_data_loss=fail)


def test_a_whole_topic_has_one_range_for_each_partition_in_order():
    batch = plan()
    assert batch.ranges == (OffsetRange(T0, 10, 20), OffsetRange(T1, 0, 7))
    assert batch.warnings == ()


def test_positions_and_their_stand_ins():
    batch = plan({T0: 12, T1: EARLIEST}, {T0: LATEST, T1: 5})
    assert batch.ranges == (OffsetRange(T0, 12, 20), OffsetRange(T1, 0, 5))


def test_empty_ranges_are_left_out():
    assert plan({T0: 20, T1: 0}).ranges == (OffsetRange(T1, 0, 7),)
    assert plan(beginnings={T0: 5}, ends={T0: 5}).ranges == ()


@pytest.mark.parametrize(
    "starting, ending, kept",
    [({T0: 9, T1: 0}, LATEST, OffsetRange(T0, 10, 20)), (EARLIEST, {T0: 21, T1: 7}, OffsetRange(T0, 10, 20))],
)
def test_a_position_outside_the_log_is_data_loss(starting, ending, kept):
    with pytest.raises(DataLossError, match=r"t-0: offsets .* the log holds 10 to 20.*failOnDataLoss=false"):
        plan(starting, ending)
    batch = plan(starting, ending, fail=False)
    assert batch.ranges[0] == kept
    assert len(batch.warnings) == 1


def test_a_range_that_is_gone_altogether_is_empty_without_fail_on_data_loss():
    assert plan({T0: 0, T1: 7}, {T0: 5, T1: 7}, fail=False).ranges == ()


@pytest.mark.parametrize(
    "starting, ending, complaint",
    [
        ({T0: 10}, LATEST, "startingOffsets must name every partition that is read; it does not name t-1"),
        ({T0: 10, T1: 0, TopicPartition("u", 3): 1}, LATEST, "names u-3, which is not read"),
        (EARLIEST, {T0: 20}, "endingOffsets must name every partition"),
        ({T0: 15, T1: 0}, {T0: 12, T1: 7}, "t-0: the starting offset 15 is after the ending offset 12"),
    ],
)
def test_positions_that_do_not_fit_are_named(starting, ending, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan(starting, ending)


def options(strategy):
    return SourceOptions((Address("a", 1),), Subscribe(("t",)), strategy=strategy)


def test_a_time_is_for_every_partition_or_each_has_its_own():
    assert times_of("x", Timestamps(5), [T0, T1]) == {T0: 5, T1: 5}
    assert times_of("x", Timestamps({T0: 5, T1: 6}), [T0, T1]) == {T0: 5, T1: 6}
    with pytest.raises(ValueError, match="x must name every partition that is read; it does not name t-1"):
        times_of("x", Timestamps({T0: 5}), [T0, T1])


def test_no_record_so_late_is_an_error_at_the_start_or_the_end_of_the_log_as_the_strategy_says():
    times, found = {T0: 5, T1: 6}, {T0: 12, T1: -1}
    with pytest.raises(ValueError, match=r"t-1 has no record at or after the starting timestamp 6.*Strategy=latest"):
        start_at_times(options("error"), times, found)
    assert start_at_times(options("latest"), times, found) == {T0: 12, T1: LATEST}
    assert start_at_times(options("error"), times, {T0: 12, T1: 0}) == {T0: 12, T1: 0}


def test_a_batch_that_ends_at_a_time_beyond_the_log_ends_with_the_log():
    assert end_at_times({T0: 12, T1: -1}) == {T0: 12, T1: LATEST}


def ranges(*sizes):
    return [OffsetRange(TopicPartition("t", p), 100, 100 + size, b"id") for p, size in enumerate(sizes)]


def sizes(parts):
    return [(part.partition.partition, part.size) for part in parts]


def test_without_limits_each_partition_is_a_task():
    assert split(ranges(5, 0, 7), None, None) == tuple(ranges(5, 0, 7)[::2])
    assert split([], 5, 5) == ()


def test_no_task_has_more_records_than_allowed_and_none_is_lost():
    parts = split(ranges(10, 4), None, 4)
    assert sizes(parts) == [(0, 3), (0, 3), (0, 4), (1, 4)]
    assert [(p.start, p.end) for p in parts[:3]] == [(100, 103), (103, 106), (106, 110)]
    assert {p.topic_id for p in parts} == {b"id"}


@pytest.mark.parametrize(
    "given, at_least, expected",
    [
        ((10, 10), 2, [(0, 10), (1, 10)]),
        ((10, 10), 4, [(0, 5), (0, 5), (1, 5), (1, 5)]),
        ((1, 100), 4, [(0, 1), (1, 33), (1, 33), (1, 34)]),
        ((3,), 10, [(0, 1), (0, 1), (0, 1)]),
        ((30, 50), 4, [(0, 15), (0, 15), (1, 16), (1, 17), (1, 17)]),
    ],
)
def test_large_ranges_share_the_tasks_that_are_wanted_at_least(given, at_least, expected):
    assert sizes(split(ranges(*given), at_least, None)) == expected


def test_both_limits_the_most_records_first_then_more_tasks_if_they_are_too_few():
    assert sizes(split(ranges(10, 10), 3, 5)) == [(0, 5), (0, 5), (1, 5), (1, 5)]
    assert len(split(ranges(10, 10), 10, 5)) in (8, 10, 12)


def test_every_offset_is_in_one_task():
    for at_least in (None, 1, 3, 8, 50):
        for most in (None, 1, 6, 1000):
            parts = split(ranges(17, 1, 60, 0), at_least, most)
            covered = [(p.partition.partition, o) for p in parts for o in range(p.start, p.end)]
            assert covered == [(n, o) for n, size in enumerate((17, 1, 60, 0)) for o in range(100, 100 + size)]
            assert all(p.size <= (most or 1000) for p in parts)
