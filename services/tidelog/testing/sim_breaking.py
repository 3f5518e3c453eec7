"""What everybody who breaks things in a simulated run needs: choices from a stream of the seed, and ends of what was begun."""

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tidelog.ports.rand import Rand
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import SimNode

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Breaking:
    """`count` says what was done, by kind. Nothing is begun any more once `_over` is true."""

    kinds: Mapping[str, Callable[[], bool]]
    """What may break in this run: an act says whether it has done anything."""

    def __init__(self, cluster: SimCluster, rand: Rand) -> None:
        self._cluster = cluster
        self._rand = rand
        self._over = False
        self.count: Counter[str] = Counter()

    def _one_of(self, choices: Sequence[T]) -> T:
        return choices[self._rand.randrange(len(choices))]

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._rand.random()

    def _maybe(self) -> bool:
        return self._rand.random() < 0.5

    def _shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        return [left.pop(self._rand.randrange(len(left))) for _ in items]

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        def unless_over() -> None:
            if not self._over:
                act()

        asyncio.get_running_loop().call_later(seconds, unless_over, context=contextvars.Context())

    def _say(self, what: str, *args: object, struck: Iterable[str] = (), mends: bool = False) -> bool:
        """Tells what is done. struck: the processes that it is done to, beside those that `args` name. mends: it ends a fault."""
        text, nodes = what % args, self._cluster.nodes
        _log.info("fault: %s", text)
        named = [each for each in args if isinstance(each, str) and each in nodes]
        self._cluster.world.on_fault(text, tuple(dict.fromkeys([*named, *struck])), mends)
        return True

    def _start_one(self, node: SimNode) -> None:
        if node.dead:
            node.start()
            self._say("start %s", node.name, mends=True)

    def _cut_for(self, source: str, target: str, seconds: float) -> None:
        self._cluster.network.cut(source, target)
        self._heal_after(source, target, seconds)

    def _refuse_for(self, source: str, target: str, seconds: float) -> None:
        self._cluster.network.refuse(source, target)
        self._heal_after(source, target, seconds)

    def _heal_after(self, source: str, target: str, seconds: float) -> None:
        """Unless something else has become of the link by then."""
        network = self._cluster.network
        changes = network.link(source, target).changes
        self._later(
            seconds,
            lambda: network.heal(source, target) if network.link(source, target).changes == changes else None,
        )
