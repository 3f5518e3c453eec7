"""A broker whose event loop stands still while its process runs: its session ends, others lead, and it comes back."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import running_cluster
from helpers.metrics import metric
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
