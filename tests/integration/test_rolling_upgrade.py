"""A rolling upgrade: processes of the last release beside this one's, replaced one at a time under load, and back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from helpers import last_release
from helpers.cluster import running_cluster, unique_topic
from helpers.loads import Load
from tidelog.client.admin import Admin
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.errors import TransportError
from tidelog.ports.net import Unary
from tidelog.release import RELEASE
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire.services import ADMIN_SERVICE_DESCRIBE_CLUSTER

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

Req = TypeVar("Req")
Res = TypeVar("Res")

PARTITIONS = 6
MIXED = ("broker-0", "controller-1", "controller-2")
"""Upgraded first: then this release's controller has brokers of both, and replicas between them."""
REST = ("broker-1", "broker-2")
WAIT_S = 60.0


@pytest.fixture
def old(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers and two controllers of the last release."""
    services = last_release.services()
    with running_cluster(tmp_path / "cluster", sources=dict.fromkeys((*MIXED, *REST), services)) as cluster:
        yield cluster


async def replace(cluster: LocalCluster, name: str, services: Path | None, admin: Admin, topic: str) -> None:
    """In order: the next one only when every replica is in sync again."""
    await asyncio.to_thread(cluster.stop, name)
    cluster.run_from(name, services)
    await asyncio.to_thread(cluster.start, name)
    await admin.wait_until_led(topic, in_sync=True, timeout_s=WAIT_S)


async def by_broker_0(cluster: LocalCluster, method: Unary[Req, Res], request: Req) -> Res:
    """Of this release where it is asked: an older one hands on what it knows, and drops what it does not."""
    channel = GrpcNet().channel(cluster.endpoints()["broker-0"], purpose="test")
    try:
        return await channel.call(method, request, 10.0)
    finally:
        await channel.close()


async def until_software(cluster: LocalCluster, brokers: dict[int, str]) -> None:
    """Waits until the controller, which runs this release, describes the brokers with these releases."""
    found = None
    async with asyncio.timeout(WAIT_S):
        while found != (RELEASE.version, brokers):
            try:
                answer = await by_broker_0(cluster, ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest())
                found = answer.controller_software, {each.broker.broker_id: each.software for each in answer.brokers}
            except TransportError as error:
                # A broker may hear of the controller in office later than another broker.
                assert error.status == "UNAVAILABLE", error
            await asyncio.sleep(0.1)


async def started(admin: Admin, directory: Path) -> Load:
    load = Load(unique_topic("rolling"), PARTITIONS, "all", directory)
    await admin.create_topic(load.topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
    await admin.wait_until_led(load.topic, in_sync=True, timeout_s=WAIT_S)
    return load


async def assert_nothing_lost(load: Load, servers: str) -> None:
    found = await load.read_back(servers)
    assert found.sound and found.read >= load.sent > 500, found


async def brought_up(cluster: LocalCluster, directory: Path) -> Load:
    """Every process goes to this release, one after another under load."""
    servers, last = bootstrap_servers(cluster), last_release.VERSION
    async with Admin(servers) as admin:
        load = await started(admin, directory)
        async with load.running(servers):
            for name in MIXED:
                await replace(cluster, name, None, admin, load.topic)
            await until_software(cluster, {0: RELEASE.version, 1: last, 2: last})
            for name in REST:
                await replace(cluster, name, None, admin, load.topic)
            await until_software(cluster, dict.fromkeys(range(3), RELEASE.version))
        return load


async def brought_down(cluster: LocalCluster, directory: Path) -> Load:
    """Processes go back to the last release, one after another under load."""
    servers, services = bootstrap_servers(cluster), last_release.services()
    async with Admin(servers) as admin:
        load = await started(admin, directory)
        async with load.running(servers):
            await replace(cluster, "broker-2", services, admin, load.topic)
            await until_software(cluster, {0: RELEASE.version, 1: RELEASE.version, 2: last_release.VERSION})
            for name in ("controller-2", "controller-1", "broker-1", "broker-0"):
                await replace(cluster, name, services, admin, load.topic)
        return load


async def test_each_process_of_the_last_release_gives_way_to_this_one_and_back(
    old: LocalCluster, tmp_path: Path
) -> None:
    for way in (brought_up, brought_down):
        await assert_nothing_lost(await way(old, tmp_path), bootstrap_servers(old))
