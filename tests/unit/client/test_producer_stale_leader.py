"""A producer whose leader is one no longer and does not know it."""

from typing import Any

from helpers.brokers import brokers, produce_result
from helpers.requirements import requirement
from tidelog.client.producer import Producer
from tidelog.errors import ErrorCode
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
