"""The same interface over the containers of docker-compose.yml. A process is a service; its name is the service's."""

import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import DockerException

from tidelog.cluster.api import AGENT, BROKER, KINDS, ZOOKEEPER, ClusterError, Direction, ProcessStatus, State, kind_of
from tidelog.cluster.wait import until
from tidelog.ids import Address

PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
ZOOKEEPER_NETWORK: Final = "zk-net"
CLUSTER_NETWORK: Final = "cluster-net"
"""Which links a network carries: those to ZooKeeper, and those between brokers and controllers."""
EFFECT_WITHIN_S: Final = 15.0
FILE_NAME: Final = "docker-compose.yml"


class ComposeCluster:
    """Implements `Cluster`. Needs a Docker engine and a cluster that `docker compose up` has made."""

    def __init__(self, root: Path, project: str = "tidelog") -> None:
        """`root` is the directory of docker-compose.yml. ClusterError when no engine answers."""
        self.root = root
        self.project = project
        self._disconnected: list[tuple[str, str, list[str]]] = []
        """(process, network, aliases there) of every isolation that is in force."""
        try:
            self._docker: Any = docker.from_env()
            self._docker.ping()
        except DockerException as error:
            raise ClusterError(f"no Docker engine answers; scripts/docker_engine.sh can get one ({error})") from error

    def up(self, timeout_s: float = 300.0) -> None:
        """Builds what is missing and returns when every service is healthy."""
        self._compose("up", "--detach", "--wait", "--wait-timeout", str(int(timeout_s)))

    def down(self, *, volumes: bool = False) -> None:
        self.heal()
        self._compose("down", *(["--volumes"] if volumes else []))

    def close(self) -> None:
        """Lets go of the engine; the containers go on."""
        self._docker.close()

    # Cluster

    def names(self, kind: str | None = None) -> Sequence[str]:
        return [name for name in self._containers() if kind in (None, kind_of(name))]

    def status(self) -> Sequence[ProcessStatus]:
        rows = []
        for name, container in self._containers().items():
            pid = container.attrs["State"]["Pid"] or None  # 0 when it does not run
            state = _state(container)
            rows.append(ProcessStatus(name, kind_of(name), state, pid, _published(container), container.name))
        return rows

    def endpoints(self, kind: str = BROKER) -> Mapping[str, Address]:
        """Only those that publish a port on this machine."""
        published = {name: _published(c) for name, c in self._containers().items() if kind_of(name) == kind}
        return {name: next(iter(addresses.values())) for name, addresses in published.items() if addresses}

    def start(self, name: str) -> None:
        self._container(name).start()
        self._wait_state(name, State.RUNNING)

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        self._in_state(name, State.RUNNING).stop(timeout=int(timeout_s))
        self._wait_state(name, State.STOPPED)

    def kill(self, name: str) -> None:
        if self._state(name) is State.STOPPED:
            raise ClusterError(f"{name} does not run")
        self._container(name).kill()
        self._wait_state(name, State.STOPPED)

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def pause(self, name: str) -> None:
        # The freezer takes every process of the container; a SIGSTOP would reach no more than its init.
        self._in_state(name, State.RUNNING).pause()
        self._wait_state(name, State.PAUSED)

    def resume(self, name: str) -> None:
        self._in_state(name, State.PAUSED).unpause()
        self._wait_state(name, State.RUNNING)

    def isolate(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        """Leaves the networks that lead to `peers`; a container that comes back to one may get another address."""
        if direction is not Direction.BOTH:
            raise ClusterError("in Compose a link is cut both ways; one way is for the local cluster and its proxy")
        for short in self._networks_between(name, peers):
            network = self._docker.networks.get(f"{self.project}_{short}")
            found = self._container(name).attrs["NetworkSettings"]["Networks"].get(network.name)
            if found is None:
                continue  # it has left this one already
            network.disconnect(self._container(name).name)
            self._disconnected.append((name, network.name, [a for a in found["Aliases"] or [] if a]))
            self._wait_left(name, network.name)

    def heal(self) -> None:
        while self._disconnected:
            name, network, aliases = self._disconnected[-1]
            self._docker.networks.get(network).connect(self._container(name).name, aliases=aliases)
            self._disconnected.pop()

    def logs(self, name: str, lines: int = 200) -> str:
        text: bytes = self._container(name).logs(tail=lines)
        return text.decode(errors="replace")

    def _networks_between(self, name: str, peers: Collection[str] | None) -> list[str]:
        zookeepers = set(self.names(ZOOKEEPER)) - {name}
        others = set(self.names()) - zookeepers - {name}
        agents = set(self.names(AGENT))
        if kind_of(name) == ZOOKEEPER and peers is None:
            return [ZOOKEEPER_NETWORK]
        wanted = zookeepers | others if peers is None else set(peers)
        parts = {ZOOKEEPER_NETWORK: zookeepers, CLUSTER_NETWORK: others}
        networks = [network for network, members in parts.items() if members & wanted]
        covered = set[str]().union(*(parts[network] for network in networks))
        # Agents share the network of the brokers: to be cut from these is to be cut from them.
        if kind_of(name) == ZOOKEEPER or covered - agents != wanted - agents:
            raise ClusterError(
                f"in Compose {name} can be cut from all ZooKeeper servers, from all brokers and controllers, or from "
                f"everything; from {', '.join(sorted(wanted))} alone is for the local cluster and its proxy"
            )
        return networks

    def _containers(self) -> dict[str, Any]:
        found = self._docker.containers.list(all=True, filters={"label": f"{PROJECT_LABEL}={self.project}"})
        by_name = {container.labels[SERVICE_LABEL]: container for container in found}
        # zookeeper-exporter is no ZooKeeper server: a process is a kind and a number
        ours = {n: c for n, c in by_name.items() if kind_of(n) in KINDS and n.rpartition("-")[2].isdigit()}
        if not ours:
            raise ClusterError(f"Compose project {self.project} has no containers; `docker compose up -d --wait` first")
        return dict(sorted(ours.items(), key=lambda item: (KINDS.index(kind_of(item[0])), item[0])))

    def _container(self, name: str) -> Any:
        containers = self._containers()
        if name not in containers:
            raise ClusterError(f"no process {name} in this cluster, which has {', '.join(containers)}")
        return containers[name]

    def _state(self, name: str) -> State:
        return _state(self._container(name))

    def _in_state(self, name: str, state: State) -> Any:
        container = self._container(name)
        if _state(container) is not state:
            raise ClusterError(f"{name} is {_state(container).value}, not {state.value}")
        return container

    def _wait_state(self, name: str, state: State) -> None:
        until(lambda: self._state(name) is state, f"{name} {state.value}", timeout_s=EFFECT_WITHIN_S)

    def _wait_left(self, name: str, network: str) -> None:
        def left() -> bool:
            return network not in self._container(name).attrs["NetworkSettings"]["Networks"]

        until(left, f"{name} to leave {network}", timeout_s=EFFECT_WITHIN_S)

    def _compose(self, *arguments: str) -> None:
        command = [
            "docker",
            "compose",
            "--project-name",
            self.project,
            "--file",
            str(self.root / FILE_NAME),
            *arguments,
        ]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()}")


def _state(container: Any) -> State:
    match container.status:
        case "running":
            return State.RUNNING
        case "paused":
            return State.PAUSED
    return State.STOPPED


def _published(container: Any) -> dict[str, Address]:
    """By container port; from the container's settings, since a stopped one has no live mapping."""
    bindings = container.attrs["HostConfig"]["PortBindings"] or {}
    return {
        port: Address(binding["HostIp"] or "127.0.0.1", int(binding["HostPort"]))
        for port, targets in sorted(bindings.items())
        for binding in targets or ()
        if binding["HostPort"]
    }
