"""Record batches as Arrow columns, in the schema of Spark's Kafka source."""

import logging
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.ids import TopicPartition
from tidelog.pipeline.decode import PlacedBatch, Records, decode_batches
from tidelog.pipeline.offsets import DataLossError
from tidelog.wire.batch import read_header

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

_MS_MAX: Final = (2**63 - 1) // 1000
_CONTROL: Final = 0x20


def arrow_schema(include_headers: bool) -> pa.Schema:
    """What Spark makes of SCHEMA, of `source`. It looks at the first batch of a task only (SPARK-55583), so all must fit."""
    return pa.schema([*_FIELDS, *((("headers", _HEADERS),) if include_headers else ())])


class ColumnReader:
    """Turns the chunks of one range, in order, into Arrow batches; holds that no offset is left out."""

    def __init__(self, tp: TopicPartition, start: int, end: int, *, include_headers: bool, fail_on_gap: bool) -> None:
        self._tp = tp
        self._start = start
        self._end = end
        self._include_headers = include_headers
        self._fail_on_gap = fail_on_gap
        self._schema = arrow_schema(include_headers)
        self.position = start
        """The next offset that is expected."""

    def decode(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """Whole batches that go on where the last chunk ended, CRC checked; records outside the range are dropped.

        DataLossError when an offset between is missing: also what compaction removes is in some batch, if only an empty one.
        BadBatchError when the inside of a batch contradicts its header.
        """
        placed = []
        at = 0
        while at < len(chunk):
            header = read_header(chunk, at)
            if header.end_offset > self.position:
                if header.base_offset > self.position and self._fail_on_gap:
                    raise DataLossError(
                        f"{self._tp}: offsets {self.position} to {header.base_offset} are missing from the log"
                    )
                if header.record_count and not header.attributes & _CONTROL:
                    placed.append(PlacedBatch(header, at))
                self.position = header.end_offset
            at += header.size_bytes
        for records in decode_batches(self._tp, chunk, placed, with_headers=self._include_headers):
            batch = self._columns(records)
            if batch.num_rows:
                yield batch

    def skip_to(self, position: int) -> None:
        """What lies before is gone and the query takes what there is. Never backwards."""
        logging.getLogger(__name__).warning("%s: offsets %d to %d are gone", self._tp, self.position, position)
        # A leader hands out whole batches: what was before in the first one is gone as well.
        self.position = self._start = max(self.position + 1, position)

    def finish(self) -> None:
        """DataLossError when the range ended early."""
        if self.position < self._end and self._fail_on_gap:
            raise DataLossError(f"{self._tp}: offsets {self.position} to {self._end} are missing from the log")

    def _columns(self, records: Records) -> pa.RecordBatch:
        rows = slice(*np.searchsorted(records.offsets, [self._start, self._end]).tolist())
        offsets = records.offsets[rows]
        types = self._schema.types
        # A producer may have sent any number as a time; what no timestamp can hold becomes the nearest that one can.
        times_us = np.clip(records.timestamps_ms[rows], -_MS_MAX, _MS_MAX) * 1000
        columns = [
            records.keys.chosen(rows).copied(records.body, types[0]),
            records.values.chosen(rows).copied(records.body, types[1]),
            pa.repeat(pa.scalar(self._tp.topic, types[2]), len(offsets)),
            pa.repeat(pa.scalar(self._tp.partition, types[3]), len(offsets)),
            pa.array(offsets, types[4]),
            pa.array(times_us, pa.int64()).cast(types[5]),
            pa.array(records.timestamp_types[rows], types[6]),
        ]
        if self._include_headers:
            columns.append(self._headers(records, rows, types[7]))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _headers(self, records: Records, rows: slice, type_: Any) -> pa.Array:
        """Built from its parts: flat keys, flat values, and where each record's headers begin."""
        edges = np.concatenate(([0], np.cumsum(records.header_counts)))[rows.start : rows.stop + 1]
        flat = slice(int(edges[0]), int(edges[-1]))
        keys = records.header_keys[flat]
        values = records.header_values.chosen(flat).copied(records.body, pa.binary())
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(type_.value_type))
        return pa.ListArray.from_arrays(pa.array(edges - edges[0], pa.int32()), pairs, type=type_)
