"""Sees what is done to the hosts and links of a simulated run where it is done, and compares it with what the run tells."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from tidelog.lab.shown import Shown
from tidelog.lab.steps import Act
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.net_exchange import Link
from tidelog.testing.sim_node import ZOOKEEPER, SimNode

STATES: Final[Mapping[type, tuple[str, ...]]] = {
    Link: ("faults", "is_cut", "refuses"),
    SimClock: ("wall_offset_ms",),
    SimDisk: ("capacity_bytes", "stop_after"),
    SimMeta: ("_link_up",),
    SimNode: ("disk", "habits", "process", "terminating"),
    SimProcess: ("alive", "paused"),
    SimZooKeeper: ("running",),
}
"""Attributes that a fault or its end changes."""

STRIKES: Final[Mapping[type, tuple[str, ...]]] = {
    SimDisk: ("fail", "mend", "slow_down", "quicken", "flip_bit", "lose_sector"),
    SimMeta: ("lose_next_answer", "lose_next_multi"),
    SimNetwork: ("reset", "swap"),
    SimZooKeeper: ("damage", "expire", "remove", "repair"),
}
"""Methods that strike once."""

ALL: Final = {f"{cls.__name__}.{name}" for each in (STATES, STRIKES) for cls, names in each.items() for name in names}

AT_ONCE: Final = {
    "Link.refuses": "Link.is_cut",
    "SimDisk.capacity_bytes": "SimDisk.mend",
    "SimDisk.stop_after": "SimProcess.alive",
    "SimNode.process": "SimProcess.alive",
    "SimNode.terminating": "SimProcess.alive",
}
"""Changes that one act tells together with another one."""


class Done:
    """Time, name of the attribute or method, and process struck of everything that is done from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: Shown) -> None:
        self.seen: list[tuple[float, str, str]] = []
        self._world = cluster.sim.world
        self._now = cluster.now
        for cls, names in STATES.items():
            monkeypatch.setattr(cls, "__setattr__", self._setter(cls, names))
        for cls, names in STRIKES.items():
            for name in names:
                monkeypatch.setattr(cls, name, self._method(cls, name))

    def untold(self, acts: Sequence[Act]) -> list[tuple[float, str, set[str]]]:
        """Returns time, process and what is done to it, where fewer acts of that time name the process."""
        done: dict[tuple[float, str], set[str]] = {}
        for t, what, host in self.seen:
            done.setdefault((t, host), set()).add(AT_ONCE.get(what, what))
        told = Counter((act.t, host) for act in acts for host in {*act.struck, *re.split(r"[\s,]+", act.text)})
        return [(*at, whats) for at, whats in done.items() if told[at] < len(whats)]

    def unfounded(self, acts: Iterable[Act]) -> list[Act]:
        """Returns the ends of faults at whose time nothing is done to any process that they name."""
        done = {(t, host) for t, _, host in self.seen}
        return [act for act in acts if act.mends and not any((act.t, name) in done for name in act.struck)]

    def _setter(self, cls: type, names: tuple[str, ...]) -> Callable[[Any, str, Any], None]:
        set_: Callable[[Any, str, Any], None] = cls.__dict__.get("__setattr__", object.__setattr__)

        def spy(it: Any, name: str, value: Any) -> None:
            before = getattr(it, name, value) if name in names else value
            set_(it, name, value)
            if before != value and self._now() > 0:
                self._note(f"{cls.__name__}.{name}", self._hosts(it))

        return spy

    def _method(self, cls: type, name: str) -> Callable[..., Any]:
        method = getattr(cls, name)

        def spy(it: Any, *args: Any, **named: Any) -> Any:
            hosts = self._struck(it, name, args)
            done = method(it, *args, **named)
            if done is not False:
                self._note(f"{cls.__name__}.{name}", hosts)
            return done

        return spy

    def _note(self, what: str, hosts: Iterable[str]) -> None:
        self.seen += [(self._now(), what, host) for host in hosts]

    def _struck(self, it: Any, name: str, args: tuple[Any, ...]) -> list[str]:
        match name:
            case "reset":
                return [args[0]]
            case "swap":
                return list(args[0])
            case "expire" if args[0] in it.live_sessions:
                hosts = self._world.everything.values()
                return [host.name for host in hosts for meta in host.sessions if meta.session_id == args[0]]
            case "expire":
                return []
            case "remove" if it.find(args[0]) is None:
                return []
            case "repair" if args[0] not in it.damaged:
                return []
        return self._hosts(it)

    def _hosts(self, it: Any) -> list[str]:
        if isinstance(it, SimZooKeeper):
            return [ZOOKEEPER]
        hosts = self._world.everything
        if isinstance(it, Link):
            return [name for name in (it.source, it.target) if name in hosts]
        return [
            host.name
            for host in hosts.values()
            if any(it is each for each in (host, host.process, host.clock, host.disk, *host.sessions))
        ]
