"""The exactly-once sink's state in the checkpoint, and what the writers do with it beside the driver."""

import json

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from tidelog.ids import TopicPartition
from tidelog.pipeline.exactly_once import SinkState, StateError
from tidelog.pipeline.rows import Layout
from tidelog.pipeline.sink_options import parse_stream_sink
from tidelog.pipeline.sink_state import FILE, Checkpoint, begin
from tidelog.pipeline.writer import (
    PartitionRange,
    TidelogCommitMessage,
    TidelogStreamWriter,
    batch_writer,
    stream_writer,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
VALUE = StructType().add("value", StringType())


@pytest.fixture
def checkpoint(tmp_path):
    """As Spark leaves it before the first micro-batch, with a state in it."""
    (tmp_path / "metadata").write_text('{"id":"query-1"}')
    place = Checkpoint(str(tmp_path))
    place.save(SinkState("query-1", {T0: 5, T1: 0}, finished=3))
    return place


def given(checkpoint, **more):
    return {**SERVERS, "delivery": "exactly-once", "checkpointlocation": checkpoint.location, "topic": "t", **more}


def options(checkpoint, **more):
    return parse_stream_sink(given(checkpoint, **more))


def message(*ranges, **more):
    return TidelogCommitMessage(tuple(PartitionRange("t", *r) for r in ranges), **more)


@pytest.mark.parametrize("uri", ["{}", "{}/", "file:{}", "file://{}"])
def test_a_path_and_its_uris_are_one_checkpoint(checkpoint, uri):
    found = Checkpoint(uri.format(checkpoint.location))
    assert found.query_id() == "query-1" and found.load() == SinkState("query-1", {T0: 5, T1: 0}, finished=3)


def test_every_beginning_is_noted_before_tasks_run(checkpoint):
    assert [begin(options(checkpoint)).runs for _ in range(3)] == [1, 2, 3]
    assert checkpoint.load().runs == 3


def test_a_finished_micro_batch_moves_the_positions(checkpoint):
    writer = stream_writer(given(checkpoint), VALUE, overwrite=False)
    writer.commit(
        [
            message((0, 7, 9, 2), (1, 4, 8, 3), partitions={"t": 3}),
            None,
            message((0, 5, 6, 2), ends={T1: 12}),
        ],
        4,
    )
    assert checkpoint.load() == SinkState("query-1", {T0: 10, T1: 12, T2: 0}, finished=4, runs=0)


def test_a_failed_micro_batch_leaves_the_state_as_it_was(checkpoint):
    writer = stream_writer(given(checkpoint), VALUE, overwrite=False)
    writer.abort([message((0, 7, 9, 3)), None], 4)
    assert checkpoint.load() == SinkState("query-1", {T0: 5, T1: 0}, finished=3, runs=1)


def test_a_micro_batch_that_is_finished_is_not_written_again(checkpoint, monkeypatch):
    context = object.__new__(TaskContext)  # `TaskContext()` would make one that stays
    context._partitionId, context._attemptNumber, context._taskAttemptId = 0, 0, 0
    context._localProperties = {"streaming.sql.batchId": "3", "sql.streaming.queryId": "query-1"}
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    writer = stream_writer(given(checkpoint), VALUE, overwrite=False)
    assert writer.write(iter([pa.record_batch({"value": ["a", "b"]})])) == TidelogCommitMessage(skipped=2)


def test_the_state_of_another_query_is_refused(checkpoint, tmp_path):
    with pytest.raises(StateError, match="belongs to query query-1, this is query mine"):
        begin(options(checkpoint, sinkid="mine"))
    (tmp_path / "metadata").write_text('{"id":"query-2"}')
    with pytest.raises(StateError, match="belongs to query query-1, this is query query-2"):
        begin(options(checkpoint))


def test_a_place_that_spark_does_not_use_is_refused(tmp_path):
    with pytest.raises(StateError, match="Spark has no checkpoint at"):
        begin(options(Checkpoint(str(tmp_path))))


def test_a_broken_state_is_refused_and_stays(checkpoint, tmp_path):
    (tmp_path / FILE).write_text('{"version":1,')
    with pytest.raises(StateError, match="is not the state of a tidelog sink"):
        begin(options(checkpoint))
    assert (tmp_path / FILE).read_text() == '{"version":1,'


def test_a_place_that_cannot_be_opened_is_refused_by_name(checkpoint):
    with pytest.raises(StateError, match="checkpointLocation: 'nowhere:/x' cannot be opened"):
        Checkpoint("nowhere:/x")


def test_the_state_is_readable_json(checkpoint, tmp_path):
    found = json.loads((tmp_path / FILE).read_text())
    assert found == {"version": 1, "query": "query-1", "finished": 3, "runs": 0, "ends": {"t": {"0": 5, "1": 0}}}


def test_writers_refuse_before_they_ask_anybody():
    with pytest.raises(ValueError, match="Required attribute 'value' not found"):
        batch_writer({**SERVERS, "topic": "t"}, StructType(), overwrite=False)
    with pytest.raises(ValueError, match="Save mode Overwrite not allowed for tidelog"):
        batch_writer({**SERVERS, "topic": "t"}, VALUE, overwrite=True)
    with pytest.raises(ValueError, match="topic option required"):
        stream_writer(SERVERS, VALUE, overwrite=False)


def test_at_least_once_keeps_no_state(tmp_path):
    found = stream_writer({**SERVERS, "topic": "t", "checkpointlocation": str(tmp_path)}, VALUE, overwrite=True)
    assert isinstance(found, TidelogStreamWriter) and found._layout == Layout("t", {"value": 0})
    found.commit([TidelogCommitMessage()], 0)
    assert list(tmp_path.iterdir()) == []
