"""The figures of a run that a person asks for first, from the files that it has left."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tidelog.chaos import samples as s
from tidelog.chaos.checker.intervals import Intervals
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.checking import HISTORY
from tidelog.chaos.faults.registry import last_step
from tidelog.chaos.history import (
    ASSIGNED,
    FAIL,
    OK,
    FaultStep,
    HistoryReader,
    Ownership,
    Polled,
    Processed,
    Record,
    Send,
    Sent,
)
from tidelog.cluster.api import BROKER, CONTROLLER, ZOOKEEPER, kind_of
from tidelog.ids import NO_LEADER, TopicPartition

SERVERS: Final = (BROKER, CONTROLLER, ZOOKEEPER)
LOST: Final = ("lost-acked", "lost-write", "unseen")
"""One lost record may show in each of these."""
WRONG: Final = {
    "duplicated": "duplicate",
    "out of order": "nonmonotonic-send",
    "read and never sent": "never-sent",
    "refused and read": "G1a",
}
"""The rule by the words for it."""


@dataclass(slots=True)
class Takeover:
    """The owners when an agent was killed, and those since the other agents own everything."""

    victim: str
    before: Mapping[str, frozenset[TopicPartition]]
    after: Mapping[str, frozenset[TopicPartition]]
    seconds: float
    """From the kill until then."""


@dataclass(slots=True)
class Summary:
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    """Records, by reader of the final phase."""
    processed: Counter[str] = field(default_factory=Counter)
    """Records, by member of the group, once for each time."""
    takeover: Takeover | None = None
    elections: int = 0
    whole_s: float | None = None
    """From `over_at` until every ISR was full."""
    over_at: float | None = None
    """The end of the last fault of a server."""
    seconds: float = 0.0
    """From the first send to the last answer."""
    _done: dict[TopicPartition, Intervals] = field(default_factory=dict)
    _owned: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    _killed: tuple[str, float, dict[str, frozenset[TopicPartition]]] | None = None
    _first_send: float | None = None

    @classmethod
    def of(cls, directory: Path) -> Self:
        """HistoryDamaged, OSError."""
        found = cls()
        for record in HistoryReader(directory / HISTORY):
            found.take(record)
        found.look(s.read_samples(directory / s.FILE_NAME))
        return found

    @property
    def refused(self) -> int:
        return self.outcomes[FAIL]

    @property
    def unknown(self) -> int:
        return self.sent - self.outcomes[OK] - self.refused

    @property
    def again(self) -> int:
        """Records that the group has processed more than once: at least once is the promise."""
        return sum(self.processed.values()) - sum(done.size for done in self._done.values())

    def rows(self, verdict: Verdict) -> Iterator[tuple[str, str]]:
        """A figure by its name."""
        count = {name: anomaly.count for name, anomaly in verdict.anomalies.items()}
        yield "sent", f"{self.sent:,}"
        yield "acknowledged", f"{self.outcomes[OK]:,}"
        yield "refused", f"{self.refused:,}"
        if self.unknown:
            yield "unknown outcome", f"{self.unknown:,}"
        for reader, number in self.read.items():
            yield f"read by {reader}", f"{number:,}"
        yield "lost", f"{max(count.get(name, 0) for name in LOST):,}"
        for words, name in WRONG.items():
            if count.get(name) or name in ("duplicate", "nonmonotonic-send"):
                yield words, f"{count.get(name, 0):,}"
        yield "elections", f"{self.elections:,}"
        longest = max((gap.seconds for gap in verdict.gaps), default=0.0)
        yield "longest time without an acknowledgement", f"{longest:.2f} s"
        if self.whole_s is not None:
            yield "last fault over until every ISR was full", f"{self.whole_s:.1f} s"
        if self.seconds:
            yield "acknowledged per second", f"{self.outcomes[OK] / self.seconds:,.0f}"

    def take(self, record: Record) -> None:
        match record:
            case Send():
                self.sent += 1
                self._first_send = record.t if self._first_send is None else self._first_send
            case Sent():
                self.outcomes[record.outcome] += 1
                self.seconds = record.t - (self._first_send or 0.0)
            case Polled(final=True):
                self.read[record.process] += sum(len(read.records) for read in record.partitions)
            case Processed():
                self._process(record)
            case Ownership(group=str()):
                self._own(record)
            case FaultStep():
                self._fault(record)
            case _:
                pass

    def _fault(self, record: FaultStep) -> None:
        victim = next((name for name in record.target if name in self._owned), None)
        if record.what == "effect" and self._killed is None and victim is not None:
            self._killed = victim, record.t, dict(self._owned)
        if record.what == last_step(record.fault) and any(kind_of(name) in SERVERS for name in record.target):
            self.over_at = record.t

    def _process(self, record: Processed) -> None:
        for topic, partition, first, last in record.partitions:
            self.processed[record.process] += last - first + 1
            self._done.setdefault(TopicPartition(topic, partition), Intervals()).add(first, last + 1)

    def _own(self, record: Ownership) -> None:
        before = self._owned.get(record.process, frozenset())
        named = frozenset(record.partitions)
        self._owned[record.process] = named if record.kind == ASSIGNED else before - named
        if self._killed is not None and self.takeover is None:
            victim, killed_at, owned = self._killed
            owned = dict(sorted(owned.items()))
            everything = frozenset().union(*owned.values())
            others = [found for name, found in self._owned.items() if name != victim]
            if frozenset().union(*others) == everything:
                after = {**self._owned, victim: self._owned[victim] - frozenset().union(*others)}
                self.takeover = Takeover(victim, owned, after, record.t - killed_at)

    def look(self, samples: s.Samples) -> None:
        first: dict[TopicPartition, int] = {}
        newest: dict[TopicPartition, int] = {}
        for look in samples.of(s.Partitions):
            for each in look.partitions:
                tp = TopicPartition(each.topic, each.partition)
                first.setdefault(tp, each.leader_epoch)
                newest[tp] = each.leader_epoch
            if self.whole_s is None and self.over_at is not None and look.t >= self.over_at and _whole(look):
                self.whole_s = look.t - self.over_at
        self.elections = sum(newest.values()) - sum(first.values())


def _whole(look: s.Partitions) -> bool:
    states: Sequence[s.PartitionState] = look.partitions
    return bool(states) and all(p.leader != NO_LEADER and set(p.isr) == set(p.replicas) for p in states)
