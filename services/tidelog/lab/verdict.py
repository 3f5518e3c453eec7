"""The verdict of a lab: counts of records, and the judgement of the checker that chaos runs use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.promise import Loss, Promise
from tidelog.chaos.history import OK, Phase, Polled, Record, Send, Sent
from tidelog.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts are None where they are not known."""

    acknowledged: int
    """Records."""
    lost: int | None
    """Acknowledged records that are not in the log."""
    duplicated: int | None
    """Records that are in the log more than once: further copies."""
    reordered: int | None
    """Records that are behind one of the same producer that was sent later."""
    unread: tuple[TopicPartition, ...] = ()
    """Partitions that could not be read, which nothing here counts."""
    anomalies: Mapping[str, int] = field(default_factory=dict)
    """Findings of the checker that the promise does not allow, by rule; docs/guide/chaos.md has the rules."""
    violation: str = ""
    """The first invariant of the simulator that did not hold."""

    @property
    def sound(self) -> bool:
        """True as long as every promise and every invariant holds."""
        return not self.anomalies and not self.violation

    def __str__(self) -> str:
        judged = {"lost": self.lost, "duplicated": self.duplicated, "reordered": self.reordered}
        known = (f"{count} {word}" for word, count in judged.items() if count is not None)
        counts = ", ".join([f"{self.acknowledged} acknowledged", *known])
        unread = f"; not readable: {', '.join(map(str, self.unread))}" if self.unread else ""
        found = "".join(f"; {name}: {count}" for name, count in self.anomalies.items())
        return counts + unread + found + (f"; violated: {self.violation}" if self.violation else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "acknowledged": self.acknowledged,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "unread": [str(tp) for tp in self.unread],
            "anomalies": dict(self.anomalies),
            "violation": self.violation,
            "sound": self.sound,
        }


class Counts(NamedTuple):
    """Counts of this moment, None where they are not known."""

    acknowledged: int
    waiting: int | None
    """Records without an answer."""
    lost: int | None
    duplicated: int | None
    reordered: int | None
    repeated: int
    """Records that a group has processed once more."""
    longest_wait: float | None
    """The longest time, in seconds, in which records waited and none was acknowledged."""


def judge(
    history: Sequence[Record],
    final: Sequence[Record],
    unread: Sequence[TopicPartition],
    *,
    lost: Loss,
    began: float,
    now: float,
) -> Verdict:
    """`final`: what two readers found in every partition but those of `unread`. `lost`: which losses were promised."""
    # Without a whole final read the checker judges what clients saw, and no loss.
    ended = [] if unread else [Phase(began, "final"), *final, Phase(now, "end")]
    found = check([*history, *sorted(ended, key=lambda each: each.t)], Promise(lost, idempotent=True))
    values = _final_values(final)
    sends = {each.id: each for each in history if isinstance(each, Send)}
    acked = [sends[each.id] for each in history if isinstance(each, Sent) and each.outcome == OK]
    kept = [each for each in acked if each.acks != "0" and TopicPartition(each.topic, each.partition) not in unread]
    order = {each.value: each.id for each in sends.values()}
    return Verdict(
        acknowledged=len(kept),
        lost=sum(each.value not in values.get(TopicPartition(each.topic, each.partition), ()) for each in kept),
        duplicated=sum(len(found) - len(set(found)) for found in values.values()),
        reordered=sum(_reordered(found, order) for found in values.values()),
        unread=tuple(unread),
        anomalies={name: each.count for name, each in found.anomalies.items() if each.bad},
    )


def _final_values(final: Sequence[Record]) -> dict[TopicPartition, list[str]]:
    """Values of each partition in their order, as the reader saw them that came first."""
    readers: dict[TopicPartition, str] = {}
    values: dict[TopicPartition, list[str]] = {}
    for each in final:
        if not isinstance(each, Polled):
            continue
        for topic, partition, records in each.partitions:
            tp = TopicPartition(topic, partition)
            if readers.setdefault(tp, each.process) == each.process:
                values.setdefault(tp, []).extend(value for _, value in records)
    return values


def _reordered(values: Sequence[str], order: Mapping[str, int]) -> int:
    """Counts records behind a later one of the same producer, whose name is the value without the number."""
    last: dict[str, int] = {}
    count = 0
    for value in values:
        producer, number = value.rpartition("-")[0], order.get(value, 0)
        count += number < last.get(producer, 0)
        last[producer] = max(number, last.get(producer, 0))
    return count
