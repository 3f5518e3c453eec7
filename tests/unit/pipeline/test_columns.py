"""Record batches become Arrow columns; an offset that is missing is data loss, never a silent gap."""

import pytest

from tidelog.client.records import Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.pipeline.columns import ColumnReader
from tidelog.pipeline.offsets import DataLossError
from tidelog.wire.batch import Codec, stamp, validate_produce

TP = TopicPartition("t", 3)
RECORDS = [
    Record(b"k0", b"v0", [("h", b"1"), ("h", None)], 1_700_000_000_123),
    Record(None, b"", [], 1_700_000_000_124),
    Record(b"", None, [("é", b"\xff")], 1_700_000_000_125),
    Record(b"k3", b"\x00\xff", [], 1_700_000_000_126),
]


def batch(base_offset, records, codec=Codec.NONE):
    encoded = encode_batch(records, codec)
    return b"".join(bytes(part) for part in stamp(validate_produce(encoded, batch_bytes_max=1 << 20), base_offset, 1))


def rows_of(columns, chunk):
    return [row for part in columns.decode(chunk) for row in part.to_pylist()]


def offsets_of(columns, chunk):
    return [row["offset"] for row in rows_of(columns, chunk)]


def reader(start, end, headers=True, fail=True):
    return ColumnReader(TP, start, end, include_headers=headers, fail_on_gap=fail)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_field_arrives(codec):
    rows = rows_of(reader(10, 14), batch(10, RECORDS, codec))
    assert [r["key"] for r in rows] == [b"k0", None, b"", b"k3"]
    assert [r["value"] for r in rows] == [b"v0", b"", None, b"\x00\xff"]
    assert [r["offset"] for r in rows] == [10, 11, 12, 13]
    assert {(r["topic"], r["partition"], r["timestampType"]) for r in rows} == {("t", 3, 0)}
    assert [int(r["timestamp"].timestamp() * 1000 + 0.5) for r in rows] == [r.timestamp_ms for r in RECORDS]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert [r["headers"] for r in rows[1:]] == [[], [{"key": "é", "value": b"\xff"}], []]


def test_records_outside_the_range_are_dropped():
    chunk = batch(10, RECORDS) + batch(14, RECORDS)
    columns = reader(12, 15)
    assert offsets_of(columns, chunk) == [12, 13, 14]
    columns.finish()


def test_chunks_go_on_where_the_last_one_ended():
    columns = reader(0, 8, headers=False)
    assert offsets_of(columns, batch(0, RECORDS)) == [0, 1, 2, 3]
    assert offsets_of(columns, batch(4, RECORDS)) == [4, 5, 6, 7]
    columns.finish()


def test_a_gap_is_data_loss():
    columns = reader(0, 9)
    assert len(rows_of(columns, batch(0, RECORDS))) == 4
    with pytest.raises(DataLossError, match="t-3: offsets 4 to 5 are missing"):
        rows_of(columns, batch(5, RECORDS))


def test_an_early_end_is_data_loss():
    columns = reader(0, 9)
    assert len(rows_of(columns, batch(0, RECORDS))) == 4
    with pytest.raises(DataLossError, match="t-3: offsets 4 to 9 are missing"):
        columns.finish()


def test_without_fail_on_data_loss_a_gap_is_read_over():
    columns = reader(0, 9, fail=False)
    assert len(rows_of(columns, batch(0, RECORDS))) == 4
    columns.skip_to(5)
    assert offsets_of(columns, batch(5, RECORDS)) == [5, 6, 7, 8]
    columns.finish()
