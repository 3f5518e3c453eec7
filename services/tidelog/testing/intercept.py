"""Calls between processes, seen and changed at the Net port.

An `Interceptor` stands between a process and its `ports.net.Net`. It records every call and passes it through the faults that
a test has set: one may refuse the call, delay it, lose the request or the answer, send it twice, or change the answer. What
no fault takes goes to the server unchanged. The requests on a ProduceStream count as calls of the method Produce;
what crosses other streams is recorded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi, Channel, Net, Probe, Route, Server, Stream, Unary
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_PRODUCE_STREAM

Req = TypeVar("Req")
Res = TypeVar("Res")

PRODUCE = "Produce"


@dataclass(eq=False, slots=True)
class Call:
    """One call as a fault sees it."""

    address: Address
    method: str
    """Without its service."""
    request: Any
    serve: Callable[[], Awaitable[Any]]
    """Sends `request`, which a fault may have changed, and returns the answer; each call of it sends once more."""


Fault = Callable[[Call], Awaitable[Any]]
"""Returns the answer, raises a TransportError, or returns NotImplemented for a call that it leaves alone."""


class Interceptor:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        """Every call, in the order in which they were made."""
        self.faults: list[Fault] = []
        """A call goes to the first fault that takes it."""
        self.streams: list[RecordedStream] = []
        """Every stream but ProduceStreams, in the order in which they were opened."""

    def net(self, inner: Net) -> "InterceptedNet":
        """`inner` with this interceptor in front of it."""
        return InterceptedNet(self, inner)

    def of(self, method: str) -> list[Call]:
        """The calls of a method."""
        return [call for call in self.calls if call.method == method]

    def once(self, method: str, fault: Fault) -> None:
        """The next call of `method` goes to `fault`."""

        async def only(call: Call) -> Any:
            if call.method != method:
                return NotImplemented
            self.faults.remove(only)
            return await fault(call)

        self.faults.append(only)

    def lose_answer(self, method: str, times: int = 1) -> None:
        """The server acts on the next calls of `method`, and its answers never arrive."""

        async def lose(call: Call) -> Any:
            await call.serve()
            raise TransportError("UNAVAILABLE", "connection reset")

        for _ in range(times):
            self.once(method, lose)

    async def passed(self, call: Call) -> Any:
        """Records the call and returns its answer."""
        self.calls.append(call)
        for fault in list(self.faults):
            answer = await fault(call)
            if answer is not NotImplemented:
                return answer
        return await call.serve()


class InterceptedNet:
    """`ports.net.Net`. It serves without interception."""

    def __init__(self, interceptor: Interceptor, inner: Net) -> None:
        self._interceptor = interceptor
        self._inner = inner

    async def serve(self, listen: Address, routes: Sequence[Route], advertised: Address | None = None) -> Server:
        return await self._inner.serve(listen, routes, advertised)

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> Channel:
        inner = self._inner.channel(address, purpose=purpose, to_anyone=to_anyone)
        return InterceptedChannel(self._interceptor, address, inner)

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        return await self._inner.probe(address, timeout_s)


class InterceptedChannel:
    """`ports.net.Channel`."""

    def __init__(self, interceptor: Interceptor, address: Address, inner: Channel) -> None:
        self._interceptor = interceptor
        self._address = address
        self._inner = inner

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        async def serve() -> Res:
            return await self._inner.call(method, call.request, timeout_s)

        call = Call(self._address, method.path.rpartition("/")[2], request, serve)
        try:
            async with asyncio.timeout(timeout_s):
                answer: Res = await self._interceptor.passed(call)
        except TimeoutError:
            raise TransportError("DEADLINE_EXCEEDED", f"no answer within {timeout_s} s") from None
        return answer

    def open(self, method: Bidi[Req, Res]) -> Stream[Res, Req]:
        inner: Any = self._inner.open(method)
        found: Any
        if method is REPLICA_SERVICE_PRODUCE_STREAM:
            found = InterceptedProduceStream(self._interceptor, self._address, inner)
        else:
            found = RecordedStream(self._address, method.path.rpartition("/")[2], inner)
            self._interceptor.streams.append(found)
        stream: Stream[Res, Req] = found
        return stream

    async def close(self) -> None:
        await self._inner.close()


class RecordedStream:
    """A stream, and the messages that have crossed it."""

    def __init__(self, address: Address, method: str, inner: Stream[Any, Any]) -> None:
        self.address = address
        self.method = method
        self.sent: list[Any] = []
        self.received: list[Any] = []
        self._inner = inner

    async def write(self, message: Any) -> None:
        self.sent.append(message)
        await self._inner.write(message)

    async def read(self) -> Any:
        message = await self._inner.read()
        if message is not None:
            self.received.append(message)
        return message

    def cancel(self) -> None:
        self._inner.cancel()


class InterceptedProduceStream:
    """A ProduceStream whose requests are calls. One that ends with a TransportError breaks the stream, as a connection does."""

    def __init__(
        self, interceptor: Interceptor, address: Address, inner: Stream[m.ProduceAnswers, m.ProduceRequest]
    ) -> None:
        self._interceptor = interceptor
        self._address = address
        self._inner = inner
        self._requests = 0
        """Requests that the producer has written."""
        self._sent: list[asyncio.Future[m.ProduceResponse]] = []
        """The broker's answer to each request that it was sent, in order."""
        self._answers: asyncio.Queue[m.ProduceAnswer | TransportError] = asyncio.Queue()
        self._broken: TransportError | None = None
        self._tasks = Supervisor("intercepted produce requests")
        self._started: list[asyncio.Task[None]] = [self._tasks.start("answers", self._receive())]

    async def write(self, request: m.ProduceRequest) -> None:
        if self._broken is not None:
            raise self._broken
        self._requests += 1
        call = Call(self._address, PRODUCE, request, lambda: self._serve(request))
        self._started.append(self._tasks.start(PRODUCE, self._answer(self._requests, call)))
        await asyncio.sleep(0)  # without a fault it is sent before the next one is written: a stream keeps its order

    async def read(self) -> m.ProduceAnswers:
        if self._broken is None:
            found = await self._answers.get()
            if not isinstance(found, TransportError):
                return m.ProduceAnswers(answers=(found,))
            self._broken = found
        raise self._broken

    def cancel(self) -> None:
        for task in self._started:
            task.cancel()
        self._inner.cancel()

    async def _answer(self, number: int, call: Call) -> None:
        try:
            response = await self._interceptor.passed(call)
        except TransportError as error:
            self._answers.put_nowait(error)
        else:
            self._answers.put_nowait(m.ProduceAnswer(number=number, response=response))

    async def _serve(self, request: m.ProduceRequest) -> m.ProduceResponse:
        answer: asyncio.Future[m.ProduceResponse] = asyncio.get_running_loop().create_future()
        self._sent.append(answer)
        await self._inner.write(request)
        return await answer

    async def _receive(self) -> None:
        try:
            while (answers := await self._inner.read()) is not None:
                for each in answers.answers:
                    if not (answer := self._sent[each.number - 1]).done():
                        answer.set_result(each.response)
        except TransportError as error:
            self._answers.put_nowait(error)
        else:
            self._answers.put_nowait(TransportError("UNAVAILABLE", "the broker ended the produce stream"))
