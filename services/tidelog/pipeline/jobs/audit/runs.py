"""Directories of chaos runs, to the verdicts that `tidelog chaos check` gives of them, made by Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checking import HISTORY, PARQUET, REPLICAS, RUN, CannotCheck, read_promise
from tidelog.chaos.history import HistoryDamaged, HistoryReader
from tidelog.chaos.run_files import RunFile, beyond_rules, played
from tidelog.chaos.scenario import Scenario
from tidelog.pipeline.jobs.audit.audit import Audit, Say, audit
from tidelog.pipeline.jobs.audit.judged import Judged
from tidelog.pipeline.jobs.audit.paths import by_path, location
from tidelog.pipeline.jobs.audit.segments import replicas_of
from tidelog.pipeline.jobs.audit.verdicts import verdict

SETTINGS: Final = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "4g"}
"""For a session on one machine: a history of a million operations is small for Spark."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    directory: Path
    file: RunFile
    scenario: Scenario
    promise: Promise
    replicas_read: bool


def open_run(directory: Path, say: Say) -> RunDirectory:
    """Reads what is small, and sees to it that the history is there as Parquet. CannotCheck, HistoryDamaged, ScenarioError."""
    file = RunFile.read(directory)
    found = RunDirectory(
        directory,
        file,
        played(directory, file),
        read_promise(directory / RUN),
        (directory / REPLICAS).is_file(),
    )
    history, parquet = directory / HISTORY, directory / PARQUET
    if not history.is_file():
        raise CannotCheck(f"{directory} has no {HISTORY}: is it the directory of a run?")
    if not parquet.is_file() or history.stat().st_mtime > parquet.stat().st_mtime:
        _write(history, parquet, say)
    return found


def _write(history: Path, parquet: Path, say: Say) -> None:
    """Beside its place first: a history that makes no sense leaves no half of a file."""
    from tidelog.chaos.history_parquet import write_parquet

    reader, part = HistoryReader(history), parquet.with_suffix(".part")
    try:
        write_parquet(reader, part)
        part.replace(parquet)
    except OSError as error:
        raise CannotCheck(f"{parquet} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    say(f"{parquet.name} of {parquet.parent}", reader.lines)


def judge_runs(spark: SparkSession, runs: Sequence[RunDirectory], say: Say) -> list[Judged]:
    """CannotCheck when what replicas hold cannot be read; a pyspark error when a history cannot."""
    numbered = dict(enumerate(runs))
    history = read_histories(spark, {run: of.directory / PARQUET for run, of in numbered.items()})
    replicas = replicas_of(spark, {run: of.directory for run, of in numbered.items()})
    result = audit(history, {run: of.promise for run, of in numbered.items()}, replicas, say)
    return [_judged(run, of, result) for run, of in numbered.items()]


def read_histories(spark: SparkSession, files: Mapping[int, Path]) -> DataFrame:
    """All rows with `run` and `seq`, their number in their file."""
    frame = spark.read.parquet(*map(location, files.values()))
    numbered = frame.select("*", "_metadata").withColumn("seq", F.col("_metadata.row_index"))
    return by_path(numbered, files, "seq", *frame.columns)


def _judged(run: int, of: RunDirectory, result: Audit) -> Judged:
    if (impossible := result.impossible.get(run)) is not None:
        return Judged(of.directory, HistoryDamaged(of.directory / HISTORY, impossible.line, impossible.why))
    found = verdict(result.found[run], of.promise, replicas_read=of.replicas_read, history=HISTORY)
    return Judged(of.directory, beyond_rules(of.directory, of.file, of.scenario, found))
