"""The steps of a cluster in words: new leaders, ISRs that shrink and are full again. Pure: looks in, lines out."""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.chaos.samples import Partitions, PartitionState, Sample
from tidelog.cluster.api import broker_name
from tidelog.ids import NO_LEADER, TopicPartition

NAMED: Final = 3
"""Partitions that a line names; it counts the others."""


class Changes:
    """Fed with the looks of a run in the order of their answers."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, PartitionState] = {}

    def looked(self, sample: Sample) -> Iterator[str]:
        """A line for each kind of change since the look before."""
        if not isinstance(sample, Partitions):
            return
        before = dict(self._known)
        self._known.update({TopicPartition(each.topic, each.partition): each for each in sample.partitions})
        pairs = [(old, self._known[tp]) for tp, old in before.items()]
        if gone := [new for old, new in pairs if new.leader == NO_LEADER != old.leader]:
            yield f"no leader: {_listed([_place(each) for each in gone])}"
        if led := [new for old, new in pairs if new.leader not in (NO_LEADER, old.leader)]:
            yield f"new leader: {_listed([_with_leader(each) for each in led])}"
        shrunk = [(old, new) for old, new in pairs if set(old.isr) - set(new.isr)]
        if shrunk:
            left = sorted({broker for old, new in shrunk for broker in set(old.isr) - set(new.isr)})
            places = _listed([_place(new) for _, new in shrunk])
            yield f"ISR without {', '.join(map(broker_name, left))}: {places}"
        full = [new for old, new in pairs if not _is_full(old) and _is_full(new)]
        if full:
            yield f"ISR full again: {_listed([_place(each) for each in full])}"


def _is_full(state: PartitionState) -> bool:
    return set(state.isr) == set(state.replicas)


def _place(state: PartitionState) -> str:
    return f"{state.topic}-{state.partition}"


def _with_leader(state: PartitionState) -> str:
    return f"{_place(state)} {broker_name(state.leader)} in epoch {state.leader_epoch}"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {more} more" if more > 0 else "")
