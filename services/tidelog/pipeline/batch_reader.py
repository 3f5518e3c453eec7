"""`spark.read.format("tidelog")`: fixes the ranges beside the driver, reads each in a task."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import Batch, OffsetRange, plan_batch, split
from tidelog.pipeline.pushdown import Bounds, narrow, push
from tidelog.pipeline.source_options import SourceOptions, SubscribePattern

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = OffsetRange(TopicPartition("", 0), 0, 0)


class RangePartition(InputPartition):
    """One Spark partition: a range of one topic partition."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class TidelogBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keeps what narrows the ranges; see `pushdown` for what is exact. Returns what is left to Spark."""
        self._bounds, left = push(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Fixes the ranges: what is appended after this is not read. Runs once, beside the driver."""
        batch = asyncio.run(_plan(self._options, self._bounds))
        log = logging.getLogger(__name__)
        for warning in self._options.warnings:
            log.warning("%s", warning)
        for warning in batch.warnings:
            log.warning("%s; reading what there is", warning)
        ranges = split(batch.ranges, self._options.min_partitions, self._options.max_records_per_partition)
        # Spark wants at least one partition; an empty range yields nothing.
        return [RangePartition(wanted) for wanted in ranges or (_NOTHING,)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """See `range_read.read_range`."""
        assert isinstance(partition, RangePartition)
        if partition.wanted.empty:
            return iter(())
        from tidelog.pipeline.range_read import read_range

        return read_range(self._options, partition.wanted)


async def _plan(options: SourceOptions, bounds: Bounds) -> Batch:
    from tidelog.pipeline.lookups import LookUps

    async with LookUps(options) as cluster:
        topic_ids = await cluster.partitions()
        if not topic_ids and isinstance(options.selection, SubscribePattern):
            raise ValueError(f"subscribePattern {options.selection.pattern.pattern!r} matches no topic")
        beginnings = await cluster.beginnings(topic_ids)
        ends = await cluster.ends(topic_ids)
        starts = await cluster.starts(beginnings, ends)
        stops = await cluster.stops(beginnings, ends)
        # What is wrong with the options or the log is said of all partitions, whatever a query picks of them.
        batch = plan_batch(starts, stops, beginnings, ends, fail_on_data_loss=options.fail_on_data_loss)
        wanted = [r.partition for r in batch.ranges if bounds.admit(r.partition)]
        found = await cluster.first_at(dict.fromkeys(wanted, bounds.since_ms)) if bounds.since_ms else {}
    ranges = narrow((r for r in batch.ranges if bounds.admit(r.partition)), bounds, found)
    return replace(batch, ranges=tuple(replace(r, topic_id=topic_ids[r.partition]) for r in ranges))
