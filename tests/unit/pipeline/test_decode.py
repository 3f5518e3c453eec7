"""Records as arrays: the same as record by record, and every contradiction is a bad batch that is named."""

import random

import pyarrow as pa
import pytest

from tidelog.client.errors import BadBatchError
from tidelog.client.records import Record, decode_batch, encode_batch, new_builder
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.pipeline import decode
from tidelog.pipeline.columns import ColumnReader
from tidelog.wire.batch import HEADER_BYTES, Codec, fillers, read_header, sealed, stamp, validate_produce
from tidelog.wire.records import check_records

TP = TopicPartition("t", 3)


def batch(base_offset, records, codec=Codec.NONE):
    checked = validate_produce(encode_batch(records, codec), batch_bytes_max=1 << 24)
    return b"".join(bytes(part) for part in stamp(checked, base_offset, 1))


def as_arrays(chunk, headers=True):
    """Rows as tuples; a chunk whose CRC nobody looks at again."""
    reader = ColumnReader(TP, 0, 1 << 40, include_headers=headers, fail_on_gap=True)
    rows = []
    for columns in reader.decode(chunk):
        columns.validate(full=True)
        at_us = columns["timestamp"].cast(pa.int64()).to_pylist()
        for row, us in zip(columns.drop_columns("timestamp").to_pylist(), at_us, strict=True):
            pairs = [(h["key"], h["value"]) for h in row["headers"]] if headers else None
            rows.append((row["offset"], us // 1000, row["timestampType"], row["key"], row["value"], pairs))
    return rows


def one_by_one(chunk, headers=True):
    rows, at = [], 0
    while at < len(chunk):
        header = read_header(chunk, at)
        for r in decode_batch(TP, chunk[at : at + header.size_bytes], header):
            pairs = list(r.headers) if headers else None
            rows.append((r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, pairs))
        at += header.size_bytes
    return rows


def random_records(rnd, count):
    def some(most):
        return None if rnd.random() < 0.1 else rnd.randbytes(rnd.choice((0, 1, 5, 100, 100, 100, most)))

    fixed = rnd.random() < 0.5
    return [
        Record(
            None if fixed else some(300),
            rnd.randbytes(100) if fixed else some(20_000),
            [] if fixed or rnd.random() < 0.5 else [(f"é{n}" * (n % 3), some(200)) for n in range(rnd.randrange(4))],
            1_700_000_000_000 + rnd.choice((0, 1, -1, 70, 9000, -(10**10))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_many_batches_of_any_kind_come_out_as_record_by_record(seed, monkeypatch):
    rnd = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(decode, "GROUP_BYTES", 20_000)
    codecs = [Codec.NONE] if seed % 2 else list(Codec)
    chunk, base = b"", 0
    for _ in range(8):
        records = random_records(rnd, rnd.choice((1, 2, 63, 64, 65, 300)))
        chunk += batch(base, records, rnd.choice(codecs))
        base += len(records)
    assert as_arrays(chunk) == one_by_one(chunk)
    assert as_arrays(chunk, headers=False) == one_by_one(chunk, headers=False)


def test_long_runs_and_a_change_of_size_in_their_middle():
    records = [Record(None, bytes(100 + (400 < n < 405)), [], n) for n in range(1000)]
    chunk = batch(0, records)
    assert as_arrays(chunk) == one_by_one(chunk)


def test_the_brokers_time_stands_for_every_record():
    chunk = bytearray(batch(0, [Record(b"k", b"v", [], 5), Record(b"k", b"v", [], 9)]))
    chunk[22] |= 0x08
    assert [row[1:3] for row in as_arrays(bytes(chunk))] == [(9, 1), (9, 1)]
    assert as_arrays(bytes(chunk)) == one_by_one(bytes(chunk))


@pytest.mark.parametrize("times", [(2**62, 2**62 + 1), (-1, -1), (0, 2**62)])
def test_a_time_that_no_timestamp_can_hold_becomes_the_nearest(times):
    (first, second) = as_arrays(batch(0, [Record(None, None, [], at) for at in times]))
    latest = (2**63 - 1) // 1000
    assert (first[1], second[1]) == tuple(min(at, latest) for at in times)


def is_sound(chunk, at):
    """What the broker's own check of records says (`validate=full`); it also looks at times, which are no matter here."""
    try:
        check_records(bytes(chunk[at + HEADER_BYTES :]), read_header(chunk, at), 0)
    except TidelogError as error:
        return error.message.startswith(("timestamp_delta", "max_timestamp"))
    return True


def test_a_damaged_byte_is_a_bad_batch_exactly_where_the_brokers_check_finds_one():
    rnd = random.Random(7)
    refused = 0
    for n in range(400):
        if n % 40 == 0:
            # Little in it but lengths and counts.
            pairs = [("é", b"\x01"), ("", None)]
            small = [Record(b"k" * (i % 2), None, pairs[: rnd.randrange(3)], rnd.randrange(300)) for i in range(20)]
            good = batch(0, small[:2]) + batch(2, small[2:])
            second = read_header(good).size_bytes
        chunk = bytearray(good)
        chunk[rnd.randrange(second + HEADER_BYTES, min(second + HEADER_BYTES + 400, len(good)))] = rnd.randrange(256)
        if is_sound(bytes(chunk), second):
            assert len(as_arrays(bytes(chunk))) == len(small)
            continue
        refused += 1
        with pytest.raises(BadBatchError) as raised:
            as_arrays(bytes(chunk))
        assert (raised.value.offset, raised.value.next_offset) == (2, len(small))
    assert 40 < refused < 360


def damaged(at, *values):
    """The bytes of the only record of the second batch, from `at` on, become `values`."""
    first = batch(0, [Record(b"k", b"v", [], 1)])
    chunk = bytearray(first + batch(1, [Record(b"key", b"value", [("h", b"x")], 1)]))
    start = len(first) + HEADER_BYTES + at
    chunk[start : start + len(values)] = bytes(values)
    return bytes(chunk)


@pytest.mark.parametrize(
    "chunk",
    [
        damaged(0, 0x01),  # a negative length
        damaged(0, 0x25),  # the right length, but negative
        damaged(0, 0x7E),  # a length beyond the batch, or into the next record
        damaged(0, 0x02),  # too short
        damaged(3, 0x02),  # offset delta 1 where 0 is next
        damaged(4, 0x03),  # key length -2
        damaged(4, 0x7E),  # key longer than the record
        damaged(14, 0x00),  # no headers, but bytes follow
        damaged(14, 0x01),  # -1 headers
        damaged(14, 0x7E),  # 63 headers in 4 bytes
        damaged(15, 0x01, 0x04),  # a header key that is null
        damaged(17, 0x04),  # a header value that is too long
        damaged(17, 0x00),  # a byte is left
        damaged(16, 0xFF),  # a header key that is no UTF-8
        damaged(0, *[0xFF] * 19),  # a number without end
    ],
    ids=range(15),
)
def test_each_contradiction_names_its_batch(chunk):
    with pytest.raises(BadBatchError, match=r"t-3: bad batch at offset 1: .*seek to 2 to skip it"):
        as_arrays(chunk)


@pytest.mark.parametrize(
    "at, value, complaint",
    [
        (57, (100).to_bytes(4), "100 records for 2 offsets"),
        (57, (1).to_bytes(4), "1 records do not fill"),
        (23, (0).to_bytes(4), "2 records for 1 offsets"),
    ],
)
def test_a_count_that_is_not_that_of_the_offsets_is_refused(at, value, complaint):
    chunk = bytearray(batch(0, [Record(b"k", b"v", [], 1)] * 2))
    chunk[at : at + len(value)] = value
    with pytest.raises(BadBatchError, match=complaint):
        as_arrays(bytes(chunk))


def compacted(offsets, last_offset, base_offset=0):
    """One batch from which compaction has removed all but these offsets."""
    builder = new_builder(Codec.NONE, 1 << 20)
    for offset in offsets:
        builder.append(offset - base_offset, 1_000 + offset, b"k%d" % offset, b"v", [])
    header = read_header(whole := bytes(builder.build()))
    placed = header._replace(base_offset=base_offset, last_offset_delta=last_offset - base_offset, leader_epoch=1)
    return sealed(placed, whole[HEADER_BYTES:])


def test_gaps_that_compaction_has_left_are_none_in_the_log():
    chunk = b"".join(
        (
            compacted([1, 4], 5),
            *fillers(6, 9, 1),
            compacted([9, 10], 10, 9),
            *fillers(11, 20, 2),
            compacted([22], 24, 20),
        )
    )
    rows = as_arrays(chunk)
    assert [row[0] for row in rows] == [1, 4, 9, 10, 22]
    assert rows == one_by_one(chunk)


@pytest.mark.parametrize(
    "offsets, last_offset", [([1, 5], 4), ([2, 2], 4), ([3, 1], 4)], ids=["beyond", "twice", "back"]
)
def test_offsets_of_a_compacted_batch_grow_within_its_range(offsets, last_offset):
    for reader in (as_arrays, one_by_one):
        with pytest.raises(BadBatchError, match="bad batch at offset 0"):
            reader(compacted(offsets, last_offset))


def test_a_count_that_cannot_be_there_costs_nothing():
    chunk = bytearray(batch(0, [Record(b"k", b"v", [], 1)]))
    chunk[57:61] = (2**31 - 1).to_bytes(4)
    chunk[23:27] = (2**31 - 2).to_bytes(4)
    with pytest.raises(BadBatchError, match="2147483647 records in 9 bytes"):
        as_arrays(bytes(chunk))


def test_a_compressed_body_that_does_not_inflate_is_refused():
    chunk = bytearray(batch(0, [Record(b"k", b"v" * 100, [], 1)], Codec.ZSTD))
    chunk[HEADER_BYTES] ^= 0xFF
    with pytest.raises(BadBatchError, match="t-3: bad batch at offset 0"):
        as_arrays(bytes(chunk))
