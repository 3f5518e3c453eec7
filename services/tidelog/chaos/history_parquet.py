"""A history as one Parquet file, for those who ask it questions in SQL. Needs PyArrow, which only the extra `spark` installs.

One row a record, in the order of the history. Fields of the same name are one column, null where a kind lacks it; what a kind
holds as a list is a list of its own: `records` of polls, `owned` of assignments, `positions` of commits, `spans` of what was
processed.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.chaos.history import Committed, Ownership, Polled, Processed, Record, kind_of

ROW_GROUP: Final = 1 << 16
_PLACE: Final = [("topic", pa.string()), ("partition", pa.int32())]
SCHEMA: Any = pa.schema(
    [
        ("t", pa.float64()),
        ("kind", pa.string()),
        ("id", pa.int64()),
        ("op", pa.int64()),
        ("process", pa.string()),
        *_PLACE,
        ("value", pa.string()),
        ("acks", pa.string()),
        ("outcome", pa.string()),
        ("error", pa.string()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("isr", pa.int32()),
        ("began", pa.float64()),
        ("final", pa.bool_()),
        ("records", pa.list_(pa.struct([*_PLACE, ("offset", pa.int64()), ("value", pa.string())]))),
        ("group", pa.string()),
        ("generation", pa.int32()),
        ("coordinator_epoch", pa.int32()),
        ("owned", pa.list_(pa.struct(_PLACE))),
        ("positions", pa.list_(pa.struct([*_PLACE, ("offset", pa.int64())]))),
        ("spans", pa.list_(pa.struct([*_PLACE, ("first", pa.int64()), ("last", pa.int64())]))),
        ("fault", pa.string()),
        ("what", pa.string()),
        ("target", pa.list_(pa.string())),
        ("name", pa.string()),
        ("broker", pa.int32()),
        ("high_watermark", pa.int64()),
        ("log_end", pa.int64()),
        ("log_start", pa.int64()),
        ("phase", pa.string()),
    ]
)


def write_parquet(records: Iterable[Record], path: Path) -> None:
    """A row group at a time, so that a long history needs no more memory than a short one."""
    rows = map(_row, records)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        while group := list(islice(rows, ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=SCHEMA))


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {**record._asdict(), "kind": kind_of(record)}
    match record:
        case Polled():
            row["records"] = list(_read(record))
        case Ownership():
            row["owned"] = [each._asdict() for each in record.partitions]
        case Committed():
            row["positions"] = [each._asdict() for each in record.offsets]
        case Processed():
            row["spans"] = [each._asdict() for each in record.partitions]
    return row


def _read(poll: Polled) -> Iterator[dict[str, Any]]:
    for topic, partition, records in poll.partitions:
        for offset, value in records:
            yield {"topic": topic, "partition": partition, "offset": offset, "value": value}
