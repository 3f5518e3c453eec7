"""Record batches as Arrow columns, in the schema of Spark's Kafka source."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.client.records import ConsumerRecord, Header, decode_batch, split_batches
from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import DataLossError

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
SCHEMA_WITH_HEADERS: Final = f"{SCHEMA}, headers array<struct<key:string,value:binary>>"

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FIELDS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)

_NO_RECORDS: Final[tuple[Sequence[Any], ...]] = ((),) * len(ConsumerRecord._fields)


def arrow_schema(include_headers: bool) -> pa.Schema:
    """What Spark makes of SCHEMA. It looks at the first batch of a task only (SPARK-55583), so all must fit."""
    return pa.schema([*_FIELDS, *((("headers", _HEADERS),) if include_headers else ())])


class ColumnReader:
    """Turns the chunks of one range, in order, into Arrow batches; holds that no offset is left out."""

    def __init__(self, tp: TopicPartition, start: int, end: int, *, include_headers: bool, fail_on_gap: bool) -> None:
        self._tp = tp
        self._end = end
        self._include_headers = include_headers
        self._fail_on_gap = fail_on_gap
        self._schema = arrow_schema(include_headers)
        self._wanted = start
        self.position = start
        """The next offset that is expected."""

    def decode(self, chunk: bytes) -> pa.RecordBatch:
        """Whole batches that go on where the last chunk ended; records outside the range are dropped.

        DataLossError when an offset between is missing: there is no compaction, so every offset was once a record.
        """
        records: list[ConsumerRecord] = []
        for header, batch in split_batches(self._tp, chunk, self.position):
            if header.base_offset > self.position and self._fail_on_gap:
                raise DataLossError(
                    f"{self._tp}: offsets {self.position} to {header.base_offset} are missing from the log"
                )
            records += decode_batch(self._tp, batch, header)
            self.position = header.end_offset
        first = next((i for i, record in enumerate(records) if record.offset >= self._wanted), len(records))
        past = next((i for i in range(len(records) - 1, -1, -1) if records[i].offset < self._end), -1) + 1
        return self._columns(records[first:past])

    def skip_to(self, position: int) -> None:
        """What lies before is gone and the query takes what there is. Never backwards."""
        logging.getLogger(__name__).warning("%s: offsets %d to %d are gone", self._tp, self.position, position)
        self.position = max(self.position + 1, position)

    def finish(self) -> None:
        """DataLossError when the range ended early."""
        if self.position < self._end and self._fail_on_gap:
            raise DataLossError(f"{self._tp}: offsets {self.position} to {self._end} are missing from the log")

    def _columns(self, records: list[ConsumerRecord]) -> pa.RecordBatch:
        count = len(records)
        _, _, offsets, timestamps_ms, timestamp_types, keys, values, headers, _ = (
            zip(*records, strict=True) if records else _NO_RECORDS
        )
        types = self._schema.types
        columns = [
            pa.array(keys, types[0]),
            pa.array(values, types[1]),
            pa.repeat(pa.scalar(self._tp.topic, types[2]), count),
            pa.repeat(pa.scalar(self._tp.partition, types[3]), count),
            pa.array(offsets, types[4]),
            pa.array(np.array(timestamps_ms, np.int64) * 1000, pa.int64()).cast(types[5]),
            pa.array(timestamp_types, types[6]),
        ]
        if self._include_headers:
            columns.append(_header_column(headers, types[7]))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _header_column(headers: Sequence[Sequence[Header]], type_: Any) -> pa.Array:
    """Built from its parts: flat keys, flat values, and where each record's headers begin."""
    counts = np.fromiter(map(len, headers), np.int32, len(headers))
    flat = [pair for pairs in headers for pair in pairs]
    pairs = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(type_.value_type),
    )
    begins = np.concatenate(([0], np.cumsum(counts, dtype=np.int32)))
    return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), pairs, type=type_)
