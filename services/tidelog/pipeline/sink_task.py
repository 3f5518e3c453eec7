"""The task side of the sink: writes the rows of one task with one producer.

Imported in worker processes alone: it opens connections, and gRPC does not survive a fork.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Ack, Producer
from tidelog.client.records import Record, codec_of
from tidelog.client.snapshot import TopicInfo
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.pipeline import rows as r
from tidelog.pipeline.batching import Cut, Packer, as_many_as_fit
from tidelog.pipeline.exactly_once import CONFLICTS, Attempt, SinkState, Stored, batch_end
from tidelog.pipeline.read_back import Contents, read_back
from tidelog.pipeline.sink_options import SinkOptions
from tidelog.wire.batch import HEADER_BYTES, numbered

TOPIC_S: Final = 5.0
"""A topic that was created a moment ago may take so long to be known to every broker; none is created by writing to it."""


class Range(NamedTuple):
    """What a task has written to one partition: the offsets of its first and last record, both -1 with acks=0.

    Records of other tasks may lie between.
    """

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class Written:
    ranges: Mapping[TopicPartition, Range] = field(default_factory=dict)
    skipped: int = 0
    """Rows that were in the log already."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the rows that were skipped end."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many each topic has."""


async def write_rows(
    options: SinkOptions,
    layout: r.Layout,
    batches: Iterator[pa.RecordBatch],
    attempt: Attempt | None = None,
    state: SinkState | None = None,
) -> Written:
    """Returns when every row is acknowledged; raises at the first that is refused or not acknowledged in time.

    `attempt` and `state` are for exactly-once.
    """
    first = await _next(batches)
    if first is None:
        return Written()
    async with Producer(**options.producer()) as producer:
        sink: TaskSink = (
            TaskSink(options, layout, producer)
            if attempt is None or state is None
            else ExactlyOnceSink(options, layout, producer, attempt, state)
        )
        batch: pa.RecordBatch | None = first
        while batch is not None:
            await sink.write(batch)
            batch = await _next(batches)
        return await sink.finish()


async def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next batch with rows. In a thread, so that what is on its way goes on while Spark computes."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None and not batch.num_rows:
        pass
    return batch


class Target:
    """A topic that rows go to, in batches of at most `batch_bytes`."""

    def __init__(self, name: str, info: TopicInfo, count: int, batch_bytes: int) -> None:
        self.name = name
        self.count = count
        self.available = [p for p in info.available if p < count] or list(range(count))
        self.known = len(info.partitions)
        self.batch_bytes = batch_bytes
        self.packers: dict[int, Packer] = {}

    def shrink(self, batch_bytes: int) -> None:
        """The topic takes smaller batches than those that it was sent."""
        self.batch_bytes = min(self.batch_bytes, batch_bytes)
        for packer in self.packers.values():
            packer.shrink(batch_bytes)


class TaskSink:
    """At-least-once: what a failed task has written stays, and is written again by the next attempt."""

    def __init__(self, options: SinkOptions, layout: r.Layout, producer: Producer) -> None:
        self._options = options
        self._layout = layout
        self._producer = producer
        self._codec = codec_of(options.compression)
        self._sticky = r.Sticky(options.batch_bytes, start=int(time.monotonic_ns() >> 10) % 65_536)
        self._targets: dict[str, Target] = {}
        self._acks: deque[tuple[TopicPartition, int, Ack]] = deque()
        self._ranges: dict[TopicPartition, Range] = {}
        self._header_bytes = 0
        """Of the header that the sink itself adds to a record, at most."""

    async def write(self, batch: pa.RecordBatch) -> None:
        for rows in r.rows_of(batch, self._layout):
            r.check_sizes(rows, self._options.record_bytes_max)
            target = self._targets.get(rows.topic)
            if target is None:
                target = self._targets[rows.topic] = await self._open(rows.topic)
            await self._write(target, rows)
        if self._held_bytes() > self._options.buffer_bytes:
            await self._send_held()

    async def finish(self) -> Written:
        for target in self._targets.values():
            for partition, packer in target.packers.items():
                for cut in packer.finish():
                    await self._send(target, partition, cut)
        await self._producer.flush()
        self._reap()
        return self._written()

    def _held_bytes(self) -> int:
        return sum(packer.held_bytes for target in self._targets.values() for packer in target.packers.values())

    async def _send_held(self) -> None:
        """There are so many partitions that rows waiting for a full batch take more memory than the batches on their way."""
        for target in self._targets.values():
            for partition, packer in target.packers.items():
                for cut in packer.give_up_most():
                    await self._send(target, partition, cut)

    async def _open(self, topic: str) -> Target:
        info = await self._producer.topic_info(topic, TOPIC_S)
        return Target(topic, info, len(info.partitions), self._options.batch_bytes)

    async def _write(self, target: Target, rows: r.Rows) -> None:
        chosen = self._sticky.choose(rows, r.by_key(rows, target.count), target.available)
        await self._pack(target, rows, chosen, np.arange(len(rows)))

    async def _pack(
        self,
        target: Target,
        rows: r.Rows,
        chosen: r.Ints,
        wanted: npt.NDArray[np.int64],
    ) -> None:
        """Rows number `wanted` go to their partitions."""
        now_ms = time.time_ns() // 1_000_000
        timestamps = np.where(rows.timestamps_ms == r.NO_TIMESTAMP, now_ms, rows.timestamps_ms).tolist()
        sizes = (rows.sizes + self._header_bytes).tolist()
        for partition in np.unique(chosen[wanted]).tolist():
            mine = wanted[chosen[wanted] == partition].tolist()
            packer = target.packers.get(partition)
            if packer is None:
                first = self._first_sequence(TopicPartition(target.name, partition))
                packer = Packer(target.batch_bytes, self._codec, first=first, end_of=self._end_of)
                target.packers[partition] = packer
            headers = self._headers(rows, mine, partition, packer.next_sequence)
            records = [
                Record(rows.keys[i], rows.values[i], of_row, timestamps[i])
                for i, of_row in zip(mine, headers, strict=True)
            ]
            for cut in packer.add(records, [sizes[i] for i in mine]):
                await self._send(target, partition, cut)

    async def _send(self, target: Target, partition: int, cut: Cut) -> None:
        def end_of_half(first: int, fits: int) -> int:
            target.shrink(HEADER_BYTES + cut.bytes_max * fits // cut.rows)
            return self._end_of(first, fits)

        self._reap()
        ack = await self._producer.produce_encoded(target.name, partition, self._encoded(cut), end_of_half)
        self._acks.append((TopicPartition(target.name, partition), cut.rows, ack))

    def _headers(self, rows: r.Rows, wanted: Sequence[int], partition: int, first: int) -> r.Headers:
        """Of rows number `wanted`, which are records number `first` and so on of their partition."""
        return [() if rows.headers is None else rows.headers[i] for i in wanted]

    def _first_sequence(self, tp: TopicPartition) -> int:
        return 0

    def _end_of(self, first: int, fits: int) -> int:
        return as_many_as_fit(first, fits)

    def _encoded(self, cut: Cut) -> bytes:
        return cut.records

    def _reap(self) -> None:
        """Takes note of what is acknowledged; raises for what is refused."""
        while self._acks and self._acks[0][2].done():
            tp, count, ack = self._acks.popleft()
            try:
                first = ack.result().offset
            except DeliveryError as error:
                raise self._explained(error, count) from error
            last = first if first == NO_OFFSET else first + count - 1
            before = self._ranges.get(tp)
            self._ranges[tp] = (
                Range(first, last, count) if before is None else Range(before.first, last, before.rows + count)
            )

    def _explained(self, error: DeliveryError, count: int) -> TidelogError:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            return error
        which = "one row" if count == 1 else f"one of {count} rows"
        return TidelogError(f"{error.message}; it holds {which}, which the topic does not take", error.code)

    def _written(self) -> Written:
        return Written(self._ranges, partitions={target.name: target.known for target in self._targets.values()})


class ExactlyOnceSink(TaskSink):
    """See `exactly_once`. A repetition reads a topic back before it writes the first row there."""

    def __init__(
        self, options: SinkOptions, layout: r.Layout, producer: Producer, attempt: Attempt, state: SinkState
    ) -> None:
        super().__init__(options, layout, producer)
        self._attempt = attempt
        self._state = state
        self._identity = attempt.identity
        self._header_bytes = r.HEADER_OVERHEAD_BYTES + attempt.header_bytes_max
        self._stored = Stored(self._identity)
        self._contents = Contents(with_partition="partition" in layout.at)
        self._skipped = 0
        self._ends: dict[TopicPartition, int] = {}

    async def finish(self) -> Written:
        written = await super().finish()
        self._stored.check_all_taken(self._attempt)
        return written

    async def _open(self, topic: str) -> Target:
        info = await self._producer.topic_info(topic, TOPIC_S)
        if self._attempt.repeated:
            tps = [TopicPartition(topic, p) for p in range(len(info.partitions))]
            self._ends |= await read_back(self._options, tps, self._state, self._stored, self._contents)
        # A key must go where it went before, although partitions were added since.
        count = self._state.partitions_of(topic) or len(info.partitions)
        return Target(topic, info, count, self._options.batch_bytes)

    async def _write(self, target: Target, rows: r.Rows) -> None:
        chosen = r.by_content(rows, r.by_key(rows, target.count, target.known), target.count)
        missing = np.arange(len(rows))
        if self._attempt.repeated:
            stored = self._stored.take(self._contents.of_rows(rows))
            self._skipped += int(stored.sum())
            missing = missing[~stored]
        await self._pack(target, rows, chosen, missing)

    def _headers(self, rows: r.Rows, wanted: Sequence[int], partition: int, first: int) -> r.Headers:
        ours = self._attempt.headers(partition, first, len(wanted))
        if rows.headers is None:
            return [(header,) for header in ours]
        return [(*rows.headers[i], header) for i, header in zip(wanted, ours, strict=True)]

    def _first_sequence(self, tp: TopicPartition) -> int:
        return self._stored.next_sequence(tp)

    def _end_of(self, first: int, fits: int) -> int:
        return batch_end(first, fits, self._attempt.number)

    def _encoded(self, cut: Cut) -> bytes:
        return numbered(cut.records, *self._identity, cut.first)

    def _explained(self, error: DeliveryError, count: int) -> TidelogError:
        if error.code not in CONFLICTS:
            return super()._explained(error, count)
        return TidelogError(
            f"{error.message}. Another attempt at task {self._attempt.task} of micro-batch {self._attempt.batch_id} has "
            "written there meanwhile, or a later micro-batch has: this attempt gives up, the next one reads back",
            error.code,
        )

    def _written(self) -> Written:
        return replace(super()._written(), skipped=self._skipped, ends=self._ends)
