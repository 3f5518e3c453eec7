"""Many runs: which are still to come, and the table of those that were. Pure but for the file of results."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final, Self

from tidelog.chaos.launch import Outcome
from tidelog.chaos.run_files import PLAYED
from tidelog.chaos.scenario import Column

RESULTS_FILE: Final = "results.jsonl"
FIRST_ROWS: Final = (1, 2, 8, 10, 12, 13, 17, 20, 22, 24, 25, 37)
"""Reliability 10: the order of work."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the file of results."""

    name: str
    row: int | None
    on: str
    seed: int
    exit_code: int
    gap_s: float | None
    """The longest time in which records waited and their partition acknowledged none; None: there was none, or no verdict."""
    overhead_s: float
    said: str
    """Why there is no verdict, or what was broken; empty if nothing was."""
    directory: str
    started_wall_ms: int
    column: str = Column.ALL_2.value

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        file, verdict = outcome.file, outcome.verdict
        broken: list[str] = []
        if verdict is not None:
            broken = [name for name, anomaly in verdict.anomalies.items() if anomaly.bad]
            broken += [f"{each.text}: {each.measured}" for each in verdict.promises if not each.kept]
        return cls(
            name=file.name,
            row=file.row,
            on=file.on,
            seed=file.seed,
            exit_code=outcome.exit_code,
            gap_s=max((gap.seconds for gap in verdict.gaps), default=None) if verdict is not None else None,
            overhead_s=file.overhead_s,
            said="; ".join(broken + ([file.ended] if file.ended != PLAYED else [])),
            directory=str(outcome.directory),
            started_wall_ms=file.started_wall_ms,
            column=file.column.value,
        )


def read(path: Path) -> list[Result]:
    """None if there is no such file yet; a line that was cut off in the middle is a run that is done once more."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(Result(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def append(path: Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or path.read_bytes().endswith(b"\n") or not path.stat().st_size
    with path.open("a", encoding="utf-8") as file:
        file.write(("" if whole else "\n") + json.dumps(asdict(result)) + "\n")


def of(done: Iterable[Result], names: Sequence[str], on: str, column: str) -> list[Result]:
    """Those runs that one table is made of."""
    return [each for each in done if each.name in names and (each.on, each.column) == (on, column)]


def to_come(names: Sequence[str], times: int, done: Iterable[Result]) -> list[str]:
    """Round by round, so that an interruption leaves every row with about as many runs."""
    counts = Counter(result.name for result in done)
    return [name for round_ in range(times) for name in names if counts[name] <= round_]


def table(names: Sequence[str], done: Sequence[Result]) -> list[Sequence[str]]:
    """ROW NAME RUNS SOUND GAP-MEDIAN GAP-WORST BESIDE-LOAD, a line a scenario."""
    rows: list[Sequence[str]] = []
    for name in names:
        mine = [result for result in done if result.name == name]
        if not mine:
            continue
        gaps = [result.gap_s for result in mine if result.gap_s is not None]
        sound = sum(result.exit_code == 0 for result in mine)
        rows.append(
            (
                str(mine[0].row or "-"),
                name,
                str(len(mine)),
                str(sound),
                f"{median(gaps):.2f} s" if gaps else "-",
                f"{max(gaps):.2f} s" if gaps else "-",
                f"{median(result.overhead_s for result in mine):.1f} s",
            )
        )
    return rows
