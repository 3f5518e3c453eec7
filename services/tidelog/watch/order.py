"""The order of events of several processes, and which of them wrote what another process has read in ZooKeeper."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from tidelog.ports.recorder import Cause, Origin, ProtocolEvent, Znode
from tidelog.wire import messages as m
from tidelog.wire.znodes import BROKER_IDS, CONSUMERS, CONTROLLER, NO_VERSION, TOPICS


class Caused(Protocol):
    """An event as it is told, be it of a running cluster or of a file."""

    @property
    def name(self) -> Cause: ...

    @property
    def cause(self) -> Cause | None: ...

    @property
    def writes(self) -> bool:
        """The event is a write to ZooKeeper."""


E = TypeVar("E", bound=Caused)

LATE_NS: Final = 200_000_000
"""The time within which a process records its write, or the end of its session, after others have read of it."""

_READ: Final = re.compile(rf"(?:{BROKER_IDS}|{TOPICS})/[^/]+|{CONTROLLER}|{CONSUMERS}/(?:shards/\d+/)?coordinator")
"""Znodes that lead to events of processes which read them."""
_APPLIED: Final = ("written", "unknown")


class Told(NamedTuple):
    """An event, and the life of the process that recorded it."""

    process: str
    life: int
    event: ProtocolEvent

    @property
    def name(self) -> Cause:
        return Cause(self.process, self.life, self.event.number)

    @property
    def cause(self) -> Cause | None:
        """None too for a znode, before it is known which event wrote it."""
        return self.event.cause if isinstance(self.event.cause, Cause) else None

    @property
    def writes(self) -> bool:
        return isinstance(self.event.fields, m.StoreWritten)


class Writes:
    """Changes of znodes in the events that are in order already, and how far processes have read them."""

    def __init__(self) -> None:
        self._made: dict[str, list[tuple[int, Cause]]] = {}
        """Versions and the events that left them, by path."""
        self._read: dict[tuple[str, str], int] = {}
        """The number of changes up to the one that a process has read, by process and path."""
        self._over: dict[tuple[str, str], int] = {}
        """The number of changes before a process read that the znode is gone, by process and path."""

    def find(self, process: str, znode: Znode) -> Cause | None:
        """Returns the event that left a znode as `process` reads it next. A znode that is made anew has the same versions
        again: the newest write counts, but none of before the process has read that the znode is gone."""
        made = self._made.get(znode.path, [])
        # It may have gone without an event since it was made: with the process that made it.
        first = self._over.get((process, znode.path), 0) if znode.version != NO_VERSION else len(made) - 1
        return next((name for version, name in reversed(made[max(0, first) :]) if version == znode.version), None)

    def add(self, told: Told, origin: Origin | None) -> None:
        """Adds the next event; `origin` is what its process has named as its cause."""
        if isinstance(origin, Znode):
            key, made = (told.process, origin.path), self._made.get(origin.path, [])
            if origin.version == NO_VERSION:
                self._over[key] = self._read.get(key, 0)
            else:
                self._read[key] = next((at for at in range(len(made), 0, -1) if made[at - 1][1] == told.cause), 0)
        for path, version in _left(told.event.fields):
            self._made.setdefault(path, []).append((version, told.name))


def _left(fields: object) -> Iterator[tuple[str, int]]:
    """Yields paths and versions of znodes that an event has changed. An ephemeral that goes with its session has no writer: then
    it is the end of the session."""
    if isinstance(fields, m.SessionLost):
        yield fields.path, NO_VERSION
    elif isinstance(fields, m.StoreWritten) and fields.result in _APPLIED:
        yield from ((each.path, each.version) for each in fields.changes if _READ.fullmatch(each.path))


def with_causes(events: Sequence[E], wanted: Callable[[E], bool]) -> list[E]:
    """Returns the events that are wanted, and what led to them."""
    by_name = {event.name: event for event in events}
    found: set[Cause] = set()
    for event in filter(wanted, events):
        led: E | None = event
        while led is not None and led.name not in found:
            found.add(led.name)
            led = None if led.cause is None else by_name.get(led.cause)
    return [event for event in events if event.name in found]


class Coming:
    """The events that are not in order yet."""

    def __init__(self, found: Sequence[Told], writes: Writes) -> None:
        self.names = {told.name for told in found}
        self._writes = writes
        self._left: dict[str, list[tuple[int, Told]]] = {}
        if any(isinstance(told.event.cause, Znode) for told in found):
            for told in sorted(found, key=lambda told: told.event.wall_ns):
                for path, version in _left(told.event.fields):
                    self._left.setdefault(path, []).append((version, told))

    def cause(self, told: Told) -> Cause | None:
        """Returns the cause of an event. A write that is recorded soon after it was read was first all the same; one that is
        recorded later is another one, and the events of the life before may be gone with their process."""
        znode = told.event.cause
        if not isinstance(znode, Znode):
            return znode
        found = self._writes.find(told.process, znode)
        if found is not None:
            return found
        left = [each for each in self._left.get(znode.path, ()) if each[1].name in self.names]
        if znode.version == NO_VERSION:
            left = left[:1]
        latest_ns = told.event.wall_ns + LATE_NS
        fits = (each.name for version, each in left if version == znode.version and each.event.wall_ns <= latest_ns)
        return next(fits, None)


def ordered(found: Sequence[Told], writes: Writes | None = None) -> list[Told]:
    """Merges events by time. The events of one process keep their order, and a cause stands before its effect, whatever the
    clocks say. `writes` knows of the events before these; of an event that is due to a znode the cause is found."""
    writes = Writes() if writes is None else writes
    queues: dict[str, deque[Told]] = {}
    for told in sorted(found, key=lambda told: (told.process, told.life, told.event.number)):
        queues.setdefault(told.process, deque()).append(told)
    coming = Coming(found, writes)
    order: list[Told] = []
    while queues:
        heads = [queue[0] for queue in queues.values()]
        # Without a head whose cause is placed, causes go round in a circle, which only a forger makes.
        free = [told for told in heads if coming.cause(told) not in coming.names] or heads
        told = min(free, key=lambda told: (told.event.wall_ns, told.process))
        queues[told.process].popleft()
        if not queues[told.process]:
            del queues[told.process]
        origin, cause = told.event.cause, coming.cause(told)
        coming.names.discard(told.name)
        if cause is not origin:
            told = told._replace(event=told.event._replace(cause=cause))
        writes.add(told, origin)
        order.append(told)
    return order
