"""Puts events of several processes in one order while they arrive."""

from collections import deque
from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from tidelog.ports.recorder import Cause, Znode
from tidelog.watch.order import Coming, Told, Writes, ordered
from tidelog.wire.znodes import NO_VERSION

WAIT_S: Final = 0.2
"""For how long an event waits for earlier ones of other processes, and for its cause."""
AWAY_S: Final = 1.0
"""For its cause, if that process is being looked for, or if it is still unknown which process wrote the znode."""
HELD_S: Final = 5.0
"""The longest that an event waits for its cause to be printed: forged causes may wait for one another."""

_Place = tuple[int, int]
"""Life and number: where an event stands among those of its process."""


def _place(name: Cause) -> _Place:
    return name.life, name.number


class Shown(NamedTuple):
    told: Told
    cause_missing: bool
    """The cause has not arrived."""


class Window:
    """Takes events as they arrive and returns them by time. A cause comes before its effect, whatever the clocks say."""

    def __init__(self, *, shows_writes: bool = True) -> None:
        """`shows_writes` is False if writes of znodes never arrive."""
        self._shows_writes = shows_writes
        self._writes = Writes()
        self._held: dict[str, deque[tuple[float, Told]]] = {}
        """When each event has arrived, by process, in their order."""
        self._looked_at: dict[tuple[str, int], int] = {}
        self.away: dict[str, float] = {}
        """Processes whose stream broke and that are being looked for, each with the time until which it is waited for."""

    def add(self, told: Told, now: float) -> None:
        self._held.setdefault(told.process, deque()).append((now, told))
        self.looked_at(told.process, told.life, told.event.number)

    def looked_at(self, process: str, life: int, number: int) -> None:
        """The process has sent what was wanted of its events up to this number."""
        self._looked_at[process, life] = max(number, self._looked_at.get((process, life), 0))

    def due(self, now: float) -> list[Shown]:
        """Returns what has waited long enough. An effect waits for as long as its cause does."""
        coming = Coming([told for queue in self._held.values() for _, told in queue], self._writes)
        ready = {process: self._waited(queue, now, coming) for process, queue in self._held.items()}
        ends = {
            process: _place(queue[count - 1][1].name)
            for process, queue in self._held.items()
            if (count := ready[process])
        }
        shorter = True
        while shorter:
            shorter = False
            for process, queue in self._held.items():
                for at, (arrived, told) in enumerate(islice(queue, ready[process])):
                    if now - arrived < HELD_S and self._is_held(coming.cause(told), ends):
                        ready[process], shorter = at, True
                        ends.pop(process)
                        if at:
                            ends[process] = _place(queue[at - 1][1].name)
                        break
        found = [queue.popleft()[1] for process, queue in self._held.items() for _ in range(ready[process])]
        self._held = {process: queue for process, queue in self._held.items() if queue}
        return [Shown(told, self._misses(told)) for told in ordered(found, self._writes)]

    def _waited(self, queue: "deque[tuple[float, Told]]", now: float, coming: Coming) -> int:
        """Returns how many of the oldest events have waited long enough."""
        count = 0
        for arrived, told in queue:
            if now - arrived < (AWAY_S if self._comes_later(told, coming, now) else WAIT_S):
                break
            count += 1
        return count

    def _is_held(self, cause: Cause | None, ends: Mapping[str, _Place]) -> bool:
        """Tells whether a cause has arrived and is not among those that have waited long enough, which end at `ends`."""
        if cause is None or not (queue := self._held.get(cause.process)):
            return False
        place = _place(cause)
        first = _place(queue[0][1].name)
        return first <= place <= _place(queue[-1][1].name) and place > ends.get(cause.process, (0, 0))

    def rest(self) -> list[Shown]:
        """Returns all that is left: nothing more will arrive."""
        return self.due(inf)

    def _comes_later(self, told: Told, coming: Coming, now: float) -> bool:
        znode = told.event.cause
        if isinstance(znode, Znode):
            return self._shows_writes and znode.version != NO_VERSION and coming.cause(told) is None
        return told.cause is not None and self.away.get(told.cause.process, 0.0) > now and self._misses(told)

    def _misses(self, told: Told) -> bool:
        cause = told.cause
        return cause is not None and self._looked_at.get((cause.process, cause.life), 0) < cause.number
