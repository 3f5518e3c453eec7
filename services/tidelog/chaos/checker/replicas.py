"""X2: after healing all replicas of a partition hold the same bytes up to the high watermark, and every offset below it.

Someone else reads the replicas' files; this is what it hands in, and what is made of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.verdict import Example


class Stretch(NamedTuple):
    """A record batch, or any other piece of a log that all replicas cut at the same offsets."""

    first: int
    end: int
    """Exclusive."""
    digest: str
    """Of its bytes as they are in the segment."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    broker: int
    log_start: int
    log_end: int
    stretches: tuple[Stretch, ...]
    """In the order of their offsets, from the log start to the log end."""


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    topic: str
    partition: int
    high_watermark: int
    """The leader's; what is above it need not be equal."""
    replicas: tuple[ReplicaLog, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "high_watermark": self.high_watermark,
            "replicas": [
                {"broker": r.broker, "log_start": r.log_start, "log_end": r.log_end, "stretches": r.stretches}
                for r in self.replicas
            ],
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "PartitionReplicas":
        """KeyError, TypeError: it is none."""
        replicas = tuple(
            ReplicaLog(r["broker"], r["log_start"], r["log_end"], tuple(Stretch(*each) for each in r["stretches"]))
            for r in found["replicas"]
        )
        return cls(found["topic"], found["partition"], found["high_watermark"], replicas)


def check_replicas(
    partitions: Iterable[PartitionReplicas], found: Findings, t: float, *, records_expire: bool = False
) -> None:
    """Each replica holds every offset once and in order, from its log start to the high watermark. They are equal up to there,
    from the lowest log start on, or the highest where records may expire; a stretch that reaches over an edge of that is not
    compared.

    `t` is when the replicas were read.
    """
    found.judged("replicas-differ", "replica-torn")
    lowest = max if records_expire else min
    for each in partitions:
        low = lowest((replica.log_start for replica in each.replicas), default=0)
        held = [_between(replica, low, each.high_watermark) for replica in each.replicas]
        for replica, its in zip(each.replicas[1:], held[1:], strict=True):
            if its != held[0]:
                found.add("replicas-differ", _told, each, (each.replicas[0].broker, held[0]), (replica.broker, its), t)
        for replica in each.replicas:
            if (torn := _torn(replica, each.high_watermark)) is not None:
                found.add("replica-torn", _told_torn, each, replica, *torn, t)


def _between(replica: ReplicaLog, low: int, high: int) -> list[Stretch]:
    return [each for each in replica.stretches if each.first >= low and each.end <= high]


def _torn(replica: ReplicaLog, high: int) -> tuple[int, Stretch | None] | None:
    """(offset, the stretch there instead) of the first offset that does not come next."""
    expected = replica.log_start
    for stretch in replica.stretches:
        if expected >= high:
            return None
        if stretch.first != expected:
            return expected, stretch
        expected = stretch.end
    return None if expected >= high else (expected, None)


def _told(
    partition: PartitionReplicas, one: tuple[int, list[Stretch]], other: tuple[int, list[Stretch]], t: float
) -> Example:
    (broker, held), (other_broker, other_held) = one, other
    mine, its = next((a, b) for a, b in zip_longest(held, other_held) if a != b)
    at = min(each.first for each in (mine, its) if each is not None)
    texts = [_told_stretch(broker, mine), _told_stretch(other_broker, its)]
    text = f"from offset {at} on replicas differ: {' and '.join(texts)}"
    return _example(partition, text, t)


def _told_stretch(broker: int, stretch: Stretch | None) -> str:
    if stretch is None:
        return f"broker {broker} has nothing there"
    return f"broker {broker} has {stretch.digest} from {stretch.first} up to {stretch.end}"


def _told_torn(
    partition: PartitionReplicas, replica: ReplicaLog, offset: int, instead: Stretch | None, t: float
) -> Example:
    there = (
        "and nothing after it" if instead is None else f"but {instead.digest} from {instead.first} up to {instead.end}"
    )
    return _example(partition, f"broker {replica.broker} does not have offset {offset} in its place, {there}", t)


def _example(partition: PartitionReplicas, text: str, t: float) -> Example:
    tp = f"{partition.topic}-{partition.partition}"
    told = f"{tp}: {text}; the high watermark is {partition.high_watermark}"
    return Example(told, t, partition.topic, partition.partition)
