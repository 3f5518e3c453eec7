"""What everybody who breaks things in a simulated run needs: choices from a stream of the seed, and ends of what was begun."""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from tidelog.ports.rand import Rand
from tidelog.testing.net_exchange import Faults as LinkFaults
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import ZOOKEEPER, SimNode

Ends = tuple[str, str]
"""Source and target of a link."""

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

    def _say(self, text: str, *struck: str, mends: bool = False) -> bool:
        """Tells what is done now, as `World.tell` does; what a `SimNode` is asked to do it tells by itself."""
        self._cluster.world.tell(text, *struck, mends=mends)
        return True

    def _start_one(self, node: SimNode) -> None:
        if node.dead:
            node.start()

    # -- links -------------------------------------------------------------------------------------------------------

    def _say_of(self, links: Sequence[Ends], what: str, *, mends: bool = False) -> None:
        pairs = [
            f"{one} {'<->' if (other, one) in links else '->'} {other}"
            for one, other in links
            if one < other or (other, one) not in links
        ]
        if pairs:
            self._say(f"{what} {', '.join(pairs)}", *dict.fromkeys(chain(*links)), mends=mends)

    def _cut_links(self, *links: Ends) -> None:
        self._say_of([ends for ends in links if self._cluster.network.cut(*ends)], "links are cut:")

    def _cut_for(self, seconds: float, *links: Ends) -> None:
        self._cut_links(*links)
        self._heal_after(seconds, *links)

    def _refuse_for(self, seconds: float, *links: Ends) -> None:
        self._say_of(links, "connections are refused:")
        for ends in links:
            self._cluster.network.refuse(*ends)
        self._heal_after(seconds, *links)

    def _heal_after(self, seconds: float, *links: Ends) -> None:
        """Unless something else has become of a link by then."""
        link = self._cluster.network.link
        changes = {ends: link(*ends).changes for ends in links}
        self._later(seconds, lambda: self._heal(*(ends for ends in links if link(*ends).changes == changes[ends])))

    def _heal(self, *links: Ends) -> None:
        healed = [ends for ends in links if self._cluster.network.heal(*ends)]
        self._say_of(healed, "links are mended:", mends=True)

    def _heal_all(self) -> None:
        self._say_of(self._cluster.network.heal_all(), "links are mended:", mends=True)

    def _disturb_for(self, source: str, target: str, faults: LinkFaults, seconds: float) -> None:
        link = self._cluster.network.link(source, target)
        repeated = ", and some come twice" if faults.duplicate else ""
        self._say(f"messages {source} -> {target} take up to {faults.delay_s[1]:.1f} s{repeated}", source, target)
        link.faults = faults

        def mend() -> None:
            if link.faults != LinkFaults():
                link.faults = LinkFaults()
                self._say(f"messages {source} -> {target} are as usual", source, target, mends=True)

        self._later(seconds, mend)

    # -- ZooKeeper ---------------------------------------------------------------------------------------------------

    def _stop_zookeeper(self) -> None:
        self._say("zookeeper goes down", ZOOKEEPER)
        self._cluster.zookeeper.stop()

    def _remove(self, path: str) -> None:
        """An operator deletes a znode; it is done to the process whose session made it, too."""
        zookeeper = self._cluster.zookeeper
        node = zookeeper.find(path)
        if node is not None:
            owners = (
                each.name
                for each in self._cluster.nodes.values()
                if any(meta.session_id == node.stat.ephemeral_owner for meta in each.sessions)
            )
            self._say(f"{path} is deleted in zookeeper", *owners, ZOOKEEPER)
            zookeeper.remove(path)
