"""The order in which one client saw, and one client sent: Jepsen's int-, poll- and send- rules (1.4).

What is compared is the distance of two ranks in the version order. A poll's ranks are those of its own offsets, which are
exact where a value has several places. Offsets that follow each other are neighbours whatever else is in the log, so all that
is kept of most polls is their last offset; only where a poll jumps there is something to look at when the order is known.
"""

from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.chaos.checker.contents import example, told_send
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.tables import ACKED, FROM_ALL, NOBODY, REFUSED, UNKNOWN, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.checker.version_order import VersionOrder
from tidelog.chaos.history import ASSIGNED, Ownership, Polled
from tidelog.ids import NO_OFFSET

_POLL_RULES: Final = {
    # (within one operation, member of a group) -> names for passing over and for going back
    (True, False): ("int-poll-skip", "int-nonmonotonic-poll"),
    (True, True): ("int-poll-skip", "int-nonmonotonic-poll"),
    (False, False): ("poll-skip", "nonmonotonic-poll"),
    (False, True): ("poll-skip (subscribed)", "nonmonotonic-poll (subscribed)"),
}


class Jump(NamedTuple):
    """A record that was read after another one, at an offset that is not the next."""

    before: int
    offset: int
    poll: int
    """Its position in the tables."""
    inner: bool
    subscribed: bool


class Consumer:
    """The position of a process in the partition; `changed_at` is when it last got or lost it."""

    __slots__ = ("alone", "changed_at", "first", "last", "last_op")

    def __init__(self) -> None:
        self.alone = False
        """It has no group and was given the partition, to read it from its log start."""
        self.first: int | None = None
        self.last: int | None = None
        self.last_op: int | None = None
        self.changed_at = -1.0


class Polls:
    """Fed in the order of the history."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._consumers: dict[str, Consumer] = {}
        self._jumps: list[Jump] = []

    def ownership(self, record: Ownership) -> None:
        """A partition that stays keeps its position: an assignment that names it again is no reason to skip (1.4)."""
        consumer = self._consumers.setdefault(record.process, Consumer())
        assigned, named = record.kind == ASSIGNED, self._tables.tp in record.partitions
        consumer.alone = assigned and named and record.group is None and not record.final
        if assigned and named and consumer.last is not None:
            return
        if named or (assigned and consumer.last is not None):
            consumer.last = None
            consumer.changed_at = record.t

    def polled(self, record: Polled, poll: int) -> None:
        consumer = self._consumers.setdefault(record.process, Consumer())
        offsets = [offset for offset, _ in record.partitions[0].records]
        self._jump_to(record, poll, consumer, offsets[0])
        if consumer.first is None:
            consumer.first = offsets[0]
        consumer.last = offsets[-1]
        if record.op is not None:
            consumer.last_op = record.op
        self._jumps_within(record, poll, consumer, offsets)

    def _jump_to(self, record: Polled, poll: int, consumer: Consumer, first: int) -> None:
        before = consumer.last
        if before is not None and first != before + 1:
            inner = record.op is not None and consumer.last_op == record.op
            self._jumps.append(Jump(before, first, poll, inner, record.group is not None))

    def _jumps_within(self, record: Polled, poll: int, consumer: Consumer, offsets: list[int]) -> None:
        first = offsets[0]
        if offsets == list(range(first, first + len(offsets))) or consumer.changed_at >= record.began:
            return  # what is in the operation's rebalance log may jump
        subscribed = record.group is not None
        self._jumps.extend(Jump(a, b, poll, True, subscribed) for a, b in pairwise(offsets) if b != a + 1)

    def check(self, order: VersionOrder, found: Findings) -> None:
        found.judged(*(name for names in _POLL_RULES.values() for name in names))
        for jump in self._jumps:
            distance = order.rank(jump.offset) - order.rank(jump.before)
            if distance != 1:
                skip, back = _POLL_RULES[jump.inner, jump.subscribed]
                found.add(skip if distance > 1 else back, self._told, jump, distance)

    def check_alone(self, order: VersionOrder, present: bytearray, found: Findings, *, ended: bool) -> None:
        """Each consumer without a group began at the log start, and one that lived to the end came to all that was acknowledged;
        what is in doubt may have come later. `present` by value: whether it is in the log at last."""
        tables = self._tables
        found.judged("consumer-unread")
        begin = next((offset for offset in order.offsets if offset >= tables.log_start), 0)
        acked = (
            o for o, v in zip(order.offsets, order.picked, strict=True) if present[v] and tables.outcome[v] == ACKED
        )
        end = max(acked, default=NO_OFFSET) if ended else NO_OFFSET
        for process, consumer in self._consumers.items():
            if not consumer.alone:
                continue
            if consumer.first is not None and consumer.first > begin:
                text = f"{process} began to read at offset {consumer.first}, and the log at offset {begin}"
                found.add("consumer-unread", self._told_alone, text)
            last = NO_OFFSET if consumer.last is None else consumer.last
            if last < end and process not in tables.crashed:
                text = f"{process} had read up to offset {last} at the end, and offset {end} was acknowledged"
                found.add("consumer-unread", self._told_alone, text)

    def _told_alone(self, text: str) -> Example:
        tables = self._tables
        return Example(f"{tables.tp}: {text}", max(tables.poll_ended, default=0.0), *tables.tp)

    def _told(self, jump: Jump, distance: int) -> Example:
        tables, poll = self._tables, jump.poll
        how = f"passing over {distance - 1} values" if distance > 1 else "which is no later value"
        process, t = tables.processes[tables.poll_process[poll]], tables.poll_ended[poll]
        text = f"{tables.tp}: {process} read offset {jump.offset} after offset {jump.before}, {how}, at {t:.3f} s"
        return Example(text, t, *tables.tp, (tables.poll_id[poll],))


def check_sends(tables: Tables, order: VersionOrder, found: Findings, *, idempotent: bool) -> None:
    """The sends of each process, in the order of the attempts; one that failed for certain, or was not seen, says nothing."""
    found.judged("int-send-skip", "int-nonmonotonic-send", "nonmonotonic-send", "nonmonotonic-send (unknown)")
    latest: dict[int, int] = {}
    for v, (process, rank, outcome) in enumerate(zip(tables.process, order.first, tables.outcome, strict=True)):
        if rank < 0 or process == NOBODY or outcome == REFUSED:
            continue
        before = latest.get(process, NOBODY)
        latest[process] = v
        if before == NOBODY:
            continue
        previous = order.first[before]
        if tables.op[v] != NOBODY and tables.op[v] == tables.op[before]:
            if rank < previous:
                found.add("int-nonmonotonic-send", _told_order, tables, order, before, v)
            elif rank > previous + 1:
                found.add("int-send-skip", _told_order, tables, order, before, v)
        elif rank < previous:
            late = tables.outcome[before] == UNKNOWN and not (idempotent and tables.acks[before] == FROM_ALL)
            found.add(
                "nonmonotonic-send (unknown)" if late else "nonmonotonic-send", _told_order, tables, order, before, v
            )


def _told_order(tables: Tables, order: VersionOrder, earlier: int, later: int) -> Example:
    text = (
        f"{told_send(tables, later)} is at offset {order.offset_of(later)}; "
        f"{told_send(tables, earlier)}, the one before it, is at offset {order.offset_of(earlier)}"
    )
    return example(tables, text, [earlier, later], tables.began[later])


def check_precommitted(tables: Tables, found: Findings) -> None:
    found.judged("precommitted-read")
    for op, poll, v in tables.op_reads:
        if tables.op[v] == op:
            text = f"operation {op} read its own {tables.values[v]!r} at {tables.poll_ended[poll]:.3f} s"
            found.add("precommitted-read", example, tables, text, [v], None, (poll,))
