"""The order of events of several processes."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.ports.recorder import Cause, ProtocolEvent


class Told(NamedTuple):
    """An event, and the life of the process that recorded it."""

    process: str
    life: int
    event: ProtocolEvent

    @property
    def name(self) -> Cause:
        return Cause(self.process, self.life, self.event.number)


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
