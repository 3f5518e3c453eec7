"""Cycles in a graph of operations that have a begin and an end: linear, with no edge for each pair that time orders."""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence


class Graph:
    """Nodes are numbers from 0; the edges of a node come in one go, and the nodes in their order."""

    def __init__(self, begins: Sequence[float], ends: Sequence[float]) -> None:
        self.begins = begins
        self.ends = ends
        self._starts = array("q", [0])
        self._targets = array("q")

    def add(self, targets: Iterable[int]) -> None:
        self._targets.extend(targets)
        self._starts.append(len(self._targets))

    def after(self, node: int) -> Sequence[int]:
        return self._targets[self._starts[node] : self._starts[node + 1]]

    def left_by_peeling(self) -> list[int]:
        """Nodes that are in a cycle of edges and of time, or behind one. None are left if there is no cycle.

        Time orders two nodes if one ended before the other began. A node is taken off when nothing that is left comes before
        it: no edge leads to it, and the earliest end of what is left is not before its begin.
        """
        begins, ends, starts, targets = self.begins, self.ends, self._starts, self._targets
        incoming = array("q", [0]) * len(begins)
        for target in targets:
            incoming[target] += 1
        by_begin = sorted(range(len(begins)), key=begins.__getitem__)
        by_end = sorted(range(len(begins)), key=ends.__getitem__)
        gone, begun = bytearray(len(begins)), bytearray(len(begins))
        next_begin, earliest, count = 0, 0, len(begins)
        while earliest < count:
            if gone[by_end[earliest]]:
                earliest += 1
                continue
            free: list[int] = []
            first_end = ends[by_end[earliest]]
            while next_begin < count and begins[by_begin[next_begin]] <= first_end:
                node = by_begin[next_begin]
                begun[node] = True
                next_begin += 1
                if not incoming[node]:
                    free.append(node)
            if not free:
                break
            while free:
                node = free.pop()
                gone[node] = True
                for target in targets[starts[node] : starts[node + 1]]:
                    incoming[target] -= 1
                    if not incoming[target] and begun[target]:
                        free.append(target)
        return [node for node in by_begin if not gone[node]]


Edges = Mapping[int, Sequence[int]]


def with_time(edges: Edges, groups: Iterable[Sequence[int]], begins: Sequence[float], ends: Sequence[float]) -> Edges:
    """`edges`, and those of time within each group of nodes: from a node to all that began after its end.

    A chain of extra nodes, one for each end, stands for the pairs; they have negative numbers.
    """
    found: dict[int, list[int]] = {node: list(targets) for node, targets in edges.items()}
    extra = -1
    for group in groups:
        by_end = sorted(group, key=ends.__getitem__)
        group_ends = [ends[node] for node in by_end]
        top = extra
        for i, node in enumerate(by_end):
            found.setdefault(node, []).append(top - i)
            found[top - i] = [top - i - 1] if i + 1 < len(by_end) else []
        for node in group:
            ended_before = bisect_left(group_ends, begins[node])
            if ended_before:
                found[top - ended_before + 1].append(node)
        extra = top - len(by_end)
    return found


def cyclic_parts(edges: Edges) -> Iterator[list[int]]:
    """The strongly connected parts of more than one node, without extra nodes (Tarjan, with a stack of its own)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(edges.get(root, ())))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = _position(stack, node)
                    part = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(part)
                    if len(real := [each for each in part if each >= 0]) > 1:
                        yield real


def _position(stack: Sequence[int], node: int) -> int:
    """From the top: a part is as long as what is taken off."""
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    return at


def shortest_cycle(edges: Edges, start: int) -> list[int]:
    """From `start` back to it, without extra nodes; `start` is in a cycle."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in edges.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return [each for each in reversed(path) if each >= 0]
            if target not in came_from:
                came_from[target] = node
                queue.append(target)
    raise ValueError(f"{start} is in no cycle")
