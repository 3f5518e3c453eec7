"""A chaos run whose own directory cannot be written."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.chaos import launch as launching
from tidelog.chaos.faults.base import On
from tidelog.chaos.launch import launch, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.run_files import RunFile
from tidelog.runtime.clock import SystemClock

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
