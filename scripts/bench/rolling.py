"""ROLL: each broker is stopped in order and started again, one after the other, under a light load on a thousand partitions."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from bench.cluster import REPLICAS, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, Note, against_limit
from bench.many import grow, leaders_of, sample_of
from bench.scrape import zxid
from tidelog.cluster.api import BROKER
from tidelog.errors import TransportError
from tidelog.ids import BrokerId

NAMES: Final = ("ROLL",)
LIMIT_S: Final = 0.5
PROBE_S: Final = 1.0
"""After so long an unanswered probe of one group is asked again; shorter and a slow machine would only be asked more."""
PAUSE_S: Final = 0.02
STOP_S: Final = 60.0


class Watch:
    """Writes to a sample of partitions all the time, and keeps the longest pause between two acks of one partition."""

    def __init__(self, probe: Probe, sample: Sequence[int]) -> None:
        self._probe = probe
        self._sample = sample
        self._batch = batch_of(16)
        self._acked_at: dict[int, float] = {}
        self.worst_s = 0.0
        self.worst_of = -1
        self.rounds = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            by_leader: dict[BrokerId, list[int]] = defaultdict(list)
            for partition in self._sample:
                if partition in self._probe.leaders:
                    by_leader[self._probe.leaders[partition]].append(partition)
            answers = await asyncio.gather(*(self._ask(group) for group in by_leader.values()))
            self.rounds += 1
            if not all(answers) or sum(len(group) for group in by_leader.values()) < len(self._sample):
                await self._probe.refresh(PROBE_S)
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, group: list[int]) -> bool:
        try:
            acked = await self._probe.produce(group, self._batch, PROBE_S)
        except TransportError:
            return False
        now = time.perf_counter()
        for partition in acked:
            self._saw(partition, now)
        return len(acked) == len(group)

    def _saw(self, partition: int, now: float) -> None:
        paused_s = now - self._acked_at.get(partition, now)
        self._acked_at[partition] = now
        if paused_s > self.worst_s:
            self.worst_s, self.worst_of = paused_s, partition

    def reset(self) -> None:
        """A new measurement: the pause that lasts now counts for it."""
        self.worst_s, self.worst_of, self.rounds = 0.0, -1, 0

    def close(self) -> None:
        """What has not been acknowledged since its last ack has waited until now."""
        now = time.perf_counter()
        for partition in self._sample:
            self._saw(partition, now)


async def restart(bench: Bench, cluster: BenchCluster, topic: str, name: str, watch: Watch) -> tuple[float, int]:
    """The longest pause of a partition in seconds, and ZooKeeper's transactions, until the broker is in every ISR again."""
    zxid_before, began_at = zxid(cluster.local), time.perf_counter()
    watch.reset()
    await asyncio.to_thread(cluster.local.stop, name, STOP_S)
    stopped_at = time.perf_counter()
    worst_of_stop = watch.worst_s
    cluster.local.start(name)
    await leaders_of(cluster, topic, alive=REPLICAS, in_sync=True)
    watch.close()
    writes = zxid(cluster.local) - zxid_before
    bench.say(
        f"{name}: stopped in {stopped_at - began_at:.2f} s, in every ISR after {time.perf_counter() - began_at:.2f} s; "
        f"{writes} ZooKeeper writes; longest pause {watch.worst_s * 1000:.0f} ms ({worst_of_stop * 1000:.0f} ms by the "
        f"end of the stop), partition {watch.worst_of}, {watch.rounds} rounds of probes"
    )
    return watch.worst_s, writes


async def run(bench: Bench) -> list[Line]:
    count = bench.scale.partitions
    async with BenchCluster(bench.directory / "cluster") as cluster:
        topic = await grow(bench, cluster, count)
        async with Probe(topic, cluster.addresses) as probe:
            await probe.wait_known(count)
            watch = Watch(probe, sample_of(range(count)))
            watching = asyncio.create_task(watch.run())
            try:
                await asyncio.sleep(bench.scale.warm_up_s)
                quiet_from, zxid_before = time.perf_counter(), zxid(cluster.local)
                watch.reset()
                await asyncio.sleep(bench.scale.seconds)
                watch.close()
                quiet_s, idle = watch.worst_s, zxid(cluster.local) - zxid_before
                per_s = idle / (time.perf_counter() - quiet_from)
                done = [await restart(bench, cluster, topic, name, watch) for name in cluster.local.names(BROKER)]
            finally:
                watching.cancel()
                await asyncio.wait([watching])
        if not watching.cancelled() and (error := watching.exception()) is not None:
            raise error
    writes = ", ".join(str(n) for _, n in done)
    return [
        Note(f"ROLL ZooKeeper writes for each restart: {writes} (a multi counts as one); idle {per_s:.2g} a second"),
        Note(f"ROLL longest pause of a partition while nothing happens: {quiet_s * 1000:.0f} ms"),
        against_limit(
            "ROLL",
            [seconds for seconds, _ in done],
            limit=LIMIT_S,
            unit="s",
            target=f"at most 1 (longest time that one of {len(sample_of(range(count)))} probed partitions of {count} "
            "took no acks=all)",
        ),
    ]
