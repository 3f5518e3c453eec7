"""A whole cluster in one event loop: the real controllers, brokers and clients over the in-memory twins of their ports.

Everything that happens is drawn from one seed, so that a run can be repeated. Faults act on nodes and links from outside;
what the processes do about them is their own code.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from tidelog.broker.app import Broker
from tidelog.broker.partition_host import PartitionHost
from tidelog.client.connections import ClientPorts
from tidelog.config import BrokerSettings, ControllerSettings
from tidelog.controller.app import Controller
from tidelog.ids import Address, TopicPartition
from tidelog.ports.bundle import Ports
from tidelog.runtime.metrics import BrokerMetrics, ControllerMetrics
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash, SimDisk
from tidelog.testing.invariants import Checker, PartitionView
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.testing.views import BatchReader, partition_views, stored_states
from tidelog.wire import znodes

_log = logging.getLogger(__name__)

SESSION_MS: Final = 6_000
LAG_MS: Final = 10_000
REQUEST_MS: Final = 3_000
BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093


class SimNode:
    """One host. Its disk survives its processes; each start is a new process with a session of its own."""

    def __init__(self, cluster: "SimCluster", name: str) -> None:
        self.name = name
        self.cluster = cluster
        self.disk = SimDisk()
        self.process: SimProcess | None = None
        self.meta: SimMeta | None = None
        self.broker: Broker | None = None
        self.controller: Controller | None = None
        self.starts = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def address(self) -> Address:
        return Address(self.name, BROKER_PORT if self.name.startswith("broker") else CONTROLLER_PORT)

    def start(self) -> None:
        assert not self.running, f"{self.name} runs already"
        self.starts += 1
        cluster = self.cluster
        process = self.process = SimProcess(self.name)
        self.meta = cluster.zookeeper.client(session_timeout_s=SESSION_MS / 1000, request_timeout_s=REQUEST_MS / 1000)
        ports = Ports(
            clock=SimClock(),
            net=cluster.network.node(self.name, process, lambda path: cluster.bugs.append(f"{self.name}: {path}")),
            disk=self.disk,
            meta=self.meta,
            rand=seeded(cluster.seed, f"{self.name}/{self.starts}"),
        )
        number = int(self.name.partition("-")[2])
        if self.name.startswith("broker"):
            broker = self.broker = self._broker(number, ports, process)
            process.start("start", broker.start())
        else:
            controller = self.controller = self._controller(number, ports, process)
            process.start("start", controller.start())

    def _broker(self, number: int, ports: Ports, process: SimProcess) -> Broker:
        settings = BrokerSettings(
            broker_id=number,
            zookeeper=(Address("zookeeper", 2181),),
            listeners={"INTERNAL": self.address},
            data_dir=Path("/data"),
            replica_lag_time_max_ms=LAG_MS,
            request_timeout_ms=REQUEST_MS,
            zookeeper_session_timeout_ms=SESSION_MS,
            high_watermark_checkpoint_interval_ms=1_000,
            segment_bytes=16 << 10,
        )
        return Broker(settings, ports, process.supervisor, BrokerMetrics(CollectorRegistry()))

    def _controller(self, number: int, ports: Ports, process: SimProcess) -> Controller:
        settings = ControllerSettings(
            controller_id=number,
            zookeeper=(Address("zookeeper", 2181),),
            listen=self.address,
            request_timeout_ms=REQUEST_MS,
            zookeeper_session_timeout_ms=SESSION_MS,
        )
        return Controller(settings, ports, process.supervisor, ControllerMetrics(CollectorRegistry()))

    def kill(self, crash: Crash = Crash.PROCESS) -> None:
        """SIGKILL, or a loss of power of the host (`Crash.KEEP_SOME`, `DROP_UNSYNCED`)."""
        assert self.process is not None and self.meta is not None
        self.process.kill()
        self.cluster.network.kill(self.name)
        self.meta.kill()
        self.disk.crash(crash, self.cluster.rand)
        self.broker = self.controller = None

    def pause(self) -> None:
        assert self.process is not None and self.meta is not None
        self.process.pause()
        self.cluster.network.pause(self.name)
        self.meta.pause()

    def resume(self) -> None:
        assert self.process is not None and self.meta is not None
        self.process.resume()
        self.cluster.network.resume(self.name)
        self.meta.resume()


class SimCluster:
    def __init__(self, seed: int, brokers: int = 3, controllers: int = 2) -> None:
        self.seed = seed
        self.rand = seeded(seed, "faults")
        self.zookeeper = SimZooKeeper(seeded(seed, "zookeeper"))
        self.network = SimNetwork(seeded(seed, "network"))
        self.checker = Checker()
        self.bugs: list[str] = []
        """Node and method of every request handler that raised what is no part of its protocol."""
        self._reader = BatchReader()
        self.nodes = {
            name: SimNode(self, name)
            for name in (
                *(f"broker-{i}" for i in range(brokers)),
                *(f"controller-{i}" for i in range(1, controllers + 1)),
            )
        }

    @property
    def brokers(self) -> list[SimNode]:
        return [node for name, node in self.nodes.items() if name.startswith("broker")]

    @property
    def controllers(self) -> list[SimNode]:
        return [node for name, node in self.nodes.items() if name.startswith("controller")]

    @property
    def bootstrap(self) -> list[Address]:
        return [node.address for node in self.brokers]

    def client_ports(self, name: str) -> ClientPorts:
        """Of a client that lives outside the faults: it is neither killed nor cut off."""
        return ClientPorts(SimClock(), self.network.node(name), seeded(self.seed, name))

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def check(self) -> None:
        """Every invariant, now. `Violation` names the one that does not hold."""
        for view in partition_views(stored_states(self.zookeeper.dump()), self._living(), self._reader):
            self.checker.check(view)

    def _living(self) -> Iterator[tuple[int, int, list[PartitionHost]]]:
        for node in self.brokers:
            broker = node.broker
            if node.running and broker is not None and broker.manager is not None and broker.registration is not None:
                number = int(node.name.partition("-")[2])
                yield number, broker.registration.broker_epoch, list(broker.manager)

    def vetoed(self) -> frozenset[TopicPartition]:
        """Partitions that rightly have no leader: every member of the ISR is back in another life that lost something."""
        tree = self.zookeeper.dump()
        registered = {
            int(path.rpartition("/")[2]): (
                node.stat.czxid,
                znodes.decode_broker(int(path.rpartition("/")[2]), node.data),
            )
            for path, node in tree.items()
            if path.startswith(znodes.BROKER_IDS + "/")
        }
        found = set()
        for tp, stored in stored_states(tree).items():
            lives = [(registered.get(broker), epoch) for broker, epoch in stored.isr]
            lost = [r is not None and r[0] != epoch and not 0 <= r[1].intact_since <= epoch for r, epoch in lives]
            if stored.leader < 0 and all(lost):
                found.add(tp)
        return frozenset(found)

    def converged(self, except_for: frozenset[TopicPartition]) -> bool:
        """LIVE-1, 2 and 4: every partition led, every replica in sync, every high watermark at its log's end."""
        states = stored_states(self.zookeeper.dump())
        views = partition_views(states, self._living(), self._reader)
        return bool(states) and all(_converged(view) for view in views if view.tp not in except_for)

    def describe(self) -> str:
        """What stands in the way of convergence, in a line."""
        states = stored_states(self.zookeeper.dump())
        return "; ".join(
            f"{v.tp} stored {v.stored} replicas "
            + ", ".join(
                f"{r.broker_id}{'*' if r.leads else ''} e{r.leader_epoch} {r.high_watermark}/{r.log_end_offset}"
                for r in v.replicas.values()
            )
            for v in partition_views(states, self._living(), self._reader)
            if not _converged(v)
        )

    def leader(self, tp: TopicPartition) -> int:
        state = stored_states(self.zookeeper.dump()).get(tp)
        return -1 if state is None else state.leader


def _converged(view: PartitionView) -> bool:
    stored = view.stored
    if stored is None or stored.leader < 0 or len(stored.isr) < len(stored.replicas):
        return False
    ends = {r.log_end_offset for r in view.replicas.values()}
    marks = {r.high_watermark for r in view.replicas.values()}
    return len(view.replicas) == len(stored.replicas) and len(ends) == 1 and ends == marks
