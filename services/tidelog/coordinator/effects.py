"""Effects of a coordinator: what it wants done, and what has happened to its groups. The shell carries them out in order."""

from collections.abc import Mapping

from tidelog.coordinator.events import ConnectionId, Token, WriteId
from tidelog.coordinator.model import Committed, GroupHead, Owner
from tidelog.coordinator.schedule import Asked
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.values import value
from tidelog.wire import messages as m


@value()
class Send:
    """To a consumer. A connection that is gone meanwhile swallows it; ConnectionLost tells."""

    connection: ConnectionId
    message: m.CoordinatorMessage


@value()
class Close:
    """After what was sent before it."""

    connection: ConnectionId


@value()
class Reply:
    token: Token
    response: m.CommitOffsetsResponse | m.DeleteGroupsResponse


@value()
class Write:
    """Everything in the order offsets, owners, head; done when all of it is stored. Each multi checks the coordinator epoch.

    WriteDone answers it. Writes of one group are carried out in the order in which they were asked for.
    """

    write_id: WriteId
    group_id: str
    offsets: Mapping[TopicPartition, Committed | None]
    """None: none any more."""
    owners: Mapping[TopicPartition, Owner | None]
    """None: nobody's."""
    head: GroupHead | None


@value()
class DeleteGroup:
    """The group's znode and everything below it."""

    write_id: WriteId
    group_id: str


@value()
class FindEnds:
    """Asks the leaders for the ends of these logs (high watermarks). EndsFound answers it."""

    partitions: tuple[TopicPartition, ...]


@value()
class Resign:
    """The store has refused a write for its epoch: the term is over (COORD-10)."""

    reason: str


@value()
class Due:
    """A deadline has come: no event led to the effects after this one, only the time."""


@value()
class Registered:
    """A consumer is a member, or is back on another connection."""

    group_id: str
    consumer_id: str
    connection: ConnectionId
    returned: bool
    members: int
    """The members of the group now."""


@value()
class Disconnected:
    """A member has no connection any more. It stays a member while its lease may hold."""

    group_id: str
    consumer_id: str


@value()
class Gone:
    """A member is dead, or has left."""

    group_id: str
    consumer_id: str
    reason: str
    """failure or leave."""
    owned: int
    """Partitions that are free now."""
    members: int
    """The members that are left."""


@value()
class RebalanceWanted:
    """The cause of this step is the cause of the next rebalance of the group, which may have to wait."""

    group_id: str


@value()
class RebalanceBegun:
    group_id: str
    generation: int
    reason: str
    members: int
    stopped: int
    """Members that are to stop first."""


@value()
class Answered:
    """A member has done what it was asked, or with `finishing` asks for time to finish its work."""

    group_id: str
    consumer_id: str
    asked: Asked
    generation: int
    finishing: bool = False


@value()
class Rebalanced:
    """One rebalance is complete, or one attempt has failed."""

    group_id: str
    generation: int
    reason: str
    seconds: float
    failed: bool
    stopped: int
    """Members that were stopped for it."""


@value()
class Alarm:
    """ConsumerRebalanceFailedException and its like: an operator should know (A16.07)."""

    group_id: str
    text: str


@value()
class Refused:
    """For metrics: a message or a commit that was fenced or refused."""

    what: str
    """register, ping, stop, start, leave, commit."""
    code: ErrorCode


@value()
class PingAnswered:
    """For metrics."""

    seconds: float


@value()
class Expired:
    """A watcher of the purgatory fired (A10): a member has not answered in time."""

    group_id: str
    consumer_id: str
    asked: Asked
    misses: int
    """Pings in a row that were not answered; 1 for a stop or a start."""


Effect = (
    Send
    | Close
    | Reply
    | Write
    | DeleteGroup
    | FindEnds
    | Resign
    | Due
    | Registered
    | Disconnected
    | Gone
    | RebalanceWanted
    | RebalanceBegun
    | Answered
    | Rebalanced
    | Alarm
    | Refused
    | PingAnswered
    | Expired
)
