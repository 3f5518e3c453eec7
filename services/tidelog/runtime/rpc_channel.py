"""A grpc.aio channel that speaks messages."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakSet

import grpc
from grpc import aio

from tidelog.errors import TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi, Stream, Unary
from tidelog.ports.recorder import CAUSE, cause_text
from tidelog.runtime.rpc_cause import CAUSED_BY, cause_in, stream_decoder, stream_encoder
from tidelog.runtime.rpc_options import (
    CONNECTS_WITHIN_S,
    MEANT_FOR,
    MISROUTED,
    Limits,
    broken,
    channel_options,
    target,
)
from tidelog.runtime.tasks import Supervisor
from tidelog.wire.codec import decoder, encoder

Req = TypeVar("Req")
Res = TypeVar("Res")


class GrpcChannel:
    """`ports.net.Channel`. It connects at the first call; while it cannot, calls fail at once with UNAVAILABLE.

    gRPC asks for the address of a name again when a connection fails, which is not enough where containers die and come
    back. While the name is unknown it asks less and less often, every two minutes in the end. And when another server
    has the address by then and accepts, it does not ask at all. So the gRPC channel is replaced, which asks at once, when the
    name has another address and when a call has reached the wrong server.
    """

    def __init__(self, address: Address, purpose: str, limits: Limits, meant_for: Address | None = None) -> None:
        """`meant_for` is what the server advertises; None: any server is right."""
        self.address = address
        self._options = channel_options(limits, purpose)
        self._metadata = () if meant_for is None else ((MEANT_FOR, str(meant_for)),)
        self._closed = False
        self._streams: WeakSet[_ClientStream] = WeakSet()
        """Streams that are in use. gRPC's aio leaves one open when its channel closes, unless a read or a write is pending."""
        self._tasks = Supervisor("look-ups")
        self._looking = False
        self._found: frozenset[object] | None = None
        """The addresses of the name when it was last looked up here."""
        self._connect()

    def _connect(self) -> None:
        self._channel = aio.insecure_channel(target(self.address), options=self._options)
        self._calls: dict[str, Any] = {}

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        channel = self._channel
        stub = self._calls.get(method.path)
        if stub is None:
            stub = self._calls[method.path] = channel.unary_unary(method.path)
        data, cause = encoder(method.request)(request), cause_text()
        metadata = self._metadata if cause is None else (*self._metadata, (CAUSED_BY, cause))
        try:
            call = stub(data, timeout=timeout_s, metadata=metadata)
            answer = await call
            if cause is not None and (led := cause_in(await call.trailing_metadata())) is not None:
                CAUSE.set(led)
        except aio.AioRpcError as error:
            raise await self._failure(error, channel) from None
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        if answer is None:  # gRPC's aio gives that for a good status whose message was lost with its connection
            raise TransportError("UNAVAILABLE", "the call ended without an answer")
        return _decoded(decoder(method.response), answer)

    def open(self, method: Bidi[Req, Res]) -> Stream[Res, Req]:
        channel = self._channel
        try:
            call = channel.stream_stream(method.path)(metadata=self._metadata)
            call._cython_call = _KeepsStatus(call._cython_call)
        except aio.BaseError as error:
            raise broken(error) from None
        stream = _ClientStream(call, method, lambda error: self._failure(error, channel))
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Calls and streams in progress end with TransportError."""
        self._closed = True
        await self._tasks.stop()
        for stream in self._streams:
            stream.cancel()
        await self._channel.close()

    async def _failure(self, error: aio.AioRpcError, channel: aio.Channel) -> TransportError:
        detail = error.details() or ""
        if detail.startswith(MISROUTED):
            await self._replace(channel, 0.0)
        elif channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not (self._looking or self._closed):
            self._looking = True
            self._tasks.start("look-up", self._look_up(channel))
        return TransportError(error.code().name, detail)

    async def _look_up(self, channel: aio.Channel) -> None:
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(*self.address, type=socket.SOCK_STREAM)
            found = frozenset(address for *_, address in answers)
            if found != self._found:
                self._found = found
                await self._replace(channel, CONNECTS_WITHIN_S)
        except OSError:
            pass  # a name that is unknown now
        finally:
            self._looking = False

    async def _replace(self, channel: aio.Channel, grace_s: float) -> None:
        """Unless another call has done it. Calls that wait for a connection have `grace_s` to end by themselves."""
        if channel is self._channel and not self._closed:
            self._connect()
            try:
                await channel.close(grace_s)
            finally:
                await channel.close()


class _KeepsStatus:
    """A call of gRPC's core whose status is the server's.

    If the server refuses a stream while a message is written, gRPC's aio sets the status INTERNAL ("Internal error from Core"),
    and the server's, which arrives a moment later, is lost: a producer would not learn that its request is too large. Without
    that status, aio waits for the one that arrives.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def set_internal_error(self, _detail: str) -> None:
        pass


class _ClientStream:
    """`ports.net.Stream`, the end of the side that opened it."""

    __slots__ = ("__weakref__", "_call", "_decode", "_encode", "_failure")

    def __init__(
        self, call: Any, method: Bidi[Any, Any], failure: Callable[[aio.AioRpcError], Awaitable[TransportError]]
    ) -> None:
        self._call = call
        self._failure = failure
        self._encode = stream_encoder(method.request)
        self._decode = stream_decoder(method.response)

    async def read(self) -> Any:
        try:
            data = await self._call.read()
        except aio.AioRpcError as error:
            raise await self._failure(error) from None
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        return None if data is aio.EOF else _decoded(self._decode, data)

    async def write(self, message: Any) -> None:
        data = self._encode(message)
        try:
            await self._call.write(data)
        except aio.AioRpcError as error:
            raise await self._failure(error) from None
        except asyncio.InvalidStateError:
            raise TransportError("CANCELLED", "the stream has ended") from None
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None

    def cancel(self) -> None:
        self._call.cancel()


def _decoded(decode: Callable[[bytes], Res], data: bytes) -> Res:
    try:
        return decode(data)
    except TidelogError as error:
        raise TransportError("INTERNAL", error.message) from None
