"""X6: for how long a partition acknowledged nothing although records waited, which faults that was under, and the promise.

A gap begins when a record is tried, or with the acknowledgement before if others were waiting then, and ends with the next
acknowledgement in the partition. If none comes it lasts as long as the load, since a client that has given up does not end it. A
record that was refused has waited too. Each ack level is measured by itself: with too few replicas acks=all is refused while
acks=1 goes on.
"""

from math import inf

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.tables import ACKED, ACKS, Tables
from tidelog.chaos.checker.verdict import Example, Gap, Kept
from tidelog.chaos.history import FaultStep

_NOBODY_WAITS = inf


class _InForce:
    """The time in which a fault acts."""

    __slots__ = ("began", "ended", "name")

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began
        self.ended = inf


class Waits:
    """One partition's, by ack level. Fed in the order of the history, after the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._open = [0] * len(ACKS)
        self._since = [_NOBODY_WAITS] * len(ACKS)
        self._heard = [-1.0] * len(ACKS)
        self._longest = [(0.0, 0.0, True)] * len(ACKS)
        self._stopped = -1.0
        self._faults: dict[int, _InForce] = {}

    def send(self, v: int, t: float) -> None:
        acks = self._tables.acks[v]
        self._open[acks] += 1
        self._heard[acks] = t
        if self._since[acks] == _NOBODY_WAITS:
            self._since[acks] = t

    def sent(self, v: int, t: float) -> None:
        acks = self._tables.acks[v]
        self._open[acks] -= 1
        self._heard[acks] = t
        if self._tables.outcome[v] == ACKED:
            began, ended, _ = self._longest[acks]
            if t - self._since[acks] > ended - began:
                self._longest[acks] = (self._since[acks], t, True)
            self._since[acks] = t if self._open[acks] else _NOBODY_WAITS

    def gone(self, v: int) -> None:
        """Its client is: nobody waits for it any more."""
        self._open[self._tables.acks[v]] -= 1

    def stopped(self, t: float) -> None:
        """The load is over, which ends what waits in vain."""
        if self._stopped < 0:
            self._stopped = t

    def fault(self, record: FaultStep) -> None:
        """In force from its begin; what it did is there before anyone has seen it."""
        if record.what == "healed":
            if record.id in self._faults:
                self._faults[record.id].ended = record.t
        else:
            self._faults.setdefault(record.id, _InForce(record.name, record.t))

    def gaps(self) -> tuple[Gap, ...]:
        """The longest of each ack level; acks=0 is never acknowledged."""
        used = (acks for acks, heard in enumerate(self._heard) if heard >= 0 and ACKS[acks] != "0")
        return tuple(map(self._gap, used))

    def _gap(self, acks: int) -> Gap:
        began, ended, over = self._longest[acks]
        until = max(self._heard[acks], self._stopped)
        if until - self._since[acks] > ended - began:
            began, ended, over = self._since[acks], until, False
        faults = {fault.name: None for fault in self._faults.values() if fault.began < ended and fault.ended > began}
        return Gap(*self._tables.tp, ACKS[acks], began, ended, over, tuple(faults))


def check_available(gaps: tuple[Gap, ...], promise: Promise, found: Findings, *, ended: bool) -> list[Kept]:
    """A history that is `ended` shows that a partition got no record; one that is cut off may not have come to that."""
    if promise.available:
        found.judged("unavailable")
    return [_judge(gaps, each, found, ended=ended) for each in promise.available]


def _judge(gaps: tuple[Gap, ...], promise: Availability, found: Findings, *, ended: bool) -> Kept:
    meant = [gap for gap in gaps if _means(promise, gap)]
    for gap in meant:
        if gap.seconds > promise.at_most_s:
            found.add("unavailable", _told, gap, promise.at_most_s)
    unused = _unused(meant, promise) if ended else ""
    worst = max(meant, key=lambda gap: gap.seconds, default=None)
    which = "an" if promise.acks is None else f"an acks={promise.acks}"
    where = "any partition" if promise.partitions is None else ", ".join(map(str, promise.partitions)) or "no partition"
    if unused:
        measured = f"nothing was sent to {unused}"
    else:
        measured = (
            "none waited"
            if worst is None
            else f"{worst.seconds:.2f} s ({worst.topic}-{worst.partition}, at {worst.began:.2f} s)"
        )
    kept = not unused and (worst is None or worst.seconds <= promise.at_most_s)
    return Kept(
        f"longest wait for {which} acknowledgement in {where}", kept, measured, f"at most {promise.at_most_s:g} s"
    )


def _means(promise: Availability, gap: Gap) -> bool:
    where = promise.partitions is None or (gap.topic, gap.partition) in promise.partitions
    return where and promise.acks in (None, gap.acks)


def limit_s(gap: Gap, promise: Promise) -> float | None:
    """The longest that it may last; None: as long as it likes."""
    return min((each.at_most_s for each in promise.available if _means(each, gap)), default=None)


def _unused(meant: list[Gap], promise: Availability) -> str:
    """Those of the partitions that got no record, in words: about them nothing was shown."""
    if promise.partitions is None:
        return "" if meant else "any partition"
    used = {(gap.topic, gap.partition) for gap in meant}
    return ", ".join(str(tp) for tp in promise.partitions if tp not in used)


def _told(gap: Gap, at_most_s: float) -> Example:
    until = "" if gap.over else ", and none came after it"
    under = f", under {', '.join(gap.faults)}" if gap.faults else ", under no fault"
    text = (
        f"{gap.topic}-{gap.partition} acknowledged no acks={gap.acks} record from {gap.began:.3f} s to {gap.ended:.3f} s "
        f"({gap.seconds:.2f} s; promised are {at_most_s:g} s){until}{under}"
    )
    return Example(text, gap.began, gap.topic, gap.partition)
