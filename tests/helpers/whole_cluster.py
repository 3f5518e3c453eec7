"""A simulated cluster for tests of what calls leave behind, and one piece of work that uses nearly every call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import GroupIdNotFoundError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import Timing
from tidelog.watch.service import CONTROLLER
from tidelog.wire import messages as m
from tidelog.wire import services as s

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

    async def operate(self) -> None:
        """Work of an operator: replicas move, a broker is drained, one stops in order, and one that lags is elected."""
        async with asyncio.timeout(WORK_S):
            await self._move()
            await self._elect()

    async def _move(self) -> None:
        name = f"t{next(self.numbers)}"
        tp, moves, logs = TopicPartition(name, 0), self.admin.reassignments, self.admin.logs
        await self.admin.create_topic(name, assignment=[[0, 1]])
        await self._whole(name)
        await moves.alter({tp: [1, 2]})
        await self._until_moved()
        await moves.drain([2])
        await self._until_moved()
        await moves.undrain([2])
        await moves.add_brokers([2])
        await self._until_moved()
        assert len((await self.admin.describe_topic(name)).partitions[0].isr) == 2
        await self.admin.describe_cluster()
        await self.admin.describe_configs(name)
        await logs.describe_broker_configs(0)
        await logs.describe_log_dirs()
        assert await logs.discard_damage(0) == []
        await self.admin.groups.listing()
        with suppress(GroupIdNotFoundError):
            await self.admin.groups.describe_one("none")
        await self._watch()
        await self.admin.delete_topic(name)

    async def _watch(self) -> None:
        """Reads events of the controller, which a broker hands on."""
        channel = self.ports.net.channel(self.cluster.brokers[0].address, purpose="watch")
        request = m.WatchRequest(process=CONTROLLER, partition=-1, life=0, number=0, last=10, age_ms=0)
        try:
            while True:
                try:
                    stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
                    await stream.write(request)
                    found = await stream.read()
                    assert found is not None and found.process.startswith("controller-")
                    return
                except TransportError:
                    await self.ports.clock.sleep(0.1)
        finally:
            await channel.close()

    async def _until_moved(self) -> None:
        while await self.admin.reassignments.list():
            await self.ports.clock.sleep(0.1)

    async def _whole(self, name: str) -> None:
        await self.admin.wait_until_led(name, in_sync=True, timeout_s=60.0)

    async def _elect(self) -> None:
        """Elects a replica that was not in sync, and that lacks nothing."""
        name = f"t{next(self.numbers)}"
        tp = TopicPartition(name, 0)
        await self.admin.create_topic(name, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
        await self._whole(name)
        leader, follower = self.cluster.nodes["broker-1"], self.cluster.nodes["broker-2"]
        async with self.producer() as producer:
            await (await producer.send(name, b"kept", partition=0))
            follower.kill()
            await self._until_isr(name, {1})
            leader.terminate()
            while leader.running:
                await self.ports.clock.sleep(0.1)
            follower.start()
            await self._until_elected(tp)
            leader.start()
            await self._whole(name)
            await self.admin.elect_leaders()
            await self.admin.release_veto()
            await (await producer.send(name, b"new", partition=0))
        assert await self.values(name) == [b"kept", b"new"]
        assert await self._end_of_epoch(tp, 0) == 1
        await self.admin.delete_topic(name)

    async def _end_of_epoch(self, tp: TopicPartition, epoch: int) -> int:
        """End of the log in that epoch of its leader, as a client of Kafka asks for it. None of ours does."""
        part = m.EpochPartition(topic=tp.topic, partition=tp.partition, current_leader_epoch=-1, leader_epoch=epoch)
        leader = self.cluster.nodes[f"broker-{self.cluster.leader(tp)}"]
        channel = self.ports.net.channel(leader.address, purpose="test")
        request = m.OffsetForLeaderEpochRequest(partitions=(part,))
        answer = await channel.call(s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, request, 10.0)
        return answer.results[0].end_offset

    async def _until_isr(self, name: str, wanted: set[int]) -> None:
        while {*(await self.admin.describe_topic(name)).partitions[0].isr} != wanted:
            await self.ports.clock.sleep(0.1)

    async def _until_elected(self, tp: TopicPartition) -> None:
        """The broker may not have registered yet."""
        while (await self.admin.describe_topic(tp.topic)).partitions[0].leader != 2:
            await self.admin.elect_leaders([tp], unclean=True)
            await self.ports.clock.sleep(0.2)

    def check(self) -> None:
        """No handler has raised what is no part of its protocol, and no process has ended."""
        assert self.cluster.world.bugs == []
        for node in self.cluster.nodes.values():
            assert node.process is not None and not node.process.supervisor.failures


@asynccontextmanager
async def whole_cluster(
    seed: int = 1, *, external: bool = False, timing: Timing | None = None, **settings: Any
) -> AsyncIterator[Bed]:
    """Three brokers and two controllers that serve. `external`: brokers have a listener for outside clients, too. `settings`
    are those of brokers."""
    cluster = SimCluster(seed=seed, timing=timing)
    for node in cluster.brokers:
        outside = Address(node.address.host, node.address.port + 100)
        listeners = {"listeners": {"INTERNAL": node.address, "EXTERNAL": outside}} if external else {}
        node.settings = {**settings, **listeners}
    cluster.start()
    ports = cluster.client_ports("client")
    async with Admin(cluster.bootstrap, ports=ports) as admin:
        await ports.clock.sleep(REGISTERED_S)
        bed = Bed(cluster, ports, admin, count())
        yield bed
    bed.check()
    for node in cluster.nodes.values():
        node.kill()
