"""How a process ends: signals, bugs, wrong settings; and what it logs on the way."""

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.log_events import log_of_its_own
from tidelog.errors import TidelogError
from tidelog.runtime import logs
from tidelog.runtime.process import EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED, explain

PROGRAM = """
import asyncio, errno, sys
from tidelog.config import ConfigError
from tidelog.runtime import logs, process
from tidelog.runtime.tasks import MustEnd, Supervisor

async def duplicate():
    raise MustEnd("another process runs with this id")

async def broken():
    await asyncio.sleep(0.01)
    raise ValueError("a bug")

async def serve(supervisor):
    logs.configure("broker-1", "json")
    supervisor.start("work", asyncio.Event().wait())
    try:
        {body}
    finally:
        await asyncio.sleep({stop_s})
        print("stopped in order", flush=True)

sys.exit(process.run(serve))
"""
WAIT = 'print("ready", flush=True); await supervisor.wait()'


def start(body: str, stop_s: float = 0.0) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body, stop_s=stop_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "services")},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(number: signal.Signals) -> None:
    with start(WAIT) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (EXIT_STOPPED, "stopped in order\n")
    (line,) = err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["signal"], entry["process"]) == ("stopping", number.name, "broker-1")


def test_a_second_signal_ends_at_once() -> None:
    with start(WAIT, stop_s=60) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None and "stopping" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 128 + signal.SIGTERM


@pytest.mark.parametrize("wait", ["await supervisor.wait()", "await asyncio.Event().wait()"])
def test_a_bug_in_a_task_stops_the_process_and_is_in_the_log(wait: str) -> None:
    with start(f'supervisor.start("buggy", broken()); {wait}') as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (EXIT_FAILED, "stopped in order\n")
    (line,) = err.splitlines()
    entry = json.loads(line)
    assert entry["task"] == "buggy" and "ValueError: a bug" in entry["exception"] and entry["level"] == "error"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        ('ConfigError("a: wrong\\nb: wrong")', ["a: wrong", "b: wrong"]),
        (
            'OSError(errno.EADDRINUSE, "cannot listen at h:1: Address already in use")',
            ["cannot listen at h:1: Address already in use: stop the process that listens there, or set another port"],
        ),
        ('PermissionError(errno.EACCES, "Permission denied", "/data")', ["/data: Permission denied"]),
    ],
)
def test_what_the_operator_can_mend_is_said_without_a_trace(error: str, lines: list[str]) -> None:
    with start(f"raise {error}") as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == EXIT_REFUSED and err.splitlines() == lines


def test_what_a_task_must_not_go_on_beside_is_one_line() -> None:
    with start('supervisor.start("registration", duplicate()); await supervisor.wait()') as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (EXIT_REFUSED, "stopped in order\n")
    assert err.splitlines() == ["another process runs with this id"]


def test_an_error_is_explained_in_words() -> None:
    assert explain(TidelogError("data_dir /x belongs to cluster c")) == "data_dir /x belongs to cluster c"
    assert explain(OSError("no number")) == "no number"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    with log_of_its_own():
        yield io.StringIO()


def test_every_logger_writes_one_json_line_an_event(log: io.StringIO) -> None:
    logs.configure("broker-7", "auto", stream=log)
    logging.getLogger("tidelog.broker").info("became leader", extra={"topic": "events", "partition": 3})
    logging.getLogger("grpc").warning("slow %s", "call", extra={"peer": "p"})
    logging.getLogger("tidelog.broker").debug("not shown")
    logging.getLogger("kazoo.client").info("not shown")
    first, second = (json.loads(line) for line in log.getvalue().splitlines())
    assert (first["event"], first["topic"], first["partition"], first["logger"], first["level"]) == (
        "became leader",
        "events",
        3,
        "tidelog.broker",
        "info",
    )
    assert (second["event"], second["peer"], second["logger"]) == ("slow call", "p", "grpc")
    assert {first["process"], second["process"]} == {"broker-7"} and first["timestamp"].endswith("Z")


def test_a_name_from_outside_cannot_forge_a_line(log: io.StringIO) -> None:
    for log_format in ("json", "console"):
        logs.configure("p", log_format, stream=log)  # type: ignore[arg-type]
        logging.getLogger("x").info("refused\n{}", extra={"topic": 'a\n{"event": "forged"}'})
    assert len(log.getvalue().splitlines()) == 2


def test_the_console_shows_values_and_traces(log: io.StringIO) -> None:
    logs.configure("p", "console", "debug", stream=log)
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("x").exception("failed", extra={"offset": 7})
    text = log.getvalue()
    assert "failed" in text and "offset=7" in text and "ValueError: a bug" in text and "\x1b" not in text


def test_the_memory_settings_take_effect_on_this_platform() -> None:
    program = (
        "from tidelog.runtime.loop import keep_freed_memory, settle_memory; import gc; settle_memory();"
        "print(keep_freed_memory(), gc.get_threshold()[0], gc.get_freeze_count() > 0)"
    )
    env = {"PYTHONPATH": str(Path(__file__).parents[3] / "services")}
    found = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.split()[1:] == ["50000", "True"]
    assert found.stdout.split()[0] == "True"
