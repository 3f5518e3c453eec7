"""Puts events of several processes in one order while they arrive."""

from typing import Final, NamedTuple

from tidelog.ports.recorder import Cause
from tidelog.watch.order import Told, causes_first, in_time

WAIT_S: Final = 0.2
"""For how long an event waits for earlier ones of other processes, and for its cause."""
AWAY_S: Final = 1.0
"""For its cause, if the process of that is looked for again."""


class Shown(NamedTuple):
    told: Told
    cause_missing: bool
    """The cause has not arrived."""


class Window:
    """Takes events as they arrive and returns them by time. A cause comes before its effect, whatever the clocks say."""

    def __init__(self) -> None:
        self._held: dict[Cause, tuple[float, Told]] = {}
        self._looked_at: dict[tuple[str, int], int] = {}
        self.away: set[str] = set()
        """Processes whose stream broke, and that are looked for again."""

    def add(self, told: Told, now: float) -> None:
        self._held[told.name] = (now, told)

    def looked_at(self, process: str, life: int, number: int) -> None:
        """The process has sent what was wanted of its events up to this number."""
        self._looked_at[process, life] = max(number, self._looked_at.get((process, life), 0))

    def due(self, now: float) -> list[Shown]:
        """Returns what has waited long enough, with the causes that have arrived."""
        names: dict[Cause, None] = {}
        for name, (arrived, _) in self._held.items():
            if now - arrived >= WAIT_S:
                chain = self._chain(name)
                if now - arrived >= AWAY_S or not self._comes_later(self._held[chain[-1]][1]):
                    names.update(dict.fromkeys(chain))
        ready = [self._held.pop(name)[1] for name in names]
        return [Shown(told, self._misses(told)) for told in causes_first(in_time(ready))]

    def rest(self) -> list[Shown]:
        """Returns all that is left: nothing more will arrive."""
        return self.due(float("inf"))

    def _chain(self, name: Cause | None) -> list[Cause]:
        """Returns an event and the causes that are held here, up to the first."""
        found: dict[Cause, None] = {}
        while name is not None and name in self._held and name not in found:
            found[name] = None
            name = self._held[name][1].event.cause
        return list(found)

    def _comes_later(self, told: Told) -> bool:
        cause = told.event.cause
        return cause is not None and cause.process in self.away and self._misses(told)

    def _misses(self, told: Told) -> bool:
        cause = told.event.cause
        return cause is not None and self._looked_at.get((cause.process, cause.life), 0) < cause.number
