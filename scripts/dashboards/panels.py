"""What a panel of a board is: its queries, and how to show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

RATE: Final = "[$__rate_interval]"
TOPIC: Final = 'topic=~"$topic"'
GREEN, ORANGE, RED = "green", "orange", "red"


class Kind(Enum):
    STAT = "stat"
    GRAPH = "timeseries"
    TIMELINE = "state-timeline"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: PromQL -> legend. `colors`: the value from which a colour holds; the first has none."""

    title: str
    queries: Mapping[str, str]
    what: str
    kind: Kind = Kind.GRAPH
    unit: str = "short"
    width: int = 8
    colors: tuple[tuple[float | None, str], ...] = ()
    names: Mapping[str, str] | None = None
    """Value -> what a state timeline calls it."""


def alarm_above(value: float) -> tuple[tuple[float | None, str], ...]:
    return (None, GREEN), (value, RED)


def exactly(value: float) -> tuple[tuple[float | None, str], ...]:
    return (None, RED), (value, GREEN), (value + 1, RED)


def at_least(value: float) -> tuple[tuple[float | None, str], ...]:
    return (None, RED), (value, GREEN)


def quantile(q: float, family: str, labels: str = "", by: str = "") -> str:
    groups = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({groups}) (rate({family}_bucket{{{labels}}}{RATE})))"
