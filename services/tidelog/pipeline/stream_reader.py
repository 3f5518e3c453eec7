"""`spark.readStream.format("tidelog")`: plans micro-batches beside the driver, reads each range in a task.

Spark's progress has what there is to see of a stream: the offsets of the last batch and, as latestOffset, the high
watermarks, whose difference is the lag. Spark 4.3 takes no metrics of its own from a Python source.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.errors import ErrorCode, TidelogError
from tidelog.pipeline import admission as a
from tidelog.pipeline.batch_reader import RangePartition
from tidelog.pipeline.offsets import DataLossError, split
from tidelog.pipeline.source_options import SourceOptions
from tidelog.runtime.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.pipeline.lookups import LookUps

T = TypeVar("T")


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object serves a query from its start, beside the driver; others travel to the tasks, and only read.

    What it remembers is for one run. All that a restart needs is in the offsets that Spark keeps in the checkpoint: `commit`
    is not called for the last batch of a run, so that nothing may depend on it.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._history = a.History()
        self._extents: a.Extents | None = None
        """As the last plan saw them."""
        self._fixed: a.Extents | None = None
        """Under Trigger.AvailableNow: what is to be read in all."""
        self._initial: a.StreamOffset | None = None
        """Of a new query."""
        self._held: a.Positions = {}
        """For the first batch of a new query."""
        self._runner: asyncio.Runner | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._fixed = self._run(self._look_again())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark asks once, before the first batch. There is no limit of two kinds: `latestOffset` knows the other one."""
        for warning in self._options.warnings:
            self._warn(warning)
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> a.StreamOffset:
        """Where a new query starts. Spark asks again when it runs the first batch, and must hear the same."""
        if self._initial is None:
            self._initial = self._run(self._start())
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> a.StreamOffset:
        """Where the batch that begins at `start` ends; `start` itself when there is to be none now."""
        found = self._run(self._admit(a.from_stream_offset(start), a.topic_ids_of(start), self._limits(limit)))
        self._lose(found.losses)
        self._history = found.history
        self._held = {}
        return a.to_stream_offset(found.end, found.topic_ids)

    def reportLatestOffset(self) -> a.StreamOffset | None:
        """The high watermarks that the last plan saw; under Trigger.AvailableNow those that were fixed."""
        if self._extents is None:
            return None
        return a.to_stream_offset({tp: extent.end for tp, extent in self._extents.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The same for the same offsets, whenever it is asked: Spark repeats a batch that it did not finish."""
        ranges = a.batch_ranges(a.from_stream_offset(start), a.from_stream_offset(end))
        pieces = split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        ids = a.topic_ids_of(end)
        return [RangePartition(replace(piece, topic_id=ids.get(piece.partition.topic, b""))) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """See `range_read.read_range`."""
        assert isinstance(partition, RangePartition)
        from tidelog.pipeline.range_read import read_range

        return read_range(self._options, partition.wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the positions of a query are in its checkpoint alone."""

    def stop(self) -> None:
        if self._runner is not None:
            self._runner.close()

    # -- beside the driver ----------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """On one loop for as long as the query runs: gRPC goes on to wake loops that are closed, and complains of them."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    def _limits(self, limit: ReadLimit) -> a.Limits:
        """Trigger.AvailableNow does not wait for records that may never come; Trigger.Once, which asks for all, has no limits."""
        at_least = None if self._fixed is not None else self._options.min_offsets_per_trigger
        delay_s = self._options.max_trigger_delay_ms / 1000
        match limit:
            case ReadMaxRows():
                return a.Limits(limit.max_rows, at_least, delay_s)
            case ReadMinRows():
                return a.Limits(None, at_least, delay_s)
            case ReadAllAvailable():
                return a.Limits()
        raise ValueError(f"read limit {limit!r} is none of ReadMaxRows, ReadMinRows and ReadAllAvailable")

    async def _start(self) -> a.StreamOffset:
        from tidelog.pipeline.lookups import LookUps

        async with LookUps(self._options) as cluster:
            extents = await _look(cluster, missing_is_none=False)
            beginnings = {tp: extent.start for tp, extent in extents.items()}
            ends = {tp: extent.end for tp, extent in extents.items()}
            starts = await cluster.starts(beginnings, ends)
        positions, losses = a.initial_positions(starts, beginnings, ends)
        self._lose(losses)
        # A start at the end is in no log: asked again, after a restart before the first batch was done, it is another one. The
        # first batch reads nothing there, and so writes it into the checkpoint before anything can be missed behind it.
        self._held = {tp: position for tp, position in positions.items() if position == ends[tp]}
        if self._fixed is not None:
            self._fixed = a.targets(self._fixed, extents, positions)
        return a.to_stream_offset(positions, {tp.topic: extent.topic_id for tp, extent in extents.items()})

    async def _admit(self, start: a.Positions, topic_ids: a.TopicIds, limits: a.Limits) -> a.Admission:
        """Looks as often as numRetries says before it believes in data loss: a cluster that recovers may not know all yet."""
        for attempt in range(1, self._options.num_retries + 1):
            extents = self._fixed if self._fixed is not None else await self._look_again()
            held = a.held_at(extents, self._held)
            found = a.admit(start, held, self._history, limits, self._clock.now(), topic_ids)
            if self._fixed is not None or not found.losses or attempt == self._options.num_retries:
                break
            await self._clock.sleep(self._options.retry_interval_ms / 1000)
        self._extents = extents
        return found

    async def _look_again(self) -> a.Extents:
        """What the query reads now. A topic that is deleted while it is asked about is looked up once more."""
        from tidelog.pipeline.lookups import LookUps

        async with LookUps(self._options) as cluster:
            try:
                return await _look(cluster, missing_is_none=True)
            except TidelogError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return await _look(cluster, missing_is_none=True)

    def _lose(self, losses: Sequence[str]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise DataLossError("; ".join(losses))
        for loss in losses:
            self._warn(f"{loss}; reading what there is")

    def _warn(self, text: str) -> None:
        logging.getLogger(__name__).warning("%s", text)


async def _look(cluster: "LookUps", *, missing_is_none: bool) -> a.Extents:
    topic_ids = await cluster.partitions(missing_is_none=missing_is_none)
    beginnings = await cluster.beginnings(topic_ids)
    ends = await cluster.ends(topic_ids)
    return {tp: a.Extent(topic_id, beginnings[tp], ends[tp]) for tp, topic_id in topic_ids.items()}
