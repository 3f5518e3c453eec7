"""scripts/clean.sh on a tree of its own: what it removes, what stays, and what it says of both."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from helpers.scripts import ROOT
from tidelog.chaos.faults.base import On
from tidelog.chaos.launch import launch, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.api import Cluster, ClusterError
from tidelog.runtime.clock import SystemClock

LEFT = (
    "data/chaos/row-01-1/run.json",
    "data/chaos/row-01-1/history.jsonl",
    "data/chaos/row-02-1/scenario.yaml",
    "data/chaos/results.jsonl",
    "build/gate/abc/passed",
    "build/pycache/test.pyc",
    "build/kafka/3.9/jar",
    "spark-warehouse/x",
    "derby.log",
    ".pytest_cache/v",
    ".mypy_cache/3.11/x",
    "services/tidelog/__pycache__/a.pyc",
    "tests/unit/__pycache__/b.pyc",
)
OTHERS = (
    "data/local/cluster.json",
    "data/local/broker-1/broker-1.log",
    "data/lake/part-0.parquet",
    "data/chaos/notes/of-mine.txt",
    "data/chaos/my-scenario.yaml",
    "build/mine",
    ".env",
    ".venv/lib/__pycache__/c.pyc",
    "services/tidelog/a.py",
    "docs/__pycache__/by-hand",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/clean.sh", tmp_path / "scripts")
    shutil.copytree(ROOT / "scripts/lib", tmp_path / "scripts/lib")
    for name in (*LEFT, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5_000)
    return tmp_path


def clean(tree: Path, *arguments: str, exit_code: int = 0) -> str:
    done = subprocess.run([tree / "scripts/clean.sh", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stderr
    return done.stdout if not exit_code else done.stderr


def files(tree: Path) -> set[str]:
    found = (path.relative_to(tree) for path in tree.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "scripts"}


def test_leftovers_go_and_all_else_stays(tree: Path) -> None:
    said = clean(tree)
    assert files(tree) == set(OTHERS)
    lines = said.splitlines()
    removed = [line for line in lines if re.match(r" *[\d.]+KiB  ", line)]
    assert [line.split("  ")[-1] for line in removed] == [
        *("data/chaos/row-01-1", "data/chaos/row-02-1", "data/chaos/results.jsonl"),
        *("build/gate", "build/pycache", "build/kafka"),
        *("spark-warehouse", "derby.log", ".pytest_cache", ".mypy_cache", "__pycache__ of 2 folders", "in all"),
    ]
    assert len({line.index("  ", 8) for line in lines}) == 1, "the columns are aligned"
    assert "data/local, a local cluster: tidelog local down --dir data/local ends it, rm -r data/local deletes" in said
    assert "data/chaos/notes, which no build and no run has made" in said and "data/chaos," not in said
    assert "data/lake, which no build and no run has made: rm -r data/lake deletes it" in said
    assert ".venv: rm -r .venv deletes it" in said


def test_a_second_time_there_is_nothing(tree: Path) -> None:
    clean(tree)
    assert re.match(r" +0\.0B  in all\n", clean(tree))


@pytest.fixture
def process(tree: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that has a file of a run open, as a broker has its log."""
    with (tree / "data/chaos/row-02-1/log").open("w") as log:
        found = subprocess.Popen(["sleep", "60"], stdout=log)
    yield found
    found.kill()
    found.wait()


def test_a_run_that_a_process_uses_stays(tree: Path, process: subprocess.Popen[bytes]) -> None:
    said = clean(tree)
    assert f"data/chaos/row-02-1 stays: process {process.pid} (sleep) uses it" in said
    assert (tree / "data/chaos/row-02-1/scenario.yaml").exists() and not (tree / "data/chaos/row-01-1").exists()


def test_help_and_unknown_options_remove_nothing(tree: Path) -> None:
    before = files(tree)
    assert "scripts/clean.sh [--help]" in clean(tree, "--help")
    assert "unknown option --all" in clean(tree, "--all", exit_code=1)
    assert files(tree) == before


class CleansBefore:
    """Cleans up at the moment at which a run asks for its cluster, and has none."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def of(self, *_: object) -> Cluster:
        self.said = clean(self.tree)
        raise ClusterError("none here")


class Blind:
    def say(self, what: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def tick(self, *_: object) -> None: ...


def test_a_run_in_progress_stays(tree: Path) -> None:
    directory, clusters = tree / "data/chaos/row-01-9", CleansBefore(tree)
    asked = order("row-01", On.LOCAL, 1, directory=directory)
    outcome = launch(asked, clusters, SystemClock(), Blind(), ChaosMetrics())
    assert f"data/chaos/row-01-9 stays: process {os.getpid()} " in clusters.said
    assert outcome.verdict is None and (directory / "scenario.yaml").exists()
    assert "data/chaos/row-01-9\n" in clean(tree) and not directory.exists()
