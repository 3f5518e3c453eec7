"""A group and its members in the memory of their coordinator (A19)."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tidelog.coordinator.events import ConnectionId, WriteId
from tidelog.coordinator.model import DRIFT, DRIFT_MIN_S, Committed, GroupHead, Owner, Phase, StoredMember
from tidelog.coordinator.subscription import Subscription
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

NEVER_STARTED: Final = 0
"""Generation of a member that got no StartFetcher in this coordinator epoch."""

NEVER: Final = float("-inf")


@dataclass(slots=True)
class Member:
    """ConsumerRegistry of D0: what a consumer registered, and what is known of it since (A19.09)."""

    consumer_id: str
    incarnation: int
    session_s: float
    static: bool
    answered_at: float
    """When its last message arrived. Its lease ends a session timeout after it sent that one, or before (design section 5)."""
    spared: bool = False
    """Its lease has been prolonged since, for what it may have said while this process stood still."""
    request: m.RegisterConsumerRequest | None = None
    """None: stored by an earlier coordinator, and not here yet."""
    subscription: Subscription | None = None
    connection: ConnectionId | None = None
    host: str = ""
    last_number: int = 0
    """The newest that arrived, over all its streams."""
    pings: deque[tuple[int, float]] = field(default_factory=deque)
    """Number and send time of those without an answer, oldest first."""
    ping_number: int = 0
    failed_pings: int = 0
    silent: bool = False
    """It left a Stop or a Start without an answer: nothing is acknowledged any more, so that its lease ends (HOLE-47)."""
    blocked_until: float = NEVER
    """It may not start before: until then the lease of an earlier incarnation may hold (HOLE-45)."""
    admission: int = 0
    """Orders the incarnations of a static member; 0 where it is not one."""
    before: StoredMember | None = None
    """The incarnation before it, while the store is to name that one: a new coordinator must await its lease."""
    admitted: bool = True
    """The store names this incarnation, or none."""
    released: bool = False
    """A static member that has said that it has stopped: nobody needs to wait for its lease."""
    generation: int = NEVER_STARTED
    """Of its last Start."""
    told: int = NEVER_STARTED
    """The highest that was sent to it, in a Stop or a Start; never below `generation`."""
    assigned: frozenset[TopicPartition] = frozenset()
    """What its last Start gave it."""
    stopped: set[TopicPartition] = field(default_factory=set)
    """What it has stopped since."""
    void: set[TopicPartition] = field(default_factory=set)
    """Partitions of deleted topics that it was given and has not stopped since. Its reports of them do not count, also when
    another topic has the name."""
    numbers: dict[TopicPartition, int] = field(default_factory=dict)
    """The message whose offset was counted last, for each partition."""

    @property
    def dead_at(self) -> float:
        """From then on it does not fetch any more, whatever became of it: its lease, and how far the clocks may differ."""
        return self.answered_at + self.session_s * (1 + DRIFT) + DRIFT_MIN_S

    @property
    def free_at(self) -> float:
        """From then on what it owns may be somebody else's."""
        return self.blocked_until if self.released else max(self.dead_at, self.blocked_until)

    @property
    def present(self) -> bool:
        """It can be asked for something."""
        return self.connection is not None and not self.silent and self.request is not None

    def may_start(self, now: float) -> bool:
        return self.present and self.admitted and now >= self.blocked_until

    def stored(self) -> StoredMember:
        return self.before or StoredMember(round(self.session_s * 1000), self.incarnation, self.static, self.admission)


class Step(Enum):
    """Of an attempt (A16.05)."""

    STOPPING = auto()
    """Waits for the answers to StopFetcher."""
    CHECKING = auto()
    """Waits for the log ends, beyond which no offset is stored."""
    STORING = auto()
    """Offsets, owners and the generation are on their way to the store."""
    STARTING = auto()
    """Waits for the answers to StartFetcher."""
    CONFIRMING = auto()
    """All are started; that is being stored."""


@dataclass(slots=True)
class Attempt:
    """One try to give a group a new assignment, over the members that were present when it began (A20.05)."""

    generation: int
    reason: str
    began_at: float
    members: tuple[str, ...]
    target: Mapping[TopicPartition, str]
    """Thread ids."""
    wanted: Mapping[str, frozenset[TopicPartition]]
    """The same by consumer."""
    revoked: Mapping[str, frozenset[TopicPartition]]
    """Of those that must stop."""
    step: Step = Step.STOPPING
    to_start: deque[str] = field(default_factory=deque)
    """Members that have not been told to start yet."""
    waiting: set[str] = field(default_factory=set)
    """Who has not answered yet."""
    finishing: set[str] = field(default_factory=set)
    """Who has asked for time to finish what it has handed out (OPEN-02)."""
    failed: bool = False
    """rebalanceFailed of D0."""
    write_id: WriteId | None = None
    owners: dict[TopicPartition, Owner | None] = field(default_factory=dict)
    """What this attempt changes, as it is being stored."""
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    """As stored with it."""


@dataclass(slots=True)
class Group:
    """GroupRegistry of D0 (A19.02 to A19.08)."""

    group_id: str
    members: dict[str, Member] = field(default_factory=dict)
    assignor: str = ""
    generation: int = 0
    """As stored."""
    used: int = 0
    """The highest that was sent to anybody."""
    phase: Phase = Phase.STABLE
    began: int | None = None
    """See `GroupHead`; None before the first generation."""
    empty_since_ms: int = -1
    empty_at: float = NEVER
    """Since when this coordinator has seen no member, in monotonic seconds."""
    owners: dict[TopicPartition, Owner] = field(default_factory=dict)
    """As stored: whoever is named here may fetch, and nobody else."""
    owned: dict[str, set[TopicPartition]] = field(default_factory=dict)
    """The same by consumer."""
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    """As stored: a Start names these (CONFLICT-08: read back from what was stored; nobody else writes under this epoch)."""
    reported: dict[TopicPartition, Committed] = field(default_factory=dict)
    """Newer than `offsets`, to be stored (offsetPerTopic; offsetUpdated is that there are some)."""
    parsed: dict[str, Subscription] = field(default_factory=dict)
    """Subscriptions of the members, by text, for they mostly say the same; also of some that are gone."""
    seen: dict[str, int] = field(default_factory=dict)
    """Topics and numbers of partitions of the last attempt."""
    incomplete: bool = False
    """An earlier coordinator died in the middle of a rebalance: it is finished when all have returned or are dead."""
    # of the rebalance
    rebalance_initiated: bool = False
    reason: str = ""
    asked_at: float = 0.0
    """When the first of the joins came that the request waits for."""
    awaits_lease: bool = False
    """A join waits for an absent member to come back or to be dead."""
    current_rebalancer: int | None = None
    attempt: Attempt | None = None
    failures: int = 0
    """Attempts in a row."""

    def set_owner(self, tp: TopicPartition, owner: Owner | None) -> None:
        before = self.owners.pop(tp, None)
        if before is not None and (mine := self.owned.get(before.consumer_id)) is not None:
            mine.discard(tp)
            if not mine:
                del self.owned[before.consumer_id]
        if owner is not None:
            self.owners[tp] = owner
            self.owned.setdefault(owner.consumer_id, set()).add(tp)

    @property
    def last_generation(self) -> int:
        """As stored when everything is that is on its way to the store: nothing that is asked for later may fall below."""
        attempt = self.attempt
        return self.generation if attempt is None or attempt.write_id is None else attempt.generation

    def owned_by(self, consumer_id: str) -> frozenset[TopicPartition]:
        return frozenset(self.owned.get(consumer_id, ()))

    def head(self, generation: int, phase: Phase) -> GroupHead:
        members = {each.consumer_id: each.stored() for each in self.members.values()}
        return GroupHead(generation, phase, members, self.assignor, self.empty_since_ms, self.began)

    @property
    def last_head(self) -> GroupHead:
        """The head behind everything that is on its way to the store, with the members of now."""
        attempt = self.attempt
        if attempt is None or attempt.write_id is None:
            return self.head(self.generation, self.phase)
        return self.head(attempt.generation, Phase.STABLE if attempt.step is Step.CONFIRMING else Phase.STARTING)

    def next_generation(self) -> int:
        self.used = max(self.used, self.generation) + 1
        return self.used

    def prune(self) -> None:
        """Forgets what only members subscribed to that are gone."""
        texts = {each.request.topic_count for each in self.members.values() if each.request is not None}
        self.parsed = {text: found for text, found in self.parsed.items() if text in texts}

    def absent(self) -> Iterable[Member]:
        return (each for each in self.members.values() if not each.present)

    @property
    def state(self) -> str:
        """As Kafka's tools name it."""
        if not self.members:
            return "Empty"
        if self.attempt is not None and self.attempt.step in (Step.STORING, Step.STARTING, Step.CONFIRMING):
            return "CompletingRebalance"
        if self.attempt is not None or self.rebalance_initiated or self.reason:
            return "PreparingRebalance"
        return "Stable"
