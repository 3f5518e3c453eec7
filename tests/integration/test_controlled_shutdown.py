"""SIGTERM of brokers under load: rows 8 and 24 of the fault matrix, L30 and L32, on real processes."""

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helpers.cluster import running_cluster, unique_topic
from helpers.loads import Load
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.cluster.api import bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.os_process import OsProcess
from tidelog.wire import messages as m

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SESSION_MS = 30_000
"""Longer than anything below may take: whoever waited for the end of a session would be seen."""
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {kind: {"zookeeper_session_timeout_ms": str(SESSION_MS)} for kind in ("broker", "controller")}
    with running_cluster(tmp_path_factory.mktemp("leave") / "cluster", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def servers(cluster: LocalCluster) -> str:
    return bootstrap_servers(cluster)


async def loads(admin: Admin, directory: Path, acks: list[str]) -> list[Load]:
    made = [Load(unique_topic(f"acks-{each}"), PARTITIONS, each, directory) for each in acks]
    for load in made:
        await admin.create_topic(load.topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        await admin.wait_until_led(load.topic, in_sync=True, timeout_s=30.0)
    return made


def exit_code(cluster: LocalCluster, name: str) -> int | None:
    process: OsProcess = cluster._process(name)
    assert process._child is not None
    return process._child.poll()


def is_clean(cluster: LocalCluster, name: str) -> bool:
    return (cluster.data_dir(name) / ".clean-shutdown").exists()


def elections(cluster: LocalCluster, reason: str) -> float:
    """Leaders elected for `reason`, over both controllers."""
    total = 0.0
    for row in cluster.status():
        if row.kind == "controller":
            with urllib.request.urlopen(f"http://{row.addresses['METRICS']}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            pattern = rf'^tidelog_controller_leader_elections_total{{reason="{reason}"}} ([0-9.e+]+)$'
            total += sum(float(found) for found in re.findall(pattern, text, re.MULTILINE))
    return total


def has_left(topic: m.TopicDescription, broker_id: int) -> bool:
    return all(p.leader not in (-1, broker_id) and broker_id not in p.isr for p in topic.partitions)


@requirement("A controlled shutdown moves leaders before the process exits")
@requirement("A terminated leader hands over before it exits")
async def test_a_leader_that_is_terminated_hands_over_first_and_loses_nothing(
    cluster: LocalCluster, servers: str, tmp_path: Path
) -> None:
    """No loss with acks=all and acks=1, leaders moved and ISRs shrunk before the exit, a clean end."""

    before = {reason: elections(cluster, reason) for reason in ("shutdown", "suspected", "broker_down")}
    async with Admin(servers) as admin, AsyncExitStack() as stack:
        running = await loads(admin, tmp_path, ["1", "all"])
        for load in running:
            await stack.enter_async_context(load.running(servers))
        await asyncio.sleep(1.0)
        victim = (await admin.describe_topic(running[0].topic)).partitions[0].leader
        name = broker_name(victim)
        await asyncio.to_thread(cluster.stop, name, 30.0)
        for load in running:
            assert has_left(await admin.describe_topic(load.topic), victim)
        await asyncio.sleep(1.0)
    assert exit_code(cluster, name) == 0 and is_clean(cluster, name)
    assert "controlled shutdown done in" in cluster.logs(name)
    # It led a third of both topics; nobody was elected because it was gone.
    after = {reason: elections(cluster, reason) - count for reason, count in before.items()}
    assert after == {"shutdown": 4, "suspected": 0, "broker_down": 0}
    for load in running:
        found = await load.read_back(servers)
        assert found.sound and found.read >= load.sent > 500, (load.acks, found)
        assert found.duplicated == 0, (load.acks, found)
        assert load.longest_stall_s() < SESSION_MS / 1000 / 3, (load.acks, load.longest_stall_s())
    cluster.start(name)
    await full(servers, [load.topic for load in running])
    assert not is_clean(cluster, name)  # removed before anything is loaded


async def full(servers: str, topics: list[str]) -> None:
    async with Admin(servers) as admin:
        for topic in topics:
            await admin.wait_until_led(topic, in_sync=True, timeout_s=60.0)


@requirement("A published message survives failures of servers")
@requirement("A rolling restart batches ISR changes and drops no replica")
@requirement("A rolling restart of all brokers causes no rebalance")
async def test_a_rolling_restart_loses_nothing(cluster: LocalCluster, servers: str, tmp_path: Path) -> None:
    """SIGTERM, start, wait for the full ISR; the next. Without loss at any acks, and without a partition offline."""

    before = {reason: elections(cluster, reason) for reason in ("suspected", "broker_down")}
    ends = []
    async with Admin(servers) as admin, AsyncExitStack() as stack:
        running = await loads(admin, tmp_path, ["1", "all"])
        for load in running:
            await stack.enter_async_context(load.running(servers))
        for name in ("broker-0", "broker-1", "broker-2"):
            await asyncio.to_thread(cluster.stop, name, 30.0)
            ends.append((name, exit_code(cluster, name), is_clean(cluster, name)))
            await asyncio.to_thread(cluster.start, name)
            for load in running:
                await admin.wait_until_led(load.topic, in_sync=True, timeout_s=60.0)
    assert ends == [(f"broker-{i}", 0, True) for i in range(3)]
    assert {reason: elections(cluster, reason) - count for reason, count in before.items()} == dict.fromkeys(before, 0)
    for load in running:
        found = await load.read_back(servers)
        assert found.sound and found.read >= load.sent > 500, (load.acks, found)
        assert load.longest_stall_s() < SESSION_MS / 1000 / 3, (load.acks, load.longest_stall_s())


def test_f12_1_a_broker_whose_controllers_are_gone_stops_anyway(cluster: LocalCluster, servers: str) -> None:
    """The limit of the question ends it; what it leaves behind is a failover like any other."""
    controllers = cluster.names("controller")
    for name in controllers:
        cluster.kill(name)
    try:
        cluster.stop("broker-1", 30.0)
        assert exit_code(cluster, "broker-1") == 0 and is_clean(cluster, "broker-1")
        assert "controlled shutdown given up in" in cluster.logs("broker-1")
    finally:
        for name in controllers:
            cluster.start(name)
        cluster.start("broker-1")
