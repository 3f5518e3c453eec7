"""Which offsets of which partition a query reads, and in how many tasks. Pure."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.ids import TopicPartition
from tidelog.pipeline.source_options import EARLIEST, LATEST, Offsets, SourceOptions, Timestamps


class DataLossError(Exception):
    """The log does not hold (any more) what was asked for; `failOnDataLoss=false` reads what there is."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. Set failOnDataLoss=false to read what there is and be warned")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """`start` to `end`, exclusive."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = b""
    """Of the topic that was planned for: one that was created anew under its name is another. b"" stands for any."""

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    @property
    def empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True, slots=True)
class Batch:
    ranges: tuple[OffsetRange, ...]
    """Without empty ones, in the order of their partitions."""
    warnings: tuple[str, ...]


def plan_batch(
    starts: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
) -> Batch:
    """From `starts` to `stops` (see `place`) of every partition; `beginnings` and `ends` (high watermarks) bound its log.

    ValueError when a range ends before it starts, DataLossError when the log no longer holds a position that was named.
    """
    ranges, warnings = [], []
    for tp in sorted(starts):
        start, stop = starts[tp], stops[tp]
        if start > stop:
            raise ValueError(f"{tp}: the starting offset {start} is after the ending offset {stop}")
        kept = OffsetRange(tp, max(start, beginnings[tp]), min(stop, ends[tp]))
        if (kept.start, kept.end) != (start, stop):
            lost = f"{tp}: offsets {start} to {stop} are wanted, the log holds {beginnings[tp]} to {ends[tp]}"
            if fail_on_data_loss:
                raise DataLossError(lost)
            warnings.append(lost)
        if not kept.empty:
            ranges.append(kept)
    return Batch(tuple(ranges), tuple(warnings))


def place(
    option: str, offsets: Offsets, beginnings: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Each partition's own offset: stand-ins become where its log begins or ends. ValueError as `check_complete`."""
    check_complete(option, offsets, beginnings)
    placed = {}
    for tp in sorted(beginnings):
        wanted = offsets if isinstance(offsets, int) else offsets[tp]
        placed[tp] = {EARLIEST: beginnings[tp], LATEST: ends[tp]}.get(wanted, wanted)
    return placed


def check_complete(option: str, offsets: Offsets, partitions: Collection[TopicPartition]) -> None:
    """Kafka's rule: JSON names every partition and no other one, so that nobody reads less than he thinks."""
    if isinstance(offsets, int):
        return
    missing = sorted(set(partitions) - set(offsets))
    unknown = sorted(set(offsets) - set(partitions))
    if missing or unknown:
        problems = [f"does not name {', '.join(map(str, missing))}"] if missing else []
        problems += [f"names {', '.join(map(str, unknown))}, which is not read"] if unknown else []
        raise ValueError(f"{option} must name every partition that is read; it {' and '.join(problems)}")


def times_of(option: str, timestamps: Timestamps, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Unix ms for each partition. ValueError as `check_complete`."""
    if isinstance(timestamps.at_ms, int):
        return dict.fromkeys(partitions, timestamps.at_ms)
    check_complete(option, timestamps.at_ms, partitions)
    return dict(timestamps.at_ms)


def start_at_times(
    options: SourceOptions, times_ms: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """`found` are the first offsets at or after the times, -1 where there is none: an error, or LATEST, as the strategy says."""
    if options.strategy == "error":
        for tp in sorted(found):
            if found[tp] < 0:
                raise ValueError(
                    f"{tp} has no record at or after the starting timestamp {times_ms[tp]}; "
                    "startingOffsetsByTimestampStrategy=latest starts at its end instead"
                )
    return {tp: LATEST if offset < 0 else offset for tp, offset in found.items()}


def end_at_times(found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """A partition without a record so late is read to its end, whatever the strategy for starting says."""
    return {tp: LATEST if offset < 0 else offset for tp, offset in found.items()}


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> tuple[OffsetRange, ...]:
    """One task for each range that comes back: first by the most records of a task, then, when those are fewer tasks than
    `min_partitions`, large ones by their share of all records (about so many: shares are rounded), as Spark's Kafka source does.
    """
    parts = [r for r in ranges if not r.empty]
    if max_records_per_partition is not None:
        parts = [piece for r in parts for piece in _cut(r, -(-r.size // max_records_per_partition))]
    if min_partitions is None or not parts or len(parts) >= min_partitions:
        return tuple(parts)
    total = sum(r.size for r in parts)
    large = [r for r in parts if _share(r.size, total, min_partitions) > 1]
    # Small ranges keep a task each; the others share the rest of the tasks by what they hold among themselves.
    left = max(1, min_partitions - (len(parts) - len(large)))
    total_large = sum(r.size for r in large)
    is_large = set(large)
    return tuple(
        piece for r in parts for piece in (_cut(r, _share(r.size, total_large, left)) if r in is_large else [r])
    )


def _share(size: int, total: int, tasks: int) -> int:
    """`tasks` times `size` of `total`, rounded, at least 1."""
    return max(1, (2 * size * tasks + total) // (2 * total))


def _cut(whole: OffsetRange, pieces: int) -> Sequence[OffsetRange]:
    """Pieces of as equal a size as there is, in order; never more than there are offsets."""
    pieces = min(pieces, whole.size)
    cuts = [whole.start + whole.size * n // pieces for n in range(pieces + 1)]
    return [replace(whole, start=a, end=b) for a, b in itertools.pairwise(cuts)]
