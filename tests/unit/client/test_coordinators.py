"""A group's coordinator is found at any broker, and looked for again when it has moved."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers
from helpers.requirements import requirement
from tidelog.client.connections import Connections, parse_bootstrap
from tidelog.client.coordinators import Coordinators
from tidelog.client.metadata import ClusterMetadata
from tidelog.coordinator.election import shard_of
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.services import (
    COORDINATOR_SERVICE_CLUSTER_METADATA,
    COORDINATOR_SERVICE_COMMIT_OFFSETS,
    COORDINATOR_SERVICE_DESCRIBE_GROUPS,
)


@asynccontextmanager
async def coordinators(cluster: Brokers, limit_s: float = 10.0) -> AsyncIterator[Coordinators]:
    ports = cluster.ports
    connections = Connections(ports.net)
    metadata = ClusterMetadata(ports, connections, parse_bootstrap(cluster.bootstrap), limit_s)
    yield Coordinators(ports, connections, metadata, limit_s)
    await connections.close()


async def one_group(coordinator: int = 2) -> tuple[Brokers, str]:
    """A cluster with several shards, and a group without members."""
    cluster = await brokers(coordinator_shards=8)
    await cluster.create("t")
    group = await cluster.name_at(coordinator)
    await cluster.create_group(group, {TopicPartition("t", 0): 0})
    return cluster, group


async def describe(found: Coordinators, group_id: str) -> m.DescribedGroup:
    request = m.DescribeGroupsRequest(group_ids=(group_id,))
    (group,) = (await found.call(group_id, COORDINATOR_SERVICE_DESCRIBE_GROUPS, request)).groups
    return group


def answering(code: ErrorCode) -> Callable[[Call], Awaitable[Any]]:
    async def answer(call: Call) -> m.DescribeGroupsResponse:
        return m.DescribeGroupsResponse(error_code=code)

    return answer


@requirement("Any broker names the coordinator of a group")
@requirement("A consumer learns brokers and coordinator from metadata")
async def test_the_coordinator_is_asked_for_once_and_then_known() -> None:
    cluster, group = await one_group()
    async with coordinators(cluster) as found:
        assert await found.find(group) == cluster.addresses[2]
        assert (await describe(found, group)).coordinator_id == 2
        await describe(found, group)
        assert len(cluster.of("ClusterMetadata")) == 1
        assert {cluster.broker_of(call) for call in cluster.of("DescribeGroups")} == {2}


@requirement("A consumer learns brokers and coordinator from metadata")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
async def test_who_does_not_coordinate_now_is_not_asked_again_blindly(code: ErrorCode) -> None:
    cluster, group = await one_group()
    async with coordinators(cluster) as found:
        cluster.once("DescribeGroups", answering(code))
        cluster.once("DescribeGroups", answering(code))
        assert (await describe(found, group)).state == "Empty"
        assert len(cluster.of("ClusterMetadata")) == 3


@requirement("A consumer learns brokers and coordinator from metadata")
async def test_brokers_that_metadata_names_are_asked_too() -> None:
    cluster = await brokers()
    connections = Connections(cluster.ports.net)
    metadata = ClusterMetadata(cluster.ports, connections, parse_bootstrap("broker-1:9092"), 5.0)
    await metadata.refresh(metadata.version)
    assert metadata.snapshot.brokers == cluster.addresses
    cluster.kill(1)
    await cluster.settle()
    await metadata.refresh(metadata.version)
    assert set(metadata.snapshot.brokers) == {2, 3}
    await connections.close()


@requirement("ClusterMetadataRequest may name a group and topics")
@pytest.mark.parametrize("broker", [1, 2, 3])
async def test_any_broker_answers_for_the_named_group_and_topics(broker: int) -> None:
    cluster = await brokers(coordinator_shards=8)
    await cluster.create("t")
    await cluster.create("u")
    of_first_shard = next(name for name in map(str, range(100)) if shard_of(name, 8) == 0)
    await cluster.until_coordinated(of_first_shard)
    first = cluster.coordinator(of_first_shard)
    group = await cluster.name_at(3 if first == 2 else 2)
    await cluster.until_coordinated(group)
    channel = cluster.ports.net.channel(cluster.addresses[broker], purpose="test")

    async def ask(**fields: Any) -> m.ClusterMetadataResponse:
        return await channel.call(COORDINATOR_SERVICE_CLUSTER_METADATA, m.ClusterMetadataRequest(**fields), 5.0)

    def names(answer: m.ClusterMetadataResponse) -> list[str]:
        return [each.topic for each in answer.topics]

    assert (await ask(group_id=group)).coordinator_id == cluster.coordinator(group) != first
    assert (await ask()).coordinator_id == first
    assert names(await ask()) == [] and names(await ask(topics=("u",))) == ["u"]
    assert names(await ask(all_topics=True)) == ["t", "u"]


async def test_a_code_of_one_item_counts_too() -> None:
    """The broker that others still name answers for the group, not for the whole request."""

    cluster, group = await one_group()

    async def outdated(call: Call) -> Any:
        return replace(await call.serve(), coordinator_id=3)

    cluster.once("ClusterMetadata", outdated)
    async with coordinators(cluster) as found:
        assert (await describe(found, group)).coordinator_id == 2
        assert [cluster.broker_of(call) for call in cluster.of("DescribeGroups")] == [3, 2]


@requirement("A killed coordinator broker costs no committed offset")
@requirement("A consumer learns brokers and coordinator from metadata")
async def test_a_coordinator_that_died_or_hangs_is_replaced() -> None:
    cluster, group = await one_group()
    async with coordinators(cluster) as found:
        await found.find(group)
        for trouble, over in ((cluster.kill, cluster.launch), (cluster.pause, cluster.resume)):
            old = cluster.coordinator(group)
            trouble(old)
            assert (await describe(found, group)).coordinator_id == cluster.coordinator(group) != old
            over(old)


@requirement("Every coordinator error has a code and a consumer reaction")
async def test_no_coordinator_at_all_ends_with_the_reason() -> None:
    cluster, group = await one_group()

    async def none(call: Call) -> Any:
        if call.method != "ClusterMetadata":
            return NotImplemented
        return replace(await call.serve(), coordinator_id=-1)

    cluster.faults.append(none)
    async with coordinators(cluster, limit_s=2.0) as found:
        began = cluster.clock.now()
        with pytest.raises(TidelogError, match=f"group '{group}' has no coordinator now") as refused:
            await describe(found, group)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 1.0 <= cluster.clock.now() - began <= 3.0
        with pytest.raises(TidelogError, match="group_id 'a/b' holds something else"):
            await found.find("a/b")


async def test_other_errors_are_the_callers() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await cluster.join("g", "c", "t")
    async with coordinators(cluster) as found:
        commit = m.CommitOffsetsRequest(group_id="g", incarnation=0, coordinator_epoch=-1, generation=-1, number=0)
        answer = await found.call("g", COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)
        assert answer.error_code is ErrorCode.NON_EMPTY_GROUP
        assert len(cluster.of("CommitOffsets")) == 1

        async def unimplemented(call: Call) -> Any:
            raise TransportError("UNIMPLEMENTED")

        cluster.once("CommitOffsets", unimplemented)
        with pytest.raises(TransportError, match="UNIMPLEMENTED"):
            await found.call("g", COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)
