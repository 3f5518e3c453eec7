"""Filters that narrow what is read: never below what matches, and Spark keeps every filter that is not exact."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import OffsetRange
from tidelog.pipeline.pushdown import Bounds, narrow, push

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


def at(ms, us=0):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms, microseconds=us)


@pytest.mark.parametrize(
    "wanted, bounds",
    [
        (EqualTo(TOPIC, "t"), Bounds(topics=frozenset({"t"}))),
        (In(TOPIC, ("t", None, "u")), Bounds(topics=frozenset({"t", "u"}))),
        (EqualTo(PARTITION, 3), Bounds(partitions=frozenset({3}))),
        (EqualNullSafe(PARTITION, 3), Bounds(partitions=frozenset({3}))),
        (In(PARTITION, (3, 5)), Bounds(partitions=frozenset({3, 5}))),
        (EqualTo(OFFSET, 7), Bounds(first=7, past=8)),
        (In(OFFSET, (7, 8, 9)), Bounds(first=7, past=10)),
        (In(OFFSET, (None,)), Bounds(first=0, past=0)),
        (GreaterThan(OFFSET, 7), Bounds(first=8)),
        (GreaterThanOrEqual(OFFSET, 7), Bounds(first=7)),
        (LessThan(OFFSET, 7), Bounds(past=7)),
        (LessThanOrEqual(OFFSET, 7), Bounds(past=8)),
        (GreaterThan(OFFSET, -5), Bounds()),
        (IsNotNull(OFFSET), Bounds()),
        (IsNotNull(TIME), Bounds()),
    ],
)
def test_what_is_exact_is_not_left_to_spark(wanted, bounds):
    assert push([wanted]) == (bounds, [])


@pytest.mark.parametrize(
    "wanted, bounds",
    [
        (In(OFFSET, (7, 9)), Bounds(first=7, past=10)),
        (GreaterThanOrEqual(TIME, at(5)), Bounds(since_ms=5)),
        (GreaterThanOrEqual(TIME, at(5, us=1)), Bounds(since_ms=6)),
        (GreaterThan(TIME, at(5)), Bounds(since_ms=6)),
        (GreaterThan(TIME, at(5, us=-1)), Bounds(since_ms=5)),
        (EqualTo(TIME, at(5)), Bounds(since_ms=5)),
        (GreaterThan(TIME, at(5).astimezone(timezone(timedelta(hours=7)))), Bounds(since_ms=6)),
        (GreaterThan(TIME, at(-5)), Bounds()),
        (LessThan(TIME, at(5)), Bounds()),
        (LessThanOrEqual(TIME, at(5)), Bounds()),
        (GreaterThan(TIME, at(5).replace(tzinfo=None)), Bounds()),
        (Not(EqualTo(PARTITION, 3)), Bounds()),
        (Not(GreaterThan(OFFSET, 3)), Bounds()),
        (IsNull(OFFSET), Bounds()),
        (IsNotNull(("key",)), Bounds()),
        (EqualTo(("value",), b"x"), Bounds()),
        (EqualTo(("headers", "offset"), 3), Bounds()),
        (EqualTo(PARTITION, True), Bounds()),
        (EqualTo(OFFSET, 3.0), Bounds()),
        (GreaterThan(OFFSET, 3.5), Bounds()),
        (GreaterThan(PARTITION, 3), Bounds()),
        (In(TOPIC, ("t", 3)), Bounds()),
        (StringStartsWith(TOPIC, "t"), Bounds()),
    ],
)
def test_what_is_not_exact_stays_with_spark(wanted, bounds):
    found, left = push([wanted])
    assert found == bounds
    assert len(left) == 1 and left[0] is wanted


def test_filters_narrow_together():
    bounds, left = push(
        [In(PARTITION, (1, 2)), In(PARTITION, (2, 3)), GreaterThan(OFFSET, 4), LessThan(OFFSET, 9), LessThan(OFFSET, 8)]
    )
    assert bounds == Bounds(partitions=frozenset({2}), first=5, past=8) and left == []


def test_a_range_is_read_where_all_bounds_meet():
    ranges = [OffsetRange(T0, 2, 10, b"id"), OffsetRange(T1, 2, 10, b"id")]
    assert narrow(ranges, Bounds(first=4, past=7), {}) == (OffsetRange(T0, 4, 7, b"id"), OffsetRange(T1, 4, 7, b"id"))
    assert narrow(ranges, Bounds(since_ms=1), {T0: 8, T1: -1}) == (OffsetRange(T0, 8, 10, b"id"),)
    assert narrow(ranges, Bounds(since_ms=1, first=9), {T0: 8, T1: 0})[1] == OffsetRange(T1, 9, 10, b"id")
    assert narrow(ranges, Bounds(first=10), {}) == narrow(ranges, Bounds(past=0), {}) == ()
    assert [tp for tp in (T0, T1, U0) if Bounds(frozenset({"t"}), frozenset({0})).admit(tp)] == [T0]


_COMPARE = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


def test_nothing_that_matches_is_left_out_and_what_is_exact_reads_nothing_else():
    """Against logs whose times jump, with a leader that answers as ListOffsets does."""
    rnd = random.Random(3)
    for _ in range(2000):
        log = [rnd.randrange(12) for _ in range(10)]
        filters = []
        for _ in range(rnd.randrange(4)):
            kind, column = rnd.choice(list(_COMPARE)), rnd.choice((OFFSET, TIME))
            value = rnd.randrange(-1, 12)
            filters.append(kind(column, at(value, us=rnd.randrange(-1, 2)) if column == TIME else value))

        def matches(offset, wanted, log=log):
            return all(_COMPARE[type(f)](at(log[offset]) if f.attribute == TIME else offset, f.value) for f in wanted)

        bounds, left = push(filters)
        found = {T0: next((o for o, ms in enumerate(log) if ms >= bounds.since_ms), -1)}
        read = [o for r in narrow([OffsetRange(T0, 0, 10)], bounds, found) for o in range(r.start, r.end)]
        assert [o for o in range(10) if matches(o, filters)] == [o for o in read if matches(o, left)]
