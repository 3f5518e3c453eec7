"""A member of a group that is nothing but its stream: it answers what it is told to answer, and hears everything."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from helpers.wire import TIMEOUT_S
from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

PING: Final = "ping"
STOP: Final = "stop"
START: Final = "start"
ALL: Final = frozenset({PING, STOP, START})


class RawMember:
    """Every message that arrives is in `heard`, with its time; `ended_at` is when the coordinator ended the stream."""

    def __init__(
        self, group_id: str, topic: str, consumer_id: str, *, session_ms: int, answers: Collection[str]
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.consumer_id = consumer_id
        self.session_ms = session_ms
        self.answers = frozenset(answers)
        self.heard: list[tuple[float, m.CoordinatorMessage]] = []
        self.ended_at: float | None = None
        self._number = 0
        self._channel: Any = None
        self._stream: Any = None
        self._reader: asyncio.Task[None] | None = None

    async def connect(self, address: Address, *, rejoin: bool = False) -> None:
        self._channel = GrpcNet().channel(address, purpose="test")
        self._stream = self._channel.open(s.COORDINATOR_SERVICE_SESSION)
        self._reader = asyncio.create_task(self._read())
        request = m.RegisterConsumerRequest(
            group_id=self.group_id,
            consumer_id=self.consumer_id,
            topic_count=f'{{"pattern": "static", "subscription": {{"{self.topic}": 1}}}}',
            auto_commit=True,
            auto_offset_reset="smallest",
            session_timeout_ms=self.session_ms,
            incarnation=7,
            static_member=False,
            max_processing_ms=60_000,
            rejoin=rejoin,
            client_id=self.consumer_id,
            admission=0,
            watch_port=0,
        )
        await self.say(register=request)

    async def close(self) -> None:
        """As a process that dies does."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            await self._channel.close()
            self._reader = None

    async def say(self, **body: Any) -> None:
        self._number += 1
        await self._stream.write(m.ConsumerMessage(number=self._number, **body))

    async def commit(self, partition: int, offset: int) -> m.CommitOffsetsResponse:
        """In the name of the last Start, over the stream's own connection."""
        start = self.starts[-1]
        self._number += 1
        request = m.CommitOffsetsRequest(
            group_id=self.group_id,
            consumer_id=self.consumer_id,
            incarnation=7,
            coordinator_epoch=start.coordinator_epoch,
            generation=start.generation,
            number=self._number,
            offsets=(m.OffsetInfo(topic=self.topic, partition=partition, offset=offset, leader_epoch=-1),),
        )
        answer: m.CommitOffsetsResponse = await self._channel.call(
            s.COORDINATOR_SERVICE_COMMIT_OFFSETS, request, TIMEOUT_S
        )
        return answer

    @property
    def registered(self) -> list[m.RegisterConsumerResponse]:
        return [message.registered for _, message in self.heard if message.registered is not None]

    @property
    def starts(self) -> list[m.StartFetcherRequest]:
        return [message.start for _, message in self.heard if message.start is not None]

    @property
    def stops(self) -> list[tuple[float, m.StopFetcherRequest]]:
        return [(at, message.stop) for at, message in self.heard if message.stop is not None]

    @property
    def owned(self) -> set[int]:
        """By the last Start."""
        return {part.partition for each in self.starts[-1].ownership_info for part in each.assigned_parts}

    async def until(self, what: str, holds: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, f"{timeout_s:g} s without: {what}; heard: {self.heard[-5:]}"
            await asyncio.sleep(0.01)

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read()) is not None:
                self.heard.append((time.monotonic(), message))
                await self._answer(message)
        except TransportError:
            pass
        self.ended_at = time.monotonic()

    async def _answer(self, message: m.CoordinatorMessage) -> None:
        asked = message.ping or message.stop or message.start
        if asked is None:
            return
        about: dict[str, Any] = {
            "consumer_id": self.consumer_id,
            "coordinator_epoch": asked.coordinator_epoch,
            "generation": asked.generation,
        }
        if message.ping is not None and PING in self.answers:
            await self.say(ping=m.PingResponse(**about))
        elif message.start is not None and START in self.answers:
            await self.say(started=m.StartFetcherResponse(**about))
        elif message.stop is not None and STOP in self.answers:
            before = max((each.generation for each in self.starts), default=0)
            await self.say(stopped=m.StopFetcherResponse(**about, started_generation=before))
