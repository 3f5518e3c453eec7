"""What a coordinator knows of groups, as it is stored and as it is told: plain values (A19, A6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition

NO_MEMBER_GENERATION: Final = -1
"""Of a commit by nobody: for groups without members only."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset: the next record to process."""

    offset: int
    leader_epoch: int = NO_EPOCH
    """Of the record before it (COORD-18); -1 unknown."""
    metadata: str = ""
    topic_id: bytes = b""
    """The topic that it counts in; empty: unknown."""


NOTHING_COMMITTED: Final = Committed(NO_OFFSET)


@dataclass(frozen=True, slots=True)
class Owner:
    """Of one partition within a group (A6.03)."""

    thread_id: str
    """consumer id - index (F08.2)."""
    consumer_id: str
    generation: int
    """Since which it is the owner's."""


class Phase(Enum):
    """Of a stored generation."""

    STARTING = "starting"
    """Owners are written, and not all of them have answered StartFetcher (HOLE-46)."""
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class StoredMember:
    """What a new coordinator must know of a member that it awaits (CONFLICT-03)."""

    session_timeout_ms: int
    incarnation: int
    """Another one that comes with the same id must wait for the lease of this one (HOLE-45)."""
    static: bool = False
    admission: int = 0
    """Orders the incarnations of a static member; 0 unknown."""


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The znode of a group."""

    generation: int
    phase: Phase
    members: Mapping[str, StoredMember]
    """By consumer id."""
    assignor: str
    empty_since_ms: int
    """Unix time at which the last member went; -1 while there are members."""
    began: int | None = None
    """`TopicInfo.created` of the newest topic when the group began: later topics are newer than the group. None: unknown."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as a new coordinator reads it."""

    group_id: str
    head: GroupHead
    owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, Committed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    topic_id: bytes
    partitions: int
    created: int = field(default=0, compare=False)
    """Number of the ZooKeeper transaction that created it; 0 unknown."""


UNREADABLE: Final = TopicInfo(b"", 0)
"""A topic whose znode exists and was never readable. Nothing is known of it, so nothing of it may be dropped."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's settings for its coordinator (A5, K12)."""

    handlers: int
    """Rebalance handlers (A5.01)."""
    session_min_s: float
    """Session timeouts must be larger (A14.01: strictly)."""
    session_max_s: float
    failed_pings_max: int
    """A consumer with more failed pings is dead (A5.03)."""
    commit_interval_s: float
    """Between two writes of the offsets that pings brought (A5.04)."""
    rebalance_retries_max: int
    """Failed attempts in a row, after which each one is alarmed (A5.05)."""
    backoff_s: float
    """After a failed attempt; doubled with each one up to `backoff_max_s` (A5.06)."""
    backoff_max_s: float
    join_delay_s: float
    """A rebalance because of a new member waits so long for others; starts anew with each, up to `join_delay_max_s` in all."""
    join_delay_max_s: float
    initial_delay_s: float
    """The same for the first rebalance of a group without members (KIP-134)."""
    incremental: bool
    """Stop only members that lose something, and only that; else everybody stops everything, as documented."""
    members_max: int
    """Of a group (KIP-389)."""
    partitions_max: int
    """That the topics of a subscription may have in all; beyond it a registration is refused."""
    default_assignor: str
    retention_s: float
    """A group without members and its offsets are deleted after it (KIP-211, HOLE-48)."""


DRIFT: Final = 0.01
"""Of a session timeout: how far two clocks may run apart in it (design section 5)."""
DRIFT_MIN_S: Final = 0.02
"""Beside it: what timers and the loop may be late."""
