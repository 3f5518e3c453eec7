"""B9 and B9a: a broker leaves in order, with batching against without, and from the controller's own state against re-reading."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from bench import scrape
from bench.cluster import REPLICAS, BenchCluster
from bench.harness import Bench, Line, compared
from bench.many import grow, leaders_of
from tidelog.cluster.api import BROKER, CONTROLLER

NAMES: Final = ("B9", "B9A")
STOP_S: Final = 120.0
LOGGED_S: Final = 10.0
SHUTDOWN: Final = "shutdown"
ONE_BY_ONE: Final = {CONTROLLER: {"multi_max_operations": "1", "control_requests_merged": "false"}}
READING: Final = {CONTROLLER: {"shutdown_reads_states": "true"}}
STAYING_PUT: Final = {"auto_leader_rebalance_enable": "false"}


async def leave(bench: Bench, cluster: BenchCluster, topic: str, name: str) -> float:
    """Seconds from the broker's request to leave until every broker has been told of every partition that moved."""
    before = len(scrape.steps_of(cluster.local, SHUTDOWN))
    await asyncio.to_thread(cluster.local.stop, name, STOP_S)
    async with asyncio.timeout(LOGGED_S):
        while len(found := scrape.steps_of(cluster.local, SHUTDOWN)) == before:  # noqa: ASYNC110 - a log of another process
            await asyncio.sleep(0.05)
    cluster.local.start(name)
    await leaders_of(cluster, topic, alive=REPLICAS, in_sync=True)
    steps = found[before]
    bench.say(f"{name} left: " + ", ".join(f"{step} {ms:.0f} ms" for step, ms in steps.items()))
    return sum(steps.values()) / 1000


async def run(bench: Bench) -> list[Line]:
    count = bench.scale.partitions
    settings = {"batched": {}, "one by one": ONE_BY_ONE, "reading": READING}
    if "B9" not in bench.wanted:
        del settings["one by one"]
    if "B9A" not in bench.wanted:
        del settings["reading"]
    taken: dict[str, list[float]] = {name: [] for name in settings}
    async with AsyncExitStack() as stack:
        clusters: dict[str, tuple[BenchCluster, str]] = {}
        for kind, extra in settings.items():
            merged = {CONTROLLER: {**STAYING_PUT, **extra.get(CONTROLLER, {})}}
            directory = bench.directory / kind.replace(" ", "-")
            cluster = await stack.enter_async_context(BenchCluster(directory, settings=merged))
            clusters[kind] = cluster, await grow(bench, cluster, count)
        for number in range(bench.scale.failovers):
            for kind, (cluster, topic) in clusters.items():
                name = cluster.local.names(BROKER)[number % REPLICAS]
                taken[kind].append(await leave(bench, cluster, topic, name))
    lines: list[Line] = []
    each = f"{count} partitions; request to leave until all is told"
    if "B9" in bench.wanted:
        what = f" with a multi and a request for each partition; {each}"
        lines.append(
            compared(
                *("B9", taken["batched"], taken["one by one"]), unit="ms", times=1e3, target="at most 0.1", what=what
            )
        )
    if "B9A" in bench.wanted:
        what = f" with every state read again first; the documents claim 0.6; {each}"
        lines.append(
            compared(*("B9A", taken["batched"], taken["reading"]), unit="ms", times=1e3, target="reported", what=what)
        )
    return lines
