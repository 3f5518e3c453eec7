"""A simulated cluster for tests of what calls leave behind, and one piece of work that uses nearly every call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.testing.sim_cluster import SimCluster

REGISTERED_S = 5.0
WORK_S = 120.0
"""Seconds of virtual time: longer than every timeout of a client."""
RECORDS = 12


@dataclass
class Bed:
    cluster: SimCluster
    ports: ClientPorts
    admin: Admin
    numbers: Any

    def producer(self, **options: Any) -> Producer:
        return Producer(self.cluster.bootstrap, ports=self.ports, **options)

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self.cluster.bootstrap, ports=self.ports, **options)

    async def topic(self, partitions: int = 1) -> str:
        """A new topic, led and in sync."""
        name = f"t{next(self.numbers)}"
        await self.admin.create_topic(name, partitions, 3)
        await self.admin.wait_until_led(name, in_sync=True, timeout_s=60.0)
        return name

    async def values(self, topic: str, partition: int = 0, start: int = 0) -> list[bytes | None]:
        """Values in a partition from `start` to its high watermark."""
        tp = TopicPartition(topic, partition)
        found: list[bytes | None] = []
        async with self.consumer(max_wait_ms=10) as consumer:
            await consumer.assign([tp])
            consumer.seek(tp, start)
            end = (await consumer.end_offsets([tp]))[tp]
            while await consumer.position(tp) < end:
                found += [record.value for record in await consumer.poll()]
        return found

    async def work(self) -> None:
        """A topic from its creation to its deletion: written, read by a group, grown, reconfigured, trimmed."""
        async with asyncio.timeout(WORK_S):
            await self._work()

    async def _work(self) -> None:
        name = await self.topic()
        tp, values = TopicPartition(name, 0), [b"%d" % number for number in range(RECORDS)]
        async with self.producer() as producer:
            for value in values:
                await (await producer.send(name, value, partition=0))
        assert await self.values(name) == values
        async with self.consumer(group=name, topics=[name], max_wait_ms=10) as consumer:
            read: list[bytes | None] = []
            while len(read) < RECORDS:
                read += [record.value for record in await consumer.poll()]
            assert read == values
            await consumer.commit()
        committed = await self.admin.groups.committed(name, [tp])
        assert committed[tp] is not None and committed[tp].offset == RECORDS
        await self.admin.alter_configs(name, {"retention.ms": "1000000"})
        await self.admin.create_partitions(name, 2)
        await self.admin.logs.delete_records({tp: 5})
        assert await self.values(name, start=5) == values[5:]
        await self.admin.groups.delete(name)
        await self.admin.delete_topic(name)

    def check(self) -> None:
        """No handler has raised what is no part of its protocol, and no process has ended."""
        assert self.cluster.world.bugs == []
        for node in self.cluster.nodes.values():
            assert node.process is not None and not node.process.supervisor.failures


@asynccontextmanager
async def whole_cluster(seed: int = 1) -> AsyncIterator[Bed]:
    """Three brokers and two controllers that serve."""
    cluster = SimCluster(seed=seed)
    cluster.start()
    ports = cluster.client_ports("client")
    async with Admin(cluster.bootstrap, ports=ports) as admin:
        await ports.clock.sleep(REGISTERED_S)
        bed = Bed(cluster, ports, admin, count())
        yield bed
    bed.check()
    for node in cluster.nodes.values():
        node.kill()
