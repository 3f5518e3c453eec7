"""scripts/chaos/inject.py on a local cluster: what it shows, and that it leaves nothing behind however it is ended."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster import states, unique_topic
from helpers.scripts import ROOT
from tidelog.client.sync import SyncAdmin
from tidelog.cluster.api import State, bootstrap_servers
from tidelog.cluster.breaking import breaking
from tidelog.cluster.local import LocalCluster, local_name
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
    steps = ("created topic chaos-", "kill follower of 0: broker-", "follower of 0: healed\n", "every ISR is full")
    said = [done.stderr.find(part) for part in steps]
    assert -1 not in said and said == sorted(said), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("SOUND: "), "the verdict is the last line"
    assert set(states(shared_cluster).values()) == {State.RUNNING}


def test_a_second_script_is_refused_while_one_is_at_work(shared_cluster: LocalCluster) -> None:
    with breaking(local_name(shared_cluster.base)):
        done = subprocess.run(
            command(shared_cluster, "kill", "broker-1"), capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith(": try again when it has ended")
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
    assert done.stderr.splitlines()[-1].startswith("kill: no verdict: kill broker-9: no process broker-9")


def test_a_cluster_of_its_own_is_started_where_links_are_cut_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "scripts/chaos/inject.py"), "isolate", "leader of 0", "--peers", "all brokers"]
    options = ["--for", "2s", "--before", "1s", "--base", str(tmp_path / "none")]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting one in" in done.stderr and "cut from broker-" in done.stderr
    assert "Traceback" not in done.stderr
    folder = next(line for line in done.stderr.splitlines() if "starting one in" in line).rpartition(" ")[2]
    assert not Path(folder).exists()


def topics(cluster: LocalCluster) -> set[str]:
    argv = [sys.executable, "-m", "tidelog.cli.main", "topics", "list", "--format", "json"]
    servers = ["--bootstrap-server", bootstrap_servers(cluster)]
    done = subprocess.run([*argv, *servers], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


def test_a_killed_leader_is_named_and_no_topic_is_left(shared_cluster: LocalCluster) -> None:
    """The aim is a topic of the user's, to which nothing is written."""
    aim = unique_topic("aim")
    with SyncAdmin(bootstrap_servers(shared_cluster)) as admin:
        admin.create_topic(aim, 2, 3)
    before = topics(shared_cluster)
    argv = command(shared_cluster, "kill-leader", "leader of 1", "--topic", aim, "--for", "2s", "--before", "1s")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"new leader: .*{aim}-1 broker-\d in epoch ", done.stderr), done.stderr
    assert "longest time without an acknowledgement" in done.stdout
    assert topics(shared_cluster) == before
