"""Steps of a cluster between a fault and the first acknowledgement of a new leader."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.chaos.checking import HISTORY
from tidelog.chaos.history import OK, FaultStep, HistoryReader, Send, Sent
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.ids import TopicPartition
from tidelog.wire import znodes

Event = Mapping[str, Any]
"""A line of protocol.jsonl."""


@dataclass(frozen=True, slots=True)
class Step:
    t: float
    """Seconds since the run began."""
    process: str
    text: str


@dataclass(frozen=True, slots=True)
class Failover:
    """The failover of one partition: the last one that had an acknowledgement of a new leader."""

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
    for number, fault in enumerate(faults):
        until = faults[number + 1].t if number + 1 < len(faults) else float("inf")
        firsts = [
            first for first in map(lambda acked: _first(acked, fault.t, until), acks.values()) if first is not None
        ]
        if not firsts:
            continue
        last = max(firsts, key=lambda sent: sent[1])
        tp, acked_at = last
        steps = [
            Step(event["t"], event["process"], event["text"])
            for event in of_partition(events, tp)
            if fault.t <= event["t"] <= acked_at
        ]
        found.append(Failover(fault.name, tp, fault.t, acked_at, steps))
    return found


def _history(directory: Path) -> tuple[list[FaultStep], dict[TopicPartition, list[tuple[TopicPartition, float, int]]]]:
    """Returns the begins of the faults, and the acknowledgements of each partition with their leader epochs."""
    faults: list[FaultStep] = []
    sends: dict[int, TopicPartition] = {}
    acks: dict[TopicPartition, list[tuple[TopicPartition, float, int]]] = {}
    seen: set[int] = set()
    for record in HistoryReader(directory / HISTORY):
        match record:
            case FaultStep() if record.id not in seen:
                seen.add(record.id)
                faults.append(record)
            case Send():
                sends[record.id] = TopicPartition(record.topic, record.partition)
            case Sent(outcome=outcome, leader_epoch=int() as epoch) if outcome == OK:
                tp = sends.pop(record.id)
                acks.setdefault(tp, []).append((tp, record.t, epoch))
            case _:
                pass
    return faults, acks


def _first(
    acks: Sequence[tuple[TopicPartition, float, int]], after: float, until: float
) -> tuple[TopicPartition, float] | None:
    """Returns the first acknowledgement of a later epoch than before; None if the leader stayed."""
    before = max((epoch for _, t, epoch in acks if t <= after), default=None)
    if before is None:
        return None
    return next(((tp, t) for tp, t, epoch in acks if after < t < until and epoch > before), None)


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
    by_name = {_name(event): event for event in events}
    wanted: set[tuple[str, int, int]] = set()
    for event in events:
        if _is_of(event, tp):
            wanted.update(_chain(event, by_name, wanted))
    return [event for event in events if _name(event) in wanted]


def _chain(
    event: Event | None, by_name: Mapping[tuple[str, int, int], Event], known: set[tuple[str, int, int]]
) -> Iterator[tuple[str, int, int]]:
    while event is not None and (name := _name(event)) not in known:
        yield name
        cause = event["cause"]
        event = None if cause is None else by_name.get(_name(cause))


def _name(event: Event) -> tuple[str, int, int]:
    return event["process"], event["incarnation"], event["number"]


def _is_of(event: Event, tp: TopicPartition) -> bool:
    if event["kind"] == "StoreWritten":
        return any(change["path"] == znodes.state_path(*tp) for change in event["fields"]["changes"])
    return bool(event["subject"] == {"topic": tp.topic, "partition": tp.partition})
