"""Histories by hand: each step takes a hundredth of a second, unless a test says when."""

from collections.abc import Sequence

from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.history import (
    Committed,
    Crash,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Position,
    Processed,
    Read,
    Record,
    Send,
    Sent,
    Span,
    Stored,
    Watermark,
)
from tidelog.ids import TopicPartition

TOPIC = "chaos"
STEP_S = 0.01
Rows = Sequence[tuple[int, str]]


class Story:
    """Partition 0 and one process each, unless said otherwise."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._now = 0.0
        self._ids = 0

    def at(self, t: float) -> "Story":
        """The next record is of `t`."""
        self._now = t - STEP_S
        return self

    def _tick(self) -> float:
        self._now = round(self._now + STEP_S, 6)
        return self._now

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def attempt(
        self, value: str, process: str = "p", partition: int = 0, acks: str = "all", op: int | None = None
    ) -> int:
        number = self._id()
        self.records.append(Send(self._tick(), number, process, TOPIC, partition, value, acks, op))
        return number

    def answer(
        self,
        number: int,
        offset: int | None = None,
        outcome: str = "ok",
        epoch: int | None = None,
        isr: int | None = None,
        batch: int | None = None,
        attempts: int | None = None,
    ) -> "Story":
        record = Sent(self._tick(), number, outcome, offset, epoch, isr, batch=batch, attempts=attempts)
        self.records.append(record)
        return self

    def sent(
        self,
        value: str,
        offset: int | None = None,
        outcome: str = "ok",
        *,
        process: str = "p",
        partition: int = 0,
        acks: str = "all",
        op: int | None = None,
        epoch: int | None = None,
        isr: int | None = None,
        batch: int | None = None,
        attempts: int | None = None,
    ) -> "Story":
        """A send with its completion."""
        number = self.attempt(value, process, partition, acks, op)
        return self.answer(number, offset, outcome, epoch, isr, batch, attempts)

    def log(self, *values: str, process: str = "p", partition: int = 0) -> "Story":
        """One send after the other, acknowledged at offsets from 0."""
        for offset, value in enumerate(values):
            self.sent(value, offset, process=process, partition=partition)
        return self

    def poll(
        self,
        *rows: tuple[int, str],
        process: str = "c",
        partition: int = 0,
        group: str | None = None,
        final: bool = False,
        op: int | None = None,
        began: float | None = None,
    ) -> "Story":
        return self.poll_of({partition: rows}, process, group, final=final, op=op, began=began)

    def poll_of(
        self,
        rows: dict[int, Rows],
        process: str = "c",
        group: str | None = None,
        *,
        final: bool = False,
        op: int | None = None,
        began: float | None = None,
    ) -> "Story":
        """One poll of several partitions."""
        t = self._tick()
        reads = tuple(Read(TOPIC, partition, tuple(its)) for partition, its in rows.items())
        self.records.append(
            Polled(t, process, self._id(), t - STEP_S / 2 if began is None else began, reads, group, final, op)
        )
        return self

    def owns(
        self,
        *partitions: int,
        process: str = "c",
        kind: str = "assigned",
        group: str | None = None,
        term: tuple[int, int] | None = None,
        final: bool = False,
    ) -> "Story":
        tps = tuple(TopicPartition(TOPIC, partition) for partition in partitions)
        epoch, generation = (None, None) if term is None else term
        self.records.append(Ownership(self._tick(), kind, process, tps, group, generation, epoch, final))
        return self

    def processed(self, first: int, last: int, process: str = "c", partition: int = 0) -> "Story":
        self.records.append(Processed(self._tick(), process, "g", (Span(TOPIC, partition, first, last),)))
        return self

    def committed(
        self, offset: int, process: str = "c", term: tuple[int, int] = (1, 1), outcome: str = "ok", partition: int = 0
    ) -> "Story":
        position = Position(TOPIC, partition, offset)
        self.records.append(Committed(self._tick(), process, "g", term[1], term[0], (position,), outcome))
        return self

    def stored(self, offset: int, partition: int = 0) -> "Story":
        self.records.append(Stored(self._tick(), "g", (Position(TOPIC, partition, offset),)))
        return self

    def watermark(
        self,
        high_watermark: int,
        epoch: int = 1,
        *,
        broker: int = 1,
        log_start: int | None = None,
        log_end: int | None = None,
        began: float | None = None,
        isr: int | None = None,
    ) -> "Story":
        record = Watermark(self._tick(), TOPIC, 0, broker, epoch, high_watermark, log_end, log_start, began, isr)
        self.records.append(record)
        return self

    def crash(self, process: str) -> "Story":
        self.records.append(Crash(self._tick(), process))
        return self

    def fault(self, what: str, name: str = "kill leader of 0", number: int = 1) -> "Story":
        self.records.append(FaultStep(self._tick(), "kill", what, ("broker-1",), name, number))
        return self

    def phase(self, name: str) -> "Story":
        self.records.append(Phase(self._tick(), name))
        return self

    def end(self, *logs: Rows, readers: int = 2) -> "Story":
        """The final phase: readers that see the same, a log for each partition from 0 on."""
        self.phase("final")
        for reader in range(1, readers + 1):
            for partition, rows in enumerate(logs):
                if rows:
                    self.poll(*rows, process=f"final-{reader}", partition=partition, final=True)
        return self.phase("end")

    def check(self, promise: Promise | None = None, replicas: Sequence[PartitionReplicas] | None = ()) -> Verdict:
        return check(self.records, promise, replicas)


def rows(*values: str) -> list[tuple[int, str]]:
    """The values at offsets from 0."""
    return list(enumerate(values))


def found(verdict: Verdict) -> dict[str, int]:
    """What there is of anomalies, tolerated or not."""
    return {name: anomaly.count for name, anomaly in verdict.anomalies.items() if anomaly.count}
