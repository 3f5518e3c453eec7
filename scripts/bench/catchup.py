"""B15: a follower that comes back with a gap: how fast it closes it, and what that costs those who write meanwhile."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from bench import scrape
from bench.bare import BareServer
from bench.cluster import BATCH_BYTES, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, Note, compared
from bench.throughput import MB, WINDOW
from tidelog.cluster.api import broker_name
from tidelog.ids import BrokerId

NAMES: Final = ("B15",)
DOCUMENTED_GAP_BYTES: Final = 1 << 30
FOLLOWER: Final = BrokerId(2)
ASSIGNMENT: Final = ((BrokerId(0), BrokerId(1), FOLLOWER), (BrokerId(1), BrokerId(0), FOLLOWER))
"""The follower leads nothing, so that its death is nobody's failover."""
POLL_S: Final = 0.02
GIVE_UP_S: Final = 120.0


@dataclass(slots=True)
class Taken:
    catch_up: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    into_isr_s: list[float] = field(default_factory=list)


async def received(cluster: BenchCluster) -> float:
    """Bytes that the follower has replicated in this life; 0 while it starts."""
    try:
        samples = await scrape.metrics(cluster.local, broker_name(FOLLOWER))
    except OSError:
        return 0.0
    return scrape.value(samples, "tidelog_replication_bytes_total", direction="in")


async def in_sync(cluster: BenchCluster, topic: str, members: int) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            found = await cluster.admin.describe_topic(topic)
            if all(len(p.isr) == members for p in found.partitions):
                return
            await asyncio.sleep(POLL_S)


async def fill(probe: Probe, batch: bytes, gap_bytes: int) -> int:
    """Writes about `gap_bytes` that one of the replicas does not get; returns how many."""
    count = max(1, gap_bytes // len(batch))
    await probe.fill(batch, count, WINDOW)
    return count * len(batch)


async def come_back(cluster: BenchCluster, topic: str, gap_bytes: int) -> tuple[float, float]:
    """Bytes a second from the first to the last of the gap; then seconds until it is in every ISR."""
    cluster.local.start(broker_name(FOLLOWER))
    first_at, first_bytes = 0.0, 0.0
    async with asyncio.timeout(GIVE_UP_S):
        while (here := await received(cluster)) < gap_bytes:
            if here and not first_at:
                first_at, first_bytes = time.perf_counter(), here
            await asyncio.sleep(POLL_S)
    caught_up_at = time.perf_counter()
    await in_sync(cluster, topic, len(ASSIGNMENT[0]))
    # A gap that came between two looks was faster than this can tell; then the look before is the beginning.
    took_s = caught_up_at - (first_at or caught_up_at - POLL_S)
    return (here - (first_bytes if first_at else 0.0)) / took_s, time.perf_counter() - caught_up_at


async def one_round(bench: Bench, cluster: BenchCluster, bare: BareServer, batch: bytes, taken: Taken) -> None:
    gap, seconds = bench.scale.gap_bytes, bench.scale.seconds
    topic = f"gap-{len(taken.bare)}"
    await cluster.admin.create_topic(topic, assignment=ASSIGNMENT)
    await in_sync(cluster, topic, len(ASSIGNMENT[0]))
    async with Probe(topic, cluster.addresses[: len(ASSIGNMENT)]) as probe:
        await probe.wait_known(len(ASSIGNMENT))
        taken.before.append(await probe.rate(batch, WINDOW, seconds))
        taken.bare.append(await bare.stream_rate(batch, WINDOW, seconds))
        cluster.local.kill(broker_name(FOLLOWER))
        rate, into_isr_s = await come_back(cluster, topic, await fill(probe, batch, gap))
        taken.catch_up.append(rate)
        taken.into_isr_s.append(into_isr_s)
        cluster.local.kill(broker_name(FOLLOWER))
        returning = asyncio.create_task(come_back(cluster, topic, await fill(probe, batch, gap)))
        while not returning.done() and not await received(cluster):  # noqa: ASYNC110 - another process is polled
            await asyncio.sleep(POLL_S)
        acked, began_at = 0.0, time.perf_counter()
        while not returning.done():
            slice_s = min(seconds, 0.25)
            acked += await probe.rate(batch, WINDOW, slice_s) * slice_s
        taken.during.append(acked / (time.perf_counter() - began_at))
        await returning
    await cluster.admin.delete_topic(topic)
    bench.say(
        f"before {taken.before[-1] * MB:.4g}, during {taken.during[-1] * MB:.4g}, catch-up {rate * MB:.4g}, "
        f"bare stream {taken.bare[-1] * MB:.4g} MB/s; in every ISR {into_isr_s * 1000:.0f} ms after the last byte"
    )


async def run(bench: Bench) -> list[Line]:
    batch, taken = batch_of(BATCH_BYTES), Taken()
    async with BenchCluster(bench.directory / "cluster") as cluster, BareServer() as bare:
        for _ in range(bench.scale.failovers):
            await one_round(bench, cluster, bare, batch, taken)
    gap = bench.scale.gap_bytes
    scaled = f"gap {gap >> 20} MiB"
    if gap != DOCUMENTED_GAP_BYTES:
        scaled += f", scaled down from {DOCUMENTED_GAP_BYTES >> 20} MiB"
    return [
        Note(f"B15 last byte to every ISR: {', '.join(f'{s * 1000:.0f} ms' for s in taken.into_isr_s)}"),
        compared(
            *("B15", taken.catch_up, taken.bare),
            unit="MB/s",
            times=MB,
            target="at least 0.5",
            what=f" of a bare stream; {scaled}, nobody writes",
        ),
        compared(
            *("B15-produce", taken.during, taken.before),
            unit="MB/s",
            times=MB,
            target="at least 0.6",
            what=f" before; ours: acks=all while the follower closes its gap ({scaled})",
        ),
    ]
