"""Rows of one partition on their way into record batches. Pure."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog.client.accumulator import EndOf
from tidelog.client.numbering import SEQUENCE_MASK
from tidelog.client.records import Record, encode_batch
from tidelog.wire.batch import HEADER_BYTES, Codec


def as_many_as_fit(first: int, fits: int) -> int:
    return first + fits


class Cut(NamedTuple):
    """One encoded batch; `first` is the sequence of its first record."""

    records: bytes
    first: int
    rows: int
    bytes_max: int
    """Of its rows, without compression."""


class Packer:
    """Records of one partition, in order, cut into batches of at most `batch_bytes`, or of one record that is larger."""

    def __init__(self, batch_bytes: int, codec: Codec, *, first: int = 0, end_of: EndOf = as_many_as_fit) -> None:
        self._room = _room(batch_bytes)
        self._codec = codec
        self._end_of = end_of
        self._next = first
        self._records: list[Record] = []
        self._sizes: list[int] = []
        self.held_bytes = 0
        """Of rows that wait for more to come."""

    def add(self, records: Sequence[Record], sizes: Sequence[int]) -> Iterator[Cut]:
        """`sizes` are upper bounds in bytes. Yields what is full."""
        self._records += records
        self._sizes += sizes
        self.held_bytes += sum(sizes)
        while self.held_bytes > self._room and len(self._records) > 1:
            fits = self._fits()
            yield self._cut(self._end_of(self._next, fits) - self._next)

    @property
    def next_sequence(self) -> int:
        """Of the record that is added next."""
        return (self._next + len(self._records)) & SEQUENCE_MASK

    def shrink(self, batch_bytes: int) -> None:
        """Batches to come have at most so many bytes."""
        self._room = min(self._room, _room(batch_bytes))

    def give_up_most(self) -> Iterator[Cut]:
        """At most one batch of what waits, although more is to come."""
        if self._records:
            yield self._cut(self._end_of(self._next, len(self._records)) - self._next)

    def finish(self) -> Iterator[Cut]:
        """The rest, at most one batch."""
        if self._records:
            yield self._cut(len(self._records))

    def _fits(self) -> int:
        """How many of the first records go into one batch; at least one."""
        for count, total in enumerate(accumulate(self._sizes)):
            if total > self._room:
                return max(count, 1)
        return len(self._sizes)

    def _cut(self, count: int) -> Cut:
        size = sum(self._sizes[:count])
        cut = Cut(encode_batch(self._records[:count], self._codec), self._next, count, size)
        self.held_bytes -= size
        del self._records[:count], self._sizes[:count]
        self._next = (self._next + count) & SEQUENCE_MASK
        return cut


def _room(batch_bytes: int) -> int:
    """For the records of a batch."""
    return max(batch_bytes - HEADER_BYTES, 1)
