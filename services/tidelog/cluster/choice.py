"""The cluster that a command or a script means: the one that is named, else the one that runs, if it is one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.cluster.api import ClusterError, State
from tidelog.cluster.local import LocalCluster, local_name
from tidelog.ids import LOCALHOST, Address
from tidelog.runtime.rpc_name import cluster_name

CONTAINERS: Final = ",".join(map(str, LOCALHOST))
"""The addresses at which docker-compose.yml publishes the brokers."""
COMPOSE: Final = "compose/"
ANSWERS_WITHIN_S: Final = 2.0

NameAt = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the two is set, or none: nothing runs."""

    local: Path | None = None
    project: str | None = None
    """A Compose project."""

    @property
    def told(self) -> str:
        if self.local is not None:
            return f"the local cluster in {self.local}"
        return "no cluster that runs" if self.project is None else f"the containers of project {self.project}"


def name_at(servers: str) -> str | None:
    """The name that the cluster there gives to itself; None: nothing answers, or it has no name."""
    return cluster_name([Address.parse(each) for each in servers.split(",")], ANSWERS_WITHIN_S)


def choose(base: Path, servers: str | None, name_of: NameAt = name_at, *, options: str = "") -> Choice:
    """The cluster that a program which breaks one means. `servers` is what TIDELOG_BOOTSTRAP_SERVERS says, or an option.

    options: those that name the local cluster or containers, if there are any.

    ClusterError when two clusters run, or when the one that is named is neither of them.
    """
    if not servers:
        return running(base, "--on local or --on compose", name_of)
    name = name_of(servers)
    if name is not None and name.startswith(COMPOSE):
        return Choice(project=name.removeprefix(COMPOSE))
    if name is not None and name == local_name(base):
        return Choice(local=base)
    called = "gives no name" if name is None else f"is called {name}"
    named = f"; {options} name one of these" if options else ""
    raise ClusterError(
        f"the cluster at {servers} {called}, and only the local cluster of this directory and containers can be broken{named}"
    )


def running(base: Path, option: str, name_of: NameAt = name_at) -> Choice:
    """`base` is where the local cluster of this directory is. ClusterError, which names `option`, when containers run, too."""
    local = Choice(local=base) if local_runs(base) else None
    name = name_of(CONTAINERS)
    containers = Choice(project=name.removeprefix(COMPOSE)) if name is not None and name.startswith(COMPOSE) else None
    if local and containers:
        raise ClusterError(f"{local.told} and {containers.told} both run; {option} says which is meant")
    return local or containers or Choice()


def local_runs(base: Path) -> bool:
    cluster = LocalCluster(base)
    return bool(cluster.names()) and any(row.state is not State.STOPPED for row in cluster.status())
