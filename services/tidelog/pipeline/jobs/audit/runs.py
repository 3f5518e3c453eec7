"""Directories of chaos runs, to the verdicts that `tidelog chaos check` gives of them, made by Spark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.chaos.checker.check import Whole, verdict
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog
from tidelog.chaos.checking import HISTORY, PARQUET, REPLICAS, RUN, CannotCheck, read_promise, read_replicas
from tidelog.chaos.history import HistoryDamaged
from tidelog.chaos.run_files import RunFile, beyond_rules, compared, played
from tidelog.chaos.scenario import Scenario
from tidelog.ids import TopicPartition
from tidelog.pipeline.jobs.audit.judged import Judged
from tidelog.pipeline.jobs.audit.partitions import Parts, judge_partitions
from tidelog.pipeline.jobs.audit.paths import by_path, location
from tidelog.pipeline.jobs.audit.segments import segments_of

SETTINGS: Final = {"spark.driver.memory": "4g"}
"""For a session on one machine."""
Say = Callable[[str, int], None]
"""Told of each step that is done, and how many rows it made."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    directory: Path
    file: RunFile
    scenario: Scenario
    promise: Promise
    whole: Whole
    replicas: Sequence[PartitionReplicas] | None


def open_run(directory: Path, say: Say) -> RunDirectory:
    """Reads what is small, and sees to it that the history is there as Parquet. CannotCheck, HistoryDamaged, ScenarioError."""
    file = RunFile.read(directory)
    scenario, promise = played(directory, file), read_promise(directory / RUN)
    replicas = read_replicas(directory / REPLICAS)
    history, parquet = directory / HISTORY, directory / PARQUET
    if not history.is_file():
        raise CannotCheck(f"{directory} has no {HISTORY}: is it the directory of a run?")
    return RunDirectory(directory, file, scenario, promise, _as_parquet(history, parquet, say), replicas)


def _as_parquet(history: Path, parquet: Path, say: Say) -> Whole:
    """The file is made if it is not there, or older than the history or its format: beside its place first, since a history that
    makes no sense leaves no half of a file."""
    from tidelog.chaos.history_parquet import read_whole, write_parquet

    if parquet.is_file() and history.stat().st_mtime <= parquet.stat().st_mtime and (found := read_whole(parquet)):
        return found
    part = parquet.with_suffix(".part")
    try:
        whole = write_parquet(history, part)
        part.replace(parquet)
    except OSError as error:
        raise CannotCheck(f"{parquet} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    say(f"{parquet.name} of {parquet.parent}", whole.lines)
    return whole


def judge_runs(spark: SparkSession, runs: Sequence[RunDirectory], say: Say) -> list[Judged]:
    """A pyspark error when a history cannot be read."""
    numbered = dict(enumerate(runs))
    history = read_histories(spark, {run: of.directory / PARQUET for run, of in numbered.items()})
    found = judge_partitions(history, {run: (of.promise, of.whole.ended) for run, of in numbered.items()})
    say("partitions judged", sum(len(each.parts) for each in found.values()))
    kept = segments_of(spark, {run: of.directory for run, of in numbered.items() if of.replicas is not None})
    say("replicas read", sum(len(logs) for of_run in kept.values() for logs in of_run.values()))
    return [_judged(of, found.get(run, Parts()), kept.get(run, {})) for run, of in numbered.items()]


def read_histories(spark: SparkSession, files: Mapping[int, Path]) -> DataFrame:
    """All rows with `run` and `seq`, their number in their file."""
    frame = spark.read.parquet(*map(location, files.values()))
    numbered = frame.select("*", "_metadata").withColumn("seq", F.col("_metadata.row_index"))
    return by_path(numbered, files, "seq", *frame.columns)


def _judged(of: RunDirectory, found: Parts, kept: Mapping[TopicPartition, Sequence[ReplicaLog]]) -> Judged:
    if found.impossible is not None:
        return Judged(of.directory, HistoryDamaged(of.directory / HISTORY, *found.impossible))
    replicas = of.replicas and [_with_segments(each, kept) for each in of.replicas]
    judged = verdict(found.parts, of.whole, of.promise, compared(of.file, replicas), HISTORY)
    return Judged(of.directory, beyond_rules(of.directory, of.file, of.scenario, replicas, judged))


def _with_segments(noted: PartitionReplicas, kept: Mapping[TopicPartition, Sequence[ReplicaLog]]) -> PartitionReplicas:
    logs = kept.get(TopicPartition(noted.topic, noted.partition))
    return noted if logs is None else replace(noted, replicas=tuple(logs))
