"""COMPACT: how fast one core compacts, against reading every record once; p99 of appends during compaction and scrub over before.

The rate is that of the pass itself on files of the real disk, in seconds of the processor: a pass reads everything twice, looks
at each key, and writes what is left. The reference decodes the same records once with the library of the clients, CRCs
checked. For the p99 three brokers compact their copies of a topic and read all closed segments again, without a pause and side by
side, while another topic is written at a share of what the cluster takes at most.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from bench.cluster import BATCH_BYTES, REPLICAS, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, Note, compared
from bench.latency import MS
from bench.reassign import LOAD_SHARE, WATCHED, Load
from bench.scrape import metrics, value
from bench.throughput import MB, WINDOW
from tidelog.client.records import Record, encode_batch
from tidelog.cluster.api import BROKER
from tidelog.runtime.os_disk import OsDisk
from tidelog.storage.compaction import Compaction, CompactionRules, Finished, Source
from tidelog.storage.segment import segment_name
from tidelog.wire.batch import batch_size, stamp, validate_produce

NAMES: Final = ("COMPACT",)
LARGE: Final = 1024
SMALL: Final = 100
"""Bytes of a value."""
RECORD_MORE_BYTES: Final = 40
"""A key, lengths, deltas."""
KEYS_OF: Final = 10
"""Records for each key: nine of ten go."""
SEGMENTS: Final = 8
TIMESTAMP_MS: Final = 1_700_000_000_000
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
POLL_S: Final = 0.1
GIVE_UP_S: Final = 600.0
SETTINGS: Final = {
    BROKER: {
        "log_cleaner_backoff_ms": "100",
        "log_scrub_interval_ms": "100",  # without a pause
        "log_flush_interval_ms": "500",  # only what is durable is compacted or read again
    }
}


def batches(value_bytes: int, size_bytes: int) -> Iterator[bytes]:
    """Batches of BATCH_BYTES with random keys, about `size_bytes` in all."""
    each = BATCH_BYTES // (value_bytes + RECORD_MORE_BYTES)
    count = max(2, size_bytes // BATCH_BYTES)
    rand = random.Random(1)
    keys = max(1, count * each // KEYS_OF)
    for _ in range(count):
        values = os.urandom(each * value_bytes)
        yield encode_batch(
            Record(
                b"key-%012d" % rand.randrange(keys), values[i * value_bytes : (i + 1) * value_bytes], (), TIMESTAMP_MS
            )
            for i in range(each)
        )


@dataclass(frozen=True, slots=True)
class Files:
    folder: Path
    sources: tuple[Source, ...]

    @property
    def size_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)


def written(folder: Path, value_bytes: int, size_bytes: int) -> Files:
    """Closed segments as a leader would have written them."""
    folder.mkdir()
    made = [validate_produce(each, batch_bytes_max=1 << 30) for each in batches(value_bytes, size_bytes)]
    share = -(-len(made) // SEGMENTS)
    end, sources = 0, []
    for at in range(0, len(made), share):
        base, size = end, 0
        with (folder / segment_name(base)).open("wb") as file:
            for batch in made[at : at + share]:
                size += file.write(b"".join(stamp(batch, end, 0)))
                end += batch.record_count
        sources.append(Source(base, end, size))
    return Files(folder, tuple(sources))


def compaction_rate(files: Files) -> float:
    """Bytes of the log in a second of the processor, of one whole pass; what it writes is put in the place of nothing."""
    rules = CompactionRules(
        now_ms=TIMESTAMP_MS,
        delete_retention_ms=0,
        drops_tombstones=True,
        keys_max=1 << 30,
        inflated_bytes_max=1 << 30,
        segment_bytes=max(source.size_bytes for source in files.sources),
        index_interval_bytes=4096,
    )
    began_at = time.thread_time()
    *_, done = Compaction(str(files.folder), files.sources, 0, frozenset(), rules).run(OsDisk())
    took_s = time.thread_time() - began_at
    assert isinstance(done, Finished) and 0 < done.records_kept <= done.records_read / 5, done
    return files.size_bytes / took_s


def decoding_rate(files: Files) -> float:
    began_at = time.thread_time()
    for source in files.sources:
        data, at = memoryview((files.folder / segment_name(source.base_offset)).read_bytes()), 0
        while at < len(data):
            size = batch_size(data, at)
            batch = DefaultRecordBatch(data[at : at + size])
            assert batch.validate_crc() and all(record.key for record in batch)
            at += size
    return files.size_bytes / (time.thread_time() - began_at)


async def rate_of(bench: Bench, name: str, value_bytes: int) -> Line:
    files = await asyncio.to_thread(written, bench.directory / name, value_bytes, bench.scale.compacted_bytes)
    ours, reference = list[float](), list[float]()
    for _ in range(bench.scale.rounds):
        ours.append(await asyncio.to_thread(compaction_rate, files))
        reference.append(await asyncio.to_thread(decoding_rate, files))
        bench.say(f"{name}: {ours[-1] * MB:.4g} MB/s of a core, decoded once {reference[-1] * MB:.4g}")
    what = f" that decodes each record once; values of {value_bytes} B, nine of ten records go"
    return compared(name, ours, reference, unit="MB/s of a core", times=MB, target="reported", what=what)


class Maintenance:
    """Compaction and scrub on all brokers."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster

    async def counts(self, sample: str) -> list[float]:
        local = self._cluster.local
        return [value(await metrics(local, name), sample) for name in local.names(BROKER)]

    async def fill(self, size_bytes: int) -> str:
        """A topic that may be compacted, if somebody says so."""
        configs = {"segment.bytes": str(max(BATCH_BYTES * 2, size_bytes // SEGMENTS))}
        topic = await self._cluster.new_topic(1, configs)
        async with Probe(topic, self._cluster.addresses) as probe:
            await probe.wait_known(1)
            for batch in await asyncio.to_thread(lambda: list(batches(LARGE, size_bytes))):
                await probe.must_produce(0, batch)
        await asyncio.to_thread(os.sync)  # what it wrote must not hold up the disk in the next measurement
        return topic

    async def compact(self, topic: str, size_bytes: int) -> float:
        """Until each broker holds half of it; returns the bytes a second of the slowest.

        Looks at files: to ask brokers for their metrics all the time would hold up what is measured.
        """
        local = self._cluster.local
        folders = [local.data_dir(name) / f"{topic}-0" for name in local.names(BROKER)]
        began_at = time.perf_counter()
        await self._cluster.admin.alter_configs(topic, COMPACTED)
        held = float(size_bytes)
        async with asyncio.timeout(GIVE_UP_S):
            while held > size_bytes / 2:
                await asyncio.sleep(POLL_S)
                held = max(map(held_bytes, folders))
        return size_bytes / (time.perf_counter() - began_at)


def held_bytes(folder: Path) -> int:
    """Of the segments that are read; compaction renames files meanwhile."""
    sizes = []
    for file in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return sum(sizes)


async def p99(bench: Bench) -> list[Line]:
    scale, batch = bench.scale, batch_of(BATCH_BYTES)
    before, during, rates, scrubbed = list[float](), list[float](), list[float](), 0.0
    async with BenchCluster(bench.directory / "cluster", settings=SETTINGS) as cluster:
        maintenance = Maintenance(cluster)
        topic = await cluster.new_topic(REPLICAS)
        async with Probe(topic, cluster.addresses) as probe:
            await probe.wait_known(REPLICAS)
            load = Load(probe, batch, await probe.rate(batch, WINDOW, scale.seconds) * LOAD_SHARE)
            for _ in range(scale.failovers):
                await load.warmed_up(scale.seconds)  # what the round before left is deleted
                before.append(await load.p99(scale.seconds * WATCHED))
                compacted = await maintenance.fill(scale.compacted_bytes)
                compaction = asyncio.create_task(maintenance.compact(compacted, scale.compacted_bytes))
                during.append(await load.p99_during(compaction, GIVE_UP_S))
                rates.append(await compaction)
                scrubbed = min(await maintenance.counts("tidelog_log_scrub_read_bytes_total"))
                bench.say(
                    f"p99 before {before[-1] * MS:.4g} ms, during {during[-1] * MS:.4g} ms, while each broker compacts"
                    f" at {rates[-1] * MB:.4g} MB/s; read again by now: {scrubbed * MB:.4g} MB"
                )
                await cluster.admin.delete_topic(compacted)
    what = f" before; ours: p99 during compaction and scrub, acks=all at {load.bytes_per_s * MB:.3g} MB/s"
    rate = statistics.median(rates) * MB
    note = f"each of {REPLICAS} brokers compacts at {rate:.4g} MB/s meanwhile, and scrubs {scrubbed * MB:.4g} MB in all"
    figure = compared("COMPACT-p99", during, before, unit="ms", times=MS, target="at most 2", what=what)
    return [figure, Note(note)]


async def run(bench: Bench) -> list[Line]:
    large = await rate_of(bench, "COMPACT", LARGE)
    small = await rate_of(bench, "COMPACT-small", SMALL)
    return [large, small, *await p99(bench)]
