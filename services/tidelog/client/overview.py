"""A whole cluster at one moment, as far as it could be seen: what the controller says, and what each broker says itself.

Whoever does not answer leaves what was known of him before, with its age. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.wire import messages as m

NO_CONTROLLER: Final = "no controller is active"
"""The problem of an overview when the brokers reach none."""


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
    """What one broker has said itself. `problem` is "" when it answered this time, else why it did not."""

    broker_id: BrokerId
    address: Address | None = None
    problem: str = "not asked yet"
    answered_at: float | None = None
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of its replicas, led or followed; without those that it cannot tell: new, deleted or damaged ones."""
    logs: Mapping[TopicPartition, m.OwnLog] = field(default_factory=dict)
    """The rest of its replicas. A broker of 0.2.0 tells of none."""


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
    problem: str = ""
    """Why the controller did not say anything this time; "" if it did."""
    brokers: Mapping[BrokerId, SeenBroker] = field(default_factory=dict)
    """Every one of which anybody has heard, by number."""
    high_watermarks: Mapping[TopicPartition, Told] = field(default_factory=dict)
    """As a leader last told it."""
    groups: Mapping[str, SeenGroup] = field(default_factory=dict)

    @property
    def heard(self) -> bool:
        """Whether anybody has answered this time."""
        return any(not broker.problem for broker in self.brokers.values())
