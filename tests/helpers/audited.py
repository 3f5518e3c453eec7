"""The answers of two judges of the same histories: the plain checker, and the audit on Spark, which gets all of them at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.recorded_histories import Recorded
from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.tables import Nonsense
from tidelog.chaos.history_parquet import write_parquet
from tidelog.pipeline.jobs.audit.audit import audit
from tidelog.pipeline.jobs.audit.replicas import REPLICAS_SCHEMA
from tidelog.pipeline.jobs.audit.verdicts import verdict

Answer = dict[str, Any] | str
"""A verdict as JSON, or why there is none."""


def plain_answers(histories: Sequence[Recorded]) -> list[Answer]:
    return [_plain(each) for each in histories]


def _plain(history: Recorded) -> Answer:
    try:
        return check(history.records, history.promise, history.replicas).to_json()
    except Nonsense as error:
        return str(error)


def audit_answers(spark: Any, histories: Sequence[Recorded], folder: Path) -> list[Answer]:
    frame = spark.read.parquet(str(_write(histories, folder)))
    replicas = spark.createDataFrame(_replicas(histories), f"run int, number int, {REPLICAS_SCHEMA}")
    promises = {run: history.promise for run, history in enumerate(histories)}
    result = audit(frame, promises, replicas, lambda what, rows: None)
    return [
        result.impossible[run].why
        if run in result.impossible
        else verdict(result.found[run], history.promise, replicas_read=history.replicas is not None).to_json()
        for run, history in enumerate(histories)
    ]


def _write(histories: Sequence[Recorded], folder: Path) -> Path:
    """One file of all, with the number of the history and of the record."""
    tables = []
    for run, history in enumerate(histories):
        write_parquet(history.records, folder / "one.parquet")
        table = pq.read_table(folder / "one.parquet")
        table = table.append_column("run", pa.array([run] * table.num_rows, pa.int32()))
        tables.append(table.append_column("seq", pa.array(range(table.num_rows), pa.int64())))
    pq.write_table(pa.concat_tables(tables), folder / "all.parquet")
    return folder / "all.parquet"


def _replicas(histories: Sequence[Recorded]) -> list[tuple[Any, ...]]:
    rows = []
    for run, history in enumerate(histories):
        for number, partition in enumerate(history.replicas or ()):
            logs = [
                (log.broker, log.log_start, log.log_end, [[str(part) for part in each] for each in log.stretches])
                for log in partition.replicas
            ]
            rows.append((run, number, partition.topic, partition.partition, partition.high_watermark, logs))
    return rows


def differences(one: Answer, other: Answer) -> list[str]:
    """In words; nothing when they are the same. Which of several cycles of one kind is told may differ: the rules do not say."""
    if isinstance(one, str) or isinstance(other, str):
        return [] if one == other else [f"{one} / {other}"]
    found = [f"{key}: {one[key]} / {other[key]}" for key in one if key != "anomalies" and one[key] != other[key]]
    rules, others = one["anomalies"], other["anomalies"]
    for rule in rules.keys() | others.keys():
        first, second = (_comparable(rule, each.get(rule)) for each in (rules, others))
        if first != second:
            found.append(f"{rule}: {first} / {second}")
    return found


def _comparable(rule: str, anomaly: dict[str, Any] | None) -> Any:
    if anomaly is not None and rule.startswith(("G0", "G1c")):
        return {**anomaly, "examples": len(anomaly["examples"])}
    if anomaly is not None and rule == "final-differs":  # readers of one key are told in no order
        return {**anomaly, "examples": sorted(each["text"] for each in anomaly["examples"])}
    return anomaly
