"""The order of events of several processes."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.ports.recorder import Cause, ProtocolEvent

E = TypeVar("E")


class Told(NamedTuple):
    """An event, and the life of the process that recorded it."""

    process: str
    life: int
    event: ProtocolEvent

    @property
    def name(self) -> Cause:
        return Cause(self.process, self.life, self.event.number)


def with_causes(
    events: Sequence[E], wanted: Callable[[E], bool], name: Callable[[E], Hashable], cause: Callable[[E], Hashable]
) -> list[E]:
    """Returns the events that are wanted, and what led to them. `cause` is the name of an event, or None."""
    by_name = {name(event): event for event in events}
    found: set[Hashable] = set()
    for event in filter(wanted, events):
        led: E | None = event
        while led is not None and name(led) not in found:
            found.add(name(led))
            led = by_name.get(cause(led))
    return [event for event in events if name(event) in found]


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
        free = [told for told in heads if told.event.cause not in missing] or heads
        told = min(free, key=lambda told: (told.event.wall_ns, told.process))
        queues[told.process].popleft()
        if not queues[told.process]:
            del queues[told.process]
        missing.discard(told.name)
        order.append(told)
    return order
