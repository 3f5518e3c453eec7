"""A whole cluster in one event loop: the real controllers, brokers and clients over the in-memory twins of their ports.

Everything that happens is drawn from one seed, so that a run can be repeated. Faults act on nodes and links from outside;
what the processes do about them is their own code.
"""

from collections.abc import Iterator, Mapping

from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.client.connections import ClientPorts
from tidelog.ids import Address, TopicPartition
from tidelog.storage.log_store import parse_folder_name
from tidelog.testing.clock import SimClock
from tidelog.testing.invariants import Checker, PartitionView, StoredView
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.observer import Observer
from tidelog.testing.rand import seeded
from tidelog.testing.sim_history import SimHistory
from tidelog.testing.sim_node import SimNode, Timing, World
from tidelog.testing.views import BatchReader, partition_views, stored_states, vetoed
from tidelog.wire.batch import iter_batches


class SimCluster:
    def __init__(
        self,
        seed: int,
        brokers: int = 3,
        controllers: int = 2,
        compacted: str = "",
        zookeeper_lag_s: float = 0.0,
        timing: Timing | None = None,
    ) -> None:
        """`compacted`: a topic that brokers compact; they scrub then, too. `zookeeper_lag_s`: ZooKeeper has followers, which
        apply a write up to this late. `timing` is drawn unless given."""
        self.seed = seed
        self.timing = timing = timing or Timing.drawn(seed)
        self.zookeeper = SimZooKeeper(
            seeded(seed, "zookeeper"), servers=3 if zookeeper_lag_s else 1, lag_s=zookeeper_lag_s
        )
        self.network = SimNetwork(seeded(seed, "network"), keepalive_s=timing.keepalive_s)
        self.world = World(seed, seeded(seed, "faults"), timing, self.zookeeper, self.network)
        self.world.compacted = compacted
        self.nodes = self.world.nodes
        names = (*(f"broker-{i}" for i in range(brokers)), *(f"controller-{i}" for i in range(1, controllers + 1)))
        self.nodes.update((name, SimNode(self.world, name)) for name in names)
        self.checker = Checker()
        self.history = SimHistory()
        self.observer = Observer(self.world, self.checker)
        self._reader = BatchReader()

    @property
    def brokers(self) -> list[SimNode]:
        return self.world.brokers

    @property
    def controllers(self) -> list[SimNode]:
        return self.world.controllers

    @property
    def bootstrap(self) -> list[Address]:
        return [node.address for node in self.brokers]

    def client_ports(self, name: str) -> ClientPorts:
        """Of a client that lives outside the faults: it is neither killed nor cut off."""
        return ClientPorts(SimClock(), self.network.node(name), seeded(self.seed, name))

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    @property
    def delivered(self) -> int:
        """Messages that have arrived, between processes and to and from ZooKeeper."""
        return self.network.deliveries + self.zookeeper.deliveries

    def _living(self) -> Iterator[tuple[int, int, list[PartitionHost]]]:
        for node in self.brokers:
            broker = node.broker
            if node.running and broker is not None and broker.manager is not None and broker.registration is not None:
                yield node.number, broker.registration.broker_epoch, list(broker.manager)

    def vetoed(self) -> frozenset[TopicPartition]:
        """Partitions that rightly wait for an operator: every member of the ISR is back in another life that lost something, or
        the only member reports that it cannot read its log, and the files of that log have rotted."""
        states = stored_states(self.zookeeper.dump())
        return vetoed(states, self.zookeeper) | self._rotten_last_copies(states)

    def _rotten_last_copies(self, states: Mapping[TopicPartition, StoredView]) -> frozenset[TopicPartition]:
        node = self.world.rotting
        if node is None or node.broker is None or node.broker.manager is None:
            return frozenset()
        failed = {TopicPartition(each.topic, each.partition) for each in node.broker.manager.failed()}
        rotten = {parse_folder_name(path.split("/")[2]) for path in node.disk.rotten()}
        return frozenset(
            tp for tp in failed & states.keys() & rotten if {broker for broker, _ in states[tp].isr} == {node.number}
        )

    def converged(self, except_for: frozenset[TopicPartition]) -> bool:
        """LIVE-1, 2 and 4: every partition led, every replica in sync, every high watermark at its log's end."""
        views = self._views()
        return bool(views) and all(_converged(view) for view in views if view.tp not in except_for)

    def whole(self) -> frozenset[TopicPartition]:
        """Partitions of which `converged` holds."""
        return frozenset(view.tp for view in self._views() if _converged(view))

    def _views(self) -> list[PartitionView]:
        return partition_views(stored_states(self.zookeeper.dump()), self._living(), self._reader)

    def describe(self) -> str:
        """What stands in the way of convergence, in a line."""
        return "; ".join(
            f"{v.tp} stored {v.stored} replicas "
            + ", ".join(
                f"{r.broker_id}{'*' if r.leads else ''} e{r.leader_epoch} {r.high_watermark}/{r.log_end_offset}"
                for r in v.replicas.values()
            )
            for v in self._views()
            if not _converged(v)
        )

    def tend(self) -> None:
        """What an operator does after the faults: starts what has ended by itself, and gives a broker whose log is damaged an
        empty disk, since it may fetch everything from the others. Rot heals without that,
        but for a log that the start of the broker could not read."""
        self.start_ended()
        for node in self.brokers:
            if node.broker is not None and node.broker.manager is not None and not node.terminating:
                manager = node.broker.manager
                if node is self.world.rotting:
                    if not _unopened(manager):
                        continue
                elif all(host.log.damage is None for host in manager):
                    continue
                node.kill()
                node.replace_disk()
                node.start()

    def start_ended(self) -> None:
        for node in self.brokers:
            if node.dead:
                node.start()

    def logs(self, tp: TopicPartition) -> dict[int, bytes]:
        """Every replica's bytes up to its high watermark, by broker."""
        found = {}
        for broker_id, _, hosts in self._living():
            for host in hosts:
                if host.tp == tp:
                    found[broker_id] = b"".join(_batches_below(host, host.replica.high_watermark))
        return found

    def end(self, tp: TopicPartition) -> int:
        """The highest high watermark of its replicas."""
        hosts = (host for _, _, hosts in self._living() for host in hosts)
        return max((host.replica.high_watermark for host in hosts if host.tp == tp), default=0)

    def leader(self, tp: TopicPartition) -> int:
        state = stored_states(self.zookeeper.dump()).get(tp)
        return -1 if state is None else state.leader


def _unopened(manager: ReplicaManager) -> set[TopicPartition]:
    """Partitions whose logs could not be opened at the start."""
    failed = {TopicPartition(each.topic, each.partition) for each in manager.failed()}
    return failed - {host.tp for host in manager}


def _batches_below(host: PartitionHost, end: int) -> Iterator[bytes]:
    at = host.log.log_start_offset
    while at < end:
        records = host.log.read(at, 1 << 30, end)
        yield records
        at = max(header.end_offset for _, header in iter_batches(records))


def _converged(view: PartitionView) -> bool:
    stored = view.stored
    if stored is None or stored.leader < 0 or len(stored.isr) < len(stored.replicas):
        return False
    ends = {r.log_end_offset for r in view.replicas.values()}
    marks = {r.high_watermark for r in view.replicas.values()}
    return len(view.replicas) == len(stored.replicas) and len(ends) == 1 and ends == marks
