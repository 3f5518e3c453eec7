"""Exactly-once of the Spark sink on real brokers and without Spark: what Spark calls of the writers, in its order, with a
death at every step, and attempts at one task beside each other."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from helpers.sinks import make_topic, records_of
from tidelog.cluster.wait import until
from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.pipeline.exactly_once import Attempt, SinkState
from tidelog.pipeline.rows import Layout
from tidelog.pipeline.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, Delivery, SinkOptions
from tidelog.pipeline.sink_state import FILE, Checkpoint
from tidelog.pipeline.writer import BATCH_ID, QUERY_ID, stream_writer

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

TASKS = 2
TRIES = 3
ROWS = 60
"""Of a task."""
SETTLED_S = 60.0
"""By then everything that an attempt had on its way has arrived."""

NAMES = ("key", "value")
SCHEMA = StructType().add("key", BinaryType()).add("value", BinaryType())

STEPS = (
    "in a task, before its first row",
    "in a task, half way",
    "in a task, after its last acknowledgement",
    "there as well, in each of its tries",
    "beside the driver, before the state is written",
    "beside the driver, while the state is written",
    "beside the driver, before Spark has noted that the micro-batch is finished",
)
"""Micro-batch n meets its death at step n."""


@pytest.fixture
def topic(shared_servers: str) -> str:
    return make_topic(shared_servers)


class Dies(Exception):
    pass


def die() -> None:
    raise Dies


# --- steps of a micro-batch ----------------------------------------------------------------------------------------


class Query:
    """Runs micro-batches as Spark does: what it has not noted as finished is run again when it is started again."""

    def __init__(self, servers: str, topic: str, checkpoint: Path, patch: pytest.MonkeyPatch) -> None:
        self._options = {
            "kafka.bootstrap.servers": servers,
            "kafka.batch.size": "700",
            "topic": topic,
            "delivery": EXACTLY_ONCE,
            "checkpointLocation": str(checkpoint),
        }
        self._checkpoint = checkpoint
        (checkpoint / "metadata").write_text(json.dumps({"id": "query-1"}))
        self._patch = patch
        self._noted = -1
        self._task_attempts = count()
        self.deaths: Counter[int] = Counter()

    def run(self) -> bool:
        """To its end, or to the next death that ends it: False."""
        try:
            for batch_id in range(self._noted + 1, len(STEPS) + 1):
                self._micro_batch(batch_id)
        except Dies:
            return False
        return True

    def _micro_batch(self, batch_id: int) -> None:
        writer = self._writer()
        messages = [self._task(writer, batch_id, task) for task in range(TASKS)]
        writer = self._writer()
        self._strike(4, batch_id)
        if batch_id == 5 and not self.deaths[5]:
            (self._checkpoint / f".{FILE}.new").write_text('{"version": 1, "que')
        self._strike(5, batch_id)
        writer.commit(messages, batch_id)
        self._strike(6, batch_id)
        self._noted = batch_id

    def _writer(self) -> Any:
        """Spark has one made before the tasks, and another one after them."""
        return stream_writer(self._options, SCHEMA, overwrite=False)

    def _task(self, writer: Any, batch_id: int, task: int) -> Any:
        for number in range(TRIES):
            context = object.__new__(
                TaskContext
            )  # `TaskContext()` would make one that stays: no session could begin here then
            context._partitionId, context._attemptNumber, context._taskAttemptId = (
                task,
                number,
                next(self._task_attempts),
            )
            context._localProperties = {BATCH_ID: str(batch_id), QUERY_ID: "query-1"}
            self._patch.setattr(TaskContext, "_taskContext", context)
            try:
                return self._try(writer, batch_id, task, in_batches(rows_of(batch_id, task), context._taskAttemptId))
            except Dies:
                pass
        raise Dies

    def _try(self, writer: Any, batch_id: int, task: int, batches: list[pa.RecordBatch]) -> Any:
        if task == 0:
            self._strike(0, batch_id)
            if batch_id == 1 and not self.deaths[1]:
                writer.write(iter(batches[: len(batches) // 2]))
            self._strike(1, batch_id)
        message = writer.write(iter(batches))
        if task == 0:
            self._strike(2, batch_id)
            self._strike(3, batch_id)
        return message

    def _strike(self, step: int, batch_id: int) -> None:
        if step == batch_id and self.deaths[step] < (TRIES if step == 3 else 1):
            self.deaths[step] += 1
            raise Dies


def rows_of(batch_id: int, task: int) -> list[tuple[bytes | None, bytes]]:
    """Every other one has a key, and every third is the same as the one before."""
    numbers = [n - n % 3 // 2 for n in range(ROWS)]
    return [(b"%d" % n if n % 2 else None, b"%d-%d-%d" % (batch_id, task, n)) for n in numbers]


def in_batches(rows: list[tuple[bytes | None, bytes]], seed: int) -> list[pa.RecordBatch]:
    """In an order of their own."""
    shuffled = random.Random(seed).sample(rows, len(rows))
    parts = [shuffled[begin : begin + 15] for begin in range(0, len(shuffled), 15)]
    return [
        pa.record_batch(
            {name: pa.array(column, pa.binary()) for name, column in zip(NAMES, zip(*part, strict=True), strict=True)}
        )
        for part in parts
    ]


def test_a_death_at_any_step_leaves_each_row_once(
    shared_servers: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(shared_servers, topic, tmp_path, monkeypatch)
    restarts = 0
    while not query.run():
        restarts += 1
        assert restarts <= len(STEPS)
    assert query.deaths == {step: TRIES if step == 3 else 1 for step in range(len(STEPS))}
    assert restarts == 4  # tasks are tried again until their tries are used up; the driver is not

    wanted = Counter(row for n in range(len(STEPS) + 1) for task in range(TASKS) for row in rows_of(n, task))
    found = records_of(shared_servers, topic)
    have = Counter((r.key, r.value) for r in found)
    assert have == wanted, (wanted - have, have - wanted)
    names = [dict(record.headers)["tidelog-sink"] for record in found]
    assert len(set(names)) == len(names) and all(name.startswith(b"query-1:") for name in names)
    state = Checkpoint(str(tmp_path)).load()
    assert state is not None and state.finished == len(STEPS)
    assert sum(state.ends.values()) == len(found)


# --- attempts at one task ------------------------------------------------------------------------------------------


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
    # What it has on its way may come behind the next attempt, which then finds nothing to skip, and it is refused all the same.
    until(lambda: bool(records_of(shared_servers, topic)), "rows of the first attempt", timeout_s=60.0)
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
    """As Spark does, but for its bound of four: what an earlier attempt had on its way may cross as many of these as begin
    before it has arrived."""
    deadline = time.monotonic() + SETTLED_S
    for number in count(first):
        try:
            return write(number)
        except TidelogError as error:
            assert "Another attempt" in str(error) and time.monotonic() < deadline, error


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
