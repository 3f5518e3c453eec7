"""The order of events of several processes."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.ports.recorder import Cause, ProtocolEvent
from tidelog.wire import messages as m


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
        return self.event.cause

    @property
    def writes(self) -> bool:
        return isinstance(self.event.fields, m.StoreWritten)


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


def ordered(found: Iterable[Told]) -> list[Told]:
    """Merges events by time. The events of one process keep their order, and a cause stands before its effect, whatever the
    clocks say."""
    queues: dict[str, deque[Told]] = {}
    for told in sorted(found, key=lambda told: (told.process, told.life, told.event.number)):
        queues.setdefault(told.process, deque()).append(told)
    missing = {told.name for queue in queues.values() for told in queue}
    order: list[Told] = []
    while queues:
        heads = [queue[0] for queue in queues.values()]
        # Without a head whose cause is placed, causes go round in a circle, which only a forger makes.
        free = [told for told in heads if told.cause not in missing] or heads
        told = min(free, key=lambda told: (told.event.wall_ns, told.process))
        queues[told.process].popleft()
        if not queues[told.process]:
            del queues[told.process]
        missing.discard(told.name)
        order.append(told)
    return order
