"""A rolling upgrade (issue 7): processes of the last release beside this one's, replaced one at a time under load, and back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from helpers import last_release
from helpers.cluster import running_cluster, unique_topic
from helpers.loads import Load
from tidelog.client.admin import AdminClient
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TransportError
from tidelog.ports.net import Unary
from tidelog.release import FIRST, RELEASE
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire.services import ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, ADMIN_SERVICE_DESCRIBE_CLUSTER

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

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


async def replace(cluster: LocalCluster, name: str, services: Path | None, admin: AdminClient, topic: str) -> None:
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


async def until_level(cluster: LocalCluster, level: int, brokers: dict[int, int]) -> None:
    """That in use, and that of each broker, as the controller of this release tells them."""
    found = None
    async with asyncio.timeout(WAIT_S):
        while found != (level, brokers):
            try:
                answer = await by_broker_0(cluster, ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest())
                found = answer.feature_level, {each.broker.broker_id: each.feature_level for each in answer.brokers}
            except TransportError as error:
                # It hears of the controller in office when it hears of it, which may be later than another broker.
                assert error.status == "UNAVAILABLE", error
            await asyncio.sleep(0.1)


async def started(admin: AdminClient, directory: Path) -> Load:
    load = Load(unique_topic("rolling"), PARTITIONS, "all", directory)
    await admin.create_topic(load.topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
    await admin.wait_until_led(load.topic, in_sync=True, timeout_s=WAIT_S)
    return load


def assert_nothing_lost(load: Load, servers: str) -> None:
    found = asyncio.run(load.read_back(servers))
    assert found.sound and found.read >= len(load.ledger) > 500, found


async def answer_to_a_move(cluster: LocalCluster, topic: str) -> ErrorCode:
    """The replicas are those that there are, so it ends as it begins."""
    partition = m.PartitionAssignment(partition=0, replicas=(0, 1, 2))
    request = m.AlterPartitionReassignmentsRequest(
        topics=(m.TopicReassignment(topic=topic, partitions=(partition,)),),
        timeout_ms=10_000,
        leader_throttle=0,
        follower_throttle=0,
    )
    return (await by_broker_0(cluster, ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, request)).error_code


def test_each_process_of_the_last_release_gives_way_to_this_one_and_back(old: LocalCluster, tmp_path: Path) -> None:
    servers, cluster = bootstrap_servers(old), old

    async def up() -> Load:
        async with AdminClient(servers) as admin:
            load = await started(admin, tmp_path)
            async with load.running(servers):
                for name in MIXED:
                    await replace(cluster, name, None, admin, load.topic)
                await until_level(cluster, FIRST.level, {0: RELEASE.level, 1: FIRST.level, 2: FIRST.level})
                assert await answer_to_a_move(cluster, load.topic) == ErrorCode.UNSUPPORTED_VERSION
                for name in REST:
                    await replace(cluster, name, None, admin, load.topic)
                await until_level(cluster, RELEASE.level, dict.fromkeys(range(3), RELEASE.level))
                assert await answer_to_a_move(cluster, load.topic) == ErrorCode.NONE
            return load

    async def down() -> Load:
        services = last_release.services()
        async with AdminClient(servers) as admin:
            load = await started(admin, tmp_path)
            async with load.running(servers):
                await replace(cluster, "broker-2", services, admin, load.topic)
                await until_level(cluster, FIRST.level, {0: RELEASE.level, 1: RELEASE.level, 2: FIRST.level})
                for name in ("controller-2", "controller-1", "broker-1", "broker-0"):
                    await replace(cluster, name, services, admin, load.topic)
            return load

    for way in (up, down):
        assert_nothing_lost(asyncio.run(way()), servers)
