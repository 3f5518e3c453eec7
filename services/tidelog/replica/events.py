"""What can happen to a partition's replica. Instants are monotonic seconds; offsets are exclusive ends."""

from collections.abc import Mapping

from tidelog.errors import ErrorCode
from tidelog.replica.effects import ProposeIsr
from tidelog.replica.isr import Member
from tidelog.values import value


@value()
class LeaderAndIsr:
    """The controller's decision about this partition. `leader` is -1 when nobody may lead."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[Member]
    replicas: tuple[int, ...]
    min_isr: int
    live: Mapping[int, int]
    """Broker id -> broker epoch of every live broker."""
    at: float
    own_end: int | None = None
    """How far this log counts as held here: with flush=sync what is synced, None for all of it."""
    recovering: bool = False
    """The leader was elected uncleanly and must report back (HOLE-26)."""
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment brings: they may join the ISR, and count for no replication factor (KIP-455)."""


@value()
class LiveBrokers:
    """The set of live brokers changed (UpdateMetadata); a broker that is not live may not be proposed for an ISR."""

    live: Mapping[int, int]
    at: float


@value()
class Appended:
    """This leader's log grew to `end`. It `counts` at once, or with flush=sync when `Synced` comes."""

    end: int
    at: float
    counts: bool = True


@value()
class Synced:
    """This leader's log would survive a loss of power up to `end` (flush=sync, reliability 3.6 rule F)."""

    end: int
    at: float


@value()
class FollowerPosition:
    """A follower states that it holds everything below `offset`, its last record being of `last_epoch`.

    `found_epoch` and `found_end` are what this log's epoch history answers for `last_epoch`: the largest epoch not above
    it, and where that one ends (KIP-279).
    """

    replica: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int
    found_epoch: int
    found_end: int
    at: float
    log_start: int = 0
    """Of this log."""
    own_start: int = 0
    """Of the follower's."""
    dropped_to: int = 0
    """Below it tombstones may be missing in this log."""
    drops: int = 0
    """How often tombstones have gone from this log: later ones may lie below earlier ones, and not move `dropped_to`."""


@value()
class FollowerGone:
    """The follower's stream ended; it is not waited for beyond what the ISR demands."""

    replica: int
    broker_epoch: int


@value()
class Deposed:
    """A follower left this leader for a newer epoch: the controller has chosen another one."""

    newer_epoch: int


@value()
class IsrAnswered:
    """The controller's answer to `proposal`; the state fields are those in force, meaningful with NONE."""

    proposal: ProposeIsr
    code: ErrorCode
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[Member]
    at: float


@value()
class Tick:
    at: float


@value()
class Resumed:
    """This process stood still until `at`: what others did meanwhile is unknown, so lag is measured anew (row 9)."""

    at: float


@value()
class ChunkArrived:
    """A leader's chunk. With `diverging_epoch` >= 0 it says where the histories part, and `own_epoch`, `own_end` are what
    this log's own history answers for that epoch."""

    leader_epoch: int
    offset: int
    diverging_epoch: int = -1
    diverging_end: int = -1
    own_epoch: int = -1
    own_end: int = -1


@value()
class FollowerAppended:
    """The accepted chunk is in this follower's log, which now ends at `end`; the leader's high watermark came with it."""

    leader_epoch: int
    end: int
    leader_high_watermark: int
    log_start: int


@value()
class BelowLogStart:
    """The leader's answer to the position `offset`: its log begins at `log_start`, and it cannot go on from there."""

    leader_epoch: int
    offset: int
    log_start: int
    diverges: bool = False
    """The leader never had all that is here."""


@value()
class Truncated:
    """What TruncateTo came to: the log now ends at `end`, which is lower than asked if that lay inside a batch."""

    end: int


@value()
class HandOver:
    """This broker leaves: where it leads nothing more is appended, so that all there is reaches whoever leads next (row 8)."""


@value()
class Stopped:
    """StopReplica, or the disk below failed: neither leader nor follower any more."""


Event = (
    Appended
    | Synced
    | FollowerPosition
    | FollowerAppended
    | ChunkArrived
    | BelowLogStart
    | Tick
    | IsrAnswered
    | LeaderAndIsr
    | LiveBrokers
    | FollowerGone
    | Deposed
    | Resumed
    | Truncated
    | HandOver
    | Stopped
)
