"""Memory that loaded indexes of closed segments may take, together for all logs of a broker.

A terabyte of small batches has six gigabytes of them. Each has a file, from which it is read again when it is needed.
"""

from collections import OrderedDict
from typing import Final, Protocol

INDEX_BYTES_MAX: Final = 64 * 1024 * 1024


class Indexed(Protocol):
    """A segment with an index that its file holds too."""

    def forget_index(self) -> None:
        """The index is taken out of memory."""
        ...


class IndexCache:
    """The index that was used least recently goes first. For the owner's thread only."""

    def __init__(self, bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Indexed, int] = OrderedDict()
        self.held_bytes = 0

    def admit(self, segment: Indexed, size_bytes: int) -> None:
        """Counts the index of `segment`, and takes others out of memory for it. One that is larger than all is kept alone."""
        self.release(segment)
        while self._held and self.held_bytes + size_bytes > self._bytes_max:
            oldest, freed_bytes = self._held.popitem(last=False)
            self.held_bytes -= freed_bytes
            oldest.forget_index()
        self._held[segment] = size_bytes
        self.held_bytes += size_bytes

    def used(self, segment: Indexed) -> None:
        self._held.move_to_end(segment)

    def release(self, segment: Indexed) -> None:
        """The index is gone, or is to change. Harmless when it is not counted."""
        self.held_bytes -= self._held.pop(segment, 0)
