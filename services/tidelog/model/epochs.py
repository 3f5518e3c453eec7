"""Model of reliability 3.3: logs, leader epochs, truncation and the ISR of one partition with three replicas.

The controller's state is one atomic value; its LeaderAndIsr requests may arrive late, never, or after newer ones. There are no
crashes: a replica that is taken out of the ISR and one that is slow are the same. A record is known by offset and leader
epoch, because one epoch has one leader and a leader does not cut its own log, so a log is the list of its epochs.

A state is one integer: three rows, one for each replica, then who is in the ISR that each leader knows, then two counters.
What a replica is to the requests still on their way (leader of epoch e, member of its ISR) stands in the replica's own row,
so renaming replicas is sorting rows. Requests that nobody can obey any more are forgotten.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import permutations
from typing import Final

from tidelog.model.search import Label

REPLICAS: Final = (0, 1, 2)
NAMES: Final = "ABC"
SLOT: Final = 3
"""Bits of one log slot: 0 is empty, else leader epoch + 1."""
SLOT_MASK: Final = (1 << SLOT) - 1


Move = tuple[Label, int]
Rows = tuple[int, int, int]


class Cut(Enum):
    """Where a follower cuts its log."""

    HIGH_WATERMARK = "its own high watermark"
    KIP_101 = "the end of its last epoch on the leader"
    EPOCHS = "the end of the history that both share"


@dataclass(frozen=True, slots=True)
class Rules:
    """The five rules of KIP-320, each with a switch, and where and when a follower cuts."""

    cut: Cut = Cut.EPOCHS
    on_fetch: bool = False
    """Cut when the leader answers a fetch with a divergence (F15.4, what Tidelog does), else on becoming a follower."""
    cut_in_epoch: bool = True
    """Only by the history of a leader in the follower's epoch."""
    fetch_in_epoch: bool = True
    """A fetch names its epoch, and a leader of another one refuses it."""
    count_in_epoch: bool = True
    """The high watermark counts followers of the leader's epoch."""
    join_in_epoch: bool = True
    """So does whoever looks for joiners of the ISR."""
    join_at_epoch_start: bool = True
    """A joiner holds everything up to the start of the leader's epoch, not merely up to its high watermark."""


@dataclass(frozen=True, slots=True)
class Bounds:
    slots: int
    records: int
    epochs: int


@cache
def log_end(log: int) -> int:
    return (log.bit_length() + SLOT - 1) // SLOT


def log_cut(log: int, end: int) -> int:
    return log & ((1 << SLOT * end) - 1)


@cache
def end_of_epoch(log: int, epoch: int) -> tuple[int, int]:
    """Largest epoch of `log` that is at most `epoch`, and its end offset; (-1, 0) if there is none (F15.2)."""
    epochs = [(log >> SLOT * k & SLOT_MASK) - 1 for k in range(log_end(log))]
    fitting = [k for k, each in enumerate(epochs) if each <= epoch]
    return (epochs[fitting[-1]], fitting[-1] + 1) if fitting else (-1, 0)


@cache
def shared_end(follower: int, leader: int) -> int:
    """Where a follower ends up that asks the leader about its last epoch, cuts, and asks again until both agree (F15.3)."""
    while follower:
        end = log_end(follower)
        last = (follower >> SLOT * (end - 1)) - 1
        found, found_end = end_of_epoch(leader, last)
        if found == last and found_end >= end:
            return end
        own, own_end = end_of_epoch(follower, found)
        follower = log_cut(follower, min(own_end, found_end, end) if own == found else min(own_end, end))
    return 0


@cache
def kip_101_end(follower: int, leader: int, high_watermark: int) -> int:
    """One question without the epoch in the answer; what the leader does not know falls back on the high watermark."""
    if not follower:
        return 0
    end = log_end(follower)
    last = (follower >> SLOT * (end - 1)) - 1
    larger = [k for k in range(log_end(leader)) if (leader >> SLOT * k & SLOT_MASK) - 1 > last]
    if leader and leader >> SLOT * (log_end(leader) - 1) == last + 1:
        return min(end, log_end(leader))
    return min(end, larger[0] if larger else high_watermark)


@cache
def epoch_start(log: int, epoch: int) -> int:
    """Where the leader of `epoch` began to write: its log's end as long as it has written nothing."""
    return next((k for k in range(log_end(log)) if log >> SLOT * k & SLOT_MASK == epoch + 1), log_end(log))


def relation_permuted(relation: int, order: tuple[int, ...]) -> int:
    """`relation` has bit 3 * leader + member; in the result the replica order[i] has become replica i."""
    return sum(1 << 3 * i + j for i in REPLICAS for j in REPLICAS if relation >> 3 * order[i] + order[j] & 1)


ORDERS: Final = tuple(permutations(REPLICAS))
PERMUTED: Final = {order: tuple(relation_permuted(relation, order) for relation in range(512)) for order in ORDERS}


class EpochModel:
    """Property StrongIsr: what lies below the high watermark of anybody who thinks he leads is the same on the whole ISR."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds
        # Positions of the fields in a row.
        self._hw = SLOT * bounds.slots
        self._epoch = self._hw + 2
        self._leading = self._epoch + 3
        self._in_isr = self._leading + 1
        self._leader_of = self._in_isr + 1
        self._isr_of = self._leader_of + bounds.epochs
        self._width = self._isr_of + bounds.epochs
        self._row = (1 << self._width) - 1
        self._log_mask = (1 << self._hw) - 1
        self._requests_mask = (1 << bounds.epochs) - 1
        self._relation = 3 * self._width
        self._counters = self._relation + 9

    # -- shape -------------------------------------------------------------------------------------------------------

    def initial(self) -> int:
        """Everybody in the ISR, nobody leads."""
        row = 1 << self._in_isr
        return row | row << self._width | row << 2 * self._width

    def canonical(self, state: int) -> int:
        width, mask = self._width, self._row
        a, b, c = state & mask, state >> width & mask, state >> 2 * width & mask
        if a < b < c:
            return state
        relation = state >> self._relation & 511
        rest = state >> self._counters << self._counters
        if a != b and b != c and a != c:
            if a < b:
                order = (0, 2, 1) if a < c else (2, 0, 1)
            elif b < c:
                order = (1, 0, 2) if a < c else (1, 2, 0)
            else:
                order = (2, 1, 0)
            relation = PERMUTED[order][relation]
        else:
            rows = (a, b, c)
            best = sorted(rows)
            relation = min(PERMUTED[o][relation] for o in ORDERS if [rows[o[0]], rows[o[1]], rows[o[2]]] == best)
        a, b, c = sorted((a, b, c))
        return a | b << width | c << 2 * width | relation << self._relation | rest

    # -- property ----------------------------------------------------------------------------------------------------

    def violation(self, state: int) -> str | None:
        width, mask = self._width, self._row
        rows = (state & mask, state >> width & mask, state >> 2 * width & mask)
        for i in REPLICAS:
            row = rows[i]
            hw = row >> self._hw & 3
            if not (hw and row >> self._leading & 1):
                continue
            shown = (1 << SLOT * hw) - 1
            for j in REPLICAS:
                if rows[j] >> self._in_isr & 1 and (rows[j] ^ row) & shown:
                    a, b = self.views(state)[i], self.views(state)[j]
                    return (
                        f"LOST: {a.name} has shown what lies below its high watermark {hw} of {a.text}; "
                        f"{b.name}, in the ISR and free to lead next, holds {b.text}"
                    )
        return None

    # -- moves -------------------------------------------------------------------------------------------------------

    def moves(self, state: int) -> list[Move]:
        width, mask = self._width, self._row
        rows = (state & mask, state >> width & mask, state >> 2 * width & mask)
        relation = state >> self._relation & 511
        counters = state >> self._counters
        out: list[Move] = []
        self._controller_moves(out, rows, relation, counters)
        self._request_moves(out, rows, relation, counters)
        for i in REPLICAS:
            if rows[i] >> self._leading & 1:
                self._leader_moves(out, i, rows, relation, counters)
        return out

    def _join(self, a: int, b: int, c: int, relation: int, counters: int) -> int:
        width = self._width
        return a | b << width | c << 2 * width | relation << self._relation | counters << self._counters

    def _with(self, rows: Rows, i: int, row: int, relation: int, counters: int) -> int:
        a, b, c = rows
        if i == 0:
            a = row
        elif i == 1:
            b = row
        else:
            c = row
        return self._join(a, b, c, relation, counters)

    def _controller_moves(self, out: list[Move], rows: Rows, relation: int, counters: int) -> None:
        epoch = counters & 7
        if epoch == self.bounds.epochs:
            return
        leader = -1
        if epoch:
            last = 1 << self._leader_of + epoch - 1
            leader = 0 if rows[0] & last else 1 if rows[1] & last else 2 if rows[2] & last else -1
        isr = [i for i in REPLICAS if rows[i] >> self._in_isr & 1]
        for i in isr:
            if i != leader:
                out.append((("elect", i, epoch), self._decide(rows, relation, counters, i, isr)))
            if len(isr) > 1:
                kept = [j for j in isr if j != i]
                label = ("fail", i, epoch) if i == leader else ("drop", i, epoch)
                after = self._decide(rows, relation, counters, -1 if i == leader else leader, kept)
                out.append((label, after))
            elif i == leader:
                out.append((("fail", i, epoch), self._decide(rows, relation, counters, -1, isr)))

    def _decide(self, rows: Rows, relation: int, counters: int, leader: int, isr: list[int]) -> int:
        """The state with the next epoch decided, and its LeaderAndIsr on the way."""
        epoch = counters & 7
        new = [row & ~(1 << self._in_isr) for row in rows]
        member = 1 << self._in_isr
        if leader >= 0:
            new[leader] |= 1 << self._leader_of + epoch
            member |= 1 << self._isr_of + epoch
        for i in isr:
            new[i] |= member
        return self._join(new[0], new[1], new[2], relation, counters + 1)

    def _request_moves(self, out: list[Move], rows: Rows, relation: int, counters: int) -> None:
        rules = self.rules
        known = [(row >> self._epoch & 7) - 1 for row in rows]
        for epoch in range(min(known) + 1, counters & 7):
            bit = 1 << self._leader_of + epoch
            leader = 0 if rows[0] & bit else 1 if rows[1] & bit else 2 if rows[2] & bit else -1
            for i in REPLICAS:
                if known[i] >= epoch:
                    continue
                row = rows[i]
                if i == leader:
                    isr = sum(1 << j for j in REPLICAS if rows[j] >> self._isr_of + epoch & 1)
                    out.append((("lead", i, epoch), self._obey(rows, relation, counters, i, row, epoch, isr)))
                    continue
                if leader >= 0 and not rules.on_fetch:
                    other = rows[leader]
                    if rules.cut_in_epoch and not (other >> self._leading & 1 and known[leader] == epoch):
                        continue
                    row = self._cut(row, other)
                label = ("follow", i, leader, epoch)
                out.append((label, self._obey(rows, relation, counters, i, row, epoch, 0)))

    def _obey(self, rows: Rows, relation: int, counters: int, i: int, row: int, epoch: int, isr: int) -> int:
        """Replica i enters `epoch`, as leader with `isr` or, where that is empty, as follower; forgets dead requests."""
        row = row & ~(7 << self._epoch | 1 << self._leading) | epoch + 1 << self._epoch
        relation &= ~(7 << 3 * i)
        if isr:
            row |= 1 << self._leading
            relation |= isr << 3 * i
        new = list(rows)
        new[i] = row
        dead = self._forget(new, row, epoch)
        return self._join(new[0] & ~dead, new[1] & ~dead, new[2] & ~dead, relation, counters)

    def _forget(self, rows: list[int], row: int, epoch: int) -> int:
        """Bits that mean nothing any more in any row, once the replica of `row` has entered `epoch`."""
        # The ISR of a request matters only until its leader has obeyed it or a newer one.
        past = (1 << epoch + 1) - 1
        dead = (row >> self._leader_of & past) << self._isr_of
        # Who led an epoch matters only while somebody is in it or before it.
        low = min(each >> self._epoch & 7 for each in rows)
        return dead | (1 << low - 1) - 1 << self._leader_of if low > 1 else dead

    def _cut(self, row: int, leader: int) -> int:
        """A follower's row after the cut that the rules demand."""
        log, hw = row & self._log_mask, row >> self._hw & 3
        if self.rules.cut is Cut.HIGH_WATERMARK:
            end = hw
        elif self.rules.cut is Cut.KIP_101:
            end = kip_101_end(log, leader & self._log_mask, hw)
        else:
            end = shared_end(log, leader & self._log_mask)
        row = row & ~self._log_mask | log_cut(log, end)
        return row & ~(3 << self._hw) | end << self._hw if end < hw else row

    def _leader_moves(self, out: list[Move], i: int, rows: Rows, relation: int, counters: int) -> None:
        """What whoever thinks he leads may do, true leader or not, and what others may do with him."""
        row = rows[i]
        log, hw, epoch = row & self._log_mask, row >> self._hw & 3, (row >> self._epoch & 7) - 1
        end = log_end(log)
        if end < self.bounds.slots and counters >> 3 < self.bounds.records:
            after = self._with(rows, i, row | epoch + 1 << SLOT * end, relation, counters + 8)
            out.append((("write", i, end), after))
        counted = hw < end
        for j in REPLICAS:
            if j != i and not self._pair_moves(out, i, j, rows, relation, counters):
                counted = False
        if counted:
            after = self._with(rows, i, row & ~(3 << self._hw) | hw + 1 << self._hw, relation, counters)
            out.append((("advance", i, hw + 1), after))

    def _pair_moves(self, out: list[Move], i: int, j: int, rows: Rows, relation: int, counters: int) -> bool:
        """Moves of leader i and follower j; returns whether j does not hold the high watermark of i back."""
        rules, row, other = self.rules, rows[i], rows[j]
        log, hw, epoch = row & self._log_mask, row >> self._hw & 3, (row >> self._epoch & 7) - 1
        other_log, other_hw, other_epoch = other & self._log_mask, other >> self._hw & 3, (other >> self._epoch & 7) - 1
        end, other_end = log_end(log), log_end(other_log)
        follows = bool(not other >> self._leading & 1 and other_epoch >= 0 and row >> self._leader_of + other_epoch & 1)
        in_epoch = follows and other_epoch == epoch
        agrees = True
        if rules.on_fetch and follows:
            agrees = shared_end(other_log, log) == other_end
            if not agrees and (in_epoch or not rules.cut_in_epoch):
                out.append((("cut", j, i), self._with(rows, j, self._cut(other, row), relation, counters)))
        if (in_epoch if rules.fetch_in_epoch else follows) and agrees and other_end < end:
            # The high watermark comes with the record and never falls (PROTOCOL.md rule 6).
            shown = max(other_hw, min(hw, other_end + 1)) << self._hw
            fetched = (other | log & SLOT_MASK << SLOT * other_end) & ~(3 << self._hw) | shown
            out.append((("fetch", j, i, other_end), self._with(rows, j, fetched, relation, counters)))
        member = relation >> 3 * i + j & 1
        if row >> self._leader_of + epoch & 1 and epoch == (counters & 7) - 1:
            # Only whom the controller means may change the ISR, and both know it at once; 3.5 takes that apart.
            if member and not (in_epoch and agrees and other_end >= end):
                after = self._with(rows, j, other & ~(1 << self._in_isr), relation & ~(1 << 3 * i + j), counters)
                out.append((("shrink", i, j), after))
            reached = other_end >= hw and (not rules.join_at_epoch_start or other_end >= epoch_start(log, epoch))
            if not member and (in_epoch if rules.join_in_epoch else follows) and agrees and reached:
                after = self._with(rows, j, other | 1 << self._in_isr, relation | 1 << 3 * i + j, counters)
                out.append((("expand", i, j), after))
        return not member or ((in_epoch if rules.count_in_epoch else follows) and agrees and other_end > hw)

    # -- story -------------------------------------------------------------------------------------------------------

    def views(self, state: int) -> list["View"]:
        return [self._view(state >> i * self._width & self._row, state, i) for i in REPLICAS]

    def _view(self, row: int, state: int, i: int) -> "View":
        log = row & self._log_mask
        return View(
            NAMES[i],
            tuple((log >> SLOT * k & SLOT_MASK) - 1 for k in range(log_end(log))),
            row >> self._hw & 3,
            (row >> self._epoch & 7) - 1,
            bool(row >> self._leading & 1),
            bool(row >> self._in_isr & 1),
            members(state >> self._relation + 3 * i & 7),
        )

    def tell(self, label: Label, before: int, after: int) -> str:
        kind, i, *rest = label
        assert isinstance(i, int)
        old, new = self.views(before), self.views(after)
        a = new[i]
        isr = "".join(view.name for view in new if view.in_isr)
        match kind, rest:
            case "elect", [epoch]:
                return f"The controller elects {a.name} for epoch {epoch}, ISR {isr}; its LeaderAndIsr is on the way."
            case "fail", [epoch]:
                return f"The controller takes the leader {a.name} for dead: epoch {epoch} has no leader, ISR {isr}."
            case "drop", [epoch]:
                return f"The controller drops {a.name}: epoch {epoch}, same leader, ISR {isr}; LeaderAndIsr on the way."
            case "lead", [epoch]:
                return (
                    f"{a.name} processes LeaderAndIsr of epoch {epoch}: it leads with ISR {a.isr}, "
                    f"log {a.text}, high watermark {a.hw}."
                )
            case "follow", [-1, epoch]:
                return f"{a.name} processes LeaderAndIsr of epoch {epoch}: nobody leads."
            case "follow", [int(leader), epoch]:
                cut = f"cuts its log from {old[i].text} to {a.text} and " if old[i].log != a.log else ""
                other = new[leader]
                where = "" if other.epoch == epoch else f" (which is itself {other.where})"
                return f"{a.name} processes LeaderAndIsr of epoch {epoch}: it {cut}follows {other.name}{where}."
            case "write", [offset]:
                return f"{a.name}, leader of epoch {a.epoch}, appends a record at offset {offset}: log {a.text}."
            case "advance", [hw]:
                held = ", ".join(f"{b.name} {b.text} {b.where}" for b in new if b.name in a.isr and b.name != a.name)
                return (
                    f"{a.name} advances its high watermark to {hw} over log {a.text} with ISR {a.isr} "
                    f"(followers: {held or 'none'})."
                )
            case "cut", [int(leader)]:
                return f"{a.name} learns from {new[leader].name} where they diverge: cuts {old[i].text} to {a.text}."
            case "fetch", [int(leader), offset]:
                other = new[leader]
                where = (
                    ""
                    if other.epoch == a.epoch
                    else f", though it is in epoch {a.epoch} and {other.name} leads {other.epoch}"
                )
                return (
                    f"{a.name} fetches offset {offset} from {other.name}{where}: log {a.text}, high watermark {a.hw}."
                )
            case "shrink", [int(member)]:
                return f"{a.name} removes {new[member].name} from the ISR: {isr}."
            case "expand", [int(member)]:
                joiner = new[member]
                where = "" if joiner.epoch == a.epoch else f", though it is in epoch {joiner.epoch}"
                return f"{a.name} adds {joiner.name} with log {joiner.text}{where} to the ISR: {isr}."
        raise AssertionError(label)


def members(mask: int) -> str:
    return "".join(NAMES[j] for j in REPLICAS if mask >> j & 1)


@dataclass(frozen=True, slots=True)
class View:
    """One replica, for the story."""

    name: str
    log: tuple[int, ...]
    """Leader epoch of each record."""
    hw: int
    epoch: int
    leads: bool
    in_isr: bool
    isr: str
    """Whom it knows to be in sync, if it leads."""

    @property
    def where(self) -> str:
        return f"in epoch {self.epoch}" if self.epoch >= 0 else "in no epoch yet"

    @property
    def text(self) -> str:
        return "[" + " ".join(f"e{epoch}" for epoch in self.log) + "]"
