"""Finding records by time, from batch headers alone: no record is decoded."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.storage.segment import Segment


class TimestampOffset(NamedTuple):
    """The first batch with a record at or after the instant: its base offset and its largest timestamp (ms)."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at(segments: Sequence[Segment], timestamp_ms: int, start: int, end: int) -> TimestampOffset | None:
    """The first batch with a record at or after the instant, in a log that is served from `start`; None if none ends by
    `end`."""
    for segment in _from(segments, start):
        if segment.base_offset >= end:
            break
        if header := segment.locate_time(timestamp_ms, start):
            found = TimestampOffset(max(header.base_offset, start), header.max_timestamp, header.leader_epoch)
            return found if header.end_offset <= end else None
    return None


def newest(segments: Sequence[Segment], start: int, end: int) -> TimestampOffset | None:
    """The first batch with the largest timestamp of all that end by `end`; None when none has a timestamp."""
    segments = _from(segments, start)
    latest = max((s.max_timestamp(end, start) for s in segments if s.base_offset < end), default=-1)
    return first_at(segments, latest, start, end) if latest >= 0 else None


def _from(segments: Sequence[Segment], start: int) -> Sequence[Segment]:
    return segments[max(0, bisect_right(segments, start, key=lambda segment: segment.base_offset) - 1) :]
