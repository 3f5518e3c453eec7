"""What a person sees of a run: where it is while it goes on, and the verdict on one screen."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidelog.chaos.agents import listed
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.run_files import PLAYED
from tidelog.chaos.steps import failovers
from tidelog.chaos.summary import Summary
from tidelog.cli.bar import Bar
from tidelog.ports.clock import Clock

if TYPE_CHECKING:
    from tidelog.chaos.chronicle import Chronicle
    from tidelog.chaos.launch import Order, Outcome

EXAMPLES_SHOWN: Final = 3
UNWRAPPED: Final = 1_000
"""Columns of a line where no terminal limits it."""
UNPROCESSED: Final = ("group-skipped", "group-unprocessed")
PHASES: Final = {
    "set-up": "setting up",
    "load": "under load",
    "heal": "healing",
    "final": "reading everything once more",
    "spark": "reading everything through Spark",
    "end": "comparing replicas",
    "verdict": "judging",
}


class Screen:
    """Steps on the standard error, below them one line that moves."""

    def __init__(self, clock: Clock, order: "Order", *, quiet: bool = False) -> None:
        """`quiet`: nothing at all, for programs."""
        self._clock = clock
        self._order = order
        self._began = clock.now()
        said = "{task.fields[time]}  {task.fields[rate]}  {task.fields[faults]}"
        self._bar = Bar("starting", said, quiet=quiet, time="", rate="", faults="")
        self._bar.show(total=1.0)
        self._console = self._bar.console
        self._last = (clock.now(), 0)

    def __enter__(self) -> Self:
        scenario = self._order.scenario
        row = "" if scenario.row is None else f"row {scenario.row}: "
        self._console.print(
            f"[bold]{scenario.name}[/]  {row}{escape(scenario.title)}  (column {self._order.column}, seed {self._order.seed})",
            soft_wrap=True,
        )
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        if isinstance(error, KeyboardInterrupt):
            self._console.print("interrupted; every fault is healed")

    def say(self, what: str) -> None:
        at = self._clock.now() - self._began
        self._console.print(f"[dim]{at:6.1f} s[/]  {escape(what)}", highlight=False, soft_wrap=True)

    def phase(self, name: str) -> None:
        self._bar.show(description=PHASES.get(name, name))

    def tick(self, chronicle: "Chronicle", part: float, faults: Sequence[str]) -> None:
        now, acked = self._clock.now(), chronicle.acked
        before, acked_before = self._last
        rate = (acked - acked_before) / max(now - before, 1e-6)
        self._last = (now, acked)
        self._bar.show(
            completed=part,
            time=f"{chronicle.now():.0f} s",
            rate=f"{rate:,.0f} acks/s",
            faults=f"[red]{escape(', '.join(faults))}[/]" if faults else "[green]no fault[/]",
        )


def _console() -> Console:
    """One that is as wide as the terminal; a file or a pipe gets each row on one line."""
    console = Console()
    if not console.is_terminal:
        console.width = UNWRAPPED
    return console


def print_summary(summary: Summary, verdict: Verdict, title: str) -> None:
    """One table, and one for the group if one of its agents was killed."""
    console = _console()
    table = Table("what", "how much", title=escape(title))
    table.columns[1].justify = "right"
    for row in summary.rows(verdict):
        table.add_row(*row)
    console.print(table)
    if (takeover := summary.takeover) is None:
        return
    heirs = ", ".join(name for name in takeover.after if name != takeover.victim)
    title = f"{takeover.victim} killed, taken over by {heirs} after {takeover.seconds:.2f} s"
    table = Table("what", *takeover.before, "all", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for what, owned in (("partitions before", takeover.before), ("partitions after", takeover.after)):
        table.add_row(what, *(listed(owned[name]) for name in takeover.before), "")
    counts = [summary.processed[name] for name in takeover.before]
    table.add_row("records processed", *(f"{count:,}" for count in counts), f"{sum(counts):,}")
    table.add_row("processed again", *("" for _ in counts), f"{summary.again:,}")
    missing = sum(verdict.anomalies[name].count for name in UNPROCESSED if name in verdict.anomalies)
    table.add_row("acknowledged and not processed", *("" for _ in counts), f"{missing:,}")
    console.print(table)


def print_failovers(directory: Path) -> None:
    """Print what the cluster did between each fault and the first acknowledgement of a new leader."""
    console = _console()
    for failover in failovers(directory):
        table = Table(
            "after", "process", "step", title=escape(f"{failover.fault}: {failover.tp} until it acknowledges again")
        )
        table.columns[0].justify = "right"
        for step in failover.steps:
            table.add_row(failover.after(step), step.name.process, escape(step.text))
        console.print(table)
    console.print(f"All steps: tidelog chaos steps {escape(str(directory))}", highlight=False, soft_wrap=True)


def print_outcome(outcome: "Outcome") -> None:
    console, file = _console(), outcome.file
    if file.ended != PLAYED:
        console.print(f"[bold yellow]{escape(file.ended)}[/]", soft_wrap=True)
    if outcome.verdict is not None:
        print_verdict(outcome.verdict)
        played_s = min(file.duration_s, file.seconds)
        console.print(
            f"{file.acked:,} records acknowledged. The run took {played_s + file.overhead_s:.1f} s: {played_s:.1f} s of load and "
            f"faults, {file.overhead_s:.1f} s to set up, heal, read everything back and judge.\n"
            f"The same draws again: --seed {file.seed} --column {file.column}",
            highlight=False,
        )
    print_kept(outcome.directory)


def print_kept(directory: Path) -> None:
    """Name the place of the run, and the way to delete it."""
    from tidelog.chaos.report.page import FILE_NAME  # with it comes Bokeh, which a run has loaded by now

    console = _console()
    if (directory / FILE_NAME).exists():
        console.print(
            f"The whole run on one page: {escape(str(directory / FILE_NAME))}", highlight=False, soft_wrap=True
        )
    console.print(
        f"[dim]Kept in {escape(str(directory))}. `rm -r` of that directory deletes this run, `make clean` every run.[/]",
        highlight=False,
        soft_wrap=True,
    )


def print_verdict(verdict: Verdict) -> None:
    print_promises(verdict)
    print_conclusion(verdict)


def print_promises(verdict: Verdict) -> None:
    """A line for each promise and each anomaly; on a terminal that is too narrow for it, what was measured stands below."""
    console = _console()
    rows = [(_kept(each.kept), each.text, each.measured, each.limit) for each in verdict.promises]
    for name, anomaly in verdict.anomalies.items():
        if anomaly.count:
            kept, limit = ("[yellow]tolerated[/]", "any") if anomaly.tolerated else (_kept(False), "0")
            rows.append((kept, f"anomaly {name}", f"{anomaly.count:,}", limit))
    table = Table("kept", "promise", "measured", "limit", box=None, pad_edge=False)
    for kept, *cells in rows:
        table.add_row(kept, *map(escape, cells))
    whole = console.options.update_width(UNWRAPPED)
    if console.measure(table, options=whole).maximum > console.width:
        table = Table.grid(padding=(0, 2, 0, 0))
        for kept, text, measured, limit in rows:
            table.add_row(kept, f"{escape(text)}\n[dim]measured {escape(measured)}; limit {escape(limit)}[/]")
    console.print(table)


def _kept(kept: bool) -> str:
    return "[green]yes[/]" if kept else "[bold red]NO[/]"


def print_conclusion(verdict: Verdict) -> None:
    """Examples of what is wrong, notes, and the verdict in one line."""
    console = _console()
    for name, anomaly in verdict.anomalies.items():
        for example in anomaly.examples[:EXAMPLES_SHOWN] if anomaly.bad else ():
            console.print(f"  [red]{name}[/] {escape(example.text)}", highlight=False, soft_wrap=True)
    for note in verdict.notes:
        console.print(f"  note: {escape(note)}", highlight=False, soft_wrap=True)
    judged = len(verdict.anomalies)
    if verdict.exit_code == 0:
        console.print(f"[bold green]SOUND[/]: none of {judged} anomalies, every promise kept", highlight=False)
    elif verdict.exit_code == 1:
        bad = [name for name, anomaly in verdict.anomalies.items() if anomaly.bad]
        broken = [promise.text for promise in verdict.promises if not promise.kept]
        console.print(f"[bold red]BROKEN[/]: {escape('; '.join([*bad, *broken]))}", highlight=False)
    else:
        console.print(
            "[bold yellow]NO VERDICT[/]: sound as far as it goes, but the history was cut off", highlight=False
        )
