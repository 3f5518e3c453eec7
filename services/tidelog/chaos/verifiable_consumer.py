"""A consumer that says of everything it reads, is given, gives back and commits, as Kafka's verifiable consumer does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tidelog.client.consumer import Consumer
from tidelog.client.groups import GroupMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock

POLL_RECORDS: Final = 500
POLL_S: Final = 0.25
COMMIT_S: Final = 60.0
"""Over any failover: nothing more is read before the commit is known, so that POLL_RECORDS are the most in hand (X5)."""

Offsets = Mapping[TopicPartition, int]


class Reading(Protocol):
    """Whoever wants to know."""

    def polled(self, began: float, records: Sequence[ConsumerRecord]) -> None:
        """`began`: on the clock, when the poll was."""
        ...

    def processed(self, records: Sequence[ConsumerRecord]) -> None:
        """Of a member of a group: these are done, and may be committed."""
        ...

    def committed(self, offsets: Offsets, sent_in: GroupMetadata, error: BaseException | None) -> None:
        """`sent_in`: what the member was when it asked; a rebalance may have come before the answer."""
        ...


class VerifiableConsumer:
    """Polls, and as a member of a group commits after each poll what it has got."""

    def __init__(self, consumer: Consumer, clock: Clock, reading: Reading, *, commits: bool) -> None:
        self._consumer = consumer
        self._clock = clock
        self._reading = reading
        self._commits = commits
        self._uncommitted: dict[TopicPartition, int] = {}
        """Behind what was processed, where that is not known to be committed."""
        self._stopped = False

    def stop(self) -> None:
        """`run` returns after its next poll."""
        self._stopped = True

    async def run(self, most: int | None = None) -> None:
        """Until `most` records came, or for ever. Raises what `poll` raises: then this consumer has come to its end."""
        left = most
        while not self._stopped and (left is None or left > 0):
            began = self._clock.now()
            records = await self._consumer.poll(POLL_RECORDS if left is None else min(left, POLL_RECORDS), POLL_S)
            if records:
                self._reading.polled(began, records)
                if left is not None:
                    left -= len(records)
            if self._commits:
                await self._process(records)

    async def _process(self, records: Sequence[ConsumerRecord]) -> None:
        """A commit that was refused is tried again, though nothing more may come."""
        ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        if records:
            self._reading.processed(records)
        for tp, end in list(self._uncommitted.items()):
            # Where it is elsewhere now, another member has had the partition.
            if tp not in ends and (not self._consumer.owns(tp) or await self._consumer.position(tp) != end):
                del self._uncommitted[tp]
        self._uncommitted.update(ends)
        if self._uncommitted:
            await self._commit(dict(self._uncommitted))

    async def _commit(self, offsets: Offsets) -> None:
        sent_in = self._consumer.group_metadata
        error: BaseException | None = asyncio.CancelledError()  # what ends this member leaves the commit in doubt
        try:
            await self._consumer.commit(offsets, COMMIT_S)
            error = None
            self._uncommitted.clear()
        except (TidelogError, TransportError) as refused:
            error = refused  # somebody else has what it was; what is read next says who
        finally:
            self._reading.committed(offsets, sent_in, error)
