"""Chains of causes from a fault to its end, seen from outside of real processes, against kept files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from helpers.aio import eventually
from helpers.chains import (
    KEPT,
    MEMBER_SESSION_MS,
    SESSION_MS,
    SETTLES_S,
    CoordinatorStory,
    acknowledges_second,
    follows_controller,
    hears_of_start,
    leads,
    newest,
    story,
)
from helpers.cluster import unique_topic
from helpers.groups import SHARDS, shards_settled
from tidelog.client.admin import Admin
from tidelog.client.connections import real_ports
from tidelog.client.producer import Producer
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.watch.follower import ProtocolWatch
from tidelog.watch.order import Told
from tidelog.wire import messages as m

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GROUP, READ = "readers", "journal"
SETTINGS = {
    **{kind: {"zookeeper_session_timeout_ms": str(SESSION_MS)} for kind in (BROKER, CONTROLLER)},
    AGENT: {
        "group_id": GROUP,
        "topics": READ,
        "commit_interval_ms": "100",
        "session_timeout_ms": str(MEMBER_SESSION_MS),
    },
}
AGENTS = 1
WITHIN_S = 60.0


class Watched:
    def __init__(self) -> None:
        self.told: list[Told] = []

    async def find(self, what: str, holds: Callable[[Told], bool]) -> Told:
        await eventually(lambda: newest(self.told, holds), what, timeout_s=WITHIN_S)
        found = newest(self.told, holds)
        assert found is not None
        return found


@asynccontextmanager
async def watched(
    servers: str, *, topics: tuple[str, ...] = (), groups: tuple[str, ...] = (), families: tuple[str, ...] = ()
) -> AsyncIterator[Watched]:
    wanted = m.WatchRequest(
        topics=topics, groups=groups, families=families, partition=-1, life=0, number=0, last=0, age_ms=0
    )
    seen, notes = Watched(), list[str]()
    follower = ProtocolWatch(servers, real_ports(), wanted, notes.append)

    async def collect() -> None:
        while True:
            await asyncio.sleep(0.05)
            seen.told += [shown.told for shown in follower.due()]

    follower.start()
    task = asyncio.create_task(collect())
    try:
        await eventually(lambda: follower.complete, "the watch", timeout_s=WITHIN_S)
        await asyncio.sleep(SETTLES_S)
        seen.told.clear()
        yield seen
    finally:
        task.cancel()
        await follower.stop()


@asynccontextmanager
async def topic_of(servers: str) -> AsyncIterator[tuple[Admin, str]]:
    topic = unique_topic("chain")
    async with Admin(servers) as admin:
        await admin.create_topic(topic, assignment=[[0, 1, 2]])
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        yield admin, topic


async def check(name: str, seen: Watched, end: Told, names: Mapping[str, str]) -> None:
    """Compares with the kept chain. To write it anew, delete the file and run the test twice."""
    await asyncio.sleep(SETTLES_S)
    path, found = KEPT / f"{name}.txt", story(seen.told, end, names)
    if not path.exists():
        path.write_text("\n".join(found) + "\n")
        pytest.fail(f"{path.name} did not exist and was written; look at it")
    assert found == path.read_text().splitlines()


async def test_a_leader_is_killed(cluster: LocalCluster) -> None:
    servers = bootstrap_servers(cluster)
    async with (
        topic_of(servers) as (admin, topic),
        Producer(servers) as producer,
        watched(servers, topics=(topic,)) as seen,
    ):
        await producer.send(topic, b"before")
        await asyncio.to_thread(cluster.kill, broker_name(0))
        await producer.send(topic, b"after")
        acknowledged = await seen.find("the first acknowledgement", acknowledges_second)
        leader = await seen.find("a leader", leads)
        assert seen.told.index(leader) < seen.told.index(acknowledged)
        await check("leader", seen, leader, {topic: "TOPIC"})
        await admin.delete_topic(topic)


async def test_a_controller_is_killed(cluster: LocalCluster) -> None:
    servers = bootstrap_servers(cluster)
    async with topic_of(servers) as (admin, topic), watched(servers, topics=(topic,)) as seen:
        active = (await admin.describe_cluster()).controller_id
        await asyncio.to_thread(cluster.kill, f"{CONTROLLER}-{active}")
        applied = await seen.find("an order of the next controller", follows_controller)
        await check("controller", seen, applied, {topic: "TOPIC"})
        await asyncio.to_thread(cluster.start, f"{CONTROLLER}-{active}")
        await admin.delete_topic(topic)


async def test_a_coordinator_is_killed(cluster: LocalCluster) -> None:
    servers = bootstrap_servers(cluster)
    await shards_settled(cluster)
    async with Admin(servers) as admin, Producer(servers) as producer:
        brokers = {address: name for name, address in cluster.endpoints(BROKER).items()}
        broker = brokers[await admin.groups.coordinator(GROUP)]
        others = [each for each in range(3) if broker_name(each) != broker]
        await admin.create_topic(READ, assignment=[others])  # so that the fault concerns the group alone
        await producer.send(READ, b"before")
        await processed(admin, 1)
        async with watched(servers, groups=(GROUP,), families=CoordinatorStory.FAMILIES) as seen:
            await asyncio.to_thread(cluster.kill, broker)
            await seen.find("the member", hears_of_start)
            await producer.send(READ, b"after")
            await processed(admin, 2)
            (member,) = await admin.groups.members(GROUP)
            of = CoordinatorStory(READ, GROUP, (member.consumer_id, "agent-1"), SHARDS)
            stored = await seen.find("its offset", of.stores_offset)
            seen.told = [told for told in seen.told if of.has(told)]
            await check("coordinator", seen, stored, of.names)


async def processed(admin: Admin, records: int) -> None:
    """Returns when the agent has committed so many."""
    async with asyncio.timeout(WITHIN_S):
        while all(each.offset != records for each in (await admin.groups.describe_one(GROUP)).offsets):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
