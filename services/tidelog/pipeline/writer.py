"""`df.write.format("tidelog")` and `df.writeStream.format("tidelog")`: the writers that Spark sends to its tasks.

**At-least-once**, the default, is what Spark's Kafka sink gives: when a write returns, every row is acknowledged as
`kafka.acks` says; rows of a task or micro-batch that is repeated are there again. Each task has one idempotent producer, so
its own retries add nothing.

**Exactly-once** (`delivery=exactly-once`, streams alone) leaves each row of each micro-batch in the log once, through
failed and repeated tasks, speculative ones, those that Spark has given up and that go on, and restarts of the query at
any moment. How: `exactly_once`. It holds

* for plans whose tasks get the same rows again when a micro-batch is repeated, in any order. Others (rand(), uuid(), a table
  that changed, another number of shuffle partitions after a restart) are found and fail, if an earlier attempt left rows;
* with acks=all, for what acks=all keeps: not where the log itself loses acknowledged records;
* while the log remembers: a repetition finds rows as long as retention leaves them there, and leftover attempts are fenced
  for a day without a record of that task (`storage.producer_state`), and with their rows in another order where a batch has
  room for 16 rows;
* for one query with one checkpoint. A new checkpoint is a new query: it writes everything that its source gives it.

Readers see rows as soon as they are committed in the log, not when their micro-batch ends. Every record carries the header
`tidelog-sink`, QUERY:BATCH:TASK.PARTITION.NUMBER, which no other record of its topic has.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.ids import TopicPartition
from tidelog.pipeline.exactly_once import Attempt, SinkState, StateError, attempt_number
from tidelog.pipeline.rows import Layout, check_schema
from tidelog.pipeline.sink_options import SinkOptions, parse_batch_sink, parse_stream_sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tidelog.pipeline.sink_task import Written

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark gives to the tasks of a stream."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionRange:
    """What one task has written to one partition: the offsets of its first and last record (-1 with acks=0)."""

    topic: str
    partition: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class TidelogCommitMessage(WriterCommitMessage):
    ranges: tuple[PartitionRange, ...] = ()
    skipped: int = 0
    """Rows that an earlier attempt had written (exactly-once)."""
    ends: "Mapping[TopicPartition, int]" = field(default_factory=dict)
    """Where the records of this micro-batch end (exactly-once)."""
    partitions: "Mapping[str, int]" = field(default_factory=dict)
    """How many each topic has."""

    @property
    def rows(self) -> int:
        return sum(r.rows for r in self.ranges)


def batch_writer(options: "Mapping[str, str]", schema: StructType, overwrite: bool) -> "TidelogBatchWriter":
    """Runs beside the driver, before any task: whatever is wrong with options, schema or topic is refused here."""
    found = parse_batch_sink(options)
    layout = check_schema(schema, found.topic)
    if overwrite:
        raise ValueError("Save mode Overwrite not allowed for tidelog. Allowed save mode is Append")
    from tidelog.pipeline.sink_state import check_topic

    asyncio.run(check_topic(found))
    return TidelogBatchWriter(found, layout)


def stream_writer(options: "Mapping[str, str]", schema: StructType, overwrite: bool) -> "TidelogStreamWriter":
    """Spark calls this beside the driver for each micro-batch, before its tasks, and again before `commit` or `abort`.

    With `overwrite`, the output mode is Complete: every row of the result is written again, as to Kafka.
    """
    found = parse_stream_sink(options)
    layout = check_schema(schema, found.topic)
    if not found.exactly_once:
        return TidelogStreamWriter(found, layout)
    from tidelog.pipeline.sink_state import begin

    return TidelogStreamWriter(found, layout, begin(found))


class TidelogBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """In a task. Returns when all its rows are acknowledged."""
        from tidelog.pipeline.sink_task import write_rows

        return _message(asyncio.run(write_rows(self._options, self._layout, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log.info("written: %s", _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What is written stays, as with Spark's Kafka sink."""
        _log.warning("the write has failed; what is in the log stays: %s", _summary(messages))


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """`state` is that of the checkpoint when the micro-batch began, with exactly-once."""

    def __init__(self, options: SinkOptions, layout: Layout, state: SinkState | None = None) -> None:
        self._options = options
        self._layout = layout
        self._state = state

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """In a task. Returns when all its rows are acknowledged, by this attempt or an earlier one."""
        from tidelog.pipeline.sink_task import write_rows

        if self._state is None:
            return _message(asyncio.run(write_rows(self._options, self._layout, iterator)))
        attempt = _attempt(self._options, self._state)
        if attempt.batch_id <= self._state.finished:
            # Finished before, but Spark could not note it: its rows are acknowledged, all of them.
            return TidelogCommitMessage(skipped=sum(batch.num_rows for batch in iterator))
        return _message(asyncio.run(write_rows(self._options, self._layout, iterator, attempt, self._state)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Beside the driver: all tasks have ended well."""
        if self._state is not None:
            from tidelog.pipeline.sink_state import finish

            finish(self._options, self._state.ended(batchId, _ends(messages, self._state)))
        _log.info("micro-batch %d is written: %s", batchId, _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """What is written stays; exactly-once finds it there when the micro-batch is repeated."""
        _log.warning("micro-batch %d has failed; what is in the log stays: %s", batchId, _summary(messages))


def _attempt(options: SinkOptions, state: SinkState) -> Attempt:
    from pyspark import TaskContext

    context = TaskContext.get()
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    if context is None or batch_id is None:
        raise StateError("delivery=exactly-once needs a micro-batch: Spark has given this task no batch id")
    query_id = options.sink_id or context.getLocalProperty(QUERY_ID)
    if query_id != state.query_id:
        raise StateError(f"the sink's state is that of query {state.query_id}, this is query {query_id}")
    return Attempt(
        query_id=state.query_id,
        batch_id=int(batch_id),
        task=context.partitionId(),
        repeated=state.runs > 1 or context.attemptNumber() > 0,
        number=attempt_number(state.runs, context.attemptNumber(), context.taskAttemptId()),
    )


def _message(written: "Written") -> TidelogCommitMessage:
    ranges = tuple(
        PartitionRange(*tp, found.first, found.last, found.rows) for tp, found in sorted(written.ranges.items())
    )
    return TidelogCommitMessage(ranges, written.skipped, written.ends, written.partitions)


def _ours(messages: Iterable[WriterCommitMessage | None]) -> list[TidelogCommitMessage]:
    return [message for message in messages if isinstance(message, TidelogCommitMessage)]


def _ends(messages: Iterable[WriterCommitMessage | None], state: SinkState) -> dict[TopicPartition, int]:
    """Where records of the micro-batch end; 0 for partitions that are new."""
    ends: dict[TopicPartition, int] = {}
    for message in _ours(messages):
        for topic, count in message.partitions.items():
            tps = (TopicPartition(topic, p) for p in range(count))
            ends |= {tp: 0 for tp in tps if tp not in state.ends and tp not in ends}
        for found in message.ranges:
            tp = TopicPartition(found.topic, found.partition)
            ends[tp] = max(ends.get(tp, 0), found.last + 1)
        for tp, end in message.ends.items():
            ends[tp] = max(ends.get(tp, 0), end)
    return ends


def _summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    ours = _ours(messages)
    partitions = {(r.topic, r.partition) for message in ours for r in message.ranges}
    skipped = sum(message.skipped for message in ours)
    return (
        f"{sum(message.rows for message in ours)} rows to {len(partitions)} partitions by {len(ours)} of "
        f"{len(messages)} tasks" + (f"; {skipped} rows were there already" if skipped else "")
    )
