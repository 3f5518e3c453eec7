"""Which of a log's segments are no longer to be kept, and what time it is for them. Pure.

Whole segments go, oldest first, and only what is committed. The rules are those of Kafka's log cleaner for
cleanup.policy=delete (`log.retention.*`), but for the clock (`RetentionClock`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

FOREVER: Final = -1
_GAIN_MAX: Final = 1.0
"""How many seconds the clock of retention may gain in a second."""


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


class RetentionClock:
    """The wall clock, but it gains on the monotonic one no faster than the latter runs.

    A clock that is set forward by an hour must not delete an hour of records that are still to be kept (reliability 9, row
    34). The hour is made up for within an hour, so that a clock that was set right is believed in the end; one that is set
    back is believed at once, since that keeps more.
    """

    def __init__(self, wall_ms: float, now: float) -> None:
        self._ms = wall_ms
        self._at = now

    def read(self, wall_ms: float, now: float) -> float:
        """Unix time in ms, given both clocks as they are."""
        elapsed_ms = (now - self._at) * 1000
        self._ms, self._at = min(wall_ms, self._ms + elapsed_ms * (1 + _GAIN_MAX)), now
        return self._ms
