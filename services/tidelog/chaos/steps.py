"""Steps of a cluster between a fault and the first acknowledgement of a new leader."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any, Self

from tidelog.chaos.checking import HISTORY
from tidelog.chaos.history import OK, FaultStep, HistoryReader, Record, Send, Sent
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause
from tidelog.watch.order import with_causes
from tidelog.wire import znodes


@dataclass(frozen=True, slots=True)
class Event:
    """A line of protocol.jsonl."""

    t: float
    """Seconds since the run began."""
    name: Cause
    text: str
    cause: Cause | None = None
    kind: str = ""
    partition: TopicPartition | None = None
    paths: frozenset[str] = frozenset()
    """Znodes that it has written."""

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """KeyError, TypeError or ValueError of a line that holds no event."""
        told = json.loads(line)
        kind, subject = told["kind"], told["subject"] or {}
        changes = told["fields"]["changes"] if kind == "StoreWritten" else ()
        return cls(
            float(told["t"]),
            _name(told),
            str(told["text"]),
            told["cause"] and _name(told["cause"]),
            kind,
            TopicPartition(subject["topic"], subject["partition"]) if "topic" in subject else None,
            frozenset(change["path"] for change in changes),
        )

    @property
    def writes(self) -> bool:
        return self.kind == "StoreWritten"


def _name(told: Any) -> Cause:
    return Cause(str(told["process"]), int(told["incarnation"]), int(told["number"]))


@dataclass(frozen=True, slots=True)
class Failover:
    """The failover of one partition. If several had one, it is that whose new leader was the last to acknowledge a record."""

    fault: str
    tp: TopicPartition
    began: float
    """When the fault began, in seconds since the run began."""
    steps: Sequence[Event]
    """The last is the acknowledgement."""

    def after(self, step: Event) -> str:
        """Returns the time since the fault."""
        return f"{(step.t - self.began) * 1000:,.0f} ms"


@dataclass(slots=True)
class LeaderTimes:
    """Faults of a history, and the first acknowledgement of each leader epoch."""

    _faults: dict[int, FaultStep] = field(default_factory=dict)
    """The first step of each."""
    _sends: dict[int, TopicPartition] = field(default_factory=dict)
    _firsts: dict[TopicPartition, list[tuple[float, int]]] = field(default_factory=dict)
    """Time and leader epoch."""

    def take(self, record: Record) -> None:
        match record:
            case FaultStep():
                self._faults.setdefault(record.id, record)
            case Send():
                self._sends[record.id] = TopicPartition(record.topic, record.partition)
            case Sent():
                tp, epoch = self._sends.pop(record.id, None), record.leader_epoch
                if tp is not None and epoch is not None and record.outcome == OK:
                    firsts = self._firsts.setdefault(tp, [])
                    if not firsts or epoch > firsts[-1][1]:
                        firsts.append((record.t, epoch))
            case _:
                pass

    def failovers(self, events: Sequence[Event]) -> list[Failover]:
        """Returns one for each fault after which a leader changed."""
        faults, found = list(self._faults.values()), []
        for fault, following in zip_longest(faults, faults[1:]):
            until = inf if following is None else following.t
            changed = {tp: t for tp in self._firsts if (t := self._changed(tp, fault.t, until)) is not None}
            if changed:
                tp = max(changed, key=lambda each: changed[each])
                steps = [event for event in of_partition(events, tp) if fault.t <= event.t <= changed[tp]]
                last = Event(changed[tp], Cause("client", 0, 0), "has the first acknowledgement")
                found.append(Failover(fault.name, tp, fault.t, [*steps, last]))
        return found

    def _changed(self, tp: TopicPartition, after: float, until: float) -> float | None:
        """Returns the time of the first acknowledgement in a later epoch than before; None if the leader stayed."""
        times = [t for t, _ in self._firsts[tp]]
        if times[0] > after:
            return None
        return next((t for t in times if after < t < until), None)


def failovers(directory: Path) -> list[Failover]:
    """Returns those of a run. HistoryDamaged, OSError; ValueError for a damaged PROTOCOL."""
    times = LeaderTimes()
    for record in HistoryReader(directory / HISTORY):
        times.take(record)
    return times.failovers(read_events(directory))


def read_events(directory: Path) -> list[Event]:
    """Returns the protocol events that the run has kept; none of a run of an older release. ValueError names the damaged line."""
    path = directory / PROTOCOL
    if not path.exists():
        return []
    found = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found.append(Event.parse(line))
            except (KeyError, TypeError, ValueError):
                raise ValueError(f"{path}, line {number}: not a protocol event") from None
    return found


def of_partition(events: Sequence[Event], tp: TopicPartition) -> list[Event]:
    """Returns the events of a partition, and what led to them."""
    path = znodes.state_path(*tp)
    return with_causes(events, lambda event: event.partition == tp or path in event.paths)
