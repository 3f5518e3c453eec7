"""What only real connections can show: sizes, garbage, half-open links, standard services, a proxy's addresses."""

import asyncio
import contextlib
import errno
import gc
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc._cython import cygrpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from helpers.aio import eventually
from helpers.requirements import requirement
from helpers.slow_reader import SlowReader
from tidelog.client.errors import refused_for_sure
from tidelog.client.produce_link import ProduceLink
from tidelog.errors import ErrorCode, TidelogError, TransportError, UnreadError, is_transient
from tidelog.ids import Address
from tidelog.ports.net import CallContext, Probe, Route
from tidelog.runtime import responses
from tidelog.runtime.responses import ResponseBudget
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.rpc_options import Limits, as_transport_error, status_of
from tidelog.wire import messages as m
from tidelog.wire.codec import encode
from tidelog.wire.services import (
    REPLICA_SERVICE_FETCH,
    REPLICA_SERVICE_PRODUCE,
    REPLICA_SERVICE_PRODUCE_STREAM,
    REPLICA_SERVICE_REPLICA_FETCH,
)
from unit.net.worlds import ECHO, STREAM, answer, ask, ping, pong

pytestmark = pytest.mark.real_loop

LOOPBACK = Address("127.0.0.1", 0)
OURS = Address("broker-1.invalid", 9092)
OTHER = Address("broker-2.invalid", 9092)


async def echo(request: Any, _context: CallContext) -> Any:
    return answer(request.group_id)


async def produce(request: Any, _context: CallContext) -> Any:
    return m.ProduceResponse(results=())


def produce_of(size: int) -> m.ProduceRequest:
    part = m.ProducePartition(topic="t", partition=0, leader_epoch=-1, records=bytes(size))
    return m.ProduceRequest(acks=1, timeout_ms=1000, partitions=(part,))


@contextlib.asynccontextmanager
async def raw_channel(address: Address) -> AsyncIterator[Any]:
    """As a foreign client would connect."""
    channel = aio.insecure_channel(str(address))
    try:
        yield channel
    finally:
        await channel.close()


async def status(call: Any) -> grpc.StatusCode:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    code: grpc.StatusCode = caught.value.code()
    return code


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_a_request_over_the_limit_is_refused_and_the_connection_lives() -> None:
    net = GrpcNet(Limits(request_bytes=1 << 20))
    server = await net.serve(LOOPBACK, [Route(REPLICA_SERVICE_PRODUCE, produce), Route(STREAM, stream_echo)])
    channel = net.channel(server.address, purpose="test")
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    assert await stream.read() == pong(1)
    with pytest.raises(TransportError) as caught:
        await channel.call(REPLICA_SERVICE_PRODUCE, produce_of(2 << 20), 5.0)
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    assert await channel.call(REPLICA_SERVICE_PRODUCE, produce_of(1 << 20), 5.0) == m.ProduceResponse()
    await stream.write(ping(2))
    assert await stream.read() == pong(2), "the same connection"
    await channel.close()
    await server.stop(0)


async def stream_echo(stream: Any, _context: CallContext) -> None:
    while (message := await stream.read()) is not None:
        await stream.write(pong(message.controller_id))


async def test_garbage_and_big_metadata_are_refused_and_the_next_request_works() -> None:
    bugs: list[str] = []
    net = GrpcNet(on_bug=bugs.append)
    server = await net.serve(LOOPBACK, [Route(ECHO, echo), Route(STREAM, stream_echo)])
    async with raw_channel(server.address) as channel:
        call = channel.unary_unary(ECHO.path)
        assert await status(call(b"\xff\xff")) is grpc.StatusCode.INVALID_ARGUMENT
        stream = channel.stream_stream(STREAM.path)()
        await stream.write(b"\xff\xff")
        assert await status(stream.read()) is grpc.StatusCode.INVALID_ARGUMENT
        big = (("x-big", "x" * 100_000),)
        assert await status(call(encode(ask("x")), metadata=big)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await status(channel.unary_unary("/tidelog.v1.No/Such")(b"")) is grpc.StatusCode.UNIMPLEMENTED
        assert await status(channel.unary_unary("/x")(b"")) is grpc.StatusCode.UNIMPLEMENTED
        assert await call(encode(ask("fine"))) == encode(answer("fine"))
    await server.stop(0)
    assert bugs == []


async def test_a_request_with_too_many_items_is_one_refusal() -> None:
    bugs: list[str] = []
    server = await GrpcNet(on_bug=bugs.append).serve(
        LOOPBACK, [Route(REPLICA_SERVICE_PRODUCE, produce), Route(REPLICA_SERVICE_PRODUCE_STREAM, stream_echo)]
    )
    said = "INVALID_REQUEST: partitions holds more than 10000 entries, at most 10000 are allowed"
    empty_items = b"\x22\x00" * 2_000_000
    async with raw_channel(server.address) as channel:
        call = channel.unary_unary(REPLICA_SERVICE_PRODUCE.path)
        with pytest.raises(aio.AioRpcError) as caught:
            await call(empty_items)
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, said)
        stream = channel.stream_stream(REPLICA_SERVICE_PRODUCE_STREAM.path)()
        await stream.write(empty_items)
        assert await status(stream.read()) is grpc.StatusCode.INVALID_ARGUMENT
        assert await call(encode(produce_of(1))) == b""
    await server.stop(0)
    assert bugs == []


async def test_an_answer_that_is_too_large_is_one_error(caplog: pytest.LogCaptureFixture) -> None:
    bugs: list[str] = []
    server = await GrpcNet(Limits(answer_bytes=1 << 20), on_bug=bugs.append).serve(LOOPBACK, [Route(ECHO, echo)])
    async with raw_channel(server.address) as channel:
        call = channel.unary_unary(ECHO.path)
        with pytest.raises(aio.AioRpcError) as caught:
            await call(encode(ask("x" * (2 << 20))))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert re.fullmatch(
            r"MESSAGE_TOO_LARGE: the answer of \S+ has 20\d+ bytes, at most 1114112 are sent: ask for less at a time",
            caught.value.details() or "",
        )
        assert await call(encode(ask("fine"))) == encode(answer("fine"))
    await server.stop(0)
    assert bugs == [] and not caplog.records


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
        ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ("DEADLINE_EXCEEDED", "UNAVAILABLE"),
        ("UNIMPLEMENTED", "UNAVAILABLE"),
    ],
)
def test_what_a_forwarded_call_ends_with(said: str, told: str) -> None:
    """A client tries again after UNAVAILABLE; a request that is too large is refused as often as it comes."""
    assert as_transport_error(TransportError(said, "why")).status == told


async def test_a_storm_of_cancelled_calls_is_survived() -> None:
    ended = []

    async def parked(_request: Any, _context: CallContext) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    net = GrpcNet()
    server = await net.serve(LOOPBACK, [Route(STREAM, parked), Route(ECHO, echo)])
    channel = net.channel(server.address, purpose="test")
    await channel.call(ECHO, ask(), 5.0)
    for _ in range(10):
        streams = [channel.open(STREAM) for _ in range(50)]
        await asyncio.sleep(0.01)
        for stream in streams:
            stream.cancel()
    assert await channel.call(ECHO, ask("alive"), 5.0) == answer("alive")
    started = len(ended)
    await eventually(lambda: len(ended) >= started, "handlers end")
    await channel.close()
    await server.stop(0)


async def test_health_and_reflection_are_served() -> None:
    server = await GrpcNet().serve(LOOPBACK, [Route(ECHO, echo)])
    async with raw_channel(server.address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for serving in (False, True, False):
            server.set_serving(serving)
            for service in ("", "tidelog.v1.CoordinatorService"):
                found = (await check(health_pb2.HealthCheckRequest(service=service))).status
                assert found == (1 if serving else 2), (service, serving)
        assert await status(check(health_pb2.HealthCheckRequest(service="tidelog.v1.No"))) is grpc.StatusCode.NOT_FOUND
        reflect = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )()
        await reflect.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = [service.name for service in (await reflect.read()).list_services_response.service]
        assert "tidelog.v1.CoordinatorService" in names and "grpc.health.v1.Health" in names
        symbol = "tidelog.v1.CoordinatorService"
        await reflect.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
        assert (await reflect.read()).file_descriptor_response.file_descriptor_proto
        reflect.cancel()
    await server.stop(0)


async def test_a_server_that_was_away_for_long_is_found_within_a_second() -> None:
    net = GrpcNet()
    server = await net.serve(LOOPBACK, [Route(ECHO, echo)])
    channel = net.channel(server.address, purpose="test")
    await channel.call(ECHO, ask(), 5.0)
    await server.stop(0)
    now = asyncio.get_running_loop().time

    async def call_until(end: float) -> bool:
        while now() < end:
            try:
                return bool(await channel.call(ECHO, ask(), 5.0))
            except TransportError:
                await asyncio.sleep(0.02)
        return False

    assert not await call_until(now() + 4.0)  # so long that a backoff without a limit has grown over a second
    server = await net.serve(server.address, [Route(ECHO, echo)])
    assert await call_until(now() + 1.0)
    await channel.close()
    await server.stop(0)


class Relay:
    """A TCP relay that can fall silent, as a host does that loses its power."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.silent = False
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> Address:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Address("127.0.0.1", self.server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self.target)
        self.writers += [writer, there_writer]
        await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        if not self.silent:
            writer.close()

    async def stop(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0.05)


async def test_a_half_open_stream_breaks_at_both_ends_within_a_session() -> None:
    ended = asyncio.Event()

    async def handler(stream: Any, context: CallContext) -> None:
        try:
            await stream_echo(stream, context)
        finally:
            ended.set()

    server = await GrpcNet().serve(LOOPBACK, [Route(STREAM, handler)])
    relay = Relay(server.address)
    link = await relay.start()
    net = GrpcNet(link_map={server.address: link})
    channel = net.channel(server.address, purpose="test")
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    assert await stream.read() == pong(1)
    start = asyncio.get_running_loop().time()
    relay.silent = True
    with pytest.raises(TransportError) as caught:
        await stream.read()
    assert caught.value.status == "UNAVAILABLE"
    await ended.wait()
    assert asyncio.get_running_loop().time() - start < 5.9, "a ZooKeeper session is 6 s"
    await channel.close()
    await relay.stop()
    await server.stop(0)


async def test_dialled_addresses_run_through_the_link_map() -> None:
    server = await GrpcNet().serve(LOOPBACK, [Route(ECHO, echo)])
    name = Address("broker-1.invalid", 9092)
    net = GrpcNet(link_map={name: server.address})
    channel = net.channel(name, purpose="test")
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    assert await net.probe(name, 1.0) is Probe.OPEN
    await channel.close()
    await server.stop(0)
    assert await net.probe(name, 1.0) is Probe.REFUSED


class Swapped:
    """The address at which the name of `OURS` was found has become another broker's."""

    def __init__(self, ours: Address, relay: Relay, dialled: Address) -> None:
        self._ours = ours
        self._relay = relay
        self._dialled = dialled

    def channel(self, to_anyone: bool = False) -> GrpcChannel:
        return GrpcNet(link_map={OURS: self._dialled}).channel(OURS, purpose="test", to_anyone=to_anyone)

    def name_service_catches_up(self) -> None:
        """New connections reach `OURS`; those that stand stay with the other broker."""
        self._relay.target = self._ours


@pytest.fixture
async def swapped() -> AsyncIterator[Swapped]:
    net, routes = GrpcNet(), [Route(ECHO, echo), Route(STREAM, stream_echo)]
    ours, other = await net.serve(LOOPBACK, routes, OURS), await net.serve(LOOPBACK, routes, OTHER)
    relay = Relay(other.address)
    yield Swapped(ours.address, relay, await relay.start())
    await relay.stop()
    await ours.stop(0)
    await other.stop(0)


async def test_a_call_that_reached_another_broker_connects_anew(swapped: Swapped) -> None:
    channel = swapped.channel()
    for _ in range(2):
        with pytest.raises(
            TransportError, match=f"MISROUTED: this is {OTHER}, and the call is meant for {OURS}"
        ) as why:
            await channel.call(ECHO, ask(), 5.0)
        assert is_transient(why.value), "a client tries again"
    swapped.name_service_catches_up()
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    await channel.close()


async def test_a_stream_that_reached_another_broker_connects_anew(swapped: Swapped) -> None:
    channel = swapped.channel()
    stream = channel.open(STREAM)
    with pytest.raises(TransportError, match="MISROUTED"):
        await stream.read()
    swapped.name_service_catches_up()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    assert await stream.read() == pong(1)
    stream.cancel()
    await channel.close()


async def test_a_closed_channel_stays_closed_when_misrouted(swapped: Swapped) -> None:
    channel = swapped.channel()
    stream: Any = channel.open(STREAM)
    await eventually(lambda: stream._call.done(), "the refusal has arrived")
    await channel.close()
    with pytest.raises(TransportError, match="MISROUTED"):
        await stream.read()
    with pytest.raises(TransportError, match="CANCELLED"):
        await channel.call(ECHO, ask(), 5.0)


async def test_a_name_that_has_another_address_is_dialled_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look-ups of gRPC are minutes apart by the time that a container is back."""
    opened: list[str] = []
    found: list[Any] = []

    def open_channel(target: str, **options: Any) -> Any:
        opened.append(target)
        return insecure_channel(target, **options)

    async def look_up(*_: Any, **__: Any) -> Any:
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return found

    async def opened_after_calls() -> int:
        for _ in range(3):
            with pytest.raises(TransportError, match="UNAVAILABLE"):
                await channel.call(ECHO, ask(), 5.0)
            await asyncio.sleep(0.01)
        return len(opened)

    insecure_channel = aio.insecure_channel
    monkeypatch.setattr(aio, "insecure_channel", open_channel)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    channel = GrpcNet().channel(Address("127.0.0.1", 1), purpose="test")
    assert await opened_after_calls() == 1, "the name is unknown"
    for other in ("172.19.0.11", "172.19.0.10"):
        before = len(opened)
        found[:] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (other, 1))]
        assert await opened_after_calls() == before + 1
        assert await opened_after_calls() == before + 1, "the address is the same"
    await channel.close()


async def test_any_broker_is_right_at_a_bootstrap_address(swapped: Swapped) -> None:
    channel = swapped.channel(to_anyone=True)
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    await channel.close()


async def test_a_probe_reads_the_errno() -> None:
    net = GrpcNet()
    assert await net.probe(Address("no-such-host.invalid", 1), 5.0) in (Probe.GONE, Probe.SILENT)
    with socket.socket() as listener:  # accepts into its backlog, says nothing
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        assert await net.probe(Address(*listener.getsockname()), 5.0) is Probe.OPEN

    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    proxy = await asyncio.start_server(reset, "127.0.0.1", 0)
    assert await net.probe(Address(*proxy.sockets[0].getsockname()), 5.0) is Probe.REFUSED
    proxy.close()


async def test_no_second_server_shares_a_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        address = Address(*taken.getsockname())
        with pytest.raises(OSError, match=f"cannot listen at {address}: Address already in use") as caught:
            await GrpcNet().serve(address, [Route(ECHO, echo)])
        assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(OSError, match=r"cannot listen at no-such-host\.invalid:1"):
        await GrpcNet().serve(Address("no-such-host.invalid", 1), [Route(ECHO, echo)])


async def test_an_answer_that_is_no_message_of_its_type_is_a_transport_error() -> None:
    async def garbage(_request: bytes, _context: Any) -> bytes:
        return b"\xff\xff"

    server = aio.server()
    handler = grpc.method_handlers_generic_handler(
        "tidelog.v1.CoordinatorService", {"ClusterMetadata": grpc.unary_unary_rpc_method_handler(garbage)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = GrpcNet().channel(Address("127.0.0.1", port), purpose="test")
    with pytest.raises(TransportError, match="not a ClusterMetadataResponse") as caught:
        await channel.call(ECHO, ask(), 5.0)
    assert caught.value.status == "INTERNAL"
    await channel.close()
    await server.stop(0)


def test_every_error_has_a_status_that_grpc_knows() -> None:
    for code in ErrorCode:
        assert grpc.StatusCode[status_of(code)] not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)


async def test_a_good_status_without_a_message_is_no_answer() -> None:
    """gRPC's aio gives None where a connection breaks behind the status; as an answer it would end whoever asked."""

    class Lost:
        def unary_unary(self, path: str) -> Any:
            async def stub(data: bytes, **_options: Any) -> None:
                return None

            return stub

    channel = GrpcChannel(Address("127.0.0.1", 1), "", Limits())
    await channel.close()
    channel._channel = Lost()  # type: ignore[assignment]
    with pytest.raises(TransportError, match="UNAVAILABLE: the call ended without an answer"):
        await channel.call(REPLICA_SERVICE_PRODUCE, produce_of(1), 1.0)


async def test_a_failed_write_ends_with_the_status_of_the_server() -> None:
    """gRPC's aio would set a status of its own before the server's arrives."""
    failed = asyncio.Event()

    async def refuse(_stream: Any, _context: CallContext) -> None:
        await failed.wait()
        raise TidelogError("acks is 7", ErrorCode.INVALID_REQUIRED_ACKS)

    net = GrpcNet()
    server = await net.serve(LOOPBACK, [Route(REPLICA_SERVICE_PRODUCE_STREAM, refuse)])
    channel = net.channel(server.address, purpose="test")
    stream: Any = channel.open(REPLICA_SERVICE_PRODUCE_STREAM)
    core = stream._call._cython_call

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(core, name)

        async def send_serialized_message(self, _data: bytes) -> None:
            failed.set()
            raise cygrpc.InternalError("the stream is refused")

    stream._call._cython_call = type(core)(Failing())
    with pytest.raises(TransportError, match="INVALID_REQUIRED_ACKS: acks is 7"):
        await stream.write(produce_of(10))
    await channel.close()
    await server.stop(0)


async def answer_each(stream: Any, _context: CallContext) -> None:
    number = 0
    while await stream.read() is not None:
        number += 1
        found = m.ProduceAnswer(number=number, response=m.ProduceResponse(results=()))
        await stream.write(m.ProduceAnswers(answers=(found,)))


async def test_a_producer_learns_which_request_was_not_received() -> None:
    net = GrpcNet(Limits(request_bytes=1 << 20))
    server = await net.serve(LOOPBACK, [Route(REPLICA_SERVICE_PRODUCE_STREAM, answer_each)])
    channel = net.channel(server.address, purpose="test")
    link = ProduceLink(channel)
    assert await link.call(produce_of(10), 5.0) == m.ProduceResponse()
    large, behind = [asyncio.create_task(link.call(produce_of(size), 5.0)) for size in (2 << 20, 10)]
    with pytest.raises(TidelogError, match="the broker takes 1114112") as refused:
        await large
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE and refused_for_sure(refused.value)
    with pytest.raises(UnreadError) as unread:
        await behind
    assert is_transient(unread.value) and refused_for_sure(unread.value)
    assert await link.call(produce_of(1 << 20), 5.0) == m.ProduceResponse(), "on a new stream"
    await link.close()
    await channel.close()
    await server.stop(0)


async def fetch(request: m.FetchRequest, _context: CallContext) -> m.FetchResponse:
    result = m.FetchResult(
        topic="t",
        partition=0,
        high_watermark=0,
        log_start_offset=0,
        diverging_epoch=-1,
        diverging_end_offset=-1,
        leader_id=1,
        leader_epoch=0,
        records=bytes(request.max_bytes),
    )
    return m.FetchResponse(results=(result,))


@pytest.mark.parametrize("answer_bytes", [1 << 20, 4 << 20], ids=["sent", "received"])
async def test_an_answer_that_is_too_large_is_known_by_its_error(answer_bytes: int) -> None:
    server = await GrpcNet(Limits(answer_bytes=answer_bytes)).serve(LOOPBACK, [Route(REPLICA_SERVICE_FETCH, fetch)])
    channel = GrpcNet(Limits(answer_bytes=1 << 20)).channel(server.address, purpose="test")
    for size, fits in ((1 << 20, True), (2 << 20, False)):
        request = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size)
        if fits:
            await channel.call(REPLICA_SERVICE_FETCH, request, 5.0)
            continue
        with pytest.raises(TransportError) as caught:
            await channel.call(REPLICA_SERVICE_FETCH, request, 5.0)
        assert caught.value.by_size
    await channel.close()
    await server.stop(0)


async def test_the_largest_limits_are_numbers_that_grpc_takes() -> None:
    net = GrpcNet(Limits(2**31 - 1, 2**31 - 1))
    server = await net.serve(LOOPBACK, [Route(ECHO, echo)])
    channel = net.channel(server.address, purpose="test")
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    await channel.close()
    await server.stop(0)


_AT: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "high_watermark": 0,
    "log_start_offset": 0,
    "diverging_epoch": -1,
    "diverging_end_offset": -1,
}


class SlowBench:
    """A server whose answers are as large as there is room for, and readers that do not read."""

    def __init__(self, server: Any, net: GrpcNet) -> None:
        self.server = server
        self.net = net
        self.sizes: list[int] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def make(cls, **limits: int) -> AsyncIterator["SlowBench"]:
        async def fetch(_request: Any, context: CallContext) -> Any:
            while not (room := context.room(1 << 20)):
                await context.more_room()
            self.sizes.append(room)
            return m.FetchResponse(
                results=(m.FetchResult(records=bytes(room - 100), leader_id=1, leader_epoch=1, **_AT),)
            )

        async def stream(stream: Any, _context: CallContext) -> None:
            while True:
                await stream.write(m.ReplicaFetchResponse(chunk=1, partitions=(chunk,)))

        chunk = m.ReplicaChunk(records=bytes(1 << 20), leader_epoch=1, offset=0, dropped_to=0, **_AT)
        net = GrpcNet(Limits(**limits))
        routes = [Route(REPLICA_SERVICE_FETCH, fetch), Route(REPLICA_SERVICE_REPLICA_FETCH, stream), Route(ECHO, echo)]
        self = cls(await net.serve(LOOPBACK, routes), net)
        try:
            yield self
        finally:
            await self.server.stop(0)

    @property
    def budget(self) -> ResponseBudget:
        assert self.net.responses is not None
        return self.net.responses


FETCH = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1)
FETCH_PATH = REPLICA_SERVICE_FETCH.path


async def test_what_a_slow_reader_asks_for_has_a_limit() -> None:
    ahead = 8 << 20
    async with (
        SlowBench.make(connection_responses_bytes=responses.AHEAD * ahead) as bench,
        SlowReader.connected(bench.server.address) as reader,
    ):
        for _ in range(100):
            reader.ask(FETCH_PATH, encode(FETCH))
        await eventually(lambda: len(bench.sizes) > 2)
        await asyncio.sleep(0.2)
        assert ahead - (2 << 20) <= bench.budget.bytes <= ahead
        assert 2 * sum(bench.sizes) <= ahead
        channel = bench.net.channel(bench.server.address, purpose="test")
        assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
        answered = await channel.call(REPLICA_SERVICE_FETCH, FETCH, 5.0)
        assert len(answered.results[0].records) == (1 << 20) - 100
        await channel.close()
        reader.close()
        await eventually(lambda: bench.budget.bytes == 0)


async def test_streams_of_a_slow_reader_have_the_same_limit() -> None:
    each = 8 << 20
    async with (
        SlowBench.make(connection_responses_bytes=each) as bench,
        SlowReader.connected(bench.server.address) as reader,
    ):
        streams = [reader.ask(REPLICA_SERVICE_REPLICA_FETCH.path, b"") for _ in range(10)]
        await eventually(lambda: len(reader.ended) == len(streams) - 3)
        assert each - (4 << 20) <= bench.budget.bytes <= each
        assert all(b"THROTTLING_QUOTA_EXCEEDED" in end for end in reader.ended.values())


async def test_readers_that_do_not_read_lose_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "SLOW_S", 0.5)
    whole = 8 << 20
    async with (
        SlowBench.make(responses_bytes=whole, connection_responses_bytes=whole) as bench,
        AsyncExitStack() as stack,
    ):
        readers = [await stack.enter_async_context(SlowReader.connected(bench.server.address)) for _ in range(8)]
        for reader in readers:
            for _ in range(20):
                reader.ask(FETCH_PATH, encode(FETCH))
        await eventually(lambda: bench.budget.room("other", 1 << 20) == 0)
        assert bench.budget.bytes <= whole
        channel = bench.net.channel(bench.server.address, purpose="test")
        answered = await channel.call(REPLICA_SERVICE_FETCH, FETCH, 10.0)
        assert answered.results[0].records
        await channel.close()


@contextlib.asynccontextmanager
async def no_call_is_kept(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Afterwards gRPC keeps no call, and no request or response with it, though the collector does not run."""
    caplog.set_level(logging.CRITICAL, "grpc._cython.cygrpc")  # pytest keeps what is logged, and a call with its error

    def calls() -> int:
        return sum(type(each).__name__ == "RPCState" for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = calls()
        yield
        await eventually(lambda: calls() <= before + 1)  # the loop that accepts calls keeps the last one
    finally:
        gc.enable()


async def test_what_a_lost_connection_has_not_read_is_freed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with SlowBench.make() as bench, no_call_is_kept(caplog):
        async with SlowReader.connected(bench.server.address) as reader:
            for _ in range(20):
                reader.ask(FETCH_PATH, encode(FETCH))
            await eventually(lambda: len(bench.sizes) > 5)
        await eventually(lambda: bench.budget.bytes == 0)


async def test_what_is_refused_is_freed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_request: Any, _context: CallContext) -> Any:
        raise TransportError("INVALID_ARGUMENT", "as of a call that was forwarded")

    async def wait(_request: Any, _context: CallContext) -> Any:
        await asyncio.Event().wait()

    routes = [Route(ECHO, refuse), Route(REPLICA_SERVICE_PRODUCE, wait), Route(STREAM, stream_echo)]
    server = await GrpcNet().serve(LOOPBACK, routes)
    async with no_call_is_kept(caplog), raw_channel(server.address) as channel:
        for path, data in ((ECHO.path, b""), (ECHO.path, b"\xff\xff"), (REPLICA_SERVICE_PRODUCE.path, b"")):
            for _ in range(5):
                await status(channel.unary_unary(path)(data, timeout=0.1))
        for _ in range(5):
            stream = channel.stream_stream(STREAM.path)()
            await stream.write(b"\xff\xff")
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
            stream = channel.stream_stream(STREAM.path)()
            await stream.write(encode(ping(1)))
            assert await stream.read()
            stream.cancel()
    await server.stop(0)


async def test_a_listener_closes_what_is_above_its_limit() -> None:
    net = GrpcNet(Limits(connections=3))
    server = await net.serve(LOOPBACK, [Route(ECHO, echo)])
    channel = net.channel(server.address, purpose="test")
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    held = [await asyncio.open_connection(*server.address) for _ in range(2)]
    for reader, _ in held:
        assert await reader.read(1), "it is greeted"
    further, writer = await asyncio.open_connection(*server.address)
    assert await further.read() == b""
    assert await channel.call(ECHO, ask("x"), 5.0) == answer("x")
    held[0][1].close()
    await asyncio.sleep(0.1)
    reader, again = await asyncio.open_connection(*server.address)
    assert await reader.read(1)
    for each in (writer, again, held[1][1]):
        each.close()
    await channel.close()
    await server.stop(0)
