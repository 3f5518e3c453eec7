"""Records in and out of batches (Kafka's RecordBatch v2), with aiokafka's compiled codec. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidelog.client.errors import BadBatchError
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, Codec, read_header, whole_batch
from tidelog.wire.compression import inflate

Header = tuple[str, bytes | None]

_CONTROL = 0x20
_CODEC_MASK = 0x07
_CODEC_AT = 22
"""The lower byte of the attributes."""

INFLATED_BYTES_MAX = 256 << 20
"""The most that one batch may hold when it is decompressed."""

_RECORD_OVERHEAD = 21
"""Length, attributes, timestamp and offset of one record, at their longest."""


class Record(NamedTuple):
    """What a producer sends; `timestamp_ms` is Unix time."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """One record as it was read; `timestamp_type` is 0 for the producer's clock, 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    leader_epoch: int


def codec_of(name: str) -> Codec:
    """`none`, `gzip`, `snappy`, `lz4` or `zstd`; ValueError names them."""
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(c.name.lower() for c in Codec)
        raise ValueError(f"compression {name!r} is not known; known are {known}") from None


def new_builder(codec: Codec, batch_bytes: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(MAGIC, codec, 0, -1, -1, -1, batch_bytes)


def record_size_max(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
    """Upper bound of the bytes that a batch with only this record takes."""
    return HEADER_BYTES + _RECORD_OVERHEAD + int(DefaultRecordBatchBuilder.size_of(key, value, headers))


def encode_batch(records: Iterable[Record], codec: Codec = Codec.NONE) -> bytes:
    """One batch with base offset 0, as `produce_encoded` takes it; ValueError without records."""
    builder = new_builder(codec, 2**31 - 1)
    count = 0
    for key, value, headers, timestamp_ms in records:
        builder.append(count, timestamp_ms, key, value, list(headers))
        count += 1
    if not count:
        raise ValueError("a batch needs at least one record")
    return bytes(builder.build())


def _inflated(batch: bytes | memoryview, header: BatchHeader) -> bytes | memoryview:
    """The same batch without compression, so that a bomb meets our limit and not the codec's, which has none."""
    if header.codec == Codec.NONE:
        return batch
    out = bytearray(batch[:HEADER_BYTES])
    out[_CODEC_AT] &= ~_CODEC_MASK
    return bytes(out) + inflate(header.codec, batch[HEADER_BYTES:], INFLATED_BYTES_MAX)


def decode_batch(
    tp: TopicPartition, batch: bytes | memoryview, header: BatchHeader, position: int = 0
) -> Iterator[ConsumerRecord]:
    """The records from offset `position` on of one batch whose header and CRC have been checked.

    Those before it may be deleted: a broker keeps and sends batches whole. BadBatchError where the batch's inside contradicts
    its header.
    """
    if header.attributes & _CONTROL:
        return
    topic, partition = tp
    epoch = header.leader_epoch
    try:
        decoded = DefaultRecordBatch(_inflated(batch, header)) if header.record_count else ()
        expected = header.base_offset
        for left, r in enumerate(decoded, 1 - header.record_count):
            # Compaction leaves gaps, and says so: there are fewer records than offsets.
            last = header.last_offset + left
            if not expected <= r.offset <= last:
                raise ValueError(f"a record of offset {r.offset} where one from {expected} to {last} is next")
            expected = r.offset + 1
            if r.offset >= position:
                yield ConsumerRecord(
                    topic, partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers, epoch
                )
    except TidelogError as error:
        raise BadBatchError(tp, header.base_offset, header.end_offset, error.message) from error
    except (CorruptRecordException, ValueError) as error:
        raise BadBatchError(tp, header.base_offset, header.end_offset, f"{type(error).__name__}: {error}") from error


def split_batches(tp: TopicPartition, records: bytes, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a fetch answer, CRC checked, that ends after `position`; BadBatchError at the first damaged one."""
    view = memoryview(records)
    at = 0
    while at < len(records):
        try:
            header = whole_batch(records, at)
        except TidelogError as error:
            raise _bad_batch(tp, view[at:], position, error) from error
        end = at + header.size_bytes
        if header.end_offset > position:
            yield header, view[at:end]
        at = end


class Clip(NamedTuple):
    """The batches of a fetch answer that hold some of the wanted offsets; `next_offset` follows the last of them."""

    records: bytes
    next_offset: int
    leader_epoch: int


def clip_batches(tp: TopicPartition, records: bytes, position: int, end: int) -> Clip:
    """Leaves out batches wholly below `position` or from `end` on; CRC checked, no copy when nothing is left out."""
    begin, stop, epoch = len(records), 0, -1
    at, next_offset = 0, position
    while at < len(records):
        try:
            header = whole_batch(records, at)
        except TidelogError as error:
            raise _bad_batch(tp, memoryview(records)[at:], next_offset, error) from error
        if header.base_offset >= end:
            break
        if header.end_offset > position:
            begin, stop = min(begin, at), at + header.size_bytes
            next_offset, epoch = header.end_offset, header.leader_epoch
        at += header.size_bytes
    return Clip(records[begin:stop], next_offset, epoch)


def _bad_batch(tp: TopicPartition, rest: memoryview, position: int, error: TidelogError) -> BadBatchError:
    """Where to go on is the batch's own word; one whose head is damaged as well costs one offset at a time."""
    offset, next_offset = position, position + 1
    if len(rest) >= HEADER_BYTES:
        header = read_header(rest)
        sane = header.magic == MAGIC and header.batch_length >= HEADER_BYTES - PREFIX_BYTES
        if sane and header.base_offset <= header.last_offset and header.end_offset > position:
            offset, next_offset = header.base_offset, header.end_offset
    return BadBatchError(tp, offset, next_offset, error.message)
