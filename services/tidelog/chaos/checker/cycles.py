"""G0 and G1c, and what they are with the order of processes and with time (1.4).

ww: neighbours in the version order that different operations wrote. wr: who wrote a value, to a poll that read it; the first
poll stands for all that belong to no operation, since it ended first. Process: an operation that was over before another of the
same process began. Time: the same of any two. A cycle has the smallest name that fits; those with ww edges are tolerated, since
writes are not isolated in Kafka. rw edges, and with them G2, are not drawn: Jepsen has them switched off.

Without operations of several sends or polls only the order of processes and of time can close a cycle, which for wr edges
means that something was read before it was sent.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.graph import Edges, Graph, cyclic_parts, shortest_cycle, with_time
from tidelog.chaos.checker.tables import NOBODY, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.checker.version_order import VersionOrder

_TOLD_MAX: Final = 8


class Variant(NamedTuple):
    name: str
    ww: bool
    wr: bool
    order: str
    """`""`, `process` or `realtime`."""

    def within(self, other: "Variant") -> bool:
        """Whether each of its cycles is one of `other` too."""
        rank = ("", "process", "realtime").index
        return self.ww <= other.ww and self.wr <= other.wr and rank(self.order) <= rank(other.order)


VARIANTS: Final = tuple(
    Variant(f"{name}{order and '-'}{order}{mark}", ww, wr, order)
    for order in ("", "process", "realtime")
    for name, mark, ww, wr in (("G0", "", True, False), ("G1c", "", False, True), ("G1c", " (ww)", True, True))
)
"""Each after those that are within it."""


class Operations:
    """The nodes: one for each value, one for each poll, and one for each operation of several of them.

    A value or a poll that belongs to such an operation leaves its own node without edges.
    """

    def __init__(self, tables: Tables, order: VersionOrder) -> None:
        self.tables = tables
        self._values = len(tables.values)
        self._first_op = self._values + len(tables.poll_id)
        self.ops = sorted({*(op for op in tables.op if op != NOBODY), *(op for op, _, _ in tables.op_reads)})
        self._node_of_op = {op: self._first_op + i for i, op in enumerate(self.ops)}
        self._op_of_poll = {poll: op for op, poll, _ in tables.op_reads}
        self._polls: dict[int, list[int]] = defaultdict(list)
        for poll, op in self._op_of_poll.items():
            self._polls[op].append(poll)
        self._members: dict[int, list[int]] = defaultdict(list)
        for v, op in enumerate(tables.op):
            if op != NOBODY:
                self._members[op].append(v)
        self._more_readers: dict[int, list[int]] = defaultdict(list)
        for op, _, v in tables.op_reads:
            self._more_readers[v].append(self._node_of_op[op])
        self._committed = order.committed
        self._next = self._neighbours(order)
        self.begins, self.ends = self._times()

    def node(self, v: int) -> int:
        op = self.tables.op[v]
        return v if op == NOBODY else self._node_of_op[op]

    def node_of_poll(self, poll: int) -> int:
        op = self._op_of_poll.get(poll)
        return self._values + poll if op is None else self._node_of_op[op]

    def ww(self, node: int) -> set[int]:
        found = {self.node(self._next[v]) for v in self._written(node) if self._next[v] != NOBODY}
        return found - {node}

    def wr(self, node: int) -> set[int]:
        tables = self.tables
        found: set[int] = set()
        for v in self._written(node):
            if not self._committed[v]:
                continue
            if (reader := tables.read_by[v]) >= 0:
                found.add(self.node_of_poll(reader))
            found.update(self._more_readers.get(v, ()))
        return found - {node}

    def process(self, node: int) -> str:
        tables = self.tables
        if node < self._values:
            return tables.processes[tables.process[node]]
        if node < self._first_op:
            return tables.processes[tables.poll_process[node - self._values]]
        op = self.ops[node - self._first_op]
        if members := self._members.get(op):
            return tables.processes[tables.process[members[0]]]
        return tables.processes[tables.poll_process[self._polls[op][0]]]

    def told(self, node: int) -> str:
        tables = self.tables
        if node < self._values:
            return f"send of {tables.values[node]!r}"
        if node < self._first_op:
            poll = node - self._values
            return f"poll {tables.poll_id[poll]} of {tables.processes[tables.poll_process[poll]]}"
        return f"operation {self.ops[node - self._first_op]}"

    def ids(self, node: int) -> list[int]:
        tables = self.tables
        if node < self._values:
            return [tables.send_id[node]]
        if node < self._first_op:
            return [tables.poll_id[node - self._values]]
        op = self.ops[node - self._first_op]
        polls = (tables.poll_id[poll] for poll in self._polls.get(op, ()))
        return [*(tables.send_id[v] for v in self._members.get(op, ())), *polls]

    def graph(self) -> Graph:
        graph = Graph(self.begins, self.ends)
        following, readers, committed = self._next, self.tables.read_by, self._committed
        if self.ops:
            for node in range(len(self.begins)):
                graph.add(self.ww(node) | self.wr(node))
            return graph
        for v, neighbour in enumerate(following):  # the same, for the usual case of a million sends
            edges = [] if neighbour == NOBODY else [neighbour]
            if readers[v] >= 0 and committed[v]:
                edges.append(self._values + readers[v])
            graph.add(edges)
        for _ in self.tables.poll_id:
            graph.add(())
        return graph

    def _written(self, node: int) -> Sequence[int]:
        if node >= self._first_op:
            return self._members.get(self.ops[node - self._first_op], ())
        return (node,) if node < self._values and self.tables.op[node] == NOBODY else ()

    def _neighbours(self, order: VersionOrder) -> Sequence[int]:
        """By value, what follows it in its log. A value counts where it appears first."""
        following = array("q", [NOBODY]) * self._values
        before = NOBODY
        for rank, v in enumerate(order.picked):
            if order.first[v] != rank:
                continue
            known = bool(self._committed[v])  # of what nobody sent there is no operation
            if before != NOBODY and known:
                following[before] = v
            before = v if known else NOBODY
        return following

    def _times(self) -> tuple[Sequence[float], Sequence[float]]:
        """An operation that nobody has completed may take effect at any time after its begin."""
        tables = self.tables
        begins = array("d", tables.began) + tables.poll_began
        ends = array("d", tables.ended) + tables.poll_ended
        for v, outcome in enumerate(tables.outcome):
            if not outcome:
                ends[v] = inf
        for op in self.ops:
            parts = [*self._members.get(op, ()), *(self._values + poll for poll in self._polls.get(op, ()))]
            begins.append(min(begins[part] for part in parts))
            ends.append(max(ends[part] for part in parts))
        return begins, ends


def check_cycles(tables: Tables, order: VersionOrder, found: Findings) -> None:
    found.judged(*(variant.name for variant in VARIANTS))
    operations = Operations(tables, order)
    left = [node for node in operations.graph().left_by_peeling() if operations.begins[node] < inf]
    if not left:
        return  # every variant is part of the graph that was peeled
    within = set(left)
    ww: Edges = {node: sorted(operations.ww(node) & within) for node in left}
    wr: Edges = {node: sorted(operations.wr(node) & within) for node in left}
    sessions: dict[str, list[int]] = defaultdict(list)
    for node in left:
        sessions[operations.process(node)].append(node)
    groups = {"": (), "process": tuple(sessions.values()), "realtime": (left,)}
    named: dict[Variant, set[int]] = {}
    for variant in VARIANTS:
        chosen = {node: [*(ww[node] if variant.ww else ()), *(wr[node] if variant.wr else ())] for node in left}
        edges = with_time(chosen, groups[variant.order], operations.begins, operations.ends)
        smaller: set[int] = set().union(*(nodes for other, nodes in named.items() if other.within(variant)))
        named[variant] = set()
        for part in cyclic_parts(edges):
            named[variant].update(part)
            if smaller.isdisjoint(part):
                found.add(variant.name, _told, operations, edges, min(part))


def _told(operations: Operations, edges: Edges, start: int) -> Example:
    cycle = shortest_cycle(edges, start)
    shown = [operations.told(node) for node in cycle[:_TOLD_MAX]]
    if len(cycle) > _TOLD_MAX:
        shown.append(f"{len(cycle) - _TOLD_MAX} more")
    text = " -> ".join([*shown, operations.told(start)])
    ids = tuple(each for node in cycle for each in operations.ids(node))
    t = max((operations.begins[node] for node in cycle if operations.begins[node] < inf), default=0.0)
    return Example(text, t, *operations.tables.tp, ids)
