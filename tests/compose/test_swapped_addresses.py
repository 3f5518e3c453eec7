"""Every broker is away for longer than any client waits quietly, and comes back at the IP address of another."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from helpers.cluster import unique_topic
from helpers.compose import ComposeProject
from helpers.loads import Load
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.cluster.api import broker_name
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition

BROKERS = [broker_name(n) for n in (1, 2, 3)]
NETWORK = "cluster-net"
AWAY_S = 75.0
"""Connections that fail are tried ever more seldom meanwhile, by our clients and by gRPC."""
WITHIN_S = 120.0
"""Until every ISR is full again, on a busy machine."""
WORKS_AGAIN_S = 10.0
PARTITIONS = 3
EVENTS = "events"
AGENTS = "agents"
"""The group of the containers, on the topic that the container `traffic` feeds."""
LATEST = -1

Progress = dict[str, int]


def addresses(project: ComposeProject) -> dict[str, str]:
    """IP address of each broker in the network of the cluster."""
    found = {}
    for name in BROKERS:
        networks: Mapping[str, Mapping[str, str]] = project.container(name).attrs["NetworkSettings"]["Networks"]
        found[name] = next(row["IPAddress"] for network, row in networks.items() if network.endswith(NETWORK))
    return found


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float) -> None:
    began = time.monotonic()
    while True:
        try:
            if await condition():
                return
        except (TidelogError, TransportError):
            pass  # a broker that has just started knows no answer yet
        assert time.monotonic() - began < timeout_s, f"{what} did not come within {timeout_s:g} s"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def reading(servers: str, topic: str, group: str) -> AsyncIterator[None]:
    """A member on this machine that commits what it has read."""

    async def read() -> None:
        async with Consumer(servers, group=group, topics=[topic]) as consumer:
            while True:
                await consumer.poll(500, 0.2)

    task = asyncio.create_task(read())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def progress(admin: Admin, load: Load, group: str) -> Progress:
    """Records that each producer has got acknowledged and each group has committed."""
    events = [TopicPartition(EVENTS, each.partition) for each in (await admin.describe_topic(EVENTS)).partitions]
    ends = await admin.list_offsets(dict.fromkeys(events, LATEST))
    return {
        "producer on this machine": load.acked,
        "producer in a container": sum(found.offset for found in ends.values()),
        "group on this machine": sum(found.offset for found in (await admin.groups.committed(group)).values()),
        "group of containers": sum(found.offset for found in (await admin.groups.committed(AGENTS)).values()),
    }


@requirement("A published message survives failures of servers")
async def test_all_brokers_come_back_at_swapped_addresses(project: ComposeProject, tmp_path: Path) -> None:
    servers = project.bootstrap_servers
    load = Load(unique_topic("swapped"), PARTITIONS, "all", tmp_path, request_timeout_ms=180_000)
    async with Admin(servers) as admin:
        await admin.create_topic(load.topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        await admin.wait_until_led(load.topic, in_sync=True, timeout_s=WITHIN_S)

        async def works(since: Progress) -> bool:
            now = await progress(admin, load, load.topic)
            return all(now[name] > count for name, count in since.items())

        async def whole() -> bool:
            found = await admin.describe_cluster()
            return len(found.brokers) == len(BROKERS) and found.under_replicated_partitions == 0

        async with load.running(servers), reading(servers, load.topic, load.topic):
            await until(
                lambda: works(dict.fromkeys(("group on this machine", "group of containers"), 0)), "offsets", WITHIN_S
            )
            before = addresses(project)
            for name in BROKERS:
                await asyncio.to_thread(project.faults.kill, name)
            await asyncio.sleep(AWAY_S)
            for name in reversed(BROKERS):
                await asyncio.to_thread(project.faults.start, name)
            after = addresses(project)
            assert after != before and {*after.values()} == {*before.values()}, "the engine gave out the same addresses"
            await until(whole, "every ISR full", WITHIN_S)
            then = await progress(admin, load, load.topic)
            await until(
                lambda: works(then), "a commit of every group and an acknowledgement of every producer", WORKS_AGAIN_S
            )
    found = await load.read_back(servers)
    assert found.sound and found.read >= load.acked, found
