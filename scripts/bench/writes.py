"""B8: partition states a second through the controller's fenced multis, against one conditional write after the other."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, Final

from bench.harness import Bench, Line, compared, take_turns
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.zookeeper import EmbeddedZooKeeper, ServerFiles
from tidelog.config import ControllerSettings
from tidelog.controller.effects import Outcome, StateWrite, TopicWrite, WriteGroup
from tidelog.controller.model import PartitionState
from tidelog.controller.operations import operations
from tidelog.controller.store import FencedStore, Results
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.ports.meta import Create
from tidelog.runtime import zk_patterns
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.zk import ZkMeta
from tidelog.wire import messages as m
from tidelog.wire import znodes

NAMES: Final = ("B8",)
TOPIC: Final = "written"
ISR: Final = tuple(m.IsrMember(broker_id=BrokerId(n), broker_epoch=1_000 + n) for n in range(3))


class Writer:
    """States of the partitions of one topic, each version after the other."""

    def __init__(self, meta: ZkMeta, store: FencedStore, partitions: int) -> None:
        self._meta = meta
        self._store = store
        self._partitions = partitions
        self._versions = [-1] * partitions
        self._unwritten = 0
        self._all_written = asyncio.Event()
        self._turn = itertools.cycle(range(partitions))

    def _next(self, partition: int) -> StateWrite:
        self._versions[partition] += 1
        version = self._versions[partition]
        state = PartitionState(BrokerId(version % 3), version, ISR, 1, version)
        return StateWrite(TopicPartition(TOPIC, partition), state)

    def written(self, results: Results) -> None:
        for group, outcome in results:
            if outcome is not Outcome.WRITTEN:
                raise RuntimeError(f"{group}: {outcome.value}")
        self._unwritten -= len(results)
        if not self._unwritten:
            self._all_written.set()

    async def submit(self, groups: list[WriteGroup]) -> None:
        """Returns when all of them are written."""
        self._unwritten = len(groups)
        self._all_written.clear()
        self._store.submit(groups)
        await self._all_written.wait()

    async def create(self) -> None:
        await self.submit([TopicWrite(TOPIC, b"\x01" * 16, ((BrokerId(0),),) * self._partitions, {})])
        await self.submit([self._next(partition) for partition in range(self._partitions)])

    async def fenced(self, seconds: float) -> float:
        """States a second, all partitions at once, as after the death of a broker."""
        clock = SystemClock()
        begin, count = clock.now(), 0
        while clock.now() - begin < seconds:
            await self.submit([self._next(partition) for partition in range(self._partitions)])
            count += self._partitions
        return count / (clock.now() - begin)

    async def one_by_one(self, seconds: float) -> float:
        """States a second where each write waits for the one before it."""
        clock = SystemClock()
        begin, count = clock.now(), 0
        while clock.now() - begin < seconds:
            await self._meta.multi(operations(self._next(next(self._turn))))
            count += 1
        return count / (clock.now() - begin)


async def compare(bench: Bench, meta: ZkMeta, group: asyncio.TaskGroup) -> dict[str, list[float]]:
    for path in (*znodes.PERSISTENT_PARENTS, zk_patterns.parent(znodes.CONTROLLER_EPOCH)):
        await zk_patterns.ensure_path(meta, path)
    await meta.multi([Create(znodes.CONTROLLER_EPOCH, b"1")])
    writers: list[Writer] = []
    store = FencedStore(
        meta,
        SystemClock(),
        0,
        lambda name, coro: group.create_task(coro, name=name),
        lambda results: writers[0].written(results),
        multi_max_operations=ControllerSettings.multi_max_operations,
        multi_max_bytes=ControllerSettings.multi_max_bytes,
    )
    writers.append(Writer(meta, store, bench.scale.many_partitions))
    running = group.create_task(store.run())
    await writers[0].create()
    try:
        return await take_turns(
            bench, {"one by one": writers[0].one_by_one, "fenced": writers[0].fenced}, references=("one by one",)
        )
    finally:
        running.cancel()


async def run(bench: Bench) -> list[Line]:
    (port,) = free_ports(1)
    server = EmbeddedZooKeeper(ServerFiles(bench.directory / "zookeeper", Address("127.0.0.1", port)))
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(server.wait_ready)
        async with asyncio.TaskGroup() as group:

            def spawn(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
                tasks.append(group.create_task(coroutine, name=name))

            tasks: list[asyncio.Task[None]] = []
            meta = ZkMeta(str(server.address), session_timeout_s=6.0, spawn=spawn)
            await meta.start()
            taken = await compare(bench, meta, group)
            await meta.close()
            for task in tasks:
                task.cancel()
    finally:
        await asyncio.to_thread(server.stop)
    count = bench.scale.many_partitions
    what = f" one after the other; ours: {count} conditional states at a time in fenced multis"
    return [compared("B8", taken["fenced"], taken["one by one"], unit="states/s", target="at least 20", what=what)]
