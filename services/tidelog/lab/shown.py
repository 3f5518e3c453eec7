"""A simulated cluster that is looked at: everything that happens in it, and pictures of it. Nothing in it changes by that."""

from tidelog.lab.steps import Act, Steps
from tidelog.lab.view import View
from tidelog.testing.drive import Drive
from tidelog.testing.group_watch import GroupWatch
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import SimNode


class Shown:
    """groups: the consumer groups of the cluster; None where there are none."""

    def __init__(self, sim: SimCluster, groups: GroupWatch | None, drive: Drive) -> None:
        self.sim = sim
        self.now = drive.loop.time
        self.steps = Steps()
        sim.world.make_ring = self.steps.ring
        self.view = View(sim, groups, drive)
        gone = sim.world.on_gone

        def on_gone(node: SimNode) -> None:
            self.view.remember(node)
            gone(node)
            drive.keep_remains(node.process)

        sim.world.on_gone = on_gone

    def say(self, text: str, *struck: str, mends: bool = False) -> None:
        """struck: the processes that it happens to. mends: it is the end of a fault."""
        self.steps.add(Act(self.now(), text, struck=struck, mends=mends))
