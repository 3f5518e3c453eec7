"""Groups through the admin client, against coordinators in memory."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helpers.batches import batch
from helpers.brokers import Brokers, brokers, no_tasks_left
from helpers.requirements import requirement
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_LIST_GROUPS
from unit.client.clients import admin

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def three_groups() -> tuple[Brokers, str, str, str]:
    """Groups a, b and c, on brokers 2, 3 and 1; the first has a member."""
    cluster = await brokers(coordinator_shards=8)
    await cluster.create("t")
    a, b, c = [await cluster.name_at(broker, prefix) for broker, prefix in ((2, "a"), (3, "b"), (1, "c"))]
    await cluster.join(a, "x", "t")
    await cluster.create_group(b, {T0: 0})
    await cluster.create_group(c, {T0: 0})
    return cluster, a, b, c


async def test_a_list_is_what_all_brokers_say_in_order() -> None:
    cluster, a, b, c = await three_groups()
    async with no_tasks_left(), admin(cluster) as client:
        listing = await client.groups.listing()
        assert [(g.group_id, g.state) for g in listing.groups] == [(a, "Stable"), (b, "Empty"), (c, "Empty")]
        assert listing.unheard == {}
        assert [g.group_id for g in (await client.groups.listing(["Empty"])).groups] == [b, c]
        asked = len(cluster.of("ClusterMetadata"))
        assert [g.coordinator_id for g in await client.groups.describe([a, b])] == [2, 3]
        assert len(cluster.of("ClusterMetadata")) == asked, "who listed a group coordinates it"


async def test_a_broker_that_says_nothing_is_named_and_does_not_hide_the_others() -> None:
    cluster, a, _, _ = await three_groups()
    async with admin(cluster) as client:
        cluster.kill_unnoticed(3)
        cluster.silent.add(1)
        began = cluster.clock.now()
        listing = await client.groups.listing()
        assert [g.group_id for g in listing.groups] == [a]
        assert sorted(listing.unheard) == [1, 3]
        assert listing.unheard[3] == "UNAVAILABLE: connection refused by broker-3:9092"
        assert listing.unheard[1].startswith("DEADLINE_EXCEEDED")
        assert cluster.clock.now() - began < 10.0


async def test_a_broker_that_still_reads_its_groups_is_waited_for() -> None:
    cluster, *_ = await three_groups()
    async with admin(cluster) as client:

        async def loading(call: Call) -> Any:
            return m.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, shard_count=8)

        cluster.once("ListGroups", loading)
        cluster.once("ListGroups", loading)
        assert len((await client.groups.listing()).groups) == 3

        async def refusing(call: Call) -> Any:
            return m.ListGroupsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not you", shard_count=8
            )

        cluster.once("ListGroups", refusing)
        assert dict((await client.groups.listing()).unheard) == {1: "not you"}


async def test_a_shard_without_coordinator_is_waited_for_and_then_told_of() -> None:
    cluster, *_ = await three_groups()
    everything = {broker: (await asked_at(cluster, broker)).shards for broker in cluster.ids}
    assert sorted(shard for shards in everything.values() for shard in shards) == list(range(8))
    vacant = set(everything[1][:2])
    assert len(vacant) == 2

    async def deposed(call: Call) -> Any:
        """Its coordinators have lost two of their shards, and no broker has taken them yet."""
        if call.method != "ListGroups":
            return NotImplemented
        answer = await call.serve()
        return replace(answer, shards=tuple(shard for shard in answer.shards if shard not in vacant))

    cluster.faults.append(deposed)
    async with no_tasks_left(), admin(cluster, request_timeout_ms=3000) as client:
        began = cluster.clock.now()
        listing = await client.groups.listing()
        assert (len(listing.groups), listing.vacant, listing.unheard) == (3, 2, {})
        assert 1.0 < cluster.clock.now() - began < 4.0

        asyncio.get_running_loop().call_later(0.2, vacant.clear)
        assert (await client.groups.listing()).vacant == 0
        vacant.add(everything[1][0])
        cluster.kill_unnoticed(3)
        listing = await client.groups.listing()
        assert (listing.vacant, list(listing.unheard)) == (0, [3]), "who was not heard may have it"


async def asked_at(cluster: Brokers, broker: int) -> m.ListGroupsResponse:
    channel = cluster.ports.net.channel(cluster.addresses[broker], purpose="test")
    return await channel.call(COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest(), 1.0)


@requirement("A group registry consists of consumer registries")
async def test_a_group_is_described_with_members_and_offsets() -> None:
    cluster = await brokers(coordinator_shards=8)
    await cluster.create("t", 2)
    await cluster.append("t", 0, batch(*[b"v"] * 10))
    name = await cluster.name_at(3)
    joined = await cluster.join(name, "x", "t")
    await joined.commit({T0: 5})
    async with admin(cluster) as a:
        group = await a.groups.describe_one(name)
        assert (group.state, group.coordinator_id, group.generation) == ("Stable", 3, 1)
        (member,) = await a.groups.members(name)
        assert member.consumer_id == "x"
        assert [(p.topic, p.partition) for p in member.partitions] == [T0, T1]
        assert {tp: o.offset for tp, o in (await a.groups.committed(name)).items()} == {T0: 5}
        assert await a.groups.committed(name, [T1]) == {}
        assert await a.groups.committed(name, []) == {}
        with pytest.raises(TidelogError, match="group 'nope' does not exist; `tidelog groups list`") as refused:
            await a.groups.members("nope")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        (unknown,) = await a.groups.describe(["nope"])
        assert unknown.error_code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_are_set_for_a_group_without_members_only() -> None:
    cluster = await brokers()
    await cluster.create("t", 2)
    await cluster.append("t", 0, batch(*[b"v"] * 10))
    await cluster.create_group("idle", {T0: 5})
    await cluster.create_group("busy", {T0: 5})
    await cluster.join("busy", "x", "t")
    async with admin(cluster) as a:
        cluster.lose_answer("CommitOffsets")
        results = await a.groups.alter_offsets("idle", {T0: 9, T1: 0})
        assert [(r.partition, r.error_code) for r in results] == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]
        assert {tp: o.offset for tp, o in (await a.groups.committed("idle")).items()} == {T0: 9, T1: 0}
        sent = cluster.of("CommitOffsets")[-1].request
        assert (sent.consumer_id, sent.generation) == ("", -1)
        with pytest.raises(TidelogError, match="group 'busy' has members: stop its consumers first") as refused:
            await a.groups.alter_offsets("busy", {T0: 9})
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        assert (await a.groups.committed("busy"))[T0].offset == 5

        async def full(call: Call) -> Any:
            return m.CommitOffsetsResponse(
                results=(
                    m.CommittedResult(topic="t", partition=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    m.CommittedResult(topic="t", partition=1),
                )
            )

        cluster.once("CommitOffsets", full)
        first, second = await a.groups.alter_offsets("idle", {T0: 9, T1: 0})
        assert (first.error_code, second.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)


async def test_a_group_is_deleted_once_it_is_empty() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await cluster.join("g", "x", "t")
    async with admin(cluster) as a:
        with pytest.raises(TidelogError, match="group 'g' has members"):
            await a.groups.delete("g")
        await cluster.leave("x")
        await a.groups.delete("g")
        assert (await a.groups.listing()).groups == ()
        with pytest.raises(TidelogError, match="group 'g' does not exist"):
            await a.groups.delete("g")
        assert len(cluster.of("DeleteGroups")) == 3


async def test_a_deletion_whose_answer_was_lost_is_no_error() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await cluster.create_group("g", {T0: 0})
    async with admin(cluster) as a:
        cluster.lose_answer("DeleteGroups")
        await a.groups.delete("g")
        assert len(cluster.of("DeleteGroups")) == 2

        async def unheard(call: Call) -> Any:
            return m.DeleteGroupsResponse(results=(m.DeletedGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR),))

        cluster.once("DeleteGroups", unheard)
        with pytest.raises(TidelogError, match="does not exist"):
            await a.groups.delete("g")  # nothing was done before, so it never was there


async def test_a_coordinator_that_never_answers_ends_in_time() -> None:
    cluster, a, _, _ = await three_groups()
    async with admin(cluster, request_timeout_ms=3000) as client:
        cluster.silent.add(2)
        began = cluster.clock.now()
        with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
            await client.groups.describe_one(a)
        assert cluster.clock.now() - began < 6.0


async def test_log_ends_are_found_by_the_admin_client_too() -> None:
    cluster = await brokers()
    await cluster.create("t", 2)
    async with admin(cluster) as a:
        found = await a.list_offsets({T0: LATEST, T1: EARLIEST})
        assert {tp: f.offset for tp, f in found.items()} == {T0: 0, T1: 0}
