"""`tidelog pipeline`: what the command line takes, and what it refuses before Spark is started."""

import signal
from pathlib import Path

import pytest

from tidelog.cli.commands import pipeline
from tidelog.pipeline.jobs import program, streaming
from tidelog.pipeline.jobs.flags import AGGREGATE, INGEST, Flag
from tidelog.pipeline.jobs.ingest import main
from tidelog.pipeline.jobs.progress import Totals
from unit.cli.conftest import Tidelog

COMMANDS = {"ingest": INGEST, "aggregate": AGGREGATE}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_job_is_one_of_its_command(
    tidelog: Tidelog, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = tidelog("pipeline", "run", command, "--help").text
    for flag in COMMANDS[command]:
        assert f"--{flag.name} " in text, flag.name


def test_what_was_not_said_does_not_reach_the_plan() -> None:
    assert pipeline._given({"a": None, "b": False, "c": [], "d": "x", "e": True, "f": ["y"]}) == {
        **{"d": "x", "e": True, "f": ["y"]}
    }


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("ingest --topic a", "--output is missing"),
        ("ingest --topic a --output x --once --trigger 1s", "give one of them"),
        ("ingest --topic a --output x --value-format json", "needs --schema"),
        ("ingest --topic a --output x --onse", "No such option"),
        ("ingest --topic a/b --output x", "topic name"),
        ("ingest --topic a --output x --starting-offsets soon", "startingOffsets must be latest or earliest or JSON"),
        ("ingest --topic a --output x --source-option failOnDataLos=x", "did you mean failOnDataLoss"),
        ("aggregate --topic a --to b --checkpoint c", "--window is missing"),
        ("aggregate --topic a --to b --checkpoint c --window 1m --slide 2m", "--slide of 120000 ms is over --window"),
        ("aggregate --topic a --to a --checkpoint c --window 1m", "results go to another one"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(tidelog: Tidelog, words: str, complaint: str) -> None:
    result = tidelog("pipeline", "run", *words.split())
    assert complaint in result.error
    assert result.exit_code in (1, 2)


def test_what_is_no_run_has_no_verdict_and_spark_is_not_started_for_it(tidelog: Tidelog, tmp_path: Path) -> None:
    result = tidelog("pipeline", "run", "audit", str(tmp_path))
    assert (result.exit_code, "holds no run: there is no run.json" in result.error) == (3, True)


def test_a_flag_is_an_identifier_in_python() -> None:
    assert Flag("max-offsets-per-trigger", "N", "").identifier == "max_offsets_per_trigger"


@pytest.mark.parametrize(
    "by, once, code",
    [
        (signal.SIGTERM, ("--once",), 143),
        (signal.SIGINT, ("--once",), 130),
        (None, ("--once",), 0),
        (signal.SIGTERM, (), 0),
    ],
)
def test_a_job_that_is_not_done_exits_as_its_signal_says(
    tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, by: signal.Signals | None, once: tuple[str, ...], code: int
) -> None:
    for module in (streaming, program):
        monkeypatch.setattr(module, "run_job", lambda job, servers, watcher: (Totals(), by))
    words = ["--topic", "a", "--output", "lake", *once]
    result = tidelog("pipeline", "run", "ingest", *words)
    assert (result.exit_code, result.err) == (code, "0 records in 0 batches.\n")
    assert main(words) == code
