"""Calls that pass through an interceptor: recorded, refused, lost, sent twice, and in order where no fault takes them."""

import asyncio
from typing import Any

import pytest

from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.ports.net import CallContext, Route, Stream
from tidelog.testing.intercept import Call, Interceptor
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire import services as s

AT = Address("server", 9092)


class Server:
    """Takes produce requests; `seen` are their numbers, which are their timeouts."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def produce(self, request: m.ProduceRequest, _: CallContext) -> m.ProduceResponse:
        self.seen.append(request.timeout_ms)
        return m.ProduceResponse()

    async def stream(self, stream: Stream[m.ProduceRequest, m.ProduceAnswers], _: CallContext) -> None:
        number = 0
        while (request := await stream.read()) is not None:
            number += 1
            self.seen.append(request.timeout_ms)
            await stream.write(
                m.ProduceAnswers(answers=(m.ProduceAnswer(number=number, response=m.ProduceResponse()),))
            )


def asked(number: int) -> m.ProduceRequest:
    return m.ProduceRequest(acks=1, timeout_ms=number)


async def world() -> tuple[Server, Interceptor, Any]:
    network, server, interceptor = SimNetwork(seeded(1, "network")), Server(), Interceptor()
    routes = [
        Route(s.REPLICA_SERVICE_PRODUCE, server.produce),
        Route(s.REPLICA_SERVICE_PRODUCE_STREAM, server.stream),
    ]
    await network.node("server").serve(AT, routes)
    return server, interceptor, interceptor.net(network.node("client")).channel(AT, purpose="test")


async def test_a_call_without_a_fault_is_only_recorded() -> None:
    server, interceptor, channel = await world()
    await channel.call(s.REPLICA_SERVICE_PRODUCE, asked(1), 1.0)
    assert [(call.address, call.method, call.request.timeout_ms) for call in interceptor.calls] == [(AT, "Produce", 1)]
    assert (server.seen, interceptor.of("Fetch")) == ([1], [])


async def test_a_fault_takes_one_call_and_may_send_it_twice() -> None:
    server, interceptor, channel = await world()

    async def twice(call: Call) -> Any:
        await call.serve()
        return await call.serve()

    interceptor.once("Produce", twice)
    for number in (1, 2):
        await channel.call(s.REPLICA_SERVICE_PRODUCE, asked(number), 1.0)
    assert server.seen == [1, 1, 2]


async def test_a_lost_answer_leaves_the_call_done() -> None:
    server, interceptor, channel = await world()
    interceptor.lose_answer("Produce")
    with pytest.raises(TransportError, match="connection reset"):
        await channel.call(s.REPLICA_SERVICE_PRODUCE, asked(1), 1.0)
    assert server.seen == [1]


async def test_a_fault_that_takes_too_long_ends_at_the_deadline() -> None:
    server, interceptor, channel = await world()
    interceptor.once("Produce", lambda _: asyncio.sleep(60.0))
    with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
        await channel.call(s.REPLICA_SERVICE_PRODUCE, asked(1), 1.0)
    assert server.seen == []


async def numbers(stream: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [each.number for each in (await stream.read()).answers]
    return found


async def test_requests_on_a_stream_are_calls_and_keep_their_order() -> None:
    server, interceptor, channel = await world()
    stream = channel.open(s.REPLICA_SERVICE_PRODUCE_STREAM)
    for number in range(1, 10):
        await stream.write(asked(number))
    assert await numbers(stream, 9) == server.seen == [call.request.timeout_ms for call in interceptor.of("Produce")]
    stream.cancel()


async def test_a_refused_request_keeps_the_numbers_of_the_others() -> None:
    server, interceptor, channel = await world()

    async def refuse(_: Call) -> m.ProduceResponse:
        return m.ProduceResponse()

    interceptor.once("Produce", refuse)
    stream = channel.open(s.REPLICA_SERVICE_PRODUCE_STREAM)
    for number in (1, 2, 3):
        await stream.write(asked(number))
    assert (await numbers(stream, 3), server.seen) == ([1, 2, 3], [2, 3])
    stream.cancel()


async def test_a_lost_request_breaks_its_stream() -> None:
    server, interceptor, channel = await world()
    interceptor.lose_answer("Produce")
    stream = channel.open(s.REPLICA_SERVICE_PRODUCE_STREAM)
    await stream.write(asked(1))
    for _ in range(2):
        with pytest.raises(TransportError, match="connection reset"):
            await stream.read()
    with pytest.raises(TransportError, match="connection reset"):
        await stream.write(asked(2))
    assert server.seen == [1]
    stream.cancel()
