"""ProduceStream: one producer's requests in the order in which it wrote them, answered as they are done.

A unary call costs a broker three times what a message on an open stream does, and several answers fit into one message
(performance 3 and 4.3).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from tidelog.broker.produce import API, Answer, Examined
from tidelog.errors import TransportError
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext, Stream
from tidelog.runtime.bell import Bell, give_way
from tidelog.wire import messages as m

UNANSWERED_MAX: Final = 1000
"""Of one stream: with so many requests parked, the next one stays in the transport's window."""

ProduceStream = Stream[m.ProduceRequest, m.ProduceAnswers]
Count = Callable[[str, m.ProduceResponse, float], None]


class Parked(Protocol):
    def give_up(self) -> None: ...


Submit = Callable[[m.ProduceRequest, Answer, Examined | None], Parked | None]
Examine = Callable[[m.ProduceRequest, str], Awaitable[Examined] | None]
"""Takes a request and the connection that it came by."""


class ProduceSession:
    """One stream: appends what it reads, writes what has been decided."""

    def __init__(
        self, stream: ProduceStream, peer: str, examine: Examine, submit: Submit, clock: Clock, count: Count
    ) -> None:
        self._stream = stream
        self._peer = peer
        self._examine = examine
        self._submit = submit
        self._clock = clock
        self._count = count
        self._number = 0
        self._parked: dict[int, Parked] = {}
        self._answers: list[m.ProduceAnswer] = []
        self._took: list[float] = []
        """Seconds of each of them."""
        self._unwritten = 0
        """Answers that the transport has not taken yet: those above, and those of a write in progress."""
        self._news = Bell()
        self._written = Bell()

    async def read(self) -> None:
        """Until the producer has ended the stream and has every answer; TransportError when it broke."""
        try:
            while (request := await self._stream.read()) is not None:
                examination = self._examine(request, self._peer)
                self._begin(request, None if examination is None else await examination)
                await give_way()
                if len(self._parked) >= UNANSWERED_MAX:
                    await self._until_answered(UNANSWERED_MAX // 2)
            await self._until_answered(0)
        finally:
            for parked in self._parked.values():
                parked.give_up()

    async def write(self) -> None:
        """Until cancelled, or until the stream breaks, which `read` reports."""
        try:
            while True:
                await self._news.wait()
                answers, self._answers = self._answers, []
                took, self._took = self._took, []
                await self._stream.write(m.ProduceAnswers(answers=tuple(answers)))
                for answer, took_s in zip(answers, took, strict=True):  # not before: a producer waits for what is above
                    self._count(API, answer.response, took_s)
                self._unwritten -= len(answers)
                self._written.ring()
        except TransportError:
            pass

    def _begin(self, request: m.ProduceRequest, examined: Examined | None) -> None:
        self._number = number = self._number + 1
        began_at = self._clock.now()
        done = False

        def answer(response: m.ProduceResponse) -> None:
            nonlocal done
            done = True
            self._parked.pop(number, None)
            self._answers.append(m.ProduceAnswer(number=number, response=response))
            self._unwritten += 1
            self._news.ring()
            self._took.append(self._clock.now() - began_at)

        parked = self._submit(request, answer, examined)
        if parked is not None and not done:
            self._parked[number] = parked

    async def _until_answered(self, left: int) -> None:
        while len(self._parked) > left or self._unwritten:
            await self._written.wait()


class ProduceStreams:
    """Serves ProduceStream; knows no more of gRPC than the handler does."""

    def __init__(self, examine: Examine, submit: Submit, clock: Clock, count: Count) -> None:
        self._examine = examine
        self._submit = submit
        self._clock = clock
        self._count = count

    async def serve(self, stream: ProduceStream, caller: CallContext) -> None:
        session = ProduceSession(stream, caller.peer, self._examine, self._submit, self._clock, self._count)
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(session.write())
            try:
                await session.read()
            except TransportError:
                pass  # the producer is gone; it opens another stream when it can
            finally:
                writer.cancel()
