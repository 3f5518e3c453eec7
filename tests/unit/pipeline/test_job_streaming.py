"""Following a query: each micro-batch is told once, and a stop ends it in order."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from tidelog.ids import Address
from tidelog.pipeline.jobs import streaming
from tidelog.pipeline.jobs.driver import NotStarted
from tidelog.pipeline.jobs.ingest import Ingest
from tidelog.pipeline.jobs.plans import ingest_plan
from tidelog.pipeline.jobs.progress import Progress, Totals
from tidelog.pipeline.jobs.streaming import NO_WORKER, START_ATTEMPTS, Stop, follow, run_query


def report(batch: int, at: str, rows: int = 10) -> str:
    took = {"addBatch": 1, "triggerExecution": 2} if rows else {"triggerExecution": 1}
    source = {"endOffset": {"a": {"0": batch}}, "latestOffset": {"a": {"0": 9}}, "numInputRows": rows}
    return json.dumps({"batchId": batch, "timestamp": at, "durationMs": took, "sources": [source]})


class FakeQuery:
    """Shows one list of reports after another, and ends after the last."""

    def __init__(self, *shown: list[str], kept: int = 100) -> None:
        self._shown = list(shown)
        self._reports: list[str] = []
        self._kept = kept
        self.stopped = False

    def awaitTermination(self, timeout_s: float) -> bool:
        if self._shown:
            self._reports += self._shown.pop(0)
        return not self._shown

    @property
    def recentProgress(self) -> list[Any]:
        return [SimpleNamespace(json=text) for text in self._reports[-self._kept :]]

    @property
    def lastProgress(self) -> Any:
        return self.recentProgress[-1] if self._reports else None

    def stop(self) -> None:
        self.stopped = True


def told(query: FakeQuery, stop: Stop | None = None) -> tuple[list[int], Totals]:
    batches: list[int] = []

    def show(progress: Progress, totals: Totals) -> None:
        batches.append(progress.batch)

    totals = Totals()
    follow(query, stop or Stop(), show, totals)
    return batches, totals


def test_every_batch_is_told_once_however_many_end_between_two_looks() -> None:
    query = FakeQuery([], [report(0, "a")], [report(1, "b"), report(2, "c")], [], [report(3, "d")])
    batches, totals = told(query)
    assert batches == [0, 1, 2, 3]
    assert (totals.rows, totals.batches) == (40, 4)


def test_a_report_of_no_work_has_the_number_of_the_batch_to_come_and_hides_nothing() -> None:
    query = FakeQuery([report(0, "a")], [report(1, "b", rows=0)], [report(1, "c"), report(2, "d", rows=0)])
    assert told(query)[0] == [0, 1]


def test_reports_that_spark_has_dropped_do_not_bring_back_old_ones() -> None:
    query = FakeQuery([report(0, "a")], [report(n, f"b{n}") for n in range(1, 6)], kept=2)
    assert told(query)[0] == [0, 4, 5]


def test_a_stop_ends_the_query_and_tells_what_was_done() -> None:
    stop = Stop()
    query = FakeQuery([report(0, "a")], [report(1, "b")], [report(2, "c")])
    with stop.installed():
        os.kill(os.getpid(), signal.SIGINT)
        batches, totals = told(query, stop)
    assert (query.stopped, batches, totals.batches) == (True, [0], 1)


def test_a_signal_ends_the_start_of_spark_and_no_query() -> None:
    ended: list[str] = []
    starting, running = Stop(lambda: ended.append("start")), Stop(lambda: ended.append("query"))
    with starting.installed():
        os.kill(os.getpid(), signal.SIGTERM)
    with running.installed():
        running.started()
        os.kill(os.getpid(), signal.SIGTERM)
    assert (starting.by, running.by, ended) == (signal.SIGTERM, signal.SIGTERM, ["start"])


def test_no_query_starts_after_a_stop() -> None:
    stop, writer = Stop(), FakeWriter()
    stop(signal.SIGTERM, None)
    run_query(writer, stop, lambda progress, totals: None, Totals())
    assert writer.started == 0


class Phases:
    """A Watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def phase(self, what: str) -> None:
        self.told.append(what)

    def progressed(self, progress: Progress, totals: Totals) -> None:
        raise AssertionError


def job_is_run(monkeypatch: pytest.MonkeyPatch, *, starts: bool) -> tuple[signal.Signals | None, list[str]]:
    """Returns what `run_job` says when SIGTERM comes while Spark starts, or while its query runs."""

    async def prepared(*args: Any) -> str:
        return "cluster"

    @contextmanager
    def spark_of(run: Any, app: str, settings: Any, stopped: Any) -> Iterator[None]:
        if not starts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopped()
            raise NotStarted
        yield

    def run_query(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise StreamingQueryException("its workers were told too")

    monkeypatch.setattr(streaming, "_prepared", prepared)
    monkeypatch.setattr(streaming, "spark_of", spark_of)
    monkeypatch.setattr(streaming, "_writer", lambda *args: None)
    monkeypatch.setattr(streaming, "run_query", run_query)
    monkeypatch.setattr(streaming, "end_jvm", lambda: None)
    plan = ingest_plan({"topic": ["a"], "output": "lake"})
    watcher = Phases()
    return streaming.run_job(Ingest(plan), [Address("127.0.0.1", 1)], watcher)[1], watcher.told


def test_sigterm_in_a_query_stops_spark_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    by, told = job_is_run(monkeypatch, starts=True)
    assert (by, told[-1]) == (signal.SIGTERM, "SIGTERM, stopping Spark")


def test_sigterm_before_a_query_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    by, told = job_is_run(monkeypatch, starts=False)
    assert (by, told[-1]) == (signal.SIGTERM, "starting Spark")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handlers_are_put_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stop().installed():
        assert signal.getsignal(number) != before
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    "error", [StreamingQueryException("KeyboardInterrupt"), Py4JNetworkError("gone"), ConnectionRefusedError()]
)
def test_what_ctrl_c_breaks_in_spark_is_no_failure(error: Exception) -> None:
    stop = Stop()
    with stop.installed():
        os.kill(os.getpid(), signal.SIGINT)
        raise error
    assert stop.asked
    with pytest.raises(type(error)), Stop().installed():
        raise error


class FakeWriter:
    """Its queries fail with `failures`, one after the other, and then one runs."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.started = 0

    def start(self) -> FakeQuery:
        self.started += 1
        if self.failures:
            raise StreamingQueryException(self.failures.pop(0))
        return FakeQuery([report(0, "a")])


def test_a_worker_that_came_too_late_is_started_again() -> None:
    writer = FakeWriter(NO_WORKER, f"terminated: {NO_WORKER}.")
    totals = Totals()
    run_query(writer, Stop(), lambda progress, totals: None, totals)
    assert (totals.batches, writer.started) == (1, 3)


@pytest.mark.parametrize("failures", [["out of disk"], [NO_WORKER] * START_ATTEMPTS])
def test_other_failures_and_too_many_are_the_users(failures: list[str]) -> None:
    writer = FakeWriter(*failures)
    with pytest.raises(StreamingQueryException):
        run_query(writer, Stop(), lambda progress, totals: None, Totals())
    assert writer.failures == []


def test_a_query_that_ended_by_itself_is_not_stopped() -> None:
    query = FakeQuery([report(0, "a")])
    told(query)
    assert not query.stopped
