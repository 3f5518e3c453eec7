"""Where each record of a batch lies, and its key: what the log cleaner needs to know of it, and no more.

The bytes of a record stay as they are, so that the ones that are kept are copied and not encoded again.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.wire.batch import corrupt

_VARINT_BITS_MAX: Final = 63


class Place(NamedTuple):
    """One record in the decompressed body of its batch; deltas are to the batch's base offset and base timestamp (ms)."""

    begin: int
    """Of its length."""
    rest: int
    """Of what follows the timestamp delta."""
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    tombstone: bool
    """It has no value: its key is deleted."""


def walk_records(body: bytes, count: int, last_offset_delta: int) -> Iterator[Place]:
    """Every record of a body that was decompressed. Offsets grow and may leave gaps, as compaction makes them.

    CORRUPT_MESSAGE when the body is not what the header says of it, `count` records up to `last_offset_delta`.
    """
    at, latest = 0, -1
    for _ in range(count):
        place = _record(body, at)
        if not latest < place.offset_delta <= last_offset_delta:
            raise corrupt(
                f"offset_delta: {place.offset_delta} after {latest}, the batch's last_offset_delta is {last_offset_delta}"
            )
        yield place
        at, latest = place.end, place.offset_delta
    if at != len(body):
        raise corrupt(f"record_count: {count}, {len(body) - at} bytes follow the last record")


def _record(body: bytes, begin: int) -> Place:
    try:
        size, at = varint(body, begin)
        end = at + size
        if size <= 0 or end > len(body):
            raise corrupt(f"records: the record at byte {begin} claims {size} bytes, {len(body) - at} are left")
        timestamp_delta, rest = varint(body, at + 1)  # behind the attributes, which nothing uses
        offset_delta, at = varint(body, rest)
        key_size, at = varint(body, at)
        key = None
        if key_size >= 0:
            key = body[at : at + key_size]
            at += key_size
        value_size, at = varint(body, at)
    except IndexError:
        raise corrupt(f"records: the record at byte {begin} ends too early") from None
    if key_size < -1 or value_size < -1 or at + max(0, value_size) > end:
        raise corrupt(f"records: the parts of the record at byte {begin} do not fit into its {size} bytes")
    return Place(begin, rest, end, offset_delta, timestamp_delta, key, value_size < 0)


def varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends; IndexError behind the end of `body`."""
    byte = body[at]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise corrupt(f"records: a varint of more than 10 bytes ends at byte {at}")


def zigzag(value: int) -> bytes:
    """The shortest bytes that `varint` reads as `value`."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def moved(body: bytes, place: Place, timestamp_delta: int) -> bytes:
    """The record as it is in a batch with another base timestamp. Its attributes, which nothing uses, are 0.

    CORRUPT_MESSAGE when no timestamp delta of 64 bits reaches that far.
    """
    if not -(2**63) <= timestamp_delta < 2**63:
        raise corrupt(f"timestamp_delta: {timestamp_delta} of the record at byte {place.begin}")
    inner = b"\0" + zigzag(timestamp_delta) + body[place.rest : place.end]
    return zigzag(len(inner)) + inner
