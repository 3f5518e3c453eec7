"""REASSIGN: 100 partitions move to an empty broker: how fast, and what who writes meanwhile waits, without and with a throttle.

Two brokers hold two copies of each partition; one of the copies, of every second partition from either leader, moves to the
third broker and back. The load is another topic's, on all three brokers, at a share of what the cluster takes at most, and each
of its requests counts from when it was due. A throttled move is watched for a while and then freed.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.bare import BareServer
from bench.cluster import BATCH_BYTES, REPLICAS, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, compared, percentile
from bench.latency import MS
from bench.throughput import MB, WINDOW
from tidelog.client.reassignments import Throttle
from tidelog.cluster.api import broker_name
from tidelog.ids import TopicPartition

NAMES: Final = ("REASSIGN",)
HOME: Final = ((0, 1), (1, 0))
AWAY: Final = ((0, 2), (1, 2))
"""By turns; the leaders stay, so that what is measured is the copy."""
LOAD_SHARE: Final = 0.25
"""Of what three replicas take at most."""
THROTTLE_SHARE: Final = 0.25
"""Of the rate without a throttle."""
UNTHROTTLED: Final = Throttle(-1, -1)
POLL_S: Final = 0.02
SLICE_S: Final = 0.5
GIVE_UP_S: Final = 300.0
WATCHED: Final = 3
"""Times the seconds of another measurement: a p99 needs many requests."""


@dataclass(slots=True)
class Taken:
    moved: list[float] = field(default_factory=list)
    """Bytes a second, while nobody writes."""
    bare: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """p99 of a produce, in seconds; so are the next two."""
    during: list[float] = field(default_factory=list)
    throttled: list[float] = field(default_factory=list)
    loaded: list[float] = field(default_factory=list)
    """Bytes a second of a move under the load."""


class Moves:
    """The partitions that move."""

    def __init__(self, cluster: BenchCluster, partitions: int) -> None:
        self._cluster = cluster
        self._topic = "moves"
        self._partitions = range(partitions)
        self.size_bytes = 0

    async def fill(self, batch: bytes, partition_bytes: int) -> None:
        rows = [HOME[index % len(HOME)] for index in self._partitions]
        await self._cluster.admin.create_topic(self._topic, assignment=rows)
        await self._cluster.admin.wait_until_led(self._topic, in_sync=True, timeout_s=60.0)
        batches = len(rows) * max(1, partition_bytes // len(batch))
        async with Probe(self._topic, self._cluster.addresses) as probe:
            await probe.wait_known(len(rows))
            await probe.fill(batch, batches, WINDOW)
        self.size_bytes = batches * len(batch)

    async def home(self) -> None:
        """Back, and what they leave behind is removed: the next measurement is not to wait for that."""
        await self.to(HOME)
        away = self._cluster.local.data_dir(broker_name(AWAY[0][1]))
        async with asyncio.timeout(GIVE_UP_S):
            while list(away.glob(f"*{self._topic}-*")):  # noqa: ASYNC110 - a directory of another process
                await asyncio.sleep(POLL_S)
        await asyncio.to_thread(os.sync)  # what it wrote must not hold up the disk in the next measurement

    async def to(self, rows: Sequence[Sequence[int]], throttle: Throttle = UNTHROTTLED) -> float:
        """Bytes a second, from the plan to the end of the last move."""
        moves = self._cluster.admin.reassignments
        began_at = time.perf_counter()
        plan = {TopicPartition(self._topic, index): rows[index % len(rows)] for index in self._partitions}
        await moves.alter(plan, throttle=throttle)
        async with asyncio.timeout(GIVE_UP_S):
            while await moves.list():  # noqa: ASYNC110 - another process is polled
                await asyncio.sleep(POLL_S)
        return self.size_bytes / (time.perf_counter() - began_at)

    async def free(self) -> None:
        """Whatever moves, if anything does, without a throttle."""
        await self._cluster.admin.reassignments.throttle(UNTHROTTLED)


@dataclass(frozen=True, slots=True)
class Load:
    probe: Probe
    batch: bytes
    bytes_per_s: float

    async def warmed_up(self, seconds: float) -> None:
        """What has been written before is on the disk, and this load has had its first seconds, which count for nothing."""
        await asyncio.to_thread(os.sync)
        await self.p99(seconds)

    async def p99(self, seconds: float) -> float:
        return percentile(await self.probe.paced(self.batch, self.bytes_per_s, seconds), 0.99)

    async def p99_during(self, moving: asyncio.Task[float], seconds_max: float) -> float:
        """Until it has moved, or for so long."""
        took: list[float] = []
        end = time.perf_counter() + seconds_max
        while not took or (not moving.done() and time.perf_counter() < end):
            took += await self.probe.paced(self.batch, self.bytes_per_s, min(SLICE_S, seconds_max))
        return percentile(took, 0.99)


async def one_round(bench: Bench, moves: Moves, load: Load, bare: BareServer, taken: Taken) -> None:
    seconds = bench.scale.seconds * WATCHED
    taken.bare.append(await bare.stream_rate(load.batch, WINDOW, bench.scale.seconds))
    taken.moved.append(await moves.to(AWAY))
    await moves.home()
    taken.before.append(await load.p99(seconds))
    moving = asyncio.create_task(moves.to(AWAY))
    taken.during.append(await load.p99_during(moving, GIVE_UP_S))
    taken.loaded.append(await moving)
    await moves.home()
    limit = int(taken.moved[-1] * THROTTLE_SHARE)
    moving = asyncio.create_task(moves.to(AWAY, Throttle(limit, limit)))
    taken.throttled.append(await load.p99_during(moving, seconds))
    await moves.free()
    await moving
    await moves.home()
    bench.say(
        f"moved at {taken.moved[-1] * MB:.4g} MB/s, under load at {taken.loaded[-1] * MB:.4g}, bare stream"
        f" {taken.bare[-1] * MB:.4g}; p99 before {taken.before[-1] * MS:.4g} ms, during {taken.during[-1] * MS:.4g},"
        f" throttled {taken.throttled[-1] * MS:.4g}"
    )


async def run(bench: Bench) -> list[Line]:
    scale, batch, taken = bench.scale, batch_of(BATCH_BYTES), Taken()
    async with BenchCluster(bench.directory / "cluster") as cluster, BareServer() as bare:
        moves = Moves(cluster, scale.few_partitions)
        await moves.fill(batch, scale.moved_partition_bytes)
        bench.say(f"{scale.few_partitions} partitions hold {moves.size_bytes * MB:.4g} MB")
        topic = await cluster.new_topic(REPLICAS)
        async with Probe(topic, cluster.addresses) as probe:
            await probe.wait_known(REPLICAS)
            most = await probe.rate(batch, WINDOW, scale.seconds)
            load = Load(probe, batch, most * LOAD_SHARE)
            bench.say(f"at most {most * MB:.4g} MB/s are written; {LOAD_SHARE:g} of it for the load")
            await load.warmed_up(scale.seconds * WATCHED)
            for _ in range(scale.failovers):
                await one_round(bench, moves, load, bare, taken)

    def p99(name: str, ours: list[float], move: str, target: str) -> Line:
        what = f" before; ours: p99 during {move}, acks=all at {load.bytes_per_s * MB:.3g} MB/s"
        return compared(name, ours, taken.before, unit="ms", times=MS, target=target, what=what)

    each = f"{scale.few_partitions} partitions of {scale.moved_partition_bytes * MB:g} MB"
    loaded = ", ".join(f"{rate * MB:.4g}" for rate in taken.loaded)
    return [
        compared(
            *("REASSIGN", taken.moved, taken.bare),
            unit="MB/s",
            times=MB,
            target="at least 0.4",
            what=f" of a bare stream; {each}, nobody writes",
        ),
        p99("REASSIGN-p99", taken.during, f"a move without a throttle ({loaded} MB/s)", "reported"),
        p99("REASSIGN-throttled", taken.throttled, f"a move at {THROTTLE_SHARE:g} of that rate", "at most 2"),
    ]
