"""The Spark sink `tidelog` against real brokers and a real Spark: what Spark's Kafka sink does, and both kinds of delivery
through kills at every step of a micro-batch. `test_sink_steps` has exactly-once without Spark."""

import datetime as dt
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog.pipeline
from helpers.sinks import PARTITIONS, make_topic, records_of
from tidelog.client.partitioner import partition_for_key
from tidelog.pipeline.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]

TASK_TRIES = 3
ROWS = 100
"""Of a micro-batch."""

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


def save(frame: Any, servers: str, **options: str) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


# --- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
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


def test_what_cannot_be_written_is_refused_and_nothing_is(spark: Any, shared_servers: str, topic: str) -> None:
    frame = spark.range(5).coalesce(1)
    refused = partial(pytest.raises, Exception)
    with refused(match=r"value attribute unsupported type bigint. value must be a.n. string or binary"):
        save(frame.selectExpr("id value"), shared_servers, topic=topic)
    with refused(match="option topic: topic 'no-such-topic' does not exist"):
        save(frame.selectExpr("'v' value"), shared_servers, topic="no-such-topic")
    with refused(match="partition attribute is 9 in a row; topic .* has partitions 0 to 2"):
        save(frame.selectExpr("'v' value", "cast(9 as int) partition"), shared_servers, topic=topic)
    assert records_of(shared_servers, topic) == []


# --- streams -------------------------------------------------------------------------------------------------------


def killing_source(folder: Path, topics: Mapping[str, str]) -> type:
    """A source `killing` that writes to two topics, as often as `topics` has kinds of delivery, and dies at each of STEPS.

    Micro-batch n dies at step n: once in a task that Spark tries again, at the third step in each of its tries.
    """
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

    from tidelog.pipeline.source import TidelogSource

    def kills(step: int) -> int:
        return sum(name.startswith(f"{step}-") for name in os.listdir(folder))

    def strike(step: int, batch_id: int) -> None:
        done, wanted = kills(step), TASK_TRIES if step == 2 else 1
        if step == batch_id and done < wanted:
            (folder / f"{step}-{done}").touch()
            os._exit(9)

    class Messages(WriterCommitMessage):
        def __init__(self, one_each: list[Any]) -> None:
            self.one_each = one_each

    class KillingWriter(DataSourceStreamArrowWriter):
        def __init__(self, inner: list[Any]) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            context = TaskContext.get()
            assert context is not None
            batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
            batches = list(iterator)
            strikes = context.partitionId() == 0
            if strikes:
                strike(0, batch_id)
                if batch_id == 1 and not kills(1):
                    for writer in self.inner:
                        writer.write(iter(batches[: len(batches) // 2]))
                    strike(1, batch_id)
            written = Messages([writer.write(iter(batches)) for writer in self.inner])
            if strikes:
                strike(2, batch_id)
            return written

        def commit(self, messages: Any, batchId: int) -> None:
            strike(3, batchId)
            self.each("commit", messages, batchId)
            strike(4, batchId)

        def abort(self, messages: Any, batchId: int) -> None:
            self.each("abort", messages, batchId)

        def each(self, what: str, messages: Any, batch_id: int) -> None:
            for n, writer in enumerate(self.inner):
                getattr(writer, what)([found and found.one_each[n] for found in messages], batch_id)

    class KillingSource(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            sources = [
                TidelogSource({**self.options, "delivery": delivery, "topic": name})
                for delivery, name in topics.items()
            ]
            return KillingWriter([source.streamWriter(schema, overwrite) for source in sources])

    return KillingSource


def test_kills_at_every_step_leave_each_row_once_or_at_least_once(
    spark: Any, shared_servers: str, topic: str, tmp_path: Path
) -> None:
    topics = {EXACTLY_ONCE: topic, AT_LEAST_ONCE: make_topic(shared_servers)}
    lines = {f"{file}-{row}" for file in range(len(STEPS) + 1) for row in range(ROWS)}
    for name in ("in", "kills"):
        (tmp_path / name).mkdir()
    for file in range(len(STEPS) + 1):
        path = tmp_path / "in" / f"{file}.txt"
        path.write_text("".join(f"{line}\n" for line in sorted(lines) if line.startswith(f"{file}-")))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))  # the order of the micro-batches
    spark.dataSource.register(killing_source(tmp_path / "kills", topics))
    restarts = 0
    while not run_stream(spark, shared_servers, tmp_path):
        restarts += 1
        assert restarts <= len(STEPS)

    kills = Counter(name.split("-")[0] for name in os.listdir(tmp_path / "kills"))
    assert kills == {"0": 1, "1": 1, "2": TASK_TRIES, "3": 1, "4": 1}
    assert restarts == 3  # the tries at the third step are used up, and the last two are the driver's
    found = {delivery: records_of(shared_servers, name) for delivery, name in topics.items()}
    counts = {delivery: Counter((r.value or b"").decode() for r in records) for delivery, records in found.items()}
    assert counts[EXACTLY_ONCE] == Counter(lines)
    assert counts[AT_LEAST_ONCE].keys() == lines
    assert {line[0] for line, count in counts[AT_LEAST_ONCE].items() if count > 1} == {"1", "2", "3", "4"}
    names = [dict(record.headers)["tidelog-sink"] for record in found[EXACTLY_ONCE]]
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert len(set(names)) == len(lines) and all(name.startswith(f"{query_id}:".encode()) for name in names)


def test_a_thread_that_calls_register_starts_queries(
    spark: Any, shared_servers: str, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines").write_text("a\nb\n")

    def start() -> None:
        tidelog.pipeline.register(spark)
        lines = spark.readStream.format("text").load(str(tmp_path / "in"))
        options = {"kafka.bootstrap.servers": shared_servers, "checkpointLocation": str(tmp_path / "checkpoint")}
        writer = lines.writeStream.format("tidelog").options(**options).option("topic", topic)
        writer.trigger(availableNow=True).start().awaitTermination()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(start).result()
    assert sorted(record.value or b"" for record in records_of(shared_servers, topic)) == [b"a", b"b"]


def run_stream(spark: Any, servers: str, folder: Path) -> bool:
    """One run of the query; False if it failed. The shuffle is there to have two tasks."""
    from pyspark.errors import StreamingQueryException

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    query = (
        lines.repartition(2, "value")
        .writeStream.format("killing")
        .option("kafka.bootstrap.servers", servers)
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
