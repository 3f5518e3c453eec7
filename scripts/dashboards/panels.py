"""What a panel of a board is: its queries, how to show them, and what they show of a fault."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dashboards.proof import Proof

RATE: Final = "[$__rate_interval]"
RANGE: Final = "[$__range]"
TOPIC: Final = 'topic=~"$topic"'
GROUP: Final = 'group=~"$group"'
GREEN, ORANGE, RED = "green", "orange", "red"
Colors = tuple[tuple[float | None, str], ...]


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
    proofs: tuple[Proof, ...]
    kind: Kind = Kind.GRAPH
    unit: str = "short"
    width: int = 8
    colors: Colors = ()
    names: Mapping[int, str] | None = None
    """Value -> what a state timeline calls it."""
    shades: Mapping[int, str] | None = None
    """Value -> its colour, where it is no matter of more or less."""
    bars: bool = False
    """A graph of what happens now and then."""
    legend: bool = True
    """Without one: a line a partition, of which there may be many; pointing at them names them."""


@dataclass(frozen=True, slots=True)
class Board:
    uid: str
    title: str
    what: str
    """The question that it answers."""
    rows: Mapping[str, tuple[Panel, ...]]
    variables: tuple[str, ...] = ()
    """Of VARIABLES: those that its queries use."""
    opening: tuple[Panel, ...] = ()
    """One screen that tells a whole story: stats in one line, the others in two columns. The rows below it are collapsed."""

    played: bool = True
    """False: what its panels show is no part of the cluster on which faults are played, so they have no proofs."""

    @property
    def panels(self) -> list[Panel]:
        return [*self.opening, *(panel for row in self.rows.values() for panel in row)]


VARIABLES: Final = {"topic": "tidelog_partition_high_watermark", "group": "tidelog_group_members"}
"""Name, which is that of a label, and the family whose values it takes."""


def health(title: str, query: str, what: str, colors: Colors, *proofs: Proof) -> Panel:
    return Panel(title, {query: title}, what, proofs, Kind.STAT, width=3, colors=colors)


def alarm_above(value: float) -> Colors:
    return (None, GREEN), (value, RED)


def warn_above(value: float) -> Colors:
    return (None, GREEN), (value, ORANGE)


def exactly(value: float) -> Colors:
    return (None, RED), (value, GREEN), (value + 1, RED)


def at_least(value: float) -> Colors:
    return (None, RED), (value, GREEN)


def quantile(q: float, family: str, labels: str = "", by: str = "") -> str:
    groups = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({groups}) (rate({family}_bucket{{{labels}}}{RATE})))"


def peak(selector: str) -> str:
    """The highest of the samples between two points of a graph, which are minutes apart where it shows a day."""
    return f"max_over_time({selector}{RATE})"


def or_none(query: str, label: str, job: str) -> str:
    """A series of value 0 called "none" while a process of `job` answers and has counted nothing."""
    return f'{query} or on () label_replace(0 * count(up{{job="{job}"}} == 1), "{label}", "none", "", "")'


def states(family: str, by: str, codes: Mapping[str, int], labels: str = "") -> str:
    """One number for the state of each: families tell it as 1 at a label `state`."""
    where = f"{labels}," if labels else ""
    parts = [f'{code} * ({family}{{{where}state="{state}"}} == 1)' for state, code in codes.items()]
    return f"max by ({by}) ({' or '.join(parts)})"
