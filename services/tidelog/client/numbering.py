"""How an idempotent producer numbers its batches in one partition (HOLE-28, KIP-98, KIP-360). Pure.

A batch keeps its sequence through all retries, also when nobody knows what became of it: the leader then finds it, or appends
it. Only when its predecessor is missing in the log does a partition begin anew, with sequence 0 under the next epoch: first
all answers are awaited; what was certainly refused is numbered again, and what was ever without an answer has failed.
"""

from typing import Final, NamedTuple

SEQUENCE_MASK: Final = 2**31 - 1
NEVER: Final = float("-inf")
REMEMBERED_S: Final = 5.0
"""A leader certainly knows a producer for so long after a batch of it: it forgets those that have been idle longest."""


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Numbering:
    __slots__ = ("_next", "broken", "gap", "identity", "settled_at")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._next = 0
        self.settled_at = NEVER
        """When a batch under this identity was committed last: every leader to come knows it."""
        self.broken = False
        """Sequences are missing in the log, and will be: nothing that follows them can be sent under this identity."""
        self.gap: tuple[int, ...] = ()
        """While it is broken: the place in the queue of the first batch that is missing. What is before it is sent again."""

    def is_settled(self, now: float) -> bool:
        """True if a leader refuses a batch whose predecessor it lacks. It may have forgotten a producer that was idle."""
        return now < self.settled_at + REMEMBERED_S

    def next(self, count: int) -> int:
        """The sequence of the first of the next `count` records; 0 comes after 2^31 - 1."""
        sequence = self._next
        self._next = (sequence + count) & SEQUENCE_MASK
        return sequence

    def break_at(self, gap: tuple[int, ...]) -> None:
        self.gap = min(self.gap, gap) if self.broken else gap
        self.broken = True

    def restart(self, identity: Identity) -> None:
        self.identity, self._next, self.settled_at, self.broken = identity, 0, NEVER, False
