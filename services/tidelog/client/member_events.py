"""What happens to a member of a group, and what its membership wants done: plain values, the shell does them in order."""

from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.values import value
from tidelog.wire import messages as m

Key = tuple[int, int]
"""Coordinator epoch, generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who joins which group, and how: the fields of RegisterConsumerRequest."""

    group_id: str
    consumer_id: str
    incarnation: int
    topic_count: str
    auto_commit: bool = True
    auto_offset_reset: str = "smallest"
    session_timeout_ms: int = 10_000
    static: bool = False
    max_processing_ms: int = 300_000
    assignor: str = ""
    client_id: str = ""
    watch_port: int = 0


# -- what happens ----------------------------------------------------------------------------------------------------------------


@value()
class Opened:
    """A stream to the group's coordinator, as far as it could be found out."""


@value()
class Broke:
    """The stream ended, whoever ended it."""


@value()
class Received:
    message: m.CoordinatorMessage


@value()
class Released:
    """What `Revoke` with this token asked for is done."""

    token: int


@value()
class OutOfRange:
    """The log does not hold the position of this partition any more (A18.02)."""

    partition: TopicPartition


@value()
class CommitFenced:
    """An active commit of this generation was refused with one of `FENCED`."""

    key: Key


@value()
class Join:
    """Again, after it has left."""


@value()
class Leave:
    reason: str


@value()
class Tick:
    """Time has passed, until `Membership.next_at()` for instance."""


Event = Opened | Broke | Received | Released | OutOfRange | CommitFenced | Join | Leave | Tick


# -- what is to be done ----------------------------------------------------------------------------------------------------------


@value()
class Send:
    """On the stream; it is lost if that ends before."""

    message: m.ConsumerMessage


@value()
class Close:
    """The stream; `Broke` follows."""


@value()
class Revoke:
    """Fetch no more of these and drop what waits (A18.08); `Released` when the application has let go of them."""

    token: int
    partitions: tuple[TopicPartition, ...]


@value()
class Assign:
    """Begin `anew` where it says; `dropped` are gone without a Stop; the rest goes on where it is."""

    anew: tuple[m.AssignedPartition, ...]
    dropped: tuple[TopicPartition, ...]
    brokers: tuple[m.BrokerInfo, ...]


@value()
class Lose:
    """They are somebody else's, or may be: drop them, no offset counts any more."""

    partitions: tuple[TopicPartition, ...]
    reason: str


@value()
class Fail:
    """For good."""

    error: TidelogError


@value()
class Wait:
    """For its id, which another member has: it registers again until that one is gone. Said once for each wait."""

    error: TidelogError


@value()
class Left:
    """The group: with `stored` the coordinator has said that the last offsets are safe (A18.01)."""

    stored: bool


Effect = Send | Close | Revoke | Assign | Lose | Fail | Wait | Left
