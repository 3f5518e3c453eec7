"""A seeded run in which partitions move between four brokers while everything breaks (L26): plans, other plans over them,
cancellations, brokers that are drained and brokers that get their share, with a throttle, another one, or none.

It is the story of the cluster and more. When everything is healed each move has come to its end, and no broker has a copy of
what it is no replica of.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.reassignments import Throttle
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing import goals
from tidelog.testing.rand import seeded
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_story import HEAL_S, Run, within
from tidelog.wire import znodes

BROKERS: Final = 4
PACES_S: Final = (0.1, 0.5, 2.0)
THROTTLES: Final = (None, Throttle(-1, -1), Throttle(5_000, 0), Throttle(0, 5_000), Throttle(20_000, 50_000))
"""Of plans. The logs have tens of kilobytes: some copies wait, and all of them arrive while the cluster heals."""


class MoveRun(Run):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rand = seeded(seed, "moves")
        self._throttles = seeded(seed, "throttles")
        self._pace_s = PACES_S[self._rand.randrange(len(PACES_S))]
        self._began: dict[TopicPartition, int] = {}
        """The controller epoch under which each move was last seen."""

    def _made(self, seed: int) -> SimCluster:
        return SimCluster(seed, brokers=BROKERS)

    async def _churn(self) -> None:
        """The topics that stay move; one that comes and goes is moved too."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._churn())
            tasks.create_task(self._move())

    async def _move(self) -> None:
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports("mover"))
        async with admin:
            while not self._idle.is_set():
                await asyncio.sleep(self._pace_s * (0.2 + 1.6 * self._rand.random()))
                await self._try(self._act, admin)
            async with within(HEAL_S, "a drain was not undone"):
                while not await self._try(self._undrain, admin):  # noqa: ASYNC110 - the cluster is polled
                    await asyncio.sleep(self._pace_s)

    async def _try(self, act: Callable[[Admin], Awaitable[None]], admin: Admin) -> bool:
        """False: it was refused, or nobody knows. Both may happen to an operator."""
        try:
            await act(admin)
        except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
            return False
        return True

    async def _act(self, admin: Admin) -> None:
        drawn = self._rand.random()
        moving = await admin.reassignments.list()
        self._remember(set(moving))
        if drawn < 0.1 and moving:
            await admin.reassignments.cancel(moving)
        elif drawn < 0.2:
            broker = self._rand.randrange(BROKERS)
            await admin.reassignments.drain([broker], replace=self._maybe(), throttle=self._throttle())
        elif drawn < 0.3:
            await self._undrain(admin)
        elif drawn < 0.4:
            broker = self._rand.randrange(BROKERS)
            await admin.reassignments.add_brokers([broker], replace=self._maybe(), throttle=self._throttle())
        else:
            partitions = [*self._partitions, TopicPartition("churn", 0)] if self._maybe() else self._partitions
            plan = {tp: self._row() for tp in partitions if self._maybe()}
            if plan:
                await admin.reassignments.alter(plan, replace=self._maybe(), throttle=self._throttle())

    def _row(self) -> tuple[int, ...]:
        """Not of one replica: power may fail, and then nobody else has what it had acknowledged."""
        brokers = list(range(BROKERS))
        size = (2, 3, 3, 3, 4)[self._rand.randrange(5)]
        return tuple(brokers.pop(self._rand.randrange(len(brokers))) for _ in range(size))

    def _throttle(self) -> Throttle | None:
        return THROTTLES[self._throttles.randrange(len(THROTTLES))]

    def _maybe(self) -> bool:
        return self._rand.random() < 0.5

    def _remember(self, moving: set[TopicPartition]) -> None:
        node = self.cluster.zookeeper.find(znodes.CONTROLLER_EPOCH)
        epoch = -1 if node is None else znodes.decode_controller_epoch(node.data)
        reached = self.cluster.observer.reached
        for tp in moving:
            reached[goals.MOVE_OUTLIVED] += self._began.get(tp, epoch) != epoch
            self._began[tp] = epoch
        for tp in self._began.keys() - moving:
            del self._began[tp]
            reached[goals.MOVED] += 1

    async def _undrain(self, admin: Admin) -> None:
        """Until it is done: who is drained gets nothing, and what is added later may need everybody."""
        while ids := [each.broker_id for each in (await admin.describe_cluster()).draining]:
            await admin.reassignments.undrain(ids)

    async def _until_converged(self) -> frozenset[TopicPartition]:
        vetoed = await super()._until_converged()
        # The last copy may have come in sync a moment ago, and the controller has yet to end the move.
        async with within(HEAL_S, "with every replica in sync a move did not end"):
            while self._moving() & set(self._partitions) - vetoed or not self.cluster.converged(except_for=vetoed):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        async with within(HEAL_S, "a throttle has outlived the last move"):
            while self._throttled() and not self._moving():  # noqa: ASYNC110 - the controller looks from time to time
                await asyncio.sleep(0.5)
        return vetoed

    def _throttled(self) -> bool:
        node = self.cluster.zookeeper.find(znodes.PLACEMENT)
        placement = znodes.StoredPlacement() if node is None else znodes.decode_placement(node.data)
        return bool(placement.leader_throttle or placement.follower_throttle)

    def _moving(self) -> set[TopicPartition]:
        """By what is stored; one that waits for an operator goes on."""
        found = (path.rpartition("/") for path in self.cluster.zookeeper.dump())
        topics = [name for parent, _, name in found if parent == znodes.TOPICS]
        nodes = ((name, self.cluster.zookeeper.find(znodes.topic_path(name))) for name in topics)
        return {
            TopicPartition(name, partition)
            for name, node in nodes
            if node is not None
            for partition in znodes.decode_topic(name, node.data).moves
        }
