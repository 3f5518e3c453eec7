"""What a partition's replica asks its host to do, in this order. The host decides nothing about the protocol."""

from dataclasses import field
from enum import Enum

from tidelog.errors import ErrorCode
from tidelog.ids import NO_EPOCH, NO_OFFSET
from tidelog.replica.isr import Member
from tidelog.values import value


@value()
class AdvanceHighWatermark:
    """Everything below is committed: answer produces, wake readers, tell followers."""

    high_watermark: int


@value()
class ProposeIsr:
    """Ask the controller for `isr`, conditional on `partition_epoch`. Resend on an unknown outcome; never forget it."""

    leader_epoch: int
    partition_epoch: int
    isr: frozenset[Member]
    may_wait: bool = field(default=False, compare=False)
    """An expansion that nobody needs at once: it may wait for others to share its request (OPEN-19)."""


@value()
class StartEpoch:
    """Record (epoch, start) in the epoch history before anything is appended or answered (KAFKA-7415)."""

    leader_epoch: int
    start: int


@value()
class StartFetching:
    """Follow `leader` in `leader_epoch` from this log's end; positions carry the epoch."""

    leader: int
    leader_epoch: int


@value()
class StopFetching: ...


@value()
class FailPending:
    """Every parked produce ends with this code."""

    code: ErrorCode


class Rule(Enum):
    """Says why a log is cut where it is."""

    LEADER_EPOCH = "leader epoch"
    """The leader's epoch ends there (KIP-101)."""
    COMMON_EPOCH = "common epoch"
    """The last epoch that both know ends there in this log (KIP-279)."""
    BEGUN_ANEW = "begun anew"
    """The leader may have dropped what this log still holds."""
    FAILED_SYNC = "failed sync"
    """A sync failed: later records may never reach the disk."""
    DAMAGE = "damage"
    """The log is damaged from there on."""


@value()
class TruncateTo:
    """Cut the log's end back to `offset`; then state the new position."""

    offset: int
    committed: int = 0
    """The high watermark before: a cut below it is set aside, for no other replica may hold that."""
    rule: Rule = field(default=Rule.LEADER_EPOCH, compare=False)
    epoch: int = field(default=NO_EPOCH, compare=False)


@value()
class ResetTo:
    """Drop the whole log and go on at `offset`, where the leader's begins; then state the new position."""

    offset: int
    committed: int = 0
    """The high watermark as of TruncateTo; 0 if the leader had all that is here."""


@value()
class AppendChunk:
    """The chunk belongs at this log's end: append it and report FollowerAppended."""


@value()
class Reposition:
    """The chunk does not fit (an older epoch, another offset): append nothing, state the position again."""


@value()
class SendRecords:
    """The follower's position is counted; it may be sent what lies beyond."""

    replica: int
    offset: int


@value()
class SendLogStart:
    """Tell `replica` where this log begins: what it wants next, at `offset`, is not kept here any more."""

    replica: int
    offset: int
    diverging_end: int = NO_OFFSET
    """The offset from which its history is another one; -1: this log had all that it holds."""


@value()
class SendDivergence:
    """The follower's history left this log: it must go back to `end` of `epoch`. Its position is not counted."""

    replica: int
    offset: int
    epoch: int
    end: int


@value()
class RefusePosition:
    """The follower's position is not counted."""

    replica: int
    code: ErrorCode


Effect = (
    AdvanceHighWatermark
    | ProposeIsr
    | StartEpoch
    | StartFetching
    | StopFetching
    | FailPending
    | TruncateTo
    | ResetTo
    | AppendChunk
    | Reposition
    | SendRecords
    | SendLogStart
    | SendDivergence
    | RefusePosition
)
