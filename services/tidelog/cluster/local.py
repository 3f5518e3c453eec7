"""A cluster of plain operating-system processes below one directory. Needs Python and Java, no privileges."""

import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from tidelog.cluster import plan as planning
from tidelog.cluster.api import (
    AGENT,
    BROKER,
    CLIENT,
    CONTROLLER,
    KINDS,
    ZOOKEEPER,
    ClusterError,
    Direction,
    Pause,
    ProcessStatus,
    Sessions,
    State,
    Traffic,
    Way,
    kind_of,
    ways,
)
from tidelog.cluster.cuts import Cuts
from tidelog.cluster.files import LocalFiles
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.guard import Guard
from tidelog.cluster.os_process import OsProcess, kill_unrecorded, tail
from tidelog.cluster.plan import Plan, PlannedProcess
from tidelog.cluster.proxy import Proxy, link_clients
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.sessions import sessions_at
from tidelog.cluster.zookeeper import ServerFiles, ZooKeeperUnavailable, four_letter_word, mode_of
from tidelog.ids import Address

DEFAULT_BROKERS: Final = (0, 1, 2)
DEFAULT_CONTROLLERS: Final = 2
ANSWERS_WITHIN_S: Final = 1.0
SMALLEST_FULL_BYTES: Final = 64 << 10
"""A process's own output and its checkpoints stay below this for hours."""
STOP_GRACE_S: Final = 30.0
"""A broker that leaves waits for others to take over what it leads; it ends long before."""


class LocalCluster:
    """Implements `Cluster`. `base` holds cluster.json and one directory for each process.

    As a context manager it ends every process on the way out. A cluster that was brought up with `outlive` goes on when
    its program ends, and any later `LocalCluster(base)` can look after it; without it, a guard ends the cluster however
    its owner dies.
    """

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self._plan: Plan | None = None
        self._processes: dict[str, OsProcess] = {}
        self._proxy: Proxy | None = None
        self._cuts = Cuts()
        self._guard: Guard | None = None
        self._client_links: Mapping[Address, Address] = {}
        self._trees: dict[str, Path] = {}
        """Of whom `run_from` has said so: where it finds its code."""
        self._limits: dict[str, tuple[int, tuple[int, int]]] = {}
        """Of whom `fill_disk` has limited: the process, and what was in force before."""
        if (self.base / planning.FILE_NAME).exists():
            try:
                self._adopt(planning.from_json((self.base / planning.FILE_NAME).read_text()))
            except ClusterError as error:
                raise ClusterError(f"{base}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down(grace_s=0.0)

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            raise ClusterError(f"there is no cluster in {self.base}; `tidelog local up` makes one")
        return self._plan

    def up(
        self,
        brokers: Collection[int] | None = None,
        controllers: int | None = None,
        zookeepers: int | None = None,
        links_through_proxy: bool = False,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        *,
        agents: int | None = None,
        client_ports: Sequence[int] = (),
        outlive: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        """Starts what does not run yet and returns when every process serves.

        A directory that already holds a cluster keeps its processes, ports and settings. It grows by the brokers that
        are asked for and are not there yet, also while it runs; any other difference is a ClusterError. What is not asked
        for is as it is; a new cluster then has three brokers, two controllers, one ZooKeeper server and no agents.
        """
        if self._plan is None:
            shape = (brokers or DEFAULT_BROKERS, controllers or DEFAULT_CONTROLLERS, zookeepers or 1, agents or 0)
            self._create(*shape, links_through_proxy, settings, client_ports)
        self._check_same(brokers, {CONTROLLER: controllers, ZOOKEEPER: zookeepers, AGENT: agents})
        self._grow(brokers or (), settings)
        if self.plan.links and outlive:
            raise ClusterError(
                "the proxy lives in the program that starts the cluster; so the cluster cannot outlive it"
            )
        self._guard = self._guard or Guard(self.base)
        self._start_proxy()
        for process in self.plan.processes:
            if self._process(process.name).find() is None:
                self.start(process.name)

        wait_ready(self, timeout_s)
        if outlive:
            self.leave_running()

    def leave_running(self) -> None:
        """It goes on when its program ends."""
        if self._proxy is not None:
            raise ClusterError("the cluster's links run through this program; it cannot outlive it")
        self._release_guard()

    def down(self, grace_s: float = STOP_GRACE_S) -> None:
        """Ends every process: agents, brokers, controllers, then ZooKeeper; SIGKILL after `grace_s` (at once if 0)."""
        for kind in reversed(KINDS):
            running = [self._process(name) for name in self.names(kind) if self._process(name).find() is not None]
            if grace_s > 0:
                self._end_in_order(running, grace_s)
            for process in running:
                if process.find() is not None:
                    process.kill()
        kill_unrecorded(self.base)
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None
            self._client_links = {}
        self._release_guard()

    # Cluster

    def names(self, kind: str | None = None) -> Sequence[str]:
        planned = self._plan.processes if self._plan is not None else ()
        return [process.name for process in planned if kind in (None, process.kind)]

    def status(self) -> Sequence[ProcessStatus]:
        return [self._status(process) for process in self.plan.processes]

    def endpoints(self, kind: str = BROKER) -> Mapping[str, Address]:
        return {process.name: process.for_clients for process in self.plan.of_kind(kind)}

    def start(self, name: str) -> None:
        argv, env = self._command(self.plan[name])
        if self._proxy is not None:
            self._proxy.accept(name)
        self._process(name).start(argv, env)

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        process = self._process(name)
        if process.find() is None:
            raise ClusterError(f"{name} does not run")
        process.terminate()
        process.wait_gone(timeout_s)
        self._refuse(name)

    def kill(self, name: str) -> None:
        self._process(name).kill()
        self._refuse(name)

    def bounce(self, name: str) -> float:
        began = time.monotonic()
        self.kill(name)
        self.start(name)
        return time.monotonic() - began  # a hundredth of a second too long

    def pause(self, name: str, how: Pause | None = None) -> None:
        if how is Pause.FREEZER:
            raise ClusterError("a local process has no cgroup of its own to freeze; it is paused by a signal")
        process = self._process(name)
        process.signal(signal.SIGSTOP)
        process.wait_state(State.PAUSED)

    def resume(self, name: str) -> None:
        process = self._process(name)
        process.signal(signal.SIGCONT)
        process.wait_state(State.RUNNING)

    def isolate(
        self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH
    ) -> Sequence[Way]:
        cut, proxy = ways(name, self._linked(name, peers), direction), self.proxy
        self._cuts.add(name, peers, direction, cut)
        for way in cut:
            proxy.cut(*way)
        return cut

    def rejoin(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        for way in self._cuts.end(name, peers, direction):
            self.proxy.join(*way)

    def passing(self, ways: Collection[Way]) -> Sequence[Way]:
        return self.proxy.passing(ways)

    def heal(self) -> None:
        self._cuts.clear()
        if self._proxy is not None:
            self._proxy.heal_all()

    def client_links(self) -> Mapping[Address, Address]:
        if not self._client_links:
            self._proxy = self._proxy or _started(Proxy())
            self._client_links = link_clients(self._proxy, self.endpoints())
        return self._client_links

    def shape(self, name: str, peers: Collection[str], traffic: Traffic | None) -> Sequence[Way]:
        shaped = ways(name, self._linked(name, peers))
        for way in shaped:
            self.proxy.shape(*way, traffic or Traffic())
        return shaped

    def waited_s(self, way: Way) -> float | None:
        return self.proxy.waited_s(*way)

    def exit_code(self, name: str) -> int | None:
        return self._process(name).exit_code

    def why_stopped(self, name: str) -> str:
        """The exit code or the signal of a process that does not run; empty where nothing tells."""
        return self._process(name).why_stopped()

    def reset_connections(self, name: str, peers: Collection[str]) -> int:
        return sum(self.proxy.reset(name, other) for other in self._linked(name, peers))

    def lose_packets(self, name: str, share: float) -> None:
        raise ClusterError(f"{name} has no packets to lose: local links run through a proxy, which carries bytes")

    def lost_packets(self, name: str) -> int:
        return 0

    def files(self, name: str) -> LocalFiles:
        if kind_of(name) not in (BROKER, ZOOKEEPER):
            raise ClusterError(f"{name} keeps no data")
        self._process(name)
        return LocalFiles(self.data_dir(name))

    def check_fillable(self) -> None:
        """A limit on the size of files stands for a disk."""

    def fill_disk(self, name: str, growing: str) -> str:
        """By a limit on the size of files, which takes no rights and no disk."""
        process = self._running(name)
        # ZooKeeper writes within files that have their size already, which no limit but this one would reach.
        limit = 0 if kind_of(name) == ZOOKEEPER else self._largest(name, growing)
        before = process.rlimit(psutil.RLIMIT_FSIZE)
        self._limits.setdefault(name, (process.pid, before))
        process.rlimit(psutil.RLIMIT_FSIZE, (limit, before[1]))
        return f"no file of {name} grows beyond {process.rlimit(psutil.RLIMIT_FSIZE)[0]:,} bytes"

    def free_disk(self, name: str) -> None:
        pid, before = self._limits.pop(name, (None, None))
        process = self._process(name).find()
        if before is not None and process is not None and process.pid == pid:
            process.rlimit(psutil.RLIMIT_FSIZE, before)

    def logs(self, name: str, lines: int = 200) -> str:
        printed = tail(self._process(name).log_file, lines)
        process = self.plan[name]
        # ZooKeeper logs to a file of its own; it prints only when it cannot start.
        return printed + tail(self._zookeeper_files(process).log, lines) if process.kind == ZOOKEEPER else printed

    def zookeeper_mode(self, name: str) -> str:
        try:
            return mode_of(four_letter_word(self.plan[name].for_clients, "srvr", ANSWERS_WITHIN_S))
        except OSError:
            return ""

    def sessions(self) -> Sessions:
        return sessions_at([server.for_clients for server in self.plan.of_kind(ZOOKEEPER)])

    # Beyond the interface

    @property
    def proxy(self) -> Proxy:
        if self._proxy is None:
            raise ClusterError(
                "this cluster's links do not run through the proxy: bring it up with links_through_proxy"
            )
        return self._proxy

    def run_from(self, name: str, services: Path | None) -> None:
        """From its next start on a process runs the sources in `services`; None: those that run here. May be said before `up`.

        So processes of different releases run beside each other.
        """
        if services is None:
            self._trees.pop(name, None)
        else:
            self._trees[name] = services

    def home(self, name: str) -> Path:
        """Where the process keeps its log, its pid and, below `data`, its data."""
        return self._process(name).home

    def data_dir(self, name: str) -> Path:
        return self.home(name) / "data"

    def _create(
        self,
        brokers: Collection[int],
        controllers: int,
        zookeepers: int,
        agents: int,
        links_through_proxy: bool,
        settings: Mapping[str, Mapping[str, str]] | None,
        client_ports: Sequence[int],
    ) -> None:
        count = planning.ports_needed(
            len(brokers), controllers, zookeepers, agents=agents, links_through_proxy=links_through_proxy
        )
        plan = planning.make_plan(
            brokers,
            controllers,
            zookeepers,
            iter(free_ports(count)),
            agents=agents,
            links_through_proxy=links_through_proxy,
            settings=settings,
        ).with_client_ports(client_ports)
        self.base.mkdir(parents=True, exist_ok=True)
        self._keep(plan)

    def _grow(self, brokers: Collection[int], settings: Mapping[str, Mapping[str, str]] | None) -> None:
        new = sorted(set(brokers) - {process.number for process in self.plan.of_kind(BROKER)})
        if not new:
            return
        # Those of a process that is dead for the moment look free, and nobody's program claims them any more.
        own = {address.port for process in self.plan.processes for address in process.addresses.values()}
        count = planning.ports_needed(len(new), 0, 0, links_through_proxy=False)
        free = (port for port in free_ports(count + len(own)) if port not in own)
        self._keep(planning.with_brokers(self.plan, new, free, settings=settings))

    def _keep(self, plan: Plan) -> None:
        # Replaced whole: a running cluster whose file is cut short could not be ended any more.
        written = self.base / f"{planning.FILE_NAME}.new"
        written.write_text(planning.to_json(plan))
        written.replace(self.base / planning.FILE_NAME)
        self._adopt(plan)

    def _adopt(self, plan: Plan) -> None:
        self._plan = plan
        self._processes = {
            name: self._processes.get(name) or OsProcess(name, self.base / name) for name in self.names()
        }

    def _command(self, process: PlannedProcess) -> tuple[Sequence[str], Mapping[str, str]]:
        """What to run, and in which environment."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
        if process.kind == ZOOKEEPER:
            files = self._zookeeper_files(process)
            try:
                files.write()
                return files.command(inherited), files.environment(inherited)
            except ZooKeeperUnavailable as error:
                raise ClusterError(str(error)) from error
        argv = [sys.executable, "-m", f"tidelog.{process.kind}"]
        if (tree := self._trees.get(process.name)) is not None:
            inherited["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tree), inherited.get("PYTHONPATH", ""))))
        elif process.kind == BROKER:  # a release before 0.3.0 refuses a variable that it does not know
            inherited["TIDELOG_CLUSTER_NAME"] = local_name(self.base)
        elif (watch := process.addresses.get("WATCH")) is not None:  # a cluster of such a release has none
            inherited["TIDELOG_WATCH_ADDRESS"] = str(watch)
        return argv, {**inherited, **planning.environment(self.plan, process, self.data_dir(process.name))}

    def _zookeeper_files(self, process: PlannedProcess) -> ServerFiles:
        ensemble = planning.ensemble(self.plan)
        return ServerFiles(self.home(process.name), process.for_clients, number=process.number, ensemble=ensemble)

    def _check_same(self, brokers: Collection[int] | None, counts: Mapping[str, int | None]) -> None:
        """ClusterError unless this cluster has at least these brokers and so many of each other kind; None: any."""
        missing = {process.number for process in self.plan.of_kind(BROKER)} - set(brokers or ())
        if (brokers is not None and missing) or any(
            count is not None and len(self.names(kind)) != count for kind, count in counts.items()
        ):
            raise ClusterError(
                f"{self.base} holds another cluster ({', '.join(self.names())}): it can only get further brokers, and "
                "then all are named; or choose another directory"
            )

    def _start_proxy(self) -> None:
        if self.plan.links and self._proxy is None:
            self._proxy = _started(Proxy())
            for link in self.plan.links:
                self._proxy.add_link(link.source, link.target, link.upstream, link.listen.port)

    def _linked(self, name: str, peers: Collection[str] | None) -> list[str]:
        """Those of `peers` (None: all other processes) with whom `name` has a link; ClusterError if none has."""
        others = [other for other in (self.names() if peers is None else peers) if other != name]
        for process in (name, *others):
            if process != CLIENT:
                self._process(process)
        found = [other for other in others if self._proxy is not None and self._proxy.has_link(name, other)]
        if not found:
            why = "" if self.plan.links else "; bring the cluster up with links_through_proxy"
            raise ClusterError(f"{name} has no link to {', '.join(others) or 'anybody'} that could be cut{why}")
        return found

    def _running(self, name: str) -> psutil.Process:
        process = self._process(name).find()
        if process is None:
            raise ClusterError(f"{name} does not run")
        return process

    def _largest(self, name: str, growing: str) -> int:
        """Bytes of the largest file of those that grow. ClusterError when another one, or one that will be, is as large."""
        sizes = self.files(name).sizes()
        largest = max((size for path, size in sizes.items() if path.endswith(growing)), default=0)
        others = max((size for path, size in sizes.items() if not path.endswith(growing)), default=0)
        least = max(others, SMALLEST_FULL_BYTES)
        if largest <= least:
            raise ClusterError(
                f"no {growing} of {name} is larger than {least:,} bytes yet: a limit on the size of files, by which a local "
                "disk is made full, would hit more than those"
            )
        return largest

    def _refuse(self, name: str) -> None:
        if self._proxy is not None:
            self._proxy.refuse(name)

    def _release_guard(self) -> None:
        if self._guard is not None:
            self._guard.release()
            self._guard = None

    def _end_in_order(self, processes: Sequence[OsProcess], grace_s: float) -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait_gone(grace_s)
            except ClusterError:
                return  # the grace is over for all of them

    def _status(self, process: PlannedProcess) -> ProcessStatus:
        state = self._process(process.name).state()
        running = self._process(process.name).find()
        pid = running.pid if running is not None else None
        home = str(self._process(process.name).home)
        return ProcessStatus(process.name, process.kind, state, pid, process.addresses, home)

    def _process(self, name: str) -> OsProcess:
        self.plan[name]  # names what there is if this is not
        return self._processes[name]


def local_name(base: Path) -> str:
    """The name of the cluster in this directory, which tells it from others and gives no path away."""
    digest = sha256(str(base.resolve()).encode()).hexdigest()
    return f"local/{base.resolve().name}-{digest[:8]}"


def _started(proxy: Proxy) -> Proxy:
    proxy.start()
    return proxy
