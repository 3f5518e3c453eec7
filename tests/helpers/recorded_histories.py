"""A pytest plugin that keeps every history the checker's own tests judge: `RECORD_TO=FILE pytest -p helpers.recorded_histories`.

Another implementation of the rules can then be asked about all of them at once.
"""

import os
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers import histories
from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.history import Record


class Recorded(NamedTuple):
    name: str
    """Of the test, and which of its histories."""
    records: tuple[Record, ...]
    promise: Promise
    replicas: tuple[PartitionReplicas, ...] | None


_recorded: list[Recorded] = []


def _check(
    records: Iterable[Record], promise: Promise | None = None, replicas: Sequence[PartitionReplicas] | None = None
) -> Verdict:
    kept = tuple(records)
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition("/")[2].removesuffix(" (call)")
    number = sum(1 for each in _recorded if each.name.startswith(f"{test} #")) + 1
    seen = None if replicas is None else tuple(replicas)
    _recorded.append(Recorded(f"{test} #{number}", kept, Promise() if promise is None else promise, seen))
    return check(kept, promise, replicas)


def pytest_configure() -> None:
    vars(histories)["check"] = _check  # the name by which a story judges itself


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ["RECORD_TO"]).write_bytes(pickle.dumps(_recorded))


def load(path: Path) -> list[Recorded]:
    found: list[Recorded] = pickle.loads(path.read_bytes())
    return found
