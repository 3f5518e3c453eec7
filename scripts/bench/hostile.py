"""HOSTILE: memory, loss and the latency of acks=all beside hostile requests and slow readers, against harmless ones as often.

A local cluster serves a steady load. Beside it another process sends, by turns, harmless and hostile requests for every
method, the same number a second, and has the same number of readers, which read well or nothing at all.
"""

import asyncio
import json
import os
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bench import hostile_memory
from bench.cluster import REPLICAS, BenchCluster, Probe, batch_of
from bench.harness import Bench, Figure, Line, Note, against_limit, percentile
from bench.hostile_memory import LIMIT_BYTES, Memory, aligned
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.checking import HISTORY, check_history
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.final_read import read_everything
from tidelog.chaos.replicas import read_replicas
from tidelog.chaos.scenario import ConsumerPlan, Workload
from tidelog.chaos.workload import Load
from tidelog.client.connections import ClientPorts, real_ports
from tidelog.client.offsets import LATEST
from tidelog.client.producer import RecordMetadata
from tidelog.cluster.api import BROKER, CONTROLLER
from tidelog.cluster.plan import LISTENERS
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.runtime.clock import SystemClock

NAMES: Final = ("HOSTILE",)
SCRIPTS: Final = Path(__file__).resolve().parent.parent
HARMLESS, HOSTILE = "harmless", "hostile"
PARTITIONS: Final = 12
RATE: Final = 200.0
"""Records a second of the load, with acks=all."""
REQUESTS: Final = 25.0
"""Requests a second of the other process, beside those of its readers."""
BLOCKS: Final = 4
"""Blocks of harmless requests, by turns with as many of hostile ones."""
SETTLED_SHARE: Final = 0.2
"""Share of the hostile time after which memory is to stay as it is: two minutes of ten."""
TURN_S: Final = 5.0
"""At the beginning of a block, what the one before has left is worked off; at most a quarter of it."""
VICTIM: Final = "victim"
FILLED: Final = ("filled", REPLICAS, 60)
"""A topic for readers: its partitions, one for each broker to lead, and the batches of BATCH_BYTES in each."""
TAILED: Final = ("tailed", 20, 5)
"""A topic whose last appends take all the memory that brokers keep appends in: its partitions, and the batches in each. Else the
load would fill that memory within half an hour, and brokers would seem to grow."""
BATCH_BYTES: Final = 1_000_000
RATIO_MAX: Final = 2.0
FLAT_BYTES: Final = 32 << 20
"""Growth from then on, by a straight line, that is none: what slow readers hold goes up and down."""
CAUGHT_UP_S: Final = 60.0
READ_WITHIN_S: Final = 300.0


class TimedChronicle(Chronicle):
    """Keeps how long each acknowledged record took as well."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SystemClock())
        self._tried: dict[int, float] = {}
        self.at = array("d")
        """When each of them was sent, in seconds of this clock."""
        self.took = array("d")

    def tried(self, process: str, topic: str, partition: int, value: str, acks: str) -> int:
        number = super().tried(process, topic, partition, value, acks)
        self._tried[number] = self.clock.now()
        return number

    def ended(self, number: int, acks: str, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        tried_at = self._tried.pop(number)
        if error is None:
            self.at.append(tried_at)
            self.took.append(self.clock.now() - tried_at)
        super().ended(number, acks, metadata, error)

    def between(self, begin: float, end: float) -> list[float]:
        """Seconds of each record that was sent in that time."""
        return [took for at, took in zip(self.at, self.took, strict=True) if begin <= at < end]


class Block(NamedTuple):
    kind: str
    begin: float
    end: float
    done: Mapping[str, Any]
    """Counts of the client."""


class Client:
    """The process that sends requests."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        paths = (str(SCRIPTS), str(SCRIPTS.parent / "tests"), os.environ.get("PYTHONPATH", ""))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hostile_client"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        self._say(self._told)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        await self._process.communicate(b"")

    def _say(self, what: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def send(self, kind: str, seconds: float) -> Mapping[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        self._say({"kind": kind, "per_s": REQUESTS, "seconds": seconds})
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that sends requests has ended")
        done: Mapping[str, Any] = json.loads(answer)
        return done


class Watched:
    """Counts the time of hostile requests, for the samples of memory."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None
        self._clock = SystemClock()

    def begin(self) -> None:
        self._since = self._clock.now()

    def end(self) -> None:
        assert self._since is not None
        self._before += self._clock.now() - self._since
        self._since = None

    def hostile_s(self) -> float | None:
        return None if self._since is None else self._before + self._clock.now() - self._since


async def keep(cluster: BenchCluster, topic: str) -> None:
    """Creates a topic again whenever it is gone, until cancelled."""
    while True:
        try:
            await cluster.admin.create_topic(topic, 1, REPLICAS)
        except TidelogError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                print(f"  topic {topic}: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(1.0)


async def fill(cluster: BenchCluster, name: str, partitions: int, batches: int) -> dict[int, int]:
    """Creates a topic and fills it. Returns its leaders."""
    assignment = [[(first + n) % REPLICAS for n in range(REPLICAS)] for first in range(partitions)]
    await cluster.admin.create_topic(name, assignment=assignment)
    found = await cluster.admin.wait_until_led(name, in_sync=True, timeout_s=60.0)
    batch = batch_of(BATCH_BYTES)
    async with Probe(name, cluster.addresses) as probe:
        await probe.wait_known(partitions)
        await probe.fill(batch, batches * partitions, partitions)
    return {each.partition: each.leader for each in found.partitions}


def told_of(cluster: BenchCluster, leaders: Mapping[int, int]) -> dict[str, Any]:
    plan = cluster.local.plan
    listeners: dict[str, list[tuple[str, int]]] = {}
    for kind in (BROKER, CONTROLLER):
        for process in plan.of_kind(kind):
            for name in LISTENERS[kind]:
                listeners.setdefault(name, []).append(process.addresses[name])
    return {"listeners": listeners, "filled": FILLED[0], "leaders": leaders}


def pids_of(cluster: BenchCluster) -> dict[str, int | None]:
    return {row.name: row.pid for row in cluster.local.status()}


async def take_blocks(bench: Bench, client: Client, watched: Watched, chronicle: TimedChronicle) -> list[Block]:
    seconds, blocks = bench.scale.hostile_s / BLOCKS, list[Block]()
    for number in range(1, BLOCKS + 1):
        for kind in (HARMLESS, HOSTILE):
            begin = chronicle.clock.now()
            if kind == HOSTILE:
                watched.begin()
            done = await client.send(kind, seconds)
            if kind == HOSTILE:
                watched.end()
            blocks.append(Block(kind, begin, chronicle.clock.now(), done))
            times = times_of(chronicle, blocks[-1])
            bench.say(
                f"{kind} {number} of {BLOCKS}: {sum(n for *_, n in done['outcomes'])} requests, p50 "
                f"{percentile(times, 0.5) * 1e3:.3g} ms, p99 {percentile(times, 0.99) * 1e3:.3g} ms of {len(times)} records"
            )
    return blocks


def times_of(chronicle: TimedChronicle, block: Block) -> list[float]:
    """Seconds of each record of a block, without those of its beginning."""
    return chronicle.between(block.begin + min(TURN_S, (block.end - block.begin) / 4), block.end)


async def close(cluster: BenchCluster, topic: str, load: Load, chronicle: TimedChronicle) -> None:
    """Ends the load, and reads everything once more."""
    await load.stop_producers()
    chronicle.phase("final")
    await cluster.admin.wait_until_led(topic, in_sync=True, timeout_s=CAUGHT_UP_S)
    wanted = {TopicPartition(topic, partition): LATEST for partition in range(PARTITIONS)}
    async with asyncio.timeout(CAUGHT_UP_S):
        while True:
            ends = {tp: found.offset for tp, found in (await cluster.admin.list_offsets(wanted)).items()}
            if all(end > chronicle.highest.get(tp, NO_OFFSET) for tp, end in ends.items()):
                break
            await asyncio.sleep(0.1)
    if behind := await load.caught_up(ends, CAUGHT_UP_S):
        raise RuntimeError(f"not at the end after {CAUGHT_UP_S:g} s: {', '.join(behind)}")
    await load.stop()
    await read_everything(cluster.bootstrap, ends, chronicle, READ_WITHIN_S)
    chronicle.phase("end")


class Result(NamedTuple):
    blocks: Sequence[Block]
    chronicle: TimedChronicle
    memory: Mapping[str, Memory]
    verdict: Verdict
    ended: Sequence[str]
    """Processes that are not those of the beginning."""


async def measure(bench: Bench, cluster: BenchCluster) -> Result:
    leaders = await fill(cluster, *FILLED)
    await fill(cluster, *TAILED)
    topic = await cluster.new_topic(PARTITIONS)
    pids, watched = pids_of(cluster), Watched()
    servers = {name: pid for name, pid in pids.items() if pid is not None and not name.startswith("zookeeper")}
    path = bench.directory / HISTORY
    plan = Workload(rate=RATE, consumers=ConsumerPlan(assigned=1, group=1))
    with TimedChronicle(path) as chronicle:
        chronicle.phase("load")
        load = Load(cluster.bootstrap, topic, plan, chronicle, ports)
        load.start()
        keeping = asyncio.create_task(keep(cluster, VICTIM))
        looking = asyncio.create_task(hostile_memory.watch(servers, watched.hostile_s))
        try:
            async with Client(told_of(cluster, leaders)) as client:
                await client.send(HARMLESS, min(bench.scale.hostile_s / BLOCKS, 20.0))
                blocks = await take_blocks(bench, client, watched, chronicle)
        finally:
            keeping.cancel()
            looking.cancel()
            await asyncio.wait([keeping, looking])
        await close(cluster, topic, load, chronicle)
    found = await read_replicas(cluster.local, cluster.admin, topic)
    if [len(each.replicas) for each in found] != [REPLICAS] * PARTITIONS:
        raise RuntimeError("a replica of the topic is missing")
    now = pids_of(cluster)
    settled_s = bench.scale.hostile_s * SETTLED_SHARE
    return Result(
        blocks,
        chronicle,
        {name: hostile_memory.judged(looks, settled_s) for name, looks in looking.result().items()},
        check_history(path, Promise(idempotent=True), found),
        [name for name in pids if pids[name] is None or pids[name] != now.get(name)],
    )


def ports() -> ClientPorts:
    return real_ports(16 << 20)


def count_rows(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """Counts by method: for harmless and for hostile requests those sent, and those of each outcome."""
    outcomes = ("answered", "error code", "refused", "unanswered")
    counts: Counter[tuple[str, str, str]] = Counter()
    for block in blocks:
        for method, outcome, count in block.done["outcomes"]:
            counts[method.rpartition("/")[2], block.kind, outcome] += count
    methods = sorted({method for method, _, _ in counts})
    table = [
        (
            "method",
            *(head for kind in (HARMLESS, HOSTILE) for head in (f"{kind}: sent", "ok", "code", "refused", "none")),
        )
    ]
    for method in methods:
        cells: list[str] = []
        for kind in (HARMLESS, HOSTILE):
            found = [counts[method, kind, outcome] for outcome in outcomes]
            cells += [str(sum(found)), *map(str, found)]
        table.append((method, *cells))
    return table


def total(blocks: Sequence[Block], kind: str, what: str) -> str:
    counts: Counter[str] = Counter()
    for block in blocks:
        if block.kind == kind:
            counts.update(block.done[what])
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def lines_of(bench: Bench, result: Result) -> list[Line]:
    times: dict[str, list[list[float]]] = {HARMLESS: [], HOSTILE: []}
    for block in result.blocks:
        times[block.kind].append(times_of(result.chronicle, block))
    settled_s = bench.scale.hostile_s * SETTLED_SHARE
    lines: list[Line] = [
        Note(f"HOSTILE memory: {row}") for row in aligned(hostile_memory.rows(result.memory, settled_s))
    ]
    lines += [Note(f"HOSTILE requests: {row}") for row in aligned(count_rows(result.blocks))]
    for kind in (HARMLESS, HOSTILE):
        lines.append(Note(f"HOSTILE {kind}: refusals and codes: {total(result.blocks, kind, 'said')}"))
        lines.append(Note(f"HOSTILE {kind}: readers: {total(result.blocks, kind, 'readers')}"))
        every = [each * 1e3 for block in times[kind] for each in block]
        p50, p99, most = percentile(every, 0.5), percentile(every, 0.99), max(every)
        waited = f"p50 {p50:.3g} ms, p99 {p99:.3g} ms, longest {most:.3g} ms"
        lines.append(Note(f"HOSTILE {kind}: acks=all {waited} of {len(every):,} records"))
    bad = {name: each.count for name, each in result.verdict.anomalies.items() if each.bad}
    outcomes = ", ".join(f"{name} {count:,}" for name, count in sorted(result.chronicle.outcomes.items()))
    said = ", ".join(f"{count} {name}" for name, count in bad.items()) or "nothing lost, twice or out of order"
    lines.append(Note(f"HOSTILE records: {outcomes}; {said}; complete: {result.verdict.complete}"))
    lines.append(Note(f"HOSTILE processes that ended: {', '.join(result.ended) or 'none'}"))
    lines += figures(times, result, len(bad) + len(result.ended) + (not result.verdict.complete))
    return lines


def figures(times: Mapping[str, Sequence[Sequence[float]]], result: Result, wrong: int) -> list[Line]:
    p99 = {kind: percentile([each for block in blocks for each in block], 0.99) for kind, blocks in times.items()}
    ratios = [
        percentile(ours, 0.99) / percentile(other, 0.99)
        for ours, other in zip(times[HOSTILE], times[HARMLESS], strict=True)
    ]
    worst = max(result.memory.values(), key=lambda each: each.growth)
    steepest = max(result.memory.values(), key=lambda each: each.grown)
    return [
        Figure(
            "HOSTILE",
            p99[HOSTILE] / p99[HARMLESS],
            f"{p99[HOSTILE] * 1e3:.3g} ms",
            f"{p99[HARMLESS] * 1e3:.3g} ms beside harmless requests; p99 of acks=all",
            len(ratios),
            min(ratios),
            max(ratios),
            f"at most {RATIO_MAX:g}",
        ),
        against_limit(
            "HOSTILE-memory",
            [worst.growth / 2**20],
            limit=LIMIT_BYTES >> 20,
            unit="MiB",
            target="at most 1 (each process)",
        ),
        against_limit(
            "HOSTILE-flat",
            [steepest.grown / 2**20],
            limit=FLAT_BYTES >> 20,
            unit="MiB",
            target="at most 1 (growth of each process from the second minute on)",
        ),
        against_limit("HOSTILE-wrong", [wrong], limit=1, unit="kinds of losses and ended processes", target="0"),
    ]


async def run(bench: Bench) -> list[Line]:
    async with BenchCluster(bench.directory / "cluster") as cluster:
        return lines_of(bench, await measure(bench, cluster))
