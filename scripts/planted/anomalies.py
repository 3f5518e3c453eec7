"""The table of anomalies: which row each belongs to, how it comes into a run, and what a judge has to say of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planted.run_directory import RunDirectory
from planted.world import World

SOUND: Final = 0
BROKEN: Final = 1
NO_VERDICT: Final = 3
Plant = Callable[[World], None]
Spoil = Callable[[RunDirectory], None]


class NeverHappened(Exception):
    """The run gives no occasion for an anomaly."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    row: str
    name: str
    """The case within the row."""
    plant: Plant | None
    """Before the run is played."""
    spoil: Spoil | None
    """Before its files are written."""
    named: tuple[str, ...]
    """Rules, promises or reasons, of which a judge must name one; none: the exit code says it all."""
    exit_code: int = BROKEN
    hides: bool = False
    """It takes away what would show another one."""


CATALOGUE: Final[list[Anomaly]] = []


def in_world(
    row: str, case: str, *named: str, exit_code: int = BROKEN, hides: bool = False
) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        CATALOGUE.append(Anomaly(row, case, plant, None, named, exit_code, hides))
        return plant

    return add


def in_files(
    row: str, case: str, *named: str, exit_code: int = BROKEN, hides: bool = False
) -> Callable[[Spoil], Spoil]:
    def add(spoil: Spoil) -> Spoil:
        CATALOGUE.append(Anomaly(row, case, None, spoil, named, exit_code, hides))
        return spoil

    return add
