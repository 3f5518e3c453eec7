"""Puts events of several processes in one order while they arrive."""

from collections import deque
from typing import Final, NamedTuple

from tidelog.ports.recorder import Cause
from tidelog.watch.order import Told, ordered

WAIT_S: Final = 0.2
"""For how long an event waits for earlier ones of other processes, and for its cause."""
AWAY_S: Final = 1.0
"""For its cause, if the process of that is looked for again."""


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

    def __init__(self) -> None:
        self._held: dict[str, deque[tuple[float, Told]]] = {}
        """When each event has arrived, by process, in their order."""
        self._looked_at: dict[tuple[str, int], int] = {}
        self.away: set[str] = set()
        """Processes whose stream broke, and that are looked for again."""

    def add(self, told: Told, now: float) -> None:
        self._held.setdefault(told.process, deque()).append((now, told))
        self.looked_at(told.process, told.life, told.event.number)

    def looked_at(self, process: str, life: int, number: int) -> None:
        """The process has sent what was wanted of its events up to this number."""
        self._looked_at[process, life] = max(number, self._looked_at.get((process, life), 0))

    def due(self, now: float) -> list[Shown]:
        """Returns what has waited long enough, with what comes before it: its causes, and earlier events of its process."""
        ready: list[Told] = []
        for process, queue in self._held.items():
            last: Told | None = None
            for arrived, told in queue:
                if now - arrived < (AWAY_S if self._comes_later(told) else WAIT_S):
                    break
                last = told
            if last is not None:
                self._take(process, _place(last.name), ready)
        self._held = {process: queue for process, queue in self._held.items() if queue}
        return [Shown(told, self._misses(told)) for told in ordered(ready)]

    def rest(self) -> list[Shown]:
        """Returns all that is left: nothing more will arrive."""
        return self.due(float("inf"))

    def _take(self, process: str, place: _Place, ready: list[Told]) -> None:
        """Moves the events of a process up to this place, and what comes before them in others, to `ready`."""
        todo = [(process, place)]
        while todo:
            process, place = todo.pop()
            queue = self._held.get(process, deque())
            while queue and _place(queue[0][1].name) <= place:
                _, told = queue.popleft()
                ready.append(told)
                if (cause := told.event.cause) is not None:
                    todo.append((cause.process, _place(cause)))

    def _comes_later(self, told: Told) -> bool:
        cause = told.event.cause
        return cause is not None and cause.process in self.away and self._misses(told)

    def _misses(self, told: Told) -> bool:
        cause = told.event.cause
        return cause is not None and self._looked_at.get((cause.process, cause.life), 0) < cause.number
