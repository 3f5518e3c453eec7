"""How an idempotent producer numbers its batches in one partition (HOLE-28, KIP-98, KIP-360). Pure.

A batch keeps its sequence through all retries, also when nobody knows what became of it: the leader then finds it, or appends
it. Only when its predecessor is missing in the log does a partition begin anew, with sequence 0 under the next epoch: first
all answers are awaited; what was certainly refused is numbered again, and what was ever without an answer has failed.
"""

from typing import Final, NamedTuple

SEQUENCE_MASK: Final = 2**31 - 1


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Numbering:
    __slots__ = ("_next", "broken", "gap", "identity", "settled")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._next = 0
        self.settled = False
        """A batch under this identity is committed: every leader to come knows it."""
        self.broken = False
        """Sequences are missing in the log, and will be: nothing that follows them can be sent under this identity."""
        self.gap: tuple[int, ...] = ()
        """While it is broken: the place in the queue of the first batch that is missing. What is before it is sent again."""

    def next(self, count: int) -> int:
        """The sequence of the first of the next `count` records; 0 comes after 2^31 - 1."""
        sequence = self._next
        self._next = (sequence + count) & SEQUENCE_MASK
        return sequence

    def break_at(self, gap: tuple[int, ...]) -> None:
        self.gap = min(self.gap, gap) if self.broken else gap
        self.broken = True

    def restart(self, identity: Identity) -> None:
        self.identity, self._next, self.settled, self.broken = identity, 0, False, False
