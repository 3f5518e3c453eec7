"""The session of a job: what becomes of a start that is broken off, and of signals that the JVM gets too."""

import logging
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from tidelog.pipeline.jobs import driver
from tidelog.pipeline.jobs.driver import JobError, NotStarted, spark_of
from tidelog.pipeline.jobs.plans import run_of

SIG_IGN = "ignored"


class FakeSpark:
    """Keeps what its JVM makes of signals."""

    def __init__(self) -> None:
        self.handled: dict[str, str] = {}
        signals = SimpleNamespace(
            Signal=type("Signal", (), {"__new__": lambda cls, name: name, "handle": self.handled.__setitem__}),
            SignalHandler=SimpleNamespace(SIG_IGN=SIG_IGN),
        )
        self._jvm = SimpleNamespace(sun=SimpleNamespace(misc=signals))

    def stop(self) -> None:
        pass


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Counts how often the JVM was told to end. The log of Spark is in `tmp_path`."""
    told: list[str] = []
    monkeypatch.setattr(driver, "end_jvm", lambda: told.append("ended"))
    monkeypatch.setattr(driver, "java_missing", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return told


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def cannot(*args: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(driver, "spark_session", cannot)


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError()])
def test_a_start_that_a_signal_ends_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ended: list[str], error: Exception
) -> None:
    answers = iter([False, True])
    fails(monkeypatch, error)
    with pytest.raises(NotStarted), spark_of(run_of({}), "test", {}, lambda: next(answers)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_spark_is_not_started_after_a_signal(monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> None:
    fails(monkeypatch, AssertionError())
    with pytest.raises(NotStarted), spark_of(run_of({}), "test", {}, lambda: True):
        pass


def test_ctrl_c_while_spark_starts_ends_the_jvm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ended: list[str]
) -> None:
    fails(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), spark_of(run_of({}), "test", {}):
        pass
    assert (ended, list(tmp_path.iterdir())) == (["ended"], [])


def test_a_start_that_fails_by_itself_is_told(monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> None:
    fails(monkeypatch, Py4JNetworkError("no memory"))
    with pytest.raises(JobError, match="Spark does not start: no memory"), spark_of(run_of({}), "test", {}):
        pass


def test_the_jvm_leaves_sigterm_to_the_job(monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> None:
    spark = FakeSpark()
    monkeypatch.setattr(driver, "spark_session", lambda *args: spark)
    with spark_of(run_of({}), "test", {}):
        pass
    assert (spark.handled, ended) == ({"TERM": SIG_IGN}, [])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with spark_of(run_of({}), "test", {}):
        pass
    assert spark.handled == {"TERM": SIG_IGN, "INT": SIG_IGN}


def test_ctrl_c_is_taken_back_from_spark(monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> None:
    before = signal.getsignal(signal.SIGINT)

    def starts(*args: Any) -> FakeSpark:
        signal.signal(signal.SIGINT, lambda number, frame: None)  # as SparkContext does
        return FakeSpark()

    monkeypatch.setattr(driver, "spark_session", starts)
    try:
        with spark_of(run_of({}), "test", {}):
            assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


def test_py4j_logs_no_trace_of_a_call_that_ends_early(
    monkeypatch: pytest.MonkeyPatch, ended: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "spark_session", lambda *args: FakeSpark())
    with spark_of(run_of({}), "test", {}):
        for file in ("java_gateway.py", "other.py"):
            record = logging.LogRecord("root", logging.ERROR, file, 1, f"of {file}", (), None)
            logging.getLogger().handle(record)
    assert caplog.messages == ["of other.py"]
