"""Handler `forward`: to another topic. Offsets are committed only after the copies are acknowledged by all of the ISR."""

import asyncio

from tidelog.agent.handler import Immediate, Records
from tidelog.client.producer import Producer


class ForwardHandler(Immediate):
    """Keeps key, value, headers and timestamp; the key chooses the partition.

    A record is there at least once: what was acknowledged and not committed when an agent died is copied again.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        """Starts and stops `producer`, which must ask for acks=all."""
        self._producer = producer
        self._topic = topic

    async def start(self) -> None:
        await self._producer.start()

    async def handle(self, records: Records) -> None:
        acks = [
            await self._producer.send(self._topic, r.value, r.key, r.headers, timestamp_ms=max(r.timestamp_ms, 0))
            for r in records
        ]
        for outcome in await asyncio.gather(*acks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        await self._producer.stop()
