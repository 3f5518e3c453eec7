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
from tidelog.chaos.checker.intervals import Intervals
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.tables import ACKED, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.checker.version_order import VersionOrder
from tidelog.chaos.history import ASSIGNED, FAIL, OK, Committed, Ownership, Processed

Term = tuple[int, int]
"""Coordinator epoch and generation."""


@dataclass(slots=True)
class Tenure:
    """A member's time with one key, from one assignment to the next."""

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
class GroupKey:
    """A group in one key."""

    done: Intervals = field(default_factory=Intervals)
    tenures: dict[str, Tenure] = field(default_factory=dict)
    owners: dict[Term, str] = field(default_factory=dict)
    commits: dict[Term, list[tuple[float, str, int]]] = field(default_factory=lambda: defaultdict(list))
    committed: int = 0
    """That may be committed, for all that anyone knows."""
    acknowledged: int = 0
    """That certainly is."""

    def begin(self) -> Tenure:
        return Tenure(self.done.end, self.acknowledged)


class Groups:
    """Fed in the order of the history, after the tables."""

    def __init__(self, tables: Tables, promise: Promise, found: Findings) -> None:
        self._tables = tables
        self._in_hand_max = promise.uncommitted_max
        self._found = found
        self._groups: dict[str, dict[int, GroupKey]] = defaultdict(lambda: defaultdict(GroupKey))
        self._owned: dict[str, set[int]] = defaultdict(set)
        """By process."""

    def ownership(self, record: Ownership) -> None:
        if record.group is None:
            return
        self._judged()
        keys = {self._tables.key_number(*tp) for tp in record.partitions}
        owned = self._owned[record.process]
        if record.kind != ASSIGNED:
            owned -= keys
            return
        group = self._groups[record.group]
        for key in sorted(keys):
            mine = group[key]
            if key not in owned:
                mine.tenures[record.process] = mine.begin()
            if record.generation is not None and record.coordinator_epoch is not None:
                self._claim(record, key, mine, (record.coordinator_epoch, record.generation))
        self._owned[record.process] = keys

    def processed(self, record: Processed) -> None:
        self._judged()
        group = self._groups[record.group]
        for topic, partition, first, last in record.partitions:
            key = self._tables.key_number(topic, partition)
            self._process(record, key, group[key], first, last + 1)

    def committed(self, record: Committed) -> None:
        """What was refused for certain has committed nothing, yet must not have run ahead either."""
        self._judged()
        group = self._groups[record.group]
        for topic, partition, offset in record.offsets:
            key = self._tables.key_number(topic, partition)
            mine = group[key]
            if offset > max(mine.done.end, mine.committed, self._tables.log_start[key]):
                why = f"offset {offset}, while the group had processed up to {mine.done.end - 1}"
                self._add("group-commit-ahead", record.group, key, record.t, f"{record.process} committed {why}")
            if record.outcome == OK:
                term = (record.coordinator_epoch, record.generation)
                mine.commits[term].append((record.t, record.process, offset))
                mine.acknowledged = max(mine.acknowledged, offset)
            if record.outcome != FAIL:
                mine.committed = max(mine.committed, offset)

    def check(self, order: VersionOrder, present: bytearray, *, ended: bool) -> None:
        """`present` by value: whether it is in the log at last. Before the end a group may still come to what is left."""
        if self._groups and ended:
            self._found.judged("group-unprocessed")
        for name, group in self._groups.items():
            for key, mine in group.items():
                self._check_commits(name, key, mine)
            topics = {self._tables.keys[key].topic for key in group}
            for key, tp in enumerate(self._tables.keys):
                if tp.topic in topics:
                    self._check_skipped(name, key, order, present, ended=ended)

    def _judged(self) -> None:
        self._found.judged(
            *("group-two-owners", "group-commit-fell", "group-commit-ahead", "group-skipped", "group-duplicates")
        )

    def _add(self, rule: str, group: str, key: int, t: float, text: str) -> None:
        tp = self._tables.keys[key]
        self._found.add(rule, Example, f"group {group}, {tp}: {text} at {t:.3f} s", t, tp.topic, tp.partition)

    def _claim(self, record: Ownership, key: int, mine: GroupKey, term: Term) -> None:
        owner = mine.owners.setdefault(term, record.process)
        if owner != record.process:
            text = f"{record.process} got it, which {owner} has in generation {term[1]} of coordinator epoch {term[0]}"
            self._add("group-two-owners", str(record.group), key, record.t, text)

    def _process(self, record: Processed, key: int, mine: GroupKey, start: int, end: int) -> None:
        tenure = mine.tenures.setdefault(record.process, mine.begin())
        if start < tenure.next:
            text = (
                f"{record.process} processed offset {start} again, after {tenure.next - 1}, with no rebalance between,"
            )
            self._add("group-duplicates", record.group, key, record.t, text)
        fresh = max(start, tenure.next)
        known = min(end, tenure.committed)
        if fresh < known and mine.done.common(fresh, known):
            text = f"{record.process} processed offset {fresh} again, although {tenure.committed} was committed before,"
            self._add("group-duplicates", record.group, key, record.t, text)
        if fresh < end:
            middle = min(max(fresh, tenure.found_at), end)
            self._again(record, key, tenure, "taken_over", mine.done.common(fresh, middle))
            self._again(record, key, tenure, "beside", mine.done.common(middle, end))
        tenure.next = max(tenure.next, end)
        mine.done.add(start, end)

    def _again(self, record: Processed, key: int, tenure: Tenure, kind: str, count: int) -> None:
        if not count:
            return
        before = getattr(tenure, kind)
        setattr(tenure, kind, before + count)
        most = self._in_hand_max
        if most is not None and before <= most < before + count:
            text = f"{record.process} processed {before + count} records again, and no member has more than {most} in hand,"
            self._add("group-duplicates", record.group, key, record.t, text)

    def _check_commits(self, name: str, key: int, mine: GroupKey) -> None:
        """In the order of terms, not of time: the answer to an evicted member's commit may come long after its term."""
        highest, by = 0, ""
        for term in sorted(mine.commits):
            for t, process, offset in mine.commits[term]:
                if offset < highest:
                    text = f"{process} committed offset {offset} after {by} had committed {highest}, in generation {term[1]},"
                    self._add("group-commit-fell", name, key, t, text)
                else:
                    highest, by = offset, process

    def _check_skipped(self, name: str, key: int, order: VersionOrder, present: bytearray, *, ended: bool) -> None:
        tables = self._tables
        offsets, picked = order.offsets[key], order.picked[key]
        mine = self._groups[name][key]
        position = max(mine.done.end, mine.committed)
        end = offsets[-1] + 1 if offsets else 0
        for start, stop in mine.done.holes(tables.log_start[key], end):
            for rank in range(bisect_left(offsets, start), bisect_left(offsets, stop)):
                v, offset = picked[rank], offsets[rank]
                if tables.outcome[v] != ACKED or not present[v] or (offset >= position and not ended):
                    continue
                rule = "group-skipped" if offset < position else "group-unprocessed"
                text = (
                    f"group {name} is at offset {position} and never processed {told_send(tables, v)}, offset {offset}"
                )
                self._found.add(rule, example, tables, text, [v])
