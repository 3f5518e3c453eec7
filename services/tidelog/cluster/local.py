"""A cluster of plain operating-system processes below one directory. Needs Python and Java, no privileges."""

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidelog.cluster import plan as planning
from tidelog.cluster.api import (
    AGENT,
    BROKER,
    CONTROLLER,
    KINDS,
    ZOOKEEPER,
    ClusterError,
    Direction,
    ProcessStatus,
    State,
)
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.guard import Guard
from tidelog.cluster.os_process import OsProcess, kill_unrecorded, tail
from tidelog.cluster.plan import Plan, PlannedProcess
from tidelog.cluster.proxy import Proxy
from tidelog.cluster.ready import check_runs, wait_ready
from tidelog.cluster.wait import until
from tidelog.cluster.zookeeper import ServerFiles, ZooKeeperUnavailable, four_letter_word
from tidelog.ids import Address

DEFAULT_BROKERS: Final = (0, 1, 2)
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
        self._guard: Guard | None = None
        if (self.base / planning.FILE_NAME).exists():
            self._adopt(planning.from_json((self.base / planning.FILE_NAME).read_text()))

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
        brokers: Collection[int] = DEFAULT_BROKERS,
        controllers: int = 2,
        zookeepers: int = 1,
        links_through_proxy: bool = False,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        *,
        agents: int = 0,
        outlive: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        """Starts what does not run yet and returns when every process serves.

        A directory that already holds a cluster keeps its processes, ports and settings; asking for other brokers than
        it has is a ClusterError.
        """
        if self._plan is None:
            self._create(brokers, controllers, zookeepers, agents, links_through_proxy, settings)
        self._check_same(brokers, controllers, zookeepers, agents)
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

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def pause(self, name: str) -> None:
        process = self._process(name)
        process.signal(signal.SIGSTOP)
        process.wait_state(State.PAUSED)

    def resume(self, name: str) -> None:
        process = self._process(name)
        process.signal(signal.SIGCONT)
        process.wait_state(State.RUNNING)

    def isolate(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        proxy = self.proxy
        others = [other for other in self.names() if other != name] if peers is None else peers
        for process in (name, *others):
            self._process(process)
        for other in others:
            if direction is not Direction.INBOUND:
                proxy.cut(name, other)
            if direction is not Direction.OUTBOUND:
                proxy.cut(other, name)

    def heal(self) -> None:
        self.proxy.heal_all()

    def logs(self, name: str, lines: int = 200) -> str:
        printed = tail(self._process(name).log_file, lines)
        process = self.plan[name]
        # ZooKeeper logs to a file of its own; it prints only when it cannot start.
        return printed + tail(self._zookeeper_files(process).log, lines) if process.kind == ZOOKEEPER else printed

    # Beyond the interface

    @property
    def proxy(self) -> Proxy:
        if self._proxy is None:
            raise ClusterError(
                "this cluster's links do not run through the proxy: bring it up with links_through_proxy"
            )
        return self._proxy

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
        )
        self.base.mkdir(parents=True, exist_ok=True)
        (self.base / planning.FILE_NAME).write_text(planning.to_json(plan))
        self._adopt(plan)

    def _adopt(self, plan: Plan) -> None:
        self._plan = plan
        self._processes = {name: OsProcess(name, self.base / name) for name in self.names()}

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
        return argv, {**inherited, **planning.environment(self.plan, process, self.data_dir(process.name))}

    def _zookeeper_files(self, process: PlannedProcess) -> ServerFiles:
        return ServerFiles(self.home(process.name), process.for_clients)

    def _wait_zookeeper(self, timeout_s: float) -> None:
        for server in self.plan.of_kind(ZOOKEEPER):

            def answers(name: str = server.name, address: Address = server.for_clients) -> bool:
                check_runs(self, name)
                try:
                    return four_letter_word(address, "ruok", timeout_s=1.0) == "imok"
                except OSError:
                    return False

            until(answers, f"{server.name} to answer", timeout_s=timeout_s)

    def _check_same(self, brokers: Collection[int], controllers: int, zookeepers: int, agents: int) -> None:
        wanted = {BROKER: len(brokers), CONTROLLER: controllers, ZOOKEEPER: zookeepers, AGENT: agents}
        numbers = sorted(process.number for process in self.plan.of_kind(BROKER))
        if sorted(brokers) != numbers or any(len(self.names(kind)) != count for kind, count in wanted.items()):
            raise ClusterError(
                f"{self.base} holds another cluster ({', '.join(self.names())}); "
                "end it and remove the directory, or choose another one"
            )

    def _start_proxy(self) -> None:
        if self.plan.links and self._proxy is None:
            self._proxy = Proxy()
            self._proxy.start()
            for link in self.plan.links:
                self._proxy.add_link(link.source, link.target, link.upstream, link.listen.port)

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
