"""The Spark source `tidelog` against real brokers and a real Spark: the contract of Spark's Kafka source (ecosystem 3.3)."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import unique_topic
from tidelog.client.admin import AdminClient
from tidelog.client.producer import Producer
from tidelog.cluster.api import broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 3
RECORDS = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from tidelog.pipeline.session import spark_session

    session = spark_session("tidelog-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def topic(shared_servers: str) -> str:
    """RECORDS records over PARTITIONS partitions: key, value, headers and timestamp from the number."""
    name = unique_topic("spark")

    async def fill() -> None:
        async with AdminClient(shared_servers) as admin:
            await admin.create_topic(name, PARTITIONS, 3)
            await admin.wait_until_led(name, in_sync=True)
        async with Producer(shared_servers, compression="lz4") as producer:
            for n in range(RECORDS):
                await producer.send(
                    name,
                    None if n % 50 == 49 else b"value %d" % n,
                    None if n % 7 == 0 else b"key %d" % n,
                    [("n", b"%d" % n)] if n % 2 else [],
                    partition=n % PARTITIONS,
                    timestamp_ms=1_700_000_000_000 + n,
                )

    asyncio.run(fill())
    return name


def read(spark: Any, servers: str, **options: str) -> Any:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", servers)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def test_schema_is_that_of_sparks_kafka_source(spark: Any, shared_servers: str, topic: str) -> None:
    columns = [
        *("key binary", "value binary", "topic string", "partition int", "offset bigint"),
        *("timestamp timestamp", "timestampType int"),
    ]
    frame = read(spark, shared_servers, subscribe=topic)
    assert [f"{name} {type_}" for name, type_ in frame.dtypes] == columns
    with_headers = read(spark, shared_servers, subscribe=topic, includeHeaders="true")
    assert with_headers.dtypes[-1] == ("headers", "array<struct<key:string,value:binary>>")


def test_the_arrow_schema_is_what_spark_makes_of_the_declared_one(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from tidelog.pipeline.columns import SCHEMA, SCHEMA_WITH_HEADERS, arrow_schema

    for headers, schema in ((False, SCHEMA), (True, SCHEMA_WITH_HEADERS)):
        assert arrow_schema(headers) == to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")


def test_every_record_arrives_whole_and_in_order(spark: Any, shared_servers: str, topic: str) -> None:
    frame = read(spark, shared_servers, subscribe=topic, includeHeaders="true")
    assert frame.rdd.getNumPartitions() == PARTITIONS
    rows = frame.collect()
    assert len(rows) == RECORDS
    for partition in range(PARTITIONS):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(RECORDS // PARTITIONS))
        for row in mine:
            n = partition + PARTITIONS * row["offset"]
            assert row["key"] == (None if n % 7 == 0 else b"key %d" % n)
            assert row["value"] == (None if n % 50 == 49 else b"value %d" % n)
            assert [tuple(h) for h in row["headers"]] == ([("n", b"%d" % n)] if n % 2 else [])
            assert (row["topic"], row["timestampType"]) == (topic, 0)
    stamps = frame.selectExpr("min(unix_millis(timestamp))", "max(unix_millis(timestamp))").first()
    assert tuple(stamps) == (1_700_000_000_000, 1_700_000_000_000 + RECORDS - 1)


def test_offsets_choose_a_part(spark: Any, shared_servers: str, topic: str) -> None:
    starting = json.dumps({topic: {"0": 10, "1": -2, "2": 100}})
    ending = json.dumps({topic: {"0": 20, "1": 5, "2": -1}})
    frame = read(spark, shared_servers, subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect()) == [
        *((0, offset) for offset in range(10, 20)),
        *((1, offset) for offset in range(5)),
    ]


def test_a_pattern_and_an_assignment_select(spark: Any, shared_servers: str, topic: str) -> None:
    assert read(spark, shared_servers, subscribePattern=f"{topic[:-2]}.*").count() == RECORDS
    assigned = read(spark, shared_servers, assign=json.dumps({topic: [2]}))
    assert [row["partition"] for row in assigned.select("partition").distinct().collect()] == [2]


def test_an_empty_topic_is_an_empty_frame(spark: Any, shared_servers: str) -> None:
    name = unique_topic("empty")

    async def create() -> None:
        async with AdminClient(shared_servers) as admin:
            await admin.create_topic(name, 2, 3)
            await admin.wait_until_led(name)

    asyncio.run(create())
    assert read(spark, shared_servers, subscribe=name).count() == 0


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({}, "exactly one of assign, subscribe, subscribePattern"),
        ({"subscribe": "{topic}", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "{topic}", "startingOffsets": '{"{topic}":{"0":1}}'}, "must name every partition"),
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"subscribePattern": "nothing-matches"}, "matches no topic"),
        ({"assign": '{"{topic}":[99]}'}, "partition 99 does not exist"),
    ],
)
def test_mistakes_reach_the_user_with_their_reason(
    spark: Any, shared_servers: str, topic: str, options: dict[str, str], complaint: str
) -> None:
    filled = {key: value.replace("{topic}", topic) for key, value in options.items()}
    with pytest.raises(Exception, match=complaint):
        read(spark, shared_servers, **filled).collect()


def test_a_position_outside_the_log_is_data_loss_unless_told_otherwise(
    spark: Any, shared_servers: str, topic: str
) -> None:
    ending = json.dumps({topic: {"0": 1000, "1": -1, "2": -1}})
    with pytest.raises(Exception, match="failOnDataLoss"):
        read(spark, shared_servers, subscribe=topic, endingOffsets=ending).collect()
    tolerant = read(spark, shared_servers, subscribe=topic, endingOffsets=ending, failOnDataLoss="false")
    assert tolerant.count() == RECORDS


def test_a_task_follows_the_leader_when_it_is_killed(
    spark: Any, shared_cluster: LocalCluster, shared_servers: str, tmp_path: Path
) -> None:
    """60 MB in one partition, whose leader dies after the task's first megabytes; no task may fail for it."""
    name = unique_topic("moving")
    count, value = 6_000, bytes(10_000)
    reading, killed = tmp_path / "reading", tmp_path / "killed"

    async def fill() -> int:
        async with AdminClient(shared_servers) as admin:
            await admin.create_topic(name, 1, 3)
            led = await admin.wait_until_led(name, in_sync=True)
        async with Producer(shared_servers, linger_ms=5) as producer:
            for _ in range(count):
                await producer.send(name, value)
        return led.partitions[0].leader

    def pause_in_the_middle(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if not reading.exists():
                reading.touch()
                until(killed.exists, "the kill", timeout_s=150.0)
            yield batch

    def kill_when_reading() -> None:
        until(reading.exists, "the first batch", timeout_s=200.0)
        shared_cluster.kill(leader)
        killed.touch()

    leader = broker_name(asyncio.run(fill()))
    frame = read(spark, shared_servers, subscribe=name).select("offset", "value")
    paused = frame.mapInArrow(pause_in_the_middle, frame.schema)
    killer = threading.Thread(target=kill_when_reading)
    killer.start()
    try:
        sums = paused.selectExpr("count(*)", "max(offset)", "sum(length(value))").first()
        assert tuple(sums) == (count, count - 1, count * len(value))
        assert killed.exists()
    finally:
        killer.join()
        shared_cluster.start(leader)
        wait_ready(shared_cluster, 60.0)
