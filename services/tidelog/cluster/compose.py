"""The same interface over the containers of docker-compose.yml. A process is a service; its name is the service's."""

import os
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, DockerException

from tidelog.cluster import netfilter
from tidelog.cluster.api import (
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
from tidelog.cluster.container_exec import run_in
from tidelog.cluster.container_files import ContainerFiles
from tidelog.cluster.cuts import Cuts
from tidelog.cluster.proxy import Proxy, link_clients
from tidelog.cluster.scrape_targets import ScrapeTargets
from tidelog.cluster.sessions import sessions_at
from tidelog.cluster.wait import until
from tidelog.cluster.zookeeper import mode_of
from tidelog.ids import Address

PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
DATA: Final = {BROKER: "/var/lib/tidelog", ZOOKEEPER: "/var/lib/zookeeper"}
PROMETHEUS: Final = "prometheus"
FROZEN: Final = "paused"
"""As the engine calls it."""
RESETS_FOR_S: Final = 0.5
ARRIVES_WITHIN_S: Final = 0.05
UNPUBLISHED: Final = {ZOOKEEPER: ("CLIENT", 2181), CONTROLLER: ("METRICS", 9101), BROKER: ("METRICS", 9101)}
"""Listeners without a port of this machine, which reaches them over the engine's bridges."""
EFFECT_WITHIN_S: Final = 15.0
FILE_NAME: Final = "docker-compose.yml"
OVERRIDE_NAME: Final = "docker-compose.override.yml"
"""Read by Compose itself when no file is named."""


class ComposeCluster:
    """Implements `Cluster`. Needs a Docker engine and a cluster that `docker compose up` has made."""

    def __init__(self, root: Path, project: str = "tidelog", overrides: Sequence[Path] = ()) -> None:
        """`root` is the directory of docker-compose.yml, to which the files `overrides` add. ClusterError when no engine
        answers."""
        self.root = root
        self.project = project
        self.overrides = overrides
        self._lock = threading.Lock()
        """Held by whoever changes rules: several faults may be in force at a time, each in a thread of its own."""
        self._cuts = Cuts()
        self._loss: dict[str, float] = {}
        """Share of packets by container."""
        self._ruled: set[str] = set()
        """Who has packet rules of ours, or may have."""
        self._proxy: Proxy | None = None
        self._client_links: Mapping[Address, Address] = {}
        try:
            self._docker: Any = docker.from_env()
            self._docker.ping()
        except DockerException as error:
            raise ClusterError(f"no Docker engine answers; scripts/docker_engine.sh can get one ({error})") from error

    def up(self, timeout_s: float = 300.0) -> None:
        """Builds what is missing and returns when every service is healthy."""
        self._compose("up", "--detach", "--wait", "--wait-timeout", str(int(timeout_s)))

    def down(self, *, volumes: bool = False) -> None:
        self._compose("down", *(["--volumes"] if volumes else []))

    def close(self) -> None:
        """Lets go of the engine; the containers go on."""
        if self._proxy is not None:
            self._proxy.stop()
        self._docker.close()

    # Cluster

    def names(self, kind: str | None = None) -> Sequence[str]:
        return [name for name in self._containers() if kind in (None, kind_of(name))]

    def status(self) -> Sequence[ProcessStatus]:
        rows = []
        for name, container in self._containers().items():
            pid = container.attrs["State"]["Pid"] or None  # 0 when it does not run
            state = _state(container)
            addresses = {**_published(container), **_inside(container, kind_of(name))}
            rows.append(ProcessStatus(name, kind_of(name), state, pid, addresses, container.name))
        return rows

    def endpoints(self, kind: str = BROKER) -> Mapping[str, Address]:
        """Only those that publish a port on this machine."""
        published = {name: _published(c) for name, c in self._containers().items() if kind_of(name) == kind}
        return {name: next(iter(addresses.values())) for name, addresses in published.items() if addresses}

    def start(self, name: str) -> None:
        self._container(name).start()
        self._started(name)

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        self._in_state(name, State.RUNNING).stop(timeout=int(timeout_s))
        self._gone(name)

    def kill(self, name: str) -> None:
        self._alive(name).kill()
        self._gone(name)

    def bounce(self, name: str) -> float:
        # The engine answers a SIGKILL when the container has ended, and takes its next order at once: whatever is looked at
        # and set is so behind both. A process that is replaced within a container that lives on would be no container that
        # comes back: it would keep the namespace, its addresses and its packet rules.
        container = self._alive(name)
        container.kill()
        self._refused(name)
        container.start()
        self._started(name)
        state = self._container(name).attrs["State"]
        return (_time(state["StartedAt"]) - _time(state["FinishedAt"])).total_seconds()

    def pause(self, name: str, how: Pause | None = None) -> None:
        container = self._in_state(name, State.RUNNING)
        if how is Pause.SIGNAL:
            # `docker kill` would reach no more than the container's init: from inside, a signal reaches all but that.
            container.exec_run(["sh", "-c", "kill -STOP -1"])
        else:
            container.pause()
        self._wait_state(name, State.PAUSED)

    def resume(self, name: str) -> None:
        container = self._in_state(name, State.PAUSED)
        if container.status == FROZEN:
            container.unpause()
        else:
            container.exec_run(["sh", "-c", "kill -CONT -1"])
        self._wait_state(name, State.RUNNING)

    def isolate(
        self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH
    ) -> Sequence[Way]:
        """By packet rules of the receiver: names are still found, and who dials hears nothing."""
        cut = self._linked(name, peers, direction)
        for way in _of_clients(cut):
            self._clients_proxy.cut(*way)
        with self._lock:
            self._cuts.add(name, peers, direction, cut)
            self._enforce()
        return cut

    def rejoin(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        with self._lock:
            for way in _of_clients(self._cuts.end(name, peers, direction)):
                self._clients_proxy.join(*way)
            self._enforce()

    def passing(self, ways: Collection[Way]) -> Sequence[Way]:
        """A packet is sent from inside along each way, and counted by the rule that stops it."""
        containers = self._containers()
        ours = [way for way in ways if CLIENT not in way]
        before = {receiver: _silenced(containers[receiver]) for _, receiver in ours}
        for sender, receiver in ours:
            netfilter.send_datagram(_pid(containers[sender]), _shared(containers[receiver], containers[sender]))
        time.sleep(ARRIVES_WITHIN_S)
        after = {receiver: _silenced(containers[receiver]) for _, receiver in ours}

        def is_stopped(sender: str, receiver: str) -> bool:
            sources = _shared(containers[sender], containers[receiver])
            return all(after[receiver].get(each, 0) > before[receiver].get(each, 0) for each in sources)

        clients = _of_clients(ways)
        passing = [way for way in ours if not is_stopped(*way)]
        return passing + (self._clients_proxy.passing(clients) if clients else [])

    def heal(self) -> None:
        with self._lock:
            self._cuts.clear()
            self._loss.clear()
            self._enforce(all_of_them=os.geteuid() == 0)  # who is not root has set none
        if self._proxy is not None:
            self._proxy.heal_all()

    def client_links(self) -> Mapping[Address, Address]:
        if not self._client_links:
            proxy = Proxy()
            proxy.start()
            self._client_links, self._proxy = link_clients(proxy, self.endpoints()), proxy
        return self._client_links

    def shape(self, name: str, peers: Collection[str], traffic: Traffic | None) -> Sequence[Way]:
        shaped = self._linked(name, peers)
        if _of_clients(shaped) != shaped:
            raise ClusterError(
                "containers talk to each other without the proxy that slows links down; only links of clients run through it"
            )
        for way in shaped:
            self._clients_proxy.shape(*way, traffic or Traffic())
        return shaped

    def waited_s(self, way: Way) -> float | None:
        return self._clients_proxy.waited_s(*way)

    def exit_code(self, name: str) -> int | None:
        container = self._container(name)
        return int(container.attrs["State"]["ExitCode"]) if _state(container) is State.STOPPED else None

    def reset_connections(self, name: str, peers: Collection[str]) -> int:
        """For a moment every packet between them is answered with a reset."""
        others = {receiver for sender, receiver in self._linked(name, peers, Direction.OUTBOUND)}
        closed = self._clients_proxy.reset(name, CLIENT) if CLIENT in others else 0
        containers = self._containers()
        addresses = {address for other in others - {CLIENT} for address in _shared(containers[other], containers[name])}
        if addresses:
            pid = _pid(self._in_state(name, State.RUNNING))
            with self._lock:
                self._ruled.add(name)
                try:
                    netfilter.set_rules(pid, replace(self._rules(name, containers), refused=frozenset(addresses)))
                    time.sleep(RESETS_FOR_S)
                    closed += netfilter.counters(pid).refused
                finally:
                    self._enforce()
        return closed

    def lose_packets(self, name: str, share: float) -> None:
        self._in_state(name, State.RUNNING)
        with self._lock:
            self._loss = {n: s for n, s in {**self._loss, name: share}.items() if s}
            self._enforce()

    def lost_packets(self, name: str) -> int:
        return netfilter.counters(_pid(self._in_state(name, State.RUNNING))).lost

    def files(self, name: str) -> ContainerFiles:
        if kind_of(name) not in DATA:
            raise ClusterError(f"{name} keeps no data")
        image = self._container(self.names(BROKER)[0]).attrs["Config"]["Image"]
        return ContainerFiles(self._docker, self._container(name), DATA[kind_of(name)], image)

    def check_fillable(self) -> None:
        try:
            self.files(self.names(BROKER)[0]).check_own_disk()
        except OSError as error:
            raise ClusterError(str(error)) from None

    def fill_disk(self, name: str, growing: str) -> str:
        left = self.files(name).fill()
        return f"{left:,} bytes are left on the disk of {name}"

    def free_disk(self, name: str) -> None:
        self.files(name).unfill()

    def logs(self, name: str, lines: int = 200) -> str:
        text: bytes = self._container(name).logs(tail=lines)
        return text.decode(errors="replace")

    def zookeeper_mode(self, name: str) -> str:
        container = self._container(name)
        if _state(container) is not State.RUNNING:
            return ""
        try:
            # Its port is for containers alone: the image's own health check asks inside, and prints the answer.
            return mode_of(run_in(container, ["serves"])[1])
        except APIError:
            return ""  # it has ended meanwhile

    def sessions(self) -> Sessions:
        # Their summaries tell the addresses: the engine is asked once, and not about each of them again.
        found = self._labelled(f"{PROJECT_LABEL}={self.project}", sparse=True)
        servers = [c for c in found if _is_process(c.attrs["Labels"][SERVICE_LABEL], ZOOKEEPER)]
        return sessions_at(address for c in servers for address in _inside(c, ZOOKEEPER).values())

    def scrape_targets(self) -> ScrapeTargets:
        """ClusterError when Prometheus does not run, or its networks have no way to this machine."""
        found = self._labelled(f"{PROJECT_LABEL}={self.project}", f"{SERVICE_LABEL}={PROMETHEUS}")
        if not found or _state(found[0]) is not State.RUNNING:
            raise ClusterError(f"{PROMETHEUS} of project {self.project} does not run")
        networks = found[0].attrs["NetworkSettings"]["Networks"]
        hosts = [host for name in sorted(networks) if (host := networks[name]["Gateway"])]
        if not hosts:
            raise ClusterError(f"{PROMETHEUS} of project {self.project} has no way to this machine")
        return ScrapeTargets(found[0], hosts[0])

    @property
    def _clients_proxy(self) -> Proxy:
        if self._proxy is None:
            raise ClusterError("no client runs through the proxy: clients have to dial as `client_links` says")
        return self._proxy

    def _linked(self, name: str, peers: Collection[str] | None, direction: Direction = Direction.BOTH) -> list[Way]:
        """Of the links of `name` with those of `peers` with whom it has one; ClusterError if it has none."""
        containers = self._containers()
        others = [other for other in (containers if peers is None else peers) if other != name]
        for process in (name, *others):
            if process != CLIENT:
                self._container(process)
        networks = {each: set(_addresses(container)) for each, container in containers.items()}
        networks[CLIENT] = {CLIENT}
        if CLIENT in (name, *others):
            for broker in self.endpoints():
                networks[broker].add(CLIENT)
        found = ways(name, [other for other in others if networks[name] & networks[other]], direction)
        if not found:
            raise ClusterError(f"{name} shares no network with {', '.join(others) or 'anybody'}")
        return found

    def _rules(self, name: str, containers: Mapping[str, Any]) -> netfilter.Rules:
        senders = [sender for sender, receiver in self._cuts.ways if receiver == name and sender in containers]
        silenced = [address for sender in senders for address in _shared(containers[sender], containers[name])]
        return netfilter.Rules(silenced=frozenset(silenced), loss=self._loss.get(name, 0.0))

    def _enforce(self, *, all_of_them: bool = False) -> None:
        """What is cut and lost is cut and lost: in the namespaces that have or had rules, or in all, where an earlier
        program may have left some."""
        containers = self._containers()
        for name, container in containers.items():
            rules = self._rules(name, containers)
            has_some = rules != netfilter.Rules()
            if _pid(container) and (has_some or all_of_them or name in self._ruled):
                self._ruled.add(name)
                netfilter.set_rules(_pid(container), rules)
            if not has_some:
                self._ruled.discard(name)

    def _started(self, name: str) -> None:
        self._wait_state(name, State.RUNNING)
        if self._proxy is not None:
            self._proxy.accept(name)
        with self._lock:
            self._enforce()  # it has a new namespace, and may have other addresses

    def _gone(self, name: str) -> None:
        self._wait_state(name, State.STOPPED)
        self._refused(name)

    def _refused(self, name: str) -> None:
        if self._proxy is not None:
            self._proxy.refuse(name)

    def _containers(self) -> dict[str, Any]:
        found = self._labelled(f"{PROJECT_LABEL}={self.project}")
        by_name = {container.labels[SERVICE_LABEL]: container for container in found}
        ours = {name: container for name, container in by_name.items() if _is_process(name, *KINDS)}
        if not ours:
            raise ClusterError(f"Compose project {self.project} has no containers; `docker compose up -d --wait` first")
        return dict(sorted(ours.items(), key=lambda item: (KINDS.index(kind_of(item[0])), item[0])))

    def _labelled(self, *labels: str, sparse: bool = False) -> list[Any]:
        found: list[Any] = self._docker.containers.list(all=True, sparse=sparse, filters={"label": list(labels)})
        return found

    def _container(self, name: str) -> Any:
        # By its own label: the engine is asked about each container that is found, and a fast bounce cannot wait for all.
        found = self._labelled(f"{PROJECT_LABEL}={self.project}", f"{SERVICE_LABEL}={name}")
        if kind_of(name) not in KINDS or not found:
            raise ClusterError(f"no process {name} in this cluster, which has {', '.join(self._containers())}")
        return found[0]

    def _state(self, name: str) -> State:
        return _state(self._container(name))

    def _in_state(self, name: str, state: State) -> Any:
        container = self._container(name)
        if _state(container) is not state:
            raise ClusterError(f"{name} is {_state(container).value}, not {state.value}")
        return container

    def _alive(self, name: str) -> Any:
        container = self._container(name)
        if _state(container) is State.STOPPED:
            raise ClusterError(f"{name} does not run")
        return container

    def _wait_state(self, name: str, state: State) -> None:
        until(lambda: self._state(name) is state, f"{name} {state.value}", timeout_s=EFFECT_WITHIN_S)

    def _compose(self, *arguments: str) -> None:
        override = self.root / OVERRIDE_NAME
        files = [self.root / FILE_NAME, *([override] if override.exists() else []), *self.overrides]
        command = [
            "docker",
            "compose",
            "--project-name",
            self.project,
            *(word for file in files for word in ("--file", str(file))),
            *arguments,
        ]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()}")


def _is_process(service: str, *kinds: str) -> bool:
    """A kind and a number: zookeeper-exporter is no ZooKeeper server."""
    return kind_of(service) in kinds and service.rpartition("-")[2].isdigit()


def _state(container: Any) -> State:
    match container.status:
        case "running":
            return State.PAUSED if _stands_still(_pid(container)) else State.RUNNING
        case "paused":
            return State.PAUSED
    return State.STOPPED


def _time(told: str) -> datetime:
    """By the engine's clock, which alone is asked of both ends of a time that it tells."""
    return datetime.fromisoformat(told)


def _pid(container: Any) -> int:
    """Of its init, as the engine's machine counts; 0 when it does not run."""
    return int(container.attrs["State"]["Pid"])


def _stands_still(init: int) -> bool:
    """Whether what the container's init has started was stopped by a signal. Not to be seen from another machine."""
    try:
        children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        states = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] for child in children]
    except OSError:
        return False
    return bool(states) and set(states) == {"T"}


def _addresses(container: Any) -> dict[str, str]:
    """By network."""
    networks = container.attrs["NetworkSettings"]["Networks"]
    return {name: network["IPAddress"] for name, network in networks.items()}


def _shared(container: Any, other: Any) -> list[str]:
    """The addresses of `container` that `other` sees; none when it does not run."""
    return [address for name, address in _addresses(container).items() if address and name in _addresses(other)]


def _published(container: Any) -> dict[str, Address]:
    """By container port; from the container's settings, since a stopped one has no live mapping."""
    bindings = container.attrs["HostConfig"]["PortBindings"] or {}
    return {
        port: Address(binding["HostIp"] or "127.0.0.1", int(binding["HostPort"]))
        for port, targets in sorted(bindings.items())
        for binding in targets or ()
        if binding["HostPort"]
    }


def _inside(container: Any, kind: str) -> dict[str, Address]:
    """On the first of its networks; nothing for a container that is in none or does not run."""
    networks = container.attrs["NetworkSettings"]["Networks"]
    hosts = [host for name in sorted(networks) if (host := networks[name]["IPAddress"])]
    if not hosts or kind not in UNPUBLISHED:
        return {}
    listener, port = UNPUBLISHED[kind]
    return {listener: Address(hosts[0], port)}


def _silenced(container: Any) -> Mapping[str, int]:
    """Packets that were dropped, by the address of their sender."""
    return netfilter.counters(_pid(container)).silenced


def _of_clients(ways: Collection[Way]) -> list[Way]:
    return [way for way in ways if CLIENT in way]
