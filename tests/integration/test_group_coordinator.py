"""The coordinator of groups in real brokers, spoken to by a consumer that is nothing but its messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.cluster import unique_topic
from helpers.groups import shards_settled
from helpers.requirements import requirement
from helpers.wire import TIMEOUT_S
from tidelog.client.admin import AdminClient
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = pytest.mark.integration

SETTINGS = {BROKER: {"zookeeper_session_timeout_ms": "2000", "offset_commit_interval_ms": "100"}}
FAILOVER_S = 20.0


class RawConsumer:
    """One stream, and one counter over all its messages."""

    def __init__(self, cluster: LocalCluster, group_id: str, topic: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.topic = topic
        self.net = GrpcNet()
        self.number = 0
        self.broker = -1
        self.channel: Any = None
        self.stream: Any = None
        self.started: m.StartFetcherRequest | None = None

    def address(self, broker: int) -> Address:
        return self.cluster.plan[broker_name(broker)].addresses["EXTERNAL"]

    async def coordinator(self, asked: int) -> int:
        """Whom broker `asked` names."""
        channel = self.net.channel(self.address(asked), purpose="test")
        try:
            request = m.ClusterMetadataRequest(group_id=self.group_id)
            answer = await channel.call(s.COORDINATOR_SERVICE_CLUSTER_METADATA, request, TIMEOUT_S)
            return answer.coordinator_id
        finally:
            await channel.close()

    async def connect(self, broker: int) -> None:
        self.broker = broker
        self.channel = self.net.channel(self.address(broker), purpose="test")
        self.stream = self.channel.open(s.COORDINATOR_SERVICE_SESSION)
        request = m.RegisterConsumerRequest(
            group_id=self.group_id,
            consumer_id="c1",
            topic_count=f'{{"pattern": "static", "subscription": {{"{self.topic}": 1}}}}',
            auto_commit=True,
            auto_offset_reset="smallest",
            session_timeout_ms=6_000,
            incarnation=7,
            static_member=False,
            max_processing_ms=0,
            rejoin=False,
        )
        await self.say(register=request)

    async def say(self, **body: Any) -> None:
        self.number += 1
        await self.stream.write(m.ConsumerMessage(number=self.number, **body))

    async def join(self, broker: int) -> m.StartFetcherRequest:
        """Registers there until it is not told to wait, and then to start. Others may know of its election before it does."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                await self.connect(broker)
                answer = await self.stream.read()
                assert answer.registered is not None, answer
                if answer.registered.error_code not in (
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode.NOT_COORDINATOR,
                ):
                    assert answer.registered.error_code is ErrorCode.NONE, answer.registered
                    return await self.until_started()
                await self.channel.close()
                await asyncio.sleep(0.05)

    async def until_started(self) -> m.StartFetcherRequest:
        """Answers what it is asked until it is told to start. TransportError, or what refused it."""
        async with asyncio.timeout(TIMEOUT_S):
            while (message := await self.stream.read()) is not None:
                if message.ping is not None:
                    epoch, generation = message.ping.coordinator_epoch, message.ping.generation
                    await self.say(
                        ping=m.PingResponse(consumer_id="c1", coordinator_epoch=epoch, generation=generation)
                    )
                elif message.start is not None:
                    epoch, generation = message.start.coordinator_epoch, message.start.generation
                    await self.say(
                        started=m.StartFetcherResponse(consumer_id="c1", coordinator_epoch=epoch, generation=generation)
                    )
                    self.started = message.start
                    return self.started
        raise AssertionError("the stream ended before a start")

    async def commit(self, partition: int, offset: int) -> m.CommitOffsetsResponse:
        assert self.started is not None
        self.number += 1
        request = m.CommitOffsetsRequest(
            group_id=self.group_id,
            consumer_id="c1",
            incarnation=7,
            coordinator_epoch=self.started.coordinator_epoch,
            generation=self.started.generation,
            number=self.number,
            offsets=(m.OffsetInfo(topic=self.topic, partition=partition, offset=offset, leader_epoch=0),),
        )
        answer: m.CommitOffsetsResponse = await self.channel.call(
            s.COORDINATOR_SERVICE_COMMIT_OFFSETS, request, TIMEOUT_S
        )
        return answer

    async def leave(self) -> list[m.CoordinatorMessage]:
        """What came until the coordinator ended the stream."""
        assert self.started is not None
        epoch, generation = self.started.coordinator_epoch, self.started.generation
        await self.say(
            leave=m.LeaveGroupRequest(
                consumer_id="c1", coordinator_epoch=epoch, generation=generation, reason="the test is over"
            )
        )
        last = []
        async with asyncio.timeout(TIMEOUT_S):
            while (message := await self.stream.read()) is not None:
                last.append(message)
        return last


def positions(start: m.StartFetcherRequest) -> dict[int, int]:
    return {part.partition: part.offset for each in start.ownership_info for part in each.assigned_parts}


@asynccontextmanager
async def consumer_of(cluster: LocalCluster) -> AsyncIterator[RawConsumer]:
    """Of a new group, whose shard stays where it is, and a new topic of three partitions with ten records each."""
    await shards_settled(cluster)
    topic = unique_topic("coordinated")
    servers = bootstrap_servers(cluster)
    async with AdminClient(servers) as admin:
        await admin.create_topic(topic, 3, 3)
        await admin.wait_until_led(topic, in_sync=True)
    async with Producer(servers, acks=-1) as producer:
        for n in range(30):
            await (await producer.send(topic, b"x", partition=n % 3))
    consumer = RawConsumer(cluster, f"group-of-{topic}", topic)
    await agreed(consumer)
    try:
        yield consumer
    finally:
        if consumer.channel is not None:
            await consumer.channel.close()


async def agreed(consumer: RawConsumer) -> None:
    """Until every broker names the same coordinator: each hears of it by itself."""
    async with asyncio.timeout(FAILOVER_S):
        while True:
            named = {await consumer.coordinator(asked) for asked in range(3)}
            if len(named) == 1 and -1 not in named:
                return
            await asyncio.sleep(0.1)


async def found(consumer: RawConsumer, asked: int, unlike: int = -1) -> int:
    async with asyncio.timeout(FAILOVER_S):
        while True:
            broker = await consumer.coordinator(asked)
            if broker not in (-1, unlike):
                return broker
            await asyncio.sleep(0.1)


@requirement("A consumer tries its brokers in turn until one answers")
@requirement("A consumer registers with its coordinator and awaits the answer")
async def test_a_raw_consumer_registers_starts_commits_and_leaves(cluster: LocalCluster) -> None:
    async with consumer_of(cluster) as consumer:
        broker = await found(consumer, 0)
        assert [await consumer.coordinator(asked) for asked in (1, 2)] == [broker, broker]
        start = await consumer.join(broker)
        assert positions(start) == {0: -1, 1: -1, 2: -1}
        assert {each.id for each in start.brokers_info} == {0, 1, 2}
        assert {(each.host, each.port) for each in start.brokers_info} == {consumer.address(each) for each in (0, 1, 2)}
        ok, beyond = await consumer.commit(1, 10), await consumer.commit(2, 11)
        assert ok.results[0].error_code is ErrorCode.NONE
        assert beyond.results[0].error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        last = await consumer.leave()
        assert last[-1].left is not None, last


async def test_a_broker_that_does_not_coordinate_says_so_and_ends_the_stream_in_order(cluster: LocalCluster) -> None:
    async with consumer_of(cluster) as consumer:
        broker = await found(consumer, 0)
        await consumer.connect((broker + 1) % 3)
        refusal = await consumer.stream.read()
        assert refusal.registered.error_code is ErrorCode.NOT_COORDINATOR
        assert await consumer.stream.read() is None


@requirement("Another broker takes over when the coordinator dies")
async def test_when_the_coordinators_broker_is_killed_another_goes_on_with_the_stored_group(
    cluster: LocalCluster,
) -> None:
    async with consumer_of(cluster) as consumer:
        killed = await found(consumer, 0)
        first = await consumer.join(killed)
        assert (await consumer.commit(0, 4)).results[0].error_code is ErrorCode.NONE
        cluster.kill(broker_name(killed))
        with pytest.raises(TransportError):
            while await consumer.stream.read() is not None:
                pass
        await consumer.channel.close()
        other = await found(consumer, (killed + 1) % 3, unlike=killed)
        again = await consumer.join(other)
        assert positions(again) == {0: 4, 1: -1, 2: -1}
        assert again.coordinator_epoch > first.coordinator_epoch
        assert again.generation == first.generation, "nobody came or went"
