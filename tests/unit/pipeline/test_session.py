"""The Spark session where Spark itself cannot start."""

from typing import NoReturn

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidelog.pipeline import session
from tidelog.pipeline.jobs.driver import JobError, spark_of
from tidelog.pipeline.jobs.plans import run_of
from tidelog.pipeline.session import NO_JAVA, NO_JVM, spark_session


@pytest.mark.parametrize(
    ("condition", "told"),
    [("JAVA_GATEWAY_EXITED", NO_JVM), ("NO_ACTIVE_SESSION", "No active Spark session found")],
)
def test_missing_java_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, condition: str, told: str) -> None:
    def cannot(_: SparkSession.Builder) -> NoReturn:
        raise PySparkRuntimeError(errorClass=condition, messageParameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", cannot)
    with pytest.raises(PySparkRuntimeError) as caught:
        spark_session("test", "local[1]")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("home", "told"), [(None, NO_JAVA), ("/nope", "JAVA_HOME is /nope, and /nope/bin/java is no program: ")]
)
def test_no_java_is_said_without_a_log_of_spark(monkeypatch: pytest.MonkeyPatch, home: str | None, told: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(JobError) as caught, spark_of(run_of({}), "test", {}):
        pass
    assert str(caught.value).startswith(told) and "log" not in str(caught.value)


@pytest.mark.parametrize("topics", [True, False])
def test_a_session_for_files_alone_does_not_know_topics(monkeypatch: pytest.MonkeyPatch, topics: bool) -> None:
    registered: list[str] = []
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: "session")
    monkeypatch.setattr(session, "register", registered.append)
    spark_session("test", "local[1]", topics=topics)
    assert registered == ["session"] * topics
