"""A seeded run in which second processes with the id of a registered broker start, while everything else breaks.

It is the story of the cluster and more. A second process has a host of its own, with a copy of the data directory of the first
or an empty one. The first runs, stands still or is out of its reach. Its promises:

* The second process never takes the registration from the first.
* It ends by itself only with a message that names the first, and does so once the first can be reached; until then it waits.

A second process is stopped when the registration of the first ends. A copy of a data directory is older than the original, so
what would follow is no fault of the brokers.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.runtime.tasks import MustEnd
from tidelog.testing import goals
from tidelog.testing.disk import SimDisk
from tidelog.testing.invariants import Violation
from tidelog.testing.meta_tree import Change
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_node import SimNode, World
from tidelog.testing.sim_story import HEAL_S, Run, within
from tidelog.wire import znodes

WAIT_S: Final = 1.5
"""Longer than a process that answers is asked."""
LIFE_S: Final = (2.0, 8.0)
"""Longest life of a second process that waits."""


class Twin(SimNode):
    """The host of a second process with a broker's id. No fault acts on it, and no controller knows it."""

    def __init__(self, world: World, first: SimNode, disk: SimDisk, *, reached: bool) -> None:
        super().__init__(world, f"twin-{first.number}")
        self.first = first
        self.disk = disk
        self.reached = reached
        """Reach of the first process: False where a cut or a pause prevents it on purpose."""
        self.registered_as = str(first.address)
        self.began_at = asyncio.get_running_loop().time()

    @property
    def is_broker(self) -> bool:
        return True


class Twins:
    """Second processes that run, one of each broker at most."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._running: dict[str, Twin] = {}
        """Second process of each registration, by its path."""
        self._violation: Violation | None = None
        self._others = cluster.zookeeper.on_commit
        cluster.zookeeper.on_commit = self._on_commit
        self._others_gone = cluster.world.on_gone
        cluster.world.on_gone = self._gone

    def after_step(self) -> None:
        if self._violation is not None:
            raise self._violation

    def begin(self, first: SimNode, *, copies: bool, reached: bool) -> Twin | None:
        """None while that broker is not registered, or has a second process."""
        path = znodes.broker_path(first.number)
        node, meta = self._cluster.zookeeper.find(path), first.meta
        if path in self._running or node is None or meta is None or node.stat.ephemeral_owner != meta.session_id:
            return None
        disk = first.disk.copied() if copies else SimDisk(traced=False)
        twin = self._running[path] = Twin(self._cluster.world, first, disk, reached=reached)
        twin.starts = first.starts  # another stream of random numbers each time
        self._cluster.world.tell(f"{twin.name}, a second process of {first.name}, starts", twin.name, first.name)
        self._cluster.world.others[twin.name] = twin
        twin.start()
        return twin

    def end(self, twin: Twin) -> None:
        path = znodes.broker_path(twin.number)
        if self._running.get(path) is twin:
            del self._running[path]
            waited = asyncio.get_running_loop().time() - twin.began_at > WAIT_S
            self._cluster.observer.reached[goals.SECOND_WAITED] += waited and not twin.reached
            twin.kill()
            del self._cluster.world.others[twin.name]

    def look(self) -> None:
        """Ends those that have ended by themselves. Violation."""
        for twin in list(self._running.values()):
            assert twin.process is not None
            supervisor = twin.process.supervisor
            if not supervisor.failures:
                continue
            cause = None if supervisor.failure is None else supervisor.failure.__cause__
            if not isinstance(cause, MustEnd) or twin.registered_as not in cause.message:
                raise Violation(
                    f"second process: {twin.name} ended by itself, and not for the first: {supervisor.failure}"
                )
            self._cluster.observer.reached[goals.SECOND_ENDED] += 1
            self.end(twin)

    def _on_commit(self, changes: Sequence[Change]) -> None:
        if self._others is not None:
            self._others(changes)
        for path, node in changes:
            twin = self._running.get(path)
            if twin is None or node is not None:
                continue
            writer = self._cluster.zookeeper.writer  # 0: a session has ended
            if twin.meta is not None and writer == twin.meta.session_id != 0:
                self._violation = self._violation or Violation(
                    f"second process: {twin.name} takes {path} from {twin.registered_as}"
                )
            self._end_soon(twin)

    def _gone(self, node: SimNode) -> None:
        self._others_gone(node)
        for twin in self._running.values():
            if twin.first is node:
                self._end_soon(twin)

    def _end_soon(self, twin: Twin) -> None:
        asyncio.get_running_loop().call_soon(self.end, twin, context=contextvars.Context())


class TwinFaults(Faults):
    """All kinds of faults, and second processes."""

    DAMAGE_SHARE = ROT_SHARE = 0.0
    """A registration that is deleted is free for the second process, and the first ends then."""

    def __init__(self, cluster: SimCluster, twins: Twins) -> None:
        self._twins = twins
        super().__init__(cluster)

    def _breaking(self) -> dict[str, Callable[[], bool]]:
        return {**super()._breaking(), "second process": self._begin}

    def _drawn(self, kinds: Sequence[str]) -> Sequence[str]:
        return ["second process", *super()._drawn(kinds)]

    def _begin(self) -> bool:
        node = self._pick(self._awake(brokers_only=True))
        how, copies, life_s = self._rand.randrange(3), self._maybe(), self._between(*LIFE_S)
        if node is None or (twin := self._twins.begin(node, copies=copies, reached=how == 0)) is None:
            return False
        if how == 1:
            # For less than a session lasts.
            self._pause_for(node, self._between(0.3, 0.6) * self._cluster.timing.session_ms / 1000)
        elif how == 2:
            self._cut_for(life_s, (twin.name, node.name))
        self._later(life_s, lambda: self._twins.end(twin))
        return True


class TwinRun(Run):
    def __init__(self, seed: int) -> None:
        self._twins: Twins | None = None
        super().__init__(seed)

    @property
    def twins(self) -> Twins:
        if self._twins is None:
            self._twins = Twins(self.cluster)
        return self._twins

    def _faults(self) -> TwinFaults:
        return TwinFaults(self.cluster, self.twins)

    def _checks(self) -> tuple[Callable[[], None], ...]:
        return *super()._checks(), self.twins.after_step

    async def _consume(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._consume())
            tasks.create_task(self._mind())

    async def _mind(self) -> None:
        while not self._stop.is_set():
            self.twins.look()
            await asyncio.sleep(0.1)

    async def _until_converged(self) -> frozenset[TopicPartition]:
        vetoed = await super()._until_converged()
        before = self.cluster.observer.reached[goals.SECOND_ENDED]
        first = self.cluster.brokers[self.seed % len(self.cluster.brokers)]
        async with within(HEAL_S, "a second process did not end, and nothing is broken"):
            while self.cluster.observer.reached[goals.SECOND_ENDED] == before:
                self.twins.begin(first, copies=self.seed % 2 == 0, reached=True)
                await asyncio.sleep(0.2)
        return vetoed
