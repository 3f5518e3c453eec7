"""STW: what members that a rebalance does not concern process while a group is rebalanced, incremental against eager."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from typing import Final

from bench.cluster import ALL, BenchCluster, Probe
from bench.harness import Bench, Line, Note, compared, take_turns
from tidelog.client.consumer import Consumer
from tidelog.client.records import Record, encode_batch
from tidelog.cluster.api import BROKER

NAMES: Final = ("STW",)
KINDS: Final = ("incremental", "eager")
READERS: Final = 5
AT_ONCE: Final = 20
"""Records of one poll."""
WORK_S: Final = 0.02
"""For so many: a member processes a thousand records a second, and the machine is not busy."""
RECORDS: Final = 1_000
"""In a batch."""
GIVE_UP_S: Final = 60.0


class Group:
    """Members that read a topic of their own, and two that share another one, of which one comes and goes."""

    def __init__(self, cluster: BenchCluster, topic: str, other: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._other = other
        self._processed = 0
        self._names = itertools.count()
        self.rebalances = 0

    def _member(self, topic: str) -> Consumer:
        return Consumer(
            self._cluster.bootstrap,
            group="stw",
            topics=[topic],
            consumer_id=f"member-{next(self._names):06}",
            session_timeout_ms=10_000,
        )

    async def read(self) -> None:
        """One of those that nothing changes for."""
        async with self._member(self._topic) as member:
            while True:
                records = await member.poll(AT_ONCE)
                await asyncio.sleep(WORK_S * len(records) / AT_ONCE)
                self._processed += len(records)

    async def stay(self) -> None:
        """The one that is left the other topic when the last one goes."""
        async with self._member(self._other) as member:
            while True:
                await member.poll()

    async def come_and_go(self) -> None:
        while True:
            async with self._member(self._other) as member:
                while not member.assignment:
                    await member.poll(timeout_s=0.01)
            self.rebalances += 2

    async def settled(self) -> None:
        """Until every reader has something to read."""
        async with asyncio.timeout(GIVE_UP_S):
            while await self.calm(0.5) < READERS * AT_ONCE / WORK_S / 2:
                pass

    async def calm(self, seconds: float) -> float:
        """Records a second."""
        before, began_at = self._processed, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self._processed - before) / (time.perf_counter() - began_at)

    async def rebalanced(self, seconds: float) -> float:
        """The same, with one rebalance after the other."""
        turmoil = asyncio.create_task(self.come_and_go())
        try:
            return await self.calm(seconds)
        finally:
            turmoil.cancel()
            await asyncio.gather(turmoil, return_exceptions=True)


async def fill(bench: Bench, cluster: BenchCluster) -> str:
    """A topic with more than can be processed in the time."""
    scale = bench.scale
    batch = encode_batch(Record(None, b"x" * 20, (), 1_700_000_000_000) for _ in range(RECORDS))
    seconds = 10 + 4 * (scale.warm_up_s + (scale.rounds + 1) * scale.seconds)
    topic = await cluster.new_topic(READERS, replicas=1)
    async with Probe(topic, cluster.addresses) as probe:
        await probe.wait_known(READERS)
        for _ in range(1 + int(seconds / WORK_S * AT_ONCE / RECORDS)):
            for partition in range(READERS):
                await probe.must_produce(partition, batch, ALL)
    return topic


async def run(bench: Bench) -> list[Line]:
    async with AsyncExitStack() as stack:
        clusters = {
            kind: BenchCluster(bench.directory / kind, brokers=1, settings={BROKER: {"group_rebalance": kind}})
            for kind in KINDS
        }
        for (
            cluster
        ) in clusters.values():  # both before anything is asked: a start has an event loop of its own beside ours
            await stack.enter_async_context(cluster)
        groups = {
            kind: Group(cluster, await fill(bench, cluster), await cluster.new_topic(2, replicas=1))
            for kind, cluster in clusters.items()
        }
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        running = [
            tasks.create_task(coroutine)
            for group in groups.values()
            for coroutine in (group.stay(), *(group.read() for _ in range(READERS)))
        ]
        for group in groups.values():
            await group.settled()
        measures = {kind: group.rebalanced for kind, group in groups.items()}
        taken = await take_turns(bench, {"calm": groups["incremental"].calm, **measures}, ("eager",))
        for task in running:
            task.cancel()
    counted = ", ".join(f"{kind} {group.rebalances}" for kind, group in groups.items())
    calm = ", ".join(f"{kind} {sum(taken[kind]) / sum(taken['calm']):.2f}" for kind in KINDS)
    what = " where everybody stops"
    return [
        Note(f"STW rebalances: {counted}; of the rate without any: {calm}"),
        compared(*("STW", taken["incremental"], taken["eager"]), unit="records/s", target="reported", what=what),
    ]
