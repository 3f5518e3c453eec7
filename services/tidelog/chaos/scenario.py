"""A scenario: shape of the cluster, workload, faults on a time line, and what is promised meanwhile.

Read from YAML. Whatever a file says that nobody would understand is refused by name and line before anything starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tidelog.chaos.checker.promise import Loss
from tidelog.chaos.faults.base import Fault, On
from tidelog.chaos.targets import Target
from tidelog.cluster.api import CLIENT


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Two scenarios of equal shapes can share a running cluster."""

    brokers: int = 3
    controllers: int = 2
    zookeepers: int = 1
    """Locally; a Compose cluster has three."""
    proxy: bool = False
    """Links between processes can be cut, delayed and reset without privileges."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By kind or name of a process, beyond the defaults; a Compose cluster has its own."""
    agents: int = 0


@dataclass(frozen=True, slots=True)
class TopicShape:
    partitions: int = 3
    replication_factor: int = 3
    min_isr: int = 2
    configs: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    """None: one that no other run has."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    acks: str = "all"
    count: int = 1
    delivery_timeout_s: float = 15.0
    """After it a record without an answer counts as unknown."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    assigned: int = 1
    """Each reads every partition by itself."""
    group: int = 0
    """Members of one group."""
    session_s: float = 6.0
    crash_every_s: float | None = None
    """Every so often one member is thrown away without a word, and another one comes."""
    agents: int = 0
    """Processes `tidelog.agent` of one group, each of which writes what it processes to files."""
    spark: bool = False
    """Spark reads everything in the final phase, too."""


@dataclass(frozen=True, slots=True)
class Workload:
    rate: float | None = 300.0
    """Records per second of all producers together; None: as fast as the client takes them."""
    keys: int = 50
    value_bytes: int = 100
    orders: int | None = None
    """One producer sends so many order events, and the load ends with the last of them."""
    lines: Path | None = None
    """One producer sends the lines of this file, and the load ends with the last of them."""
    producers: Sequence[ProducerPlan] = (ProducerPlan(),)
    consumers: ConsumerPlan = field(default_factory=ConsumerPlan)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    at_s: float
    fault: Fault
    target: Target
    for_s: float | None = None
    """None: until everything is healed at the end, unless one of the others says when."""
    at_part: float | None = None
    """The fault comes when so much of a load that ends was sent, from 0 to 1, whatever `at_s` says."""
    until_part: float | None = None
    """The fault is healed when so much of the load was sent."""
    until_moved: bool = False
    """The fault is healed when other agents own what its targets owned."""


@dataclass(frozen=True, slots=True)
class RandomPlan:
    """Every `every_s` another random subset of faults is in force; a part `quiet` of the time, none (reliability 1.8)."""

    every_s: float
    quiet: float
    faults: Sequence[PlannedFault]
    """To choose from; their times mean nothing."""
    at_most: int = 2
    """At the same time."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """How long a partition may go without an acknowledgement although records wait for one."""

    at_most_s: float
    others_s: float | None = None
    """Of the partitions that none of the faults' targets led when they were hit; None: as the rest."""
    acks: str | None = None
    """Only of records that are sent with it."""


@dataclass(frozen=True, slots=True)
class Promised:
    """The row's columns (reliability 9)."""

    lost: Loss = "none"
    """As in `checker.promise`."""
    loss_expected: bool = False
    """A control (X7): the run is good for nothing if no acknowledged record is lost."""
    unavailable: Sequence[Unavailable] = ()


class Column(StrEnum):
    """Of the fault matrix: what it takes to acknowledge a record to acks=all. Records of acks=1 are in every run."""

    ALL_2 = "all/2"
    """All in sync, and as many as the scenario's topic asks for, which is two: as the file stands."""
    ALL_1 = "all/1"
    """All in sync, and be it the leader alone."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An extra assertion: the name of a predicate of `chaos.expect`, and its argument."""

    name: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class OtherColumn:
    """What is different there; None: nothing."""

    promise: Promised | None = None
    expect: Sequence[Expected] | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    about: str
    row: int | None
    runs_in: Sequence[On]
    """Empty: nothing but the simulator can show it."""
    simulator: str
    """Why, and what plays it there."""
    duration_s: float = 0.0
    cluster: ClusterShape = field(default_factory=ClusterShape)
    topic: TopicShape = field(default_factory=TopicShape)
    aim: str | None = None
    """Targets like `leader of 0` mean partitions of this topic, to which nothing is written; None: of the load's own."""
    workload: Workload = field(default_factory=Workload)
    faults: Sequence[PlannedFault] = ()
    random: RandomPlan | None = None
    promise: Promised = field(default_factory=Promised)
    expect: Sequence[Expected] = ()
    all_1: OtherColumn = field(default_factory=OtherColumn)

    def in_column(self, column: Column) -> "Scenario":
        """As it is played and judged there."""
        if column is Column.ALL_2:
            return self
        return replace(
            self,
            topic=replace(self.topic, min_isr=1),
            promise=self.promise if self.all_1.promise is None else self.all_1.promise,
            expect=self.expect if self.all_1.expect is None else self.all_1.expect,
        )

    @property
    def ends_with_load(self) -> bool:
        """Its load ends by itself, and `duration_s` is the most that it may take."""
        return self.workload.orders is not None or self.workload.lines is not None

    @property
    def planned(self) -> Sequence[PlannedFault]:
        """Each fault that may come."""
        return (*self.faults, *(() if self.random is None else self.random.faults))

    @property
    def reaches_clients(self) -> bool:
        """Its clients have to dial through links that can be cut and shaped."""
        ends = [end for each in self.planned for end in (each.target, getattr(each.fault, "peers", None))]
        return any(isinstance(end, Target) and CLIENT in end.kinds for end in ends)
