"""A stream from a topic to a topic on a Spark cluster whose every neighbour dies once while it runs: the output is the input."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.aio import run
from helpers.cluster import unique_topic
from helpers.loads import Load
from helpers.scene import left_as_found
from helpers.spark_cluster import SETTINGS, SparkCluster, running_spark_cluster
from helpers.spark_queries import started
from helpers.stored import Stored, stored_by
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.offsets import LATEST
from tidelog.client.records import ConsumerRecord
from tidelog.cluster.api import CONTROLLER, broker_name, process_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.ids import TopicPartition
from tidelog.pipeline.exactly_once import HEADER as SINK_HEADER

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1800)]

PARTITIONS = 4
RECORDS_PER_S = 80
PATIENCE_S = 600.0
LIMIT_S = 1_700.0
POLL_S = 0.05
ROWS = 10
"""Of one Arrow batch."""
SHARD = 0
"""Of the group coordinators."""
Content = tuple[bytes | None, bytes | None, tuple[Any, ...], int]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_spark_cluster(tmp_path_factory.mktemp("spark") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(workers: SparkCluster) -> Iterator[Any]:
    from tidelog.pipeline.session import spark_session

    own = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS)}
    session = spark_session("tidelog-pipeline-chaos", workers.master, {**SETTINGS, **own})
    session.dataSource.register(lingering_source())
    yield session
    session.stop()


def lingering_source() -> type:
    """A source `lingering`, which is `tidelog` with a sink to which the first rows of each task come slowly: a task is long
    enough for a process to die while some of its rows are in the log."""
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    from tidelog.pipeline.source import TidelogSource

    class LingeringWriter(DataSourceStreamArrowWriter):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[Any]) -> Any:
            import time

            def slowly() -> Iterator[Any]:
                for number, batch in enumerate(iterator):
                    time.sleep(0.2 if number < 10 else 0.0)
                    yield batch

            return self.inner.write(slowly())

        def commit(self, messages: Any, batchId: int) -> None:
            self.inner.commit(messages, batchId)

        def abort(self, messages: Any, batchId: int) -> None:
            self.inner.abort(messages, batchId)

    class LingeringSource(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "lingering"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return LingeringWriter(super().streamWriter(schema, overwrite))

    return LingeringSource


@dataclass
class Pipeline:
    """The query, and what it has written."""

    query: Any
    checkpoint: Path
    admin: Admin
    source: str
    target: str

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """What ends the query meanwhile is raised at once."""
        deadline = time.monotonic() + PATIENCE_S
        while not await holds():
            if (error := await asyncio.to_thread(self.query.exception)) is not None:
                raise error
            assert time.monotonic() < deadline, f"{PATIENCE_S:g} s without: {what}"
            await asyncio.sleep(POLL_S)

    def finished(self) -> int:
        """The last micro-batch; -1 before the first."""
        return max((int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)

    async def ends(self, topic: str) -> list[int]:
        wanted = {TopicPartition(topic, p): LATEST for p in range(PARTITIONS)}
        found = await self.admin.list_offsets(wanted)
        return [found[tp].offset for tp in wanted]

    async def strike(self, *kills: Callable[[], None]) -> None:
        """In the middle of a micro-batch, with rows of two tasks in the log; returns when it is finished all the same."""
        struck, before = -1, [0] * PARTITIONS

        async def in_the_middle() -> bool:
            nonlocal struck, before
            running = self.finished() + 1
            ends = await self.ends(self.target)
            if running != self.finished() + 1:
                return False  # nobody knows whose rows these are
            if running != struck:
                struck, before = running, ends
            return sum(old < new for old, new in zip(before, ends, strict=True)) > 1

        await self.until("a micro-batch that is half written", in_the_middle)
        await asyncio.gather(*(asyncio.to_thread(kill) for kill in kills))

        async def over() -> bool:
            return self.finished() >= struck

        await self.until("the end of the micro-batch in which something died", over)

    async def caught_up(self) -> None:
        async def equal() -> bool:
            return sum(await self.ends(self.target)) >= sum(await self.ends(self.source))

        await self.until("all records in the output", equal)


@asynccontextmanager
async def running_pipeline(spark: Any, servers: str, folder: Path, **options: str) -> AsyncIterator[Pipeline]:
    checkpoint, source, target = folder / "checkpoint", unique_topic("in"), unique_topic("out")
    async with Admin(servers, request_timeout_ms=int(PATIENCE_S * 1000)) as admin:
        for topic in (source, target):
            await admin.create_topic(topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            await admin.wait_until_led(topic, in_sync=True, timeout_s=PATIENCE_S)

        stream = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", servers)
        stream = stream.options(subscribe=source, startingOffsets="earliest", includeHeaders="true").load()
        writer = stream.select("key", "value", "headers", "partition", "timestamp").writeStream.format("lingering")
        sink = {"kafka.bootstrap.servers": servers, "topic": target, "kafka.batch.size": "1500", **options}
        writer = writer.options(**sink).option("checkpointLocation", str(checkpoint))
        # Not in a thread beside: Spark finds the sinks of the session that is active in the thread which starts a query.
        query = started(writer.trigger(processingTime="2 seconds"))
        try:
            yield Pipeline(query, checkpoint, admin, source, target)
        finally:
            await asyncio.to_thread(query.stop)


async def contents(servers: str, topic: str) -> list[list[Content]]:
    """Of each partition in order of the log, without the sink's own header."""
    found: list[list[Content]] = [[] for _ in range(PARTITIONS)]
    async with Consumer(servers) as consumer:
        await consumer.assign_topics(topic)
        await consumer.seek_to_beginning()
        total = sum((await consumer.end_offsets(consumer.assignment)).values())
        while sum(map(len, found)) < total:
            for record in await consumer.poll():
                found[record.partition].append(content(record))
    return found


def content(record: ConsumerRecord) -> Content:
    headers = tuple(header for header in record.headers if header[0] != SINK_HEADER)
    return record.key, record.value, headers, record.timestamp_ms


def test_the_output_is_the_input_although_brokers_the_coordinator_the_controller_and_a_worker_of_spark_die(
    spark: Any, workers: SparkCluster, shared_cluster: LocalCluster, shared_servers: str, tmp_path: Path
) -> None:
    with left_as_found(shared_cluster) as cluster, stored_by(cluster) as stored:
        run(story(spark, workers, cluster, stored, shared_servers, tmp_path), timeout_s=LIMIT_S)
    wait_ready(shared_cluster, PATIENCE_S)


async def story(
    spark: Any, workers: SparkCluster, cluster: LocalCluster, stored: Stored, servers: str, folder: Path
) -> None:
    async with running_pipeline(spark, servers, folder, delivery="exactly-once") as pipeline:
        load = Load(pipeline.source, PARTITIONS, "all", folder, RECORDS_PER_S)
        async with load.running(servers):
            leader = broker_name(stored.state(pipeline.target, 0).leader)
            await pipeline.strike(lambda: cluster.kill(leader))
            await started_again(pipeline, cluster, stored, leader)

            await pipeline.strike(lambda: workers.kill("worker-1"))
            await asyncio.to_thread(workers.start, "worker-1")
            await pipeline.until("an executor in the worker that came back", lambda: asyncio.to_thread(full, workers))

            held, controller = stored.coordinator(SHARD), stored.controller()
            assert held is not None and controller is not None
            dead = broker_name(held[0]), process_name(CONTROLLER, controller)
            await pipeline.strike(*(lambda name=name: cluster.kill(name) for name in dead))  # type: ignore[misc]
            await pipeline.until("another coordinator and controller", lambda: moved(stored, held, controller))
            await started_again(pipeline, cluster, stored, *dead)
        await pipeline.caught_up()
    findings = await load.read_back(servers)
    assert findings.sound, findings
    read, written = await contents(servers, pipeline.source), await contents(servers, pipeline.target)
    assert sum(map(len, read)) == findings.read
    assert [len(partition) for partition in written] == [len(partition) for partition in read]
    assert written == read


async def started_again(pipeline: Pipeline, cluster: LocalCluster, stored: Stored, *names: str) -> None:
    for name in names:
        cluster.start(name)

    async def full() -> bool:
        topics = (pipeline.source, pipeline.target)
        return all(len(stored.state(topic, p).isr) == 3 for topic in topics for p in range(PARTITIONS))

    await pipeline.until("every ISR full", full)


async def moved(stored: Stored, held: tuple[int, int], controller: int) -> bool:
    return stored.coordinator(SHARD) not in (None, held) and stored.controller() not in (None, controller)


def full(workers: SparkCluster) -> bool:
    return workers.busy() == len(workers.workers)
