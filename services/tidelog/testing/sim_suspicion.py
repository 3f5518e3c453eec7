"""Brokers that are taken for dead and live on. Design 3 (Failure detection) calls a wrong suspicion harmless: here it is tried.

A controller that suspects shrinks an ISR by itself, and whom it takes out lives on and may be let in again: but for disks that
recover, nothing else does that. A change that a leader asked for before then meets another ISR than its own, and only its
version tells. `Faults` misleads nobody, since there a closed port is that of a process that has ended. In these runs
nothing else breaks: what one mistake leads to over several steps is not disturbed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.testing.rand import seeded
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.wire import znodes

SHARE: Final = 0.125
"""Of the runs."""

PAUSE_S: Final = (2.0, 8.0)
"""Between two of them; the ISRs may be whole again by then, or not."""

CLOSED_S: Final = (0.2, 1.0)
"""To the controllers, which probe at once."""

APART_S: Final = (1.0, 8.0)
"""From the other brokers: mostly for longer."""

LATE_S: Final = (1.0, 6.0)
"""From the reset on; a suspect's stream must hold for a second at least before it is trusted again."""


class FalseSuspicions(Breaking):
    """In the place of `Faults`, in the runs that `drawn` names."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, seeded(cluster.seed, "false suspicions"))
        self.kinds = {"false suspicion": self._mislead}

    @staticmethod
    def drawn(seed: int) -> bool:
        return seeded(seed, "false suspicion").random() < SHARE

    async def run(self, until: Callable[[], bool]) -> None:
        while not until():
            for kind, act in self.kinds.items():
                self.count[kind] += act()
            await asyncio.sleep(self._between(*PAUSE_S))

    def heal(self) -> None:
        self._over = True
        self._heal_all()

    def _mislead(self) -> bool:
        """The host of one broker resets connections. About then the two others lose each other for as long as a lag is borne,
        and what one of them, who may lead, asks of the controllers comes late. Mostly the controller is deposed meanwhile:
        the next one suspects nobody."""
        suspect, late, third = self._shuffled([node.name for node in self._cluster.brokers])[:3]
        lag_s = self._cluster.timing.lag_ms / 1000
        since_s, away_s = self._between(0.0, 3.0) * lag_s, self._between(0.5, 2.0) * lag_s
        until_s = since_s + self._between(*LATE_S)
        self._later(since_s, partial(self._reset, suspect))
        self._cut_for(away_s, (late, third), (third, late))
        self._cut_for(until_s, *((late, controller.name) for controller in self._cluster.controllers))
        if self._rand.random() < 0.7:
            self._later(self._between(since_s, until_s), partial(self._remove, znodes.CONTROLLER))
        return True

    def _reset(self, suspect: str) -> None:
        """Its links come back one by one."""
        for node in self._cluster.nodes.values():
            if node.name != suspect:
                seconds = self._between(*(CLOSED_S if node in self._cluster.controllers else APART_S))
                self._refuse_for(seconds, (node.name, suspect), (suspect, node.name))
