"""`tidelog pipeline`: jobs on Spark over the topics of a cluster."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError, as_bad_input
from tidelog.cli.show import Format, FormatOption, note, print_json, print_table
from tidelog.pipeline.jobs.flags import AGGREGATE, INGEST, SESSION, Flag, Given, Takes

if TYPE_CHECKING:
    from tidelog.config import ClientSettings
    from tidelog.pipeline.jobs.streaming import Job

app = typer.Typer(no_args_is_help=True, add_completion=False)
run = typer.Typer(help="Run a job until it is done, or until Ctrl-C.", no_args_is_help=True)
app.add_typer(run, name="run")

_TYPES = {Takes.ONE: str | None, Takes.MANY: list[str] | None, Takes.PAIRS: list[str] | None, Takes.NOTHING: bool}
_TOPICS: Final = ("topic", "to")
"""Flags whose value is a topic's name."""


def _takes(flags: Sequence[Flag]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of a job's table; they reach it as `given`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                flag.identifier,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if flag.takes is Takes.NOTHING else None,
                annotation=Annotated[
                    _TYPES[flag.takes],
                    typer.Option(
                        f"--{flag.name}",
                        metavar=flag.metavar or None,
                        help=flag.about,
                        autocompletion=completion.topics if flag.name in _TOPICS else None,
                    ),
                ],
            )
            for flag in flags
        ]
        parameters = [*made, *(p.replace(kind=p.KEYWORD_ONLY) for p in own)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


@run.command()
@connected
@_takes(INGEST)
def ingest(
    on: Connection,
    output_format: FormatOption = Format.TEXT,
    **given: Any,
) -> None:
    """Keep topics as Parquet files in folders, each record exactly once however often the job is killed and run again.

    Spark reads the files of finished micro-batches only. Other readers also see what a killed run has left.

    Example: tidelog pipeline run ingest --topic events --output data/lake --once
    """
    from tidelog.pipeline.jobs.plans import ingest_plan

    with as_bad_input():
        plan = ingest_plan(_given(given))
    _run(lambda: _jobs("ingest").Ingest(plan), on.settings(), output_format)


@run.command()
@connected
@_takes(AGGREGATE)
def aggregate(
    on: Connection,
    output_format: FormatOption = Format.TEXT,
    **given: Any,
) -> None:
    """Count and add up records in windows of event time, and write the results to a topic as JSON.

    Example: tidelog pipeline run aggregate --topic events --to per-minute --window '1 minute' --group-by .city
    --sum .amount --checkpoint data/per-minute
    """
    from tidelog.pipeline.jobs.plans import aggregate_plan

    with as_bad_input():
        plan = aggregate_plan(_given(given))
    _run(lambda: _jobs("aggregate").Aggregate(plan), on.settings(), output_format)


@run.command()
@_takes(SESSION)
def audit(
    directories: Annotated[list[Path], typer.Argument(metavar="RUN_DIR", help="What chaos runs have left.")],
    output_format: FormatOption = Format.TEXT,
    **given: Any,
) -> None:
    """Judge chaos runs by the rules of the checker, all of them in one go. Exit codes as of `tidelog chaos check`, the worst.

    Example: tidelog pipeline run audit data/chaos/row-01-kill-leader-1
    """
    from tidelog.pipeline.jobs.plans import run_of

    with as_bad_input():
        run = run_of(_given(given))
    module = _jobs("audit.runs")
    from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT
    from tidelog.chaos.checking import CannotCheck
    from tidelog.chaos.history import HistoryDamaged
    from tidelog.cli import pipeline_audit
    from tidelog.pipeline.jobs.driver import JobError, spark_of

    steps = pipeline_audit.Steps(quiet=output_format is Format.JSON)
    try:
        runs = [module.open_run(directory, steps) for directory in directories]
        with spark_of(run, "tidelog-audit", module.SETTINGS) as spark:
            judged = module.judge_runs(spark, runs, steps)
    except (CannotCheck, HistoryDamaged) as error:
        raise CommandError(str(error), EXIT_NO_VERDICT) from None
    except JobError as error:
        raise CommandError(str(error)) from None
    if output_format is Format.JSON:
        print_json(pipeline_audit.as_json(judged))
    else:
        pipeline_audit.print_judged(judged)
    raise typer.Exit(pipeline_audit.exit_code(judged))


@app.command()
@_takes(SESSION)
def query(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The output of an ingest.")],
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Of Spark; the table is named records.")],
    rows_max: Annotated[int, typer.Option("--rows-max", min=1, help="Print no more.")] = 100,
    output_format: FormatOption = Format.TEXT,
    **given: Any,
) -> None:
    """Ask what an ingest has written, each record once, with SQL.

    Example: tidelog pipeline query data/lake "SELECT partition, count(*) FROM records GROUP BY 1 ORDER BY 1"
    """
    from tidelog.pipeline.jobs.finished import NothingFinished, check_local_output
    from tidelog.pipeline.jobs.plans import run_of

    try:
        with as_bad_input():
            run = run_of(_given(given))
            check_local_output(directory, run.conf)
    except NothingFinished as error:
        raise CommandError(str(error)) from None
    module = _jobs("query")
    from tidelog.cli.pipeline_screen import Screen
    from tidelog.pipeline.jobs.driver import JobError

    as_json = output_format is Format.JSON
    try:
        with as_bad_input(), Screen("query", quiet=as_json) as screen:
            answer = module.query(run, directory, sql, rows_max, as_json=as_json, phase=screen.phase)
    except JobError as error:
        raise CommandError(str(error)) from None
    if as_json:
        print_json(answer.rows)
    else:
        print_table(answer.columns, answer.rows)
    if answer.more:
        note(f"and more rows; --rows-max is {rows_max}")


def _given(options: dict[str, Any]) -> Given:
    """The options that were given."""
    return {name: value for name, value in options.items() if value not in (None, False, [], ())}


def _jobs(name: str) -> Any:
    """The module of a job; only now, because it loads Spark."""
    from importlib import import_module

    try:
        return import_module(f"tidelog.pipeline.jobs.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tidelog"):
            raise
        raise CommandError(
            f"{error.name} is missing; jobs need the extra spark: pip install 'tidelog[spark]'"
        ) from None


def _run(job_of: "Callable[[], Job]", settings: "ClientSettings", output: Format) -> None:
    with as_bad_input():
        job = job_of()
    from tidelog.cli.pipeline_screen import Screen, print_totals
    from tidelog.pipeline.jobs.driver import JobError
    from tidelog.pipeline.jobs.streaming import run_job

    try:
        with as_bad_input(), Screen(job.name, quiet=output is Format.JSON) as screen:
            totals, stopped = run_job(job, settings.bootstrap_servers, screen)
    except JobError as error:
        raise CommandError(str(error)) from None
    if output is Format.JSON:
        print_json(totals.as_json())
    else:
        print_totals(totals)
    if stopped is not None and job.plan.run.once:
        raise typer.Exit(128 + stopped)  # there is more to do
