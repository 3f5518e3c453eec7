"""A Spark task names the records of its partition."""

import pyarrow as pa

from tidelog.chaos.sources import checked, numbered
from tidelog.chaos.spark_reader import named
from tidelog.client.records import Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.pipeline.columns import ColumnReader
from tidelog.wire.batch import stamp, validate_produce

TP = TopicPartition("t", 3)


def columns(records: list[Record]) -> pa.RecordBatch:
    encoded = encode_batch(records)
    chunk = b"".join(bytes(part) for part in stamp(validate_produce(encoded, batch_bytes_max=1 << 20), 5, 1))
    (batch,) = ColumnReader(TP, 5, 5 + len(records), include_headers=True, fail_on_gap=True).decode(chunk)
    return batch


def test_every_record_has_the_name_under_which_it_was_sent() -> None:
    sent = [numbered(n, b"k" if n else None, b"v%d" % n) for n in range(3)]
    own = Record(b"k", checked("p-1", 30, b"k", (), 1_600_000_000_123), [], 1_600_000_000_123)
    batch = columns([*(Record(r.key, r.value, list(r.headers), 1) for r in sent), own])
    (found,) = named(iter([batch]))
    assert found.to_pylist() == [
        {"partition": 3, "offset": 5 + n, "name": name} for n, name in enumerate([*(r.name for r in sent), "p-1"])
    ]
    (rest,) = named(iter([batch.slice(1, 2)]))
    assert rest["name"].to_pylist() == [sent[1].name, sent[2].name]


def test_a_partition_without_records_has_no_names() -> None:
    (found,) = named(iter([columns([Record(None, b"x", [], 1)])[:0]]))
    assert found.num_rows == 0
