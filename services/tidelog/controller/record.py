"""Records protocol events of what a controller decides and notices."""

from collections.abc import Iterator, Set
from typing import Final

from tidelog.controller.effects import ReassignmentWrite, StateWrite, Write
from tidelog.controller.model import ClusterState, PartitionState
from tidelog.controller.rounds import Round
from tidelog.ids import NO_LEADER, BrokerId, TopicPartition
from tidelog.ports.recorder import CAUSE, SILENT, Recorder
from tidelog.wire import messages as m

FAILOVER: Final = ("suspected", "broker_down")
"""Causes of elections that are part of a failover."""


def record_choices(recorder: Recorder, write: Write, state: ClusterState) -> None:
    """Records the leaders and ISRs that `write` chooses; `state` is the one before it.

    A single choice is the cause of what follows. Several are written together, so what led to them stays the cause.
    """
    if recorder is SILENT:
        return  # thousands of choices follow the death of a broker
    found = list(_choices(write, state))
    causes = [recorder.record(tp, fields) for tp, fields in found]
    if len(causes) == 1:
        CAUSE.set(causes[0])


def _choices(write: Write, state: ClusterState) -> Iterator[tuple[TopicPartition, m.LeaderChosen | m.IsrChosen]]:
    for group in write.groups:
        match group:
            case StateWrite():
                writes: tuple[StateWrite, ...] = (group,)
            case ReassignmentWrite(_, states):
                writes = states
            case _:
                continue
        for each in writes:
            partition = state.partition(each.tp)
            before = None if partition is None else partition.state
            isr_before, isr = () if before is None else _ids(before), _ids(each.state)
            if before is None or before.leader_epoch != each.state.leader_epoch:
                yield (
                    each.tp,
                    m.LeaderChosen(
                        leader_before=NO_LEADER if before is None else before.leader,
                        leader=each.state.leader,
                        leader_epoch=each.state.leader_epoch,
                        isr_before=isr_before,
                        isr=isr,
                        why=write.cause,
                    ),
                )
            elif isr != isr_before:
                yield each.tp, m.IsrChosen(isr_before=isr_before, isr=isr, why=write.cause)


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
