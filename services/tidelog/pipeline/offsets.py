"""Which offsets of which partition a batch reads. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog.ids import TopicPartition
from tidelog.pipeline.options import EARLIEST, LATEST, Offsets, SourceOptions


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

    @property
    def empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True, slots=True)
class Batch:
    ranges: tuple[OffsetRange, ...]
    """Without empty ones, in the order of their partitions."""
    warnings: tuple[str, ...]


def plan_batch(
    options: SourceOptions, beginnings: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Batch:
    """`beginnings` and `ends` (high watermarks) of every partition that is to be read; same keys.

    ValueError when the options do not fit the partitions or each other, DataLossError when the log no longer holds a
    position that the options name.
    """
    partitions = sorted(beginnings)
    _check_complete("startingOffsets", options.starting, partitions)
    _check_complete("endingOffsets", options.ending, partitions)
    ranges, warnings = [], []
    for tp in partitions:
        start = _position(options.starting, tp, beginnings[tp], ends[tp])
        end = _position(options.ending, tp, beginnings[tp], ends[tp])
        if start > end:
            raise ValueError(f"{tp}: startingOffsets {start} is after endingOffsets {end}")
        kept = OffsetRange(tp, max(start, beginnings[tp]), min(end, ends[tp]))
        if (kept.start, kept.end) != (start, end):
            lost = f"{tp}: offsets {start} to {end} are wanted, the log holds {beginnings[tp]} to {ends[tp]}"
            if options.fail_on_data_loss:
                raise DataLossError(lost)
            warnings.append(lost)
        if not kept.empty:
            ranges.append(kept)
    return Batch(tuple(ranges), tuple(warnings))


def _check_complete(name: str, offsets: Offsets, partitions: Collection[TopicPartition]) -> None:
    """Kafka's rule: JSON names every partition and no other one, so that nobody reads less than he thinks."""
    if isinstance(offsets, int):
        return
    missing = sorted(set(partitions) - set(offsets))
    unknown = sorted(set(offsets) - set(partitions))
    if missing or unknown:
        problems = [f"does not name {', '.join(map(str, missing))}"] if missing else []
        problems += [f"names {', '.join(map(str, unknown))}, which is not read"] if unknown else []
        raise ValueError(f"{name} must name every partition that is read; it {' and '.join(problems)}")


def _position(offsets: Offsets, tp: TopicPartition, beginning: int, end: int) -> int:
    wanted = offsets if isinstance(offsets, int) else offsets[tp]
    if wanted == EARLIEST:
        return beginning
    return end if wanted == LATEST else wanted
