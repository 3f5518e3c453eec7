"""Links of a real cluster that run through the proxy, cut and healed (fault matrix row 13)."""

import asyncio

import pytest

from helpers.cluster import MakeCluster, unique_topic
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import bootstrap_servers, broker_name
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@requirement("A leader cut from its followers commits nothing below min ISR")
@requirement("Fencing holds when any single link is cut")
async def test_a_leader_cut_from_its_followers_acknowledges_nothing_until_it_is_healed(
    make_cluster: MakeCluster,
) -> None:
    cluster = await asyncio.to_thread(make_cluster, controllers=1, links_through_proxy=True)
    servers = bootstrap_servers(cluster)
    topic = unique_topic()

    async with Admin(servers) as admin, Producer(servers) as producer:
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
