"""The header of a record batch: every fault of a client's batch is refused by name, nothing is decoded (reliability 7.2)."""

from struct import pack

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from helpers.bad_batches import HEADER_FAULTS, ONE, THREE, Case
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


@pytest.mark.parametrize("case", HEADER_FAULTS, ids=str)
def test_what_a_header_shows_is_refused_by_field(case: Case) -> None:
    assert case.header is not None
    code, message = refused(case.records)
    assert code is case.header[0] and case.header[1] in message


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
