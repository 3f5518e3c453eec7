"""X4: what a leader says of its high watermark never falls, is never below what a consumer has read, and never behind its log.

Within one leader epoch a later report is not below an earlier one. Of any leader that has finished taking over, no report is
below what had been read before its epoch was heard of. That it has finished is known when it acknowledges an acks=all record,
which the high watermark has passed then; and in the final phase, when everything is healed. What is read later may come from
the leader after it, of which one that is cut off knows nothing; only in the final phase the newest one must have all of it.
"""

from array import array
from bisect import bisect_right

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.tables import ACKED, FROM_ALL, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.history import Polled, Sent, Watermark
from tidelog.ids import NO_EPOCH


class Highest:
    """A highest value, as it was at any time."""

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("q")

    def saw(self, t: float, value: int) -> None:
        if not self._values or value > self._values[-1]:
            self._times.append(t)
            self._values.append(value)

    def at(self, t: float) -> int:
        """The highest that was seen at or before `t`; 0 if none was."""
        seen = bisect_right(self._times, t)
        return self._values[seen - 1] if seen else 0


class Watermarks:
    """Fed in the order of the history, after the tables."""

    def __init__(self, tables: Tables, found: Findings) -> None:
        self._tables = tables
        self._found = found
        self._read = Highest()
        """The end of what was polled."""
        self._reported: dict[int, Highest] = {}
        """Leader epoch to the high watermarks that its leader told."""
        self._heard_of: dict[int, float] = {}
        """Leader epoch to when it was heard of first."""
        self._newest = NO_EPOCH
        self._serving_since: dict[int, float] = {}
        self._healed_at: float | None = None

    def polled(self, record: Polled) -> None:
        self._read.saw(record.t, record.partitions[0].records[-1][0] + 1)

    def sent(self, record: Sent, v: int) -> None:
        tables = self._tables
        epoch = record.leader_epoch
        if epoch is None or epoch == NO_EPOCH or tables.outcome[v] != ACKED:
            return
        self._hear(epoch, record.t)
        if tables.acks[v] == FROM_ALL:
            self._serving_since.setdefault(epoch, record.t)

    def healed(self, t: float) -> None:
        self._healed_at = t

    def watermark(self, record: Watermark) -> None:
        self._found.judged("watermark-fell", "watermark-ahead")
        if record.log_end is not None and record.high_watermark > record.log_end:
            self._add("watermark-ahead", record, f"its log ends at {record.log_end}")
        asked = record.t if record.began is None else record.began
        in_epoch = self._reported.setdefault(record.leader_epoch, Highest())
        before = in_epoch.at(asked)
        if record.high_watermark < before:
            self._add("watermark-fell", record, f"in the same epoch it was {before} before")
        self._hear(record.leader_epoch, record.t)
        if (until := self._bound(record.leader_epoch, asked)) is not None:
            read = self._read.at(until)
            if record.high_watermark < read:
                self._add("watermark-fell", record, f"a consumer had read up to offset {read - 1} before")
        in_epoch.saw(record.t, record.high_watermark)

    def _hear(self, epoch: int, t: float) -> None:
        self._heard_of.setdefault(epoch, t)
        self._newest = max(epoch, self._newest)

    def _bound(self, epoch: int, asked: float) -> float | None:
        """Up to when reads count against a leader that was asked at `asked`; None: it may still be taking over."""
        if self._healed_at is not None and self._healed_at <= asked and epoch == self._newest:
            return asked
        since = self._serving_since.get(epoch)
        return None if since is None or since > asked else self._heard_of[epoch]

    def _add(self, rule: str, record: Watermark, why: str) -> None:
        text = (
            f"{self._tables.tp}: broker {record.broker}, leader of epoch {record.leader_epoch}, says at "
            f"{record.t:.3f} s that its high watermark is {record.high_watermark}; {why}"
        )
        self._found.add(rule, Example, text, record.t, *self._tables.tp)
