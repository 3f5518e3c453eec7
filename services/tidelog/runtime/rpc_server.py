"""A grpc.aio server whose handlers speak messages: generic handlers, no generated service classes.

A handler's TidelogError becomes a gRPC status (`rpc_options.status_of`), a bug INTERNAL, an undecodable request
INVALID_ARGUMENT, an answer that is too large RESOURCE_EXHAUSTED; none of them ends the process or the connection. A handler
is cancelled when its caller is gone.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi, Route
from tidelog.ports.recorder import CAUSE, carries_cause, cause_text, take_cause
from tidelog.runtime.responses import CALL_BYTES, ResponseBudget
from tidelog.runtime.rpc_cause import CAUSED_BY, cause_in, stream_decoder, stream_encoder
from tidelog.runtime.rpc_options import (
    MEANT_FOR,
    MISROUTED,
    Limits,
    as_transport_error,
    broken,
    server_options,
    target,
)
from tidelog.runtime.tasks import HandlerBug, Supervisor, contained
from tidelog.wire.codec import STEP_ITEMS, encoder, step_decoder

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_NAMED_MAX: Final = 300
"""Characters; a host name has 253."""

OnBug = Callable[[str], None]


class GrpcServer:
    """`ports.net.Server`. Answers health checks with NOT_SERVING until told otherwise."""

    def __init__(self, server: Any, address: Address, services: Sequence[str], health_servicer: Any) -> None:
        self._server = server
        self._address = address
        self._services = services
        self._health = health_servicer
        self._tasks = Supervisor("rpc server")

    @property
    def address(self) -> Address:
        return self._address

    def set_serving(self, serving: bool) -> None:
        self._tasks.start("health", self._set_serving(serving))

    async def stop(self, grace_s: float) -> None:
        """Accepts nothing new, lets calls in progress end for `grace_s`, then cancels their handlers."""
        await self._tasks.stop()
        await self._server.stop(grace_s)

    async def _set_serving(self, serving: bool) -> None:
        for service in ("", *self._services):
            await self._health.set(service, _SERVING if serving else _NOT_SERVING)


async def serve(
    listen: Address,
    routes: Sequence[Route],
    limits: Limits,
    on_bug: OnBug,
    budget: ResponseBudget,
    advertised: Address | None = None,
) -> GrpcServer:
    """OSError if nothing can listen at `listen`; it names the address. Port 0 of `advertised` is the one it listens at."""
    server = aio.server(options=server_options(limits))
    by_service: dict[str, dict[str, Any]] = {}
    for route in routes:
        _, service, method = route.method.path.split("/")
        by_service.setdefault(service, {})[method] = _method_handler(route, limits.sent_bytes, on_bug, budget)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    services = sorted(by_service)
    reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        port = _bind(server, listen)
    except OSError:
        await server.stop(None)  # its finalizer would do so later, on a loop that may be closed
        raise
    handlers = [grpc.method_handlers_generic_handler(service, methods) for service, methods in by_service.items()]
    if advertised is not None:
        handlers.insert(0, _Misrouted(Address(advertised.host, advertised.port or port)))
    server.add_generic_rpc_handlers(tuple(handlers))
    found = GrpcServer(server, Address(listen.host, port), services, health_servicer)
    found.set_serving(False)
    await server.start()
    return found


def _bind(server: Any, listen: Address) -> int:
    # A socket is asked first: grpc does not say why it could not bind, and prints about it where one line is to stand.
    if (refused := _bind_error(listen)) is not None:
        raise refused
    try:
        return int(server.add_insecure_port(target(listen)))
    except RuntimeError as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen at {listen}") from error


def _bind_error(listen: Address) -> OSError | None:
    """Why nothing can listen at any of the addresses of the name; None if something can."""
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return _cannot_listen(listen, error)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen()
        except OSError as error:
            failure = failure or _cannot_listen(listen, error)
        else:
            return None
    return failure


def _cannot_listen(listen: Address, error: OSError) -> OSError:
    return OSError(error.errno, f"cannot listen at {listen}: {error.strerror}")


class _Misrouted:
    """A generic handler of gRPC: it answers what is meant for another address than `advertised`, and nothing else."""

    def __init__(self, advertised: Address) -> None:
        self._advertised = str(advertised)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        for key, value in handler_call_details.invocation_metadata:
            if key == MEANT_FOR and value != self._advertised:
                return grpc.stream_stream_rpc_method_handler(self._refusal(value))
        return None

    def _refusal(self, meant_for: str) -> Any:
        async def refuse(_requests: Any, context: Any) -> None:
            text = f"{MISROUTED}: this is {self._advertised}, and the call is meant for {meant_for[:_NAMED_MAX]}"
            await _abort(context, TransportError("UNAVAILABLE", text))

        return refuse


def _method_handler(route: Route, sent_bytes: int, on_bug: OnBug, budget: ResponseBudget) -> Any:
    """No serializers are given to grpc: an undecodable request would be a traceback in the log instead of an answer."""
    if isinstance(route.method, Bidi):
        return grpc.stream_stream_rpc_method_handler(_bidi_handler(route, on_bug, budget))
    return grpc.unary_unary_rpc_method_handler(_unary_handler(route, sent_bytes, on_bug, budget))


def _unary_handler(
    route: Route, sent_bytes: int, on_bug: OnBug, budget: ResponseBudget
) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """gRPC would log the trace of an answer that is too large, and tell the caller nothing of the cause."""
    path, handler = route.method.path, route.handler
    decode, encode = _decoder(route.method.request), encoder(route.method.response)

    async def answer(data: bytes, context: Any) -> bytes:
        cause = cause_in(context.invocation_metadata())
        CAUSE.set(cause)
        call: Any = handler(await decode(data), _GrpcCaller(context, budget))
        message = encode(await call)
        if CAUSE.get() != cause and (led := cause_text()) is not None:
            context.set_trailing_metadata(((CAUSED_BY, led),))
        if len(message) > sent_bytes:
            text = (
                f"the answer of {path} has {len(message)} bytes, at most {sent_bytes} are sent: ask for less at a time"
            )
            raise TidelogError(text, ErrorCode.MESSAGE_TOO_LARGE)
        release = budget.hold(context.peer(), len(message))
        # The call ends with this task. gRPC puts a callback of the context into a cycle with it, which keeps the call, and
        # with it a response that was not read, until the collector comes.
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: release())
        return message

    async def run(data: bytes, context: Any) -> bytes:
        try:
            return await contained(path, answer(data, context), on_bug)
        except (TidelogError, TransportError, HandlerBug) as error:
            refusal = _refusal(error)
        await _abort(context, refusal)
        return b""

    return run


def _bidi_handler(route: Route, on_bug: OnBug, budget: ResponseBudget) -> Callable[[Any, Any], Awaitable[None]]:
    path, handler = route.method.path, route.handler
    decode, encode = _decoder(route.method.request), stream_encoder(route.method.response)

    async def run(_requests: Any, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        stream = _ServerStream(context, decode, encode, task, budget)
        call: Any = handler(stream, _GrpcCaller(context, budget))
        try:
            await contained(path, call, on_bug)
            return
        except asyncio.CancelledError:
            if not stream.cancelled:
                raise
            task.uncancel()
            refusal = TransportError("CANCELLED", "the server broke the stream")
        except (TidelogError, TransportError, HandlerBug) as error:
            refusal = _refusal(error)
        await _abort(context, refusal)

    return run


def _decoder(kind: type[Any]) -> Callable[[bytes], Awaitable[Any]]:
    """Decodes a request while others run, if it is large. What led to a message of a stream becomes the present cause."""
    at_once, steps = stream_decoder(kind), step_decoder(kind)

    async def decode(data: bytes) -> Any:
        if steps is None or len(data) < STEP_ITEMS:
            return at_once(data)
        made = steps(data)
        while True:
            try:
                next(made)
            except StopIteration as end:
                message = end.value
                break
            await asyncio.sleep(0)
        if carries_cause(kind):
            take_cause(message)
        return message

    return decode


def _refusal(error: TidelogError | TransportError | HandlerBug) -> TransportError:
    """A traceback has the frame that holds the error, and that of each caller, with the request in it."""
    return as_transport_error(error).with_traceback(None)


async def _abort(context: Any, answer: TransportError) -> None:
    """Ends the call with a status. To be called when the exception that led to it is gone, whose frames hold the request.

    gRPC keeps the exception of `abort` in the call, and raises it when the handler has returned. If it kept its traceback too,
    each call that is refused would be in a cycle, and its request in memory until the collector comes.
    """
    try:
        await context.abort(grpc.StatusCode[answer.status], answer.detail)
    except aio.AbortError as error:
        error.__traceback__ = None


class _GrpcCaller:
    """`ports.net.CallContext`; each question is a call into gRPC, so it is asked only by handlers that want to know."""

    __slots__ = ("_budget", "_context")

    def __init__(self, context: Any, budget: ResponseBudget) -> None:
        self._context = context
        self._budget = budget

    @property
    def peer(self) -> str:
        return str(self._context.peer())

    @property
    def remaining_s(self) -> float | None:
        left: float | None = self._context.time_remaining()
        return left

    def room(self, most: int) -> int:
        return self._budget.room(self.peer, most)

    async def more_room(self) -> None:
        await self._budget.wait(self.peer)


class _ServerStream:
    """`ports.net.Stream`, the end of the side that serves."""

    __slots__ = ("_budget", "_context", "_decode", "_encode", "_task", "cancelled")

    def __init__(
        self,
        context: Any,
        decode: Callable[[bytes], Awaitable[Any]],
        encode: Callable[[Any], bytes],
        task: "asyncio.Task[Any]",
        budget: ResponseBudget,
    ) -> None:
        self._budget = budget
        self._context = context
        self._decode = decode
        self._encode = encode
        self._task = task
        self.cancelled = False

    async def read(self) -> Any:
        try:
            data = await self._context.read()
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        return None if data is aio.EOF else await self._decode(data)

    async def write(self, message: Any) -> None:
        data = self._encode(message)
        release = self._budget.hold(self._context.peer(), len(data), part=True) if len(data) > CALL_BYTES else None
        try:
            await self._context.write(data)
        except (asyncio.CancelledError, aio.BaseError) as error:
            raise broken(error) from None
        finally:
            if release is not None:
                release()

    def cancel(self) -> None:
        if not self._task.done():
            self.cancelled = True
            self._task.cancel()
