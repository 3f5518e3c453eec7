"""Chains of causes from a fault to its end, seen from outside of real processes, against kept files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.aio import eventually
from helpers.chains import story
from helpers.cluster import unique_topic
from helpers.groups import SHARDS, shards_settled
from tidelog.client.admin import Admin
from tidelog.client.connections import real_ports
from tidelog.client.producer import Producer
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.coordinator.election import shard_of
from tidelog.watch.follower import ProtocolWatch
from tidelog.watch.order import Told
from tidelog.wire import messages as m
from tidelog.wire import znodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GROUP, READ = "readers", "journal"
KEPT = Path(__file__).parent / "chains"
SETTINGS = {
    "broker": {"zookeeper_session_timeout_ms": "6000"},
    CONTROLLER: {"zookeeper_session_timeout_ms": "6000"},
    AGENT: {"group_id": GROUP, "topics": READ, "commit_interval_ms": "100"},
}
AGENTS = 1
WITHIN_S = 60.0
SETTLES_S = 2.0
"""For what is still under way when a watch begins."""


class Watched:
    def __init__(self) -> None:
        self.told: list[Told] = []

    def newest(self, holds: Callable[[Told], bool]) -> Told | None:
        return next((told for told in reversed(self.told) if holds(told)), None)

    async def find(self, what: str, holds: Callable[[Told], bool]) -> Told:
        await eventually(lambda: self.newest(holds), what, timeout_s=WITHIN_S)
        found = self.newest(holds)
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


def of_another_shard(told: Told, shard: int) -> bool:
    if isinstance(told.event.fields, m.StoreWritten):
        path = told.event.fields.changes[0].path
        return path.endswith("/coordinator") and path != znodes.coordinator_path(shard)
    return getattr(told.event.fields, "shard", shard) != shard


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
        acknowledged = await seen.find(
            "the first acknowledgement",
            lambda told: isinstance(told.event.fields, m.HighWatermarkAdvanced) and told.event.fields.to_offset == 2,
        )
        leads = await seen.find("a leader", lambda told: isinstance(told.event.fields, m.BecameLeader))
        assert seen.told.index(leads) < seen.told.index(acknowledged)
        await check("leader", seen, leads, {topic: "TOPIC"})
        await admin.delete_topic(topic)


async def test_a_controller_is_killed(cluster: LocalCluster) -> None:
    servers = bootstrap_servers(cluster)
    async with topic_of(servers) as (admin, topic), watched(servers, topics=(topic,)) as seen:
        active = (await admin.describe_cluster()).controller_id
        await asyncio.to_thread(cluster.kill, f"{CONTROLLER}-{active}")
        follows = await seen.find(
            "an order of the next controller",
            lambda told: isinstance(told.event.fields, m.OrderApplied) and told.event.fields.order == "LeaderAndIsr",
        )
        await check("controller", seen, follows, {topic: "TOPIC"})
        await asyncio.to_thread(cluster.start, f"{CONTROLLER}-{active}")
        await admin.delete_topic(topic)


async def test_a_coordinator_is_killed(cluster: LocalCluster) -> None:
    servers, shard = bootstrap_servers(cluster), shard_of(GROUP, SHARDS)
    await shards_settled(cluster)
    async with Admin(servers) as admin, Producer(servers) as producer:
        brokers = {address: name for name, address in cluster.endpoints(BROKER).items()}
        broker = brokers[await admin.groups.coordinator(GROUP)]
        others = [each for each in range(3) if broker_name(each) != broker]
        await admin.create_topic(READ, assignment=[others])  # so that the fault concerns the group alone
        await producer.send(READ, b"before")
        await processed(admin, 1)
        async with watched(servers, groups=(GROUP,), families=("coordinator", "member", "zookeeper")) as seen:
            await asyncio.to_thread(cluster.kill, broker)
            await seen.find("the member", lambda told: isinstance(told.event.fields, m.StartFetcherAnswered))
            await producer.send(READ, b"after")
            await processed(admin, 2)
            stored = await seen.find("its offset", lambda told: stores_offset(told.event.fields))
            seen.told = [told for told in seen.told if not of_another_shard(told, shard)]
            (member,) = await admin.groups.members(GROUP)
            names = {
                member.consumer_id: "MEMBER",
                GROUP: "GROUP",
                READ: "TOPIC",
                znodes.coordinator_path(shard): "COORDINATOR",
            }
            await check("coordinator", seen, stored, names)


def stores_offset(fields: object) -> bool:
    path = znodes.offset_path(GROUP, READ, 0)
    return isinstance(fields, m.StoreWritten) and any(change.path == path for change in fields.changes)


async def processed(admin: Admin, records: int) -> None:
    """Returns when the agent has committed so many."""
    async with asyncio.timeout(WITHIN_S):
        while all(each.offset != records for each in (await admin.groups.describe_one(GROUP)).offsets):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
