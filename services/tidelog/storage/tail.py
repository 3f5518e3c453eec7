"""The last appended buffers of each log, kept in memory: followers and readers of the end need no disk.

One budget serves all logs of a broker; the oldest append goes first, whichever log it is in.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.wire.batch import Buffer, batch_size, read_header

TAIL_BYTES_MAX: Final = 64 * 1024 * 1024
LOG_TAIL_BYTES_MAX: Final = 4 * 1024 * 1024
_APPEND_BYTES: Final = 700
"""Memory of one append beside its records: objects, and the places where they are listed."""
_PART_BYTES: Final = 150
"""Memory of each of its parts beside that."""


def held_bytes(parts: Sequence[Buffer], size_bytes: int) -> int:
    """Memory that an append of `parts` takes, which have `size_bytes`. Small records take less than what holds them."""
    return size_bytes + _APPEND_BYTES + _PART_BYTES * len(parts)


class _Append:
    """The whole batches of one append, offsets `base` to `end`. The parts are joined when somebody reads them."""

    __slots__ = ("base", "end", "held_bytes", "owner", "parts", "size_bytes")

    def __init__(self, owner: "Tail", base: int, end: int, parts: Sequence[Buffer], size_bytes: int) -> None:
        self.owner = owner
        self.base = base
        self.end = end
        self.size_bytes = size_bytes
        self.held_bytes = held_bytes(parts, size_bytes)
        self.parts = parts

    def data(self) -> bytes:
        parts = self.parts
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return parts[0]
        joined = b"".join(parts)
        self.parts = (joined,)  # the next follower gets the same object
        return joined


class TailBudget:
    """How much memory all tails may hold together."""

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX, log_bytes_max: int = LOG_TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.log_bytes_max = log_bytes_max
        self._held: OrderedDict[_Append, None] = OrderedDict()
        self._bytes = 0

    def admit(self, append: _Append) -> None:
        self._held[append] = None
        self._bytes += append.held_bytes
        while self._bytes > self._bytes_max:
            next(iter(self._held)).owner.drop_oldest()

    def release(self, append: _Append) -> None:
        del self._held[append]
        self._bytes -= append.held_bytes


class Tail:
    """A contiguous run of appends that ends at the log's end."""

    __slots__ = ("_appends", "_bases", "_budget", "_bytes", "_first")

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._appends: list[_Append] = []
        self._bases: list[int] = []
        self._first = 0
        """Index of the oldest held; what lies before is a hole. Holes are squeezed out when they are the larger part."""
        self._bytes = 0

    def push(self, base: int, end: int, parts: Sequence[Buffer], size_bytes: int) -> None:
        """`parts` are whole batches in order; they are kept, so they must not change afterwards."""
        append = _Append(self, base, end, parts, size_bytes)
        self._appends.append(append)
        self._bases.append(base)
        self._bytes += append.held_bytes
        self._budget.admit(append)
        while self._bytes > self._budget.log_bytes_max:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        append = self._appends[self._first]
        self._budget.release(append)
        append.parts = ()
        self._bytes -= append.held_bytes
        self._first += 1
        if 2 * self._first >= len(self._appends):
            del self._appends[: self._first], self._bases[: self._first]
            self._first = 0

    def drop_below(self, offset: int) -> None:
        """Drops the appends that end at or before `offset`."""
        while self._first < len(self._appends) and self._appends[self._first].end <= offset:
            self.drop_oldest()

    def clear(self) -> None:
        while self._first < len(self._appends):
            self.drop_oldest()

    def read(self, offset: int, bytes_max: int, end_offset: int, min_one: bool) -> bytes | None:
        """As `PartitionLog.read`; None when the batch that holds `offset` is not here."""
        appends = self._appends
        at = bisect_right(self._bases, offset, lo=self._first) - 1
        if at < self._first or offset >= appends[at].end:
            return None
        pieces: list[bytes] = []
        room = bytes_max
        # By number: to walk there from the first one would take 20 µs in a tail of many small appends.
        for number in range(at, len(appends)):
            append = appends[number]
            if offset <= append.base and append.end <= end_offset and append.size_bytes <= room:
                piece, to_the_end = append.data(), True  # the common case: no copy
            else:
                piece, to_the_end = whole_batches(append.data(), offset, room, end_offset, min_one and not pieces)
            if piece:
                pieces.append(piece)
                room -= len(piece)
            if room <= 0 or not to_the_end:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Taken(NamedTuple):
    records: bytes
    to_the_end: bool
    """Whether nothing follows them in the data they came from."""


def whole_batches(data: bytes, offset: int, bytes_max: int, end_offset: int, min_one: bool) -> Taken:
    """The batches of `data` from the one that holds `offset`, none past `end_offset`, at most `bytes_max` of bytes.

    With `min_one` the first comes even if it is larger.
    """
    at = 0
    while at < len(data) and read_header(data, at).end_offset <= offset:
        at += batch_size(data, at)
    stop = at
    while stop < len(data):
        header = read_header(data, stop)
        next_stop = stop + header.size_bytes
        too_much = next_stop - at > bytes_max and not (min_one and stop == at)
        if too_much or header.end_offset > end_offset:
            break
        stop = next_stop
    return Taken(data if (at, stop) == (0, len(data)) else data[at:stop], stop == len(data))
