"""`tidelog chaos`: break a cluster on purpose, and be told what became of every record."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import parse
from tidelog.cli.errors import CommandError, as_bad_input
from tidelog.cli.show import Format, FormatOption, note, print_json, print_table

if TYPE_CHECKING:
    from tidelog.chaos.clusters import Clusters
    from tidelog.chaos.launch import Order, Outcome
    from tidelog.chaos.scenario import Scenario

app = typer.Typer(no_args_is_help=True, add_completion=False)

RANDOM: Final = "row-37-random-mix"

OnOption = Annotated[str, typer.Option("--on", metavar="local|compose", help="Own processes, or running containers.")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Draws as another run did. Default: a new one.")]
DurationOption = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Like 20s or 5m, instead of the scenario's own.")
]
ColumnOption = Annotated[
    str,
    typer.Option(
        "--column",
        metavar="all/2|all/1",
        help="Of the matrix: replicas that acks=all needs at least. all/1 plays with a topic whose min ISR is 1.",
    ),
]
ProjectOption = Annotated[str, typer.Option("--project", help="Compose project, with --on compose.")]
DirOption = Annotated[
    Path | None, typer.Option("--dir", help="Where the run's files go. Default: data/chaos/NAME-NUMBER.")
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep", help="Leave the data and logs of the local cluster's processes in the run's directory."),
]
RunArgument = Annotated[Path, typer.Argument(metavar="DIR", help="What a run has left.")]


@app.command("list")
def list_(output: FormatOption = Format.TEXT) -> None:
    """Show every scenario: name, row of the fault matrix, where it runs, and what it shows.

    Example: tidelog chaos list
    """
    from tidelog.chaos import scenario_file

    found = [scenario_file.load(scenario_file.find(name)) for name in scenario_file.names()]
    found.sort(key=lambda each: (each.row or 99, each.name))
    if output is Format.JSON:
        print_json([_described(each) for each in found])
        return
    rows = [(s.name, s.row or "-", ",".join(s.runs_in) or "simulator", s.title) for s in found]
    print_table(("NAME", "ROW", "ON", "SHOWS"), rows)


@app.command()
def show(name: Annotated[str, typer.Argument(metavar="NAME|FILE")]) -> None:
    """Print a scenario: what it does, what it promises, and its file.

    Example: tidelog chaos show row-01
    """
    from tidelog.chaos import scenario_file

    with as_bad_input():
        path = scenario_file.find(name)
        scenario_file.load(path)
    print(path.read_text("utf-8").rstrip())


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAME|FILE...", help="As `tidelog chaos list` names them.")],
    on: OnOption = "local",
    seed: SeedOption = None,
    duration: DurationOption = None,
    base: DirOption = None,
    keep: KeepOption = False,
    column: ColumnOption = "all/2",
    project: ProjectOption = "tidelog",
    output: FormatOption = Format.TEXT,
) -> None:
    """Play scenarios and judge them. Exits 0 if every promise was kept, 1 if not, 2 for bad input, 3 without a verdict.

    Example: tidelog chaos run row-01
    """
    orders = [_order(name, on, seed, duration, base, column) for name in names]
    if len(orders) > 1 and (base is not None or keep):
        raise CommandError("--dir and --keep are for one scenario at a time", 2)
    raise typer.Exit(_play(orders, keep, project, output))


@app.command()
def random(
    on: OnOption = "local",
    seed: SeedOption = None,
    duration: DurationOption = None,
    base: DirOption = None,
    keep: KeepOption = False,
    column: ColumnOption = "all/2",
    project: ProjectOption = "tidelog",
    output: FormatOption = Format.TEXT,
) -> None:
    """Row 37: every few seconds another random subset of faults, a quarter of the time none. Prints how to repeat it.

    Example: tidelog chaos random --duration 5m
    """
    raise typer.Exit(_play([_order(RANDOM, on, seed, duration, base, column)], keep, project, output))


@app.command()
def campaign(
    times: Annotated[int, typer.Option("--times", min=1, help="Runs of each, those of before included.")] = 1,
    on: OnOption = "local",
    results: Annotated[Path, typer.Option("--results", help="Where each result is appended.")] = Path(
        "data/chaos/results.jsonl"
    ),
    column: ColumnOption = "all/2",
    project: ProjectOption = "tidelog",
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Default: rows 1, 2, 8, 10, 12, 13, 17, 20, 22, 24, 25 and 37."),
    ] = None,
) -> None:
    """Play scenarios again and again, and print one table. What was interrupted goes on where it stood. BESIDE-LOAD is the median
    of what a run took beside its load and faults: to set up, heal, read everything back and judge.

    Example: tidelog chaos campaign --times 10
    """
    from tidelog.chaos import campaign as plan
    from tidelog.chaos import scenario_file
    from tidelog.chaos.checker.verdict import worst

    chosen = names or [
        name for name in scenario_file.names() if scenario_file.load(scenario_file.find(name)).row in plan.FIRST_ROWS
    ]
    chosen = [_order(name, on, column=column).scenario.name for name in chosen]
    left = plan.to_come(chosen, times, plan.of(plan.read(results), chosen, on, column))

    def keep_result(outcome: "Outcome") -> None:
        plan.append(results, plan.Result.of(outcome))

    orders = [_order(name, on, column=column) for name in left]
    exit_code = _play(orders, False, project, Format.TEXT, keep_result) if orders else 0
    done = plan.of(plan.read(results), chosen, on, column)
    columns = ("ROW", "NAME", "RUNS", "SOUND", "GAP-MEDIAN", "GAP-WORST", "BESIDE-LOAD")
    print_table(columns, plan.table(chosen, done))
    broken = [result for result in done if result.exit_code]
    for result in broken:
        note(f"{result.name}: {result.said} ({result.directory})")
    raise typer.Exit(worst([exit_code, *(result.exit_code for result in broken)]))


@app.command()
def check(directory: RunArgument, output: FormatOption = Format.TEXT) -> None:
    """Judge a run again from its files, and write its verdict and its page anew; one that was cut off is judged up to there.
    Exit codes as of `run`.

    Example: tidelog chaos check data/chaos/row-01-kill-leader-1
    """
    from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT
    from tidelog.chaos.checking import CannotCheck, save_verdict
    from tidelog.chaos.history import HistoryDamaged
    from tidelog.chaos.report.page import write_report
    from tidelog.chaos.run_files import judge

    try:
        verdict = judge(directory)
    except (CannotCheck, HistoryDamaged) as error:
        raise CommandError(str(error), EXIT_NO_VERDICT) from None
    if output is Format.JSON:
        print_json(verdict.to_json())
    else:
        from tidelog.cli.chaos_screen import print_verdict

        print_verdict(verdict)
    try:
        save_verdict(directory, verdict)
        write_report(directory)
    except OSError as error:
        note(f"verdict and page are as they were: {error}")
    raise typer.Exit(verdict.exit_code)


@app.command()
def report(
    directory: RunArgument,
    with_steps: Annotated[
        bool, typer.Option("--steps", help="Write steps.html too: the cluster and its protocol events, in one picture.")
    ] = False,
) -> None:
    """Write the page of a run anew, report.html: it needs no network, and a browser opens it as it is.

    Example: tidelog chaos report data/chaos/row-01-kill-leader-1 --steps
    """
    from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT
    from tidelog.chaos.checking import CannotCheck
    from tidelog.chaos.history import HistoryDamaged
    from tidelog.chaos.report.page import write_report
    from tidelog.chaos.report.steps_page import write_steps

    try:
        if with_steps:
            print(write_steps(directory))
        print(write_report(directory))
    except (CannotCheck, HistoryDamaged) as error:
        raise CommandError(str(error), EXIT_NO_VERDICT) from None


@app.command()
def steps(
    directory: RunArgument,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="TOPIC-N", help="Only its events, and what led to them.")
    ] = None,
) -> None:
    """Print the protocol events of a run, a line each, with the seconds since the run began.

    Example: tidelog chaos steps data/chaos/row-01-kill-leader-1
    """
    from tidelog.chaos.steps import of_partition, read_events

    try:
        events = read_events(directory)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if not events:
        raise CommandError(f"{directory} holds no protocol events: `tidelog chaos run` keeps them since release 0.3.0")
    if partition is not None:
        events = of_partition(events, parse.partition("--partition", partition))
    width = max((len(event.name.process) for event in events), default=0)
    for event in events:
        print(f"{event.t:10.3f}  {event.name.process:<{width}}  {event.text}")


def _order(
    name: str,
    on: str,
    seed: int | None = None,
    duration: str | None = None,
    base: Path | None = None,
    column: str = "all/2",
) -> "Order":
    from tidelog.chaos.faults.base import On
    from tidelog.chaos.launch import order
    from tidelog.chaos.scenario import Column

    if on not in list(On):
        raise CommandError(f"--on {on!r} is none of {', '.join(On)}", 2)
    if column not in list(Column):
        raise CommandError(f"--column {column!r} is none of {', '.join(Column)}", 2)
    seconds = None if duration is None else parse.seconds("--duration", duration)
    if seconds is not None and seconds <= 0:
        raise CommandError(f"--duration {duration!r}: a run takes some time", 2)
    with as_bad_input():
        return order(name, On(on), seed, seconds, base, Column(column))


def _play(
    orders: "Sequence[Order]",
    keep: bool,
    project: str,
    output: Format,
    on_outcome: "Callable[[Outcome], None]" = lambda outcome: None,
) -> int:
    """The worst of their exit codes. `on_outcome` gets each as it comes."""
    from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT, worst
    from tidelog.chaos.faults.base import ends_as_interrupt
    from tidelog.chaos.launch import launch, next_directory
    from tidelog.chaos.metrics import ChaosMetrics
    from tidelog.chaos.yaml_nodes import ScenarioError
    from tidelog.cli.chaos_screen import Screen
    from tidelog.cluster.api import ClusterError
    from tidelog.runtime.clock import SystemClock

    clock, metrics, exit_codes = SystemClock(), ChaosMetrics(), []
    if keep and orders[0].directory is None:  # the cluster stands beside the run
        orders = [replace(orders[0], directory=next_directory(orders[0].scenario.name)), *orders[1:]]
    try:
        with (
            as_bad_input(ScenarioError),
            ends_as_interrupt(),
            _clusters(orders[0], keep, project) as clusters,
            metrics.served(clusters.scrape_targets, note),
        ):
            for each in orders:
                with Screen(clock, each, quiet=output is Format.JSON) as screen:
                    outcome = launch(each, clusters, clock, screen, metrics)
                on_outcome(outcome)
                _report(outcome, each, output)
                exit_codes.append(outcome.exit_code)
    except (ClusterError, OSError) as error:
        raise CommandError(f"no verdict: {error}", EXIT_NO_VERDICT) from None
    return worst(exit_codes)


def _clusters(order: "Order", keep: bool, project: str) -> "Clusters":
    from tidelog.chaos.clusters import ComposeClusters, LocalClusters
    from tidelog.chaos.faults.base import On

    if order.on is On.COMPOSE:
        return ComposeClusters(Path.cwd(), project)
    return LocalClusters(order.directory / "cluster" if keep and order.directory is not None else None)


def _report(outcome: "Outcome", order: "Order", output: Format) -> None:
    from tidelog.cli.chaos_screen import print_outcome

    if output is Format.JSON:
        verdict = None if outcome.verdict is None else outcome.verdict.to_json()
        print_json(
            {"directory": str(outcome.directory), "ended": outcome.file.ended, "seed": order.seed, "verdict": verdict}
        )
    else:
        print_outcome(outcome)


def _described(scenario: "Scenario") -> dict[str, Any]:
    return {
        "name": scenario.name,
        "row": scenario.row,
        "runsIn": list(scenario.runs_in),
        "title": scenario.title,
        "about": scenario.about,
        "simulator": scenario.simulator,
        "durationSeconds": scenario.duration_s,
    }
