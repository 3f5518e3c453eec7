"""Steps of a cluster between a fault and the first acknowledgement of a new leader."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

from tidelog.chaos.checking import HISTORY
from tidelog.chaos.history import OK, FaultStep, HistoryReader, Send, Sent
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.ids import TopicPartition
from tidelog.watch.order import with_causes
from tidelog.wire import znodes

Event = Mapping[str, Any]
"""A line of protocol.jsonl."""
_Ack = tuple[float, int]
"""When a record was acknowledged, and in which leader epoch."""


@dataclass(frozen=True, slots=True)
class Step:
    t: float
    """Seconds since the run began."""
    process: str
    text: str


@dataclass(frozen=True, slots=True)
class Failover:
    """The failover of one partition. If several had one, it is that whose new leader was the last to acknowledge a record."""

    fault: str
    tp: TopicPartition
    began: float
    """When the fault began, in seconds since the run began."""
    acknowledged: float
    steps: Sequence[Step]


def failovers(directory: Path) -> list[Failover]:
    """Returns one for each fault after which a leader changed. HistoryDamaged, OSError; ValueError for a damaged PROTOCOL."""
    faults, acks = _history(directory)
    events = read_events(directory)
    found = []
    for fault, following in zip_longest(faults, faults[1:]):
        until = inf if following is None else following.t
        firsts = {tp: t for tp, acked in acks.items() if (t := _first(acked, fault.t, until)) is not None}
        if firsts:
            tp = max(firsts, key=lambda each: firsts[each])
            steps = [
                Step(event["t"], event["process"], event["text"])
                for event in of_partition(events, tp)
                if fault.t <= event["t"] <= firsts[tp]
            ]
            found.append(Failover(fault.name, tp, fault.t, firsts[tp], steps))
    return found


def _history(directory: Path) -> tuple[list[FaultStep], Mapping[TopicPartition, list[_Ack]]]:
    """Returns the first step of each fault, and the acknowledgements of each partition."""
    faults: dict[int, FaultStep] = {}
    sends: dict[int, TopicPartition] = {}
    acks: defaultdict[TopicPartition, list[_Ack]] = defaultdict(list)
    for record in HistoryReader(directory / HISTORY):
        match record:
            case FaultStep():
                faults.setdefault(record.id, record)
            case Send():
                sends[record.id] = TopicPartition(record.topic, record.partition)
            case Sent(outcome=outcome, leader_epoch=int() as epoch) if outcome == OK:
                acks[sends.pop(record.id)].append((record.t, epoch))
            case _:
                pass
    return list(faults.values()), acks


def _first(acks: Sequence[_Ack], after: float, until: float) -> float | None:
    """Returns the time of the first acknowledgement in a later epoch than before; None if the leader stayed."""
    before = max((epoch for t, epoch in acks if t <= after), default=None)
    if before is None:
        return None
    return next((t for t, epoch in acks if after < t < until and epoch > before), None)


def read_events(directory: Path) -> list[Event]:
    """Returns the protocol events that the run has kept; none of a run of an older release. ValueError names the damaged line."""
    path = directory / PROTOCOL
    if not path.exists():
        return []
    found = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found.append(json.loads(line))
            except ValueError:
                raise ValueError(f"{path}, line {number}: not JSON") from None
    return found


def of_partition(events: Sequence[Event], tp: TopicPartition) -> list[Event]:
    """Returns the events of a partition, and what led to them."""
    return with_causes(
        events, lambda event: _is_of(event, tp), _name, lambda event: event["cause"] and _name(event["cause"])
    )


def _name(event: Event) -> tuple[str, int, int]:
    return event["process"], event["incarnation"], event["number"]


def _is_of(event: Event, tp: TopicPartition) -> bool:
    if event["kind"] == "StoreWritten":
        return any(change["path"] == znodes.state_path(*tp) for change in event["fields"]["changes"])
    return bool(event["subject"] == {"topic": tp.topic, "partition": tp.partition})
