"""Chains of causes of protocol events."""

from collections.abc import Sequence

from tidelog.ports.recorder import Cause
from tidelog.watch.order import Told


def led_to(events: Sequence[Told], end: Told) -> list[Told]:
    """Returns the events from the one that began it to `end`, each the cause of the next."""
    by_name = {told.name: told for told in events}
    found: list[Told] = []
    name: Cause | None = end.name
    while name is not None and name in by_name:
        found.append(by_name[name])
        name = by_name[name].event.cause
    return found[::-1]


def chain(events: Sequence[Told], end: Told) -> list[tuple[str, str]]:
    """Returns the processes and kinds of these events."""
    return [(told.process, type(told.event.fields).__name__) for told in led_to(events, end)]
