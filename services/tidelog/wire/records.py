"""What lies inside a batch: checked record by record, the second half of what a producer sent (`validate=full`) or whether
every record has a key (`cleanup.policy=compact`), and compressed anew as a whole (`compression.type`).

The broker's default path never looks here (design section 3, Validation). Slow, and meant to run beside the event loop.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    Batches,
    BatchHeader,
    Buffer,
    Codec,
    corrupt,
    invalid,
    sealed,
    validate_produce,
)
from tidelog.wire.compression import deflate, inflate, too_large
from tidelog.wire.record_walk import walk_records

RECORDS_MAX: Final = 100_000
"""Records of one partition in one request, where each is looked at: that takes about a second."""

_INT32_VARINT_BYTES: Final = 5
_INT64_VARINT_BYTES: Final = 10
_NULL: Final = -1

_CODECS: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By compression.type; `producer` names none."""


def to_append(records: Buffer, config: TopicConfig, inflated_bytes_max: int) -> Buffer | TidelogError:
    """What a leader of such a topic appends for what it was sent, or why it appends nothing.

    `records` itself where every batch stays as it is. What is compressed anew holds the same records byte for byte, and says
    the same of its producer, offsets and times.
    """
    try:
        headers = validate_produce(records, batch_bytes_max=config.max_message_bytes).headers
        if config.validate == "full" or config.compacts:
            _check_count(headers)
        parts: list[Buffer] = []
        at = 0
        for header in headers:
            end = at + header.size_bytes
            parts.append(_stored(memoryview(records)[at:end], header, at, config, inflated_bytes_max))
            at = end
    except TidelogError as error:
        # A new one: the frames of this one's traceback hold what was inflated, and it lives until the answer is sent.
        return TidelogError(error.message, error.code)
    return b"".join(parts) if any(_other_codec(header, config) is not None for header in headers) else records


def _check_count(headers: Sequence[BatchHeader]) -> None:
    """MESSAGE_TOO_LARGE, at which producers divide a batch, if there are too many records to look at each at once."""
    count = sum(header.record_count for header in headers)
    if count > RECORDS_MAX:
        raise TidelogError(
            f"records: they hold {count} records, at most {RECORDS_MAX} are taken at once by a topic with "
            "cleanup.policy=compact or validate=full",
            ErrorCode.MESSAGE_TOO_LARGE,
        )


def _other_codec(header: BatchHeader, config: TopicConfig) -> Codec | None:
    """What the topic stores the batch with, if that is not what it came with."""
    codec = _CODECS.get(config.compression_type)
    return None if codec == header.codec else codec


def _stored(
    batch: memoryview, header: BatchHeader, position: int, config: TopicConfig, inflated_bytes_max: int
) -> Buffer:
    full, keys, codec = config.validate == "full", config.compacts, _other_codec(header, config)
    if not (full or keys) and codec is None:
        return batch
    body = inflate(header.codec, batch[HEADER_BYTES:], inflated_bytes_max)
    if full:
        check_records(body, header, position)
    if keys:
        check_keys(body, header, position)
    if codec is None:
        return batch
    if len(body) > inflated_bytes_max:
        # It came uncompressed. Compressed it would be what this broker refuses from a producer, and compaction leaves alone.
        raise too_large(inflated_bytes_max)
    section = deflate(codec, body)
    size_bytes = HEADER_BYTES + len(section)
    if size_bytes > config.max_message_bytes:
        raise TidelogError(
            f"records: the batch at position {position} takes {size_bytes} bytes with compression.type="
            f"{config.compression_type}, max.message.bytes is {config.max_message_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    return sealed(header.with_codec(codec), section)


def check_times(batches: Batches, now_ms: float, config: TopicConfig) -> None:
    """INVALID_TIMESTAMP when the newest record of a batch, as its header says, is too far from the leader's clock."""
    latest, earliest = now_ms + config.message_timestamp_after_max_ms, now_ms - config.message_timestamp_before_max_ms
    for header in batches.headers:
        found = header.max_timestamp
        if found > latest or (found < earliest and found != NO_TIMESTAMP):
            which = "after" if found > latest else "before"
            limit = abs((latest if found > latest else earliest) - now_ms)
            raise TidelogError(
                f"max_timestamp: {found} is more than message.timestamp.{which}.max.ms={limit} {which} the leader's clock "
                f"{now_ms}",
                ErrorCode.INVALID_TIMESTAMP,
            )


def check_keys(body: bytes, header: BatchHeader, position: int) -> None:
    """INVALID_RECORD when a record has no key: compaction could not tell what replaces it, and would drop it."""
    for place in walk_records(body, header.record_count, header.last_offset_delta):
        if place.key is None:
            raise invalid(
                f"key: record {place.offset_delta} of the batch at position {position} has none, which cleanup.policy "
                "compact needs"
            )


def check_records(body: bytes, header: BatchHeader, position: int) -> None:
    """Whether the records, decompressed, are what the header says of them.

    CORRUPT_MESSAGE when they cannot be decoded, INVALID_RECORD when they contradict the header or each other.
    """
    where = f"of the batch at position {position}"
    reader = _Reader(body, where)
    latest = NO_TIMESTAMP
    for expected in range(header.record_count):
        latest = max(latest, _check_record(reader, header, expected, where))
    if reader.left:
        raise invalid(f"record_count: {header.record_count} {where}, {reader.left} bytes follow the last record")
    if latest != header.max_timestamp:
        raise invalid(f"max_timestamp: {header.max_timestamp} {where}, its records give {latest}")


def _check_record(reader: "_Reader", header: BatchHeader, expected: int, where: str) -> int:
    """Reads one record; returns its timestamp."""
    if not reader.left:
        raise invalid(f"record_count: {header.record_count} {where}, it holds {expected}")
    size = reader.varint(_INT32_VARINT_BYTES)
    end = reader.at + size
    if size < 0 or size > reader.left:
        raise corrupt(f"records: record {expected} {where} claims {size} bytes, {reader.left} are left")
    reader.skip(1)  # attributes, unused
    timestamp = header.base_timestamp + reader.varint(_INT64_VARINT_BYTES)
    offset = reader.varint(_INT32_VARINT_BYTES)
    reader.skip_bytes(nullable=True)
    reader.skip_bytes(nullable=True)
    headers = reader.varint(_INT32_VARINT_BYTES)
    if headers < 0:
        raise corrupt(f"records: record {expected} {where} claims {headers} headers")
    for _ in range(headers):
        reader.skip_text()
        reader.skip_bytes(nullable=True)
    if reader.at != end:
        raise corrupt(f"records: record {expected} {where} claims {size} bytes and has {size + reader.at - end}")
    if offset != expected:
        raise invalid(f"offset_delta: {offset} {where}, {expected} is next")
    if timestamp < NO_TIMESTAMP:
        raise invalid(
            f"timestamp_delta: record {expected} {where} has timestamp {timestamp}, must be -1 (none) or more"
        )
    return timestamp


class _Reader:
    """Walks the decompressed records; CORRUPT_MESSAGE where they end too early."""

    __slots__ = ("_data", "_where", "at")

    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._where = where
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def skip(self, size: int) -> None:
        if size > self.left:
            raise corrupt(f"records: {size} bytes wanted at byte {self.at} {self._where}, {self.left} are left")
        self.at += size

    def varint(self, bytes_max: int) -> int:
        """Zigzag, at most `bytes_max` long."""
        value = shift = 0
        for _ in range(bytes_max):
            self.skip(1)
            byte = self._data[self.at - 1]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise corrupt(f"records: a varint of more than {bytes_max} bytes at byte {self.at} {self._where}")

    def skip_bytes(self, *, nullable: bool) -> int:
        size = self.varint(_INT32_VARINT_BYTES)
        if size < (_NULL if nullable else 0):
            raise corrupt(f"records: a length of {size} at byte {self.at} {self._where}")
        self.skip(max(0, size))
        return max(0, size)

    def skip_text(self) -> None:
        size = self.skip_bytes(nullable=False)
        try:
            self._data[self.at - size : self.at].decode()
        except UnicodeDecodeError as error:
            raise corrupt(f"records: a header key at byte {self.at - size} {self._where} is no UTF-8") from error
