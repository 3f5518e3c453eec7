"""A storm of retries of an idempotent producer, with real processes."""

import asyncio

import pytest

from helpers.cluster import unique_topic
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import State, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = pytest.mark.integration


async def everything(servers: str, topic: str) -> list[bytes | None]:
    tp = TopicPartition(topic, 0)
    async with Consumer(servers) as consumer:
        end = (await consumer.end_offsets([tp]))[tp]
        await consumer.assign([tp])
        records: list[bytes | None] = []
        while await consumer.position(tp) < end:
            records += [record.value for record in await consumer.poll(timeout_s=5.0)]
        return records


@requirement("Retries across leader changes keep records unique and in order")
@pytest.mark.timeout(180)
async def test_a_storm_of_retries_is_stored_once_and_in_order(
    shared_cluster: LocalCluster, shared_servers: str
) -> None:
    topic = unique_topic("storm")
    count = 3_000

    try:
        async with Admin(shared_servers) as admin:
            await admin.create_topic(topic, 1, 3)
            leader = broker_name((await admin.wait_until_led(topic, in_sync=True)).partitions[0].leader)
        async with Producer(shared_servers, batch_bytes=2_000, request_timeout_ms=300) as producer:
            acks = []
            for number in range(count):
                acks.append(await producer.send(topic, b"%d" % number))
                if number == count // 3:
                    await acks[0]
                    await asyncio.to_thread(shared_cluster.pause, leader)
                if number == 2 * count // 3:
                    # Long enough for several retries of everything, all of which it finds when it wakes up.
                    await asyncio.sleep(4.0)
                    await asyncio.to_thread(shared_cluster.resume, leader)
            await asyncio.gather(*acks)
        # Its session may have ended all the same, and those who come next find three brokers.
        async with Admin(shared_servers) as admin:
            await admin.wait_until_led(topic, in_sync=True, timeout_s=60.0)
        assert await everything(shared_servers, topic) == [b"%d" % number for number in range(count)]
    finally:
        for row in shared_cluster.status():
            if row.state is State.PAUSED:
                shared_cluster.resume(row.name)
