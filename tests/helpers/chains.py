"""Chains of causes of protocol events."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.coordinator.election import shard_of
from tidelog.ports.recorder import Cause
from tidelog.watch.order import Told
from tidelog.watch.text import sentence
from tidelog.wire import messages as m
from tidelog.wire import znodes

KEPT: Final = Path(__file__).parent.parent / "integration" / "chains"
"""Stories of faults: tests on real processes write them, tests in the lab compare theirs too."""
SESSION_MS: Final = 6_000
"""Timeout of the ZooKeeper sessions of all processes in these stories."""
MEMBER_SESSION_MS: Final = 30_000
"""Session timeout of the member: its lease outlives the time without a coordinator, which comes close to the default of 10 s."""
SETTLES_S: Final = 2.0
"""For what is still under way when a story begins, and after it ends."""


def led_to(events: Sequence[Told], end: Told) -> list[Told]:
    """Returns the events from the one that began it to `end`, each the cause of the next."""
    by_name = {told.name: told for told in events}
    found: list[Told] = []
    name: Cause | None = end.name
    while name is not None and name in by_name:
        found.append(by_name[name])
        name = by_name[name].cause
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


def newest(events: Sequence[Told], holds: Callable[[Told], bool]) -> Told | None:
    return next((told for told in reversed(events) if holds(told)), None)


def acknowledges_second(told: Told) -> bool:
    """Tells whether the second record of the topic is acknowledged."""
    return isinstance(told.event.fields, m.HighWatermarkAdvanced) and told.event.fields.to_offset == 2


def leads(told: Told) -> bool:
    return isinstance(told.event.fields, m.BecameLeader)


def follows_controller(told: Told) -> bool:
    return isinstance(told.event.fields, m.OrderApplied) and told.event.fields.order == "LeaderAndIsr"


def hears_of_start(told: Told) -> bool:
    return isinstance(told.event.fields, m.StartFetcherAnswered)


class CoordinatorStory:
    """Names and selects the events of a group that has one member."""

    FAMILIES: Final = ("coordinator", "member", "zookeeper")

    def __init__(self, topic: str, group: str, member: Sequence[str], shards: int) -> None:
        """`member` has the names of it and of its process."""
        self._shard = shard_of(group, shards)
        self._path = znodes.coordinator_path(self._shard)
        self._offset = znodes.offset_path(group, topic, 0)
        names = [
            *((name, "MEMBER") for name in member),
            (topic, "TOPIC"),
            (group, "GROUP"),
            (self._path, "COORDINATOR"),
        ]
        self.names = dict(names)

    def stores_offset(self, told: Told) -> bool:
        fields = told.event.fields
        return isinstance(fields, m.StoreWritten) and any(change.path == self._offset for change in fields.changes)

    def has(self, told: Told) -> bool:
        """Tells whether an event is not of another shard."""
        if isinstance(told.event.fields, m.StoreWritten):
            path = told.event.fields.changes[0].path
            return path == self._path or not path.endswith("/coordinator")
        return getattr(told.event.fields, "shard", self._shard) == self._shard


def story(events: Sequence[Told], end: Told, names: Mapping[str, str]) -> list[str]:
    """Returns what led to `end`, in order; then, as a sorted set, what else has happened since its begin. Events of a process
    that was not watched for a while stand at the end of `events`, so the clock tells what came later: it is the same for all."""
    led = led_to(events, end)
    known = {told.name for told in led}
    beside = {
        masked(told, names) for told in events if told.event.wall_ns >= led[0].event.wall_ns and told.name not in known
    }
    return [*(masked(told, names) for told in led), "beside:", *sorted(beside)]
