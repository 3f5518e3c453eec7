"""scripts/chaos/inject.py on a local cluster: what it shows, and that it leaves nothing behind however it is ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster import states
from helpers.scripts import ROOT
from tidelog.cluster.api import State
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def command(cluster: LocalCluster, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "scripts/chaos/inject.py"), *words, "--base", str(cluster.base)]


def test_a_fault_is_shown_healed_and_waited_for(shared_cluster: LocalCluster) -> None:
    done = subprocess.run(
        command(shared_cluster, "kill", "follower of 0", "--for", "2s", "--before", "1s"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [
        done.stdout.find(part) for part in ("created topic", "took effect: broker-", "healed\n", "every ISR is full")
    ]
    assert -1 not in said and said == sorted(said), done.stdout
    assert set(states(shared_cluster).values()) == {State.RUNNING}


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_ctrl_c_heals_once_or_twice_hit(shared_cluster: LocalCluster, times: int) -> None:
    running = subprocess.Popen(
        command(shared_cluster, "pause", "broker-1", "--for", "600s"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ,
        start_new_session=True,
    )
    try:
        until(lambda: states(shared_cluster)["broker-1"] is State.PAUSED, "the pause", timeout_s=90.0)
        for _ in range(times):
            running.send_signal(signal.SIGINT)
        assert running.wait(60.0) == 130
        assert running.stderr is not None and b"interrupted; the fault was healed" in running.stderr.read()
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
        if running.stderr is not None:
            running.stderr.close()
    assert states(shared_cluster)["broker-1"] is State.RUNNING
    wait_ready(shared_cluster, 60.0)


def test_a_target_that_is_not_there_is_no_verdict(shared_cluster: LocalCluster) -> None:
    argv = command(shared_cluster, "kill", "broker-9", "--before", "0s")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("kill: no verdict: no process broker-9") and done.stderr.count("\n") == 1


def test_a_cluster_of_its_own_is_started_where_links_are_cut_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "scripts/chaos/inject.py"), "isolate", "leader of 0", "--peers", "all brokers"]
    options = ["--for", "2s", "--before", "1s", "--base", str(tmp_path / "none")]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting one in" in done.stdout and "cut from broker-" in done.stdout
    folder = next(line for line in done.stdout.splitlines() if "starting one in" in line).rpartition(" ")[2]
    assert not Path(folder).exists()
