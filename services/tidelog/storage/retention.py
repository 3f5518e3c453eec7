"""Which of a log's segments are no longer to be kept. Pure.

Whole segments go, oldest first, and only what is committed. The rules are those of Kafka's log cleaner for
cleanup.policy=delete (`log.retention.*`), but for the clock (`runtime.clock.RetentionClock`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

FOREVER: Final = -1


class SegmentFacts(NamedTuple):
    """A segment as retention sees it."""

    end_offset: int
    size_bytes: int
    max_timestamp: int = -1
    """Of all its records, ms; -1: none has one, or nobody has looked."""


def size_start(segments: Sequence[SegmentFacts], start: int, high_watermark: int, keep_bytes: int) -> int:
    """Where the log is to begin so that it still holds `keep_bytes`: the active segment, the last one, stays in any case."""
    if keep_bytes == FOREVER:
        return start
    excess = sum(segment.size_bytes for segment in segments) - keep_bytes
    for segment in segments[:-1]:
        excess -= segment.size_bytes
        if excess < 0 or segment.end_offset > high_watermark:
            break
        start = max(start, segment.end_offset)
    return start


def is_expired(max_timestamp: int, now_ms: float, keep_ms: int) -> bool:
    return keep_ms != FOREVER and now_ms - max_timestamp > keep_ms


def time_start(segments: Sequence[SegmentFacts], start: int, high_watermark: int, now_ms: float, keep_ms: int) -> int:
    """Where the log is to begin so that no segment before it has a record younger than `keep_ms`.

    Segments without a timestamp go with the next one that has some: nobody can tell how old they are.
    """
    for segment in segments:
        if segment.end_offset > high_watermark:
            break
        if segment.max_timestamp < 0:
            continue
        if not is_expired(segment.max_timestamp, now_ms, keep_ms):
            break
        start = max(start, segment.end_offset)
    return start


def age_timestamp(max_timestamp: int, modified_ms: float, now_ms: float) -> int:
    """The timestamp (ms) that the age of a segment goes by. One that is ahead of the clock says nothing of it, and would keep the
    segment until then: the time of the last write to its file stands for it."""
    return max_timestamp if max_timestamp <= now_ms else int(min(modified_ms, now_ms))
