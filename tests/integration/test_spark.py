"""The Spark source `tidelog` against real brokers and a real Spark: the contract of Spark's Kafka source (ecosystem 3.3)."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.bad_batches import made, record
from helpers.batches import batch
from helpers.cluster import unique_topic
from helpers.wire import TIMEOUT_S, Bed
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.client.sync import SyncAdmin, SyncProducer
from tidelog.cluster.api import broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until
from tidelog.errors import ErrorCode
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire.services import REPLICA_SERVICE_PRODUCE

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 3
RECORDS = 300
START_MS = 1_700_000_000_000


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
        async with Admin(shared_servers) as admin:
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
                    timestamp_ms=START_MS + n,
                )

    asyncio.run(fill())
    return name


def read(spark: Any, servers: str, **options: str) -> Any:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", servers)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def numbers(frame: Any) -> list[int]:
    """What each record was counted as when it was sent, in order."""
    return sorted(p + PARTITIONS * o for p, o in frame.select("partition", "offset").collect())


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

    from tidelog.pipeline.columns import arrow_schema
    from tidelog.pipeline.source import SCHEMA, SCHEMA_WITH_HEADERS

    for headers, schema in ((False, SCHEMA), (True, SCHEMA_WITH_HEADERS)):
        assert arrow_schema(headers) == to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")


@pytest.mark.smoke
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
    assert tuple(stamps) == (START_MS, START_MS + RECORDS - 1)


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


async def test_an_empty_topic_is_an_empty_frame(spark: Any, shared_servers: str) -> None:
    name = unique_topic("empty")

    async with Admin(shared_servers) as admin:
        await admin.create_topic(name, 2, 3)
        await admin.wait_until_led(name)

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


def test_a_start_beyond_the_log_is_data_loss_unless_told_otherwise(spark: Any, shared_servers: str, topic: str) -> None:
    starting = json.dumps({topic: {"0": 99, "1": 1000, "2": 100}})
    options = {"subscribe": topic, "startingOffsets": starting, "endingOffsets": starting}
    with pytest.raises(Exception, match=rf"{topic}-1: offsets 1000 to 1000 are wanted, the log holds 0 to 100"):
        read(spark, shared_servers, **options).collect()
    assert read(spark, shared_servers, **options, failOnDataLoss="false").collect() == []


def test_tasks_are_cut_to_what_is_asked_for(spark: Any, shared_servers: str, topic: str) -> None:
    def sizes(**options: str) -> list[int]:
        frame = read(spark, shared_servers, subscribe=topic, **options)
        assert numbers(frame) == [*range(RECORDS)]
        return [len(part) for part in frame.select("offset").rdd.glom().collect()]

    assert sizes(maxRecordsPerPartition="40") == [33, 33, 34] * PARTITIONS
    assert sizes(minPartitions="6") == [50] * 6
    assert len(sizes(minPartitions="18", maxRecordsPerPartition="40")) == 18


def test_times_choose_a_part(spark: Any, shared_servers: str, topic: str) -> None:
    def found(**options: str) -> list[int]:
        return numbers(read(spark, shared_servers, subscribe=topic, **options))

    def times(*after_ms: int) -> str:
        return json.dumps({topic: {str(partition): START_MS + ms for partition, ms in enumerate(after_ms)}})

    def of_each(*some: range) -> list[int]:
        return sorted(number for one in some for number in one)

    late = 10_000
    assert found(startingTimestamp=str(START_MS + 290)) == [*range(290, 300)]
    assert found(endingTimestamp=str(START_MS + 10)) == [*range(10)]
    assert found(endingTimestamp=str(START_MS + late)) == [*range(RECORDS)]
    assert found(endingOffsetsByTimestamp=times(30, 90, late)) == of_each(
        range(0, 30, 3), range(1, 90, 3), range(2, RECORDS, 3)
    )
    assert found(startingOffsetsByTimestamp=times(240, 270, 299)) == of_each(
        range(240, RECORDS, 3), range(271, RECORDS, 3), range(299, RECORDS, 3)
    )
    late_start = {"startingOffsetsByTimestamp": times(240, 271, late)}
    with pytest.raises(Exception, match=rf"{topic}-2 has no record at or after the starting timestamp"):
        found(**late_start)
    assert found(**late_start, startingOffsetsByTimestampStrategy="latest") == of_each(
        range(240, RECORDS, 3), range(271, RECORDS, 3)
    )


def test_one_time_goes_before_times_and_times_before_offsets(spark: Any, shared_servers: str, topic: str) -> None:
    offsets = json.dumps({topic: {"0": 1, "1": 1, "2": 1}})
    times = json.dumps({topic: {"0": START_MS + 100, "1": START_MS + 100, "2": START_MS + 100}})
    ends = {"endingOffsets": offsets, "endingOffsetsByTimestamp": times}
    assert numbers(read(spark, shared_servers, subscribe=topic, **ends)) == [*range(100)]
    one = {**ends, "endingTimestamp": str(START_MS + 200)}
    assert numbers(read(spark, shared_servers, subscribe=topic, **one)) == [*range(200)]
    starts = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert numbers(read(spark, shared_servers, subscribe=topic, **starts, **one)) == [*range(100, 200)]
    both = {**starts, **one, "startingTimestamp": str(START_MS + 150)}
    assert numbers(read(spark, shared_servers, subscribe=topic, **both)) == [*range(150, 200)]


def test_filters_narrow_what_is_read(spark: Any, shared_servers: str, topic: str) -> None:
    def found(condition: str) -> tuple[int, list[int]]:
        """How many tasks, and what they found."""
        frame = read(spark, shared_servers, subscribe=topic).where(condition)
        return frame.rdd.getNumPartitions(), numbers(frame)

    time = f"timestamp_millis({START_MS + 297})"
    assert found("partition = 1 and offset >= 10 and offset < 12") == (1, [31, 34])
    assert found("offset in (3, 5) and partition != 1") == (3, [9, 11, 15, 17])
    assert found(f"timestamp > {time} and partition in (1, 2, 7)") == (2, [298, 299])
    assert found(f"timestamp >= {time} and timestamp <= {time}") == (3, [297])
    assert found(f"topic = 'another' or (timestamp < {time} and offset = 99)") == (3, [])
    assert found("topic = 'another'") == (1, [])  # Spark wants a task


def test_what_lies_outside_a_filter_is_not_fetched(spark: Any, shared_servers: str, bed: Bed) -> None:
    """In the middle of the topic is a batch that cannot be decoded; who reads it learns which, under either setting."""
    topic = bed.topic
    asyncio.run(_append(bed, batch(b"a", b"b", b"c"), made(record(longer=1)), batch(b"d")))

    def found(condition: str = "true", **options: str) -> list[bytes]:
        frame = read(spark, shared_servers, subscribe=topic, **options).where(condition)
        return [row["value"] for row in frame.orderBy("offset").collect()]

    for loss in ("true", "false"):
        with pytest.raises(Exception, match=rf"{topic}-0: bad batch at offset 3: .*seek to 4 to skip it"):
            found(failOnDataLoss=loss)
    assert found(endingOffsets=json.dumps({topic: {"0": 3}})) == [b"a", b"b", b"c"]
    assert found(startingOffsets=json.dumps({topic: {"0": 4}})) == [b"d"]
    assert found("offset < 3") == [b"a", b"b", b"c"]
    assert found("offset > 3") == [b"d"]


async def _append(bed: Bed, *batches: bytes) -> None:
    channel = GrpcNet().channel(bed.address(bed.leader), purpose="test")
    try:
        for records in batches:
            answer = await channel.call(REPLICA_SERVICE_PRODUCE, bed.produce(records=records), TIMEOUT_S)
            assert answer.results[0].error_code is ErrorCode.NONE, answer
    finally:
        await channel.close()


def test_a_topic_that_was_created_anew_is_not_taken_for_the_one_that_was_planned(
    spark: Any, shared_servers: str
) -> None:
    name = unique_topic("anew")

    def make() -> None:
        with SyncAdmin(shared_servers) as admin, SyncProducer(shared_servers) as producer:
            if name in admin.list_topics():
                admin.delete_topic(name)
                until(lambda: name not in admin.list_topics(), "the deletion", timeout_s=60.0)
            admin.create_topic(name, 1, 3)
            admin.wait_until_led(name)
            producer.send(name, b"value")
            producer.flush()

    make()
    planned = read(spark, shared_servers, subscribe=name).select("value").rdd
    tolerant = read(spark, shared_servers, subscribe=name, failOnDataLoss="false").select("value").rdd
    assert planned.getNumPartitions() == tolerant.getNumPartitions() == 1  # both are planned now
    make()
    with pytest.raises(Exception, match=f"{name}-0: the topic was deleted and created anew.*failOnDataLoss"):
        planned.collect()
    assert tolerant.collect() == []


def test_a_cluster_that_does_not_answer_is_named(spark: Any) -> None:
    options = {"kafka.request.timeout.ms": "300", "fetchOffset.numRetries": "1"}
    with pytest.raises(Exception, match=r"nothing answers at 127\.0\.0\.1:1"):
        read(spark, "127.0.0.1:1", subscribe="t", **options).collect()


async def test_a_task_follows_the_leader_when_it_is_killed(
    spark: Any, shared_cluster: LocalCluster, shared_servers: str, tmp_path: Path
) -> None:
    """60 MB in one partition, whose leader dies after the task's first megabytes; no task may fail for it."""
    name = unique_topic("moving")
    count, value = 6_000, bytes(10_000)
    reading, killed = tmp_path / "reading", tmp_path / "killed"

    async with Admin(shared_servers) as admin:
        await admin.create_topic(name, 1, 3)
        leader = broker_name((await admin.wait_until_led(name, in_sync=True)).partitions[0].leader)
    async with Producer(shared_servers, linger_ms=5) as producer:
        for _ in range(count):
            await producer.send(name, value)

    def pause_in_the_middle(batches: Iterator[Any]) -> Iterator[Any]:
        for rows in batches:
            if not reading.exists():
                reading.touch()
                until(killed.exists, "the kill", timeout_s=150.0)
            yield rows

    def kill_when_reading() -> None:
        until(reading.exists, "the first batch", timeout_s=200.0)
        shared_cluster.kill(leader)
        killed.touch()

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
        await asyncio.to_thread(wait_ready, shared_cluster, 60.0)
