"""scripts/chaos/kill_leader.sh on a local cluster: its verdict, its clean-up, and that it notices a fault that missed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import unique_topic
from tidelog.chaos.faults.base import FaultMissed
from tidelog.chaos.kill_leader import KillLeader, Scenario
from tidelog.chaos.ledger import Ledger
from tidelog.cluster.api import State
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until
from tidelog.runtime.clock import SystemClock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos" / "kill_leader.py"


def command(cluster: LocalCluster, topic: str, *more: str) -> list[str]:
    return [sys.executable, str(SCRIPT), "--on", "local", "--base", str(cluster.base), topic, "1", *more]


def states(cluster: LocalCluster) -> set[State]:
    return {row.state for row in cluster.status()}


def test_the_script_ends_with_a_verdict_and_the_cluster_as_it_was(shared_cluster: LocalCluster) -> None:
    topic = unique_topic("chaos")
    pids = {row.name: row.pid for row in shared_cluster.status()}
    for life in range(2):  # the second time, the topic exists and holds what another run wrote
        arguments = command(shared_cluster, topic, "--down", "2", "--rate", "500")
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every promise was kept." in done.stdout
        assert ("created topic" in done.stdout) is (life == 0)
    changed = [row.name for row in shared_cluster.status() if row.pid != pids[row.name]]
    assert 1 <= len(changed) <= 2 and all(name.startswith("broker-") for name in changed)
    assert states(shared_cluster) == {State.RUNNING}


def test_an_interrupted_script_starts_the_broker_again(shared_cluster: LocalCluster) -> None:
    arguments = command(shared_cluster, unique_topic("chaos"), "--down", "600")
    run = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ, start_new_session=True
    )
    try:
        until(lambda: State.STOPPED in states(shared_cluster), "the kill", timeout_s=90.0)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60.0) == 130
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    assert states(shared_cluster) == {State.RUNNING}
    wait_ready(shared_cluster, 60.0)


class Harmless:
    """A cluster whose kill does nothing."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def kill(self, name: str) -> None:
        pass


def test_a_fault_that_missed_gives_no_verdict(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", writable=True)
    scenario = Scenario(unique_topic("chaos"), before_s=0.2)
    run = KillLeader(Harmless(shared_cluster), scenario, ledger, SystemClock(), random.Random(1), lambda what: None)
    with pytest.raises(FaultMissed, match=r"broker-\d was killed and is running as process \d+"):
        asyncio.run(run.run())


def test_without_a_cluster_there_is_one_line_and_no_verdict(tmp_path: Path) -> None:
    arguments = [sys.executable, str(SCRIPT), "--on", "compose", "--project", "tidelog-nobody"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("kill_leader: no verdict: ") and done.stderr.count("\n") == 1
