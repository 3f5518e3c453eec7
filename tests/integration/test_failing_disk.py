"""Disks that are full, slow or broken under real processes. One partition moves; its broker and the rest of it stay.

A full disk is a limit on the size of files (RLIMIT_FSIZE), which needs no rights: the kernel then writes what still fits and
fails with EFBIG, as it does with ENOSPC. Errors of the device and a slow one come from `helpers/disk_faults`.
"""

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.cluster import running_cluster
from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import Scene, left_as_found, log_bytes, under_load
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SICK = "broker-0"
SHIM = Path(__file__).resolve().parents[1] / "helpers" / "disk_faults"
FAULTS = "disk-faults.json"
STALL_LIMIT_MS = 1_000
BALLAST_BYTES = 5 << 20
"""More than a log keeps in memory, and than any other file of its broker holds: a limit on the size of files meets it alone."""
SETTINGS = {
    BROKER: {
        "log_flush_stall_limit_ms": str(STALL_LIMIT_MS),
        "replica_lag_time_max_ms": "2000",
        "metadata_reserve_bytes": "65536",
    }
}


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SHIM), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        with running_cluster(tmp_path_factory.mktemp("disk") / "cluster", settings=SETTINGS) as running:
            yield running


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    pids = {row.name: row.pid for row in module_cluster.status()}
    with left_as_found(module_cluster) as found:
        yield found
    assert {row.name: row.pid for row in module_cluster.status()} == pids, "a disk error ended a process"


@contextmanager
def disk_fails(cluster: LocalCluster, call: str, topic: str, *, error: int = 0, seconds: float = 0.0) -> Iterator[None]:
    """On the sick broker, for the copy of `topic` alone."""
    fault = {"call": call, "path": f"/{topic}-0/", **({"errno": error} if error else {"seconds": seconds})}
    file = cluster.home(SICK) / FAULTS
    file.write_text(json.dumps(fault))
    try:
        yield
    finally:
        file.unlink()


@contextmanager
def disk_is_full(cluster: LocalCluster, largest_bytes: int) -> Iterator[None]:
    """On the sick broker, for files that have `largest_bytes` already."""
    (pid,) = (row.pid for row in cluster.status() if row.name == SICK)
    assert pid is not None
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def offline(cluster: LocalCluster) -> float:
    return metric(cluster, SICK, "tidelog_broker_offline_replicas")


async def weigh_down(cluster: LocalCluster, scene: Scene) -> None:
    """Records that the load does not count."""
    async with Producer(bootstrap_servers(cluster)) as producer:
        for _ in range(BALLAST_BYTES >> 19):
            await (await producer.send(scene.topic, os.urandom(1 << 19)))


async def handed_over(healthy: Scene, sick: Scene, *, leads: bool) -> None:
    """The partition lives on elsewhere; its broker is the one that it was, and leads what it led."""
    if leads:
        await sick.reached("another leader", lambda state: state.leader in (1, 2) and 0 not in state.isr)
    else:
        await sick.reached("an ISR without it", lambda state: state.leader == 1 and 0 not in state.isr)
    await sick.more_acks()
    await healthy.more_acks()


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A full disk moves leadership and heals when space returns")
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_a_full_disk_costs_its_broker_the_partition_until_there_is_room(
    cluster: LocalCluster, tmp_path: Path, leads: bool
) -> None:
    async with (
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as healthy,
        under_load(cluster, tmp_path, assignment=[(0, 1, 2) if leads else (1, 0, 2)]) as sick,
    ):
        life, led = healthy.stored.broker_epoch(0), healthy.state()
        await weigh_down(cluster, sick)
        with disk_is_full(cluster, len(log_bytes(cluster, 0, sick.topic, 0)) + 1_000):
            await sick.until("the copy is offline", lambda: offline(cluster) == 1)
            await handed_over(healthy, sick, leads=leads)
        await sick.full()
        assert healthy.state().leader_epoch == led.leader_epoch
        assert healthy.stored.broker_epoch(0) == life


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A disk error takes one partition of one broker offline")
@pytest.mark.parametrize("call", ["writev", "fdatasync", "pread"], ids=["append", "fsync", "read"])
async def test_an_error_of_the_device_costs_its_broker_that_partition_alone(
    cluster: LocalCluster, tmp_path: Path, call: str
) -> None:
    """The copy of the leader, with flush=sync; it is fetched again, or opened again, when the device works."""

    async with (
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as healthy,
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)], flush="sync") as sick,
    ):
        life, led = healthy.stored.broker_epoch(0), healthy.state()
        if call == "pread":
            await weigh_down(cluster, sick)
        with disk_fails(cluster, call, sick.topic, error=errno.EIO):
            if call == "pread":  # what is new is served from memory
                await read_from_the_start(bootstrap_servers(cluster), sick.topic)
            await sick.until("the copy is offline", lambda: offline(cluster) == 1)
            await handed_over(healthy, sick, leads=True)
        await sick.full()
        assert healthy.state().leader_epoch == led.leader_epoch
        assert healthy.stored.broker_epoch(0) == life


async def read_from_the_start(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    async with Consumer(servers) as consumer:
        await consumer.assign([tp])
        consumer.seek(tp, 0)
        while not await consumer.poll(timeout_s=5.0):
            pass


@requirement("A stalled log sync moves leadership to another replica")
async def test_a_sync_that_takes_30_s_costs_its_broker_that_partition_alone(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """With flush=sync the leader waits for the device for log_flush_stall_limit_ms, then another one leads. The broker's session,
    and what it leads without flush=sync, do not wait at all."""

    async with (
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as healthy,
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)], flush="sync") as sick,
    ):
        life, led = healthy.stored.broker_epoch(0), healthy.state()
        with disk_fails(cluster, "fdatasync", sick.topic, seconds=30.0):
            await sick.until("the copy is offline", lambda: offline(cluster) == 1)
            await handed_over(healthy, sick, leads=True)
        await sick.full()
        assert healthy.state().leader_epoch == led.leader_epoch
        assert healthy.stored.broker_epoch(0) == life
        assert healthy.longest_stall_s() < sick.longest_stall_s() < 30.0
