"""One simulated host: a disk, a clock, and the process that runs there now, the real broker or the real controller."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry

from tidelog.broker.app import Broker
from tidelog.broker.partition_host import PartitionHost
from tidelog.config import BrokerSettings, ControllerSettings
from tidelog.controller.app import Controller
from tidelog.ids import Address, TopicPartition
from tidelog.ports.bundle import Ports
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.runtime.metrics import BrokerMetrics, ControllerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.strays import DELETE_SUFFIX, STRAY_SUFFIX
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash, SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.testing.worker import SimWorker
from tidelog.watch.ring import Ring

_log = logging.getLogger(__name__)

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
ZOOKEEPER: Final = "zookeeper"
SHARDS: Final = 2
"""Shards of the groups."""


class Application(Protocol):
    """A process that can be asked to stop."""

    async def stop(self) -> None: ...


Image = Mapping[str, bytes | None]
"""Every path of a disk with its content; None for a directory."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and sizes of one run: drawn, since a bug may need a lag limit below a session timeout, or the reverse."""

    session_ms: int
    lag_ms: int
    request_ms: int
    suspect_hold_ms: int
    keepalive_s: float
    segment_bytes: int
    rebalance_ms: int
    """Between two looks of the controller for leaders to move back; what makes one broker lead again and again."""

    @classmethod
    def drawn(cls, seed: int) -> "Timing":
        rand = seeded(seed, "timing")

        def one_of(*choices: int) -> int:
            return choices[rand.randrange(len(choices))]

        return cls(
            session_ms=one_of(2_000, 4_000, 6_000),
            lag_ms=one_of(300, 1_000, 2_500, 6_000),
            request_ms=one_of(1_000, 3_000, 6_000),
            suspect_hold_ms=one_of(1_000, 10_000),
            keepalive_s=one_of(1, 4),
            segment_bytes=one_of(2 << 10, 16 << 10),
            rebalance_ms=one_of(400, 400, 2_000, 300_000),
        )


@dataclass(slots=True)
class World:
    """What all hosts of a run share."""

    seed: int
    rand: Rand
    """Of the faults."""
    timing: Timing
    zookeeper: SimZooKeeper
    network: SimNetwork
    nodes: "dict[str, SimNode]" = field(default_factory=dict)
    compacted: str = ""
    """The topic that brokers compact, and scrub meanwhile; empty: they do neither. Its replicas differ byte by byte."""
    bugs: list[str] = field(default_factory=list)
    """Node and method of every request handler that raised what is no part of its protocol."""
    rings: list[Ring] = field(default_factory=list)
    """Protocol events of each life of a process."""
    rotting: "SimNode | None" = None
    """The broker whose disk rots; all brokers scrub then."""
    make_ring: Callable[[str, int, Clock], Ring] = Ring
    """Called with process, life and clock of a process that starts."""
    on_gone: "Callable[[SimNode], None]" = lambda node: None
    """Called when a process has ended."""
    on_fault: Callable[[str, tuple[str, ...], bool], None] = lambda text, struck, mends: None
    """Called with what is done to hosts and links from outside, the processes that it is done to, and whether it ends a fault."""
    others: "dict[str, SimNode]" = field(default_factory=dict)
    """Hosts that no fault acts on and that are no part of the cluster."""

    def tell(self, text: str, *struck: str, mends: bool = False) -> None:
        """Tells what is done now. struck: the processes that it is done to. mends: it ends a fault."""
        _log.info("fault: %s", text)
        self.on_fault(text, struck, mends)

    @property
    def everything(self) -> "dict[str, SimNode]":
        return {**self.nodes, **self.others}

    @property
    def brokers(self) -> "list[SimNode]":
        return [node for name, node in self.nodes.items() if name.startswith("broker")]

    @property
    def controllers(self) -> "list[SimNode]":
        return [node for name, node in self.nodes.items() if name.startswith("controller")]

    def log_of(self, broker: int, tp: TopicPartition) -> PartitionLog | None:
        """The log that a running broker has of a partition; None where it has none that works."""
        node = self.nodes[f"broker-{broker}"]
        manager = node.broker.manager if node.running and node.broker is not None else None
        log = None if manager is None else manager.stored().get(tp)
        return None if log is None or log.failure is not None else log


class SimNode:
    """One host. Its disk survives its processes; each start is a new process with a session of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.number = int(name.partition("-")[2])
        self.world = world
        self.settings: Mapping[str, Any] = {}
        """Settings that differ from those of a run with faults; they take effect at the next start."""
        self.disk = self._new_disk()
        self.clock = SimClock()
        """Of the host: its calendar may jump."""
        self.excused = False
        """Its disk was broken in this life: the process may end by itself, and partitions may stay offline until a restart."""
        self.process: SimProcess | None = None
        self.meta: SimMeta | None = None
        self.coordinator_meta: SimMeta | None = None
        """Of a broker: the session of its coordinators."""
        self.broker: Broker | None = None
        self.controller: Controller | None = None
        self.registry = CollectorRegistry()
        """The metrics of its last process."""
        self._stalled_until = 0.0
        """When its disk answers a call that was made on the event loop."""
        self.starts = 0
        self.harmed_at = -1
        """The last transaction of ZooKeeper before something happened to its disk last; -1: nothing ever did."""
        self.lost_records = False
        """Its last end was a loss of power that took bytes of a log along."""
        self.terminating = False
        self.stopper = Supervisor("stop")

    def hosts(self) -> list[PartitionHost]:
        """Partitions that its broker was told of in this life."""
        manager = self.broker.manager if self.running and self.broker is not None else None
        return list(manager or ())

    @property
    def application(self) -> Application | None:
        """What its process runs."""
        return self.broker or self.controller

    @property
    def dead(self) -> bool:
        """Killed, or never started: nothing of its last process is left."""
        return self.application is None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def is_broker(self) -> bool:
        return self.name.startswith("broker")

    @property
    def address(self) -> Address:
        return Address(self.name, BROKER_PORT if self.is_broker else CONTROLLER_PORT)

    def start(self) -> None:
        assert not self.running and self.dead, f"{self.name} runs already"
        if self.process is not None:
            self.world.tell(f"{self.name} starts", self.name, mends=True)
        self.starts += 1
        self.excused, self.terminating = self.disk.failing, False
        self.process = SimProcess(self.name)
        self._launch(self.process)

    def _launch(self, process: SimProcess) -> None:
        world = self.world
        self.registry = CollectorRegistry()
        self.meta = self._session()
        self.coordinator_meta = self._session() if self.is_broker else None
        ports = Ports(
            clock=self.clock,
            net=world.network.node(self.name, process, lambda path: world.bugs.append(f"{self.name}: {path}")),
            disk=self.disk,
            meta=self.meta,
            rand=seeded(world.seed, f"{self.name}/{self.starts}"),
            coordinator_meta=self.coordinator_meta,
            recorder=self._ring(),
            worker=SimWorker(self.disk) if self.is_broker and (world.compacted or world.rotting) else None,
        )
        number = self.number
        if self.is_broker:
            broker = self.broker = self._broker(number, ports, process)
            process.start("start", broker.start())
        else:
            controller = self.controller = self._controller(number, ports, process)
            process.start("start", controller.start())

    def _ring(self) -> Ring:
        ring = self.world.make_ring(self.name, self.starts, self.clock)
        self.world.rings.append(ring)
        return ring

    def _session(self) -> SimMeta:
        timing = self.world.timing
        return self.world.zookeeper.client(
            session_timeout_s=timing.session_ms / 1000, request_timeout_s=timing.request_ms / 1000
        )

    @property
    def sessions(self) -> list[SimMeta]:
        return [each for each in (self.meta, self.coordinator_meta) if each is not None]

    def cut_zookeeper(self) -> None:
        """Every connection of this host to the store."""
        if not all(meta.is_cut for meta in self.sessions):
            self.world.tell(f"{self.name} is cut off from zookeeper", self.name)
        for meta in self.sessions:
            meta.cut()

    def heal_zookeeper(self) -> None:
        if any(meta.is_cut for meta in self.sessions):
            self.world.tell(f"{self.name} reaches zookeeper again", self.name, mends=True)
        for meta in self.sessions:
            meta.heal()

    def _broker(self, number: int, ports: Ports, process: SimProcess) -> Broker:
        timing = self.world.timing
        settings = BrokerSettings(
            broker_id=number,
            zookeeper=(Address(ZOOKEEPER, 2181),),
            listeners={"INTERNAL": self.address},
            data_dir=Path("/data"),
            replica_lag_time_max_ms=timing.lag_ms,
            request_timeout_ms=timing.request_ms,
            zookeeper_session_timeout_ms=timing.session_ms,
            high_watermark_checkpoint_interval_ms=1_000,
            segment_bytes=timing.segment_bytes,
            metadata_reserve_bytes=4 << 10,
            coordinator_shards=SHARDS,
        )
        if self.world.compacted:
            settings = replace(
                settings, log_cleaner_backoff_ms=200, log_scrub_interval_ms=2_000, log_flush_interval_ms=500
            )
        settings = replace(settings, **self.settings)
        return Broker(settings, ports, process.supervisor, BrokerMetrics(self.registry))

    def _controller(self, number: int, ports: Ports, process: SimProcess) -> Controller:
        timing = self.world.timing
        settings = ControllerSettings(
            controller_id=number,
            zookeeper=(Address(ZOOKEEPER, 2181),),
            listen=self.address,
            request_timeout_ms=timing.request_ms,
            zookeeper_session_timeout_ms=timing.session_ms,
            suspect_hold_ms=timing.suspect_hold_ms,
            leader_imbalance_check_interval_ms=timing.rebalance_ms,
            leader_imbalance_per_broker_percentage=0,
        )
        settings = replace(settings, **self.settings)
        return Controller(settings, ports, process.supervisor, ControllerMetrics(self.registry))

    def kill(self, crash: Crash = Crash.PROCESS) -> None:
        """SIGKILL, or a loss of power of the host (`Crash.KEEP_SOME`, `DROP_UNSYNCED`)."""
        assert self.process is not None
        if crash is not Crash.PROCESS:
            text = f"the host of {self.name} loses power ({crash.name})"
        else:
            text = f"{self.name} {'has ended by itself' if self.process.supervisor.failures else 'is killed'}"
        self.world.tell(text, self.name)
        self._end(crash)

    def _end(self, crash: Crash = Crash.PROCESS) -> None:
        assert self.process is not None
        self.process.kill()
        self.world.network.kill(self.name)
        for meta in self.sessions:
            meta.kill()
        if self.excused or crash is not Crash.PROCESS:
            self.harm()
        before = None if crash is Crash.PROCESS else self.disk.image()
        self.disk.crash(crash, self.world.rand)
        self.lost_records = before is not None and lost_records(before, self.disk.image(), self.world.compacted)
        self.world.on_gone(self)
        self._forget()

    def harm(self) -> None:
        """Something happens to its disk, after which the broker may say that it has lost something."""
        self.harmed_at = self.world.zookeeper.zxid

    def _forget(self) -> None:
        """Nothing of the process is left."""
        self.broker = self.controller = None

    def cut_power_soon(self, writes: int, crash: Crash) -> None:
        """The host loses power at the `writes`-th write to its disk from now, wherever in the code that is."""
        self.world.tell(f"the host of {self.name} is to lose power in one of its next writes", self.name)

        def cut() -> None:
            self.disk.on_power_cut = None
            process = self.process
            assert process is not None
            process.alive = False  # what follows in this very step finds a dead disk; no other step of it will run

            def die() -> None:
                if self.process is process and not self.dead:
                    self.kill(crash)

            asyncio.get_running_loop().call_soon(die, context=contextvars.Context())

        self.disk.on_power_cut = cut
        self.disk.stop_after = self.disk.changes + writes

    def terminate(self) -> None:
        """SIGTERM: the process stops in its own time; what is left of it is gone then."""
        self.world.tell(f"{self.name} is asked to stop (SIGTERM)", self.name)
        process, stopping = self.process, self.application
        assert process is not None and stopping is not None
        self.terminating = True

        async def stop() -> None:
            try:
                await stopping.stop()
            finally:
                ended()

        def ended() -> None:
            if self.process is process and not self.dead:
                asyncio.get_running_loop().call_soon(gone, context=contextvars.Context())

        def gone() -> None:
            self.world.tell(f"{self.name} has stopped")
            self._end()

        self.stopper.start("stop", stop(), context=process.context)

    def replace_disk(self) -> None:
        """The host gets an empty disk while its process is down."""
        self.world.tell(f"{self.name} gets an empty disk", self.name)
        self.disk = self._new_disk()
        self.harm()

    def _new_disk(self) -> SimDisk:
        disk = SimDisk(traced=False)
        disk.on_stall = self._stall
        return disk

    def _stall(self, until: float) -> None:
        """The process stands still until its disk answers: it has called it on the event loop."""
        process, loop = self.process, asyncio.get_running_loop()
        if process is None or not process.runs_now():
            return  # a look from outside the simulation
        if not process.paused:
            self.world.tell(f"{self.name} stands still, for its disk is slow", self.name)
            self._freeze(process)
        self._stalled_until = until

        def answer() -> None:
            if self.process is process and self.running and process.paused and self._stalled_until == until:
                self.resume()

        loop.call_at(until, answer, context=contextvars.Context())

    def pause(self) -> None:
        assert self.process is not None
        self.world.tell(f"{self.name} is paused (SIGSTOP)", self.name)
        self._freeze(self.process)

    def _freeze(self, process: SimProcess) -> None:
        process.pause()
        self.world.network.pause(self.name)
        for meta in self.sessions:
            meta.pause()

    def resume(self) -> None:
        assert self.process is not None
        self.world.tell(f"{self.name} resumes (SIGCONT)", self.name, mends=True)
        self.process.resume()
        self.world.network.resume(self.name)
        for meta in self.sessions:
            meta.resume()


def lost_records(before: Image, after: Image, compacted: str = "") -> bool:
    """Whether the disk has lost bytes of a log, by what it held before and after.

    A deleted log has no records left to lose, so a clean stop need not flush it: it counts only if its deletion was undone.
    Names of the files of a topic that is compacted say nothing: a swap in the middle has one or the other.
    """

    def counts(path: str) -> bool:
        folder = path.rpartition("/")[0]
        if folder.rpartition("/")[2].rpartition("-")[0] == compacted:
            return False
        out_of_use = folder.endswith((DELETE_SUFFIX, STRAY_SUFFIX)) and folder in after
        return path.endswith(LOG_SUFFIX) and not out_of_use

    return any(
        not (after.get(path) or b"").startswith(data)
        for path, data in before.items()
        if data is not None and counts(path)
    )
