"""Spark as a reader of the final phase: every record of the topic by its name. Needs the extra `spark`."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.faults.base import to_the_end
from tidelog.chaos.final_read import CannotRead
from tidelog.chaos.history import ASSIGNED, Ownership
from tidelog.chaos.sources import name_of
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

PROCESS: Final = "spark"
LOG: Final = "spark.log"
SCHEMA: Final = "partition int, offset long, name string"
SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a JVM that lives for seconds: the second compiler never pays back."""
ROWS_A_POLL: Final = 5_000


async def read_with_spark(servers: str, topic: str, partitions: int, chronicle: Chronicle, directory: Path) -> None:
    """CannotRead says why there is no such reading."""
    tps = [TopicPartition(topic, partition) for partition in range(partitions)]
    chronicle.append(Ownership(chronicle.now(), ASSIGNED, PROCESS, tuple(tps), final=True))
    began = chronicle.clock.now()
    found = await to_the_end(_read, servers, topic, directory / LOG)
    by_partition: dict[int, list[tuple[int, str]]] = {}
    for partition, offset, name in zip(*(found[column].to_pylist() for column in found.column_names), strict=True):
        by_partition.setdefault(partition, []).append((offset, name))
    for partition, rows in sorted(by_partition.items()):
        rows.sort()
        for first in range(0, len(rows), ROWS_A_POLL):
            part = {TopicPartition(topic, partition): rows[first : first + ROWS_A_POLL]}
            chronicle.read_by(PROCESS, began, part, None, final=True)


def _read(servers: str, topic: str, log: Path) -> "pa.Table":
    """Columns partition, offset and name."""
    try:
        from tidelog.pipeline.session import (  # a second of imports that only this reader needs
            SparkError,
            spark_session,
        )
    except ImportError as error:
        raise CannotRead(f"Spark is not installed: pip install tidelog[spark] ({error})") from error
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would print a traceback of our own Ctrl-C
    try:
        with jvm_chatter_to(log):
            spark = spark_session("tidelog-chaos", settings={"spark.driver.extraJavaOptions": SHORT_LIVED_JVM})
        try:
            return _frame(spark, servers, topic).mapInArrow(named, SCHEMA).toArrow()
        finally:
            spark.stop()
    except SparkError as error:
        raise CannotRead(f"Spark could not read topic {topic}: {error}") from error


def _frame(spark: Any, servers: str, topic: str) -> Any:
    """`spark` is a session that knows the source `tidelog`."""
    read = spark.read.format("tidelog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return (
        read.option("includeHeaders", "true")
        .load()
        .select("key", "value", "partition", "offset", "timestamp", "headers")
    )


def named(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """A task turns the Arrow batches of its partition into these."""
    import pyarrow as pa

    for batch in batches:
        keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
        times = batch["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
        names = list(map(name_of, keys, values, _headers(batch["headers"]), times))
        columns = [batch["partition"], batch["offset"], pa.array(names, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "name"])


def _headers(column: "pa.ListArray") -> Iterator[list[tuple[str, bytes | None]]]:
    pairs = column.flatten()
    keys, values = pairs.field("key").to_pylist(), pairs.field("value").to_pylist()
    at = 0
    for count in column.value_lengths().to_pylist():
        number = count or 0
        yield list(zip(keys[at : at + number], values[at : at + number], strict=True))
        at += number


@contextlib.contextmanager
def jvm_chatter_to(path: Path) -> Iterator[None]:
    """A JVM started within keeps writing its warnings there; its errors reach us as exceptions."""
    saved = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
