"""SINK: rows a second of the Spark sink, at-least-once against the plain Producer, and exactly-once against at-least-once."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from bench.cluster import BenchCluster
from bench.harness import Bench, Line, compared, take_turns
from tidelog.client.producer import Producer
from tidelog.pipeline.session import spark_session
from tidelog.pipeline.sink_options import AT_LEAST_ONCE, BATCH_BYTES, EXACTLY_ONCE

NAMES: Final = ("SINK",)
PARTITIONS: Final = 12
ROW_BYTES: Final = 100
TASKS: Final = 2
BATCHES: Final = 5
"""Of a run; the first is not counted, as it also starts the query."""
PRODUCER: Final = "producer"
WAIT_S: Final = 300.0


async def run(bench: Bench) -> list[Line]:
    rows = max(1, bench.scale.sink_rows // (BATCHES * TASKS)) * BATCHES * TASKS
    async with BenchCluster(bench.directory / "cluster") as cluster:
        spark = await asyncio.to_thread(spark_session, "tidelog-bench", f"local[{TASKS}]")
        try:
            writers = Writers(bench, spark, cluster)
            await asyncio.to_thread(writers.make_rows, rows)
            bench.say(f"{rows} rows of {ROW_BYTES} bytes, {BATCHES} micro-batches of {TASKS} tasks, acks=all")
            taken = await take_turns(
                bench,
                {
                    PRODUCER: lambda _: writers.producer_rate(),
                    AT_LEAST_ONCE: lambda _: writers.sink_rate(AT_LEAST_ONCE),
                    EXACTLY_ONCE: lambda _: writers.sink_rate(EXACTLY_ONCE),
                },
                references=(PRODUCER, AT_LEAST_ONCE),
            )
        finally:
            await asyncio.to_thread(spark.stop)

    def line(name: str, ours: str, reference: str, what: str) -> Line:
        return compared(name, taken[ours], taken[reference], unit="krows/s", times=1e-3, target="reported", what=what)

    return [
        line("SINK", AT_LEAST_ONCE, PRODUCER, f" of one Producer sending the same rows; ours: {TASKS} tasks of Spark"),
        line("SINK-once", EXACTLY_ONCE, AT_LEAST_ONCE, " at-least-once; ours: exactly-once"),
    ]


class Writers:
    """Each run writes the same rows to a topic of its own, which is gone afterwards: rounds must not fill the disk."""

    def __init__(self, bench: Bench, spark: Any, cluster: BenchCluster) -> None:
        self._directory = bench.directory
        self._rows = bench.directory / "rows"
        self._spark = spark
        self._cluster = cluster
        self._values: list[bytes] = []
        self._numbers = itertools.count()

    def make_rows(self, count: int) -> None:
        """As files, one for each task of each micro-batch, and in memory for the Producer."""
        value = f"cast(rpad(cast(id as string), {ROW_BYTES}, 'x') as binary) value"
        frame = self._spark.range(count).selectExpr(value).repartition(BATCHES * TASKS)
        frame.write.option("compression", "none").parquet(str(self._rows))
        self._values = pq.read_table(self._rows)["value"].to_pylist()

    async def producer_rate(self) -> float:
        """Rows a second from the first `send` to the last acknowledgement."""
        clock = asyncio.get_running_loop().time
        topic = await self._cluster.new_topic(PARTITIONS)
        async with Producer(self._cluster.bootstrap, acks="all", batch_bytes=BATCH_BYTES) as producer:
            await producer.partitions_of(topic)
            begin = clock()
            acks = [await producer.send(topic, value) for value in self._values]
            await producer.flush()
            took_s = clock() - begin
        for ack in acks:
            ack.result()
        await self._cluster.admin.delete_topic(topic)
        return len(self._values) / took_s

    async def sink_rate(self, delivery: str) -> float:
        topic = await self._cluster.new_topic(PARTITIONS)
        checkpoint = self._directory / f"checkpoint-{next(self._numbers)}"
        rate = await asyncio.to_thread(self._query, topic, delivery, checkpoint)
        await self._cluster.admin.delete_topic(topic)
        return rate

    def _query(self, topic: str, delivery: str, checkpoint: Path) -> float:
        """Rows a second of the micro-batches of a new query."""
        rows = self._spark.readStream.schema("value binary").option("maxFilesPerTrigger", TASKS)
        query = (
            rows.parquet(str(self._rows))
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", self._cluster.bootstrap)
            .option("topic", topic)
            .option("delivery", delivery)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(WAIT_S):
            raise RuntimeError(f"{len(self._values)} rows were not written in {WAIT_S:g} s")
        counted = [p for p in query.recentProgress if p.numInputRows][1:]
        seconds = sum(p.durationMs["triggerExecution"] for p in counted) / 1000
        return float(sum(p.numInputRows for p in counted) / seconds)
