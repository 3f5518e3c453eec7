"""The header of a record batch (Kafka's RecordBatch v2, magic 2), read and patched without touching the records.

A batch is written, replicated and fetched as the bytes that the producer made. The broker reads the 61-byte header,
checks the CRC-32C, and sets two fields that Kafka put outside the CRC for this: base offset and leader epoch
(performance 4.1).
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.errors import ErrorCode, TidelogError

Buffer = bytes | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
PREFIX_BYTES: Final = 12
"""Base offset and batch length; the length counts what follows them."""
CRC_FROM: Final = 21
HEAD_BYTES: Final = 16
"""The part that a leader replaces: base offset, batch length, leader epoch."""
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_CRC: Final = -1
"""Stands for a CRC that is not known."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_HEAD: Final = Struct(">qii")
_PREFIX: Final = Struct(">qi")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
_REWRITTEN: Final = 0x4000
"""Kafka leaves the bit free, and no reader looks at it."""
_CHANGED: Final = _LOG_APPEND_TIME | _DELETE_HORIZON | _REWRITTEN
_INT32_MAX: Final = 2**31 - 1


class Codec(IntEnum):
    """How the records of a batch are compressed; the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The fixed fields in wire order. Offsets and timestamps (ms) are those of the first and the last record."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """The offset after the last record (exclusive end)."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK

    def with_codec(self, codec: Codec) -> "BatchHeader":
        return self._replace(attributes=self.attributes & ~_CODEC_MASK | codec)

    @property
    def sent_crc(self) -> int:
        """CRC of the batch as its producer sent it; NO_CRC if it has been changed since, but for its offset and its epoch."""
        changed = self.attributes & _CHANGED or self.record_count != self.last_offset_delta + 1
        return NO_CRC if changed else self.crc

    @property
    def is_append_time(self) -> bool:
        """The leader's clock has given all records `max_timestamp`, whatever is written in them."""
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on its tombstones may be dropped: the log cleaner keeps that in the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def is_filler(self) -> bool:
        """It holds nothing, and says of nothing but offsets and their epoch."""
        return self.record_count == 0 and self.producer_id == NO_PRODUCER_ID


class Batches(NamedTuple):
    """Bytes whose every batch header has been checked, and those headers in order; at least one."""

    records: Buffer
    headers: Sequence[BatchHeader]
    sent_crc: int = NO_CRC
    """CRC of the one batch that an idempotent producer sent, if `records` are other bytes than it sent."""

    @property
    def record_count(self) -> int:
        """What the leader's log grows by."""
        return sum([h.last_offset_delta + 1 for h in self.headers])


def corrupt(message: str) -> TidelogError:
    return TidelogError(message, ErrorCode.CORRUPT_MESSAGE)


def invalid(message: str) -> TidelogError:
    return TidelogError(message, ErrorCode.INVALID_RECORD)


def read_header(records: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`, unchecked; ValueError when fewer than 61 bytes are left."""
    if len(records) - at < HEADER_BYTES:
        raise ValueError(f"{len(records) - at} bytes left, a batch header has {HEADER_BYTES}")
    return tuple.__new__(BatchHeader, _HEADER.unpack_from(records, at))  # as _make, which would count the fields again


def whole_batch(records: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at` of a batch that lies whole in `records`, CRC checked.

    CORRUPT_MESSAGE names the field: magic, batch_length, crc or the counts, all of which a log relies on to find its way.
    """
    left = len(records) - at
    if left < HEADER_BYTES:
        raise corrupt(f"batch_length: {left} bytes at position {at}, a batch header has {HEADER_BYTES}")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(records, at))
    if header.magic != MAGIC:
        raise corrupt(f"magic: {header.magic} at position {at}, only record batch version {MAGIC} is served")
    if not HEADER_BYTES - PREFIX_BYTES <= header.batch_length <= left - PREFIX_BYTES:
        raise corrupt(
            f"batch_length: {header.batch_length} at position {at}, must be from {HEADER_BYTES - PREFIX_BYTES} "
            f"to the {left - PREFIX_BYTES} bytes that follow it"
        )
    computed = crc32c(memoryview(records)[at + CRC_FROM : at + header.batch_length + PREFIX_BYTES])
    if computed != header.crc:
        raise corrupt(f"crc: batch at position {at} carries {header.crc:#010x}, its bytes give {computed:#010x}")
    if header.last_offset_delta < 0:
        raise corrupt(f"last_offset_delta: {header.last_offset_delta} at position {at}, must not be negative")
    return header


def iter_batches(records: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch, each as `whole_batch` checks it; trailing bytes are an error too."""
    at = 0
    while at < len(records):
        header = whole_batch(records, at)
        yield at, header
        at += header.batch_length + PREFIX_BYTES


def validate_produce(records: Buffer, *, batch_bytes_max: int, sent: Buffer | None = None) -> Batches:
    """Returns the batches that a client sent, if a leader may append them. `sent`: the bytes of the client, if the leader has
    changed them into `records`.

    Every fault that the header shows is refused (CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE) with the field and
    the limit; nothing inside a batch is decoded.
    """
    if not records:
        raise invalid("records: empty, at least one batch is needed")
    if batch_bytes_max < len(records) >= HEADER_BYTES and (first := read_header(records)).size_bytes <= len(records):
        _check_size(first, batch_bytes_max)  # before the CRC, so that an oversized batch costs nothing
    headers = []
    for at, header in iter_batches(records):
        _check_size(header, batch_bytes_max)
        _check_client_header(header, at)
        headers.append(header)
    if len(headers) > 1 and any(header.producer_id != NO_PRODUCER_ID for header in headers):
        # Or one of them might be a repetition and the next one not: there is one answer, with one offset (KIP-98).
        raise invalid(f"records: {len(headers)} batches; an idempotent producer sends one for each partition")
    if sent is None or sent is records or headers[0].producer_id == NO_PRODUCER_ID:
        return Batches(records, headers)
    return Batches(records, headers, _CRC.unpack_from(sent, _CRC_AT)[0])


def _check_size(header: BatchHeader, batch_bytes_max: int) -> None:
    if header.magic == MAGIC and header.size_bytes > batch_bytes_max:
        raise TidelogError(
            f"records: a batch of {header.size_bytes} bytes, max.message.bytes is {batch_bytes_max}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )


def _check_client_header(header: BatchHeader, at: int) -> None:
    """Rules for a client's batch beyond those for any batch; the leader alone gives offsets and epochs."""
    where = f"of the batch at position {at}"
    if header.base_offset != 0:
        raise invalid(f"base_offset: {header.base_offset} {where}, a client must send 0")
    if header.record_count < 1:
        raise invalid(f"record_count: {header.record_count} {where}, must be at least 1")
    if header.record_count - 1 != header.last_offset_delta:
        raise invalid(
            f"last_offset_delta: {header.last_offset_delta} {where}, {header.record_count} records need "
            f"{header.record_count - 1}"
        )
    if header.codec not in Codec._value2member_map_:
        raise invalid(f"attributes: codec {header.codec} {where}, known are 0 to {max(Codec)}")
    if header.attributes & _CONTROL:
        raise invalid(f"attributes: control flag {where}, clients may not write control records")
    if header.attributes & _TRANSACTIONAL:
        raise invalid(f"attributes: transactional flag {where}, transactions are not supported")
    if header.attributes & _LOG_APPEND_TIME:
        raise invalid(f"attributes: log-append-time flag {where}, only a broker may set it")
    if header.attributes & ~_CODEC_MASK:
        raise invalid(f"attributes: {header.attributes:#06x} {where}, bits 6 to 15 must be 0")
    if header.base_timestamp < NO_TIMESTAMP:
        raise invalid(f"base_timestamp: {header.base_timestamp} {where}, must be -1 (none) or more")
    if header.max_timestamp < header.base_timestamp:
        raise invalid(
            f"max_timestamp: {header.max_timestamp} {where}, is before base_timestamp {header.base_timestamp}"
        )
    _check_producer(header, where)


def _check_producer(header: BatchHeader, where: str) -> None:
    if header.producer_id < NO_PRODUCER_ID:
        raise invalid(f"producer_id: {header.producer_id} {where}, must be -1 (none) or more")
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_epoch < 0:
            raise invalid(f"producer_epoch: {header.producer_epoch} {where}, must not be negative with a producer id")
        if header.base_sequence < 0:
            raise invalid(f"base_sequence: {header.base_sequence} {where}, must not be negative with a producer id")


def rewritten(batches: Batches, append_time_ms: int | None = None) -> Batches:
    """The same batches, which say from now on that they are not what their producer sent; the records have the
    `append_time_ms`, if there is one."""
    out, headers, at = bytearray(batches.records), [], 0
    for header in batches.headers:
        if append_time_ms is None:
            changed = header._replace(attributes=header.attributes | _REWRITTEN)
        else:
            changed = header._replace(
                attributes=header.attributes | _REWRITTEN | _LOG_APPEND_TIME, max_timestamp=append_time_ms
            )
        headers.append(_restamp(out, at, changed))
        at += header.size_bytes
    return batches._replace(records=bytes(out), headers=headers)


def _restamp(out: bytearray, at: int, header: BatchHeader) -> BatchHeader:
    """Puts another header before the records at `at`, with the CRC that fits."""
    _HEADER.pack_into(out, at, *header)
    with memoryview(out) as view:
        crc = crc32c(view[at + CRC_FROM : at + header.size_bytes])
    _CRC.pack_into(out, at + _CRC_AT, crc)
    return header._replace(crc=crc)


def stamp(batches: Batches, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """The same batches with consecutive offsets from `base_offset`, as buffers for one writev; no record is copied."""
    view = memoryview(batches.records)
    out: list[Buffer] = []
    at = 0
    for header in batches.headers:
        end = at + header.size_bytes
        out.append(_HEAD.pack(base_offset, header.batch_length, leader_epoch))
        out.append(view[at + HEAD_BYTES : end])
        base_offset += header.last_offset_delta + 1
        at = end
    return out


def numbered(batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """One whole batch under the name of an idempotent producer; these fields are inside the CRC, so it is made anew."""
    out = bytearray(batch)
    _PRODUCER.pack_into(out, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    with memoryview(out) as view:
        _CRC.pack_into(out, _CRC_AT, crc32c(view[CRC_FROM:]))
    return bytes(out)


def batch_size(records: Buffer, at: int) -> int:
    """Whole size in bytes of the batch at `at`, unchecked; for walking bytes that were checked before."""
    length: int = _PREFIX.unpack_from(records, at)[1]
    return length + PREFIX_BYTES


# --- batches made anew ---------------------------------------------------------------------------------------------


def sealed(header: BatchHeader, records: bytes) -> bytes:
    """A batch of these records; its length and its CRC are made to fit."""
    length = HEADER_BYTES - PREFIX_BYTES + len(records)
    out = bytearray(_HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0)) + records)
    with memoryview(out) as view:
        _CRC.pack_into(out, _CRC_AT, crc32c(view[CRC_FROM:]))
    return bytes(out)


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: offsets, epoch, and what it says of its producer (HOLE-28)."""
    return sealed(
        header._replace(attributes=0, base_timestamp=NO_TIMESTAMP, max_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def fillers(base_offset: int, end_offset: int, leader_epoch: int) -> Iterator[bytes]:
    """Batches without records for a run of offsets whose records compaction has removed, as few as their fields allow.

    Kafka leaves a gap there. With these a log has none, so that one that was compacted is still told from one that has
    lost something, on disk, on a follower and in Spark; and its epoch history can still be read from its batches (I7).
    """
    while base_offset < end_offset:
        delta = min(end_offset - base_offset - 1, _INT32_MAX)
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        )
        yield sealed(header, b"")
        base_offset += delta + 1


def with_horizon(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    """See `BatchHeader.delete_horizon_ms`. The records' timestamp deltas are to be moved along."""
    return header._replace(attributes=header.attributes | _DELETE_HORIZON, base_timestamp=horizon_ms)


def from_offset(records: bytes, offset: int) -> bytes:
    """The same batches, the first one beginning at `offset` if it is a filler that holds that offset.

    A follower that was away while its leader compacted may stand in the middle of what is one filler there.
    """
    if not records or int.from_bytes(records[:8], "big") >= offset or not (header := read_header(records)).is_filler:
        return records
    return b"".join((*fillers(offset, header.end_offset, header.leader_epoch), records[header.size_bytes :]))
