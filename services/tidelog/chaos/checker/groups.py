"""X5: one owner, commits that never go back and never run ahead, nothing passed over, and nothing twice without a reason.

A member may process again what the owner before it had processed and not committed, and an owner that was evicted may finish
what it had in hand: both touch a rebalance or a crash, and neither is more than a member has in hand. What was committed before
a member got the partition it never processes again.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

from tidelog.chaos.checker.contents import example, told_send
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.intervals import Intervals, runs
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.tables import ACKED, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.checker.version_order import VersionOrder
from tidelog.chaos.history import ASSIGNED, FAIL, OK, Committed, Ownership, Polled, Processed, Stored

Term = tuple[int, int]
"""Coordinator epoch and generation."""


@dataclass(slots=True)
class Tenure:
    """A member's time with the partition, from one assignment to the next."""

    found_at: int
    """Where the group was when it began."""
    committed: int
    """The highest offset whose commit was acknowledged before it began."""
    next: int = 0
    """After what the member itself has processed in it."""
    taken_over: int = 0
    """Processed again below `found_at`."""
    beside: int = 0
    """Processed although someone who owned it later had."""


@dataclass(slots=True)
class Group:
    """In one partition."""

    done: Intervals = field(default_factory=Intervals)
    tenures: dict[str, Tenure] = field(default_factory=dict)
    polled: dict[str, Intervals] = field(default_factory=dict)
    """Process to what it has read."""
    owners: dict[Term, str] = field(default_factory=dict)
    commits: dict[Term, list[tuple[float, str, int]]] = field(default_factory=lambda: defaultdict(list))
    committed: int = 0
    """That may be committed, for all that anyone knows."""
    acknowledged: int = 0
    """That certainly is."""
    stored: tuple[float, int] | None = None
    """When its coordinator was asked at last, and what it said is committed."""

    def begin(self) -> Tenure:
        return Tenure(self.done.end, self.acknowledged)


def _owner_at(group: Group, term: Term, process: str) -> str:
    """The process that was given the partition last, in `term` or before; `process` if none was."""
    given = [each for each in group.owners if each <= term]
    return group.owners[max(given)] if given else process


class Groups:
    """Fed in the order of the history, after the tables."""

    def __init__(self, tables: Tables, promise: Promise, found: Findings) -> None:
        self._tables = tables
        self._in_hand_max = promise.uncommitted_max
        self._found = found
        self._groups: dict[str, Group] = defaultdict(Group)
        """All that read the topic."""
        self._owners: set[str] = set()
        """Processes that have the partition, for all that they know."""

    def ownership(self, record: Ownership) -> None:
        if record.group is None:
            return
        self._judged()
        tp, assigned = self._tables.tp, record.kind == ASSIGNED
        if any(each.topic == tp.topic for each in record.partitions):
            self._groups[record.group]  # it owes this partition too, whichever of its members has it
        if not (assigned and tp in record.partitions):
            if assigned or tp in record.partitions:
                self._owners.discard(record.process)
            return
        mine = self._groups[record.group]
        if record.process not in self._owners:
            mine.tenures[record.process] = mine.begin()
        if record.generation is not None and record.coordinator_epoch is not None:
            self._claim(record, mine, (record.coordinator_epoch, record.generation))
        self._owners.add(record.process)

    def polled(self, record: Polled) -> None:
        if record.group is None:
            return
        offsets = [offset for offset, _ in record.partitions[0].records]
        mine = self._groups[record.group].polled.setdefault(record.process, Intervals())
        for start, end in runs(offsets):
            mine.add(start, end)

    def processed(self, record: Processed) -> None:
        """A member that tells what it reads has processed no more than that."""
        self._judged()
        (span,) = record.partitions
        mine = self._groups[record.group]
        read = mine.polled.get(record.process)
        for start, end in ((span.first, span.last + 1),) if read is None else read.within(span.first, span.last + 1):
            self._process(record, mine, start, end)

    def committed(self, record: Committed) -> None:
        """What was refused for certain has committed nothing, yet must not have run ahead either."""
        self._judged()
        offset = record.offsets[0].offset
        mine = self._groups[record.group]
        if offset > max(mine.done.end, mine.committed, self._tables.log_start):
            why = f"offset {offset}, while the group had processed up to {mine.done.end - 1}"
            self._add("group-commit-ahead", record.group, record.t, f"{record.process} committed {why}")
        if record.outcome == OK:
            term = (record.coordinator_epoch, record.generation)
            mine.commits[term].append((record.t, record.process, offset))
            mine.acknowledged = max(mine.acknowledged, offset)
        if record.outcome != FAIL:
            mine.committed = max(mine.committed, offset)

    def stored(self, record: Stored) -> None:
        """All that a coordinator tells is committed, as if a member had heard it."""
        self._found.judged("group-commit-lost")
        mine, offset = self._groups[record.group], record.offsets[0].offset
        mine.stored = (record.t, offset)
        mine.acknowledged = max(mine.acknowledged, offset)
        mine.committed = max(mine.committed, offset)

    def check(self, order: VersionOrder, present: bytearray, *, ended: bool) -> None:
        """`present` by value: whether it is in the log at last. Before the end a group may still come to what is left."""
        if self._groups and ended:
            self._found.judged("group-unprocessed")
        for name, mine in self._groups.items():
            self._check_commits(name, mine)
            if ended:
                self._check_stored(name, mine)
            self._check_skipped(name, mine, order, present, ended=ended)

    def _judged(self) -> None:
        self._found.judged(
            *("group-two-owners", "group-commit-fell", "group-commit-ahead", "group-skipped", "group-duplicates")
        )

    def _add(self, rule: str, group: str, t: float, text: str) -> None:
        tp = self._tables.tp
        self._found.add(rule, Example, f"group {group}, {tp}: {text} at {t:.3f} s", t, *tp)

    def _claim(self, record: Ownership, mine: Group, term: Term) -> None:
        owner = mine.owners.setdefault(term, record.process)
        if owner != record.process:
            text = f"{record.process} got it, which {owner} has in generation {term[1]} of coordinator epoch {term[0]}"
            self._add("group-two-owners", str(record.group), record.t, text)

    def _process(self, record: Processed, mine: Group, start: int, end: int) -> None:
        tenure = mine.tenures.setdefault(record.process, mine.begin())
        if start < tenure.next:
            text = (
                f"{record.process} processed offset {start} again, after {tenure.next - 1}, with no rebalance between,"
            )
            self._add("group-duplicates", record.group, record.t, text)
        fresh = max(start, tenure.next)
        known = min(end, tenure.committed)
        if fresh < known and mine.done.common(fresh, known):
            text = f"{record.process} processed offset {fresh} again, although {tenure.committed} was committed before,"
            self._add("group-duplicates", record.group, record.t, text)
        if fresh < end:
            middle = min(max(fresh, tenure.found_at), end)
            self._again(record, tenure, "taken_over", mine.done.common(fresh, middle))
            self._again(record, tenure, "beside", mine.done.common(middle, end))
        tenure.next = max(tenure.next, end)
        mine.done.add(start, end)

    def _again(self, record: Processed, tenure: Tenure, kind: str, count: int) -> None:
        if not count:
            return
        before = getattr(tenure, kind)
        setattr(tenure, kind, before + count)
        most = self._in_hand_max
        if most is not None and before <= most < before + count:
            text = f"{record.process} processed {before + count} records again, and no member has more than {most} in hand,"
            self._add("group-duplicates", record.group, record.t, text)

    def _check_commits(self, name: str, mine: Group) -> None:
        """In the order of terms, not of time: the answer to an evicted member's commit may come long after its term."""
        highest, by = 0, ""
        for term in sorted(mine.commits):
            for t, process, offset in mine.commits[term]:
                if (owner := _owner_at(mine, term, process)) != process:
                    text = f"{process} committed offset {offset} in generation {term[1]}, in which {owner} has it,"
                    self._add("group-two-owners", name, t, text)
                if offset < highest:
                    text = f"{process} committed offset {offset} after {by} had committed {highest}, in generation {term[1]},"
                    self._add("group-commit-fell", name, t, text)
                else:
                    highest, by = offset, process

    def _check_stored(self, name: str, mine: Group) -> None:
        """The group had time to commit what it had processed."""
        if mine.stored is None:
            return
        t, offset = mine.stored
        if offset < mine.acknowledged:
            self._add(
                "group-commit-lost", name, t, f"offset {offset} is committed, and {mine.acknowledged} was acknowledged,"
            )
        elif offset < mine.done.end:
            self._add(
                "group-commit-lost", name, t, f"offset {offset} is committed, and {mine.done.end - 1} was processed,"
            )

    def _check_skipped(self, name: str, mine: Group, order: VersionOrder, present: bytearray, *, ended: bool) -> None:
        tables, offsets, picked = self._tables, order.offsets, order.picked
        position = max(mine.done.end, mine.committed)
        end = offsets[-1] + 1 if offsets else 0
        for start, stop in mine.done.holes(tables.log_start, end):
            for rank in range(bisect_left(offsets, start), bisect_left(offsets, stop)):
                v, offset = picked[rank], offsets[rank]
                late = tables.outcome[v] != ACKED  # what is in doubt may have come after the group had stopped
                if not present[v] or (offset >= position and (late or not ended)):
                    continue
                rule = "group-skipped" if offset < position else "group-unprocessed"
                text = (
                    f"group {name} is at offset {position} and never processed {told_send(tables, v)}, offset {offset}"
                )
                self._found.add(rule, example, tables, text, [v])
