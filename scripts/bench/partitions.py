"""CREATE and IDLE: what a thousand partitions cost to make, and to have."""

import asyncio
import time
from typing import Final

import psutil

from bench.cluster import REPLICAS, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, against_limit
from tidelog.cluster.api import BROKER

NAMES: Final = ("CREATE", "IDLE")
CREATE_LIMIT_S: Final = 10.0
IDLE_LIMIT_PERCENT: Final = 10.0
SETTLE_S: Final = 3.0
GIVE_UP_S: Final = 120.0


async def create(bench: Bench, cluster: BenchCluster) -> tuple[str, float]:
    """A topic, and the seconds until each of its partitions has acknowledged an acks=all batch."""
    batch = batch_of(16)
    name = f"many-{time.monotonic_ns()}"
    begin = time.perf_counter()
    await cluster.admin.create_topic(name, bench.scale.partitions, REPLICAS)
    async with Probe(name, cluster.addresses) as probe:
        everything = range(bench.scale.partitions)
        acked = await probe.until_acked(everything, batch, step_s=0.02, timeout_s=GIVE_UP_S)
    return name, max(acked.values()) - begin


async def idle_percent(bench: Bench, cluster: BenchCluster) -> list[float]:
    """Of one core, for each broker."""
    await asyncio.sleep(min(SETTLE_S, bench.scale.idle_s))
    pids = [row.pid for row in cluster.local.status() if row.kind == BROKER and row.pid is not None]
    processes = [psutil.Process(pid) for pid in pids]

    def cpu_seconds() -> list[float]:
        return [sum(p.cpu_times()[:2]) for p in processes]

    before, begin = cpu_seconds(), time.perf_counter()
    await asyncio.sleep(bench.scale.idle_s)
    after, took = cpu_seconds(), time.perf_counter() - begin
    return [100 * (b - a) / took for a, b in zip(before, after, strict=True)]


async def run(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    count = bench.scale.partitions
    async with BenchCluster(bench.directory / "cluster") as cluster:
        took: list[float] = []
        names: list[str] = []
        for _ in range(bench.scale.creations if "CREATE" in bench.wanted else 1):
            if names:
                await cluster.admin.delete_topic(names[-1])
            name, seconds = await create(bench, cluster)
            names.append(name)
            took.append(seconds)
            bench.say(f"{count} partitions created, led and in sync in {seconds:.2f} s")
        if "CREATE" in bench.wanted:
            target = f"at most 1 ({count} partitions, {REPLICAS} replicas)"
            lines.append(against_limit("CREATE", took, limit=CREATE_LIMIT_S, unit="s", target=target))
        if "IDLE" in bench.wanted:
            percent = await idle_percent(bench, cluster)
            target = f"at most 1 ({count} idle partitions, each broker)"
            lines.append(against_limit("IDLE", percent, limit=IDLE_LIMIT_PERCENT, unit="% of a core", target=target))
    return lines
