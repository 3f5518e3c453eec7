"""Runs of scenarios on real processes, from the file to the verdict; and that a verdict can be red."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.requirements import requirement
from tidelog.chaos.checking import HISTORY, CannotCheck
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.clusters import Given
from tidelog.chaos.faults.base import On
from tidelog.chaos.launch import Outcome, launch, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.run_files import RunFile, judge
from tidelog.client.producer import RecordMetadata
from tidelog.client.sync import SyncAdmin
from tidelog.cluster.api import State, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.plan import FILE_NAME
from tidelog.cluster.wait import until
from tidelog.runtime.clock import SystemClock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KILL = """\
name: row-01-short
row: 1
title: a leader dies
about: as row 1, in a few seconds
runs_in: [local]
workload:
  rate: 200
  producers: [{acks: all}, {acks: 1}]
  consumers: {assigned: 1, group: 2}
duration: 6s
faults:
  - {at: 1s, fault: kill, target: leader of 0, for: 2s}
promise:
  lost: one-copy
  unavailable: {at_most: 20s}
expect:
  - elections at least: 1
"""
FILES = {
    "scenario.yaml",
    "run.json",
    "history.jsonl",
    "history.parquet",
    "samples.jsonl",
    "replicas.json",
    "verdict.json",
    "report.html",
}


class Quiet:
    def say(self, what: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def tick(self, chronicle: Chronicle, part: float, faults: object) -> None: ...


def play(cluster: LocalCluster, directory: Path, text: str) -> Outcome:
    path = directory / "mine.yaml"
    path.write_text(text)
    asked = order(str(path), On.LOCAL, seed=1, directory=directory / "run")
    outcome = launch(asked, Given(cluster), SystemClock(), Quiet(), ChaosMetrics())
    assert {row.state for row in cluster.status()} == {State.RUNNING}
    return outcome


@requirement("A killed leader loses no acknowledged record")
@pytest.mark.smoke
def test_a_run_ends_with_its_verdict_and_can_be_judged_again(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    outcome = play(shared_cluster, tmp_path, KILL)
    verdict = outcome.verdict
    assert verdict is not None, outcome.file.ended
    assert outcome.exit_code == 0, verdict
    assert {path.name for path in outcome.directory.iterdir()} >= FILES
    assert verdict.complete and len(verdict.anomalies) > 20 and outcome.file.acked > 100
    assert [fault.name for fault in outcome.file.faults] == ["kill leader of 0"]
    assert 0 in outcome.file.affected
    assert judge(outcome.directory) == verdict

    history = outcome.directory / "history.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:20])
    cut = judge(outcome.directory)
    assert not cut.complete and any("cut off after line" in note for note in cut.notes)


def test_x7_an_acknowledgement_without_a_record_makes_a_run_red(
    shared_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker would give that forgets what it has acknowledged: at an offset that another record has."""
    told = Chronicle.ended
    lied: list[int] = []

    def ended(
        self: Chronicle, number: int, acks: str, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        if metadata is not None and acks == "all" and len(lied) < 1 and metadata.offset > 20:
            lied.append(self.tried("producer-1", metadata.topic, metadata.partition, "forgotten", acks))
            told(self, lied[0], acks, metadata, None)
        told(self, number, acks, metadata, error)

    monkeypatch.setattr(Chronicle, "ended", ended)
    outcome = play(shared_cluster, tmp_path, KILL)
    assert outcome.exit_code == 1 and outcome.verdict is not None and len(lied) == 1
    bad = {name for name, anomaly in outcome.verdict.anomalies.items() if anomaly.bad}
    assert {"lost-acked", "inconsistent-offsets"} <= bad
    assert (outcome.directory / "logs" / "broker-0.log").read_text()


def test_a_target_that_is_not_there_is_no_pass(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    outcome = play(shared_cluster, tmp_path, KILL.replace("leader of 0", "broker-7"))
    assert (outcome.verdict, outcome.exit_code) == (None, 3)
    assert "no process broker-7 in this cluster" in outcome.file.ended


def interrupted(folder: Path, text: str, reached: Callable[[Path], bool]) -> Path:
    """The directory of a run that got Ctrl-C once `reached` was true of it."""
    path, directory = folder / "mine.yaml", folder / "run"
    path.write_text(text)
    command = [sys.executable, "-m", "tidelog.cli.main", "chaos", "run", str(path), "--dir", str(directory), "--keep"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until((directory / "cluster" / FILE_NAME).exists, "the cluster", timeout_s=60.0)
        until(lambda: reached(directory), "the moment of the interrupt", timeout_s=90.0)
        run.send_signal(signal.SIGINT)
        assert run.wait(60.0) == 130
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    assert {row.state for row in LocalCluster(directory / "cluster").status()} == {State.STOPPED}
    assert RunFile.read(directory).ended == "interrupted"
    return directory


def test_an_interrupted_run_leaves_nothing_behind_but_its_files(tmp_path: Path) -> None:
    """Ctrl-C while a broker stands still: every process ends, and what there is of the history can be judged."""
    text = KILL.replace("fault: kill", "fault: pause").replace("6s", "600s").replace("for: 2s", "for: 500s")

    def paused(directory: Path) -> bool:
        return State.PAUSED in {row.state for row in LocalCluster(directory / "cluster").status()}

    verdict = judge(interrupted(tmp_path, text, paused))
    assert not verdict.complete and any("cut off after line" in note for note in verdict.notes)
    assert (verdict.sound, verdict.exit_code) == (True, 3), verdict


@pytest.mark.parametrize("phase", ["set-up", "load", "heal", "final"])
def test_an_interrupt_in_any_phase_leaves_what_there_is(phase: str, tmp_path: Path) -> None:
    """The leader is back with the healing alone, which takes its time then."""

    def reached(directory: Path) -> bool:
        history = directory / HISTORY
        return phase == "set-up" or (history.exists() and f'"phase":"{phase}"' in history.read_text())

    directory = interrupted(tmp_path, KILL.replace(", for: 2s", ""), reached)
    if not (directory / HISTORY).exists():
        with pytest.raises(CannotCheck, match=f"{directory} has no {HISTORY}"):
            judge(directory)
        return
    verdict = judge(directory)
    assert (verdict.complete, verdict.sound, verdict.exit_code) == (False, True, 3), verdict


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_under_the_history_ends_the_run_in_one_line(tmp_path: Path) -> None:
    path, small = tmp_path / "mine.yaml", tmp_path / "small"
    path.write_text(KILL)
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)], check=True)
    try:
        command = [sys.executable, "-m", "tidelog.cli.main", "chaos"]
        ran = subprocess.run([*command, "run", str(path), "--dir", str(small / "run")], capture_output=True, text=True)
        last = ran.stderr.strip().splitlines()[-1]
        assert ran.returncode == 3 and "No space left on device; `make clean` removes old runs" in last, ran.stderr
        checked = subprocess.run([*command, "check", str(small / "run")], capture_output=True, text=True)
        assert checked.returncode == 3 and len(checked.stderr.strip().splitlines()) == 1, checked
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_topic_that_was_there_before_is_not_deleted(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    topic = unique_topic("mine")
    with SyncAdmin(bootstrap_servers(shared_cluster)) as admin:
        admin.create_topic(topic, 1, 3)
        outcome = play(shared_cluster, tmp_path, KILL.replace("workload:", f"topic: {{name: {topic}}}\nworkload:"))
        assert outcome.exit_code == 3 and outcome.file.ended.endswith("exists")
        assert topic in admin.list_topics()
