"""`check`: a history, a promise and what the replicas hold, to a verdict. One pass over the history, then the rules."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidelog.chaos.checker import contents, sessions
from tidelog.chaos.checker.availability import Waits, check_available
from tidelog.chaos.checker.cycles import check_cycles
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.groups import Groups
from tidelog.chaos.checker.kept import check_contents
from tidelog.chaos.checker.names import RULES, tolerated
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, check_replicas
from tidelog.chaos.checker.tables import ACKED, REFUSED, Tables
from tidelog.chaos.checker.verdict import Gap, Verdict
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
    Watermark,
)

FINAL_READERS_MIN: Final = 2


class Checker:
    """Takes the records of one history in their order."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.found = Findings()
        self.tables = Tables(records_expire=promise.records_expire)
        self.polls = sessions.Polls(self.tables)
        self.watermarks = Watermarks(self.tables, self.found)
        self.groups = Groups(self.tables, promise, self.found)
        self.waits = Waits(self.tables)
        self.ended = False
        self.last_t = 0.0

    def take(self, records: Iterable[Record]) -> None:
        """Nonsense."""
        handlers: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Sent: self._sent,
            Polled: self._polled,
            Ownership: self._ownership,
            Committed: self.groups.committed,
            Processed: self.groups.processed,
            Crash: self._crash,
            FaultStep: self.waits.fault,
            Watermark: self._watermark,
            Phase: self._phase,
        }
        for record in records:
            handlers[type(record)](record)
            self.last_t = record.t

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

    def _ownership(self, record: Ownership) -> None:
        if record.final:
            self.tables.final_reader(record.process)
        self.polls.ownership(record)
        self.groups.ownership(record)

    def _crash(self, record: Crash) -> None:
        for v in self.tables.crash(record):
            self.waits.gone(v)

    def _watermark(self, record: Watermark) -> None:
        self.watermarks.watermark(record, self.tables.watermark(record))

    def _phase(self, record: Phase) -> None:
        self.tables.phase(record)
        if record.phase == "final":
            self.watermarks.healed(record.t)
            self.waits.stopped(record.t)
        elif record.phase == "end":
            self.ended = True

    def verdict(self, replicas: Sequence[PartitionReplicas] | None) -> Verdict:
        tables, found = self.tables, self.found
        order = VersionOrder(tables)
        contents.check_offsets(tables, order, found, idempotent=self.promise.idempotent)
        contents.check_reads(tables, found)
        contents.check_lost_writes(tables, order, found)
        self.polls.check(order, found)
        sessions.check_sends(tables, order, found, idempotent=self.promise.idempotent)
        sessions.check_precommitted(tables, found)
        check_cycles(tables, order, found)
        present = self._check_end(order)
        self.groups.check(order, present, ended=self.ended)
        if replicas is None:
            found.notes.append("replicas were not compared (X2)")
        else:
            check_replicas(replicas, found, self.last_t, records_expire=self.promise.records_expire)
        gaps = self.waits.gaps()
        acked = sum(1 for outcome in tables.outcome if outcome == ACKED)
        promises = [*check_contents(acked, self.promise, found), *check_available(gaps, self.promise, found)]
        anomalies = found.anomalies(RULES, lambda name: tolerated(name, self.promise))
        return Verdict(anomalies, gaps, tuple(promises), self._stats(gaps), self.ended, tuple(found.notes))

    def _check_end(self, order: VersionOrder) -> bytearray:
        """By value, whether it is in the log at last."""
        tables, found = self.tables, self.found
        if not self.ended:
            found.notes.append(
                f"the history does not reach to the end of the run, but to {self.last_t:.3f} s: it is checked up to there, "
                "and what only the final read can show is not judged (X1, X3, unseen)"
            )
            return bytearray(rank >= 0 for rank in order.first)
        readers = tables.final.keys() - tables.crashed
        if len(readers) < FINAL_READERS_MIN:
            found.notes.append(
                f"X1 wants {FINAL_READERS_MIN} readers of the final phase that are not thrown away; there is {len(readers)}"
            )
        contents.check_unseen(tables, order, found)
        if not tables.final and tables.values:
            found.notes.append("there was no final read: what is in the log at last is not judged (X1)")
            return bytearray(rank >= 0 for rank in order.first)
        present = contents.in_the_end(tables)
        contents.check_final(tables, order, present, found)
        return present

    def _stats(self, gaps: tuple[Gap, ...]) -> dict[str, Any]:
        tables = self.tables
        outcomes = Counter(tables.outcome)
        sends = sum(1 for send_id in tables.send_id if send_id >= 0)
        return {
            "seconds": round(self.last_t, 6),
            "sends": sends,
            "ok": outcomes[ACKED],
            "fail": outcomes[REFUSED],
            "info": sends - outcomes[ACKED] - outcomes[REFUSED],
            "polls": len(tables.poll_id),
            "records_read": tables.records_read,
            "final_readers": len(tables.final.keys() - tables.crashed),
            "partitions": len(tables.keys),
            "worst_lag_s": round(tables.worst_lag_s, 6),
            "longest_gap_s": round(max((gap.seconds for gap in gaps), default=0.0), 6),
            "unseen_over_time": [[round(t, 3), count] for t, count in tables.unseen_over_time],
        }


def check(
    records: Iterable[Record], promise: Promise | None = None, replicas: Sequence[PartitionReplicas] | None = None
) -> Verdict:
    """`replicas` None: nobody has read them. Nonsense: the history is impossible."""
    checker = Checker(Promise() if promise is None else promise)
    checker.take(records)
    return checker.verdict(replicas)
