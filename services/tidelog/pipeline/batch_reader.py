"""`spark.read.format("tidelog")`: fixes the ranges beside the driver, reads each in a task."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import Batch, OffsetRange, plan_batch, split
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

    def partitions(self) -> Sequence[InputPartition]:
        """Fixes the ranges: what is appended after this is not read. Runs once, beside the driver."""
        batch = asyncio.run(_plan(self._options))
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


async def _plan(options: SourceOptions) -> Batch:
    from dataclasses import replace

    from tidelog.pipeline.lookups import LookUps

    async with LookUps(options) as cluster:
        topic_ids = await cluster.partitions()
        if not topic_ids and isinstance(options.selection, SubscribePattern):
            raise ValueError(f"subscribePattern {options.selection.pattern.pattern!r} matches no topic")
        beginnings = await cluster.beginnings(topic_ids)
        ends = await cluster.ends(topic_ids)
        starts = await cluster.starts(beginnings, ends)
        stops = await cluster.stops(beginnings, ends)
    batch = plan_batch(starts, stops, beginnings, ends, fail_on_data_loss=options.fail_on_data_loss)
    return replace(batch, ranges=tuple(replace(r, topic_id=topic_ids[r.partition]) for r in batch.ranges))
