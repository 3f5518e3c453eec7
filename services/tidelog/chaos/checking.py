"""A run's directory, to its verdict: reads history.jsonl, the promise in run.json, and replicas.json where there is one."""

import json
from pathlib import Path
from typing import Any, Final

from tidelog.chaos.checker.check import Checker
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas
from tidelog.chaos.checker.routing import Nonsense
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.history import HistoryDamaged, HistoryReader
from tidelog.errors import TidelogError

HISTORY: Final = "history.jsonl"
PARQUET: Final = "history.parquet"
RUN: Final = "run.json"
REPLICAS: Final = "replicas.json"
VERDICT: Final = "verdict.json"


class CannotCheck(TidelogError):
    """There is no verdict: a file of the run is missing, or makes no sense."""


def check_run(directory: Path, replicas: list[PartitionReplicas] | None) -> Verdict:
    """CannotCheck, HistoryDamaged. Promises about other things than the history are not in it."""
    if not (directory / HISTORY).is_file():
        raise CannotCheck(f"{directory} has no {HISTORY}: is it the directory of a run?")
    return check_history(directory / HISTORY, read_promise(directory / RUN), replicas)


def check_history(path: Path, promise: Promise, replicas: list[PartitionReplicas] | None = None) -> Verdict:
    """HistoryDamaged."""
    checker, reader = Checker(promise), HistoryReader(path)
    try:
        checker.take(reader)
    except Nonsense as error:
        raise HistoryDamaged(path, reader.lines, str(error)) from error
    return checker.verdict(replicas, path.name)


def save_verdict(directory: Path, verdict: Verdict) -> None:
    (directory / VERDICT).write_text(json.dumps(verdict.to_json(), indent=1) + "\n")


def read_promise(path: Path) -> Promise:
    """CannotCheck. A run that says nothing promised what everybody expects."""
    found = _read(path)
    try:
        return Promise() if found is None or found.get("promise") is None else Promise.from_json(found["promise"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CannotCheck(f"{path}: its promise makes no sense: {error}") from error


def read_replicas(path: Path) -> list[PartitionReplicas] | None:
    """None: the run has not read them. CannotCheck."""
    found = _read(path)
    try:
        return None if found is None else [PartitionReplicas.from_json(each) for each in found]
    except (KeyError, TypeError) as error:
        raise CannotCheck(f"{path}: it is no list of what replicas hold: {error}") from error


def _read(path: Path) -> Any:
    """None if there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CannotCheck(f"{path}: not JSON: {error}") from error
