"""Links of a real cluster that run through the proxy, cut and healed (fault matrix rows 12, 13 and 16)."""

import asyncio

import pytest

from helpers.cluster import MakeCluster, unique_topic
from helpers.requirements import requirement
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import NO_LEADER, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@requirement("A leader cut from its followers commits nothing below min ISR")
@requirement("Fencing holds when any single link is cut")
async def test_a_leader_cut_from_its_followers_acknowledges_nothing_until_it_is_healed(
    make_cluster: MakeCluster,
) -> None:
    cluster = await asyncio.to_thread(make_cluster, controllers=1, links_through_proxy=True)
    servers = bootstrap_servers(cluster)
    topic = unique_topic()

    async with AdminClient(servers) as admin, Producer(servers) as producer:
        await admin.create_topic(topic, 1, 3, configs={"min.insync.replicas": "2"})
        led = await admin.wait_until_led(topic, in_sync=True)
        before = await producer.send(topic, b"before")
        await asyncio.wait_for(asyncio.shield(before), 10.0)
        leader = broker_name(led.partitions[0].leader)
        followers = [name for name in cluster.names("broker") if name != leader]
        cluster.isolate(leader, peers=followers)
        during = await producer.send(topic, b"during")
        await asyncio.wait([during], timeout=2.0)
        acknowledged_during = during.done()
        cluster.heal()
        await asyncio.wait_for(asyncio.shield(during), 30.0)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=30.0)
    (acknowledged_during, values) = acknowledged_during, await read(servers, topic, 2)

    assert not acknowledged_during
    assert values[0] == b"before"
    assert set(values[1:]) == {b"during"}  # once, or twice after a retry


async def read(servers: str, topic: str, at_least: int) -> list[bytes | None]:
    async with Consumer(servers) as consumer:
        tp = TopicPartition(topic, 0)
        await consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        values: list[bytes | None] = []
        while len(values) < max(at_least, end):
            values += [record.value for record in await consumer.poll(timeout_s=10.0)]
        return values


async def another_leads(admin: AdminClient, topic: str, former: int) -> None:
    async with asyncio.timeout(60.0):
        led = await admin.describe_topic(topic)
        while led.partitions[0].leader in (former, NO_LEADER):
            await asyncio.sleep(0.1)
            led = await admin.describe_topic(topic)


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("Fencing holds when any single link is cut")
async def test_a_leader_cut_from_zookeeper_alone_loses_nothing(make_cluster: MakeCluster) -> None:
    cluster: LocalCluster = await asyncio.to_thread(make_cluster, controllers=1, links_through_proxy=True)
    servers = bootstrap_servers(cluster)
    topic = unique_topic()

    async with AdminClient(servers) as admin, Producer(servers) as producer:
        await admin.create_topic(topic, 1, 3, configs={"min.insync.replicas": "2"})
        leader = (await admin.wait_until_led(topic, in_sync=True)).partitions[0].leader
        cluster.isolate(broker_name(leader), peers=["zookeeper-1"])
        acks = []
        for number in range(100):
            acks.append(await producer.send(topic, b"%d" % number))
            await asyncio.sleep(0.1)  # ten seconds of load: the session of 6 s expires in the middle of it
        await asyncio.wait_for(asyncio.gather(*acks), 60.0)
        await another_leads(admin, topic, leader)  # before that it would find its session alive, and go on
        cluster.heal()
        led = await admin.wait_until_led(topic, in_sync=True, timeout_s=60.0)
    (before, after, values) = leader, led.partitions[0].leader, await read(servers, topic, 100)

    assert after != before
    assert list(dict.fromkeys(values)) == [b"%d" % number for number in range(100)]
