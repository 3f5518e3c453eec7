"""What lies inside a batch (reliability 7.2 "Batches"): every fault is named with the right code, nothing else is refused."""

import gzip
import tracemalloc

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from helpers.batches import BATCH_BYTES_MAX, batch, patched
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.batch import HEADER_BYTES, Codec
from tidelog.wire.compression import inflate
from tidelog.wire.records import produce_fault

INFLATED_MAX = 1 << 20
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD


def fault(records: bytes, inflated_bytes_max: int = INFLATED_MAX) -> TidelogError | None:
    return produce_fault(records, BATCH_BYTES_MAX, inflated_bytes_max)


def varint(value: int) -> bytes:
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def record(
    offset: int = 0, *, time: int = 0, key: bytes = b"", value: bytes = b"v", headers: bytes = b"\x00", longer: int = 0
) -> bytes:
    body = b"\x00" + varint(time) + varint(offset)
    body += (varint(len(key)) + key if key else varint(-1)) + varint(len(value)) + value + headers
    return varint(len(body) + longer) + body


def made(payload: bytes, count: int = 1, codec: int = 0, timestamp: int = 1_000, latest: int | None = None) -> bytes:
    """A batch around any payload, its header and checksum in order."""
    head = bytearray(batch(b"x", timestamp=timestamp)[:HEADER_BYTES]) + payload
    out = patched(bytes(head), 8, ">i", len(head) - 12, crc=False)
    out = patched(out, 21, ">hi", codec, count - 1, crc=False)
    out = patched(out, 35, ">q", timestamp if latest is None else latest, crc=False)
    return patched(out, 57, ">i", count)


PACK = {
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Codec.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def test_made_batches_are_fine() -> None:
    assert fault(made(record() + record(1), 2)) is None
    assert fault(made(record(key=b"k", headers=varint(1) + varint(1) + b"h" + varint(-1)))) is None


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("values", [(b"",), (b"a", b"b" * 5_000), tuple(b"%d" % i for i in range(300))])
def test_what_a_producer_makes_is_fine(codec: Codec, values: tuple[bytes, ...]) -> None:
    assert fault(batch(*values, codec=codec, step_ms=7) + batch(b"again", codec=codec)) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**13),
            st.none() | st.binary(max_size=30),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(list(Codec)),
)
def test_every_batch_of_the_clients_codec_is_fine(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec
) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    assert fault(bytes(builder.build())) is None


@pytest.mark.parametrize(
    ("records", "code", "names"),
    [
        (made(record(), 2), INVALID, "record_count: 2 of the batch at position 0, it holds 1"),
        (made(record() + record(1)), INVALID, "record_count: 1 of the batch at position 0"),
        (made(record() + record(5), 2), INVALID, "offset_delta: 5 of the batch at position 0, 1 is next"),
        (made(record() + record(0), 2), INVALID, "offset_delta: 0"),
        (made(record(time=-2_000)), INVALID, "timestamp_delta: record 0"),
        (made(record(time=500)), INVALID, "max_timestamp: 1000 of the batch at position 0, its records give 1500"),
        (made(record(), latest=9_999), INVALID, "max_timestamp: 9999"),
        (made(record(longer=1)), CORRUPT, "claims"),
        (made(record(longer=-1)), CORRUPT, "claims"),
        (made(varint(2**30) + b"x"), CORRUPT, "claims 1073741824 bytes"),
        (made(varint(-5) + b"x"), CORRUPT, "claims -5 bytes"),
        (made(b"\xff" * 11), CORRUPT, "a varint of more than 5 bytes"),
        (made(varint(14) + b"\x00" + b"\xff" * 13), CORRUPT, "a varint of more than 10 bytes"),
        (made(record()[:-1]), CORRUPT, "claims"),
        (made(record(headers=varint(-1))), CORRUPT, "claims -1 headers"),
        (made(record(headers=varint(1) + varint(-1) + varint(0))), CORRUPT, "a length of -1"),
        (made(record(headers=varint(1) + varint(2) + b"\xff\xfe" + varint(0))), CORRUPT, "no UTF-8"),
        (made(b""), INVALID, "it holds 0"),
        (made(record(value=batch(b"nested")) + b"tail"), INVALID, "4 bytes follow"),
        (batch(b"fine") + made(record(3)), INVALID, "of the batch at position"),
        (made(b"not compressed", codec=Codec.GZIP), CORRUPT, "damaged gzip"),
        (made(b"not compressed", codec=Codec.SNAPPY), CORRUPT, "damaged snappy"),
        (made(b"not compressed", codec=Codec.LZ4), CORRUPT, "damaged lz4"),
        (made(b"not compressed", codec=Codec.ZSTD), CORRUPT, "damaged zstd"),
        (made(gzip.compress(record()) * 2, codec=Codec.GZIP), CORRUPT, "bytes follow its end"),
        (made(gzip.compress(record())[:-4], codec=Codec.GZIP), CORRUPT, "ends too early"),
        (made(PACK[Codec.ZSTD](record())[:-3], codec=Codec.ZSTD), CORRUPT, "damaged zstd"),
        (made(PACK[Codec.LZ4](record())[:-3], codec=Codec.LZ4), CORRUPT, "damaged lz4"),
        (made(b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x99x", codec=Codec.SNAPPY), CORRUPT, "damaged snappy"),
        (made(b"\x82SNAPPY\x00" + bytes(8) + bytes(4), codec=Codec.SNAPPY), CORRUPT, "damaged snappy"),
        (b"", INVALID, "records: empty"),
    ],
)
def test_every_fault_inside_is_named(records: bytes, code: ErrorCode, names: str) -> None:
    found = fault(records)
    assert found is not None and found.code is code, found
    assert names in found.message


@pytest.mark.parametrize("codec", PACK)
def test_a_bomb_is_refused_by_its_size_and_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = PACK[codec](bytes(64 << 20))
    assert len(bomb) < 4 << 20
    tracemalloc.start()
    with pytest.raises(TidelogError) as caught:
        inflate(codec, bomb, INFLATED_MAX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.code, str(INFLATED_MAX) in caught.value.message) == (INVALID, True)
    assert peak < 4 * INFLATED_MAX + len(bomb)
    assert len(inflate(codec, bomb, 64 << 20)) == 64 << 20, "exactly at the limit"


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(TidelogError) as caught:
        inflate(7, b"x", 10)
    assert caught.value.code is INVALID
