"""Filters of a query that a log can answer itself: which partitions are read, and from which offset to which. Pure.

Exact, so that Spark need not look again: `=` and `in` of `topic` and `partition`; `=`, `in` and comparisons of `offset`
where they leave one range; `is not null` of columns that are never null.

Not exact, so that Spark filters what is read: lower bounds of `timestamp`. Producers set timestamps, so they rise and fall
along a log; all that is certain is that no record before the first one at or after a time is at or after it. Reading starts
there. An upper bound ends nothing: an older record may follow a newer one at any distance. Where the first one is, the
leader knows from the headers of the batches, as it does for `startingTimestamp`: a producer whose header gives an earlier
time than one of its own records hides that record from both (`validate=full` refuses such a batch).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import OffsetRange
from tidelog.pipeline.options import LONG_MAX

T = TypeVar("T")

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query wants at most. Every filter narrows it."""

    topics: frozenset[str] | None = None
    """None: all."""
    partitions: frozenset[int] | None = None
    first: int = 0
    past: int = LONG_MAX
    """Offsets from `first` to `past`, exclusive."""
    since_ms: int = 0
    """Nothing before the first record at or after this Unix time; 0 where no time is asked for."""

    def admit(self, tp: TopicPartition) -> bool:
        return (self.topics is None or tp.topic in self.topics) and (
            self.partitions is None or tp.partition in self.partitions
        )


def push(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """The bounds that all of `filters` leave, and those of them that Spark still has to apply."""
    bounds = Bounds()
    left = []
    for each in filters:
        narrowed, exact = _narrow(bounds, each)
        bounds = narrowed
        if not exact:
            left.append(each)
    return bounds, left


def narrow(
    ranges: Iterable[OffsetRange], bounds: Bounds, found: Mapping[TopicPartition, int]
) -> tuple[OffsetRange, ...]:
    """Of partitions that are admitted. `found` are the first offsets at or after `bounds.since_ms`, -1 where there is none."""
    narrowed = []
    for each in ranges:
        first = bounds.first
        if bounds.since_ms:
            at = found[each.partition]
            first = max(first, at) if at >= 0 else each.end
        part = replace(each, start=max(each.start, first), end=min(each.end, bounds.past))
        if not part.empty:
            narrowed.append(part)
    return tuple(narrowed)


def _narrow(bounds: Bounds, wanted: Filter) -> tuple[Bounds, bool]:
    """`bounds` with one filter more, and whether they say all that it says."""
    column = getattr(wanted, "attribute", ())
    value = getattr(wanted, "value", None)
    match wanted, column:
        case IsNotNull(), (name,):
            return bounds, name in _NEVER_NULL
        case ((EqualTo() | EqualNullSafe() | In()), ("topic",)):
            if (topics := _values(wanted, str)) is not None:
                return replace(bounds, topics=_both(bounds.topics, topics)), True
        case ((EqualTo() | EqualNullSafe() | In()), ("partition",)):
            if (partitions := _values(wanted, int)) is not None:
                return replace(bounds, partitions=_both(bounds.partitions, partitions)), True
        case _, ("offset",):
            return _offset(bounds, wanted, value)
        case ((EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual()), ("timestamp",)):
            return _since(bounds, wanted, value), False
    return bounds, False


def _both(old: frozenset[T] | None, new: frozenset[T]) -> frozenset[T]:
    return new if old is None else old & new


def _values(wanted: EqualTo | EqualNullSafe | In, kind: type[T]) -> frozenset[T] | None:
    """None where one of them is of another kind: what that equals is Spark's to say. Null equals nothing."""
    values: Sequence[Any] = wanted.value if isinstance(wanted, In) else (wanted.value,)
    given = [value for value in values if value is not None]
    return frozenset(given) if all(type(value) is kind for value in given) else None


def _offset(bounds: Bounds, wanted: Filter, value: Any) -> tuple[Bounds, bool]:
    if isinstance(wanted, EqualTo | EqualNullSafe | In):
        values = _values(wanted, int)
        if values is None:
            return bounds, False
        # Values with gaps between them bound a range; which of its records are meant, Spark sees.
        low, high = (min(values), max(values)) if values else (0, -1)
        return _within(bounds, low, high + 1), len(values) == high + 1 - low
    if type(value) is not int:
        return bounds, False
    match wanted:
        case GreaterThan():
            return _within(bounds, value + 1, LONG_MAX), True
        case GreaterThanOrEqual():
            return _within(bounds, value, LONG_MAX), True
        case LessThan():
            return _within(bounds, 0, value), True
        case LessThanOrEqual():
            return _within(bounds, 0, value + 1), True
    return bounds, False


def _within(bounds: Bounds, first: int, past: int) -> Bounds:
    return replace(bounds, first=max(bounds.first, first), past=min(bounds.past, past))


def _since(bounds: Bounds, wanted: Filter, value: Any) -> Bounds:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return bounds
    us = (value - _EPOCH) // timedelta(microseconds=1)
    # Records have milliseconds: the first of them that can be at or after (or after) this one.
    ms = us // 1000 + 1 if isinstance(wanted, GreaterThan) else -(-us // 1000)
    return replace(bounds, since_ms=max(bounds.since_ms, ms))
