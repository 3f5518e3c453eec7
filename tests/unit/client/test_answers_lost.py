"""Calls of the admin client that change something, when it is not known what became of their first try."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers
from tidelog.client.admin import Admin
from tidelog.errors import ErrorCode, TidelogError, TransportError, UnknownServerError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.client.clients import admin

Action = Callable[[Admin], Awaitable[Any]]

CHANGES: dict[str, tuple[str, Action]] = {
    "create": ("CreateTopics", lambda a: a.create_topic("new", 4, 1, configs={"retention.ms": "1000"})),
    "create with assignment": ("CreateTopics", lambda a: a.create_topic("new", assignment=[[1, 2], [3, 1]])),
    "create with defaults": ("CreateTopics", lambda a: a.create_topic("new")),
    "delete": ("DeleteTopics", lambda a: a.delete_topic("t")),
    "grow": ("CreatePartitions", lambda a: a.create_partitions("t", 6)),
    "alter": ("IncrementalAlterConfigs", lambda a: a.alter_configs("t", {"retention.ms": "1000"})),
}


async def timed_out(call: Call) -> Any:
    """The answer of a controller that is deposed in the middle of it; it has done it."""
    answer = await call.serve()
    code = ErrorCode.REQUEST_TIMED_OUT
    return replace(answer, topics=tuple(replace(each, error_code=code) for each in answer.topics))


async def cluster_with_topic() -> Brokers:
    cluster = await brokers()
    await cluster.create("t", 2)
    return cluster


@pytest.mark.parametrize("lost", ["the connection", "the controller"])
@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_that_was_made_and_not_answered(what: str, lost: str) -> None:
    cluster = await cluster_with_topic()
    method, change = CHANGES[what]
    async with admin(cluster) as a:
        if lost == "the connection":
            cluster.lose_answer(method)
        else:
            cluster.once(method, timed_out)
        answer = await change(a)
        assert len(cluster.of(method)) == 2
        if method == "CreateTopics":
            made = await a.describe_topic("new")
            assert (answer.topic_id, answer.num_partitions) == (made.topic_id, len(made.partitions))
            assert answer.replication_factor == len(made.partitions[0].replicas)


@pytest.mark.parametrize(
    "what, says",
    [("create", "'new' already exists"), ("grow", "'t' has 8 partitions, which is more than the requested 6")],
)
async def test_what_another_client_did_is_still_an_error(what: str, says: str) -> None:
    cluster = await cluster_with_topic()
    method, change = CHANGES[what]

    async def after_another(_: Call) -> Any:
        await (cluster.create("new", 3) if what == "create" else cluster.grow("t", 8))
        raise TransportError("UNAVAILABLE", "connection reset")

    async with admin(cluster) as a:
        cluster.once(method, after_another)
        with pytest.raises(TidelogError, match=says):
            await change(a)


@pytest.mark.parametrize("why", ["failed to connect to all addresses", "NOT_CONTROLLER: no controller is active"])
@pytest.mark.parametrize("what, says", [("create", "already exists"), ("delete", "does not exist")])
async def test_a_try_that_was_never_sent_leaves_no_doubt(what: str, says: str, why: str) -> None:
    cluster = await cluster_with_topic()
    method, change = CHANGES[what]
    async with admin(cluster) as a:
        await change(a)

        async def unsent(_: Call) -> Any:
            raise TransportError("UNAVAILABLE", why)

        cluster.once(method, unsent)
        with pytest.raises(TidelogError, match=says):
            await change(a)


async def test_a_change_that_is_never_done_ends_in_time() -> None:
    cluster = await cluster_with_topic()
    async with admin(cluster, request_timeout_ms=3000) as a:

        async def in_vain(call: Call) -> Any:
            if call.method != "CreateTopics":
                return NotImplemented
            failed = m.CreatedTopic(
                name="new", error_code=ErrorCode.REQUEST_TIMED_OUT, num_partitions=-1, replication_factor=-1
            )
            return m.CreateTopicsResponse(topics=(failed,))

        cluster.faults.append(in_vain)
        (answer,) = await a.create_topics([m.NewTopic(name="new", num_partitions=1, replication_factor=1)])
        assert answer.error_code is ErrorCode.REQUEST_TIMED_OUT and len(cluster.of("CreateTopics")) > 1


async def test_a_change_that_is_never_answered_may_be_done() -> None:
    cluster = await cluster_with_topic()
    async with admin(cluster, request_timeout_ms=3000) as a:

        async def silent(call: Call) -> Any:
            if call.method != "DeleteTopics":
                return NotImplemented
            await call.serve()
            raise TransportError("UNAVAILABLE", "connection reset")

        cluster.faults.append(silent)
        with pytest.raises(UnknownServerError, match=r"no answer to DeleteTopics .*: it may have been done"):
            await a.delete_topic("t")


async def test_changes_over_a_change_of_controllers() -> None:
    """Each of them is made once, and none is reported as an error."""
    cluster = await brokers()
    async with admin(cluster) as a:
        for number in range(10):
            name = f"t{number}"
            steps = (a.create_topic(name, 2), a.create_partitions(name, 4), a.delete_topic(name))
            for delay, step in enumerate(steps):
                await cluster.depose_controller(after_s=0.002 * (number + delay))
                await step
        assert await a.list_topics() == []


async def test_a_group_that_was_deleted_and_not_answered() -> None:
    cluster = await cluster_with_topic()
    await cluster.create_group("g", {TopicPartition("t", 0): 0})
    async with admin(cluster) as a:

        async def deposed(call: Call) -> Any:
            await call.serve()
            code = ErrorCode.REQUEST_TIMED_OUT
            return m.DeleteGroupsResponse(results=(m.DeletedGroup(group_id="g", error_code=code),))

        cluster.once("DeleteGroups", deposed)
        await a.groups.delete("g")
        assert len(cluster.of("DeleteGroups")) == 2
        with pytest.raises(TidelogError, match="does not exist"):
            await a.groups.delete("g")
