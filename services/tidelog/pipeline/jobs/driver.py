"""The Spark session of a job: its own noise goes to a file, its errors become one line."""

import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from tidelog.pipeline.jobs.causes import cause_of
from tidelog.pipeline.jobs.plans import Run
from tidelog.pipeline.jobs.waiting import master_listens
from tidelog.pipeline.session import java_missing, spark_session, submitted

CONTEXT_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class JobError(Exception):
    """A job failed; one line says why."""


class NotStarted(Exception):
    """Spark was to end before it had started."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark raises inside becomes a JobError with the cause alone."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise JobError(cause_of(str(error))) from error


@contextmanager
def spark_of(
    run: Run, app: str, settings: Mapping[str, str], stopped: Callable[[], bool] = lambda: False, *, topics: bool = True
) -> Iterator[Any]:
    """A session for one job, stopped at the end. `settings` are Spark's own; those of `run` win. JobError when Spark fails,
    NotStarted when it does so after `stopped`. Without `topics` it reads files alone."""
    _silence()
    _find_java()
    _find_master(run.master)
    if submitted():
        # The JVM is not ours, and writes where spark-submit was called.
        quiet = {"spark.log.level": "ERROR", **settings}
        with plain_errors(), _session(run, app, quiet, None, stopped, topics) as spark:
            _leave_to_us("INT", spark)
            yield spark
        return
    quiet = {"spark.log.level": "WARN", **settings}
    with _log_of(run) as log, plain_errors(), _session(run, app, quiet, log, stopped, topics) as spark:
        _leave_to_us("TERM", spark)
        yield spark


@contextmanager
def _session(
    run: Run, app: str, settings: Mapping[str, str], log: Path | None, stopped: Callable[[], bool], topics: bool
) -> Iterator[Any]:
    try:
        with nullcontext() if log is None else _standard_error_to(log), _whole_or_not_at_all(), _own_ctrl_c():
            if stopped():
                raise NotStarted
            spark = spark_session(app, run.master, {**settings, **run.conf}, topics)
    except (PySparkException, Py4JError, ConnectionError) as error:
        if stopped():
            raise NotStarted from None
        # A master that nobody reaches is a "stopped SparkContext" for Spark.
        where = "" if run.master is None else f" at {run.master}"
        raise JobError(f"Spark does not start{where}: {cause_of(str(error))}") from error
    try:
        yield spark
    finally:
        _stop(spark)


@contextmanager
def _whole_or_not_at_all() -> Iterator[None]:
    """PySpark leaves a JVM that is starting alone when Ctrl-C interrupts it, and such a JVM may never end."""
    with ExitStack() as undo:
        undo.callback(end_jvm)
        yield
        undo.pop_all()


@contextmanager
def _own_ctrl_c() -> Iterator[None]:
    """SparkContext sets a handler of SIGINT, which calls the JVM in the middle of another call, and py4j prints traces."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_jvm() -> None:
    """Sends SIGTERM to the JVM that this process has started, or is starting through a shell, and waits for none: PySpark
    does, and would wait for ever for an exit code that was taken from it."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()


@contextmanager
def _log_of(run: Run) -> Iterator[Path]:
    """The file that `run` names, else one that is kept only when the job fails; JobError names it."""
    log = Path(run.spark_log) if run.spark_log is not None else _temporary_log()
    failed = False
    try:
        yield log
    except JobError as error:
        failed = True
        raise JobError(f"{error} (Spark's log: {log})") from error
    finally:
        if run.spark_log is None and not failed:
            log.unlink(missing_ok=True)


def _find_java() -> None:
    """JobError without a log of Spark, which has nothing to add."""
    if not submitted() and (missing := java_missing()) is not None:
        raise JobError(missing)


def _find_master(master: str | None) -> None:
    """JobError at once, for which Spark takes a minute and has no clear words."""
    try:
        asyncio.run(master_listens(master))
    except ConnectionError as error:
        raise JobError(str(error)) from None


def _silence() -> None:
    """What PySpark and py4j say on the standard error about errors that they also raise."""
    for name in CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j logs to the root what it raises when a call ends early."""
    return record.module != "java_gateway"


def _leave_to_us(name: str, spark: Any) -> None:
    """Makes the JVM ignore a signal, at which it would end at once, below the query that is being stopped.

    Ctrl-C reaches the JVM of spark-submit too. systemd and timeout send SIGTERM to this process and to the JVM, which PySpark
    shields from Ctrl-C alone; it ends by itself when this process does.
    """
    signals = spark._jvm.sun.misc
    signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)


def _temporary_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="tidelog-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """The JVM and the workers inherit it when they are started, and write there for as long as they live."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(target, 2)
        os.close(target)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _stop(spark: Any) -> None:
    try:
        spark.stop()
    except (Py4JError, ConnectionError):
        pass  # the JVM is gone already, which its job has said
