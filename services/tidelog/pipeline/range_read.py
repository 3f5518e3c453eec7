"""The task side that batches and streams share: one range of one partition as Arrow batches, whoever leads it.

Imported in worker processes alone: it opens connections, and gRPC does not survive a fork.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.errors import LogTruncationError, PositionOutOfRangeError
from tidelog.client.metadata import MAX_AGE_MS
from tidelog.errors import ErrorCode, TidelogError
from tidelog.pipeline.columns import ColumnReader
from tidelog.pipeline.offsets import DataLossError, OffsetRange
from tidelog.pipeline.source_options import SourceOptions

_LOST = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""After all the patience there was: the topic is gone, or another one of its name; the log ends below the range."""


def read_range(
    options: SourceOptions, wanted: OffsetRange, ports: ClientPorts | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of `wanted` in offset order, in the schema of `columns.arrow_schema`.

    Elections and restarts are sat out for `poll_timeout_ms`; then the last error is raised. When an offset of the range is
    gone: DataLossError, or with `fail_on_data_loss` False a warning and what there is. A damaged batch: BadBatchError.
    """
    columns = ColumnReader(
        wanted.partition,
        wanted.start,
        wanted.end,
        include_headers=options.include_headers,
        fail_on_gap=options.fail_on_data_loss,
    )
    with asyncio.Runner() as runner:
        # Not the runner's own `run`: its handling of Ctrl-C makes a text of every result, as long as the chunk it is.
        run = runner.get_loop().run_until_complete
        consumer = run(_open(options, ports))
        try:
            run(consumer.start())
            while columns.position < wanted.end:
                chunks = consumer.fetch_batches(
                    *wanted.partition, columns.position, wanted.end, topic_id=wanted.topic_id
                )
                try:
                    while (chunk := run(_next(chunks))) is not None:
                        yield from columns.decode(chunk)
                    break
                except TidelogError as error:
                    if not _is_loss(error):
                        raise
                    if options.fail_on_data_loss:
                        raise DataLossError(error.message) from error
                    _warn(wanted, error)
                    run(_skip(consumer, columns, wanted, error))
        finally:
            run(consumer.stop())
    columns.finish()


def _is_loss(error: TidelogError) -> bool:
    return isinstance(error, PositionOutOfRangeError | LogTruncationError) or error.code in _LOST


async def _skip(consumer: Consumer, columns: ColumnReader, wanted: OffsetRange, error: TidelogError) -> None:
    """To where the log goes on; to the end of the range when there is nothing more of it."""
    if isinstance(error, LogTruncationError):
        return  # what stands in its place is read from the same position on
    if not isinstance(error, PositionOutOfRangeError):
        columns.skip_to(wanted.end)
        return
    tp = wanted.partition
    beginning = (await consumer.beginning_offsets([tp]))[tp]
    columns.skip_to(min(beginning, wanted.end) if beginning > columns.position else wanted.end)


def _warn(wanted: OffsetRange, error: TidelogError) -> None:
    logging.getLogger(__name__).warning(
        "%s: some of offsets %d to %d are gone (%s); reading what there is",
        wanted.partition,
        wanted.start,
        wanted.end,
        error.message,
    )


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _open(options: SourceOptions, ports: ClientPorts | None) -> Consumer:
    # Made on the loop that uses it: gRPC ties channels to loops.
    return Consumer(
        options.bootstrap,
        request_timeout_ms=options.poll_timeout_ms,
        client_id=options.client_id,
        partition_bytes=options.fetch_bytes,
        metadata_max_age_ms=int(options.kafka.get("metadata.max.age.ms", MAX_AGE_MS)),
        ports=ports,
    )
