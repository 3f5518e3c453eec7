"""One interface over a cluster of processes, whether they are plain processes or containers.

Processes go by name: `broker-1`, `controller-2`, `zookeeper-1`; a broker's number is its broker id. Every method is
synchronous and returns when its effect has been seen, so a scenario can state what it did and when.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from tidelog.ids import Address, BrokerId

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ZOOKEEPER: Final = "zookeeper"
AGENT: Final = "agent"
KINDS: Final = (ZOOKEEPER, CONTROLLER, BROKER, AGENT)
"""In the order in which they are started; any order works."""


class ClusterError(Exception):
    """What was asked of a cluster could not be done; the message is for the person who asked."""


class Direction(Enum):
    """Which bytes no longer arrive, as seen from the isolated process."""

    BOTH = "both"
    INBOUND = "inbound"
    """It is not reached, but is heard."""
    OUTBOUND = "outbound"
    """It hears, but is not heard."""


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One row of `status`."""

    name: str
    kind: str
    state: State
    pid: int | None
    addresses: Mapping[str, Address]
    """By listener name; as a program on this machine reaches them."""
    home: str
    """Where its files are: a directory, or the name of a container."""


def process_name(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def broker_name(broker_id: int) -> str:
    return process_name(BROKER, broker_id)


def kind_of(name: str) -> str:
    return name.rpartition("-")[0]


def broker_id_of(name: str) -> BrokerId:
    kind, _, number = name.rpartition("-")
    if kind != BROKER or not number.isdigit():
        raise ClusterError(f"{name} is not a broker; brokers are named like {broker_name(1)}")
    return BrokerId(int(number))


class Cluster(Protocol):
    def names(self, kind: str | None = None) -> Sequence[str]:
        """Of every process that belongs to the cluster, running or not."""
        ...

    def status(self) -> Sequence[ProcessStatus]: ...

    def endpoints(self, kind: str = BROKER) -> Mapping[str, Address]:
        """Where a client on this machine reaches each process: a broker's EXTERNAL listener, else its only one."""
        ...

    def start(self, name: str) -> None:
        """Returns when the process runs, which is before it serves."""
        ...

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        """Asks it to end in order (SIGTERM) and returns when it has."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone."""
        ...

    def restart(self, name: str) -> None: ...

    def pause(self, name: str) -> None:
        """SIGSTOP; returns when the process has stopped."""
        ...

    def resume(self, name: str) -> None: ...

    def isolate(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        """Cuts the links between `name` and `peers` (all other processes if None); clients keep theirs."""
        ...

    def heal(self) -> None:
        """Ends every isolation."""
        ...

    def logs(self, name: str, lines: int = 200) -> str:
        """The newest lines that the process wrote."""
        ...


def bootstrap_servers(cluster: Cluster) -> str:
    """`host:port,...` of every broker, as clients take it."""
    return ",".join(str(address) for address in cluster.endpoints(BROKER).values())
