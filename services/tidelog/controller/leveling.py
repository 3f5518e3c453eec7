"""Evening out what brokers hold with the fewest hand-overs: the optimum that the planner promises (OPEN-15).

An item (a partition) has units (its replicas, or its leadership), each on another broker. A broker that holds a unit of an item
that has its home elsewhere costs one. Wanted are first the most even loads, then the least cost: the least of

    scale * (sum of load ** 2) + (units away from home)        with `scale` above what one path can cost.

That is a flow of least convex cost from the items over the brokers to a sink, and such a flow is the least of all if and only
if its residual graph has no negative cycle. Which units may go where enters as the capacities on the way from an item to the
brokers (`Takers`); they must be those of such a network. The residual graph is kept at the level of the brokers: an arc from
one to another stands for the cheapest item that can be handed over, and a cycle may pass the sink, which then moves load from
its first broker to its last. Most of the work is done before by plain hand-overs from who holds much to who holds little;
the cycles only repair what these could not see, so the result does not depend on them and the time hardly on the cycles.

The least sum of squares is the most even in every sense: among all loads that can be, its largest is the smallest, then its
second largest, and so on (the loads of such flows are an M-convex set). So loads differ by one at most wherever that can be.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import chain, pairwise
from typing import Final, NamedTuple

from tidelog.ids import BrokerId

Takers = Callable[[int, BrokerId, Set[BrokerId]], Set[BrokerId]]
"""(item, giver, among): who of `among` may hold the giver's unit of the item instead. Neither the giver nor another holder."""

_COSTS: Final = (-1, 0, 1)
"""Of a hand-over: a unit comes home, stays at home or away, or leaves home."""


_Arc = tuple[int, int, int]
"""From, to, weight."""


class HandOver(NamedTuple):
    item: int
    giver: BrokerId
    taker: BrokerId


class Row(NamedTuple):
    """What one broker can hand over."""

    best: Mapping[BrokerId, HandOver]
    arcs: Sequence[_Arc]
    """The same between indexes of brokers, with the costs."""


class Holdings:
    """Who holds the units of each item. `held` is changed in place; `home` says where units cost nothing."""

    def __init__(
        self,
        brokers: Iterable[BrokerId],
        held: Sequence[set[BrokerId]],
        home: Sequence[Set[BrokerId]],
        takers: Takers,
        order: Iterable[int],
    ) -> None:
        self.held = held
        self.brokers = sorted(brokers)
        self._index = {each: at for at, each in enumerate(self.brokers)}
        self._everybody = frozenset(self.brokers)
        self._home = home
        self._takers = takers
        self._on: dict[BrokerId, dict[int, None]] = {each: {} for each in self.brokers}
        for item in order:  # among equals the first of this order is handed over
            for each in held[item]:
                self._on[each][item] = None

    def load(self, broker_id: BrokerId) -> int:
        return len(self._on[broker_id])

    def of(self, broker_id: BrokerId) -> Collection[int]:
        """The items of which it holds a unit."""
        return self._on[broker_id].keys()

    def squares(self) -> int:
        return sum(self.load(each) ** 2 for each in self.brokers)

    def level(self) -> None:
        """Hands over until the loads are the most even ones and, with such loads, the fewest units are away from home."""
        self._from_most_to_least()
        rows = {each: self.row(each, self.of(each)) for each in self.brokers}
        while (cycle := self._negative_cycle(rows)) is not None:
            touched = set()
            for step in cycle:
                self.hand_over(step)
                touched |= {step.giver, *self.held[step.item]}
            for each in touched:
                rows[each] = self.row(each, self.of(each))

    def hand_over(self, step: HandOver) -> None:
        item, giver, taker = step
        assert taker in self._takers(item, giver, {taker}), step
        self.held[item].remove(giver)
        self.held[item].add(taker)
        del self._on[giver][item]
        self._on[taker][item] = None

    def _from_most_to_least(self) -> None:
        """Who holds most hands over to who holds least and may take, as long as they differ by two."""
        queue = [(-self.load(each), each) for each in self.brokers]
        heapq.heapify(queue)
        offers = {each: iter(tuple(self._on[each])) for each in self.brokers}
        while queue:
            giver = heapq.heappop(queue)[1]
            most = self.load(giver) - 2
            light = {each for each in self.brokers if self.load(each) <= most}
            if not light:
                return  # nobody holds more than this one
            for item in offers[giver]:
                if takers := self._takers(item, giver, light):
                    self.hand_over(HandOver(item, giver, min(takers, key=lambda each: (self.load(each), each))))
                    heapq.heappush(queue, (-self.load(giver), giver))
                    break

    def _away(self, item: int, broker_id: BrokerId) -> int:
        return broker_id not in self._home[item]

    def row(self, giver: BrokerId, items: Iterable[int], among: Set[BrokerId] | None = None) -> Row:
        """The cheapest hand-over of one of these items to each broker (of `among`) to which there is one."""
        best: dict[BrokerId, HandOver] = {}
        arcs: dict[BrokerId, _Arc] = {}
        unmet = {cost: (self._everybody if among is None else among) - {giver} for cost in _COSTS}
        """Who has no offer of at most this cost."""

        def offer(item: int, cost: int, whom: Set[BrokerId]) -> None:
            takers = self._takers(item, giver, whom) if whom else whom
            for taker in takers:
                best[taker] = HandOver(item, giver, taker)
                arcs[taker] = (self._index[giver], self._index[taker], cost)
            for each in _COSTS:
                if takers and each >= cost:
                    unmet[each] -= takers

        settled = []
        for item in items:
            held, home = self.held[item], self._home[item]
            if held == home:
                settled.append(item)
                continue
            if not unmet[-1]:
                break
            away, back = giver not in home, home - held
            if back:
                offer(item, -away, unmet[-away] & back)
            offer(item, 1 - away, unmet[1 - away] - back)
        for item in settled:
            if not unmet[1]:
                break
            offer(item, 1, unmet[1])
        return Row(best, list(arcs.values()))

    def cost(self, step: HandOver) -> int:
        """How many more units are away from home after it: -1, 0 or 1."""
        return self._away(step.item, step.taker) - self._away(step.item, step.giver)

    def _weight(self, steps: Sequence[HandOver], moves_load: bool) -> int:
        """By how much the sum at the top grows."""
        cost = sum(map(self.cost, steps))
        if moves_load:
            cost += self._scale * 2 * (self.load(steps[-1].taker) - self.load(steps[0].giver) + 1)
        return cost

    @property
    def _scale(self) -> int:
        return 2 * len(self.brokers) + 2

    def _negative_cycle(self, rows: Mapping[BrokerId, Row]) -> list[HandOver] | None:
        sink, scale = len(self.brokers), self._scale
        arcs = [row.arcs for row in rows.values()]
        for at, each in enumerate(self.brokers):
            load = self.load(each)
            arcs.append([(at, sink, scale * (2 * load + 1))])
            if load:
                arcs.append([(sink, at, scale * (1 - 2 * load))])
        cycle = negative_cycle(sink + 1, arcs)
        if cycle is None:
            return None
        moves_load = sink in cycle
        if moves_load:
            at = cycle.index(sink)
            way = cycle[at + 1 :] + cycle[:at]
        else:
            way = [*cycle, cycle[0]]
        path = [self.brokers[each] for each in way]
        steps = [rows[giver].best[taker] for giver, taker in pairwise(path)]
        return self._simple(steps, moves_load)

    def _simple(self, steps: list[HandOver], moves_load: bool) -> list[HandOver]:
        """A negative cycle that can be walked: where it passes one item twice it is two cycles, and one of them is negative.

        Two hand-overs of an item get in each other's way only if they share a place in the network, and then each giver
        may as well hand over to the other's taker. Otherwise both can be done.
        """
        seen: dict[int, list[int]] = {}
        for second, step in enumerate(steps):
            for first in seen.setdefault(step.item, []):
                parts = self._parted(steps, first, second)
                if parts is not None:
                    outer, inner = parts
                    if inner and self._weight(inner, moves_load=False) < 0:
                        return self._simple(inner, moves_load=False)
                    return self._simple(outer, moves_load)
            seen[step.item].append(second)
        assert self._weight(steps, moves_load) < 0, steps
        return steps

    def _parted(self, steps: list[HandOver], first: int, second: int) -> tuple[list[HandOver], list[HandOver]] | None:
        """The cycle without what lies between two hand-overs of an item, and what lies between, each closed by the item."""
        before, after = steps[first], steps[second]
        crossed = [HandOver(before.item, before.giver, after.taker), HandOver(before.item, after.giver, before.taker)]
        closing = [[step] if step.giver != step.taker else [] for step in crossed]
        if any(
            step.taker not in self._takers(step.item, step.giver, {step.taker}) for part in closing for step in part
        ):
            return None
        outer = steps[:first] + closing[0] + steps[second + 1 :]
        return outer, steps[first + 1 : second] + closing[1]


def negative_cycle(nodes: int, arcs: Sequence[Sequence[_Arc]]) -> list[int] | None:
    """The nodes of a cycle with a sum below zero, in order; None if there is no such cycle.

    Bellman-Ford from everywhere at once: a cycle of predecessors is negative, and there is one if it does not come to rest.
    """
    distance, before = [0] * nodes, [-1] * nodes
    for _ in range(nodes):
        rests = True
        for start, end, weight in chain.from_iterable(arcs):
            if distance[start] + weight < distance[end]:
                distance[end], before[end], rests = distance[start] + weight, start, False
        if rests:
            return None
        if cycle := _cycle_of(before):
            return cycle
    raise AssertionError("neither at rest nor a cycle")


def _cycle_of(before: Sequence[int]) -> list[int]:
    """A cycle in a graph that has at most one arc into each node (-1: none); empty if there is none."""
    visited = [-1] * len(before)
    for root in range(len(before)):
        node = root
        while node != -1 and visited[node] == -1:
            visited[node] = root
            node = before[node]
        if node != -1 and visited[node] == root:
            cycle = [node]
            while (node := before[node]) != cycle[0]:
                cycle.append(node)
            return cycle[::-1]
    return []
