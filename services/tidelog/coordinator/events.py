"""Everything that can happen to the groups of one coordinator."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NewType

from tidelog.coordinator.model import StoredGroup, TopicInfo
from tidelog.ids import TopicPartition
from tidelog.values import value
from tidelog.wire import messages as m

ConnectionId = NewType("ConnectionId", int)
"""Of one consumer's stream; never used twice in the life of a process (processor id and selection key of D0, A9.03)."""

Token = NewType("Token", int)
"""Of a caller that waits for its answer."""

WriteId = NewType("WriteId", int)


class Outcome(Enum):
    """Of a write; one whose outcome is unknown is repeated until it has one: it sets what it set before."""

    WRITTEN = auto()
    FENCED = auto()
    """Another coordinator has been elected: this one's term is over."""
    REFUSED = auto()
    """By the store, for what it is: too large."""


@value()
class Loaded:
    """The first event: everything that was stored, read after the election (A8.02)."""

    coordinator_id: int
    coordinator_epoch: int
    groups: tuple[StoredGroup, ...]
    topics: Mapping[str, TopicInfo]


@value()
class TopicsChanged:
    """All topics as they are now (A11)."""

    topics: Mapping[str, TopicInfo]


@value()
class BrokersChanged:
    """What StartFetcher tells about live brokers (A13.16)."""

    brokers: tuple[m.BrokerInfo, ...]


@value()
class MessageArrived:
    """From a consumer; on a connection that is new here it must be its registration."""

    connection: ConnectionId
    host: str
    message: m.ConsumerMessage


@value()
class ConnectionLost:
    """The stream ended or broke, whoever ended it."""

    connection: ConnectionId


@value()
class CommitRequested:
    token: Token
    request: m.CommitOffsetsRequest


@value()
class DeleteRequested:
    token: Token
    request: m.DeleteGroupsRequest


@value()
class WriteDone:
    write_id: WriteId
    outcome: Outcome


@value()
class EndsFound:
    """Log ends that `FindEnds` asked for; None: the leader could not be asked."""

    ends: Mapping[TopicPartition, int | None]


@value()
class Woken:
    """It is not before `Machine.next_at()`, or nothing happened for a while."""


@value()
class Paused:
    """This process did not run for a while: what it holds against others is old news (COORD-8)."""

    seconds: float


Event = (
    Loaded
    | TopicsChanged
    | BrokersChanged
    | MessageArrived
    | ConnectionLost
    | CommitRequested
    | DeleteRequested
    | WriteDone
    | EndsFound
    | Woken
    | Paused
)
