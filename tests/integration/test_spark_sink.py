"""The Spark sink `tidelog` against real brokers and a real Spark: what Spark's Kafka sink does, kills at every step of a
micro-batch, and attempts at one task beside each other."""

import asyncio
import datetime as dt
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers.cluster import unique_topic
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.partitioner import partition_for_key
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.pipeline.exactly_once import Attempt, SinkState
from tidelog.pipeline.rows import Layout
from tidelog.pipeline.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, Delivery, SinkOptions

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 3
TASK_TRIES = 3

STEPS = ("before the first send", "half way", "after the flush", "before the commit", "after the commit")
"""Where a process of the sink is killed, one micro-batch each. The last two are beside the driver."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from tidelog.pipeline.session import spark_session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    session = spark_session("tidelog-sink-tests", f"local[2,{TASK_TRIES}]", settings)
    yield session
    session.stop()


@pytest.fixture
def topic(shared_servers: str) -> str:
    return make_topic(shared_servers)


def make_topic(servers: str, **configs: str) -> str:
    name = unique_topic("sink")

    async def create() -> None:
        async with AdminClient(servers) as admin:
            await admin.create_topic(name, PARTITIONS, 3, configs=configs)
            await admin.wait_until_led(name, in_sync=True)

    asyncio.run(create())
    return name


def records_of(servers: str, topic: str) -> list[ConsumerRecord]:
    async def read() -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        async with Consumer(servers) as consumer:
            await consumer.assign_topics(topic)
            await consumer.seek_to_beginning()
            total = sum((await consumer.end_offsets(consumer.assignment)).values())
            while len(found) < total:
                found += await consumer.poll()
        return found

    return asyncio.run(read())


def save(frame: Any, servers: str, **options: str) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


# --- batches -------------------------------------------------------------------------------------------------------


def test_columns_become_records_as_with_sparks_kafka_sink(spark: Any, shared_servers: str, topic: str) -> None:
    other = make_topic(shared_servers)
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, dt.UTC)
    ddl = (
        "topic string, key string, value binary, partition int, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>"
    )
    rows = [
        (topic, "k1", b"v1", None, at, [("h", b"1"), ("h", None)]),
        (topic, "k2", None, None, at, None),
        (topic, None, b"v3", 2, at, []),
        (other, None, b"v4", 1, at, None),
    ]
    frame = spark.createDataFrame([(*row[:5], row[5] and [tuple(h) for h in row[5]]) for row in rows], ddl)
    save(frame, shared_servers)

    found = {r.value: r for r in records_of(shared_servers, topic)}
    assert found.keys() == {b"v1", None, b"v3"}
    assert found[b"v1"].key == b"k1" and list(found[b"v1"].headers) == [("h", b"1"), ("h", None)]
    assert found[b"v1"].partition == partition_for_key(b"k1", PARTITIONS)
    assert found[None].key == b"k2"
    assert (found[b"v3"].key, found[b"v3"].partition) == (None, 2)
    assert {r.timestamp_ms for r in found.values()} == {int(at.timestamp() * 1000)}
    (sent,) = records_of(shared_servers, other)
    assert (sent.value, sent.partition) == (b"v4", 1)

    save(frame, shared_servers, topic=other)
    assert len(records_of(shared_servers, other)) == 1 + len(rows)


def test_many_rows_arrive_once_each_by_several_tasks(spark: Any, shared_servers: str, topic: str) -> None:
    frame = spark.range(3000).repartition(3).selectExpr("cast(id as string) value")
    save(frame, shared_servers, **{"topic": topic, "kafka.compression.type": "lz4", "kafka.batch.size": "4000"})
    found = records_of(shared_servers, topic)
    assert sorted(int(r.value or b"") for r in found) == list(range(3000))
    assert {r.partition for r in found} == set(range(PARTITIONS))


def test_a_schema_that_does_not_fit_is_refused_and_nothing_is_written(
    spark: Any, shared_servers: str, topic: str
) -> None:
    with pytest.raises(
        Exception, match=r"value attribute unsupported type bigint. value must be a.n. string or binary"
    ):
        save(spark.range(5).selectExpr("id value"), shared_servers, topic=topic)
    assert records_of(shared_servers, topic) == []


# --- streams -------------------------------------------------------------------------------------------------------


def killing_source(folder: Path) -> type:
    """A source `killing` whose sink is that of `tidelog` with a process that dies at each of STEPS.

    Micro-batch n dies at step n: once in a task that Spark tries again, at the third step in each of its tries.
    """
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    from tidelog.pipeline.source import TidelogSource

    def kills(step: int) -> int:
        return sum(name.startswith(f"{step}-") for name in os.listdir(folder))

    def strike(step: int, batch_id: int) -> None:
        done, wanted = kills(step), TASK_TRIES if step == 2 else 1
        if step == batch_id and done < wanted:
            (folder / f"{step}-{done}").touch()
            os._exit(9)

    class KillingWriter(DataSourceStreamArrowWriter):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            from itertools import islice

            context = TaskContext.get()
            assert context is not None
            batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
            if context.partitionId() == 0:
                strike(0, batch_id)
                if batch_id == 1 and not kills(1):
                    self.inner.write(islice(iterator, 3))
                    strike(1, batch_id)
            message = self.inner.write(iterator)
            if context.partitionId() == 0:
                strike(2, batch_id)
            return message

        def commit(self, messages: Any, batchId: int) -> None:
            strike(3, batchId)
            self.inner.commit(messages, batchId)
            strike(4, batchId)

        def abort(self, messages: Any, batchId: int) -> None:
            self.inner.abort(messages, batchId)

    class KillingSource(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return KillingWriter(super().streamWriter(schema, overwrite))

    return KillingSource


def test_kills_at_every_step_lose_no_row_and_repeat_micro_batches(
    spark: Any, shared_servers: str, topic: str, tmp_path: Path
) -> None:
    lines = {f"{file}-{row}" for file in range(len(STEPS) + 1) for row in range(200)}
    for name in ("in", "kills"):
        (tmp_path / name).mkdir()
    for file in range(len(STEPS) + 1):
        path = tmp_path / "in" / f"{file}.txt"
        path.write_text("".join(f"{line}\n" for line in sorted(lines) if line.startswith(f"{file}-")))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))  # the order of the micro-batches
    spark.dataSource.register(killing_source(tmp_path / "kills"))
    restarts = 0
    while not run_stream(spark, shared_servers, topic, tmp_path):
        restarts += 1
        assert restarts <= len(STEPS)

    kills = Counter(name.split("-")[0] for name in os.listdir(tmp_path / "kills"))
    assert kills == {"0": 1, "1": 1, "2": TASK_TRIES, "3": 1, "4": 1}
    assert restarts == 3  # the tries at the third step are used up, and the last two are the driver's
    counts = Counter((r.value or b"").decode() for r in records_of(shared_servers, topic))
    assert counts.keys() == lines
    twice = {line.split("-")[0] for line, count in counts.items() if count > 1}
    assert twice == {"1", "2", "3", "4"}


def run_stream(spark: Any, servers: str, topic: str, folder: Path) -> bool:
    """One run of the query; False if it failed. The shuffle is there to have two tasks."""
    from pyspark.errors import StreamingQueryException

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    query = (
        lines.repartition(2, "value")
        .writeStream.format("killing")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("kafka.batch.size", "1500")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException:
        return False
    return True


class Dies(Exception):
    pass


def die() -> None:
    raise Dies


def test_a_task_that_dies_anywhere_on_its_way_leaves_each_row_once(shared_servers: str, topic: str) -> None:
    values = [b"%d" % n for n in range(1000)]
    left: list[int] = []
    for number, row in enumerate(range(100, len(values), 100), 1):
        shuffled = random.Random(number).sample(values, len(values))
        # What a dead one had on its way may still cross the next one, which Spark tries again as well.
        with pytest.raises((Dies, TidelogError)):
            write_task(shared_servers, topic, shuffled, attempt(number), at_row=(row, die))
        left.append(len(records_of(shared_servers, topic)))
    written = retried(lambda n: write_task(shared_servers, topic, values, attempt(n)), first=len(left) + 1)
    assert sum(left) > 0 and left == sorted(left)
    assert written.skipped > 0
    assert Counter(r.value for r in records_of(shared_servers, topic)) == Counter(values)


def test_rows_that_change_when_a_micro_batch_is_repeated_are_found(shared_servers: str, topic: str) -> None:
    values = [[b"%d" % n for n in range(10)], [b"%d" % n for n in range(5, 15)]]
    write_task(shared_servers, topic, values[0], attempt(1))
    with pytest.raises(RuntimeError, match="micro-batch 4 did not come back as it was: task 0 finds 5 records"):
        write_task(shared_servers, topic, values[1], attempt(2))


def test_an_attempt_that_was_given_up_adds_nothing_when_it_goes_on(shared_servers: str, topic: str) -> None:
    values = [b"%d" % n for n in range(2000)]
    go_on, reached = threading.Event(), threading.Event()
    errors: list[TidelogError] = []

    def pause() -> None:
        reached.set()
        assert go_on.wait(60)

    def leftover() -> None:
        try:
            write_task(shared_servers, topic, values, attempt(1), at_row=(1000, pause))
        except TidelogError as error:
            errors.append(error)

    thread = threading.Thread(target=leftover)
    thread.start()
    assert reached.wait(60)
    try:
        written = retried(lambda number: write_task(shared_servers, topic, values[::-1], attempt(number)))
    finally:
        go_on.set()
        thread.join(60)
    assert 0 < written.skipped < len(values)
    assert "Another attempt at task 0 of micro-batch 4 has written there" in str(errors[0])
    assert Counter(r.value for r in records_of(shared_servers, topic)) == Counter(values)


def test_batches_that_a_topic_does_not_take_are_split(shared_servers: str) -> None:
    values = [b"%d" % n for n in range(400)]
    once, plain = (make_topic(shared_servers, **{"max.message.bytes": "1000"}) for _ in range(2))
    with pytest.raises((Dies, TidelogError)):
        write_task(shared_servers, once, values, attempt(1), at_row=(300, die))
    retried(lambda n: write_task(shared_servers, once, values[::-1], attempt(n)))
    write_task(shared_servers, plain, values)
    for topic in (once, plain):
        assert Counter(r.value for r in records_of(shared_servers, topic)) == Counter(values)
    with pytest.raises(
        TidelogError, match=r"max.message.bytes is 1000.*it holds one row, which the topic does not take"
    ):
        write_task(shared_servers, once, [b"x" * 1000], Attempt("query", 5, 0, False, 1))


def attempt(number: int) -> Attempt:
    return Attempt("query", 4, 0, number > 1, number)


def retried(write: Callable[[int], Any], first: int = 2) -> Any:
    """As Spark does: what an earlier attempt had on its way may still cross this one."""
    for number in (first, first + 1):
        try:
            return write(number)
        except TidelogError as error:
            assert "Another attempt" in str(error)
    return write(first + 2)


def write_task(
    servers: str,
    topic: str,
    values: list[bytes],
    who: Attempt | None = None,
    at_row: tuple[int, Callable[[], None]] | None = None,
) -> Any:
    from tidelog.pipeline.sink_task import write_rows

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(values), 100):
            if at_row is not None and begin == at_row[0]:
                at_row[1]()
            yield pa.record_batch({"value": pa.array(values[begin : begin + 100])})

    addresses = tuple(Address.parse(part) for part in servers.split(","))
    delivery: Delivery = AT_LEAST_ONCE if who is None else EXACTLY_ONCE
    options = SinkOptions(addresses, topic=topic, delivery=delivery, checkpoint="none", batch_bytes=3000)
    return asyncio.run(write_rows(options, Layout(topic, {"value": 0}), batches(), who, SinkState("query", {})))
