"""Runs one streaming query until it has done its work, fails, or is told to stop."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from tidelog.client.admin import Admin
from tidelog.ids import Address
from tidelog.pipeline.jobs.checkpoints import check
from tidelog.pipeline.jobs.driver import NotStarted, end_jvm, spark_of
from tidelog.pipeline.jobs.metrics import PipelineMetrics
from tidelog.pipeline.jobs.places import Places
from tidelog.pipeline.jobs.plans import Input, Run
from tidelog.pipeline.jobs.progress import Progress, Totals, parse
from tidelog.pipeline.jobs.waiting import awaited, master_listens
from tidelog.pipeline.source_options import parse_stream_options
from tidelog.runtime.clock import SystemClock

POLL_S: Final = 0.5
"""Spark keeps the reports of the last 100 micro-batches."""

ADMIN_TIMEOUT_MS: Final = 10_000
START_ATTEMPTS: Final = 3
NO_WORKER: Final = "Python worker failed to connect back"
"""Spark gives the worker that plans a stream ten seconds to import what it needs, and a busy machine may take longer."""


class Watcher(Protocol):
    """Whoever shows how far a job is."""

    def phase(self, what: str) -> None: ...

    def progressed(self, progress: Progress, totals: Totals) -> None: ...


class Plan(Protocol):
    """What the plans of the two streaming jobs have in common."""

    @property
    def input(self) -> Input: ...

    @property
    def run(self) -> Run: ...

    @property
    def checkpoint(self) -> str: ...

    def identity(self) -> Mapping[str, Any]:
        """What its checkpoint belongs to."""


class Job(Protocol):
    """What the two streaming jobs have of their own."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def output(self) -> str | None: ...

    @property
    def to(self) -> str | None:
        """The topic that must exist for the results."""

    def source_options(self) -> Mapping[str, str]:
        """Without the brokers."""

    def settings(self) -> Mapping[str, str]:
        """Of Spark."""

    def writer(self, records: Any, servers: str) -> Any:
        """A DataStreamWriter over the records that the source gives; without trigger and checkpoint."""


class Stop:
    """Set by SIGINT and SIGTERM; a second one ends the process at once, and its JVM with it."""

    def __init__(self, end_start: Callable[[], None] | None = None) -> None:
        """`end_start` is called when a signal comes before `started`: Spark takes ten seconds, and nothing is lost yet."""
        self.by: signal.Signals | None = None
        self._end_start = end_start

    @property
    def asked(self) -> bool:
        return self.by is not None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(128 + number)
        self.by = signal.Signals(number)
        if self._end_start is not None:
            self._end_start()

    def started(self) -> None:
        self._end_start = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self.forgiving():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def forgiving(self) -> Iterator[None]:
        """What fails in Spark after a signal is no failure of the job: Ctrl-C at a terminal ends the JVM of spark-submit and
        Spark's own Python workers too. The next run does the micro-batch again."""
        try:
            yield
        except (PySparkException, Py4JError, ConnectionError, NotStarted):
            if not self.asked:
                raise


def run_job(job: Job, servers: Sequence[Address], watcher: Watcher) -> tuple[Totals, signal.Signals | None]:
    """What it did, and the signal that stopped it before its work was done.

    ValueError or TidelogError before anything has started when the plan does not fit what is there, JobError when Spark
    or the query fails. Runs in the main thread, where signals arrive.
    """
    bootstrap = ",".join(map(str, servers))
    source = {"kafka.bootstrap.servers": bootstrap, **job.source_options()}
    parse_stream_options(source)
    metrics, stop = PipelineMetrics(CollectorRegistry()), Stop(end_jvm)
    watcher.phase("asking the brokers")
    cluster_id = asyncio.run(_prepared(servers, job, watcher))
    totals = Totals()
    with metrics.served(job.plan.run.metrics_address), stop.installed():
        watcher.phase("starting Spark")
        with spark_of(job.plan.run, f"tidelog {job.name}", job.settings(), lambda: stop.asked) as spark:
            stop.started()
            with stop.forgiving():
                writer = _writer(spark, job, cluster_id, source, bootstrap)
                watcher.phase("running")
                run_query(writer, stop, lambda progress, totals: _show(progress, totals, metrics, watcher), totals)
            watcher.phase("stopping Spark" if stop.by is None else f"{stop.by.name}, stopping Spark")
    return totals, stop.by


def _show(progress: Progress, totals: Totals, metrics: PipelineMetrics, watcher: Watcher) -> None:
    metrics.progressed(progress)
    watcher.progressed(progress, totals)


async def _prepared(servers: Sequence[Address], job: Job, watcher: Watcher) -> str:
    """The cluster's id, once everything is there that the job needs."""
    clock, wait_s = SystemClock(), job.plan.run.wait_ms / 1000
    cluster_id = await awaited(lambda: _ask(servers, job), wait_s, clock, watcher.phase)
    if wait_s:
        await awaited(lambda: master_listens(job.plan.run.master), wait_s, clock, watcher.phase)
    return cluster_id


async def _ask(servers: Sequence[Address], job: Job) -> str:
    """The cluster's id; TidelogError when a topic does not exist."""
    async with Admin(servers, request_timeout_ms=ADMIN_TIMEOUT_MS) as admin:
        for topic in (*job.plan.input.topics, *((job.to,) if job.to is not None else ())):
            await admin.describe_topic(topic)
        return (await admin.describe_cluster()).cluster_id


def _writer(spark: Any, job: Job, cluster_id: str, source: Mapping[str, str], bootstrap: str) -> Any:
    places = Places(spark)
    checkpoint = places.qualified(job.plan.checkpoint)
    output = None if job.output is None else places.qualified(job.output)
    identity = {**job.plan.identity(), "cluster": cluster_id, **({} if output is None else {"output": output})}
    place = places.look(checkpoint, output)
    check(place, identity)
    records = spark.readStream.format("tidelog").options(**source).load()
    writer = job.writer(records, bootstrap).option("checkpointLocation", checkpoint)
    trigger = (
        {"availableNow": True} if job.plan.run.once else {"processingTime": f"{job.plan.run.trigger_ms} milliseconds"}
    )
    if place.identity is None:
        places.mark(checkpoint, identity)
    return writer.queryName(job.name).trigger(**trigger)


def run_query(writer: Any, stop: Stop, show: Callable[[Progress, Totals], None], totals: Totals) -> None:
    """Starts again when Spark had no patience with its own Python worker before the first micro-batch."""
    for attempts_left in reversed(range(START_ATTEMPTS)):
        if stop.asked:
            break
        try:
            follow(writer.start(), stop, show, totals)
            break
        except StreamingQueryException as error:
            if NO_WORKER not in str(error) or totals.batches or not attempts_left or stop.asked:
                raise


def follow(query: Any, stop: Stop, show: Callable[[Progress, Totals], None], totals: Totals) -> None:
    """Until the query has ended, or a stop was asked for and it is stopped; `show` gets each micro-batch once, in order."""
    seen = Seen()
    running = True
    while running:
        running = not query.awaitTermination(POLL_S)
        if stop.asked and running:
            query.stop()  # a micro-batch that is not finished is done again by the next run
            running = False
        for report in seen.new(query):
            progress = parse(report)
            if progress is not None:
                totals.add(progress)
                show(progress, totals)


class Seen:
    """Which of Spark's reports were read."""

    def __init__(self) -> None:
        self._last: tuple[int, str] | None = None

    def new(self, query: Any) -> list[Mapping[str, Any]]:
        newest = query.lastProgress
        if newest is None or _key(json.loads(newest.json)) == self._last:
            return []
        reports: list[Mapping[str, Any]] = [json.loads(report.json) for report in query.recentProgress]
        keys = [_key(report) for report in reports]
        begin = keys.index(self._last) + 1 if self._last in keys else 0
        self._last = keys[-1]
        return reports[begin:]


def _key(report: Mapping[str, Any]) -> tuple[int, str]:
    return int(report["batchId"]), str(report["timestamp"])
