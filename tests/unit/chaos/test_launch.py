"""A chaos run that came to no end: its own disk is full, its harness failed, or the cluster did not recover."""

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.histories import Story
from tidelog.chaos import launch as launching
from tidelog.chaos.campaign import Result
from tidelog.chaos.faults.base import On
from tidelog.chaos.history import HistoryWriter
from tidelog.chaos.launch import Outcome, launch, next_directory, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.run import Unkept
from tidelog.chaos.run_files import RunFile, judge
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.tasks import TaskFailed

NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


class RunOnAFullDisk:
    def __init__(self, _scenario: Any, file: RunFile, *_: Any) -> None:
        self._file = file

    async def play(self) -> None:
        self._file.created = True
        raise NO_ROOM


def test_the_topic_is_deleted_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: RunFile, directory: Path) -> None:
        raise NO_ROOM

    ended: list[str] = []
    monkeypatch.setattr(launching, "Run", RunOnAFullDisk)
    monkeypatch.setattr(launching, "_end_topic", lambda cluster, topic, verdict, say: ended.append(topic))
    monkeypatch.setattr(RunFile, "write", write)
    clusters: Any = SimpleNamespace(of=lambda shape, say: object())
    watcher: Any = SimpleNamespace(say=lambda line: None)
    with pytest.raises(OSError, match=rf"No space left on device; `make clean` removes old runs: '{tmp_path}'"):
        launch(order("row-01", On.LOCAL, 1, directory=tmp_path), clusters, SystemClock(), watcher, ChaosMetrics())
    assert len(ended) == 1 and ended[0].startswith("chaos-")


class Silent(SimpleNamespace):
    """A watcher that says nothing, and a cluster that has no process."""

    def say(self, line: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def names(self) -> list[str]:
        return []


def launched(directory: Path, monkeypatch: pytest.MonkeyPatch, story: Story, error: Exception) -> Outcome:
    """A run that writes this history, and ends with the error."""

    class EndedRun:
        def __init__(self, *_: Any) -> None: ...

        async def play(self) -> None:
            with HistoryWriter(directory / "history.jsonl") as writer:
                for record in story.records:
                    writer.append(record)
            raise error

    monkeypatch.setattr(launching, "Run", EndedRun)
    monkeypatch.setattr(launching, "bootstrap_servers", lambda cluster: "")
    clusters: Any = SimpleNamespace(of=lambda shape, say: Silent())
    run = order("row-01", On.LOCAL, 1, directory=directory)
    return launch(run, clusters, SystemClock(), cast(Any, Silent()), ChaosMetrics())


def test_a_harness_that_fails_is_no_broken_promise(tmp_path: Path, monkeypatch) -> None:
    outcome = launched(tmp_path, monkeypatch, Story().phase("load").log("a"), TaskFailed("kill broker-0"))
    assert outcome.exit_code == 3 and outcome.file.ended == "no verdict: the harness failed: TaskFailed: kill broker-0"
    assert RunFile.read(tmp_path).ended == outcome.file.ended
    assert "TaskFailed: kill broker-0" in (tmp_path / "harness.txt").read_text()
    assert Result.of(outcome).said == outcome.file.ended


def test_what_a_failed_harness_has_written_is_judged(tmp_path: Path, monkeypatch) -> None:
    outcome = launched(tmp_path, monkeypatch, Story().phase("load").log("a").poll((0, "b")), RuntimeError("no"))
    assert outcome.exit_code == 1 and outcome.verdict is not None and not outcome.verdict.sound


def test_a_cluster_that_does_not_recover_has_broken_its_promise(tmp_path: Path, monkeypatch) -> None:
    unkept = Unkept("every partition has a leader and a full ISR", "chaos-0: leader -1", "within 60 s")
    outcome = launched(tmp_path, monkeypatch, Story().phase("load").log("a"), unkept)
    assert outcome.exit_code == 1 and outcome.verdict is not None and unkept.kept in outcome.verdict.promises
    assert judge(tmp_path).exit_code == 1, "it is in the files"


def test_a_directory_that_holds_a_run_takes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched(tmp_path, monkeypatch, Story().phase("load").log("a"), TaskFailed("over"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(ScenarioError, match=f"{tmp_path} holds a run already; choose another directory, or delete"):
        launched(tmp_path, monkeypatch, Story().phase("load"), TaskFailed("over"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_two_runs_do_not_write_into_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(ScenarioError, match=f"another run writes into {tmp_path}; choose another directory"):
            launched(tmp_path, monkeypatch, Story().phase("load"), TaskFailed("over"))
    finally:
        os.close(held)
    assert not [*tmp_path.iterdir()]


def test_runs_that_start_together_get_directories_of_their_own(tmp_path: Path) -> None:
    names = [next_directory("row", tmp_path).name for _ in range(3)]
    assert names == ["row-1", "row-2", "row-3"]
