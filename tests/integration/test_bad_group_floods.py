"""Floods of requests and streams to the coordinator of real brokers: bounded memory, and others are served."""

import asyncio
from collections import Counter

import psutil
import pytest

from helpers.aio import eventually
from helpers.group_wire import GroupBed, at, commit
from helpers.requirements import requirement
from helpers.wire import TIMEOUT_S
from tidelog.cluster.api import broker_name
from tidelog.errors import ErrorCode, TransportError
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = pytest.mark.integration

E = ErrorCode


async def test_requests_of_100_000_entries_are_answered_or_refused_while_others_are_served(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        names = tuple(f"g{n}" for n in range(100_000))
        describe = m.DescribeGroupsRequest(group_ids=names)
        for method, request_, words in (
            (s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, describe, "group_ids holds 100000 entries, at most 1000 are"),
            (
                s.COORDINATOR_SERVICE_DELETE_GROUPS,
                m.DeleteGroupsRequest(group_ids=names),
                "group_ids holds 100000 entries, at most 1000 are",
            ),
            (
                s.COORDINATOR_SERVICE_LIST_GROUPS,
                m.ListGroupsRequest(states=names),
                "states holds 100000 entries, at most 100 are",
            ),
        ):
            with pytest.raises(TransportError, match=f"INVALID_ARGUMENT.*{words}"):
                await channel.call(method, request_, TIMEOUT_S)
        parts = tuple(m.PartitionName(topic="t", partition=n) for n in range(100_000))
        fetch = m.FetchOffsetsRequest(group_id=groups.group, partitions=parts)
        fetched = await channel.call(s.COORDINATOR_SERVICE_FETCH_OFFSETS, fetch, TIMEOUT_S)
        assert {each.offset for each in fetched.offsets} == {-1} and len(fetched.offsets) == 100_000
        request = m.CommitOffsetsRequest(
            group_id=groups.group,
            incarnation=0,
            coordinator_epoch=-1,
            generation=-1,
            number=1,
            offsets=tuple(at("t", n, 1) for n in range(100_000)),
        )
        answered = await commit(channel, request)
        assert answered.error_code is E.NONE, answered.error_message
        results = answered.results
        assert {each.error_code for each in results} == {E.UNKNOWN_TOPIC_OR_PARTITION} and len(results) == 100_000


async def test_a_storm_of_cancelled_streams_leaves_one_member_at_most(groups: GroupBed) -> None:
    """Rapid reset: streams that say nothing, and one consumer that registers again and again and never waits."""

    async with groups.unharmed() as channel:
        for _ in range(10):
            streams = [channel.open(s.COORDINATOR_SERVICE_SESSION) for _ in range(200)]
            await asyncio.sleep(0)
            for stream in streams:
                stream.cancel()
        member = groups.member(channel)
        for _ in range(200):
            member.stream = channel.open(s.COORDINATOR_SERVICE_SESSION)
            await member.say(register=member.request)
            member.stream.cancel()
        assert (await member.reconnect()).error_code is E.NONE
        await member.started()
        assert [each.consumer_id for each in (await groups.described(channel)).members] == ["wire"]
        await member.leave()
        await groups.forget(channel)


async def test_half_open_streams_end(groups: GroupBed) -> None:
    """Whose writing side is closed: before a word, and after a registration."""

    async with groups.unharmed() as channel:
        for registered in (False, True):
            member = groups.member(channel)
            if registered:
                assert (await member.register()).error_code is E.NONE
            await member.stream._call.done_writing()  # type: ignore[attr-defined]
            while (message := await member.stream.read()) is not None:
                assert message.ping or message.start, message
        await member.reconnect()
        await member.leave()
        await groups.forget(channel)


IDLE = 10_000
IDLE_MAX = 1_000
"""That the coordinator waits for at a time."""
GROWTH_MAX = 500 << 20
"""Bytes: grpc accepts all of them before Python sees one, at some 25 KB each."""


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_10_000_idle_streams_cost_bounded_memory_and_keep_nobody_out(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        rows = {row.name: row for row in groups.cluster.status()}
        broker = psutil.Process(rows[broker_name(groups.coordinator)].pid)
        before = broker.memory_info().rss
        net = GrpcNet()
        channels = [net.channel(channel.address, purpose="idle") for _ in range(4)]
        ended: list[str] = []

        async def idle(number: int) -> None:
            with pytest.raises(TransportError) as caught:
                await channels[number % 4].open(s.COORDINATOR_SERVICE_SESSION).read()
            ended.append(str(caught.value))

        async with asyncio.TaskGroup() as tasks:
            for number in range(IDLE):
                tasks.create_task(idle(number))
            await eventually(lambda: len(ended) >= IDLE - IDLE_MAX, "room for the last ones", timeout_s=60.0)
            member = groups.member(channel)
            assert (await member.register()).error_code is E.NONE, "whoever registers is served"
            await member.leave()
            await groups.forget(channel)
        counts = Counter(ended)
        silent = counts.pop("INVALID_ARGUMENT: INVALID_REQUEST: nothing was said within 10 s: register first")
        crowded = counts.pop(
            "UNAVAILABLE: COORDINATOR_NOT_AVAILABLE: over 1000 streams have not registered yet, and this is the oldest"
        )
        assert not counts and silent + crowded == IDLE and silent >= IDLE_MAX - 1, (silent, crowded, counts)
        growth = broker.memory_info().rss - before
        assert growth < GROWTH_MAX, f"{growth:,} bytes"
        for each in channels:
            await each.close()
