"""What the controller knows: live brokers, topics, the state of every partition, and what follows from them by counting."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from tidelog.release import RELEASE, Release
from tidelog.sizes import UNREGISTERED, Carried, check_topic
from tidelog.topic_config import MAX_MESSAGE_BYTES, UNCLEAN_ELECTION, TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.znodes import NO_VERSION, Move, StoredPlacement, StoredState, topic_config_path


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker in one of its lives."""

    broker_id: BrokerId
    epoch: int
    """czxid of its registration: another number is another life (HOLE-07)."""
    intact_since: int
    """First broker epoch since which its data directory has lost nothing."""
    listeners: tuple[m.Listener, ...] = ()
    rack: str = ""
    release: Release = RELEASE
    carried: Carried = UNREGISTERED
    directories: tuple[tuple[int, str], ...] = ()
    """First broker epoch and id of each data directory that is known, oldest first; the last is the present one."""

    def had(self, epoch: int) -> bool:
        """Returns whether its life of that epoch had the present data directory, as far as is known."""
        then = [directory_id for since, directory_id in self.directories if since <= epoch]
        return not then or then[-1] == self.directories[-1][1]

    def live(self, shutting_down: bool = False) -> m.LiveBroker:
        return m.LiveBroker(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            rack=self.rack,
            listeners=self.listeners,
            shutting_down=shutting_down,
            fetch_max_bytes=self.carried.fetch_max_bytes,
        )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and ISR of a partition as the metadata store holds them."""

    leader: BrokerId
    leader_epoch: int
    isr: tuple[m.IsrMember, ...]
    controller_epoch: int
    """Of the controller that wrote it."""
    partition_epoch: int
    """Version of the state znode."""
    recovering: bool = False
    """Its leader was elected uncleanly and has not reported back: the ISR is that leader alone till then (HOLE-26)."""

    @classmethod
    def of(cls, stored: StoredState, version: int) -> "PartitionState":
        return cls(stored.leader, stored.leader_epoch, stored.isr, stored.controller_epoch, version, stored.recovering)

    def members(self) -> frozenset[BrokerId]:
        """Brokers in the ISR."""
        return frozenset(BrokerId(member.broker_id) for member in self.isr)

    def stored(self) -> StoredState:
        return StoredState(self.leader, self.leader_epoch, self.isr, self.controller_epoch, self.recovering)


class IsrCause(StrEnum):
    """The reason for which a written ISR has other members than the one before; a metric's label."""

    LEADER = "leader"
    """Its leader asked for it (AlterIsr): a follower fell behind or has caught up."""
    BROKER_GONE = "broker gone"
    """A member's registration ended, or nothing listens at its address."""
    SHUTDOWN = "shutdown"
    """A member leaves by controlled shutdown."""
    DISK = "disk"
    """A member's disk does not hold the replica any more."""
    REASSIGNMENT = "reassignment"
    """The end of a move took the replicas out that go."""
    UNCLEAN_ELECTION = "unclean election"
    """Its leader may lack acknowledged records and is the only member; also where an operator released a veto."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One partition of an AlterIsr request that waits for a write or for its turn."""

    token: int
    slot: int
    """Where its result goes in the answer."""
    asker: BrokerId
    wanted: m.LeaderAndIsr


_KEEP_ALL: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""Settings with which no record is ever deleted."""


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    """As given; what is not given is the cluster's default."""
    min_insync_replicas: int
    partitions: "list[Partition]" = field(default_factory=list)
    has_config_node: bool = True
    version: int = 0
    """Of its znode: a growth and a reassignment are written on condition of it."""
    being_written: bool = False
    """Its znode is being written; at most one such write at a time."""
    config_version: int = 0
    """Of the znode of its settings, if there is one: a change of them is written on condition of it."""
    unread: int | None = None
    """Zxid of the last write of its settings, which cannot be read."""
    deleting: bool = False
    """Its deletion is stored: nobody elects, writes or publishes for it any more."""

    @property
    def allows_unclean(self) -> bool:
        """Whether a replica outside the ISR may lead when nobody else can (HOLE-25)."""
        return self.configs.get(UNCLEAN_ELECTION) == "true"

    @property
    def moves(self) -> dict[int, Move]:
        """The reassignments under way, by partition."""
        return {each.tp.partition: each.move for each in self.partitions if each.move is not None}

    def published(self) -> m.TopicState:
        return self._published(self.configs)

    def published_to(self, broker: Broker) -> m.TopicState | None:
        """The settings that a broker is told. None: they cannot be read, and it keeps those that it was told before.

        One that may have been told none would take the defaults, and might delete what is to be kept.
        """
        if self.unread is None:
            return self.published()
        is_new = broker.epoch > self.unread or any(broker.broker_id in each.adding for each in self.partitions)
        return self._published(_KEEP_ALL) if is_new else None

    def _published(self, configs: Mapping[str, str]) -> m.TopicState:
        entries = tuple(m.ConfigEntry(key=key, value=value) for key, value in sorted(configs.items()))
        return m.TopicState(topic=self.name, topic_id=self.topic_id, configs=entries)


@dataclass(slots=True, eq=False)
class Partition:
    tp: TopicPartition
    topic: Topic
    replicas: tuple[BrokerId, ...]
    """Of one that moves: the targets, then those that go."""
    move: Move | None = None
    state: PartitionState | None = None
    """None: new, and no replica has been alive yet (F01.3)."""
    writing: PartitionState | None = None
    """Sent to the store and not confirmed; at most one, and nobody is told before it is (N09)."""
    isr_cause: IsrCause = IsrCause.LEADER
    """The reason for which `writing` has other ISR members than `state`, if it has."""
    parked: Proposal | None = None
    failed_on: frozenset[BrokerId] = frozenset()
    """Brokers whose present life has answered that its disk does not hold this replica any more."""
    failed_changed: bool = False
    """Its replicas have not been told of `failed_on` as it is."""
    failed_in_epoch: int = NO_EPOCH
    """The leader epoch in which the disk of the leader has failed."""
    _published: m.PartitionState | None = None

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas as they are to be; unless it moves, as they are."""
        return self.replicas if self.move is None else self.move.target

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Those that had no copy before the reassignment under way, also where it was given up since."""
        return () if self.move is None else tuple(each for each in self.replicas if each not in self.move.old)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """Those that have none after it."""
        return () if self.move is None else tuple(each for each in self.replicas if each not in self.move.target)

    @property
    def factor(self) -> int:
        """How many copies there ought to be: those that are being added do not count before they replace others (KIP-455)."""
        return len(self.replicas) if self.move is None else len(self.move.old)

    def published(self) -> m.PartitionState:
        """What brokers are told; one object for all of them."""
        if self._published is None:
            assert self.state is not None, f"{self.tp} has no state to publish"
            self._published = m.PartitionState(
                topic=self.tp.topic,
                topic_id=self.topic.topic_id,
                partition=self.tp.partition,
                controller_epoch=self.state.controller_epoch,
                leader=self.state.leader,
                leader_epoch=self.state.leader_epoch,
                isr=self.state.isr,
                partition_epoch=self.state.partition_epoch,
                replicas=self.replicas,
                recovering=self.state.recovering,
                adding_replicas=self.adding,
                removing_replicas=self.removing,
            )
        if self.failed_on and self.writing is None:
            # While a write is under way one of them may be about to enter the ISR.
            return replace(self._published, offline_replicas=tuple(sorted(self.failed_on)))
        return self._published

    def published_as_new(self) -> m.PartitionState:
        return replace(self.published(), is_new=True)

    def forget_published(self) -> None:
        self._published = None

    def led_by_former_life_of(self, broker: Broker) -> bool:
        """The stored leader is an earlier life of `broker`, which must not be told that it leads.

        It would append in a leader epoch in which its former life has appended, perhaps what it has lost since.
        """
        state = self.state
        if state is None or state.leader != broker.broker_id:
            return False
        return all(m.broker_epoch != broker.epoch for m in state.isr if m.broker_id == broker.broker_id)

    @property
    def min_isr(self) -> int:
        """Capped by the replication factor, or nothing could ever be committed (HOLE-23)."""
        return min(self.topic.min_insync_replicas, self.factor)


class Health(NamedTuple):
    """Of one partition, or summed over all."""

    leaderless: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    not_preferred: int = 0

    @classmethod
    def of(cls, partition: Partition) -> "Health":
        state = partition.state
        if state is None or state.leader == NO_LEADER:
            # The ISR of a leaderless partition names who may lead again, not who is in sync: nobody is.
            return cls(1, 1, 1, 0, 1)
        in_sync = len(state.isr)
        return cls(
            0,
            int(in_sync < partition.factor),
            int(in_sync < partition.min_isr),
            int(in_sync == partition.min_isr),
            # Where one moves the leader follows in the end.
            int(partition.move is None and state.leader != partition.replicas[0]),
        )


class ClusterState:
    """Plain books with indexes; `ControllerMachine` is the only writer."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, Broker] = {}
        self.shutting_down: frozenset[BrokerId] = frozenset()
        """Live brokers that leave by controlled shutdown."""
        self.placement = StoredPlacement()
        self.placement_version = NO_VERSION
        """Of its znode."""
        self.placement_being_written = False
        self.emptying: dict[int, frozenset[BrokerId]] = {}
        """Brokers that are to be drained, by the token of a request that is not answered yet."""
        self.unread: dict[str, str] = {}
        """Znodes of settings that cannot be read, and why."""
        self.topics: dict[str, Topic] = {}
        self.leaders: Counter[BrokerId] = Counter()
        self.partition_count = 0
        self.moving: dict[TopicPartition, Partition] = {}
        """Those with a reassignment under way, in the order in which they began."""
        self._by_broker: dict[BrokerId, dict[TopicPartition, Partition]] = {}
        self._leaderless: dict[TopicPartition, Partition] = {}
        self._under_replicated = self._under_min_isr = self._at_min_isr = self._not_preferred = 0

    @property
    def health(self) -> Health:
        return Health(
            len(self._leaderless), self._under_replicated, self._under_min_isr, self._at_min_isr, self._not_preferred
        )

    @property
    def feature_level(self) -> int:
        """Up to which features may be used: that of this controller, or of the oldest live broker (`tidelog.release`)."""
        return min([RELEASE.level, *(broker.release.level for broker in self.brokers.values())])

    def check_level(self, level: int, what: str) -> None:
        """UNSUPPORTED_VERSION, beginning with `what` ("replicas cannot be moved"), while some live broker is below that level."""
        if self.feature_level < level:
            old = sorted(each.broker_id for each in self.brokers.values() if each.release.level < level)
            message = f"{what} while brokers {old} are of a release that does not know it: upgrade them first"
            raise TidelogError(message, ErrorCode.UNSUPPORTED_VERSION)

    def check_sizes(self, configs: Mapping[str, str], config: TopicConfig) -> None:
        """INVALID_CONFIG when `configs`, which `config` is made of, allow a batch that some live broker cannot carry."""
        if MAX_MESSAGE_BYTES in configs:
            check_topic(config.max_message_bytes, {each: broker.carried for each, broker in self.brokers.items()})

    def check_read(self, path: str, what: str) -> None:
        """UNKNOWN_SERVER_ERROR, beginning with `what` ("the settings of topic 't'"), if that znode cannot be read."""
        if path in self.unread:
            message = f"{what} cannot be read: {self.unread[path]}; repair this znode"
            raise TidelogError(message, ErrorCode.UNKNOWN_SERVER_ERROR)

    def live_brokers(self) -> tuple[m.LiveBroker, ...]:
        """As brokers are told."""
        return tuple(broker.live(broker_id in self.shutting_down) for broker_id, broker in self.brokers.items())

    @property
    def draining(self) -> frozenset[BrokerId]:
        """Brokers, alive or not, that get no replicas any more."""
        return frozenset(self.placement.draining)

    @property
    def barred(self) -> frozenset[BrokerId]:
        """Who gets no replicas: also the brokers of drains that are not stored yet, or what comes meanwhile would stay there."""
        return self.draining.union(*self.emptying.values())

    def open_brokers(self) -> dict[BrokerId, str]:
        """Those that may get replicas, with their racks ('' is none)."""
        barred = self.barred
        return {each: broker.rack for each, broker in self.brokers.items() if each not in barred}

    def partition(self, tp: TopicPartition) -> Partition | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def partitions_on(self, broker_id: BrokerId) -> Mapping[TopicPartition, Partition]:
        """Every partition with a replica assigned to this broker."""
        return self._by_broker.get(broker_id, {})

    def led_first(self, broker_id: BrokerId) -> list[Partition]:
        """Those that it leads before the others: nobody serves them until another leads, so they are written first."""
        here = self.partitions_on(broker_id).values()
        return sorted(here, key=lambda each: each.state is None or each.state.leader != broker_id)

    def leaderless(self) -> list[Partition]:
        return list(self._leaderless.values())

    def add_topic(
        self, topic: Topic, replicas: Sequence[tuple[BrokerId, ...]], moves: Mapping[int, Move] | None = None
    ) -> None:
        assert topic.name not in self.topics, topic.name
        self.topics[topic.name] = topic
        self.add_partitions(topic, replicas)
        for index, move in (moves or {}).items():
            self.assign(topic.partitions[index], replicas[index], move)

    def add_partitions(self, topic: Topic, replicas: Sequence[tuple[BrokerId, ...]]) -> Sequence[Partition]:
        """Appends partitions without a state, and returns them."""
        old = len(topic.partitions)
        for index, assigned in enumerate(replicas, old):
            partition = Partition(TopicPartition(topic.name, index), topic, assigned)
            topic.partitions.append(partition)
            for broker_id in assigned:
                self._by_broker.setdefault(broker_id, {})[partition.tp] = partition
            self.partition_count += 1
            self._count(partition, 1)
        return topic.partitions[old:]

    def assign(self, partition: Partition, replicas: tuple[BrokerId, ...], move: Move | None) -> None:
        """Other replicas for a partition; `move` is the reassignment that is under way from now on, None where it has ended."""
        self._count(partition, -1)
        for broker_id in partition.replicas:
            del self._by_broker[broker_id][partition.tp]
        partition.replicas, partition.move = replicas, move
        partition.failed_on &= frozenset(replicas)
        partition.forget_published()
        for broker_id in replicas:
            self._by_broker.setdefault(broker_id, {})[partition.tp] = partition
        if move is None:
            self.moving.pop(partition.tp, None)
        else:
            self.moving[partition.tp] = partition
        self._count(partition, 1)

    def set_configs(self, topic: Topic, configs: Mapping[str, str], min_insync_replicas: int) -> None:
        for partition in topic.partitions:
            self._count(partition, -1)
        topic.configs, topic.min_insync_replicas = configs, min_insync_replicas
        for partition in topic.partitions:
            self._count(partition, 1)

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.unread.pop(topic_config_path(name), None)
        for partition in topic.partitions:
            self.moving.pop(partition.tp, None)
            self._count(partition, -1)
            self.partition_count -= 1
            for broker_id in partition.replicas:
                del self._by_broker[broker_id][partition.tp]

    def set_state(self, partition: Partition, state: PartitionState | None) -> None:
        self._count(partition, -1)
        partition.state = state
        partition.forget_published()
        self._count(partition, 1)

    def _count(self, partition: Partition, sign: int) -> None:
        health = Health.of(partition)
        self._under_replicated += sign * health.under_replicated
        self._under_min_isr += sign * health.under_min_isr
        self._at_min_isr += sign * health.at_min_isr
        self._not_preferred += sign * health.not_preferred
        if not health.leaderless:
            assert partition.state is not None
            self.leaders[partition.state.leader] += sign
        elif sign > 0:
            self._leaderless[partition.tp] = partition
        else:
            del self._leaderless[partition.tp]

    def validate(self) -> None:
        """Asserts what must hold after every step (N01, I3) and that the counts are those of a recount."""
        total = list(Health())
        leaders: Counter[BrokerId] = Counter()
        for partition in self.partitions():
            _validate_partition(partition)
            total = [sum(pair) for pair in zip(total, Health.of(partition), strict=True)]
            if partition.state is not None and partition.state.leader != NO_LEADER:
                leaders[partition.state.leader] += 1
            for broker_id in partition.replicas:
                assert self._by_broker[broker_id][partition.tp] is partition, partition.tp
        assert self.health == Health(*total), (self.health, total)
        assert +self.leaders == leaders, (self.leaders, leaders)
        assert self.partition_count == sum(len(topic.partitions) for topic in self.topics.values())
        moving = {each.tp for each in self.partitions() if each.move is not None}
        assert self.moving.keys() == moving, (self.moving.keys(), moving)


def _validate_partition(partition: Partition) -> None:
    assert len(set(partition.replicas)) == len(partition.replicas) > 0, f"{partition.tp}: replicas {partition.replicas}"
    if partition.move is not None:
        named = {*partition.move.old, *partition.move.target}
        assert named <= set(partition.replicas), f"{partition.tp}: {partition.move} not in {partition.replicas}"
    for state in (partition.state, partition.writing):
        if state is None:
            continue
        members = [member.broker_id for member in state.isr]
        assert members, f"{partition.tp}: empty ISR"
        assert len(set(members)) == len(members), f"{partition.tp}: a broker twice in {state.isr}"
        assert set(members) <= set(partition.replicas), f"{partition.tp}: ISR {members} not in {partition.replicas}"
        assert state.leader == NO_LEADER or state.leader in members, f"{partition.tp}: leader {state.leader} not in ISR"
    if partition.state is not None and partition.writing is not None:
        old, new = partition.state, partition.writing
        assert new.partition_epoch == old.partition_epoch + 1, f"{partition.tp}: {old} then {new}"
        assert new.leader_epoch >= old.leader_epoch, f"{partition.tp}: {old} then {new}"
        assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, f"{partition.tp}: {old} then {new}"
