"""What an audit says of one run."""

from dataclasses import dataclass
from pathlib import Path

from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.history import HistoryDamaged


@dataclass(frozen=True, slots=True)
class Judged:
    directory: Path
    verdict: Verdict | HistoryDamaged
    """The latter: no client can have made its history, so there is none."""
