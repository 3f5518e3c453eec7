"""What a client may send instead of a record batch, item by item of the fuzz list (reliability 7.2, "Batches").

`header` and `full` are the answers of a topic with that `validate`: an error code with words of its message, or None where
the batch is appended. What `header` lets in and `full` refuses is for the reader to report (design section 3, Validation).
"""

import gzip
import random
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam

from helpers.batches import batch, patched
from tidelog.errors import ErrorCode
from tidelog.wire.batch import Codec

Refusal = tuple[ErrorCode, str]

CORRUPT, INVALID, TOO_LARGE = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE
HEADER_BYTES: Final = 61
"""As the format has it, whatever the code says."""
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
BOMB_BYTES: Final = 16 << 20
ONE = batch(b"one")
THREE = batch(b"a", b"b", b"c", timestamp=5_000, step_ms=10)
LARGE = batch(b"x" * 1_048_588)


class Case(NamedTuple):
    item: str
    """Of the list."""
    what: str
    records: bytes
    header: Refusal | None
    full: Refusal | None
    reported: bool = False
    """Whether a reader of the appended batch is told of it, instead of getting records."""

    def __str__(self) -> str:
        return f"{self.item}: {self.what}"


def varint(value: int) -> bytes:
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def record(
    offset: int = 0,
    *,
    time: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: bytes = b"\x00",
    longer: int = 0,
) -> bytes:
    """`longer`: by how much its length lies."""
    body = b"\x00" + varint(time) + varint(offset)
    body += b"".join(varint(-1) if part is None else varint(len(part)) + part for part in (key, value)) + headers
    return varint(len(body) + longer) + body


def made(payload: bytes, count: int = 1, codec: int = 0, timestamp: int = 1_000, latest: int | None = None) -> bytes:
    """A batch around any payload, its header and checksum in order."""
    head = bytearray(batch(b"x", timestamp=timestamp)[:HEADER_BYTES]) + payload
    out = patched(bytes(head), 8, ">i", len(head) - 12, crc=False)
    out = patched(out, 21, ">hi", codec, count - 1, crc=False)
    out = patched(out, 35, ">q", timestamp if latest is None else latest, crc=False)
    return patched(out, 57, ">i", count)


PACK: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Codec.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def bomb(codec: Codec, size_bytes: int = BOMB_BYTES) -> bytes:
    """One record of zeros: 20 (snappy) to thousands of times as large as what is sent."""
    return made(PACK[codec](record(value=bytes(size_bytes))), codec=codec)


def _packed(codec: Codec, change: Callable[[bytes], bytes]) -> bytes:
    return made(change(PACK[codec](record())), codec=codec)


def _always(item: str, what: str, records: bytes, code: ErrorCode, words: str) -> Case:
    return Case(item, what, records, (code, words), (code, words))


def _inside(item: str, what: str, records: bytes, code: ErrorCode, words: str, *, reported: bool = True) -> Case:
    return Case(item, what, records, None, (code, words), reported)


def _fine(item: str, what: str, records: bytes) -> Case:
    return Case(item, what, records, None, None)


HEADER_FAULTS: Final = (
    _always("empty", "no bytes", b"", INVALID, "records: empty"),
    _always("empty", "one byte", b"\0", CORRUPT, "batch_length: 1 bytes"),
    _always("empty", "zeros", bytes(100), CORRUPT, "magic: 0"),
    _always("empty", "noise", random.Random(7).randbytes(500), CORRUPT, "magic"),
    _always(
        "zero records", "in the header", patched(patched(ONE, 57, ">i", 0), 23, ">i", 0), INVALID, "record_count: 0"
    ),
    _always("zero records", "fewer than none", patched(ONE, 57, ">i", -1), INVALID, "record_count: -1"),
    _always("wrong CRC", "of the field", patched(ONE, 17, ">I", 0xBAD, crc=False), CORRUPT, "crc"),
    _always("wrong CRC", "of a record's byte", ONE[:-1] + b"?", CORRUPT, "crc"),
    _always(
        "wrong CRC", "of the second", ONE + patched(THREE, 70, ">b", 99, crc=False), CORRUPT, f"at position {len(ONE)}"
    ),
    _always("wrong length", "one short", patched(ONE, 8, ">i", len(ONE) - 13), CORRUPT, "crc"),
    _always(
        "wrong length", "one long", patched(ONE, 8, ">i", len(ONE) - 11), CORRUPT, f"batch_length: {len(ONE) - 11}"
    ),
    _always("wrong length", "below a header", patched(ONE, 8, ">i", 48), CORRUPT, "batch_length: 48"),
    _always("wrong length", "0", patched(ONE, 8, ">i", 0), CORRUPT, "batch_length: 0"),
    _always("wrong length", "-1", patched(ONE, 8, ">i", -1), CORRUPT, "batch_length: -1"),
    _always("wrong length", "2^31-1", patched(ONE, 8, ">i", INT32_MAX), CORRUPT, "batch_length: 2147483647"),
    _always("wrong length", "over the limit", LARGE, TOO_LARGE, "max.message.bytes is 1048588"),
    _always("wrong length", "the second over the limit", ONE + LARGE, TOO_LARGE, "max.message.bytes is 1048588"),
    _always("base offset", "5", patched(ONE, 0, ">q", 5, crc=False), INVALID, "base_offset: 5"),
    _always("base offset", "-1", patched(ONE, 0, ">q", -1, crc=False), INVALID, "base_offset: -1"),
    _always("base offset", "2^63-1", patched(ONE, 0, ">q", INT64_MAX, crc=False), INVALID, "base_offset: 9223372036"),
    _always("base offset", "of the second", ONE + patched(ONE, 0, ">q", 1, crc=False), INVALID, "base_offset: 1"),
    _always("last offset delta", "too large", patched(THREE, 23, ">i", 200), INVALID, "last_offset_delta: 200"),
    _always("last offset delta", "too small", patched(THREE, 23, ">i", 1), INVALID, "last_offset_delta: 1"),
    _always("last offset delta", "-1", patched(ONE, 23, ">i", -1), CORRUPT, "last_offset_delta: -1"),
    _always("last offset delta", "2^31-1", patched(ONE, 23, ">i", INT32_MAX), INVALID, "last_offset_delta: 2147483647"),
    _always("last offset delta", "for its count", patched(THREE, 57, ">i", 2), INVALID, "2 records need 1"),
    _always("timestamps", "base below none", patched(ONE, 27, ">q", -2), INVALID, "base_timestamp: -2"),
    _always("timestamps", "max before base", patched(ONE, 35, ">q", 999), INVALID, "max_timestamp: 999"),
    *(_always("unknown magic", str(n), patched(ONE, 16, ">b", n), CORRUPT, f"magic: {n}") for n in (-1, 0, 1, 3, 127)),
    *(_always("unknown codec", str(n), patched(ONE, 21, ">h", n), INVALID, f"codec {n}") for n in (5, 6, 7)),
    _always("control flag", "control", patched(ONE, 21, ">h", 0x20), INVALID, "control flag"),
    _always("control flag", "transactional", patched(ONE, 21, ">h", 0x10), INVALID, "transactional flag"),
    _always("control flag", "log-append-time", patched(ONE, 21, ">h", 0x08), INVALID, "log-append-time flag"),
    _always("control flag", "bit 6", patched(ONE, 21, ">h", 0x40), INVALID, "bits 6 to 15"),
    _always("control flag", "bit 15", patched(ONE, 21, ">h", -(2**15)), INVALID, "bits 6 to 15"),
    _always("producer", "id -2", patched(ONE, 43, ">q", -2), INVALID, "producer_id: -2"),
    _always("producer", "epoch -1", patched(ONE, 43, ">qhi", 7, -1, 0), INVALID, "producer_epoch: -1"),
    _always("producer", "sequence -1", patched(ONE, 43, ">qhi", 7, 0, -1), INVALID, "base_sequence: -1"),
    _always("producer", "two batches", patched(ONE, 43, ">qhi", 7, 0, 0) + ONE, INVALID, "2 batches"),
    _always("truncated", "in the records", ONE[:-1], CORRUPT, "batch_length"),
    _always("truncated", "in the header", ONE[:60], CORRUPT, "60 bytes at position 0"),
    _always("truncated", "the second", ONE + ONE[:-1], CORRUPT, "batch_length"),
    _always("concatenated", "with a few bytes", ONE + b"abc", CORRUPT, "batch_length: 3 bytes"),
    _always("concatenated", "with noise", ONE + b"\xff" * 61, CORRUPT, "magic"),
)
"""The header shows them, so they are refused whatever the topic says."""

INNER_FAULTS: Final = (
    _inside("zero records", "in the payload", made(b""), INVALID, "it holds 0"),
    _inside(
        "record count",
        "too large",
        made(record(), 2),
        INVALID,
        "record_count: 2 of the batch at position 0, it holds 1",
    ),
    _inside(
        "record count", "too small", made(record() + record(1)), INVALID, "record_count: 1 of the batch at position 0"
    ),
    _inside("record count", "2^31-1", made(record(), INT32_MAX), TOO_LARGE, "they hold 2147483647 records, at most"),
    _inside(
        "inner offsets",
        "a gap",
        made(record() + record(5), 2),
        INVALID,
        "offset_delta: 5 of the batch at position 0, 1 is",
    ),
    _inside("inner offsets", "twice the same", made(record() + record(0), 2), INVALID, "offset_delta: 0"),
    _inside("inner offsets", "backwards", made(record(1) + record(0), 2), INVALID, "offset_delta: 1"),
    _inside("inner offsets", "negative", made(record(-1)), INVALID, "offset_delta: -1"),
    _inside("inner offsets", "in the second batch", batch(b"fine") + made(record(3)), INVALID, "offset_delta: 3"),
    _inside(
        "timestamps",
        "a negative delta below none",
        made(record(time=-2_000)),
        INVALID,
        "timestamp_delta: record 0",
        reported=False,
    ),
    _inside(
        "timestamps",
        "a delta beyond the maximum",
        made(record(time=500)),
        INVALID,
        "its records give 1500",
        reported=False,
    ),
    _inside(
        "timestamps",
        "a maximum that nobody has",
        made(record(), latest=9_999),
        INVALID,
        "max_timestamp: 9999",
        reported=False,
    ),
    _inside("record length", "one long", made(record(longer=1)), CORRUPT, "claims"),
    _inside("record length", "one short", made(record(longer=-1)), CORRUPT, "claims"),
    _inside("record length", "a gigabyte", made(varint(2**30) + b"x"), CORRUPT, "claims 1073741824 bytes"),
    _inside("record length", "negative", made(varint(-5) + b"x"), CORRUPT, "claims -5 bytes"),
    _inside("record length", "cut off", made(record()[:-1]), CORRUPT, "claims"),
    _inside("varint", "of a length", made(b"\xff" * 11), CORRUPT, "a varint of more than 5 bytes"),
    _inside(
        "varint", "of a timestamp", made(varint(14) + b"\x00" + b"\xff" * 13), CORRUPT, "a varint of more than 10 bytes"
    ),
    _inside("header count", "-1", made(record(headers=varint(-1))), CORRUPT, "claims -1 headers"),
    _inside("header count", "one too many", made(record(headers=varint(1))), CORRUPT, "records: "),
    _inside("header count", "2^31-1", made(record(headers=varint(INT32_MAX))), CORRUPT, "records: "),
    _inside(
        "null or empty",
        "a header's key is null",
        made(record(headers=varint(1) + varint(-1) + varint(0))),
        CORRUPT,
        "a length of -1",
    ),
    _inside(
        "null or empty",
        "a value of length -2",
        made(record(value=None).replace(varint(-1) * 2, varint(-1) + varint(-2))),
        CORRUPT,
        "a length of -2",
        reported=False,
    ),
    _inside(
        "null or empty",
        "a header's key is no UTF-8",
        made(record(headers=varint(1) + varint(2) + b"\xff\xfe" + varint(0))),
        CORRUPT,
        "no UTF-8",
    ),
    _inside(
        "batch inside batch", "behind the record", made(record(value=ONE) + ONE), INVALID, f"{len(ONE)} bytes follow"
    ),
    _inside("batch inside batch", "in place of the records", made(ONE), CORRUPT, "records: "),
    *(
        _inside("not compressed", c.name, made(b"not compressed", codec=c), CORRUPT, f"damaged {c.name.lower()}")
        for c in PACK
    ),
    *(
        _inside("truncated frame", c.name, _packed(c, lambda data: data[:-3]), CORRUPT, f"damaged {c.name.lower()}")
        for c in PACK
    ),
    *(
        _inside("concatenated frames", c.name, _packed(c, lambda data: data * 2), CORRUPT, "records: ")
        for c in (Codec.GZIP, Codec.SNAPPY)
    ),
    *(
        _inside(
            "concatenated frames", c.name, _packed(c, lambda data: data * 2), INVALID, "8 bytes follow the last record"
        )
        for c in (Codec.LZ4, Codec.ZSTD)
    ),
    *(
        _inside("nested compression", c.name, made(PACK[c](PACK[c](record())), codec=c), CORRUPT, "records: ")
        for c in PACK
    ),
    _inside(
        "truncated frame",
        "a block of snappy",
        made(b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x99x", codec=Codec.SNAPPY),
        CORRUPT,
        "damaged snappy",
    ),
    _inside(
        "truncated frame",
        "an empty block of snappy",
        made(b"\x82SNAPPY\x00" + bytes(12), codec=Codec.SNAPPY),
        CORRUPT,
        "damaged snappy",
    ),
    *(_inside("bomb", c.name, bomb(c), INVALID, "when decompressed, which is the limit") for c in PACK),
)
"""Nothing of them shows in the header, and the checksum fits.

A reader is not told of what only full validation can mean: a timestamp is whatever the producer says, and a negative length
is null.
"""

NO_FAULTS: Final = (
    _fine("timestamps", "none", patched(ONE, 27, ">qq", -1, -1)),
    _fine("timestamps", "of 1970", batch(b"x", timestamp=0)),
    _fine("timestamps", "in 292 million years", batch(b"x", timestamp=INT64_MAX)),
    _fine("timestamps", "backwards", made(record(time=0) + record(1, time=-900), 2)),
    _fine("null or empty", "nothing", made(record(key=None, value=None))),
    _fine("null or empty", "empty", made(record(key=b"", value=b""))),
    _fine("null or empty", "a header's value is null", made(record(headers=varint(1) + varint(1) + b"h" + varint(-1)))),
    _fine("batch inside batch", "as a value", batch(ONE + THREE)),
    _fine("nested compression", "as a value", batch(gzip.compress(b"x" * 500), codec=Codec.ZSTD)),
    _fine("concatenated", "two batches", ONE + THREE),
)
"""Odd, and as good as any: they come back as they were sent."""

CASES: Final = (*HEADER_FAULTS, *INNER_FAULTS, *NO_FAULTS)
