"""Which of its own records the traffic process got back: pure, constant work a record, bounded memory.

A record counts as lost only once it was acknowledged and the reader went past its offset without seeing it: one that is merely
late is not lost, however long that takes.
"""

import heapq
from collections import defaultdict
from enum import Enum
from typing import Final

from tidelog.ids import NO_OFFSET
from tidelog.values import value

OPEN_MAX: Final = 100_000
"""Records that are followed at a time; the oldest are given up, and judged no more."""


class Arrival(Enum):
    FIRST = "first"
    OUT_OF_ORDER = "out of order"
    """The first time as well, but after a later one of its partition."""
    AGAIN = "again"
    NOT_FOLLOWED = "not followed"
    """Sent before the reader had begun, or given up."""


@value()
class _Sent:
    at: float
    offset: int = NO_OFFSET
    """NO_OFFSET: not acknowledged."""


class Probe:
    """Numbers rise with every record; those of one partition are sent in their order."""

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open: dict[int, _Sent] = {}
        """Not read back yet, in the order of their numbers."""
        self._open_max = open_max
        self._since: int | None = None
        """The first number that is judged; None: the reader has not begun."""
        self._next = 0
        self._given_up = -1
        self._newest: dict[int, int] = {}
        self._position: dict[int, int] = {}
        self._acked: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By partition, a heap: (offset, number) that was acknowledged before the reader came there."""

    def reading(self) -> None:
        """The reader stands at the ends of all logs: what is sent from now on must come. Again after each new beginning."""
        self._since = self._next
        for of_reader in (self._open, self._newest, self._position, self._acked):
            of_reader.clear()

    def sent(self, number: int, now: float) -> None:
        self._next = number + 1
        if self._since is None:
            return
        self._open[number] = _Sent(now)
        if len(self._open) > self._open_max:
            self._given_up = next(iter(self._open))
            del self._open[self._given_up]

    def acked(self, number: int, partition: int, offset: int) -> int:
        """How many records are now known to be lost: this one, or none."""
        found = self._open.get(number)
        if found is None:
            return 0
        if offset < self._position.get(partition, 0):
            del self._open[number]
            return 1
        self._open[number] = _Sent(found.at, offset)
        heapq.heappush(self._acked[partition], (offset, number))
        return 0

    def read(self, number: int, partition: int) -> tuple[Arrival, float]:
        """A record of this process came, and when it was sent."""
        if self._since is None or number < self._since or number <= self._given_up:
            return Arrival.NOT_FOLLOWED, 0.0
        found = self._open.pop(number, None)
        if found is None:
            return Arrival.AGAIN, 0.0
        newest = self._newest.get(partition, -1)
        self._newest[partition] = max(newest, number)
        return (Arrival.FIRST if number > newest else Arrival.OUT_OF_ORDER), found.at

    def passed(self, partition: int, position: int) -> int:
        """The reader's next record is at or after `position`; how many acknowledged ones it did not see on the way there."""
        self._position[partition] = position
        lost = 0
        waiting = self._acked[partition]
        while waiting and waiting[0][0] < position:
            _, number = heapq.heappop(waiting)
            lost += self._open.pop(number, None) is not None
        return lost
