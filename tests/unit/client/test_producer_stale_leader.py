"""A producer whose leader is one no longer and does not know it."""

from typing import Any

import pytest

from helpers.batches import batch
from helpers.brokers import brokers, produce_result
from helpers.requirements import requirement
from tidelog.client.producer import Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m


@requirement("An isolated broker truncates its own tail when it rejoins")
async def test_a_leader_whose_answers_are_that_time_is_up_is_looked_for_elsewhere() -> None:
    """It may be cut off from everybody but its clients, and will not learn who leads now."""

    cluster = await brokers()
    await cluster.create("t")
    async with Producer(cluster.bootstrap, ports=cluster.ports) as p:
        await (await p.send("t", b"a"))

        async def cut_off(call: Call) -> Any:
            if cluster.broker_of(call) != 1:
                return await call.serve()
            cluster.once("Produce", cut_off)
            return m.ProduceResponse(results=(produce_result("t", 0, error_code=ErrorCode.REQUEST_TIMED_OUT),))

        await cluster.elect("t", 0, 3)
        cluster.once("Produce", cut_off)
        await (await p.send("t", b"b"))
    assert cluster.values("t") == [b"a", b"b"]


@requirement("An isolated broker truncates its own tail when it rejoins")
async def test_an_isolated_leader_without_its_lease_refuses_acks_1() -> None:
    cluster = await brokers(acks_without_lease="refuse")
    await cluster.create("t")
    leader = cluster.node(1)
    for meta in (leader.meta, leader.coordinator_meta):
        assert meta is not None
        meta.cut()
    for other in cluster.world.nodes.keys() - {leader.name}:
        cluster.world.network.cut(leader.name, other)
        cluster.world.network.cut(other, leader.name)
    await cluster.append("t", 0, batch(b"a"), acks=1)
    await cluster.wait(4.5)
    with pytest.raises(TidelogError, match="this leader's lease has run out") as refused:
        await cluster.append("t", 0, batch(b"b"), acks=1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and cluster.leader("t") == 1
