"""A batch from its options to its rows, as Spark calls it, over real gRPC to brokers in memory: no JVM is needed for this."""

import json
import logging
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, StringStartsWith
from pyspark.sql.types import StructType

from helpers.driven_brokers import Driven, serve_over_grpc
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.records import Record, encode_batch
from tidelog.client.sync import _LoopThread
from tidelog.errors import TidelogError
from tidelog.pipeline.offsets import DataLossError
from tidelog.pipeline.source import TidelogSource

START = datetime(2024, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Driven]:
    """Topic t: record n, of START plus n ms, lies in partition n % 3; 90 in all."""
    thread = _LoopThread()
    cluster = Driven(thread.call(serve_over_grpc()), thread.call)
    cluster.create("t", PARTITIONS)
    for partition in range(PARTITIONS):
        fill(cluster, "t", partition, *range(partition, 90, PARTITIONS))
    yield cluster
    cluster.stop()
    thread.close()


def fill(cluster: Driven, topic: str, partition: int, *numbers: int) -> None:
    """A batch for each number."""
    cluster.append(topic, partition, *(encode_batch([Record(None, b"%d" % n, [], START_MS + n)]) for n in numbers))


def reader(cluster: Driven, topic: str = "t", filters: tuple[Filter, ...] = (), **options: str) -> Any:
    source = TidelogSource({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options})
    made: Any = source.reader(StructType())
    made.left_to_spark = list(made.pushFilters(list(filters)))
    return made


def numbers(made: Any, partitions: Any = None) -> list[int]:
    """In a task: reader and partition have been pickled."""
    made, partitions = pickle.loads(pickle.dumps((made, partitions or made.partitions())))
    return sorted(int(value.as_py()) for p in partitions for batch in made.read(p) for value in batch["value"])


def tasks(made: Any) -> list[tuple[int, int, int]]:
    return [(p.wanted.partition.partition, p.wanted.start, p.wanted.end) for p in made.partitions()]


def test_a_topic_is_read_with_a_task_for_each_partition(cluster: Driven) -> None:
    made = reader(cluster)
    assert tasks(made) == [(0, 0, 30), (1, 0, 30), (2, 0, 30)]
    assert numbers(made) == list(range(90))


def test_tasks_are_cut_to_what_is_asked_for(cluster: Driven) -> None:
    assert len(tasks(reader(cluster, minPartitions="6"))) == 6
    small = reader(cluster, maxRecordsPerPartition="20")
    assert [(start, end) for p, start, end in tasks(small) if p == 1] == [(0, 15), (15, 30)]
    assert numbers(small) == list(range(90))


def test_times_choose_a_part_and_overrule_offsets(cluster: Driven) -> None:
    one = {"startingTimestamp": str(START_MS + 40), "endingTimestamp": str(START_MS + 50)}
    assert numbers(reader(cluster, startingOffsets="nonsense", **one)) == list(range(40, 50))
    each = json.dumps({"t": {"0": START_MS + 30, "1": START_MS + 60, "2": START_MS + 10_000}})
    expected = sorted([*range(0, 30, 3), *range(1, 60, 3), *range(2, 90, 3)])
    assert numbers(reader(cluster, endingOffsetsByTimestamp=each)) == expected
    with pytest.raises(ValueError, match="t-2 has no record at or after the starting timestamp"):
        reader(cluster, startingOffsetsByTimestamp=each).partitions()
    late = reader(cluster, startingOffsetsByTimestamp=each, startingOffsetsByTimestampStrategy="latest")
    assert tasks(late) == [(0, 10, 30), (1, 20, 30)]


def test_filters_narrow_what_is_read(cluster: Driven) -> None:
    offset, partition, time = ("offset",), ("partition",), ("timestamp",)
    exact = reader(cluster, filters=(EqualTo(partition, 1), GreaterThanOrEqual(offset, 10), LessThan(offset, 12)))
    assert (tasks(exact), exact.left_to_spark) == ([(1, 10, 12)], [])
    later = GreaterThan(time, START + timedelta(milliseconds=87))
    timed = reader(cluster, filters=(later, In(partition, (1, 2, 7))))
    assert (tasks(timed), timed.left_to_spark) == ([(1, 29, 30), (2, 29, 30)], [later])
    nothing = reader(cluster, filters=(EqualTo(("topic",), "another"),))
    assert (numbers(nothing), len(nothing.partitions())) == ([], 1)
    other = StringStartsWith(("topic",), "x")
    assert reader(cluster, filters=(other,)).left_to_spark == [other]


def test_what_is_appended_after_the_plan_is_not_read(cluster: Driven) -> None:
    cluster.create("growing")
    fill(cluster, "growing", 0, 1)
    made = reader(cluster, "growing")
    planned = made.partitions()
    fill(cluster, "growing", 0, 2)
    assert numbers(made, planned) == [1]
    assert numbers(made) == [1, 2]


def test_a_topic_that_was_created_anew_is_not_taken_for_the_one_that_was_planned(
    cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.range_reader._GONE_S", 0.2)
    cluster.create("anew")
    fill(cluster, "anew", 0, 1)
    strict, tolerant = reader(cluster, "anew"), reader(cluster, "anew", failOnDataLoss="false")
    planned = strict.partitions()
    cluster.delete("anew")
    cluster.create("anew")
    fill(cluster, "anew", 0, 2)
    with pytest.raises(DataLossError, match=r"anew-0: the topic was deleted and created anew.*failOnDataLoss"):
        numbers(strict, planned)
    assert numbers(tolerant, planned) == []


def test_a_log_that_begins_after_the_start_is_data_loss_or_a_warning(
    cluster: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("short")
    fill(cluster, "short", 0, *range(5))
    cluster.delete_records("short", 0, 3)
    start = {"startingOffsets": '{"short":{"0":1}}'}
    with pytest.raises(DataLossError, match="short-0: offsets 1 to 5 are wanted, the log holds 3 to 5"):
        reader(cluster, "short", **start).partitions()
    with caplog.at_level(logging.WARNING):
        made = reader(cluster, "short", failOnDataLoss="false", maxOffsetsPerTrigger="5", **start)
        assert numbers(made) == [3, 4]
    assert "the log holds 3 to 5; reading what there is" in caplog.text
    assert "option maxOffsetsPerTrigger has no effect on a batch" in caplog.text


def test_mistakes_about_the_cluster_are_found_before_any_task(cluster: Driven) -> None:
    with pytest.raises(TidelogError, match="subscribe: topic 'gone' does not exist"):
        reader(cluster, "gone").partitions()
    with pytest.raises(
        ValueError, match=r"startingOffsets must name every partition that is read; it does not name t-1"
    ):
        reader(cluster, startingOffsets='{"t":{"0":0}}').partitions()
    source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": "x.*"}
    with pytest.raises(ValueError, match=r"subscribePattern 'x\.\*' matches no topic"):
        TidelogSource(source).reader(StructType()).partitions()


def test_a_cluster_that_does_not_answer_is_named() -> None:
    options = {"kafka.request.timeout.ms": "200", "fetchOffset.numRetries": "1", "subscribe": "t"}
    made: Any = TidelogSource({"kafka.bootstrap.servers": "127.0.0.1:1", **options}).reader(StructType())
    with pytest.raises(ClusterUnreachable, match=r"nothing answers at 127\.0\.0\.1:1"):
        made.partitions()
