"""The order of events of several processes."""

from collections.abc import Iterable, Sequence
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


def in_time(found: Iterable[Told]) -> list[Told]:
    """Sorts by the clocks of the processes."""
    return sorted(found, key=lambda told: (told.event.wall_ns, told.process, told.life, told.event.number))


def causes_first(found: Sequence[Told]) -> list[Told]:
    """Keeps the given order, except that an event which stands before its cause moves to the place right after it."""
    known = {told.name for told in found}
    placed: set[Cause] = set()
    waiting: dict[Cause, list[Told]] = {}
    order: list[Told] = []
    for each in found:
        cause = each.event.cause
        if cause is not None and cause in known and cause not in placed:
            waiting.setdefault(cause, []).append(each)
            continue
        stack = [each]
        while stack:
            told = stack.pop()
            order.append(told)
            placed.add(told.name)
            stack += reversed(waiting.pop(told.name, []))
    return order
