"""A consumer group on real processes, spoken to as a foreign client would; and what bad input must not change."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from helpers.cluster import unique_topic
from helpers.stored import Stored, stored_by
from helpers.wire import TIMEOUT_S
from tidelog.client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.cluster.api import BROKER, CONTROLLER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.wait import until
from tidelog.coordinator.election import rank, shard_of
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.net import Stream
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire import znodes

PARTITIONS = 4
SHARDS = 8
BROKERS = (0, 1, 2)
SETTLED_S = 60.0
SESSION_MS = 30_000
"""Longer than a test leaves a member without an answer, on a machine that holds every process up."""
INCARNATIONS = count(1)


class Member:
    """A consumer that is nothing but its messages. It answers pings while it waits for something else."""

    def __init__(self, channel: GrpcChannel, group: str, topic: str, name: str = "wire", **request: Any) -> None:
        self.channel = channel
        self.topic = topic
        self.incarnation = next(INCARNATIONS)
        self.number = 0
        self.epoch = self.generation = 0
        self.request = m.RegisterConsumerRequest(
            group_id=group,
            consumer_id=name,
            topic_count=f'{{"pattern": "static", "subscription": {{"{topic}": 1}}}}',
            auto_commit=True,
            auto_offset_reset="smallest",
            session_timeout_ms=SESSION_MS,
            incarnation=self.incarnation,
            static_member=False,
            max_processing_ms=0,
            rejoin=False,
            admission=0,
            watch_port=0,
        )
        self.request = replace(self.request, **request)
        self.stream: Stream[m.CoordinatorMessage, m.ConsumerMessage] = self._open()

    def _open(self) -> Stream[m.CoordinatorMessage, m.ConsumerMessage]:
        return self.channel.open(s.COORDINATOR_SERVICE_SESSION)

    async def say(self, number: int | None = None, **body: Any) -> None:
        if number is None:
            number = self.number = self.number + 1
        await self.stream.write(m.ConsumerMessage(number=number, **body))

    async def register(self, number: int | None = None, **changes: Any) -> m.RegisterConsumerResponse:
        self.request = replace(self.request, **changes)
        await self.say(number, register=self.request)
        answer = await self.hear("registered")
        self.epoch = answer.coordinator_epoch
        return answer  # type: ignore[no-any-return]

    async def reconnect(self, number: int | None = None) -> m.RegisterConsumerResponse:
        self.stream = self._open()
        return await self.register(number)

    async def hear(self, wanted: str, *, answering: bool = True) -> Any:
        """The next message of this kind; the stream's end is none.

        Not `answering` after what ends the stream: gRPC takes no answer to a ping of before then, and forgets what is still to be
        read.
        """
        while True:
            message = await self.stream.read()
            assert message is not None, f"the stream ended while {wanted} was waited for"
            if (body := getattr(message, wanted)) is not None:
                return body
            assert message.ping or message.start, message
            if answering and message.ping is not None:
                await self.pong()

    async def pong(self, **changes: Any) -> None:
        answer = m.PingResponse(
            consumer_id=self.request.consumer_id, coordinator_epoch=self.epoch, generation=self.generation
        )
        await self.say(ping=replace(answer, **changes))

    async def started(self) -> m.StartFetcherRequest:
        """Until it owns something, which it has answered."""
        start = await self.hear("start")
        self.generation = start.generation
        answer = m.StartFetcherResponse(
            consumer_id=self.request.consumer_id, coordinator_epoch=self.epoch, generation=start.generation
        )
        await self.say(started=answer)
        return start  # type: ignore[no-any-return]

    async def join(self) -> "Member":
        answer = await self.register()
        assert answer.error_code is ErrorCode.NONE, answer
        await self.started()
        return self

    async def leave(self, **changes: Any) -> None:
        request = m.LeaveGroupRequest(
            consumer_id=self.request.consumer_id, coordinator_epoch=self.epoch, generation=self.generation
        )
        await self.say(leave=replace(request, **changes))
        assert (await self.hear("left", answering=False)).error_code is ErrorCode.NONE

    def commit(self, *offsets: m.OffsetInfo, **changes: Any) -> m.CommitOffsetsRequest:
        self.number += 1
        request = m.CommitOffsetsRequest(
            group_id=self.request.group_id,
            consumer_id=self.request.consumer_id,
            incarnation=self.request.incarnation,
            coordinator_epoch=self.epoch,
            generation=self.generation,
            number=self.number,
            offsets=offsets or (at(self.topic, 0, 0),),
        )
        return replace(request, **changes)


def at(topic: str, partition: int, offset: int, **more: Any) -> m.OffsetInfo:
    values: dict[str, Any] = {"leader_epoch": -1} | more
    return m.OffsetInfo(topic=topic, partition=partition, offset=offset, **values)


@dataclass(frozen=True)
class GroupBed:
    """A group for bad requests, and a member of another one that the same coordinator keeps alive."""

    cluster: LocalCluster
    topic: str
    group: str
    """Coordinated by `coordinator`, as the bystander's is; without members."""
    coordinator: int
    bystander: SyncConsumer
    bystander_group: str
    producer: SyncProducer
    admin: SyncAdmin
    stored: Stored

    @classmethod
    @contextmanager
    def make(cls, cluster: LocalCluster) -> "Iterator[GroupBed]":
        servers = bootstrap_servers(cluster)
        topic = unique_topic("bad-groups")
        mine = f"bystander-{topic}"
        with SyncAdmin(servers) as admin, SyncProducer(servers, acks=-1) as producer, stored_by(cluster) as stored:
            admin.create_topic(topic, PARTITIONS, 3)
            admin.wait_until_led(topic, in_sync=True)
            options: dict[str, Any] = {"topics": [topic], "session_timeout_ms": SESSION_MS}
            with SyncConsumer(servers, group=mine, consumer_id="bystander", **options) as bystander:
                bed = cls(cluster, topic, "", -1, bystander, mine, producer, admin, stored)
                bed.goes_on()
                first = min(BROKERS, key=lambda each: rank(shard_of(mine, SHARDS), each, BROKERS))
                # A young cluster gives each shard to the broker that comes first for it.
                until(
                    lambda: admin.groups.describe_one(mine).coordinator_id == first,
                    "the coordinator that stays",
                    timeout_s=SETTLED_S,
                )
                bed.goes_on()
                yield replace(bed, coordinator=first)
                admin.delete_topic(topic)

    def with_group(self) -> "GroupBed":
        """With a group that was never there."""
        return replace(self, group=same_shard(self.bystander_group, unique_topic("victim")))

    def goes_on(self) -> None:
        """A record that is sent now reaches the bystander."""
        for partition in range(PARTITIONS):
            self.producer.send(self.topic, b"now", partition=partition)
        self.producer.flush()
        got = 0
        while got < PARTITIONS:
            records = self.bystander.poll(timeout_s=TIMEOUT_S)
            assert records, "the bystander gets nothing"
            got += len(records)
        self.bystander.commit()

    def end(self, partition: int = 0) -> int:
        tp = TopicPartition(self.topic, partition)
        return self.bystander.end_offsets([tp])[tp]

    @asynccontextmanager
    async def unharmed(self) -> AsyncIterator[GrpcChannel]:
        """A channel to the coordinator for bad requests.

        Afterwards every process is the same, nothing is stored that was not, the bystander was never disturbed and gets what is
        sent now, and the next valid registration on the same connection is served.
        """
        pids, before = self._pids(), self._kept()
        net = GrpcNet()
        channel = net.channel(self.cluster.plan[broker_name(self.coordinator)].addresses["EXTERNAL"], purpose="test")
        try:
            yield channel
            assert self._kept() == before
            self.goes_on()
            await self._next_is_served(channel)
            assert self._kept() == before
        finally:
            await channel.close()
        assert self._pids() == pids

    def member(self, channel: GrpcChannel, name: str = "wire", **request: Any) -> Member:
        return Member(channel, self.group, self.topic, name, **request)

    async def forget(self, channel: GrpcChannel) -> None:
        """Deletes the group, whose members have left."""
        request = m.DeleteGroupsRequest(group_ids=(self.group,))
        (result,) = (await channel.call(s.COORDINATOR_SERVICE_DELETE_GROUPS, request, TIMEOUT_S)).results
        assert result.error_code is ErrorCode.NONE, result

    async def described(self, channel: GrpcChannel) -> m.DescribedGroup:
        request = m.DescribeGroupsRequest(group_ids=(self.group,))
        (found,) = (await channel.call(s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request, TIMEOUT_S)).groups
        return found

    async def _next_is_served(self, channel: GrpcChannel) -> None:
        member = self.member(channel, "next")
        assert (await member.register()).error_code is ErrorCode.NONE
        await member.leave()
        await self.forget(channel)

    def _kept(self) -> tuple[object, ...]:
        """What nobody but the bystander itself may change."""
        group = self.admin.groups.describe_one(self.bystander_group)
        counts = self.bystander.stats.membership
        members = [(each.consumer_id, each.partitions) for each in group.members]
        return (
            self.stored.names(znodes.CONSUMERS),
            self.stored.names(znodes.group_path(self.group)),
            (group.state, group.generation, members),
            (counts.stops, counts.losses),
        )

    def _pids(self) -> dict[str, int | None]:
        return {row.name: row.pid for row in self.cluster.status() if row.kind in (BROKER, CONTROLLER)}


def same_shard(like: str, prefix: str) -> str:
    """A group id that the coordinator of `like` coordinates too."""
    return next(name for n in count() if shard_of(name := f"{prefix}-{n}", SHARDS) == shard_of(like, SHARDS))


async def commit(channel: GrpcChannel, request: m.CommitOffsetsRequest) -> m.CommitOffsetsResponse:
    return await channel.call(s.COORDINATOR_SERVICE_COMMIT_OFFSETS, request, TIMEOUT_S)


async def live_group(groups: GroupBed, channel: GrpcChannel, **request: Any) -> Member:
    """A member of the victim group, alone in it."""
    member = await groups.member(channel, **request).join()
    async with asyncio.timeout(TIMEOUT_S):
        while (await groups.described(channel)).state != "Stable":  # noqa: ASYNC110 - its answer is being stored
            await asyncio.sleep(0.01)
    return member


async def goes_on(groups: GroupBed, channel: GrpcChannel, member: Member, offset: int = 0) -> None:
    """Nothing was done to it, or about it: its commit counts in the same generation."""
    described = await groups.described(channel)
    assert (described.state, described.generation) == ("Stable", member.generation), described
    answer = await commit(channel, member.commit(at(groups.topic, 0, offset)))
    assert [answer.error_code, *(each.error_code for each in answer.results)] == [ErrorCode.NONE, ErrorCode.NONE], (
        answer
    )
