"""ProduceStream of the brokers in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.errors import TransportError
from tidelog.wire import messages as m
from tidelog.wire import services as s


class FakeProduceStream:
    """ProduceStream over the scripted Produce; a request that gets no answer breaks it for all that wait."""

    def __init__(self, call: Callable[[Any, m.ProduceRequest, float], Awaitable[m.ProduceResponse]]) -> None:
        """`call` is how the channel calls Produce."""
        self._call = call
        self._served: list[asyncio.Task[None]] = []
        self._answers: asyncio.Queue[m.ProduceAnswers | TransportError] = asyncio.Queue()
        self._broken: TransportError | None = None

    async def write(self, request: m.ProduceRequest) -> None:
        if self._broken is not None:
            raise self._broken
        self._served.append(asyncio.create_task(self._serve(len(self._served) + 1, request)))

    async def _serve(self, number: int, request: m.ProduceRequest) -> None:
        try:
            response = await self._call(s.REPLICA_SERVICE_PRODUCE, request, 3600.0)
        except TransportError as error:
            self._answers.put_nowait(error)
        else:
            answer = m.ProduceAnswer(number=number, response=response)
            self._answers.put_nowait(m.ProduceAnswers(answers=(answer,)))

    async def read(self) -> m.ProduceAnswers:
        if self._broken is None:
            found = await self._answers.get()
            if not isinstance(found, TransportError):
                return found
            self._broken = found
        raise self._broken

    def cancel(self) -> None:
        for task in self._served:
            task.cancel()
