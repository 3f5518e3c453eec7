"""The Spark session of a job: its own noise goes to a file, its errors become one line."""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

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


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark raises inside becomes a JobError with the cause alone."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise JobError(cause_of(str(error))) from error


@contextmanager
def spark_of(run: Run, app: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session for one job, stopped at the end. `settings` are Spark's own; those of `run` win. JobError when Spark fails."""
    _silence()
    _find_java()
    _find_master(run.master)
    if submitted():
        # The JVM is not ours, and writes where spark-submit was called.
        with plain_errors(), _session(run, app, {"spark.log.level": "ERROR", **settings}, None) as spark:
            _leave_ctrl_c_to_us(spark)
            yield spark
        return
    with _log_of(run) as log, plain_errors(), _session(run, app, {"spark.log.level": "WARN", **settings}, log) as spark:
        yield spark


@contextmanager
def _session(run: Run, app: str, settings: Mapping[str, str], log: Path | None) -> Iterator[Any]:
    try:
        with nullcontext() if log is None else _standard_error_to(log):
            spark = spark_session(app, run.master, {**settings, **run.conf})
    except (PySparkException, Py4JError) as error:
        # A master that nobody reaches is a "stopped SparkContext" for Spark.
        where = "" if run.master is None else f" at {run.master}"
        raise JobError(f"Spark does not start{where}: {cause_of(str(error))}") from error
    try:
        yield spark
    finally:
        _stop(spark)


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


def _leave_ctrl_c_to_us(spark: Any) -> None:
    """Ctrl-C reaches the JVM of spark-submit too, which would end at once, below the query that is being stopped."""
    signals = spark._jvm.sun.misc
    signals.Signal.handle(signals.Signal("INT"), signals.SignalHandler.SIG_IGN)


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
