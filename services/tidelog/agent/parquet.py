"""Records as one Parquet file. Needs PyArrow, which only the extra `spark` installs."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.client.records import ConsumerRecord

SCHEMA: Any = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def encode(records: Sequence[ConsumerRecord]) -> bytes:
    rows = [
        {
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": r.timestamp_ms,
            "key": r.key,
            "value": r.value,
            "headers": [{"key": name, "value": value} for name, value in r.headers],
        }
        for r in records
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data
