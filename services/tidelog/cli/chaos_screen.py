"""What a person sees of a run: where it is while it goes on, and the verdict on one screen."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from tidelog.chaos.agents import listed
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.run_files import PLAYED
from tidelog.chaos.summary import Summary
from tidelog.ports.clock import Clock

if TYPE_CHECKING:
    from tidelog.chaos.chronicle import Chronicle
    from tidelog.chaos.launch import Order, Outcome

EXAMPLES_SHOWN: Final = 3
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
        self._console = Console(stderr=True, quiet=quiet)
        self._order = order
        self._began = clock.now()
        columns = (
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[time]}  {task.fields[rate]}  {task.fields[faults]}"),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("starting", total=1.0, time="", rate="", faults="")
        self._last = (clock.now(), 0)

    def __enter__(self) -> Self:
        scenario = self._order.scenario
        row = "" if scenario.row is None else f"row {scenario.row}: "
        self._console.print(
            f"[bold]{scenario.name}[/]  {row}{escape(scenario.title)}  (column {self._order.column}, seed {self._order.seed})"
        )
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            self._console.print("interrupted; every fault is healed")

    def say(self, what: str) -> None:
        at = self._clock.now() - self._began
        self._console.print(f"[dim]{at:6.1f} s[/]  {escape(what)}", highlight=False, soft_wrap=True)

    def phase(self, name: str) -> None:
        self._progress.update(self._task, description=PHASES.get(name, name))

    def tick(self, chronicle: "Chronicle", part: float, faults: Sequence[str]) -> None:
        now, acked = self._clock.now(), chronicle.acked
        before, acked_before = self._last
        rate = (acked - acked_before) / max(now - before, 1e-6)
        self._last = (now, acked)
        self._progress.update(
            self._task,
            completed=part,
            time=f"{chronicle.now():.0f} s",
            rate=f"{rate:,.0f} acks/s",
            faults=f"[red]{escape(', '.join(faults))}[/]" if faults else "[green]no fault[/]",
        )


def print_summary(summary: Summary, verdict: Verdict, title: str) -> None:
    """One table, and one for the group if one of its agents was killed."""
    console = Console()
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


def print_outcome(outcome: "Outcome") -> None:
    console = Console()
    if outcome.file.ended != PLAYED:
        console.print(f"[bold yellow]{escape(outcome.file.ended)}[/]", soft_wrap=True)
    if outcome.verdict is not None:
        print_verdict(outcome.verdict)
        file = outcome.file
        console.print(
            f"{file.acked:,} acknowledged, {file.seconds:.1f} s in all, overhead {file.overhead_s:.1f} s; "
            f"again with --seed {file.seed} --column {file.column}",
            highlight=False,
        )
    console.print(f"[dim]{outcome.directory}[/]", highlight=False, soft_wrap=True)


def print_verdict(verdict: Verdict) -> None:
    print_promises(verdict)
    print_conclusion(verdict)


def print_promises(verdict: Verdict) -> None:
    console = Console()
    table = Table("promise", "measured", "limit", "kept", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.columns[2].justify = "right"
    for promise in verdict.promises:
        kept = "[green]yes[/]" if promise.kept else "[bold red]NO[/]"
        table.add_row(escape(promise.text), escape(promise.measured), escape(promise.limit), kept)
    for name, anomaly in verdict.anomalies.items():
        if anomaly.count:
            kept = "[yellow]tolerated[/]" if anomaly.tolerated else "[bold red]NO[/]"
            table.add_row(name, f"{anomaly.count:,}", "none", kept)
    console.print(table)


def print_conclusion(verdict: Verdict) -> None:
    """Examples of what is wrong, notes, and the verdict in one line."""
    console = Console()
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
        console.print(f"[bold red]BROKEN[/]: {escape(', '.join([*bad, *broken]))}", highlight=False)
    else:
        console.print(
            "[bold yellow]NO VERDICT[/]: sound as far as it goes, but the history was cut off", highlight=False
        )
