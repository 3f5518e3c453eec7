"""What the parts of a coordinator's state machine share while it takes a step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tidelog.coordinator.effects import Close, Effect, Refused, Send
from tidelog.coordinator.events import ConnectionId, WriteId
from tidelog.coordinator.group import Group, Member
from tidelog.coordinator.interests import Interests
from tidelog.coordinator.model import Committed, GroupLimits, TopicInfo
from tidelog.coordinator.schedule import Asked, MemberKey, Timers, Watcher
from tidelog.coordinator.subscription import Subscription
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

PING_SHARE = 1 / 3
"""Of a session timeout: between two pings (K02)."""

ANSWER_SHARE = 2 / 3
"""Of a session timeout: within which each request must be answered (A4.02 to A4.04)."""


@dataclass(slots=True)
class Desk:
    limits: GroupLimits
    rand: Callable[[], float]
    """Uniform in [0, 1)."""
    coordinator_id: int = -1
    epoch: int = -1
    now: float = 0.0
    wall_ms: int = 0
    out: list[Effect] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    interests: Interests = field(default_factory=Interests)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    brokers: tuple[m.BrokerInfo, ...] = ()
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Lower bounds of log ends: as the leaders last told."""
    purgatory: Timers[Watcher] = field(default_factory=Timers)
    deadlines: Timers[tuple[str, ...]] = field(default_factory=Timers)
    """Everything else that waits for a time: (what, group id, consumer id)."""
    writes: int = 0
    admissions: int = 0

    def next_admission(self) -> int:
        """Higher than all before it, also those of earlier coordinators."""
        self.admissions += 1
        return (self.epoch << 32) + self.admissions

    def next_write(self) -> WriteId:
        self.writes += 1
        return WriteId(self.writes)

    def partitions(self, topic: str) -> int:
        info = self.topics.get(topic)
        return 0 if info is None else info.partitions

    def topics_of(self, subscription: Subscription) -> Iterable[str]:
        """Those that exist."""
        if subscription.wildcard:
            return [topic for topic in self.topics if subscription.matches(topic)]
        return [topic for topic in subscription.topics if topic in self.topics]

    def newest_topic(self) -> int:
        """Its `created`; 0 without topics."""
        return max((info.created for info in self.topics.values()), default=0)

    def exists(self, tp: TopicPartition) -> bool:
        return 0 <= tp.partition < self.partitions(tp.topic)

    def emptied(self, group: Group) -> None:
        """Its retention counts from now."""
        group.empty_since_ms, group.empty_at = self.wall_ms, self.now

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that has the name; empty if there is none, or it cannot be read."""
        info = self.topics.get(topic)
        return b"" if info is None else info.topic_id

    def is_foreign(self, topic: str, topic_id: bytes) -> bool:
        """True if the id is that of another topic of the name. An unknown one, which is empty, fits any."""
        known = self.topic_id(topic)
        return bool(known and topic_id) and topic_id != known

    def refused(self, what: str, code: ErrorCode) -> None:
        self.out.append(Refused(what, code))

    def close(self, connection: ConnectionId) -> None:
        self.out.append(Close(connection))

    # -- to a member: what is sent names the newest message that has arrived, which renews its lease --------------------------

    def ping(self, group: Group, member: Member) -> None:
        """Of who was told nothing yet: it may have been a member before, and answers nothing that is older than it knows."""
        assert member.connection is not None
        request = m.PingRequest(
            consumer_id=member.consumer_id,
            num_retries=member.failed_pings,
            coordinator_epoch=self.epoch,
            generation=member.told or group.generation,
        )
        self.out.append(Send(member.connection, m.CoordinatorMessage(last_number=member.last_number, ping=request)))

    def stop(self, group: Group, member: Member, generation: int, revoked: tuple[TopicPartition, ...]) -> None:
        assert member.connection is not None
        member.told = generation
        request = m.StopFetcherRequest(
            consumer_id=member.consumer_id,
            coordinator_epoch=self.epoch,
            generation=generation,
            revoked=tuple(m.PartitionName(topic=topic, partition=partition) for topic, partition in revoked),
        )
        self.out.append(Send(member.connection, m.CoordinatorMessage(last_number=member.last_number, stop=request)))
        self.watch(Asked.STOP, group, member)

    def start(self, group: Group, member: Member, generation: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Gives it what is stored as its own, from `offsets` on."""
        assert member.connection is not None
        member.told = member.generation = generation
        owned = group.owned_by(member.consumer_id)
        member.assigned = owned - member.void
        member.stopped.clear()
        threads: dict[str, list[m.AssignedPartition]] = {}
        for tp in sorted(owned):
            committed = offsets.get(tp)
            threads.setdefault(group.owners[tp].thread_id, []).append(
                m.AssignedPartition(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=-1 if committed is None else committed.offset,
                    leader_epoch=-1 if committed is None else committed.leader_epoch,
                    topic_id=self.topic_id(tp.topic),
                )
            )
        request = m.StartFetcherRequest(
            consumer_id=member.consumer_id,
            num_threads=len(threads),
            ownership_info=tuple(
                m.OwnershipInfo(consumer_thread_id=thread, assigned_parts=tuple(parts))
                for thread, parts in sorted(threads.items())
            ),
            brokers_info=self.brokers,
            coordinator_epoch=self.epoch,
            generation=generation,
        )
        self.out.append(Send(member.connection, m.CoordinatorMessage(last_number=member.last_number, start=request)))
        self.watch(Asked.START, group, member)

    def watch(self, asked: Asked, group: Group, member: Member, seconds: float | None = None, number: int = 0) -> None:
        """An expiry watcher in the purgatory (A10.01)."""
        limit = ANSWER_SHARE * member.session_s if seconds is None else seconds
        key = MemberKey(group.group_id, member.consumer_id)
        self.purgatory.set(Watcher(asked, key, number), self.now + limit)

    def unwatch(self, asked: Asked, group: Group, member: Member, number: int = 0) -> None:
        self.purgatory.clear(Watcher(asked, MemberKey(group.group_id, member.consumer_id), number))

    def waits_for_start(self, group_id: str, member: Member) -> bool:
        return Watcher(Asked.START, MemberKey(group_id, member.consumer_id)) in self.purgatory

    def unwatch_pings(self, group: Group, member: Member) -> None:
        for number, _ in member.pings:
            self.unwatch(Asked.PING, group, member, number)
        member.pings.clear()
