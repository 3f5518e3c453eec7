"""Histories of any number of runs, judged by one set of queries; a row of each result carries its run.

Only what a verdict holds comes to the driver: counts, the first few places of each rule, gaps, sums.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.tables import ACKS
from tidelog.chaos.checker.verdict import Gap
from tidelog.ids import TopicPartition
from tidelog.pipeline.jobs.audit import availability, cycles, findings, stats, tables
from tidelog.pipeline.jobs.audit.contents import contents
from tidelog.pipeline.jobs.audit.groups import groups
from tidelog.pipeline.jobs.audit.replicas import replicas_differ
from tidelog.pipeline.jobs.audit.sessions import sessions
from tidelog.pipeline.jobs.audit.told import Finding, PollFacts, ValueFacts, told, told_cycle
from tidelog.pipeline.jobs.audit.verdicts import Found, Sums, in_force, longest_gap
from tidelog.pipeline.jobs.audit.watermarks import watermarks

Say = Callable[[str, int], None]
"""Told of each step that is done, and how many rows it made."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """The first record of a history that no client can have made."""

    line: int
    why: str


@dataclass(slots=True)
class Audit:
    """`found` by run; a run with an impossible history is in `impossible` alone."""

    found: dict[int, Found] = field(default_factory=dict)
    impossible: dict[int, Impossible] = field(default_factory=dict)


_PROMISED: Final = "run int, idempotent boolean, in_hand_max int, records_expire boolean"


def audit(history: DataFrame, promises: Mapping[int, Promise], replicas: DataFrame | None, say: Say) -> Audit:
    """`history`: `run` and `seq` (the number of the record in its run, from 0) and the columns of a Parquet history.

    `replicas`: see REPLICAS_SCHEMA; a run that has no rows there was not asked for its replicas.
    """

    def keep(what: str, frame: DataFrame) -> DataFrame:
        # Without its plan: one rule's plan on top of all those below it takes Spark minutes to think about.
        made = frame.localCheckpoint()
        say(what, made.count())
        return made

    spark = history.sparkSession
    promised = spark.createDataFrame(
        [(run, of.idempotent, of.uncommitted_max, of.records_expire) for run, of in promises.items()], _PROMISED
    )
    return _judge(spark, tables.build(history, promised, keep), promises, replicas, say)


def _judge(
    spark: SparkSession, of: tables.Tables, promises: Mapping[int, Promise], replicas: DataFrame | None, say: Say
) -> Audit:
    impossible = {
        row.run: Impossible(row.first.seq + 1, _why(row.first)) for row in tables.nonsense(of.attempts).collect()
    }
    result = Audit({run: Found() for run in promises if run not in impossible}, impossible)
    families = {"contents": contents(of), "sessions": sessions(of), "watermarks": watermarks(of), "groups": groups(of)}
    if replicas is not None:
        families["replicas"] = iter((replicas_differ(replicas, of.runs),))
    for name, frames in families.items():
        rows = sorted(findings.told([*frames]).collect(), key=lambda row: (row.run, row.rule, row.number))
        say(f"findings about {name}", len(rows))
        _tell(result, _looked_up(spark, of, rows))
    found = cycles.cycles(of).collect()
    say("cycles", len(found))
    _tell_cycles(result, found)
    _add_gaps(result, of)
    _add_sums(result, of)
    return result


def _why(first: Row) -> str:
    return (
        f"the value {first.value!r} is sent a second time, so no reader can say which send it has seen",
        f"the id {first.id} is in use by the send of {first.value!r}",
        f"id {first.id} is completed, and no send with it is open",
    )[first.what]


def _looked_up(spark: SparkSession, of: tables.Tables, rows: Sequence[Row]) -> list[tuple[int, int, Finding]]:
    """(run, count, finding) of each row."""
    wanted = {(row.run, row.k, name) for row in rows for name in row.names}
    values = _values(spark, of, wanted)
    seqs = {(row.run, seq) for row in rows for seq in row.polls}
    seqs |= {(run, facts.read_seq) for (run, _, _), facts in values.items() if facts.read_seq is not None}
    polls: dict[int, dict[int, PollFacts]] = defaultdict(dict)
    if seqs:
        asked = F.broadcast(spark.createDataFrame(sorted(seqs), "run int, seq bigint"))
        for row in of.history.select("run", "seq", "id", "process", "t").join(asked, ["run", "seq"]).collect():
            polls[row.run][row.seq] = PollFacts(row.id, row.process, row.t)
    keys = {(row.run, row.k): TopicPartition(row.topic, row.partition) for row in of.keys.collect()} if rows else {}
    return [
        (
            row.run,
            row["count"],
            Finding(
                row.rule,
                row.by2,
                keys.get((row.run, row.k)),
                row.t,
                [values[row.run, row.k, name] for name in row.names],
                [polls[row.run][seq] for seq in row.polls],
                row.numbers,
                row.words,
                polls[row.run],
            ),
        )
        for row in rows
    ]


def _values(
    spark: SparkSession, of: tables.Tables, wanted: Iterable[tuple[int, int, str]]
) -> dict[tuple[int, int, str], ValueFacts]:
    if not (names := sorted(wanted)):
        return {}
    asked = F.broadcast(spark.createDataFrame(names, "run int, k int, value string"))
    by = ["run", "k", "value"]
    at = of.log.join(asked, by).groupBy(*by).agg(F.collect_list("offset").alias("offsets"))
    found = of.values.join(asked, by).join(at, by, "left").collect()
    return {
        (row.run, row.k, row.value): ValueFacts(
            row.value,
            row.place,
            row.sent,
            row.id,
            row.process,
            row.began,
            row.ended,
            row.acked,
            row.acked_at,
            row.offset,
            row.offsets or (),
            row.read_seq,
        )
        for row in found
    }


def _tell(result: Audit, found: Iterable[tuple[int, int, Finding]]) -> None:
    """In the order of the findings."""
    for run, count, each in found:
        if run in result.found:
            _, examples = result.found[run].rules.setdefault(each.rule, (count, []))
            examples.append(told(each))


def _tell_cycles(result: Audit, rows: Iterable[Row]) -> None:
    for row in sorted(rows, key=lambda row: (row.run, row.number)):
        if row.run in result.found:
            _, examples = result.found[row.run].rules.setdefault(row.rule, (row["count"], []))
            examples.append(told_cycle(row.nodes, row.t, row.operations))


def _add_gaps(result: Audit, of: tables.Tables) -> None:
    faults: dict[int, list[Any]] = defaultdict(list)
    for row in sorted(availability.faults(of).collect(), key=lambda row: (row.run, row.seq)):
        faults[row.run].append((row.name, row.began, row.healed_at))
    lines = of.of_runs(availability.gaps(of).join(F.broadcast(of.keys), ["run", "k"]), "load_ended_at").collect()
    for row in sorted(lines, key=lambda row: (row.run, row.k, ACKS.index(row.acks))):
        if row.run in result.found:
            until = max(row.heard, -1.0 if row.load_ended_at is None else row.load_ended_at)
            began, ended, over = longest_gap(row.began, row.ended, row.since, until)
            names = in_force(faults[row.run], began, ended)
            gap = Gap(row.topic, row.partition, row.acks, began, ended, over, names)
            result.found[row.run].gaps.append(gap)


def _add_sums(result: Audit, of: tables.Tables) -> None:
    sent = of.sends.groupBy("run").agg(
        F.count(F.lit(1)).alias("sends"),
        F.count(F.when(F.col("acked"), 1)).alias("acked"),
        F.count(F.when(F.col("refused"), 1)).alias("refused"),
    )
    finals = of.readers.filter("not crashed").groupBy("run").agg(F.count(F.lit(1)).alias("final_readers"))
    partitions = of.keys.groupBy("run").agg(F.count(F.lit(1)).alias("partitions"))
    lags = stats.worst_lags(of)
    whole = reduce(lambda one, other: one.join(other, "run", "left"), (sent, finals, partitions, lags), of.runs)
    for row in whole.fillna(0).collect():
        if row.run in result.found:
            result.found[row.run].sums = Sums(
                records=row.records,
                ended_at=row.ended_at,
                last_is_end=row.last_is_end,
                ended=row.complete,
                final_read=row.final_read,
                has_values=row.has_values,
                has_group=row.has_group,
                has_members=row.has_members,
                polls=row.polls,
                records_read=row.records_read,
                sends=row.sends,
                acked=row.acked,
                refused=row.refused,
                partitions=row.partitions,
                final_readers=row.final_readers,
                worst_lag_s=max(0.0, row.lag),
            )
    for row in sorted(stats.unseen_over_time(of).collect(), key=lambda row: (row.run, row.t)):
        if row.run in result.found:
            result.found[row.run].unseen_over_time.append((row.t, row.unseen))
