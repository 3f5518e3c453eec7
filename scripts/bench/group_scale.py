"""B10, B11 and B12: five thousand members of one group at one coordinator: a rebalance of all, its growth, steady pings."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import psutil

from bench import scrape
from bench.bare import SCRIPTS, BareServer
from bench.cluster import BATCH_BYTES, CALL_S, BenchCluster, batch_of
from bench.group_members import SESSION_MS
from bench.harness import Bench, Line, Note, against_limit, compared
from bench.many import leaders_of
from tidelog.cluster.api import BROKER, broker_name
from tidelog.coordinator.shards import GIVE_BACK_S
from tidelog.ids import BrokerId
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_CLUSTER_METADATA

NAMES: Final = ("B10", "B11", "B12")
SETTINGS: Final = {BROKER: {"coordinator_mode": "single", "group_rebalance": "eager"}}
PARTITIONS_EACH: Final = 4
TOPICS: Final = 20
SETTLED_S: Final = GIVE_BACK_S + 2.0
CPU_LIMIT: Final = 0.5
GIVE_UP_S: Final = 120.0
PRODUCE_WINDOW: Final = 16
ALL, TENTH, SMALL = "all", "tenth", "small"
LAG: Final = "tidelog_event_loop_lag_seconds"
PING: Final = "tidelog_coordinator_ping_seconds"
EXPIRED: Final = "tidelog_coordinator_watcher_expirations_total"

Answer = Mapping[str, float]


class Members:
    """The process of the simulated members."""

    def __init__(self) -> None:
        self._process: Any = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.group_members"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")])},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def do(self, command: str, **given: Any) -> Answer:
        self._process.stdin.write(json.dumps({"do": command, **given}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster, its one coordinator, and the members."""

    bench: Bench
    cluster: BenchCluster
    members: Members
    coordinator: str
    """The broker's name."""

    @property
    def address(self) -> str:
        return str(self.cluster.local.endpoints()[self.coordinator])

    @property
    def process(self) -> psutil.Process:
        (row,) = (row for row in self.cluster.local.status() if row.name == self.coordinator)
        assert row.pid is not None
        return psutil.Process(row.pid)

    async def join(self, group: str, count: int, topics: Mapping[str, int]) -> Answer:
        took = await self.members.do("join", address=self.address, group=group, count=count, topics=topics)
        self.bench.say(
            f"{group}: {count} registered after {took['registered_s']:.2f} s, assigned after {took['assigned_s']:.2f} s"
        )
        return took

    async def rebalances(self, group: str, topics: Mapping[str, int]) -> list[Answer]:
        """A member leaves, and all others are stopped and started; then it comes back, which does the same once more."""
        found = []
        for number in range(self.bench.scale.rounds):
            found.append(await self.members.do("leave_one", group=group))
            self.bench.say(f"{group}: rebalance {number + 1}: {found[-1]}")
            await self.join(group, 1, topics)
        return found

    async def bare(self, sizes: Sequence[int]) -> list[float]:
        """Seconds of two round trips with every member, with nothing but gRPC at both ends."""
        count = self.bench.scale.members
        async with BareServer() as server:
            await self.members.do("open_bare", address=server.address, count=count, answer_bytes=sizes[-1])
            asked = {"address": server.address, "sizes": list(sizes[:-1])}
            await self.members.do("bare", **asked)
            found = [(await self.members.do("bare", **asked))["seconds"] for _ in range(self.bench.scale.rounds)]
            await self.members.do("close_bare", address=server.address)
        self.bench.say(f"bare round trips: {', '.join(f'{seconds:.2f}' for seconds in found)} s")
        return found


async def settled_coordinator(cluster: BenchCluster) -> str:
    """Once it has been the same for SETTLED_S: brokers that start give a shard back to the one that it belongs to."""
    channel = GrpcNet().channel(cluster.addresses[0], purpose="bench")
    request = m.ClusterMetadataRequest(group_id=ALL)
    found, since = -1, time.perf_counter()
    try:
        async with asyncio.timeout(GIVE_UP_S):
            while found < 0 or time.perf_counter() < since + SETTLED_S:
                answer = await channel.call(COORDINATOR_SERVICE_CLUSTER_METADATA, request, CALL_S)
                if answer.coordinator_id != found:
                    found, since = answer.coordinator_id, time.perf_counter()
                await asyncio.sleep(0.1)
    finally:
        await channel.close()
    return broker_name(BrokerId(found))


async def make_topics(stage: Stage) -> dict[str, int]:
    """Name -> partitions: four for each member, led and ready."""
    count = stage.bench.scale.members * PARTITIONS_EACH // TOPICS
    topics = {f"scale-{number}": count for number in range(TOPICS)}
    for topic in topics:
        await stage.cluster.admin.create_topic(topic, count, 1)
    for topic in topics:
        await leaders_of(stage.cluster, topic, alive=1, in_sync=True)
    stage.bench.say(f"{TOPICS} topics with {count} partitions each")
    return topics


async def produced(stage: Stage) -> list[float]:
    """Bytes a second, acks=all on three replicas."""
    batch, scale = batch_of(BATCH_BYTES), stage.bench.scale
    rates = [
        await stage.cluster.rate(batch, PRODUCE_WINDOW, 1, seconds)
        for seconds in (scale.warm_up_s, *[scale.seconds] * scale.rounds)
    ]
    return rates[1:]


@dataclass(frozen=True, slots=True)
class Steady:
    cores: float
    lag_s: float
    pings: int
    ping_s: float
    """Mean, from the coordinator's ping to the answer."""
    expired: int


async def steady(stage: Stage) -> Steady:
    """Nothing but pings for `steady_s`."""
    local, name = stage.cluster.local, stage.coordinator
    before = await scrape.metrics(local, name)  # which also begins the lag anew
    used = sum(stage.process.cpu_times()[:2])
    began_at = time.perf_counter()
    await asyncio.sleep(stage.bench.scale.steady_s)
    used = sum(stage.process.cpu_times()[:2]) - used
    took_s = time.perf_counter() - began_at
    after = await scrape.metrics(local, name)

    def grown(metric: str) -> float:
        return scrape.value(after, metric) - scrape.value(before, metric)

    pings = grown(f"{PING}_count")
    expired = sum(value for (metric, _), value in after.items() if metric == EXPIRED)
    found = Steady(
        used / took_s, scrape.value(after, LAG), int(pings), grown(f"{PING}_sum") / max(1.0, pings), int(expired)
    )
    stage.bench.say(f"steady: {found}")
    return found


async def small_rebalances(stage: Stage) -> list[float]:
    """Seconds, of a group among all the others."""
    count = stage.bench.scale.small_group
    topics = {"scale-small": count * PARTITIONS_EACH}
    await stage.cluster.admin.create_topic("scale-small", count * PARTITIONS_EACH, 1)
    await leaders_of(stage.cluster, "scale-small", alive=1, in_sync=True)
    await stage.join(SMALL, count, topics)
    found = await stage.rebalances(SMALL, topics)
    await stage.members.do("cut", group=SMALL)
    return [each["seconds"] for each in found]


async def tenth_of(stage: Stage, topics: Mapping[str, int]) -> list[Answer]:
    """Rebalances of a group of a tenth of the members, with a tenth of the partitions, alone at its coordinator."""
    few = dict(list(topics.items())[: TOPICS // 10])
    await stage.join(TENTH, stage.bench.scale.members // 10, few)
    found = await stage.rebalances(TENTH, few)
    await stage.members.do("cut", group=TENTH)
    return found


async def all_of(stage: Stage, topics: Mapping[str, int]) -> list[Line]:
    """Everybody joins: how long it takes, and what it costs."""
    count, before = stage.bench.scale.members, stage.process.memory_info().rss
    took = await stage.join(ALL, count, topics)
    after = stage.process.memory_info().rss
    return [
        Note(
            f"B10 {count} members registered after {took['registered_s']:.2f} s, assigned after {took['assigned_s']:.2f} s"
        ),
        Note(
            f"B10 memory of the coordinator's broker {after / 1e6:.0f} MB, {(after - before) / count / 1e3:.1f} kB a member"
        ),
    ]


def rebalance_lines(bench: Bench, few: Sequence[Answer], many: Sequence[Answer], bare: Sequence[float]) -> list[Line]:
    count = bench.scale.members
    took, took_few = [each["seconds"] for each in many], [each["seconds"] for each in few]
    stopped = min(each["stopped"] for each in many)
    lines: list[Line] = []
    if "B10" in bench.wanted:
        lines.append(Note(f"B10 {stopped:.0f} members stopped and {count - 1} started in each rebalance"))
        what = f" of two bare round trips on {count} streams"
        lines.append(compared("B10", took, bare, unit="s", target="at most 3", what=what))
    if "B11" in bench.wanted:
        what = f" of {count // 10} members, where linear is 10"
        lines.append(compared("B11", took, took_few, unit="s", target="at most 15", what=what))
    return lines


def b12_lines(
    bench: Bench, found: Steady, small: Sequence[float], before: Sequence[float], during: Sequence[float]
) -> list[Line]:
    worst, pings = found.lag_s * 1000, f"{found.pings} pings answered after {found.ping_s * 1000:.1f} ms on average"
    took = f"median {statistics.median(small):.3f} s, worst {max(small):.3f} s, n={len(small)}"
    target = f"at most 1 ({bench.scale.members} members, session {SESSION_MS / 1000:g} s)"
    return [
        Note(f"B12 event loop late by {worst:.0f} ms at worst; {pings}"),
        Note(f"B12 false expiries {found.expired}, must be 0"),
        Note(f"B12 rebalance of a group of {bench.scale.small_group} among them: {took}"),
        against_limit("B12", [found.cores], limit=CPU_LIMIT, unit="cores", target=target),
        compared("B12-produce", during, before, unit="MB/s", times=1e-6, target="at least 0.7", what=" without them"),
    ]


async def measure(stage: Stage) -> list[Line]:
    wanted = stage.bench.wanted
    topics = await make_topics(stage)
    few, many, bare, before = [], [], [], []
    if wanted & {"B10", "B11"}:
        few = await tenth_of(stage, topics)
        sizes = [round(few[-1][f"{kind}_bytes"]) for kind in ("stop", "start", "answer")]
    if "B10" in wanted:
        bare = await stage.bare(sizes)
    if "B12" in wanted:
        before = await produced(stage)
    lines = await all_of(stage, topics)
    if wanted & {"B10", "B11"}:
        many = await stage.rebalances(ALL, topics)
    if "B12" in wanted:
        pinged = await steady(stage)
        small = await small_rebalances(stage)
        lines += b12_lines(stage.bench, pinged, small, before, await produced(stage))
    await stage.members.do("cut", group=ALL)
    if "B10" in wanted:
        # Before and after, for the members' pings would take their share of the machine in between.
        bare = [statistics.mean(each) for each in zip(bare, await stage.bare(sizes), strict=True)]
    return lines + rebalance_lines(stage.bench, few, many, bare)


async def run(bench: Bench) -> list[Line]:
    async with BenchCluster(bench.directory / "cluster", settings=SETTINGS) as cluster, Members() as members:
        return await measure(Stage(bench, cluster, members, await settled_coordinator(cluster)))
