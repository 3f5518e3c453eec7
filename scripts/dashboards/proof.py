"""What a panel or an alert shows of a fault, as predicates on its own query; a test plays the faults and checks them all.

A predicate is text, so that a failure reads like the promise: "max > 0", "last{state=Empty} == 1", and several with commas
between them, which all have to hold. A measure (MEASURES) is taken of the series whose labels fit, in a window of time.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple, Self


class Fault(Enum):
    """What the test plays on a cluster of three brokers, two controllers, a ZooKeeper server and two agents, under a load.

    Topics: `events` with three replicas, which the load goes to; `single` with one; `frail` with two.
    """

    about: str

    def __new__(cls, name: str, about: str) -> Self:
        made = object.__new__(cls)
        made._value_, made.about = name, about
        return made

    LOAD = "load", "Nothing is broken."
    MOVE = (
        "move",
        "No fault. The only partition of a topic with one replica is moved to another broker. A throttle makes the move last "
        "several seconds.",
    )
    COMPACT = (
        "compact",
        "Records are written to a compacted topic with a replica on each broker. Then a bit is flipped in a closed segment of "
        "one replica.",
    )
    KILL_LEADER = (
        "kill leader",
        "The leader of `single` is killed with SIGKILL. It also leads some partitions of `events` and coordinates the group. "
        "It is started again after its session has expired.",
    )
    PAUSE_FOLLOWER = (
        "pause follower",
        "A broker is paused with SIGSTOP for longer than replica.lag.time.max, but for less than its session timeout.",
    )
    RESTART = (
        "restart",
        "No fault. All processes of the cluster are told to stop at the same time, and are then started at the same time.",
    )
    KILL_CONTROLLER = (
        "kill controller",
        "The active controller is killed with SIGKILL. It is started again once another controller is active.",
    )
    KILL_AGENTS = (
        "kill agents",
        "One member of the group is killed with SIGKILL, and then the other member, which has taken over its partitions. Both "
        "are started again when the group is empty.",
    )
    KILL_ZOOKEEPER = (
        "kill zookeeper",
        "The only ZooKeeper server is killed with SIGKILL. It is back before any session expires.",
    )
    DISK_ERROR = "disk error", "Writes to partition 0 of `events` fail with EIO on the leader of that partition."
    LOSE_TWO = (
        "lose two",
        "Unclean elections are allowed for `frail`. The broker of its follower is killed with SIGKILL. The leader stores "
        "records that the follower lacks, and then its broker is killed too. The follower's broker is started again "
        "first.",
    )
    KILL_BROKERS = (
        "kill brokers",
        "All brokers are killed with SIGKILL. After their sessions have expired, they are started again in reverse order.",
    )
    CRASH_LOOP = (
        "crash loop",
        "The standby controller is killed with SIGKILL three times, and is started again each time.",
    )


class Series(NamedTuple):
    """Samples of one series in a window, in their order."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """(time, value)."""

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]


@dataclass(frozen=True, slots=True)
class Proof:
    """`of`: the legend of the query that it is about; None: each query of the panel."""

    fault: Fault
    before: str = ""
    during: str = ""
    after: str = ""
    of: str | None = None

    def __post_init__(self) -> None:
        said = [text for text in self.phases().values() if text]
        if not said:
            raise ValueError(f"a proof under {self.fault.value} says nothing")
        if self.fault is Fault.LOAD and (self.before or self.after):
            raise ValueError("under load there is no before and no after")
        for text in said:
            parse(text)

    def phases(self) -> dict[str, str]:
        return {"before": self.before, "during": self.during, "after": self.after}


def under_load(predicate: str, of: str | None = None) -> Proof:
    return Proof(Fault.LOAD, during=predicate, of=of)


def _flat(window: Sequence[Series]) -> list[float]:
    return [value for series in window for value in series.values]


def _steps(series: Series) -> list[float]:
    return [after - before for before, after in pairwise(series.values)]


def _fewest(window: Sequence[Series], instants: Sequence[float]) -> list[float]:
    shown = [{at for at, _ in series.points} for series in window]
    return [min(sum(at in each for each in shown) for at in instants)]


def _one(values: list[float]) -> list[float]:
    return [max(values)] if values else []


Measure = Callable[[Sequence[Series], Sequence[float]], list[float]]
MEASURES: Final[Mapping[str, tuple[Measure, str]]] = {
    "max": (lambda w, _: _one(_flat(w)), "the largest value of any"),
    "min": (lambda w, _: [min(_flat(w))] if _flat(w) else [], "the smallest value of any"),
    "last": (lambda w, _: [s.values[-1] for s in w if s.points], "the last value of each of them"),
    "series": (lambda w, _: [float(sum(bool(s.points) for s in w))], "how many there are"),
    "fewest": (_fewest, "how many there are at the instant that has the fewest"),
    "rise": (lambda w, _: _one([s.values[-1] - s.values[0] for s in w if s.points]), "the largest gain, end to end"),
    "drop": (lambda w, _: _one([-min(0.0, *_steps(s), 0.0) for s in w if s.points]), "the largest step down"),
    "changes": (
        lambda w, _: _one([float(sum(step != 0 for step in _steps(s))) for s in w if s.points]),
        "how often the one that changes most has changed",
    ),
}

_COMPARE: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION: Final = re.compile(r"(\w+)(?:\{(\w+)=([^{}]*)\})? (==|!=|>=|<=|>|<) (-?\d+(?:\.\d+)?)")


class Condition(NamedTuple):
    measure: str
    label: str | None
    wanted: str | None
    compare: str
    limit: float

    def __str__(self) -> str:
        where = f"{{{self.label}={self.wanted}}}" if self.label else ""
        return f"{self.measure}{where} {self.compare} {self.limit:g}"

    def broken(self, window: Sequence[Series], instants: Sequence[float]) -> str | None:
        """What is seen instead, or None. A condition on values needs values; nothing is no proof of anything."""
        fitting = [s for s in window if self.label is None or s.labels.get(self.label) == self.wanted]
        found = MEASURES[self.measure][0](fitting, instants)
        if found and all(_COMPARE[self.compare](value, self.limit) for value in found):
            return None
        return f"{self}: found {', '.join(f'{value:g}' for value in found) or 'nothing'}"


def parse(text: str) -> list[Condition]:
    conditions = []
    for part in text.split(", "):
        match = _CONDITION.fullmatch(part)
        if match is None or match[1] not in MEASURES:
            raise ValueError(f"no predicate: {part!r}; measures are {', '.join(MEASURES)}")
        conditions.append(Condition(match[1], match[2], match[3], match[4], float(match[5])))
    return conditions


def broken(text: str, window: Sequence[Series], instants: Sequence[float]) -> list[str]:
    """The conditions of `text` that do not hold in `window`, whose steps are `instants`."""
    found = (condition.broken(window, instants) for condition in parse(text))
    return [problem for problem in found if problem is not None]
