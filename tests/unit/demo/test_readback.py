"""The comparison as a Spark task runs it, on Arrow batches of the source's schema."""

import pyarrow as pa
import pytest

from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Findings, Ledger, digest
from tidelog.client.records import Record, encode_batch
from tidelog.demo.readback import comparison, sequence_numbers
from tidelog.ids import TopicPartition
from tidelog.pipeline.columns import ColumnReader
from tidelog.wire.batch import stamp, validate_produce

TP = TopicPartition("t", 3)


def columns(records, base_offset=0):
    encoded = encode_batch(records)
    chunk = b"".join(bytes(part) for part in stamp(validate_produce(encoded, batch_bytes_max=1 << 20), base_offset, 1))
    end = base_offset + len(records)
    (batch,) = ColumnReader(TP, base_offset, end, include_headers=True, fail_on_gap=True).decode(chunk)
    return batch


def numbered(number, value=b"v"):
    return Record(b"k", value, [(SEQUENCE_HEADER, SEQUENCE.pack(number))], 1)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger", writable=True)
    for number in range(6):
        made.sent(digest(b"k", b"v"))
        made.acked(number, 3, number)
    made.close()
    return tmp_path / "ledger"


def compare(ledger, *batches):
    (row,) = pa.Table.from_batches(list(comparison(ledger)(iter(batches)))).to_pylist()
    assert row.pop("partition") == 3
    return Findings(**row)


def test_a_task_compares_its_batches_with_the_ledger(ledger):
    first, second = [numbered(n) for n in range(4)], [numbered(n) for n in range(4, 6)]
    assert compare(ledger, columns(first), columns(second, 4)) == Findings(read=6)


def test_a_task_sees_what_is_wrong(ledger):
    rows = [numbered(0), numbered(0), numbered(3), numbered(2, b"other"), Record(b"k", b"v", [], 1)]
    found = compare(ledger, columns(rows))
    assert found == Findings(read=5, lost=3, duplicated=1, out_of_order=1, altered=1, misplaced=2, foreign=1)


def test_a_task_without_records_reports_nothing(ledger):
    assert list(comparison(ledger)(iter([columns([numbered(0)])[:0]]))) == []


def test_sequence_numbers_are_read_only_from_the_one_header():
    seven = (SEQUENCE_HEADER, SEQUENCE.pack(7))
    shapes = [[seven], [], [("other", SEQUENCE.pack(7))], [seven, seven], [(SEQUENCE_HEADER, b"7")], [("seq", None)]]
    batch = columns([Record(None, b"", headers, 1) for headers in shapes])
    assert sequence_numbers(batch["headers"]).tolist() == [7, -1, -1, -1, -1, -1]
    assert sequence_numbers(batch["headers"].slice(1, 2)).tolist() == [-1, -1]
