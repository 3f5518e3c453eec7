"""A grpc.aio channel that speaks messages."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from grpc import aio

from tidelog.errors import TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi, Stream, Unary
from tidelog.runtime.rpc_options import Limits, channel_options
from tidelog.runtime.rpc_server import broken, target
from tidelog.wire.codec import decoder, encoder

Req = TypeVar("Req")
Res = TypeVar("Res")


class GrpcChannel:
    """`ports.net.Channel`. It connects at the first call; while it cannot, calls fail at once with UNAVAILABLE."""

    def __init__(self, address: Address, purpose: str, limits: Limits) -> None:
        self.address = address
        self._channel = aio.insecure_channel(target(address), options=channel_options(limits, purpose))
        self._calls: dict[str, Any] = {}

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        stub = self._calls.get(method.path)
        if stub is None:
            stub = self._calls[method.path] = self._channel.unary_unary(method.path)
        data = encoder(method.request)(request)
        try:
            answer = await stub(data, timeout=timeout_s)
        except aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        if answer is None:  # gRPC's aio gives that for a good status whose message was lost with its connection
            raise TransportError("UNAVAILABLE", "the call ended without an answer")
        return _decoded(decoder(method.response), answer)

    def open(self, method: Bidi[Req, Res]) -> Stream[Res, Req]:
        try:
            call = self._channel.stream_stream(method.path)()
        except aio.BaseError as error:
            raise broken(error) from None
        return _ClientStream(call, method)

    async def close(self) -> None:
        """Calls and streams in progress end with TransportError."""
        await self._channel.close()


class _ClientStream:
    """`ports.net.Stream`, the end of the side that opened it."""

    __slots__ = ("_call", "_decode", "_encode")

    def __init__(self, call: Any, method: Bidi[Any, Any]) -> None:
        self._call = call
        self._encode = encoder(method.request)
        self._decode = decoder(method.response)

    async def read(self) -> Any:
        try:
            data = await self._call.read()
        except aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        return None if data is aio.EOF else _decoded(self._decode, data)

    async def write(self, message: Any) -> None:
        data = self._encode(message)
        try:
            await self._call.write(data)
        except aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
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
