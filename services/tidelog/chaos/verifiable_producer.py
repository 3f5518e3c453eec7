"""A producer that says of every record when it was tried and what became of it, as Kafka's verifiable producer does."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from tidelog.chaos.sources import Outgoing
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import Ack, Producer, RecordMetadata
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.clock import Clock

TICK_S: Final = 0.01
BEHIND_MAX_S: Final = 0.5
"""What is later than that is left out: a load that was held up goes on at its rate, without a burst."""
UNPACED: Final = 100
"""Records between two turns of the event loop, without a rate."""


class Tries(Protocol):
    """Whoever wants to know."""

    def tried(self, partition: int | None, key: bytes | None, value: str) -> int:
        """Just before the record is handed to the client; returns what to call it."""
        ...

    def ended(self, number: int, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """It is acknowledged, or has failed."""
        ...


class SendFailed(Exception):
    """The client takes nothing more; the record that it refused is told already."""


class VerifiableProducer:
    """Sends what a source gives, at a steady rate. Records with the same key go to the same partition."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        clock: Clock,
        tries: Tries,
        source: Iterator[Outgoing],
        *,
        per_s: float | None = None,
        create_time_ms: int | None = None,
    ) -> None:
        """`per_s` None: as fast as the client takes them. `create_time_ms`: what the clock said when `run` began, for
        records of another time."""
        self._producer = producer
        self._topic = topic
        self._clock = clock
        self._tries = tries
        self._source = source
        self._per_s = per_s
        self._create_time_ms = create_time_ms
        self._began = 0.0
        self._pace_began = 0.0
        self._due = 1
        """Records that may have been sent by now."""
        self._stopped = False

    def stop(self) -> None:
        """`run` returns soon; what was tried is still on its way."""
        self._stopped = True

    async def run(self) -> None:
        """Until the source has no more. SendFailed when the client is of no use any more."""
        partitions = await self._producer.partitions_of(self._topic)
        self._began = self._pace_began = self._clock.now()
        for sent, outgoing in enumerate(self._source, 1):
            await self._send(outgoing, partitions)
            await self._until_next_is_due(sent)
            if self._stopped:
                return

    async def _until_next_is_due(self, sent: int) -> None:
        if self._per_s is None:
            if sent % UNPACED == 0:
                await self._clock.sleep(0)
            return
        while sent >= self._due and not self._stopped:
            await self._clock.sleep(TICK_S)
            self._due = 1 + int((self._clock.now() - self._pace_began) * self._per_s)
            late_s = (self._due - sent) / self._per_s - BEHIND_MAX_S
            if late_s > 0:
                self._pace_began += late_s
                self._due -= int(late_s * self._per_s)

    async def _send(self, outgoing: Outgoing, partitions: int) -> None:
        key = outgoing.key
        partition = partition_for_key(key, partitions) if key is not None else None
        if outgoing.turn is not None:
            partition = outgoing.turn % partitions
        number = self._tries.tried(partition, key, outgoing.name)
        if outgoing.refused:
            self._tries.ended(number, None, TidelogError("too large", ErrorCode.MESSAGE_TOO_LARGE))
            return
        timestamp_ms = outgoing.timestamp_ms
        if self._create_time_ms is not None:
            timestamp_ms = self._create_time_ms + int((self._clock.now() - self._began) * 1000)
        try:
            ack = await self._producer.send(
                self._topic,
                outgoing.value,
                key,
                outgoing.headers,
                partition,
                timestamp_ms=timestamp_ms,
            )
        except (TidelogError, RuntimeError) as error:
            self._tries.ended(number, None, error)
            if isinstance(error, TidelogError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return  # the client is well; the next record may be smaller
            raise SendFailed(str(error)) from error
        ack.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, ack: Ack) -> None:
        if ack.cancelled():
            self._tries.ended(number, None, asyncio.CancelledError())
        elif (error := ack.exception()) is not None:
            self._tries.ended(number, None, error)
        else:
            self._tries.ended(number, ack.result(), None)
