"""Records protocol events of what a controller decides and notices."""

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Final

from tidelog.controller.effects import (
    ConfigsWrite,
    DeletionMark,
    Outcome,
    PartitionRemoval,
    PartitionsWrite,
    ProducerIdsWrite,
    ReassignmentWrite,
    StateWrite,
    TopicRemoval,
    TopicWrite,
    Write,
    WriteGroup,
)
from tidelog.controller.model import ClusterState, PartitionState
from tidelog.controller.operations import operations
from tidelog.controller.rounds import Round
from tidelog.ids import NO_LEADER, BrokerId
from tidelog.ports.meta import Create, Op, SetData
from tidelog.ports.recorder import CAUSE, SILENT, Fields, Recorder, Subject
from tidelog.wire import messages as m
from tidelog.wire import znodes

FAILOVER: Final = ("suspected", "broker_down")
"""Causes of elections that are part of a failover."""


CHANGES_MAX: Final = 1_000
"""Znodes that an event lists."""

PURPOSES: Final[Mapping[type, str]] = {
    StateWrite: "leader and ISR",
    TopicWrite: "topic created",
    PartitionsWrite: "partitions added",
    ReassignmentWrite: "reassignment",
    ConfigsWrite: "topic settings",
    DeletionMark: "topic to be deleted",
    PartitionRemoval: "topic deleted",
    TopicRemoval: "topic deleted",
    ProducerIdsWrite: "producer ids",
}


def store_written(groups: Sequence[WriteGroup], outcome: Outcome) -> m.StoreWritten:
    """Returns the event of a multi that writes these groups."""
    changes = [_change(op) for group in groups for op in operations(group)]
    purposes = dict.fromkeys(PURPOSES[type(group)] for group in groups)
    return m.StoreWritten(
        changes=tuple(changes[:CHANGES_MAX]),
        more=max(0, len(changes) - CHANGES_MAX),
        result=outcome.value,
        purpose=", ".join(purposes),
    )


def _change(op: Op) -> m.ZnodeChange:
    match op:
        case Create(path):
            return m.ZnodeChange(path=path, version_before=znodes.NO_VERSION, version=0)
        case SetData(path, _, version):
            return m.ZnodeChange(path=path, version_before=version, version=version + 1)
        case _:
            return m.ZnodeChange(path=op.path, version_before=op.version, version=znodes.NO_VERSION)


def record_choices(recorder: Recorder, write: Write, state: ClusterState) -> None:
    """Records the leaders and ISRs that `write` chooses; `state` is the one before it.

    A single choice is the cause of what follows. Several are written together, so what led to them stays the cause.
    """
    if recorder is SILENT:
        return  # thousands of choices follow the death of a broker
    found = _choices(write, state)
    if len(found) == 1:
        CAUSE.set(recorder.record(*found[0]))
    else:
        recorder.record_all(found)


def _choices(write: Write, state: ClusterState) -> list[tuple[Subject, Fields]]:
    found: list[tuple[Subject, Fields]] = []
    for each in _states(write):
        tp, after, partition = each.tp, each.state, state.partition(each.tp)
        before = None if partition is None else partition.state
        if before is None or before.leader_epoch != after.leader_epoch:
            found.append((tp, partial(_leader_chosen, before, after, write.cause)))
        elif before.isr is not after.isr and _ids(before) != _ids(after):
            found.append((tp, partial(_isr_chosen, before, after, write.cause)))
    return found


def _states(write: Write) -> Iterator[StateWrite]:
    for group in write.groups:
        if isinstance(group, StateWrite):
            yield group
        elif isinstance(group, ReassignmentWrite):
            yield from group.states


def _leader_chosen(before: PartitionState | None, after: PartitionState, why: str) -> m.LeaderChosen:
    return m.LeaderChosen(
        leader_before=NO_LEADER if before is None else before.leader,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr_before=() if before is None else _ids(before),
        isr=_ids(after),
        why=why,
    )


def _isr_chosen(before: PartitionState, after: PartitionState, why: str) -> m.IsrChosen:
    return m.IsrChosen(isr_before=_ids(before), isr=_ids(after), why=why)


def _ids(state: PartitionState) -> tuple[int, ...]:
    return tuple(sorted(member.broker_id for member in state.isr))


def record_step(recorder: Recorder, number: int, each: Round, seconds: float) -> None:
    """Records that a step of a failover is over; the steps of other elections are not told."""
    if each.cause in FAILOVER:
        took_us = round(seconds * 1_000_000)
        recorder.record(None, m.FailoverStep(step=number, took_us=took_us, partitions=each.elections))


def record_suspicions(recorder: Recorder, before: Set[BrokerId], after: Set[BrokerId]) -> None:
    """Records which brokers have become suspects, and which are suspects no longer. The last event is the cause of what
    follows."""
    for broker_id in sorted(after - before):
        CAUSE.set(recorder.record(broker_id, m.BrokerSuspected(broker_id=broker_id)))
    for broker_id in sorted(before - after):
        CAUSE.set(recorder.record(broker_id, m.BrokerCleared(broker_id=broker_id)))
