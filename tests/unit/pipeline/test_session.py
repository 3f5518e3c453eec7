"""The Spark session where Spark itself cannot start."""

from typing import NoReturn

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidelog.pipeline.session import NO_JVM, spark_session


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
