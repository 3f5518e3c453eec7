"""Groups through the admin client, against coordinators in memory."""

from typing import Any

import pytest

from helpers.fake_broker import FakeCall, FakeCluster, no_tasks_left
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.client.clients import admin

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def three_groups() -> FakeCluster:
    cluster = FakeCluster()
    cluster.groups.create("c", coordinator=1)
    cluster.groups.create("a", coordinator=2, members={"x": [T0]})
    cluster.groups.create("b", coordinator=3)
    return cluster


async def test_a_list_is_what_all_brokers_say_in_order() -> None:
    cluster = three_groups()
    async with no_tasks_left(), admin(cluster) as a:
        listing = await a.groups.listing()
        assert [(g.group_id, g.state) for g in listing.groups] == [("a", "Stable"), ("b", "Empty"), ("c", "Empty")]
        assert listing.unheard == {}
        assert [g.group_id for g in (await a.groups.listing(["Empty"])).groups] == ["b", "c"]
        asked = len(cluster.of("ClusterMetadata"))
        assert [g.coordinator_id for g in await a.groups.describe(["a", "b"])] == [2, 3]
        assert len(cluster.of("ClusterMetadata")) == asked, "who listed a group coordinates it"


async def test_a_broker_that_says_nothing_is_named_and_does_not_hide_the_others() -> None:
    cluster = three_groups()
    cluster.deaths_are_known = False
    async with admin(cluster) as a:
        cluster.down.add(3)
        cluster.paused.add(1)
        began = cluster.clock.now()
        listing = await a.groups.listing()
        assert [g.group_id for g in listing.groups] == ["a"]
        assert dict(listing.unheard) == {1: "DEADLINE_EXCEEDED", 3: "UNAVAILABLE: connection refused"}
        assert cluster.clock.now() - began < 10.0


async def test_a_broker_that_still_reads_its_groups_is_waited_for() -> None:
    cluster = three_groups()
    async with admin(cluster) as a:

        async def loading(call: FakeCall) -> Any:
            return m.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, shard_count=1)

        cluster.once("ListGroups", loading)
        cluster.once("ListGroups", loading)
        assert len((await a.groups.listing()).groups) == 3

        async def refusing(call: FakeCall) -> Any:
            return m.ListGroupsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not you", shard_count=1
            )

        cluster.once("ListGroups", refusing)
        assert dict((await a.groups.listing()).unheard) == {1: "not you"}


async def test_a_shard_without_coordinator_is_waited_for_and_then_told_of() -> None:
    cluster = three_groups()
    cluster.groups.shards = [1, 2, None, None]
    async with no_tasks_left(), admin(cluster, request_timeout_ms=3000) as a:
        began = cluster.clock.now()
        listing = await a.groups.listing()
        assert (len(listing.groups), listing.vacant, listing.unheard) == (3, 2, {})
        assert 1.0 < cluster.clock.now() - began < 4.0

        async def elected(call: FakeCall) -> Any:
            cluster.groups.shards = [1, 2, 2, 3]
            return await cluster.groups.list_groups(1, call.request)

        cluster.once("ListGroups", elected)
        assert (await a.groups.listing()).vacant == 0
        cluster.groups.shards = [1, 2, 2, None]
        cluster.down.add(3)
        cluster.deaths_are_known = False
        listing = await a.groups.listing()
        assert (listing.vacant, list(listing.unheard)) == (0, [3]), "who was not heard may have it"


async def test_a_group_is_described_with_members_and_offsets() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", {T0: 5}, coordinator=3, members={"x": [T0, T1]})
    async with admin(cluster) as a:
        group = await a.groups.describe_one("g")
        assert (group.state, group.coordinator_id, group.generation) == ("Stable", 3, 1)
        (member,) = await a.groups.members("g")
        assert member.consumer_id == "x"
        assert [(p.topic, p.partition) for p in member.partitions] == [T0, T1]
        assert {tp: o.offset for tp, o in (await a.groups.committed("g")).items()} == {T0: 5}
        assert await a.groups.committed("g", [T1]) == {}
        assert await a.groups.committed("g", []) == {}
        with pytest.raises(TidelogError, match="group 'nope' does not exist; `tidelog groups list`") as refused:
            await a.groups.members("nope")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        (unknown,) = await a.groups.describe(["nope"])
        assert unknown.error_code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_are_set_for_a_group_without_members_only() -> None:
    cluster = FakeCluster()
    cluster.groups.create("idle", {T0: 5}, coordinator=2)
    cluster.groups.create("busy", {T0: 5}, coordinator=2, members={"x": [T0]})
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
        assert cluster.groups.groups["busy"].offsets[T0].offset == 5

        async def full(call: FakeCall) -> Any:
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
    cluster = FakeCluster()
    busy = cluster.groups.create("g", {T0: 5}, coordinator=2, members={"x": [T0]})
    async with admin(cluster) as a:
        with pytest.raises(TidelogError, match="group 'g' has members"):
            await a.groups.delete("g")
        busy.members.clear()
        await a.groups.delete("g")
        assert cluster.groups.groups == {}
        with pytest.raises(TidelogError, match="group 'g' does not exist"):
            await a.groups.delete("g")
        assert len(cluster.of("DeleteGroups")) == 3


async def test_a_deletion_whose_answer_was_lost_is_no_error() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g")
    async with admin(cluster) as a:
        cluster.lose_answer("DeleteGroups")
        await a.groups.delete("g")
        assert len(cluster.of("DeleteGroups")) == 2

        async def unheard(call: FakeCall) -> Any:
            return m.DeleteGroupsResponse(results=(m.DeletedGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR),))

        cluster.once("DeleteGroups", unheard)
        with pytest.raises(TidelogError, match="does not exist"):
            await a.groups.delete("g")  # nothing was done before, so it never was there


async def test_a_coordinator_that_never_answers_ends_in_time() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", coordinator=2)
    async with admin(cluster, request_timeout_ms=3000) as a:
        cluster.paused.add(2)
        began = cluster.clock.now()
        with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
            await a.groups.describe_one("g")
        assert cluster.clock.now() - began < 6.0


async def test_log_ends_are_found_by_the_admin_client_too() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    async with admin(cluster) as a:
        found = await a.list_offsets({T0: LATEST, T1: EARLIEST})
        assert {tp: f.offset for tp, f in found.items()} == {T0: 0, T1: 0}
