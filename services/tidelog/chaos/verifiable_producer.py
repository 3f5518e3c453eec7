"""A producer that says of every record when it was tried and what became of it, as Kafka's verifiable producer does."""

import asyncio
from functools import partial
from typing import Final, Protocol

from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import Ack, Producer, RecordMetadata
from tidelog.errors import TidelogError
from tidelog.ports.clock import Clock

TICK_S: Final = 0.01
BEHIND_MAX_S: Final = 0.5
"""What is later than that is left out: a load that was held up goes on at its rate, without a burst."""
PADDING: Final = b"."


class Tries(Protocol):
    """Whoever wants to know."""

    def tried(self, partition: int | None, key: str | None, value: str) -> int:
        """Just before the record is handed to the client; returns what to call it."""
        ...

    def ended(self, number: int, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """It is acknowledged, or has failed."""
        ...


class SendFailed(Exception):
    """The client takes nothing more; the record that it refused is told already."""


class VerifiableProducer:
    """Sends values `<prefix><n>` at a steady rate. With keys, each has its partition, and they take turns."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        clock: Clock,
        tries: Tries,
        *,
        per_s: float | None = None,
        prefix: str = "",
        keys: int | None = None,
        value_bytes: int = 0,
        create_time_ms: int | None = None,
    ) -> None:
        """`per_s` None: as fast as the client takes them. Values shorter than `value_bytes` are padded; see `value_of`.
        `create_time_ms`: what the clock said when `run` began, for whoever wants records of another time."""
        self._producer = producer
        self._topic = topic
        self._clock = clock
        self._tries = tries
        self._per_s = per_s
        self._prefix = prefix
        self._keys = keys
        self._value_bytes = value_bytes
        self._create_time_ms = create_time_ms
        self._began = 0.0
        self._stopped = False

    def stop(self) -> None:
        """`run` returns soon; what was tried is still on its way."""
        self._stopped = True

    async def run(self, first: int = 0, most: int | None = None) -> None:
        """Until `most` records were tried, or for ever. SendFailed when the client is of no use any more."""
        partitions = await self._producer.partitions_of(self._topic)
        self._began = self._clock.now()
        began, number, end = self._began, first, None if most is None else first + most
        while not self._stopped and (end is None or number < end):
            if self._per_s is None:
                due = number + 1
            else:
                due = first + 1 + int((self._clock.now() - began) * self._per_s)
                late_s = (due - number) / self._per_s - BEHIND_MAX_S
                if late_s > 0:
                    began += late_s
                    due -= int(late_s * self._per_s)
            for n in range(number, due if end is None else min(due, end)):
                await self._send(n, partitions)
            number = max(number, due)
            await self._clock.sleep(TICK_S if self._per_s is not None else 0)

    async def _send(self, n: int, partitions: int) -> None:
        value = f"{self._prefix}{n}"
        key = None if self._keys is None else str(n % self._keys)
        partition = None if key is None else partition_for_key(key.encode(), partitions)
        number = self._tries.tried(partition, key, value)
        since_ms = int((self._clock.now() - self._began) * 1000)
        try:
            ack = await self._producer.send(
                self._topic,
                value.encode().ljust(self._value_bytes, PADDING),
                None if key is None else key.encode(),
                partition=partition,
                timestamp_ms=None if self._create_time_ms is None else self._create_time_ms + since_ms,
            )
        except (TidelogError, RuntimeError) as error:
            self._tries.ended(number, None, error)
            raise SendFailed(str(error)) from error
        ack.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, ack: Ack) -> None:
        if ack.cancelled():
            self._tries.ended(number, None, asyncio.CancelledError())
        elif (error := ack.exception()) is not None:
            self._tries.ended(number, None, error)
        else:
            self._tries.ended(number, ack.result(), None)


def value_of(data: bytes | None) -> str:
    """What was sent, without its padding; whatever else is in the log comes out as something that nobody sent."""
    return (data or b"").rstrip(PADDING).decode("ascii", "backslashreplace")
