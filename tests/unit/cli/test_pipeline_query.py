"""`tidelog pipeline query`: what it refuses before Spark is started, what it says meanwhile, and what Spark refuses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException

from tidelog.cli.pipeline_screen import Screen
from tidelog.pipeline.jobs import query
from tidelog.pipeline.jobs.driver import _standard_error_to
from unit.cli.conftest import Tidelog

SQL = "SELECT * FROM records"


class FakeSpark:
    """Takes any query, or fails with `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.read = SimpleNamespace(
            parquet=lambda directory: SimpleNamespace(createOrReplaceTempView=lambda name: None)
        )

    def sql(self, text: str) -> Any:
        if self._error is not None:
            raise self._error
        return text


def starts(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> list[str]:
    """`spark` is what starts; returns the names of the sessions."""
    started: list[str] = []

    @contextmanager
    def spark_of(run: Any, app: str, settings: Any, *, topics: bool) -> Iterator[FakeSpark]:
        assert not topics, "a query reads files alone"
        started.append(app)
        yield spark

    monkeypatch.setattr(query, "spark_of", spark_of)
    monkeypatch.setattr(query, "Places", lambda spark: SimpleNamespace(names=lambda where: {"_spark_metadata", "0"}))
    monkeypatch.setattr(query, "_answer", lambda found, rows_max, as_json: query.Answer(("n",), [("7",)], False))
    return started


def finished(directory: Path, *batches: str) -> str:
    """The name of an output, with `batches` in its list."""
    (directory / "_checkpoint").mkdir(parents=True)
    for name in batches:
        (directory / "_spark_metadata").mkdir(exist_ok=True)
        (directory / "_spark_metadata" / name).touch()
    return str(directory)


def test_a_directory_that_is_not_there_is_refused_at_once(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    started = starts(monkeypatch, FakeSpark())
    result = tidelog("pipeline", "query", "/nope", SQL)
    assert result.error.startswith("tidelog: /nope does not exist or is empty; name the --output of ")
    assert (result.exit_code, started) == (2, [])


def test_a_directory_of_something_else_is_refused_at_once(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = starts(monkeypatch, FakeSpark())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.parquet").touch()
    result = tidelog("pipeline", "query", "other", SQL)
    assert result.error.startswith("tidelog: other was not written by an ingest; name the --output of ")
    assert (result.exit_code, started) == (2, [])


@pytest.mark.parametrize("batches", [(), (".0.tmp",)])
def test_an_ingest_that_was_killed_is_to_be_run_again(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: tuple[str, ...]
) -> None:
    started = starts(monkeypatch, FakeSpark())
    finished(tmp_path / "lake", *batches)
    result = tidelog("pipeline", "query", "lake", SQL)
    assert result.error == "tidelog: lake holds no finished batch: run the ingest again"
    assert (result.exit_code, started) == (1, [])


@pytest.mark.parametrize("batch", ["0", "9.compact"])
def test_each_step_of_a_query_is_a_line(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    started = starts(monkeypatch, FakeSpark())
    output = finished(tmp_path / "lake", batch)
    result = tidelog("pipeline", "query", output, SQL)
    assert (result.exit_code, result.text, started) == (0, "n\n7\n", ["tidelog query"])
    assert result.err.splitlines() == [
        *(
            "query: starting Spark ...",
            f"query: reading {output} ...",
            "query: running ...",
            "query: stopping Spark ...",
        )
    ]


def test_json_has_no_lines_of_steps(tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, FakeSpark())
    result = tidelog("pipeline", "query", finished(tmp_path / "lake", "0"), SQL, "--format", "json")
    assert (result.exit_code, result.err) == (0, "")


@pytest.mark.parametrize(
    "directory, conf", [("hdfs://host/lake", ""), ("lake", "spark.hadoop.fs.defaultFS=hdfs://host"), ("file:/lake", "")]
)
def test_other_file_systems_are_left_to_spark(
    tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, directory: str, conf: str
) -> None:
    started = starts(monkeypatch, FakeSpark())
    assert tidelog("pipeline", "query", directory, SQL, *(("--conf", conf) if conf else ())).exit_code == 0
    assert started == ["tidelog query"]


@pytest.mark.parametrize("kind", [ParseException, AnalysisException])
def test_sql_that_is_not_understood_is_bad_input(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[AnalysisException]
) -> None:
    starts(monkeypatch, FakeSpark(kind("[SOME_CLASS] Cannot resolve `nope`. SQLSTATE: 42703; line 1 pos 7;\n'Project")))
    result = tidelog("pipeline", "query", finished(tmp_path / "lake", "0"), "SELECT nope FROM records")
    assert result.err.splitlines()[-1] == "tidelog: Cannot resolve `nope`. line 1 pos 7"
    assert result.exit_code == 2


def test_a_directory_elsewhere_is_looked_at_through_spark(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, FakeSpark())
    monkeypatch.setattr(query, "Places", lambda spark: SimpleNamespace(names=lambda where: set()))
    result = tidelog("pipeline", "query", "hdfs://host/lake", SQL)
    assert result.err.splitlines()[-1].startswith("tidelog: hdfs://host/lake does not exist or is empty; ")
    assert result.exit_code == 2


def test_the_line_moves_while_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, terminal = os.openpty()
    before = os.dup(2)
    monkeypatch.setenv("TERM", "xterm")
    try:
        os.dup2(terminal, 2)
        with os.fdopen(terminal, "w") as stream, monkeypatch.context() as patch:
            patch.setattr("sys.stderr", stream)
            with Screen("query") as screen, _standard_error_to(tmp_path / "log"):
                screen.phase("starting Spark")
                screen._bar._progress.refresh()
        os.set_blocking(here, False)
        shown = b""
        with suppress(BlockingIOError):
            while True:  # a terminal gives 4 KiB at once, and a slow machine draws often
                shown += os.read(here, 100_000)
        assert "query: starting Spark" in shown.decode()
        assert (tmp_path / "log").read_bytes() == b""
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(here)
