"""The verdict on one partition: a pass over its records, then the rules."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.chaos.checker import contents, sessions
from tidelog.chaos.checker.availability import Waits
from tidelog.chaos.checker.cycles import check_cycles
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.groups import Groups
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.tables import ACKED, REFUSED, Tables
from tidelog.chaos.checker.verdict import Gap
from tidelog.chaos.checker.version_order import VersionOrder
from tidelog.chaos.checker.watermarks import Watermarks
from tidelog.chaos.history import (
    Committed,
    Crash,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Processed,
    Record,
    Send,
    Sent,
    Stored,
    Watermark,
)
from tidelog.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Part:
    """All that a verdict needs of one partition."""

    tp: TopicPartition
    found: Findings
    gaps: tuple[Gap, ...]
    sends: int
    acked: int
    refused: int
    records_read: int
    values: int
    """Sent or read."""
    worst_lag_s: float
    unseen: Mapping[int, int]
    """Second of the run to the growth in it of the number of acknowledged values that are not read yet."""
    final_readers: frozenset[str]
    """Also those that found nothing here."""
    crashed: frozenset[str]


class PartitionChecker:
    """Takes what a `Router` gives of one partition and of all of them, in that order."""

    def __init__(self, tp: TopicPartition, promise: Promise) -> None:
        self.promise = promise
        self.found = Findings()
        self.tables = Tables(tp, records_expire=promise.records_expire)
        self.polls = sessions.Polls(self.tables)
        self.watermarks = Watermarks(self.tables, self.found)
        self.groups = Groups(self.tables, promise, self.found)
        self.waits = Waits(self.tables)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Sent: self._sent,
            Polled: self._polled,
            Ownership: self._ownership,
            Committed: self.groups.committed,
            Stored: self.groups.stored,
            Processed: self.groups.processed,
            Crash: self._crash,
            FaultStep: self.waits.fault,
            Watermark: self._watermark,
            Phase: self._phase,
        }

    def take(self, record: Record) -> None:
        """Nonsense."""
        self._handlers[type(record)](record)

    def take_all(self, records: Iterable[Record]) -> None:
        """Nonsense."""
        for record in records:
            self._handlers[type(record)](record)

    def _send(self, record: Send) -> None:
        self.waits.send(self.tables.send(record), record.t)

    def _sent(self, record: Sent) -> None:
        v = self.tables.sent(record)
        self.waits.sent(v, record.t)
        self.watermarks.sent(record, v)

    def _polled(self, record: Polled) -> None:
        self.polls.polled(record, len(self.tables.poll_id))
        self.tables.polled(record)
        self.watermarks.polled(record)
        self.groups.polled(record)

    def _ownership(self, record: Ownership) -> None:
        if record.final:
            self.tables.final_reader(record.process)
        self.polls.ownership(record)
        self.groups.ownership(record)

    def _crash(self, record: Crash) -> None:
        for v in self.tables.crash(record):
            self.waits.gone(v)

    def _watermark(self, record: Watermark) -> None:
        self.tables.watermark(record)
        self.watermarks.watermark(record)

    def _phase(self, record: Phase) -> None:
        self.tables.phase(record)
        if record.phase == "final":
            self.watermarks.healed(record.t)
            self.waits.stopped(record.t)

    def part(self, *, ended: bool) -> Part:
        """When all was taken; `ended`: the history reaches to the end of the run."""
        tables, found = self.tables, self.found
        order = VersionOrder(tables)
        contents.check_offsets(tables, order, found, idempotent=self.promise.idempotent)
        contents.check_places(tables, order, found)
        contents.check_reads(tables, found)
        contents.check_lost_writes(tables, order, found)
        self.polls.check(order, found)
        sessions.check_sends(tables, order, found, idempotent=self.promise.idempotent)
        sessions.check_precommitted(tables, found)
        check_cycles(tables, order, found)
        present = self._check_end(order) if ended else _placed(order)
        self.polls.check_alone(order, present, found, ended=ended)
        self.groups.check(order, present, ended=ended)
        outcomes = Counter(tables.outcome)
        return Part(
            tables.tp,
            found,
            self.waits.gaps(),
            sum(1 for send_id in tables.send_id if send_id >= 0),
            outcomes[ACKED],
            outcomes[REFUSED],
            tables.records_read,
            len(tables.values),
            tables.worst_lag_s,
            tables.unseen,
            frozenset(tables.final),
            frozenset(tables.crashed),
        )

    def _check_end(self, order: VersionOrder) -> bytearray:
        """Values that are in the log at last."""
        contents.check_unseen(self.tables, order, self.found)
        if not self.tables.final:
            return _placed(order)
        present = contents.in_the_end(self.tables)
        contents.check_final(self.tables, order, present, self.found)
        contents.check_batches(self.tables, order, present, self.found)
        return present


def _placed(order: VersionOrder) -> bytearray:
    """Values that have a place in the log, as far as it was seen."""
    return bytearray(rank >= 0 for rank in order.first)
