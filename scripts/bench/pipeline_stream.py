"""STREAM: micro-batches of the Spark source: their sustained rate, and how long a record takes from producer to row."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, Final

from bench.cluster import BenchCluster, Probe
from bench.harness import Bench, Line, against_limit, compared, percentile, take_turns
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.pipeline.session import spark_session

NAMES: Final = ("STREAM",)
PARTITIONS: Final = 12
VALUE: Final = bytes(range(100))
BATCH_RECORDS: Final = 5_000
BATCHES: Final = 6
"""Of a run with Trigger.AvailableNow; the first is not counted, as it also starts the query."""
PACE_PER_S: Final = 1_000
STEP_S: Final = 0.01
TRIGGER: Final = {"processingTime": "1 second"}
TRIGGER_S: Final = 1.0
WAIT_S: Final = 120.0


async def run(bench: Bench) -> list[Line]:
    async with BenchCluster(bench.directory / "cluster") as cluster:
        spark = await asyncio.to_thread(spark_session, "tidelog-bench", "local[2]")
        try:
            streams = Streams(bench, spark, cluster.bootstrap)
            return [*await _rates(bench, cluster, streams), *await _latencies(bench, cluster, streams)]
        finally:
            await asyncio.to_thread(spark.stop)


class Streams:
    """Queries of one session, each with a checkpoint of its own."""

    def __init__(self, bench: Bench, spark: Any, bootstrap: str) -> None:
        self._directory = bench.directory
        self._spark = spark
        self._servers = bootstrap
        self._numbers = itertools.count()

    def _source(self, reader: Any, topic: str) -> Any:
        return reader.format("tidelog").option("kafka.bootstrap.servers", self._servers).option("subscribe", topic)

    def batch_rate(self, topic: str, records: int) -> float:
        """Rows a second of a batch read of the topic, which holds so many."""
        begin = time.perf_counter()
        self._source(self._spark.read, topic).load().write.format("noop").mode("overwrite").save()
        return records / (time.perf_counter() - begin)

    def stream_rate(self, topic: str, records: int) -> float:
        """Rows a second of the micro-batches of a new query, which reads the topic to its end."""
        source = self._source(self._spark.readStream, topic).option("startingOffsets", "earliest")
        frame = source.option("maxOffsetsPerTrigger", str(-(-records // BATCHES))).load()
        query = self._checkpointed(frame.writeStream.format("noop").trigger(availableNow=True)).start()
        if not query.awaitTermination(WAIT_S):
            raise RuntimeError(f"{records} records were not read in {WAIT_S:g} s")
        counted = [p for p in query.recentProgress if p.numInputRows][1:]
        rows = sum(p.numInputRows for p in counted)
        seconds = sum(p.durationMs["triggerExecution"] for p in counted) / 1000
        return float(rows / seconds)

    def follow(self, topic: str, sink: Callable[[Any, int], None]) -> Any:
        """A query from the end of the topic on, with a trigger every second."""
        frame = self._source(self._spark.readStream, topic).load()
        return self._checkpointed(frame.writeStream.foreachBatch(sink).trigger(**TRIGGER)).start()

    def _checkpointed(self, writer: Any) -> Any:
        return writer.option("checkpointLocation", str(self._directory / f"checkpoint-{next(self._numbers)}"))


async def _rates(bench: Bench, cluster: BenchCluster, streams: Streams) -> list[Line]:
    batch = encode_batch(Record(None, VALUE, (), 1_700_000_000_000) for _ in range(BATCH_RECORDS))
    rounds = max(1, bench.scale.stream_records // (BATCH_RECORDS * PARTITIONS))
    records = rounds * BATCH_RECORDS * PARTITIONS
    topic = await cluster.new_topic(PARTITIONS)
    async with Probe(topic, cluster.addresses) as probe:
        await probe.wait_known(PARTITIONS)
        for _ in range(rounds):
            await asyncio.gather(*(probe.must_produce(partition, batch) for partition in range(PARTITIONS)))
    bench.say(f"{records} records of {len(VALUE)} bytes in {PARTITIONS} partitions")
    taken = await take_turns(
        bench,
        {
            "batch read": lambda _: asyncio.to_thread(streams.batch_rate, topic, records),
            "ours": lambda _: asyncio.to_thread(streams.stream_rate, topic, records),
        },
        references=("batch read",),
    )
    what = " of one batch read of the same records; ours: micro-batches with Trigger.AvailableNow"
    return [
        compared(
            *("STREAM", taken["ours"], taken["batch read"]),
            unit="krows/s",
            times=1e-3,
            target="at least 0.5",
            what=what,
        )
    ]


async def _latencies(bench: Bench, cluster: BenchCluster, streams: Streams) -> list[Line]:
    topic = await cluster.new_topic(PARTITIONS)
    took_s: list[float] = []
    ready, more = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def arrived(frame: Any, batch_id: int) -> None:
        sent = [int(row["value"]) for row in frame.select("value").collect()]
        now_ns = time.time_ns()
        took_s.extend((now_ns - at_ns) / 1e9 for at_ns in sent)
        loop.call_soon_threadsafe(ready.set)
        loop.call_soon_threadsafe(more.set)

    query = await asyncio.to_thread(streams.follow, topic, arrived)
    try:
        async with asyncio.timeout(WAIT_S):
            await ready.wait()
        count = await _paced(cluster.bootstrap, topic, bench.scale.steady_s)
        async with asyncio.timeout(WAIT_S):
            while len(took_s) < count:
                more.clear()
                await more.wait()
    finally:
        await asyncio.to_thread(query.stop)
    # The first batches with records still warm Spark up.
    counted = took_s[count // 4 :]
    bench.say(f"{len(counted)} records at {PACE_PER_S}/s, a trigger every {TRIGGER_S:g} s")
    return [
        against_limit(
            *("STREAM-p50", [percentile(counted, 0.5)]),
            limit=TRIGGER_S,
            unit="s from producer to row",
            target="at most 1",
        ),
        against_limit(
            *("STREAM-p99", [percentile(counted, 0.99)]),
            limit=2 * TRIGGER_S,
            unit="s from producer to row",
            target="at most 1",
        ),
    ]


async def _paced(bootstrap: str, topic: str, seconds: float) -> int:
    """How many records it sent, PACE_PER_S, each with the time at which it was due (Unix ns) as its value."""
    count = int(PACE_PER_S * seconds)
    async with Producer(bootstrap, acks="all") as producer:
        begin_ns = time.time_ns()
        for number in range(count):
            due_ns = begin_ns + number * 1_000_000_000 // PACE_PER_S
            if (early_s := (due_ns - time.time_ns()) / 1e9) > STEP_S:
                await asyncio.sleep(early_s)
            await producer.send(topic, b"%d" % due_ns, partition=number % PARTITIONS)
    return count
