"""The header of a record batch: every fault of a client's batch is refused by name, nothing is decoded (reliability 7.2)."""

from struct import pack

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from helpers.batches import BATCH_BYTES_MAX, batch, headers, patched, placed, sized_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.batch import (
    HEADER_BYTES,
    Batches,
    BatchHeader,
    batch_size,
    iter_batches,
    read_header,
    stamp,
    validate_produce,
    whole_batch,
)

ONE = batch(b"one")
THREE = batch(b"a", b"b", b"c", timestamp=5_000, step_ms=10)


def refused(records: bytes, limit: int = BATCH_BYTES_MAX) -> tuple[ErrorCode, str]:
    with pytest.raises(TidelogError) as caught:
        validate_produce(records, batch_bytes_max=limit)
    return caught.value.code, caught.value.message


def test_header_is_what_the_codec_says() -> None:
    header = read_header(THREE)
    theirs = DefaultRecordBatch(THREE)
    assert header == BatchHeader(
        base_offset=theirs.base_offset,
        batch_length=len(THREE) - 12,
        leader_epoch=header.leader_epoch,
        magic=2,
        crc=theirs.crc,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=5_000,
        max_timestamp=5_020,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    assert (header.size_bytes, header.last_offset, header.end_offset, header.codec) == (len(THREE), 2, 3, 0)
    assert batch_size(THREE, 0) == len(THREE)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_several_batches_of_any_codec_are_accepted(codec: int) -> None:
    records = ONE + batch(b"x" * 500, b"y" * 500, codec=codec)
    checked = validate_produce(memoryview(records), batch_bytes_max=BATCH_BYTES_MAX)
    assert [h.record_count for h in checked.headers] == [1, 2]
    assert checked.record_count == 3


def test_stamp_gives_offsets_and_epoch_and_copies_no_record() -> None:
    records = THREE + ONE
    buffers = stamp(validate_produce(records, batch_bytes_max=BATCH_BYTES_MAX), base_offset=1_000, leader_epoch=7)
    assert [len(b) for b in buffers] == [16, len(THREE) - 16, 16, len(ONE) - 16]
    assert all(isinstance(b, memoryview) and b.obj is records for b in buffers[1::2])
    stamped = b"".join(buffers)
    assert [(h.base_offset, h.end_offset, h.leader_epoch) for h in headers(stamped)] == [
        (1000, 1003, 7),
        (1003, 1004, 7),
    ]
    assert [r.value for r in DefaultRecordBatch(stamped[: len(THREE)])] == [b"a", b"b", b"c"]
    assert DefaultRecordBatch(stamped[: len(THREE)]).validate_crc()


CORRUPT = {
    "magic 1": (patched(ONE, 16, ">b", 1), "magic: 1"),
    "magic 3": (patched(ONE, 16, ">b", 3), "magic: 3"),
    "length one short": (patched(ONE, 8, ">i", len(ONE) - 13), "crc"),
    "length one long": (patched(ONE, 8, ">i", len(ONE) - 11), "batch_length"),
    "length below a header": (patched(ONE, 8, ">i", 48), "batch_length: 48"),
    "length zero": (patched(ONE, 8, ">i", 0), "batch_length: 0"),
    "length negative": (patched(ONE, 8, ">i", -1), "batch_length: -1"),
    "length of 2 GiB": (patched(ONE, 8, ">i", 2**31 - 1), "batch_length"),
    "truncated in the records": (ONE[:-1], "batch_length"),
    "truncated in the header": (ONE[:60], "batch_length"),
    "one byte": (b"\0", "batch_length"),
    "garbage behind": (ONE + b"\xff" * 61, "magic"),
    "a few bytes behind": (ONE + b"abc", "batch_length: 3 bytes"),
    "second batch rotten": (ONE + patched(THREE, 70, ">b", 99, crc=False), f"crc: batch at position {len(ONE)}"),
    "crc field wrong": (patched(ONE, 17, ">I", 1, crc=False), "crc"),
    "a record's byte wrong": (patched(ONE, len(ONE) - 2, ">b", 7, crc=False), "crc"),
    "zeros": (bytes(100), "magic: 0"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_batch_is_refused_by_field(name: str) -> None:
    records, field = CORRUPT[name]
    code, message = refused(records, limit=2**31)
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert field in message


INVALID = {
    "nothing": (b"", "records: empty"),
    "base offset": (patched(ONE, 0, ">q", 5, crc=False), "base_offset: 5"),
    "base offset of the second": (ONE + patched(ONE, 0, ">q", 1, crc=False), "base_offset: 1"),
    "no records": (patched(patched(ONE, 57, ">i", 0), 23, ">i", 0), "record_count: 0"),
    "negative records": (patched(ONE, 57, ">i", -1), "record_count: -1"),
    "count lies": (patched(THREE, 57, ">i", 2), "last_offset_delta: 2"),
    "last offset delta lies": (patched(THREE, 23, ">i", 200), "last_offset_delta: 200"),
    "codec 5": (patched(ONE, 21, ">h", 5), "codec 5"),
    "codec 7": (patched(ONE, 21, ">h", 7), "codec 7"),
    "control": (patched(ONE, 21, ">h", 0x20), "control"),
    "transactional": (patched(ONE, 21, ">h", 0x10), "transactional"),
    "log append time": (patched(ONE, 21, ">h", 0x08), "log-append-time"),
    "unknown attribute": (patched(ONE, 21, ">h", 0x40), "bits 6 to 15"),
    "attribute sign bit": (patched(ONE, 21, ">h", -(2**15)), "bits 6 to 15"),
    "timestamp -2": (patched(ONE, 27, ">q", -2), "base_timestamp: -2"),
    "max before base": (patched(ONE, 35, ">q", 999), "max_timestamp: 999"),
    "producer id -2": (patched(ONE, 43, ">q", -2), "producer_id: -2"),
    "producer epoch missing": (patched(ONE, 43, ">q", 9), "producer_epoch: -1"),
    "sequence missing": (patched(ONE, 43, ">qh", 9, 0), "base_sequence: -1"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_batch_is_refused_by_field(name: str) -> None:
    records, field = INVALID[name]
    code, message = refused(records)
    assert code is ErrorCode.INVALID_RECORD
    assert field in message


def test_negative_last_offset_delta_is_corrupt() -> None:
    assert refused(patched(ONE, 23, ">i", -1))[0] is ErrorCode.CORRUPT_MESSAGE


def test_no_timestamp_and_a_producer_id_are_fine() -> None:
    for records in (patched(ONE, 27, ">qq", -1, -1), patched(ONE, 43, ">qhi", 9, 0, 0)):
        assert validate_produce(records, batch_bytes_max=BATCH_BYTES_MAX).record_count == 1


def test_size_limit_counts_each_batch_whole() -> None:
    batches = sized_batch(1_000) * 3
    assert validate_produce(batches, batch_bytes_max=1_000).record_count == 3
    code, message = refused(batches, limit=999)
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert "1000 bytes" in message and "999" in message
    assert refused(ONE + sized_batch(1_000), limit=999)[0] is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_inside_a_batch_is_only_bytes() -> None:
    outer = batch(ONE + THREE)
    assert validate_produce(outer, batch_bytes_max=BATCH_BYTES_MAX).record_count == 1


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    with pytest.raises(TidelogError):
        validate_produce(data, batch_bytes_max=BATCH_BYTES_MAX)


@given(at=st.integers(0, len(THREE) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen_or_outside_the_crc(at: int, bit: int) -> None:
    flipped = bytearray(THREE)
    flipped[at] ^= 1 << bit
    try:
        header = whole_batch(bytes(flipped))
    except TidelogError:
        return
    # Base offset and leader epoch are the broker's to set; their own checks are contiguity and order.
    assert at < 8 or 12 <= at < 16
    assert header.size_bytes == len(THREE)


@given(
    st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 2**40)
)
def test_stamped_batches_are_contiguous(groups: list[list[bytes]], start: int) -> None:
    records = b"".join(batch(*values) for values in groups)
    checked = validate_produce(records, batch_bytes_max=BATCH_BYTES_MAX)
    expected = start
    for _, header in iter_batches(b"".join(stamp(checked, start, 3))):
        assert (header.base_offset, header.leader_epoch) == (expected, 3)
        expected = header.end_offset
    assert expected == start + sum(map(len, groups)) == start + checked.record_count


def test_header_needs_61_bytes() -> None:
    assert HEADER_BYTES == 61
    with pytest.raises(ValueError, match="60 bytes left"):
        read_header(ONE[:60])
    assert Batches(ONE, headers(ONE)).record_count == 1
    assert placed(ONE, 9, 4)[:16] == pack(">qii", 9, len(ONE) - 12, 4)
