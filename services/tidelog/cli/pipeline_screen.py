"""What a person sees of a job: where it is while it runs, and a table of its topics at the end."""

from types import TracebackType
from typing import Final, Self

from rich.progress import TextColumn, TimeElapsedColumn

from tidelog.cli.bar import Bar
from tidelog.cli.show import note, print_table
from tidelog.pipeline.jobs import progress as jobs
from tidelog.pipeline.jobs.progress import Totals

PARTITIONS_SHOWN: Final = 50


class Screen:
    """On a terminal one line that moves, elsewhere a line for each micro-batch; on the standard error."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        """`quiet`: nothing at all, for programs."""
        self._quiet = quiet
        self._bar = Bar(
            name, TextColumn("{task.fields[said]}", markup=False), TimeElapsedColumn(), quiet=quiet, said=""
        )
        self._name = name

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def phase(self, what: str) -> None:
        self._bar.show(description=f"{self._name}: {what}")
        self._note(f"{what} ...")

    def progressed(self, progress: jobs.Progress, totals: Totals) -> None:
        said = jobs.line(progress)
        total = totals.rows + totals.behind if progress.latest else None
        self._bar.show(completed=totals.rows, total=total, said=said)
        self._note(said)

    def _note(self, said: str) -> None:
        if not self._bar.moves and not self._quiet:
            note(f"{self._name}: {said}")


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
