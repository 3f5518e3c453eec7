"""How the cluster looked while a run went on: samples.jsonl, one look at one source a line.

A source that gives no answer is a line too (`silent`): a gap is then known to be one. Lines stand in the order of their
answers; `t` is when the question was asked, in seconds since the run began on the run's clock, and `took` how long the answer
came after it. So what a line says was true at some time in [t, t + took].

    {"t":1.25,"took":0.004,"kind":"processes","states":{"broker-0":"running","broker-1":"paused","controller-1":"stopped"}}
    {"t":..,"took":..,"kind":"partitions","partitions":[{"topic":"chaos","partition":0,"leader":1,"leader_epoch":4,
        "partition_epoch":9,"replicas":[0,1,2],"isr":[1,2],"vetoed":false}]}       what a client is told; leader -1: there is none
    {"t":..,"took":..,"kind":"broker","process":"broker-1","session_expirations":0,"replicas":[{"topic":"chaos","partition":0,
        "leader_epoch":4,"log_start":0,"high_watermark":120,"log_end":125,"isr_size":2}]}      isr_size: by who leads, else null
        session_expirations: as its metrics told last, null if they did not. All numbers of one replica were true at one moment.
    {"t":..,"took":..,"kind":"controller","process":"controller-1","active":true,"epoch":3,"session_expirations":0,
        "elections":{"broker_down":4},"unclean_elections":0}           elections: counted since this process started
    {"t":..,"took":..,"kind":"zookeeper","process":"zookeeper-1","role":"leader"}             follower, standalone, or ""
    {"t":..,"took":..,"kind":"group","group":"g","state":"Stable","coordinator":1,"coordinator_epoch":2,"generation":3,
        "members":2,"committed":[{"topic":"chaos","partition":0,"offset":124}]}
    {"t":..,"took":..,"kind":"silent","source":"broker-1","why":"timeout"}       a process, "processes", "cluster" or "group g"
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

FILE_NAME: Final = "samples.jsonl"
PROCESSES: Final = "processes"
CLUSTER: Final = "cluster"
"""Sources that are no process: what runs, and whichever broker tells of the partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at one source."""

    t: float = 0.0
    took: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStates(Look):
    states: Mapping[str, str]
    """running, paused, stopped; by process name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    vetoed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions(Look):
    partitions: Sequence[PartitionState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    topic: str
    partition: int
    leader_epoch: int
    log_start: int
    high_watermark: int
    log_end: int
    isr_size: int | None = None

    @property
    def leads(self) -> bool:
        """In its own eyes, in `leader_epoch`."""
        return self.isr_size is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLook(Look):
    process: str
    session_expirations: int | None = 0
    replicas: Sequence[Replica] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLook(Look):
    process: str
    active: bool
    epoch: int
    session_expirations: int = 0
    elections: Mapping[str, int] = field(default_factory=dict)
    unclean_elections: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperLook(Look):
    process: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook(Look):
    group: str
    state: str
    coordinator: int
    coordinator_epoch: int
    generation: int
    members: int
    committed: Sequence[Committed] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent(Look):
    source: str
    why: str


def group_source(group_id: str) -> str:
    return f"group {group_id}"


Sample = ProcessStates | Partitions | BrokerLook | ControllerLook | ZooKeeperLook | GroupLook | Silent
S = TypeVar("S", bound=Look)

KINDS: Final[Mapping[str, type[Sample]]] = {
    PROCESSES: ProcessStates,
    "partitions": Partitions,
    "broker": BrokerLook,
    "controller": ControllerLook,
    "zookeeper": ZooKeeperLook,
    "group": GroupLook,
    "silent": Silent,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_NESTED: Final[Mapping[str, Any]] = {"partitions": PartitionState, "replicas": Replica, "committed": Committed}
TIME_DIGITS: Final = 6


def to_line(sample: Sample) -> str:
    """Without the newline."""
    body = asdict(replace(sample, t=round(sample.t, TIME_DIGITS), took=round(sample.took, TIME_DIGITS)))
    at = {"t": body.pop("t"), "took": body.pop("took"), "kind": _NAMES[type(sample)]}
    return json.dumps(at | body, separators=(",", ":"))


def from_line(line: str) -> Sample:
    """ValueError when it is none of ours."""
    try:
        found = json.loads(line)
        kind = KINDS[found.pop("kind")]
        known = {each.name for each in fields(kind)}
        # A newer writer may say more.
        return kind(**{name: _value(name, value) for name, value in found.items() if name in known})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a sample: {line[:80]!r} ({error!r})") from error


def _value(name: str, value: Any) -> Any:
    if name in _NESTED:
        return tuple(_NESTED[name](**each) for each in value)
    return value


@dataclass(frozen=True, slots=True)
class Samples:
    """In the order of `t`."""

    looks: Sequence[Sample] = ()
    complete: bool = True
    """False: the file ends in the middle of a line; what stands before it is here."""

    def of(self, kind: type[S]) -> Iterator[S]:
        return (look for look in self.looks if isinstance(look, kind))


def read_lines(lines: Iterable[str]) -> Samples:
    """Up to the first line that is not whole. ValueError when others follow it: then the file is damaged, not cut off."""
    looks: list[Sample] = []
    bad: str | None = None
    for line in lines:
        if bad is not None:
            raise ValueError(bad)
        try:
            looks.append(from_line(line))
        except ValueError as error:
            bad = str(error)
    looks.sort(key=lambda look: look.t)
    return Samples(looks, complete=bad is None)


def read_samples(path: Path) -> Samples:
    """None at all if there is no such file: a run that ended before its first look."""
    if not path.exists():
        return Samples(complete=False)
    with path.open(encoding="utf-8", errors="replace") as file:
        return read_lines(file)
