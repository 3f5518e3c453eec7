"""How long a round of elections took, step by step (B1.05): detect, decide, write, notify. A take-over is one that writes
nothing before it tells everybody."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.effects import ReassignmentWrite, StateWrite, Write, WriteGroup
from tidelog.ids import TopicPartition

TAKE_OVER: Final = "take-over"
"""The cause of a round that begins with an election to controller and ends when every broker has been told everything."""


@dataclass(slots=True, eq=False)
class Round:
    """One `Write` with its states and what follows from it. Instants are the controller's clock."""

    cause: str
    elections: int
    began_at: float
    """When it happened, as far as anybody can tell."""
    noticed_at: float
    decided_at: float
    unwritten: set[TopicPartition]
    unclean: int = 0
    written_at: float = 0.0
    untold: int = 0
    told_at: float = 0.0

    def steps(self) -> dict[str, float]:
        """Seconds of each step, once everybody is told."""
        if self.cause == TAKE_OVER:
            return {
                "read": self.noticed_at - self.began_at,
                "decide": self.decided_at - self.noticed_at,
                "notify": self.told_at - self.decided_at,
            }
        return {
            "detect": self.noticed_at - self.began_at,
            "decide": self.decided_at - self.noticed_at,
            "write": self.written_at - self.decided_at,
            "notify": self.told_at - self.written_at,
        }


@dataclass(slots=True)
class Rounds:
    """Those that are not over; a few at a time, and forgotten when a broker never answers."""

    on_written: Callable[[Round], None]
    on_told: Callable[[Round], None]
    _writing: list[Round] = field(default_factory=list)

    def begin(self, write: Write, *, began_at: float, noticed_at: float, decided_at: float) -> Round | None:
        """Returns the round that begins, None if nothing is elected."""
        states = _partitions(write.groups)
        if not (write.elections and states):
            return None
        begun = Round(write.cause, write.elections, began_at, noticed_at, decided_at, states, len(write.unclean))
        self._writing.append(begun)
        return begun

    def written(self, groups: Iterable[WriteGroup], now: float) -> list[Round]:
        """The rounds that these writes complete."""
        if not self._writing:
            return []
        done = _partitions(groups)
        for each in self._writing:
            each.unwritten -= done
        complete = [each for each in self._writing if not each.unwritten]
        self._writing = [each for each in self._writing if each.unwritten]
        for each in complete:
            each.written_at = now
            self.on_written(each)
        return complete

    def tell(self, each: Round, now: Callable[[], float]) -> Callable[[], None]:
        """One more broker has to be told of `each`; call what is returned when it has answered."""
        each.untold += 1

        def told() -> None:
            each.untold -= 1
            if each.untold == 0:
                each.told_at = now()
                self.on_told(each)

        return told


def _partitions(groups: Iterable[WriteGroup]) -> set[TopicPartition]:
    """Of which these groups write a state."""
    found = set()
    for group in groups:
        if isinstance(group, StateWrite):
            found.add(group.tp)
        elif isinstance(group, ReassignmentWrite):
            found.update(each.tp for each in group.states)
    return found
