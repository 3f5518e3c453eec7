"""The answers of two judges of the same histories: the plain checker, and the audit on Spark, which gets all of them at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.recorded_histories import Recorded
from tidelog.chaos.checker.check import check, verdict
from tidelog.chaos.checker.routing import Nonsense
from tidelog.chaos.history import HistoryDamaged, HistoryWriter
from tidelog.chaos.history_parquet import read_whole, write_parquet
from tidelog.pipeline.jobs.audit.partitions import Parts, judge_partitions
from tidelog.pipeline.jobs.audit.runs import read_histories

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
    files, impossible = _write(histories, folder)
    wholes = {run: whole for run, path in files.items() if (whole := read_whole(path)) is not None}
    promises = {run: (histories[run].promise, whole.ended) for run, whole in wholes.items()}
    found = judge_partitions(read_histories(spark, files), promises)
    return [
        impossible[run] if run in impossible else _audited(history, wholes[run], found.get(run, Parts()))
        for run, history in enumerate(histories)
    ]


def _audited(history: Recorded, whole: Any, found: Parts) -> Answer:
    if found.impossible is not None:
        return found.impossible[1]
    return verdict(found.parts, whole, history.promise, history.replicas).to_json()


def _write(histories: Sequence[Recorded], folder: Path) -> tuple[Mapping[int, Path], Mapping[int, str]]:
    """Each history's file, or why no client can have made it, by its number."""
    files, impossible = {}, {}
    for run, history in enumerate(histories):
        lines, path = folder / f"{run}.jsonl", folder / f"{run}.parquet"
        with HistoryWriter(lines) as writer:
            for record in history.records:
                writer.append(record)
        try:
            write_parquet(lines, path)
            files[run] = path
        except HistoryDamaged as error:
            impossible[run] = str(error).partition(": ")[2]
    return files, impossible


def differences(one: Answer, other: Answer) -> list[str]:
    """In words; nothing when they are the same."""
    if isinstance(one, str) or isinstance(other, str):
        return [] if one == other else [f"{one} / {other}"]
    found = [f"{key}: {one[key]} / {other[key]}" for key in one if key != "anomalies" and one[key] != other[key]]
    rules, others = one["anomalies"], other["anomalies"]
    return found + [
        f"{rule}: {rules.get(rule)} / {others.get(rule)}"
        for rule in rules.keys() | others.keys()
        if rules.get(rule) != others.get(rule)
    ]
