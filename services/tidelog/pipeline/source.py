"""The PySpark data source `tidelog`: topics as DataFrames, in the schema and with the options of Spark's Kafka source.

Register it once a session (`spark.dataSource.register(TidelogSource)`), then
`spark.read.format("tidelog").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()`.

Spark pickles readers and calls `read` in worker processes, and gRPC does not survive a fork: whatever opens a connection
is imported and made inside the methods.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.ids import TopicPartition
from tidelog.pipeline.options import Assign, SourceOptions, Subscribe, SubscribePattern, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.consumer import Consumer
    from tidelog.pipeline.offsets import Batch

NAME: Final = "tidelog"
PLAN_MS: Final = 10_000
"""How long the driver looks for a broker and for every partition's leader."""

STALL_MS: Final = 60_000
"""How long a task goes on without a byte, through elections and restarts, before it fails."""


class TidelogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from tidelog.pipeline.columns import SCHEMA, SCHEMA_WITH_HEADERS

        return SCHEMA_WITH_HEADERS if parse_options(self.options).include_headers else SCHEMA

    def reader(self, schema: StructType) -> "TidelogBatchReader":
        return TidelogBatchReader(parse_options(self.options))


class RangePartition(InputPartition):
    """One Spark partition: a range of one topic partition."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__((topic, partition, start, end))
        self.topic_partition = TopicPartition(topic, partition)
        self.start = start
        self.end = end


class TidelogBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Fixes the ranges: what is appended after this is not read. Runs once, beside the driver."""
        import asyncio

        batch = asyncio.run(_plan(self._options))
        for warning in batch.warnings:
            logging.getLogger(__name__).warning("%s; reading what there is", warning)
        # Spark wants at least one partition; an empty range yields nothing.
        return [RangePartition(*r.partition, r.start, r.end) for r in batch.ranges] or [RangePartition("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Follows the partition's leader wherever it moves; DataLossError when an offset of the range is gone."""
        assert isinstance(partition, RangePartition)
        if partition.start >= partition.end:
            return iter(())
        return _read(self._options, partition.topic_partition, partition.start, partition.end)


async def _plan(options: SourceOptions) -> "Batch":
    from tidelog.pipeline.offsets import plan_batch

    async with await _open(options, PLAN_MS) as consumer:
        partitions = await _select(consumer, options)
        beginnings = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return plan_batch(options, beginnings, ends)


async def _select(consumer: "Consumer", options: SourceOptions) -> list[TopicPartition]:
    match options.selection:
        case Assign(partitions):
            return list(partitions)
        case Subscribe(topics):
            pass
        case SubscribePattern() as pattern:
            from tidelog.client.admin import AdminClient

            async with AdminClient(options.bootstrap, request_timeout_ms=PLAN_MS) as admin:
                topics = pattern.choose(await admin.list_topics())
            if not topics:
                raise ValueError(f"subscribePattern {pattern.pattern.pattern!r} matches no topic")
    return [tp for topic in topics for tp in await consumer.partitions_of(topic)]


def _read(options: SourceOptions, tp: TopicPartition, start: int, end: int) -> Iterator["pa.RecordBatch"]:
    import asyncio

    from tidelog.client.errors import OffsetOutOfRangeError
    from tidelog.pipeline.columns import ColumnReader
    from tidelog.pipeline.offsets import DataLossError

    columns = ColumnReader(
        tp, start, end, include_headers=options.include_headers, fail_on_gap=options.fail_on_data_loss
    )
    with asyncio.Runner() as runner:
        consumer = runner.run(_open(options, STALL_MS))
        try:
            runner.run(consumer.start())
            while columns.position < end:
                chunks = consumer.fetch_batches(*tp, columns.position, end)
                try:
                    while (chunk := runner.run(_next(chunks))) is not None:
                        yield columns.decode(chunk)
                    break
                except OffsetOutOfRangeError as error:
                    if options.fail_on_data_loss:
                        raise DataLossError(str(error)) from error
                    columns.skip_to(runner.run(consumer.beginning_offsets([tp]))[tp])
        finally:
            runner.run(consumer.stop())
    columns.finish()


async def _next(chunks: Any) -> bytes | None:
    return await anext(chunks, None)


async def _open(options: SourceOptions, patience_ms: int) -> "Consumer":
    from tidelog.client.consumer import Consumer

    # Made on the loop that uses it: gRPC ties channels to loops.
    return Consumer(options.bootstrap, request_timeout_ms=patience_ms, client_id="tidelog-spark")
