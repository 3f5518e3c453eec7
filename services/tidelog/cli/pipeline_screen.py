"""What a person sees of a job: where it is while it runs, and a table of its topics at the end."""

import os
import sys
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidelog.cli.show import note, print_table
from tidelog.pipeline.jobs import progress as jobs
from tidelog.pipeline.jobs.progress import Totals

PARTITIONS_SHOWN: Final = 50


class Screen:
    """On a terminal one line that moves, elsewhere a line for each micro-batch; on the standard error."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        """`quiet`: nothing at all, for programs."""
        self._quiet = quiet
        self._terminal = _terminal()
        self._console = Console(stderr=True, file=self._terminal, quiet=quiet)
        self._moves = self._console.is_terminal
        columns = (
            SpinnerColumn("line" if self._console.options.ascii_only else "dots"),
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not self._moves)
        self._task = self._progress.add_task(name, total=None, said="")
        self._name = name

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._terminal is not None:
            self._terminal.close()

    def phase(self, what: str) -> None:
        self._progress.update(self._task, description=f"{self._name}: {what}")
        if not self._moves and not self._quiet:
            note(f"{self._name}: {what} ...")

    def progressed(self, progress: jobs.Progress, totals: Totals) -> None:
        said = jobs.line(progress)
        total = totals.rows + totals.behind if progress.latest else None
        self._progress.update(self._task, completed=totals.rows, total=total, said=said)
        if not self._moves and not self._quiet:
            note(f"{self._name}: {said}")


def _terminal() -> TextIO | None:
    """The standard error where it is a terminal, on a descriptor of its own: while Spark starts, the other one is its log."""
    return os.fdopen(os.dup(2), "w") if sys.stderr is not None and sys.stderr.isatty() else None


def print_totals(totals: Totals) -> None:
    """As `tidelog groups describe` shows a group; those furthest behind when there are many."""
    behind = sorted(totals.ends, key=lambda tp: (-totals.lag.get(tp, 0), tp))[:PARTITIONS_SHOWN]
    rows = [
        (
            tp.topic,
            tp.partition,
            end := totals.ends[tp],
            *((end + lag, lag) if (lag := totals.lag.get(tp)) is not None else "--"),
        )
        for tp in sorted(behind)
    ]
    if rows:
        print_table(("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"), rows)
    if len(totals.ends) > len(rows):
        note(f"and {len(totals.ends) - len(rows)} partitions with no greater lag")
    note(jobs.summary(totals) + ".")
