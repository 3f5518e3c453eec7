"""Chains of causes of protocol events."""

import re
from collections.abc import Mapping, Sequence

from tidelog.ports.recorder import Cause
from tidelog.watch.order import Told
from tidelog.watch.text import sentence


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


def masked(told: Told, names: Mapping[str, str]) -> str:
    """Returns process and sentence without what differs from run to run: `names`, times, epochs, offsets, numbers of
    processes."""
    text = f"{told.process}  {sentence(told.event)}"
    for name, stands_for in names.items():
        text = text.replace(name, stands_for)
    text = re.sub(r" in \d+ steps", "", text)
    text = re.sub(r"N(,N)+", "N", re.sub(r"\d[\d.]*", "N", text))
    return re.sub(r"N (partition|group|member|broker|topic|offset)\b", r"N \1s", text)


def story(events: Sequence[Told], end: Told, names: Mapping[str, str]) -> list[str]:
    """Returns what led to `end`, in order; then, as a sorted set, what else has happened since its begin. Events of a process
    that was not watched for a while stand at the end of `events`, so the clock tells what came later: it is the same for all."""
    led = led_to(events, end)
    known = {told.name for told in led}
    beside = {
        masked(told, names) for told in events if told.event.wall_ns >= led[0].event.wall_ns and told.name not in known
    }
    return [*(masked(told, names) for told in led), "beside:", *sorted(beside)]
