"""Streams of the Spark source `tidelog` against real brokers and a real Spark (ecosystem 3.3 and 3.4).

Spark runs with local[2], where a task that fails once fails its query: nothing here is read by a second attempt.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import unique_topic
from helpers.spark_queries import PATIENCE_S, started
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.cluster.api import broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

TRIGGER = {"processingTime": "200 milliseconds"}
NOW = {"availableNow": True}
Row = tuple[str, int, int]
"""Topic, partition, offset."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from tidelog.pipeline.session import spark_session

    session = spark_session("tidelog-streams", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def streams(spark: Any, shared_servers: str, tmp_path: Path) -> "Iterator[Streams]":
    made = Streams(spark, shared_servers, tmp_path / "checkpoint")
    yield made
    made.stop()


class Seen:
    """A sink that keeps what each micro-batch brought, by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches[batch_id] = [tuple(row) for row in rows]

    @property
    def counts(self) -> list[int]:
        return [len(rows) for _, rows in sorted(self.batches.items())]

    @property
    def rows(self) -> Counter[Row]:
        return Counter(row for rows in self.batches.values() for row in rows)


class Streams:
    """Queries that share a checkpoint directory, and are ended with the test."""

    def __init__(self, spark: Any, servers: str, checkpoint: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._checkpoint = checkpoint
        self._queries: list[Any] = []

    def start(self, sink: Any, trigger: Mapping[str, Any], /, *, checkpoint: str = "one", **options: str) -> Any:
        stream = self._spark.readStream.format("tidelog").option("kafka.bootstrap.servers", self._servers)
        for key, value in {"fetchOffset.retryIntervalMs": "100", **options}.items():
            stream = stream.option(key, value)
        writer = stream.load().writeStream.foreachBatch(sink).trigger(**trigger)
        writer = writer.option("checkpointLocation", str(self._checkpoint / checkpoint))
        query = started(writer)
        self._queries.append(query)
        return query

    def run(self, **options: str) -> tuple[Any, Seen]:
        """With Trigger.AvailableNow, to its end."""
        seen = Seen()
        query = self.start(seen, NOW, **options)
        assert query.awaitTermination(PATIENCE_S)
        return query, seen

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


class Topics:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def create(self, partitions: int, name: str = "") -> str:
        return asyncio.run(self._create(name or unique_topic("stream"), partitions))

    async def _create(self, name: str, partitions: int) -> str:
        async with Admin(self._servers) as admin:
            await admin.create_topic(name, partitions, 3)
            await admin.wait_until_led(name, in_sync=True)
        return name

    def grow(self, name: str, partitions: int) -> None:
        async def grow() -> None:
            async with Admin(self._servers) as admin:
                await admin.create_partitions(name, partitions)
                await admin.wait_until_led(name, in_sync=True)

        asyncio.run(grow())

    def delete(self, name: str) -> None:
        async def delete() -> None:
            async with Admin(self._servers) as admin:
                await admin.delete_topic(name)

        asyncio.run(delete())

    def leader(self, name: str, partition: int) -> str:
        async def leader() -> str:
            async with Admin(self._servers) as admin:
                return broker_name((await admin.describe_topic(name)).partitions[partition].leader)

        return asyncio.run(leader())

    def append(self, name: str, *counts: int, timestamp_ms: int | None = None) -> None:
        """So many records to each partition, in order of the partitions."""

        async def append() -> None:
            async with Producer(self._servers, linger_ms=5) as producer:
                for partition, count in enumerate(counts):
                    for n in range(count):
                        await producer.send(name, b"%d" % n, partition=partition, timestamp_ms=timestamp_ms)

        asyncio.run(append())


@pytest.fixture(scope="module")
def topics(shared_servers: str) -> Topics:
    return Topics(shared_servers)


def wait(condition: Callable[[], bool], what: str, *queries: Any) -> None:
    """Until it is true; what ends one of the queries meanwhile is raised at once."""

    def settled() -> bool:
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
        return condition()

    until(settled, what, timeout_s=PATIENCE_S)


def rows_of(name: str, *ranges: tuple[int, int]) -> Counter[Row]:
    """Each once; `ranges` in order of the partitions."""
    return Counter((name, p, offset) for p, (first, end) in enumerate(ranges) for offset in range(first, end))


def test_available_now_reads_to_the_ends_that_were_fixed_in_full_batches_and_a_restart_goes_on(
    streams: Streams, topics: Topics
) -> None:
    name = topics.create(3)
    topics.append(name, 600, 300, 100)
    seen = Seen()

    def append_meanwhile(frame: Any, batch_id: int) -> None:
        if batch_id == 0:
            topics.append(name, 10, 20, 30)
        seen(frame, batch_id)

    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    query = streams.start(append_meanwhile, NOW, **options)
    assert query.awaitTermination(PATIENCE_S)
    assert seen.counts == [400, 400, 200]
    assert seen.rows == rows_of(name, (0, 600), (0, 300), (0, 100))
    (source,) = query.lastProgress.sources
    end = json.loads(source.endOffset)
    assert list(end.pop("topic ids")) == [name]
    assert end == json.loads(source.latestOffset) == {name: {"0": 600, "1": 300, "2": 100}}

    _, again = streams.run(**{**options, "startingOffsets": "latest"})
    assert again.rows == rows_of(name, (600, 610), (300, 320), (100, 130))
    _, nothing = streams.run(**options)
    assert nothing.rows == Counter()


def test_a_query_starts_at_a_time_and_available_now_waits_for_no_least_number(streams: Streams, topics: Topics) -> None:
    name = topics.create(1)
    topics.append(name, 30, timestamp_ms=1_700_000_000_000)
    topics.append(name, 20, timestamp_ms=1_700_000_001_000)
    options = {"startingTimestamp": "1700000000500", "minOffsetsPerTrigger": "1000", "maxRecordsPerPartition": "7"}
    _, seen = streams.run(subscribe=name, **options)
    assert seen.rows == rows_of(name, (30, 50))


def test_records_are_read_that_came_after_the_start_at_the_end_whose_first_batch_failed(
    streams: Streams, topics: Topics
) -> None:
    name = topics.create(1)
    topics.append(name, 25)

    def fail(frame: Any, batch_id: int) -> None:
        raise RuntimeError("the sink is not there yet")

    query = streams.start(fail, TRIGGER, subscribe=name)
    with pytest.raises(Exception, match="the sink is not there yet"):
        query.awaitTermination(PATIENCE_S)
    topics.append(name, 10)
    _, seen = streams.run(subscribe=name)
    assert seen.rows == rows_of(name, (25, 35))


def test_a_running_query_reads_through_the_death_of_a_leader(
    streams: Streams, topics: Topics, shared_cluster: LocalCluster
) -> None:
    """It dies when a batch is planned and not read yet, and again there are records while nobody leads."""
    name = topics.create(2)
    leader = topics.leader(name, 0)
    seen, killed = Seen(), []

    def kill_before_reading(frame: Any, batch_id: int) -> None:
        if batch_id == 1:
            shared_cluster.kill(leader)
            killed.append(leader)
        seen(frame, batch_id)

    query = streams.start(kill_before_reading, TRIGGER, subscribe=name)
    try:
        wait(lambda: 0 in seen.batches, "the first batch", query)
        topics.append(name, 200, 200)
        wait(lambda: bool(killed), "the batch of a leader that dies", query)
        topics.append(name, 100, 100)
        wait(lambda: seen.rows.total() >= 600, "the records after the kill", query)
        assert seen.rows == rows_of(name, (0, 300), (0, 300))
        assert query.isActive
    finally:
        shared_cluster.start(leader)
        wait_ready(shared_cluster, PATIENCE_S)


def test_new_partitions_and_topics_are_read_from_their_first_record(streams: Streams, topics: Topics) -> None:
    name = topics.create(1)
    topics.append(name, 5)
    seen = Seen()
    query = streams.start(seen, TRIGGER, subscribePattern=f"{name}.*")
    wait(lambda: 0 in seen.batches, "the first batch", query)
    topics.grow(name, 2)
    topics.append(name, 3, 4)
    other = topics.create(1, f"{name}-too")
    topics.append(other, 6)
    wait(lambda: seen.rows.total() >= 13, "the records of what is new", query)
    assert seen.rows == rows_of(name, (5, 8), (0, 4)) + rows_of(other, (0, 6))


def test_a_deleted_topic_ends_the_query_or_is_left_out(streams: Streams, topics: Topics) -> None:
    name, doomed = topics.create(1), topics.create(1)
    topics.append(name, 5)
    topics.append(doomed, 7)
    strict, tolerant = Seen(), Seen()
    options = {"subscribe": f"{name},{doomed}", "startingOffsets": "earliest"}
    failing = streams.start(strict, TRIGGER, checkpoint="strict", **options)
    going_on = streams.start(tolerant, TRIGGER, checkpoint="tolerant", failOnDataLoss="false", **options)
    wait(lambda: strict.rows.total() == tolerant.rows.total() == 12, "all records", failing, going_on)
    topics.delete(doomed)
    with pytest.raises(Exception, match=f"{doomed}-0: it was read up to offset 7 and is gone.*failOnDataLoss=false"):
        failing.awaitTermination(PATIENCE_S)
    topics.append(name, 5)
    wait(lambda: tolerant.rows.total() == 17, "the records of the other topic", going_on)
    topics.append(topics.create(1, doomed), 9)
    wait(lambda: tolerant.rows.total() == 26, "the records of the topic that was created anew", going_on)
    assert tolerant.rows == rows_of(name, (0, 10)) + rows_of(doomed, (0, 7)) + rows_of(doomed, (0, 9))
    assert going_on.isActive
