"""B13: batch reads of the Spark source, against Parquet, against tuples, against a plain consumer, against Kafka's source."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyspark

from bench import kafka, maven
from bench.cluster import BenchCluster, Probe
from bench.harness import SMOKE, Bench, CannotRun, Line, Measure, NoFigure, compared, take_turns
from bench.kafka import Kafka
from bench.spark_tuples import NAME as TUPLES
from bench.spark_tuples import TupleSource
from tidelog.client.consumer import Consumer
from tidelog.client.records import Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.pipeline.decode import PlacedBatch, decode_batches
from tidelog.pipeline.session import spark_session
from tidelog.pipeline.source import NAME as OURS
from tidelog.wire.batch import numbered, read_header

NAMES: Final = ("B13",)
VALUE_BYTES: Final = {"": 100, "-1KiB": 1024}
PARTITIONS: Final = 12
BATCH_BYTES: Final = 64 * 1024
"""As producers make them unless told otherwise."""
APPEND_BATCHES: Final = 8
ROUNDS: Final = 3
SLOWER: Final = 4
"""Tuples are measured on so many times fewer records, to take about as long."""
SMALL: Final = 16
"""How many times smaller the small read of B13-memory is."""
POLL_RECORDS: Final = 5_000
APART_S: Final = 0.1


async def run(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    settings: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(BenchCluster(bench.directory / "cluster"))
        peer = None
        try:
            jars = await _connector(download=bench.scale is not SMOKE)
            brokers = await kafka.fetch_jars(download=bench.scale is not SMOKE)
            settings["spark.jars"] = ",".join(map(str, jars))
            peer = await stack.enter_async_context(Kafka(bench.directory / "kafka", brokers, 1))
        except CannotRun as reason:
            lines.append(NoFigure("B13-kafka", str(reason)))
        spark = await asyncio.to_thread(spark_session, "tidelog-bench", "local[2]", settings)
        stack.push_async_callback(asyncio.to_thread, spark.stop)
        spark.dataSource.register(TupleSource)
        for suffix, size in VALUE_BYTES.items():
            topic = await _filled(bench, cluster, size)
            reads = Reads(bench, spark, cluster.bootstrap, topic)
            lines += await _figures(bench, reads, suffix, peer)
            await cluster.admin.delete_topic(topic.name)
    return lines


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic with as many records in each of its PARTITIONS partitions."""

    name: str
    value_bytes: int
    each: int

    @property
    def records(self) -> int:
        return self.each * PARTITIONS


async def _filled(bench: Bench, cluster: BenchCluster, value_bytes: int) -> Filled:
    """About `read_bytes` of random values. One replica: who reads asks the leader alone."""
    batches = random_batches(value_bytes)
    count = read_header(next(batches)).record_count
    rounds = max(1, bench.scale.read_bytes // (value_bytes * count * APPEND_BATCHES * PARTITIONS))
    name = await cluster.new_topic(PARTITIONS, replicas=1)

    async def fill(probe: Probe, partition: int) -> None:
        for _ in range(rounds):
            await probe.must_produce(partition, b"".join(next(batches) for _ in range(APPEND_BATCHES)))

    async with Probe(name, cluster.addresses) as probe:
        await probe.wait_known(PARTITIONS)
        await asyncio.gather(*(fill(probe, partition) for partition in range(PARTITIONS)))
    filled = Filled(name, value_bytes, rounds * APPEND_BATCHES * count)
    bench.say(f"{filled.records} records of {value_bytes} random bytes in {PARTITIONS} partitions")
    return filled


def random_batches(value_bytes: int) -> Iterator[bytes]:
    """One after the other, without end, of about BATCH_BYTES."""
    count = BATCH_BYTES // (value_bytes + 16)
    encoded = encode_batch(Record(None, bytes(value_bytes), (), 1_700_000_000_000) for _ in range(count))
    (records,) = decode_batches(
        TopicPartition("", 0), encoded, [PlacedBatch(read_header(encoded), 0)], with_headers=False
    )
    where = records.values.begins[:, None] + np.arange(value_bytes)
    random = np.random.default_rng(13)
    while True:
        batch = np.frombuffer(encoded, np.uint8).copy()
        batch[where] = np.frombuffer(random.bytes(where.size), np.uint8).reshape(where.shape)
        yield numbered(batch.tobytes(), -1, -1, -1)  # for its checksum


class Reads:
    """Reads of one topic with one Spark session, which throws the rows away."""

    def __init__(self, bench: Bench, spark: Any, bootstrap: str, topic: Filled) -> None:
        self.topic = topic
        self.parquet = bench.directory / f"parquet-{topic.value_bytes}"
        self._bench = bench
        self._spark = spark
        self._servers = bootstrap

    async def source(self, seconds: float, name: str = OURS, fewer: int = 1) -> float:
        """Rows a second of our source; of so many times fewer records."""
        each = self._part(seconds, fewer)
        return await self._rate(lambda: self._frame(name, each), each * PARTITIONS)

    async def tuples(self, seconds: float) -> float:
        return await self.source(seconds, TUPLES, SLOWER)

    async def of_parquet(self, _seconds: float) -> float:
        return await self._rate(lambda: self._spark.read.parquet(str(self.parquet)), self.topic.records)

    async def of_kafka(self, servers: str, topic: str, seconds: float) -> float:
        each = self._part(seconds)

        def frame() -> Any:
            reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
            return reader.option("subscribe", topic).option("endingOffsets", _ends(topic, each)).load()

        return await self._rate(frame, each * PARTITIONS)

    async def consumer(self, seconds: float) -> float:
        """Records a second of a Consumer of all partitions, in this process."""
        read = 0
        async with Consumer(self._servers) as consumer:
            await consumer.assign([TopicPartition(self.topic.name, partition) for partition in range(PARTITIONS)])
            for tp in consumer.assignment:
                consumer.seek(tp, 0)
            begin = time.perf_counter()
            while read < self.topic.records and time.perf_counter() - begin < seconds:
                read += len(await consumer.poll(POLL_RECORDS))
            return read / (time.perf_counter() - begin)

    async def peak_bytes(self, fewer: int) -> int:
        """The most memory that a Python worker of Spark has had at the end of a read of so many times fewer records."""
        peak = 0
        reading = asyncio.create_task(self.source(self._bench.scale.seconds, fewer=fewer))
        while not reading.done():
            await asyncio.wait([reading], timeout=APART_S)
            peak = max(peak, *map(_peak_bytes, psutil.Process().children(recursive=True)))
        await reading
        return peak

    async def write_parquet(self) -> None:
        writer = self._frame(OURS, self.topic.each).write.option("compression", "uncompressed")
        await asyncio.to_thread(writer.parquet, str(self.parquet))
        written = await asyncio.to_thread(self._spark.read.parquet(str(self.parquet)).count)
        if written != self.topic.records:
            raise RuntimeError(f"{written} rows were read of {self.topic.records} records")

    async def copy_to_kafka(self, servers: str, topic: str) -> None:
        rows = self._spark.read.parquet(str(self.parquet)).select("key", "value", "partition")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
        await asyncio.to_thread(writer.save)

    def _part(self, seconds: float, fewer: int = 1) -> int:
        """Records of each partition; a warm-up reads as many fewer as it is shorter."""
        return max(1, int(self.topic.each * min(1.0, seconds / self._bench.scale.seconds)) // fewer)

    def _frame(self, source: str, each: int) -> Any:
        reader = self._spark.read.format(source).option("kafka.bootstrap.servers", self._servers)
        return reader.option("subscribe", self.topic.name).option("endingOffsets", _ends(self.topic.name, each)).load()

    async def _rate(self, frame: Any, rows: int) -> float:
        begin = time.perf_counter()
        await asyncio.to_thread(lambda: frame().write.format("noop").mode("overwrite").save())
        return rows / (time.perf_counter() - begin)


def _ends(topic: str, each: int) -> str:
    return json.dumps({topic: {str(partition): each for partition in range(PARTITIONS)}})


def _peak_bytes(process: psutil.Process) -> int:
    """Of a Python worker of Spark, as the kernel kept it; 0 of any other process."""
    try:
        if "pyspark.daemon" not in process.cmdline():
            return 0
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (OSError, psutil.Error):  # it has ended
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


async def _figures(bench: Bench, reads: Reads, suffix: str, peer: Kafka | None) -> list[Line]:
    # Workers are young when the small read begins: they have had no more memory than it needs.
    small, large = await reads.peak_bytes(SMALL), await reads.peak_bytes(1)
    await reads.write_parquet()
    measures: dict[str, Measure] = {
        "Parquet": reads.of_parquet,
        "ours": reads.source,
        "tuples": reads.tuples,
        "consumer": reads.consumer,
    }
    if peer is not None:
        topic = await peer.new_topic(PARTITIONS)
        await reads.copy_to_kafka(peer.bootstrap, topic)
        measures["kafka"] = lambda seconds: reads.of_kafka(peer.bootstrap, topic, seconds)
    scale = replace(bench.scale, rounds=min(ROUNDS, bench.scale.rounds))
    taken = await take_turns(replace(bench, scale=scale), measures, references=[n for n in measures if n != "ours"])
    if peer is not None:
        await peer.delete_topic(topic)
    what = f"values of {reads.topic.value_bytes} B, {PARTITIONS} partitions, local[2]"
    references: Mapping[str, tuple[str, str, str]] = {
        "Parquet": (
            "B13",
            "at least 0.1" if suffix == "" else "reported",
            " of the same rows from uncompressed Parquet",
        ),
        "tuples": ("B13-tuples", "at least 1.5", " of the same reader, a tuple a record"),
        "consumer": ("B13-consumer", "reported", " of a Consumer in one process"),
        "kafka": ("B13-kafka", "reported", f" of Spark's JVM Kafka source, Apache Kafka {kafka.VERSION}"),
    }
    lines: list[Line] = [
        compared(
            *(f"{name}{suffix}", taken["ours"], taken[reference]),
            unit="krows/s",
            times=1e-3,
            target=target,
            what=f"{says}; {what}",
        )
        for reference, (name, target, says) in references.items()
        if reference in taken
    ]
    lines.append(
        compared(
            *(f"B13-memory{suffix}", [large], [small]),
            unit="MB at most in a Python worker",
            times=1e-6,
            target="at most 1.2",
            what=f", reading {SMALL} times less; {what}",
        )
    )
    return lines


async def _connector(*, download: bool) -> list[Path]:
    """Jars of Spark's Kafka source, of the version of this Spark, which it does not have itself; CannotRun without them."""
    own = Path(pyspark.__file__).parent / "jars"
    scala = next(own.glob("spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
    spark = version("pyspark")
    artifact = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}"
    folder = maven.BUILD / "spark-kafka" / spark
    jars = await maven.fetch_jars(folder, "the Kafka source's", [artifact], download=download)
    return sorted(jar for jar in jars.glob("*.jar") if not (own / jar.name).exists())
