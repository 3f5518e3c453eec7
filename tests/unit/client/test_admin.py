"""The admin client against brokers in memory."""

from typing import Any

import pytest

from helpers.brokers import brokers, no_tasks_left
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.runtime.rpc_options import as_transport_error
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.client.clients import admin


async def test_topics_are_created_described_and_deleted() -> None:
    cluster = await brokers()
    async with no_tasks_left(), admin(cluster) as a:
        created = await a.create_topic("t", 4, 1, configs={"min.insync.replicas": "2"})
        assert created.num_partitions == 4
        assert await a.list_topics() == ["t"]
        topic = await a.describe_topic("t")
        assert [p.partition for p in topic.partitions] == [0, 1, 2, 3]
        assert topic.configs == (m.ConfigEntry(key="min.insync.replicas", value="2"),)
        assert (await a.describe_cluster()).partitions == 4
        await a.delete_topic("t")
        assert await a.list_topics() == []


async def test_errors_name_the_topic() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with admin(cluster) as a:
        with pytest.raises(TidelogError, match="topic 't' already exists"):
            await a.create_topic("t")
        with pytest.raises(TidelogError, match="topic 'x': number of partitions 0 is not from 1"):
            await a.create_topic("x", 0)
        for call in (a.delete_topic("nope"), a.describe_topic("nope")):
            with pytest.raises(TidelogError, match="topic 'nope' does not exist"):
                await call
        await a.create_topic("only-checked", validate_only=True)
        assert await a.list_topics() == ["t"]


async def test_a_change_is_repeated_until_it_is_answered() -> None:
    cluster = await brokers()
    async with admin(cluster) as a:

        async def no_controller(call: Call) -> m.CreateTopicsResponse:
            return m.CreateTopicsResponse(
                topics=tuple(
                    m.CreatedTopic(
                        name=t.name, error_code=ErrorCode.NOT_CONTROLLER, num_partitions=-1, replication_factor=-1
                    )
                    for t in call.request.topics
                )
            )

        cluster.once("CreateTopics", no_controller)
        cluster.once("CreateTopics", no_controller)
        await a.create_topic("t")
        assert len(cluster.of("CreateTopics")) == 3

        async def just_started(_: Call) -> Any:
            raise as_transport_error(TidelogError("no controller is active", ErrorCode.NOT_CONTROLLER))

        cluster.once("DeleteTopics", just_started)
        await a.delete_topic("t")
        assert len(cluster.of("DeleteTopics")) == 2

        async def silent(call: Call) -> Any:
            await call.serve()
            raise TransportError("DEADLINE_EXCEEDED")

        cluster.once("CreateTopics", silent)
        await a.create_topic("u")
        assert len(cluster.of("CreateTopics")) == 5


async def test_any_broker_will_do() -> None:
    cluster = await brokers()
    cluster.kill(1)
    async with admin(cluster) as a:
        for name in ("a", "b", "c", "d"):
            await a.create_topic(name)
        assert await a.list_topics() == ["a", "b", "c", "d"]


async def test_wait_until_led_names_what_is_missing() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with admin(cluster) as a:
        await a.wait_until_led("t", in_sync=True)
        cluster.kill(2)
        await cluster.settle()
        await a.wait_until_led("t")
        with pytest.raises(TidelogError, match=r"t-0: leader 1, ISR \[1, 3\] of \[1, 2, 3\]"):
            await a.wait_until_led("t", in_sync=True, timeout_s=0.5)
