"""What earlier attempts at a task have left in the log. Opens connections: imported in worker processes alone."""

from collections.abc import Iterable, Sequence

import numpy as np

from tidelog.client.consumer import Consumer
from tidelog.client.records import ConsumerRecord, Header, decode_batch, split_batches
from tidelog.ids import TopicPartition
from tidelog.pipeline import rows as r
from tidelog.pipeline.exactly_once import HEADER, SinkState, Stored
from tidelog.pipeline.sink_options import SinkOptions


class Contents:
    """One number for each row and for each record, the same for equal ones, good in this process alone.

    The partition counts where the DataFrame chooses it: then two rows may differ in nothing else.
    """

    def __init__(self, *, with_partition: bool) -> None:
        self._with_partition = with_partition

    def of_rows(self, rows: r.Rows) -> r.Ints:
        headers: Iterable[Sequence[Header]] = [()] * len(rows) if rows.headers is None else map(tuple, rows.headers)
        partitions = rows.partitions.tolist() if self._with_partition else [None] * len(rows)
        parts = zip(rows.keys, rows.values, headers, partitions, strict=True)
        return np.fromiter((hash((rows.topic, *part)) for part in parts), np.int64, len(rows))

    def of_record(self, record: ConsumerRecord) -> int:
        headers = tuple(header for header in record.headers if header[0] != HEADER)
        partition = record.partition if self._with_partition else None
        return hash((record.topic, record.key, record.value, headers, partition))


async def read_back(
    options: SinkOptions, tps: Sequence[TopicPartition], state: SinkState, stored: Stored, contents: Contents
) -> dict[TopicPartition, int]:
    """Fills `stored` from partitions of one topic; returns where its records end in each that has some.

    Reads what is committed from where the last finished micro-batch ends. What others have written is passed by unread but
    for the heads of its batches.
    """
    ends: dict[TopicPartition, int] = {}
    async with Consumer(
        options.bootstrap, request_timeout_ms=options.delivery_timeout_ms, client_id=options.client_id
    ) as consumer:
        beginnings = await consumer.beginning_offsets(tps)
        high_watermarks = await consumer.end_offsets(tps)
        for tp in tps:
            end, start = high_watermarks[tp], max(state.start_of(tp) or 0, beginnings[tp])
            if start > end:
                start = beginnings[tp]  # the topic was created anew
            position = start
            async for chunk in consumer.fetch_batches(*tp, start, end):
                for header, batch in split_batches(tp, chunk, position):
                    position = header.end_offset
                    if stored.is_ours(header):
                        stored.add(tp, header, map(contents.of_record, decode_batch(tp, batch, header)))
                        ends[tp] = header.end_offset
    return ends
