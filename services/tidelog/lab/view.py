"""Read-only pictures of a simulated cluster: partitions, processes, groups. A picture does not change when the cluster does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tidelog.broker.partition_host import PartitionHost
from tidelog.ids import NO_LEADER, NO_OFFSET, TopicPartition
from tidelog.testing.drive import Drive
from tidelog.testing.group_watch import GroupWatch
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import ZOOKEEPER, SimNode
from tidelog.wire import znodes

UP: Final = "up"
PAUSED: Final = "paused"
STOPPING: Final = "stopping"
DOWN: Final = "down"

# A page looks at all partitions ten times a second, and few of them have changed since.
_decode_topic: Final = lru_cache(100)(znodes.decode_topic)
_decode_state: Final = lru_cache(1_000)(znodes.decode_state)


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica as its broker has it; of a broker that is down there is none."""

    broker: int
    leads: bool
    """It believes so, and may be wrong."""
    epoch: int
    """The leader epoch that it knows."""
    log_start: int
    log_end: int
    """The offset after its last record."""
    high_watermark: int
    epochs: tuple[tuple[int, int], ...]
    """Each leader epoch of its log, with the offset at which it begins."""
    offline: bool
    """Its disk failed."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: `leader`, `epoch`, `isr` and `replicas` as ZooKeeper has them, the rest as brokers have it."""

    topic: str
    number: int
    leader: int
    """-1: none."""
    epoch: int
    """The leader epoch."""
    version: int
    """Version of the znode with leader and ISR, which is the partition epoch."""
    isr: tuple[int, ...]
    """In ascending order."""
    replicas: tuple[int, ...]
    """Brokers; the first is the preferred leader."""
    at: Mapping[int, Replica]
    """Replicas of running brokers, by broker."""

    @property
    def in_sync(self) -> bool:
        """True where there is a leader and every replica is in the ISR."""
        return self.leader != NO_LEADER and len(self.isr) == len(self.replicas)

    @property
    def _shown(self) -> Replica | None:
        """The leader's replica; without one, the replica with the highest high watermark."""
        found = self.at.get(self.leader)
        return found or max(self.at.values(), key=lambda replica: replica.high_watermark, default=None)

    @property
    def high_watermark(self) -> int:
        """The leader's; without a leader, the highest; -1: no replica runs."""
        return NO_OFFSET if self._shown is None else self._shown.high_watermark

    @property
    def log_end(self) -> int:
        return NO_OFFSET if self._shown is None else self._shown.log_end

    @property
    def log_start(self) -> int:
        return NO_OFFSET if self._shown is None else self._shown.log_start


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as ZooKeeper has it."""

    name: str
    generation: int
    phase: str
    """`stable`, or the step of a rebalance."""
    members: tuple[str, ...]
    """Consumer ids."""
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    processed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offset after the last record that the group's applications have processed."""
    repeated: int = 0
    """Records that they have processed once more."""


class View:
    """The cluster at this instant. Every call makes a new picture."""

    def __init__(self, sim: SimCluster, groups: GroupWatch | None, drive: Drive) -> None:
        self._sim = sim
        self._groups = groups
        self._drive = drive
        self._left: dict[str, dict[TopicPartition, Replica]] = {}

    # -- partitions --------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self._sim.zookeeper.below(znodes.TOPICS))

    def partitions(self, topic: str | None = None) -> list[Partition]:
        """Returns the partitions of one topic, or of all topics. KeyError: there is no such topic."""
        hosts = self._replicas()
        found = []
        for name in self.topics() if topic is None else [topic]:
            for number, replicas in enumerate(self._assignment(name).partitions):
                tp = TopicPartition(name, number)
                found.append(self._partition(tp, replicas, hosts.get(tp, {})))
        return found

    def count(self, topic: str) -> int:
        """Returns how many partitions a topic has. KeyError: there is no such topic."""
        return len(self._assignment(topic).partitions)

    def _assignment(self, topic: str) -> znodes.TopicAssignment:
        node = self._sim.zookeeper.find(znodes.topic_path(topic))
        if node is None:
            raise KeyError(f"there is no topic {topic!r}")
        return _decode_topic(topic, node.data)

    def partition(self, topic: str, number: int) -> Partition:
        """KeyError: there is no such topic or partition."""
        assigned = self._assignment(topic).partitions
        if not 0 <= number < len(assigned):
            raise KeyError(f"topic {topic!r} has {len(assigned)} partitions, and no partition {number}")
        tp = TopicPartition(topic, number)
        return self._partition(tp, assigned[number], self._replicas(tp).get(tp, {}))

    def _partition(self, tp: TopicPartition, assigned: Sequence[int], at: Mapping[int, Replica]) -> Partition:
        replicas = tuple(map(int, assigned))
        node = self._sim.zookeeper.find(znodes.state_path(*tp))
        if node is None:
            return Partition(*tp, NO_LEADER, -1, -1, (), replicas, at)
        state = _decode_state(*tp, node.data)
        isr = tuple(sorted(int(member.broker_id) for member in state.isr))
        return Partition(*tp, int(state.leader), state.leader_epoch, node.stat.version, isr, replicas, at)

    def _replicas(self, only: TopicPartition | None = None) -> dict[TopicPartition, dict[int, Replica]]:
        """Returns the replicas of running brokers, of all partitions or of one."""
        found: dict[TopicPartition, dict[int, Replica]] = {}
        for node in self._sim.brokers:
            for host in node.hosts():
                if only is None or host.tp == only:
                    found.setdefault(host.tp, {})[node.number] = _replica(node, host)
        return found

    def remember(self, node: SimNode) -> None:
        """Keeps what a broker that has just ended had last."""
        manager = node.broker.manager if node.broker is not None else None
        self._left[node.name] = {host.tp: _replica(node, host) for host in manager or ()}

    def left(self, tp: TopicPartition) -> dict[int, Replica]:
        """Returns the replicas of the last life of each broker, as they were in the end."""
        return {node.number: kept[tp] for node in self._sim.brokers if tp in (kept := self._left.get(node.name, {}))}

    # -- processes ---------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds of virtual time since the lab began."""
        return self._drive.loop.time()

    def processes(self) -> dict[str, str]:
        """Returns the state of each process: `up`, `paused`, `stopping` or `down`."""
        zookeeper = UP if self._sim.zookeeper.running else DOWN
        return {**{name: _state(node) for name, node in self._sim.world.everything.items()}, ZOOKEEPER: zookeeper}

    @property
    def controller(self) -> str:
        """The process that acts as controller; "" where none does."""
        with self._drive.at_this_time():
            for node in self._sim.controllers:
                with node.clock.unmoved():
                    if node.running and node.controller is not None and node.controller.active:
                        return node.name
        return ""

    def coordinator(self, group: str) -> str:
        """Returns the broker that coordinates a group; "" where none does."""
        with self._drive.at_this_time():
            for node in self._sim.brokers:
                found = node.broker.coordinators if node.running and node.broker is not None else None
                term = None if found is None else found.term_of(group)
                with node.clock.unmoved():
                    if term is not None and term.acting:
                        return node.name
        return ""

    def silence(self, group: str, member: str) -> tuple[float, float] | None:
        """Returns for how long a coordinator has not heard of a member, and after how long its lease ends, in seconds.

        None: no coordinator knows it.
        """
        with self._drive.at_this_time():
            for node in self._sim.brokers:
                found = node.broker.coordinators if node.running and node.broker is not None else None
                term = None if found is None else found.term_of(group)
                with node.clock.unmoved():
                    known = None if term is None or not term.acting else term.machine.groups.get(group)
                    if known is not None and member in known.members:
                        it = known.members[member]
                        return node.clock.now() - it.answered_at, it.dead_at - it.answered_at
        return None

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Returns the names of the groups that are stored."""
        names = () if self._groups is None else self._groups.groups
        return sorted(name for name in names if self._head(name) is not None)

    def _head(self, name: str) -> znodes.StoredHead | None:
        node = self._sim.zookeeper.find(znodes.group_path(name))
        return None if node is None or not node.data else znodes.decode_head(name, node.data)

    def group(self, name: str) -> Group:
        """KeyError: no such group is stored."""
        head = self._head(name)
        if head is None or self._groups is None:
            raise KeyError(f"there is no group {name!r}")
        owners, committed = {}, {}
        for path, each in sorted(self._sim.zookeeper.dump().items()):
            match path.removeprefix(znodes.CONSUMERS + "/").split("/"):
                case [group, "owners", topic, partition] if group == name:
                    owners[TopicPartition(topic, int(partition))] = znodes.decode_owner(path, each.data).consumer
                case [group, "offsets", topic, partition] if group == name:
                    committed[TopicPartition(topic, int(partition))] = znodes.decode_offset(path, each.data).offset
        done, repeated = self._groups.processed_of(name), self._groups.repeated[name]
        return Group(name, head.generation, head.phase, tuple(sorted(head.members)), owners, committed, done, repeated)


def _state(node: SimNode) -> str:
    if not node.running or node.process is None:
        return DOWN
    if node.process.paused:
        return PAUSED
    return STOPPING if node.terminating else UP


def _replica(node: SimNode, host: PartitionHost) -> Replica:
    replica = host.replica
    return Replica(
        broker=node.number,
        leads=replica.leading is not None,
        epoch=replica.leader_epoch,
        log_start=host.log.log_start_offset,
        log_end=replica.log_end_offset,
        high_watermark=replica.high_watermark,
        epochs=tuple(host.log.epochs.entries),
        offline=host.offline is not None or host.log.failure is not None,
    )
