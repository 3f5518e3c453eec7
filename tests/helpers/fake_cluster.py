"""A cluster that is only a table of states, for tests of what is done to one.

Faults take no effect on whoever is in `numb_names`, nor on the files of whoever is in `numb_files`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.cluster.api import (
    BROKER,
    ZOOKEEPER,
    ClusterError,
    Direction,
    Pause,
    ProcessStatus,
    Sessions,
    State,
    Traffic,
    Way,
    broker_id_of,
    kind_of,
    ways,
)
from tidelog.cluster.cuts import Cuts
from tidelog.cluster.files import LocalFiles
from tidelog.ids import Address
from tidelog.wire.znodes import broker_path

NAMES = (
    "zookeeper-1",
    "zookeeper-2",
    "zookeeper-3",
    "controller-1",
    "controller-2",
    "broker-1",
    "broker-2",
    "broker-3",
)


def session_id(name: str, life: int) -> int:
    return 100 * (1 + NAMES.index(name)) + life


class NumbFiles(LocalFiles):
    """Files that nothing changes."""

    def truncate(self, path: str, size: int) -> None:
        pass

    def flip(self, path: str, offset: int) -> None:
        pass

    def remove(self, path: str) -> None:
        pass

    def wipe(self) -> None:
        pass


@dataclass
class FakeCluster:
    states: dict[str, State] = field(default_factory=lambda: dict.fromkeys(NAMES, State.RUNNING))
    numb_names: set[str] = field(default_factory=set)
    numb_files: set[str] = field(default_factory=set)
    done: list[tuple[str, ...]] = field(default_factory=list)
    cuts: Cuts = field(default_factory=Cuts)
    shaped: dict[Way, Traffic] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    shared_disks: bool = False
    base: Path = Path("/nowhere")
    lives: Counter[str] = field(default_factory=Counter)
    """How often each was started."""
    down_s: float = 0.1
    """How long a bounce takes."""
    looks: Iterable[Sessions] = ()
    """What ZooKeeper says of its sessions, look by look; from then on everybody is registered and nobody's has ended."""
    modes: Mapping[str, str] = field(
        default_factory=lambda: {"zookeeper-1": "follower", "zookeeper-2": "leader", "zookeeper-3": "follower"}
    )

    def names(self, kind: str | None = None) -> Sequence[str]:
        return [name for name in self.states if kind in (None, kind_of(name))]

    def status(self) -> Sequence[ProcessStatus]:
        return [
            ProcessStatus(
                name,
                kind_of(name),
                state,
                None if state is State.STOPPED else self._pid(name),
                self._addresses(name),
                "",
            )
            for name, state in self.states.items()
        ]

    def endpoints(self, kind: str = BROKER) -> Mapping[str, Address]:
        return {name: Address("127.0.0.1", 9000 + n) for n, name in enumerate(self.names(kind))}

    def start(self, name: str) -> None:
        self._becomes("start", name, State.STOPPED, State.RUNNING)
        self.lives[name] += name not in self.numb_names

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        self._becomes("stop", name, State.RUNNING, State.STOPPED)

    def kill(self, name: str) -> None:
        self._becomes("kill", name, State.RUNNING, State.STOPPED)

    def bounce(self, name: str) -> float:
        if name not in self.numb_names:
            self.kill(name)
            self.start(name)
        return self.down_s

    def pause(self, name: str, how: Pause | None = None) -> None:
        self._becomes("pause", name, State.RUNNING, State.PAUSED)

    def resume(self, name: str) -> None:
        self._becomes("resume", name, State.PAUSED, State.RUNNING)

    def isolate(
        self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH
    ) -> Sequence[Way]:
        asked = ways(name, self.names() if peers is None else peers, direction)
        if name not in self.numb_names:
            self.cuts.add(name, peers, direction, asked)
        return asked

    def rejoin(self, name: str, peers: Collection[str] | None = None, direction: Direction = Direction.BOTH) -> None:
        self.cuts.end(name, peers, direction)

    @property
    def cut(self) -> frozenset[Way]:
        return self.cuts.ways

    def passing(self, ways: Collection[Way]) -> Sequence[Way]:
        return [way for way in ways if way not in self.cut]

    def heal(self) -> None:
        self.cuts.clear()

    def client_links(self) -> Mapping[Address, Address]:
        return {}

    def shape(self, name: str, peers: Collection[str], traffic: Traffic | None) -> Sequence[Way]:
        for way in ways(name, peers):
            if traffic is None:
                self.shaped.pop(way, None)
            elif name not in self.numb_names:
                self.shaped[way] = traffic
        return ways(name, peers)

    def waited_s(self, way: Way) -> float | None:
        return self.shaped.get(way, Traffic()).delay_s

    def reset_connections(self, name: str, peers: Collection[str]) -> int:
        self.done.append(("reset", name))
        return 0 if name in self.numb_names else len(peers)

    def lose_packets(self, name: str, share: float) -> None:
        self.loss[name] = share

    def lost_packets(self, name: str) -> int:
        return 0 if name in self.numb_names else int(100 * self.loss.get(name, 0.0))

    def exit_code(self, name: str) -> int | None:
        return None

    def files(self, name: str) -> LocalFiles:
        files = LocalFiles(self.base / name)
        return NumbFiles(files.root) if name in self.numb_files else files

    def check_fillable(self) -> None:
        if self.shared_disks:
            raise ClusterError("others use the disk as well")

    def fill_disk(self, name: str, growing: str) -> str:
        self.full.add(name)
        return f"{name} is full"

    def free_disk(self, name: str) -> None:
        self.done.append(("free", name))
        self.full.discard(name)

    def logs(self, name: str, lines: int = 200) -> str:
        return ""

    def zookeeper_mode(self, name: str) -> str:
        return self.modes[name] if self.states[name] is State.RUNNING else ""

    def sessions(self) -> Sessions:
        if not isinstance(self.looks, Iterator):
            self.looks = iter(self.looks)
        return next(self.looks, None) or Sessions(
            frozenset(session_id(n, life) for n in NAMES for life in range(self.lives[n] + 1)),
            {broker_path(broker_id_of(n)): session_id(n, self.lives[n]) for n in self.names(BROKER)},
        )

    def _addresses(self, name: str) -> Mapping[str, Address]:
        kind, _, number = name.rpartition("-")
        return {"CLIENT": Address("127.0.0.1", 7000 + int(number))} if kind == ZOOKEEPER else {}

    def _pid(self, name: str) -> int:
        return 100 * (1 + list(self.states).index(name)) + self.lives[name]

    def _becomes(self, what: str, name: str, before: State, after: State) -> None:
        self.done.append((what, name))
        if name in self.numb_names:
            return
        if self.states[name] is not before:
            raise ClusterError(f"{name} is {self.states[name].value}, not {before.value}")
        self.states[name] = after
