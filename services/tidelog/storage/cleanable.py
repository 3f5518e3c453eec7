"""Whether a log is worth a pass of the log cleaner, and how much of it. Pure arithmetic."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.storage.compaction import Source
from tidelog.topic_config import TopicConfig


class Cleanable(NamedTuple):
    """What a pass would read."""

    sources: tuple[Source, ...]
    first_dirty: int
    dirty_ratio: float
    due: bool
    """Whether it should be cleaned now."""


def cleanable(
    sources: Sequence[Source],
    max_timestamps: Sequence[int],
    first_dirty: int,
    config: TopicConfig,
    now_ms: float,
    next_horizon_ms: int | None,
) -> Cleanable | None:
    """None when there is nothing to do. `max_timestamps` (ms) are those of the last segments in `sources`, all of the dirty
    ones; `next_horizon_ms`: when a tombstone that is left may go.

    As Kafka has it: a record younger than min.compaction.lag.ms ends what may be cleaned; above min.cleanable.dirty.ratio
    it is worth the effort; older than max.compaction.lag.ms it is due in any case.
    """
    ends = len(sources) - len(max_timestamps)
    lag_ms = config.min_compaction_lag_ms
    # Without a lag nobody asks for the time: a producer's clock that is ahead must not keep its records from compaction.
    young = (i for i, ms in enumerate(max_timestamps, ends) if lag_ms and ms > now_ms - lag_ms)
    taken = tuple(sources[: next(young, len(sources))])
    if not taken:
        return None
    first_dirty = min(max(first_dirty, taken[0].base_offset), taken[-1].end_offset)
    dirty = [(source, i) for i, source in enumerate(taken) if source.end_offset > first_dirty]
    tombstones = next_horizon_ms is not None and next_horizon_ms <= now_ms
    if not dirty and not tombstones:
        return None
    dirty_bytes = sum(source.size_bytes for source, _ in dirty)
    ratio = dirty_bytes / max(1, sum(source.size_bytes for source in taken))
    old = any(0 <= max_timestamps[i - ends] < now_ms - config.max_compaction_lag_ms for _, i in dirty if i >= ends)
    due = ratio > config.min_cleanable_dirty_ratio or old or tombstones
    return Cleanable(taken, first_dirty, ratio, due)
