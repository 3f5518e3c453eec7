"""Topics for the Spark sink, and what is in them afterwards."""

import asyncio

from helpers.cluster import unique_topic
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.records import ConsumerRecord

PARTITIONS = 3


def make_topic(servers: str, **configs: str) -> str:
    name = unique_topic("sink")

    async def create() -> None:
        async with Admin(servers) as admin:
            await admin.create_topic(name, PARTITIONS, 3, configs=configs)
            await admin.wait_until_led(name, in_sync=True)

    asyncio.run(create())
    return name


def records_of(servers: str, topic: str) -> list[ConsumerRecord]:
    async def read() -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        async with Consumer(servers) as consumer:
            await consumer.assign_topics(topic)
            await consumer.seek_to_beginning()
            total = sum((await consumer.end_offsets(consumer.assignment)).values())
            while len(found) < total:
                found += await consumer.poll()
        return found

    return asyncio.run(read())
