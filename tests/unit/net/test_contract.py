"""What every Net does, over real gRPC and in the simulated network alike."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from helpers.aio import eventually
from helpers.log_events import captured_logs
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ports.net import CallContext, Probe, Route
from tidelog.ports.recorder import CAUSE, Cause, led_on
from tidelog.wire import messages as m
from tidelog.wire import services as s
from unit.net.worlds import CHUNKS, ECHO, STREAM, GrpcWorld, SimWorld, World, answer, ask, chunk, ping, pong

SENT, APPLIED = Cause("controller-1", 1, 17), Cause("broker-1", 1_700_000_000_000, 4)
WORLDS: dict[str, Callable[[], World]] = {"grpc": GrpcWorld, "sim": SimWorld}


@pytest.fixture(params=[pytest.param("grpc", marks=pytest.mark.real_loop), "sim"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    yield WORLDS[request.param]()


async def echo(request: Any, context: CallContext) -> Any:
    return answer(request.group_id)


class Parked:
    """A handler that waits for ever, and tells how it fared."""

    def __init__(self) -> None:
        self.started = self.cancelled = 0
        self.contexts: list[CallContext] = []

    async def __call__(self, _request: Any, context: CallContext) -> Any:
        self.started += 1
        self.contexts.append(context)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def fails(awaitable: Awaitable[Any], status: str) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await awaitable
    assert caught.value.status == status, caught.value
    return caught.value


async def test_a_call_is_answered(world: World) -> None:
    contexts = []

    async def handler(request: Any, context: CallContext) -> Any:
        contexts.append(context)
        return answer(request.group_id)

    server = await world.serve(Route(ECHO, handler))
    assert server.address.port > 0
    channel = world.caller.channel(server.address, purpose="test")
    assert await channel.call(ECHO, ask("hello"), 5.0) == answer("hello")
    # gRPC counts the deadline in coarse monotonic time and tells it in wall time: it may come out some ms late.
    assert contexts[0].peer and 0 < (contexts[0].remaining_s or 0) <= 5.1
    many = await asyncio.gather(*(channel.call(ECHO, ask(str(i)), 5.0) for i in range(200)))
    assert [a.cluster_id for a in many] == [str(i) for i in range(200)]
    await channel.close()
    await server.stop(0)


async def test_a_deadline_ends_the_call_and_its_handler(world: World) -> None:
    parked = Parked()
    server = await world.serve(Route(ECHO, parked))
    channel = world.caller.channel(server.address, purpose="test")
    await fails(channel.call(ECHO, ask(), 0.2), "DEADLINE_EXCEEDED")
    await eventually(lambda: parked.cancelled == parked.started == 1, "the handler's end")
    await channel.close()
    await server.stop(0)


async def test_a_cancelled_caller_cancels_its_own_handler_alone(world: World) -> None:
    parked, release = Parked(), asyncio.Event()

    async def handler(request: Any, context: CallContext) -> Any:
        if request.group_id == "cancel":
            return await parked(request, context)
        await release.wait()
        return answer("whole")

    server = await world.serve(Route(ECHO, handler))
    channel = world.caller.channel(server.address, purpose="test")
    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(channel.call(ECHO, ask("keep"), 10.0))
        doomed = tasks.create_task(channel.call(ECHO, ask("cancel"), 10.0))
        await eventually(lambda: parked.started == 1, "the doomed call's start")
        doomed.cancel()
        await eventually(lambda: parked.cancelled == 1, "the doomed handler's end")
        release.set()
    assert doomed.cancelled() and other.result() == answer("whole")
    await channel.close()
    await server.stop(0)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, "FAILED_PRECONDITION"),
        (ErrorCode.NOT_CONTROLLER, "UNAVAILABLE"),
        (ErrorCode.INVALID_REQUEST, "INVALID_ARGUMENT"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "INTERNAL"),
    ],
)
async def test_a_refusal_without_a_place_in_the_answer_is_a_status(world: World, code: ErrorCode, status: str) -> None:
    async def unary(_request: Any, _context: CallContext) -> Any:
        raise TidelogError("acks is 7, not -1, 0 or 1", code)

    server = await world.serve(Route(ECHO, unary), Route(STREAM, unary))
    channel = world.caller.channel(server.address, purpose="test")
    error = await fails(channel.call(ECHO, ask(), 5.0), status)
    assert error.detail == f"{code.name}: acks is 7, not -1, 0 or 1"
    error = await fails(channel.open(STREAM).read(), status)
    assert error.detail == f"{code.name}: acks is 7, not -1, 0 or 1"
    await channel.close()
    await server.stop(0)
    assert world.bugs == []


async def test_a_bug_in_a_handler_is_answered_counted_and_survived(world: World) -> None:
    async def handler(request: Any, context: CallContext) -> Any:
        if getattr(request, "group_id", "stream") != "fine":
            raise KeyError("bug")
        return answer("fine")

    server = await world.serve(Route(ECHO, handler), Route(STREAM, handler))
    channel = world.caller.channel(server.address, purpose="test")
    with captured_logs() as logs:
        error = await fails(channel.call(ECHO, ask(), 5.0), "INTERNAL")
        assert "KeyError" in error.detail and "bug" not in error.detail, "its text may be secret"
        await fails(channel.open(STREAM).read(), "INTERNAL")
    assert world.bugs == [ECHO.path, STREAM.path] == [entry["method"] for entry in logs]
    assert await channel.call(ECHO, ask("fine"), 5.0) == answer("fine")
    await channel.close()
    await server.stop(0)


async def test_an_unknown_method_is_named(world: World) -> None:
    server = await world.serve(Route(ECHO, echo))
    channel = world.caller.channel(server.address, purpose="test")
    await fails(channel.open(STREAM).read(), "UNIMPLEMENTED")
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    await channel.close()
    await server.stop(0)


async def test_a_channel_fails_fast_and_finds_its_server_again(world: World) -> None:
    server = await world.serve(Route(ECHO, echo))
    channel = world.caller.channel(server.address, purpose="test")
    await channel.call(ECHO, ask("x"), 5.0)
    await server.stop(0)
    now = asyncio.get_running_loop().time
    for _ in range(5):
        start = now()
        await fails(channel.call(ECHO, ask("x"), 5.0), "UNAVAILABLE")
        assert now() - start < 1.0, "it waited for a server that is not there"
    server = await world.serve(Route(ECHO, echo), port=server.address.port)
    start, found = now(), None
    while found is None:
        try:
            found = await channel.call(ECHO, ask("x"), 5.0)
        except TransportError as error:
            assert error.status == "UNAVAILABLE" and now() - start < 2.0
            await asyncio.sleep(0.02)
    assert now() - start < 1.0, "a failover has to be over within a second"
    await channel.close()
    await server.stop(0)


async def test_an_address_in_use_is_named(world: World) -> None:
    server = await world.serve(Route(ECHO, echo))
    with pytest.raises(OSError, match=str(server.address.port)) as caught:
        await world.serve(Route(ECHO, echo), port=server.address.port)
    assert "in use" in str(caught.value)
    await server.stop(0)


async def test_a_stream_keeps_order_and_ends_with_its_handler(world: World) -> None:
    async def handler(stream: Any, _context: CallContext) -> None:
        for number in range(500):
            message = await stream.read()
            assert message == ping(number)
            await stream.write(pong(number))

    server = await world.serve(Route(STREAM, handler))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(STREAM)

    async def send() -> None:
        for number in range(500):
            await stream.write(ping(number))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        received = [await stream.read() for _ in range(500)]
    assert received == [pong(number) for number in range(500)]
    assert await stream.read() is None and await stream.read() is None
    with pytest.raises(TransportError):
        await stream.write(ping(1))
    stream.cancel()
    await channel.close()
    await server.stop(0)
    assert world.bugs == []


async def test_a_writer_waits_for_a_reader_that_does_not_read(world: World) -> None:
    written: list[int] = []

    async def handler(stream: Any, _context: CallContext) -> None:
        for number in range(10_000):
            await stream.write(chunk(number))
            written.append(number)

    server = await world.serve(Route(CHUNKS, handler))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(CHUNKS)
    await eventually(lambda: written, "the first write")
    seen = -1
    while seen != len(written):
        seen = len(written)
        await asyncio.sleep(0.3)
    assert seen < 2_000, "64 KiB each: it would have filled the memory"
    for number in range(seen):
        assert await stream.read() == chunk(number)
    await eventually(lambda: len(written) > seen, "the writer's going on")
    stream.cancel()
    await channel.close()
    await server.stop(0)


async def test_a_stream_that_its_opener_breaks_cancels_the_handler(world: World) -> None:
    parked = Parked()
    server = await world.serve(Route(STREAM, parked))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await eventually(lambda: parked.started == 1, "the handler's start")
    stream.cancel()
    await eventually(lambda: parked.cancelled == 1, "the handler's end")
    await fails(stream.read(), "CANCELLED")
    await fails(stream.write(ping(2)), "CANCELLED")
    stream.cancel()
    await channel.close()
    await server.stop(0)


async def test_a_stream_that_its_server_breaks_fails_at_its_opener(world: World) -> None:
    ended = []

    async def handler(stream: Any, _context: CallContext) -> None:
        await stream.read()
        stream.cancel()
        try:
            await stream.read()
        finally:
            ended.append("handler")

    server = await world.serve(Route(STREAM, handler))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await fails(stream.read(), "CANCELLED")
    assert ended == ["handler"] and world.bugs == []
    await channel.close()
    await server.stop(0)


async def test_a_cancelled_read_breaks_the_stream(world: World) -> None:
    parked = Parked()
    server = await world.serve(Route(STREAM, parked))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await eventually(lambda: parked.started == 1, "the handler's start")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stream.read()
    await eventually(lambda: parked.cancelled == 1, "the handler's end")
    await fails(stream.read(), "CANCELLED")
    await channel.close()
    await server.stop(0)


async def test_a_server_stops_with_calls_and_streams_open(world: World) -> None:
    unary, bidi = Parked(), Parked()
    server = await world.serve(Route(ECHO, unary), Route(STREAM, bidi))
    channel = world.caller.channel(server.address, purpose="test")
    streams = [channel.open(STREAM) for _ in range(3)]
    calls = [asyncio.ensure_future(channel.call(ECHO, ask(), 20.0)) for _ in range(3)]
    reads = [asyncio.ensure_future(stream.read()) for stream in streams]
    await eventually(lambda: unary.started == bidi.started == 3, "all starts")
    async with asyncio.timeout(5.0):
        await server.stop(0.1)
    for failed in await asyncio.gather(*calls, *reads, return_exceptions=True):
        assert isinstance(failed, TransportError), failed
        assert failed.status in ("UNAVAILABLE", "CANCELLED"), failed
    await eventually(lambda: unary.cancelled == bidi.cancelled == 3, "all ends")
    await channel.close()


async def test_a_stopping_server_lets_a_call_end(world: World) -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def handler(_request: Any, _context: CallContext) -> Any:
        started.set()
        await release.wait()
        return answer("done")

    server = await world.serve(Route(ECHO, handler))
    channel = world.caller.channel(server.address, purpose="test")
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(channel.call(ECHO, ask(), 10.0))
        await started.wait()
        tasks.create_task(server.stop(5.0))
        await asyncio.sleep(0.05)
        release.set()
    assert call.result() == answer("done")
    await channel.close()


async def test_a_closed_channel_ends_its_calls_and_streams(world: World) -> None:
    parked = Parked()
    server = await world.serve(Route(ECHO, parked), Route(STREAM, parked))
    channel = world.caller.channel(server.address, purpose="test")
    call = asyncio.ensure_future(channel.call(ECHO, ask(), 10.0))
    read = asyncio.ensure_future(channel.open(STREAM).read())
    await eventually(lambda: parked.started == 2, "both starts")
    await channel.close()
    for failed in await asyncio.gather(call, read, return_exceptions=True):
        assert isinstance(failed, TransportError) and failed.status == "CANCELLED", failed
    await fails(channel.call(ECHO, ask(), 10.0), "CANCELLED")
    await eventually(lambda: parked.cancelled == 2, "both ends")
    await server.stop(0)


async def test_a_closed_channel_ends_a_stream_that_is_not_read(world: World) -> None:
    ended = asyncio.Event()

    async def handler(stream: Any, _context: CallContext) -> None:
        try:
            for number in range(1_000_000):
                await stream.write(chunk(number))
        finally:
            ended.set()

    server = await world.serve(Route(CHUNKS, handler))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(CHUNKS)
    assert await stream.read() is not None
    await channel.close()
    await eventually(ended.is_set, "the end")
    await fails(stream.read(), "CANCELLED")
    await server.stop(0)


async def test_a_thousand_parked_calls_are_answered(world: World) -> None:
    release, parked = asyncio.Event(), []

    async def handler(request: Any, _context: CallContext) -> Any:
        parked.append(1)
        await release.wait()
        return answer(request.group_id)

    server = await world.serve(Route(ECHO, handler))
    channel = world.caller.channel(server.address, purpose="test")
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(channel.call(ECHO, ask(str(i)), 20.0)) for i in range(1000)]
        await eventually(lambda: len(parked) == 1000, "all calls parked")
        release.set()
    assert [call.result().cluster_id for call in calls] == [str(i) for i in range(1000)]
    await channel.close()
    await server.stop(0)


async def test_a_handler_knows_by_which_door_a_caller_came(world: World) -> None:
    def door(name: str) -> Route:
        async def handler(_request: Any, _context: CallContext) -> Any:
            return answer(name)

        return Route(ECHO, handler)

    servers = {name: await world.serve(door(name)) for name in ("INTERNAL", "EXTERNAL")}
    for name, server in servers.items():
        channel = world.caller.channel(server.address, purpose="test")
        assert (await channel.call(ECHO, ask(), 5.0)).cluster_id == name
        await channel.close()
    for server in servers.values():
        await server.stop(0)


async def test_a_probe_tells_a_listener_from_none(world: World) -> None:
    server = await world.serve(Route(ECHO, echo))
    assert await world.caller.probe(server.address, 1.0) is Probe.OPEN
    await server.stop(0)
    assert await world.caller.probe(server.address, 1.0) is Probe.REFUSED


async def test_a_cause_goes_with_a_call_and_with_its_answer(world: World) -> None:
    seen = []

    async def handler(request: Any, context: CallContext) -> Any:
        seen.append(CAUSE.get())
        if request.group_id:
            CAUSE.set(APPLIED)
        return answer(request.group_id)

    async def stream(_: Any, context: CallContext) -> None:
        seen.append(CAUSE.get())

    server = await world.serve(Route(ECHO, handler), Route(STREAM, stream))
    channel = world.caller.channel(server.address, purpose="test")
    await channel.call(ECHO, ask(), 5.0)
    assert seen == [None] and CAUSE.get() is None
    with led_on(SENT):
        await channel.call(ECHO, ask(), 5.0)
        assert seen[1:] == [SENT] and CAUSE.get() == SENT, "the answer has no other"
        await channel.call(ECHO, ask("acts"), 5.0)
        assert seen[2:] == [SENT] and CAUSE.get() == APPLIED
        assert await channel.open(STREAM).read() is None
        assert seen[3:] == [None], "what opened a stream did not lead to what comes on it"
    await channel.close()
    await server.stop(0)


async def test_a_cause_goes_with_a_message_that_has_a_field_for_it(world: World) -> None:
    seen = []

    async def handler(stream: Any, context: CallContext) -> None:
        while (message := await stream.read()) is not None:
            seen.append((message.number, CAUSE.get()))
            with led_on(APPLIED):
                await stream.write(m.CoordinatorMessage(last_number=message.number))

    server = await world.serve(Route(s.COORDINATOR_SERVICE_SESSION, handler))
    channel = world.caller.channel(server.address, purpose="test")
    stream = channel.open(s.COORDINATOR_SERVICE_SESSION)
    await stream.write(m.ConsumerMessage(number=1))
    with led_on(SENT):
        await stream.write(m.ConsumerMessage(number=2))
    for number in (1, 2):
        message = await stream.read()
        assert message is not None and message.last_number == number and CAUSE.get() == APPLIED
    assert seen == [(1, None), (2, SENT)]
    stream.cancel()
    await channel.close()
    await server.stop(0)
