"""Loads against real clusters whose every record is accounted for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.chaos.ledger import Findings, Ledger
from tidelog.chaos.load import VerifiedSender
from tidelog.chaos.readback import read_back
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.runtime.clock import SystemClock

HEADER = "seq"
TICK_S = 0.01
VALUE = b"v" * 100


class Load:
    """`records_per_s` over all partitions of one topic, until the context ends; then what became of them is known."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        acks: str,
        directory: Path,
        records_per_s: int = 300,
        request_timeout_ms: int = 15_000,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acks = acks
        self.records_per_s = records_per_s
        self.request_timeout_ms = request_timeout_ms
        self.ledger = Ledger(directory / f"ledger-{topic}", writable=True)
        self.sender: VerifiedSender | None = None

    @asynccontextmanager
    async def running(self, servers: str) -> AsyncIterator[None]:
        clock = SystemClock()
        try:
            async with Producer(servers, acks=self.acks, request_timeout_ms=self.request_timeout_ms) as producer:
                sender = self.sender = VerifiedSender(producer, self.topic, self.ledger, clock, HEADER)
                stop = asyncio.Event()
                task = asyncio.create_task(self._send(sender, clock, stop))
                try:
                    yield
                finally:
                    stop.set()
                    await task
        finally:
            self.ledger.close()

    async def _send(self, sender: VerifiedSender, clock: SystemClock, stop: asyncio.Event) -> None:
        began_at, sent = clock.now(), 0
        while not stop.is_set():
            due = int((clock.now() - began_at) * self.records_per_s)
            for number in range(sent, due):
                await sender.send(None, VALUE, number % self.partitions)
            sent = max(sent, due)
            await clock.sleep(TICK_S)

    async def read_back(self, servers: str) -> Findings:
        starts = {TopicPartition(self.topic, p): 0 for p in range(self.partitions)}
        async with Consumer(servers) as consumer:
            return await read_back(consumer, self.ledger, starts, HEADER)

    @property
    def longest_stall_s(self) -> float:
        assert self.sender is not None
        return self.sender.stalls.worst_s()
