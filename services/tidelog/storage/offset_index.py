"""A sparse index of one segment: by offset and by time. A cache: rebuilt from the segment whenever it is missing or bad."""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from sys import getsizeof
from typing import Final, NamedTuple

from crc32c import crc32c

INDEX_INTERVAL_BYTES: Final = 4096
NO_TIME: Final = -1
_OBJECT_BYTES: Final = 200
"""Memory of one without entries, and of its place in a table."""

_HEAD: Final = Struct("=qqqq")
_CRC: Final = Struct("=I")
_VERSION: Final = 0x54_4C_49_58_00_00_00_01
"""In native byte order, so that a machine of the other order rebuilds instead of misreading."""


class IndexEntry(NamedTuple):
    """A batch begins at `position`; no batch before it in the segment has a timestamp above `max_timestamp_before`."""

    base_offset: int
    position: int
    max_timestamp_before: int


class SparseIndex:
    """One entry for the first batch and for the first one after every `interval_bytes`."""

    __slots__ = ("_due", "_interval_bytes", "_offsets", "_positions", "_times", "max_timestamp")

    def __init__(self, interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._interval_bytes = interval_bytes
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")
        self._due = 0
        self.max_timestamp = NO_TIME
        """Of all batches noted."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def held_bytes(self) -> int:
        """Memory that it takes."""
        return _OBJECT_BYTES + sum(map(getsizeof, (self._offsets, self._positions, self._times)))

    def note(self, base_offset: int, position: int, max_timestamp: int) -> None:
        """A batch was appended at `position`. Called for every batch, in order."""
        if position >= self._due:
            self._offsets.append(base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp)
            self._due = position + self._interval_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def below_offset(self, offset: int) -> int:
        """A position from which a walk meets the batch that holds `offset`."""
        at = bisect_right(self._offsets, offset) - 1
        return self._positions[at] if at >= 0 else 0

    def entry_below(self, offset: int) -> tuple[int, int] | None:
        """The base offset and the position of the last indexed batch that begins at or before `offset`."""
        at = bisect_right(self._offsets, offset) - 1
        return (self._offsets[at], self._positions[at]) if at >= 0 else None

    def below_position(self, position: int) -> int:
        """The last indexed batch start at or before `position`."""
        at = bisect_right(self._positions, position) - 1
        return self._positions[at] if at >= 0 else 0

    def below_time(self, timestamp: int) -> int:
        """A position from which a walk meets the first batch with a timestamp at or after this one."""
        at = bisect_left(self._times, timestamp) - 1
        return self._positions[at] if at >= 0 else 0

    def times_below_offset(self, offset: int) -> tuple[int, int]:
        """(position, time): no batch before `position` ends after `offset`, and `time` is the largest timestamp of them."""
        at = bisect_right(self._offsets, offset) - 1
        return (self._positions[at], self._times[at]) if at >= 0 else (0, NO_TIME)

    def cut(self, position: int) -> int:
        """Forgets what is at or after `position`, and the entry before it; returns where to note again from."""
        at = max(0, bisect_left(self._positions, position) - 1)
        resume, self.max_timestamp = (self._positions[at], self._times[at]) if at < len(self) else (0, NO_TIME)
        for column in (self._offsets, self._positions, self._times):
            del column[at:]
        self._due = resume
        return resume

    def entries(self) -> list[IndexEntry]:
        return [IndexEntry(*row) for row in zip(self._offsets, self._positions, self._times, strict=True)]

    def encode(self, covered_bytes: int) -> bytes:
        """As a file that speaks for a segment of exactly `covered_bytes`."""
        head = _HEAD.pack(_VERSION, covered_bytes, len(self), self.max_timestamp)
        body = b"".join((head, self._offsets.tobytes(), self._positions.tobytes(), self._times.tobytes()))
        return body + _CRC.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes, size_bytes: int, interval_bytes: int) -> "tuple[SparseIndex, int] | None":
        """The index of the first part of a segment of `size_bytes`, and how many bytes that part has.

        None when the file is torn, rotten, of another version, or speaks for a larger segment.
        """
        if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != crc32c(data[: -_CRC.size]):
            return None
        version, covered, count, max_timestamp = _HEAD.unpack_from(data)
        if version != _VERSION or covered > size_bytes or len(data) != _HEAD.size + 24 * count + _CRC.size:
            return None
        index = cls(interval_bytes)
        for row, column in enumerate((index._offsets, index._positions, index._times)):
            start = _HEAD.size + 8 * count * row
            column.frombytes(data[start : start + 8 * count])
        index.max_timestamp = max_timestamp
        index._due = index._positions[-1] + interval_bytes if count else 0
        return index, covered
