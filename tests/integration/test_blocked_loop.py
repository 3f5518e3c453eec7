"""A broker whose event loop stands still while its process runs: its session ends, others lead, and it comes back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import running_cluster
from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import under_load
from helpers.scripts import ROOT
from tidelog.cluster.local import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S, STANDS_S = 4.0, 12.0
QUICK = {"zookeeper_session_timeout_ms": str(int(SESSION_S * 1000))}
SETTINGS = {"broker": QUICK | {"replica_lag_time_max_ms": "3000"}, "controller": QUICK}
STANDS = f"""\
import signal, time

signal.signal(signal.SIGUSR1, lambda *_: time.sleep({STANDS_S}))
"""
"""Python runs it in each process that begins in its folder. A handler of a signal runs between two steps of the loop."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "tidelog").symlink_to(ROOT / "services" / "tidelog")
    (tree / "sitecustomize.py").write_text(STANDS)
    with running_cluster(tmp_path / "cluster", sources={"broker-0": tree}, settings=SETTINGS) as cluster:
        yield cluster


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_a_leader_whose_loop_stands_still_is_replaced(cluster: LocalCluster, tmp_path: Path) -> None:
    async with under_load(cluster, tmp_path) as scene:
        assert scene.state().leader == 0
        (pid,) = [row.pid for row in cluster.status() if row.name == "broker-0"]
        assert pid is not None
        os.kill(pid, signal.SIGUSR1)
        await scene.reached("another leader", lambda state: state.leader in (1, 2))
        await scene.more_acks()
        await scene.full()
        assert metric(cluster, "broker-0", "tidelog_event_loop_slow_steps_total") >= 1
        assert metric(cluster, "broker-0", "tidelog_zk_session_expirations_total") >= 1
    assert scene.longest_stall_s(0) < STANDS_S, "writes went on before it did"
    said = cluster.logs("broker-0", 1_000).splitlines()
    assert any("a step of the event loop took" in line and "sitecustomize.py" in line for line in said)


WATCHED = """
import asyncio, sys
from tidelog.runtime.loop_watch import LoopWatch
late, slow = [], []
async def main():
    watch = asyncio.ensure_future(LoopWatch(late.append, slow.append).run())
    await asyncio.sleep(0.3)
    print("turns", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.sleep(0.3)
    print(max(late), max(slow, default=0.0))
asyncio.run(main())
"""
STOPPED_S = 1.5


def test_a_stopped_process_was_late_and_had_no_slow_step() -> None:
    command = [sys.executable, "-c", WATCHED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "turns\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
        late, slow = map(float, process.stdout.read().split())
    assert late > STOPPED_S - 0.1 and slow < STOPPED_S / 2
