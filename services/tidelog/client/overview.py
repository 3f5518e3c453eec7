"""A whole cluster at one moment, as far as it could be seen: what the controller says, and what each broker says itself.

A source that does not answer leaves what was known of it before, with its age. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.wire import messages as m

NO_CONTROLLER: Final = "no controller is active"
"""The problem of an overview when the brokers reach none."""
NOT_ASKED: Final = "not asked yet"
NOT_LIVE: Final = "not in the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One question to one source. Times are those of one monotonic clock."""

    asked: float
    took: float
    """Seconds until the answer or the failure. The answer was true at some time in between."""
    problem: str = ""
    """The reason for which there is no answer; "": there is one."""

    @property
    def answered(self) -> float:
        return self.asked + self.took


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook(Look):
    """The word of the controller, through any broker."""

    topics: Sequence[m.TopicDescription] = ()
    """The chosen ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasLook(Look):
    """The replicas of a broker. All that it says of one was true at one moment."""

    broker: BrokerId
    replicas: Mapping[TopicPartition, m.ListOffsetsResult] = field(default_factory=dict)
    """Leaders and followers, each with the end of its log; without new, deleted and damaged ones, of which it says nothing."""
    high_watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    """High watermarks of partitions that it leads, as the controller says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLook(Look):
    """The groups that a broker coordinates."""

    broker: BrokerId
    groups: Sequence[m.DescribedGroup] = ()
    shards: frozenset[int] = frozenset()
    shard_count: int = 0


class Told(NamedTuple):
    """An offset, and when it was so."""

    offset: int
    at: float


class SeenGroup(NamedTuple):
    group: m.DescribedGroup
    at: float
    """When its coordinator last said so."""


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """Holds what one broker has said itself. `problem` is "" when it answered all this time, else why it did not."""

    broker_id: BrokerId
    address: Address | None = None
    problem: str = NOT_ASKED
    answered_at: float | None = None
    """When it last told of its replicas; None: never."""
    replicas: Mapping[TopicPartition, m.ListOffsetsResult] = field(default_factory=dict)
    """As in `ReplicasLook`. A broker of 0.2.0 tells the ends of logs and no more."""

    def log_end(self, tp: TopicPartition) -> int | None:
        return self.replicas[tp].offset if tp in self.replicas else None


@dataclass(frozen=True, slots=True)
class Overview:
    """Times are those of one monotonic clock."""

    at: float
    wall_ms: int
    cluster: m.DescribeClusterResponse | None = None
    topics: tuple[m.TopicDescription, ...] = ()
    """Only those that are looked at; without partitions of which the controller says nothing."""
    described_at: float | None = None
    """When the controller said so; None: never."""
    problem: str = NOT_ASKED
    """Why the controller did not say anything this time; "" if it did."""
    brokers: Mapping[BrokerId, SeenBroker] = field(default_factory=dict)
    """Every one that lives, has a replica by the word of the controller, or answers, by number."""
    high_watermarks: Mapping[TopicPartition, Told] = field(default_factory=dict)
    """As a leader last told it."""
    groups: Mapping[str, SeenGroup] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True once the controller and every known broker was asked."""
        return NOT_ASKED not in (self.problem, *(broker.problem for broker in self.brokers.values()))

    @property
    def heard(self) -> bool:
        """True if a broker has answered this time."""
        return any(not broker.problem for broker in self.brokers.values())
