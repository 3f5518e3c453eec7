"""Disks that answer late for a while: reads, appends or syncs of one broker take up to some seconds each.

Work beside the event loop waits for them, and nothing else does. A call on the loop holds up the whole process, as it does in
production: nothing of it runs, and its peers hear nothing of it. When the disk answers as usual again, everything goes on.
"""

from functools import partial
from typing import Final

from tidelog.testing.disk import SimDisk
from tidelog.testing.rand import seeded
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import SimNode

SHARE: Final = 0.5
"""Share of the runs with this fault."""
OPS: Final = {
    "reads": ("pread", "read", "open", "list_dir"),
    "appends": ("append",),
    "syncs": ("sync", "sync_dir"),
}
"""Operations that are slow together, by name."""
TAKES_S: Final = ((0.01, 0.1), (0.1, 0.6), (0.5, 3.0))
"""Ranges for the time that an operation takes."""
LASTS_S: Final = (0.5, 6.0)


class SlowDisks(Breaking):
    """Draws from a stream of its own: runs without this fault are what they were before there was one."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, seeded(cluster.seed, "slow disks"))
        self.drawn = self._rand.random() < SHARE

    def strike(self) -> bool:
        node = self._one_of(self._cluster.brokers)
        if node.disk.is_slow:
            return False
        chosen = [name for name in OPS if self._maybe()] or ["syncs"]
        seconds, lasts_s = self._between(*self._one_of(TAKES_S)), self._between(*LASTS_S)
        self._say(f"the {', '.join(chosen)} of {node.name} take {seconds:.2g} s each", node.name)
        node.disk.slow_down([op for name in chosen for op in OPS[name]], seconds, lasts_s)
        self._later(lasts_s, partial(self._quicken, node, node.disk))
        return True

    def heal(self) -> None:
        for node in self._cluster.brokers:
            self._quicken(node, node.disk)

    def _quicken(self, node: SimNode, disk: SimDisk) -> None:
        if disk is node.disk and disk.is_slow:
            self._say(f"the disk of {node.name} answers as usual", node.name, mends=True)
            disk.quicken()
