"""A controller that dies in the middle of its work, on real processes.

The test runs under a load with acks=all and ends with what every fault promises (`helpers.scene`).
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.requirements import requirement
from helpers.scene import WITHIN_S, Scene, state_of, under_load
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, CONTROLLER, State, Traffic, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire import znodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SESSION_MS = 6_000
LAG_MS = 3_000
"""Both longer than a busy machine holds up a process that nothing is to happen to."""
MANY = 120
"""Partitions of one operation: enough that a SIGKILL falls between its first write and its last."""
SETTINGS = {
    CONTROLLER: {
        "zookeeper_session_timeout_ms": str(SESSION_MS),
        "multi_max_operations": "2",
        "suspect_hold_ms": "500",
    },
    BROKER: {"zookeeper_session_timeout_ms": str(SESSION_MS), "replica_lag_time_max_ms": str(LAG_MS)},
}


def patient(cluster: LocalCluster) -> Admin:
    return Admin(bootstrap_servers(cluster), request_timeout_ms=int(WITHIN_S * 1000))


def write_slowly(cluster: LocalCluster, controller: str) -> None:
    """Its writes take seconds, until it is killed: with few under way at once, a link with this delay carries few in a second.
    At its own pace the last of MANY writes may come before a busy machine lets us see the first."""
    cluster.proxy.shape(controller, "zookeeper-1", Traffic(delay_s=0.3))


async def kill_at(scene: Scene, controller: str, progress: Callable[[], bool]) -> None:
    """SIGKILL as soon as there is some progress."""
    (pid,) = (row.pid for row in scene.cluster.status() if row.name == controller)
    assert pid is not None

    def watch() -> None:
        deadline = time.monotonic() + WITHIN_S
        while not progress():
            assert time.monotonic() < deadline, "there is no progress"
        os.kill(pid, signal.SIGKILL)

    await scene.do(watch)
    await scene.until(f"the end of {controller}", lambda: state_of(scene.cluster, controller) is State.STOPPED)
    await scene.do(scene.cluster.proxy.refuse, controller)
    await scene.do(scene.cluster.proxy.heal, controller, "zookeeper-1")


@requirement("A controller killed in mid-change leaves it complete or absent")
async def test_a_controller_dies_in_the_middle_of_a_creation_and_a_deletion(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The topic whose creation had begun is completed, the one whose deletion had begun is gone without a trace."""

    async with under_load(cluster, tmp_path) as scene, patient(cluster) as admin:
        topic, active = unique_topic("many"), scene.active
        path = znodes.partitions_path(topic)
        write_slowly(cluster, active)
        creation = asyncio.create_task(admin.create_topic(topic, MANY, 3))
        await kill_at(scene, active, lambda: bool(scene.stored.names(path)))
        assert 0 < len(scene.stored.names(path)) < MANY, "the creation was not in the middle"
        successor = await scene.succeeded(active)
        with suppress(TidelogError):
            await creation  # nobody could say what became of it
        found = await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        assert len(found.partitions) == len(scene.stored.names(path)) == MANY
        await scene.mended()

        write_slowly(cluster, successor)
        deletion = asyncio.create_task(admin.delete_topic(topic))
        await kill_at(scene, successor, lambda: len(scene.stored.names(path)) < MANY)
        assert scene.stored.names(path), "the deletion was not in the middle"
        await scene.succeeded(successor)
        with suppress(TidelogError):
            await deletion
        parents = (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DELETE_TOPICS)
        await scene.until("no znode", lambda: not any(topic in scene.stored.names(parent) for parent in parents))
        with pytest.raises(TidelogError) as caught:
            await admin.describe_topic(topic)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        data = [cluster.data_dir(name) for name in cluster.names(BROKER)]
        await scene.until("no replica", lambda: not any(any(each.glob(f"{topic}-*")) for each in data))
        await scene.mended()
