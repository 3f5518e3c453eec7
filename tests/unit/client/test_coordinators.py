"""A group's coordinator is found at any broker, and looked for again when it has moved."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.fake_broker import FakeCall, FakeCluster
from helpers.requirements import requirement
from tidelog.client.connections import Connections, parse_bootstrap
from tidelog.client.coordinators import Coordinators
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_COMMIT_OFFSETS, COORDINATOR_SERVICE_DESCRIBE_GROUPS


@asynccontextmanager
async def coordinators(cluster: FakeCluster, limit_s: float = 10.0) -> AsyncIterator[Coordinators]:
    ports = cluster.ports
    connections = Connections(ports.net)
    metadata = ClusterMetadata(ports, connections, parse_bootstrap(cluster.bootstrap), limit_s)
    yield Coordinators(ports, connections, metadata, limit_s)
    await connections.close()


async def describe(found: Coordinators, group_id: str = "g") -> m.DescribedGroup:
    request = m.DescribeGroupsRequest(group_ids=(group_id,))
    (group,) = (await found.call(group_id, COORDINATOR_SERVICE_DESCRIBE_GROUPS, request)).groups
    return group


def answering(code: ErrorCode) -> Callable[[FakeCall], Awaitable[Any]]:
    async def answer(call: FakeCall) -> m.DescribeGroupsResponse:
        return m.DescribeGroupsResponse(error_code=code)

    return answer


@requirement("Any broker names the coordinator of a group")
@requirement("A consumer learns brokers and coordinator from metadata")
async def test_the_coordinator_is_asked_for_once_and_then_known() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", coordinator=2)
    async with coordinators(cluster) as found:
        assert await found.find("g") == cluster.addresses[2]
        assert (await describe(found)).coordinator_id == 2
        await describe(found)
        assert len(cluster.of("ClusterMetadata")) == 1
        assert {call.broker_id for call in cluster.of("DescribeGroups")} == {2}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
async def test_who_does_not_coordinate_now_is_not_asked_again_blindly(code: ErrorCode) -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", coordinator=2)
    async with coordinators(cluster) as found:
        cluster.once("DescribeGroups", answering(code))
        cluster.once("DescribeGroups", answering(code))
        assert (await describe(found)).state == "Empty"
        assert len(cluster.of("ClusterMetadata")) == 3


async def test_a_code_of_one_item_counts_too() -> None:
    """The broker that others still name answers for the group, not for the whole request."""

    cluster = FakeCluster()
    cluster.groups.create("g", coordinator=2)
    cluster.groups.believed["g"] = 3

    async def elected(call: FakeCall) -> Any:
        answer = await call.serve()
        cluster.groups.believed.clear()
        return answer

    cluster.once("DescribeGroups", elected)
    async with coordinators(cluster) as found:
        assert (await describe(found)).coordinator_id == 2
        assert [call.broker_id for call in cluster.of("DescribeGroups")] == [3, 2]


async def test_a_coordinator_that_died_or_hangs_is_replaced() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", coordinator=2)
    homes = cluster.groups.homes
    async with coordinators(cluster) as found:
        await found.find("g")
        for trouble in (cluster.down, cluster.paused):
            old = homes["g"]
            trouble.add(old)

            async def elected(call: FakeCall, old: int = old) -> Any:
                homes["g"] = 1 if old != 1 else 3
                return NotImplemented

            cluster.once("ClusterMetadata", elected)
            assert (await describe(found)).coordinator_id == homes["g"] != old
            trouble.clear()


async def test_no_coordinator_at_all_ends_with_the_reason() -> None:
    cluster = FakeCluster()
    cluster.groups.believed["g"] = -1
    async with coordinators(cluster, limit_s=2.0) as found:
        began = cluster.clock.now()
        with pytest.raises(TidelogError, match="group 'g' has no coordinator now") as refused:
            await describe(found)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 1.0 <= cluster.clock.now() - began <= 3.0
        with pytest.raises(TidelogError, match="group_id 'a/b' holds something else"):
            await found.find("a/b")


async def test_other_errors_are_the_callers() -> None:
    cluster = FakeCluster()
    cluster.groups.create("g", members={"c": []})
    async with coordinators(cluster) as found:
        commit = m.CommitOffsetsRequest(group_id="g", incarnation=0, coordinator_epoch=-1, generation=-1, number=0)
        answer = await found.call("g", COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)
        assert answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert len(cluster.of("CommitOffsets")) == 1

        async def unimplemented(call: FakeCall) -> Any:
            raise TransportError("UNIMPLEMENTED")

        cluster.once("CommitOffsets", unimplemented)
        with pytest.raises(TransportError, match="UNIMPLEMENTED"):
            await found.call("g", COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)
