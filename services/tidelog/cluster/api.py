"""One interface over a cluster of processes, whether they are plain processes or containers.

Processes go by name: `broker-1`, `controller-2`, `zookeeper-1`; a broker's number is its broker id. Every method is
synchronous and returns when its effect has been seen, so a scenario can state what it did and when.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from tidelog.cluster.files import DataFiles
from tidelog.ids import Address, BrokerId

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ZOOKEEPER: Final = "zookeeper"
AGENT: Final = "agent"
CLIENT: Final = "client"
"""No process of the cluster, but an end of links: whoever dials brokers as `client_links` says."""
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


class Pause(Enum):
    """How a process is made to stand still."""

    SIGNAL = "signal"
    """SIGSTOP: a debugger's, or a person's who hits Ctrl-Z."""
    FREEZER = "freezer"
    """By its cgroup, as an engine or a hypervisor does it; the process has no way to see it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the packets and bytes of a link are made to go through."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """A delay is drawn evenly between `delay_s` less and more than this."""
    bytes_per_s: float = math.inf


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


@dataclass(frozen=True, slots=True)
class Sessions:
    """Of ZooKeeper's clients."""

    alive: frozenset[int]
    holders: Mapping[str, int]
    """Session by the path of each ephemeral znode."""


def process_name(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def broker_name(broker_id: int) -> str:
    return process_name(BROKER, broker_id)


def kind_of(name: str) -> str:
    return name.rpartition("-")[0] or name


def broker_id_of(name: str) -> BrokerId:
    kind, _, number = name.rpartition("-")
    if kind != BROKER or not number.isdigit():
        raise ClusterError(f"{name} is not a broker; brokers are named like {broker_name(1)}")
    return BrokerId(int(number))


Way = tuple[str, str]
"""What its first, the sender, sends to its second, the receiver."""


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

    def bounce(self, name: str) -> float:
        """SIGKILL and a start, with nothing between them. Returns when the next process runs: for how many seconds none ran, from
        the end of one to the beginning of the other, whatever it took to ask for them."""
        ...

    def pause(self, name: str, how: Pause | None = None) -> None:
        """Returns when the process has stopped; `how` is the adapter's own way if None."""
        ...

    def resume(self, name: str) -> None: ...

    def isolate(
        self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH
    ) -> Sequence[Way]:
        """Cuts the links between `name` and `peers` (all other processes if None); clients keep theirs unless named.

        Returns what is cut now; ClusterError when there is no such link.
        """
        ...

    def rejoin(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        """Ends what `isolate` did with the same arguments. What another call has cut stays cut."""
        ...

    def passing(self, ways: Collection[Way]) -> Sequence[Way]:
        """By looking for a moment: those on which something arrives. Both ends run."""
        ...

    def heal(self) -> None:
        """Ends everything that is wrong with any link."""
        ...

    def client_links(self) -> Mapping[Address, Address]:
        """What a client dials instead of each broker's address so that its links can be cut and shaped as those of `client`."""
        ...

    def shape(self, name: str, peers: Collection[str], traffic: Traffic | None) -> Sequence[Way]:
        """What passes between `name` and `peers`, both ways, goes through this; None ends it. Returns the ways."""
        ...

    def waited_s(self, way: Way) -> float | None:
        """How long the newest bytes were kept back on their way since it was shaped; None if none have passed."""
        ...

    def exit_code(self, name: str) -> int | None:
        """Of a process that has ended; None when that is not known."""
        ...

    def reset_connections(self, name: str, peers: Collection[str]) -> int:
        """Ends the connections between `name` and `peers` with a reset; returns how many ends it closed or packets it refused."""
        ...

    def lose_packets(self, name: str, share: float) -> None:
        """So many of the packets that `name` sends and gets are lost; 0 ends it."""
        ...

    def lost_packets(self, name: str) -> int:
        """Since `lose_packets`."""
        ...

    def files(self, name: str) -> DataFiles:
        """Where a broker or a ZooKeeper server keeps its data."""
        ...

    def check_fillable(self) -> None:
        """ClusterError when no disk of this cluster can be filled."""
        ...

    def fill_disk(self, name: str, growing: str) -> str:
        """From now on no file of the process grows whose name ends with `growing`, at least; returns what was seen.

        ClusterError when others would suffer from it.
        """
        ...

    def free_disk(self, name: str) -> None:
        """Ends `fill_disk`."""
        ...

    def logs(self, name: str, lines: int = 200) -> str:
        """The newest lines that the process wrote."""
        ...

    def zookeeper_mode(self, name: str) -> str:
        """leader, follower or standalone; empty while the server serves nobody."""
        ...

    def sessions(self) -> Sessions:
        """Of ZooKeeper's clients. ClusterError while no server leads."""
        ...


def ways(name: str, peers: Collection[str], direction: Direction = Direction.BOTH) -> list[Way]:
    """What no longer arrives when `name` is isolated from `peers`."""
    found = []
    for other in peers:
        if other != name:
            found += [(name, other)] if direction is not Direction.INBOUND else []
            found += [(other, name)] if direction is not Direction.OUTBOUND else []
    return found


def bootstrap_servers(cluster: Cluster) -> str:
    """`host:port,...` of every broker, as clients take it."""
    return ",".join(str(address) for address in cluster.endpoints(BROKER).values())
