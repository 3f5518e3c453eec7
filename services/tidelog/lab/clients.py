"""The clients of a lab: producers and readers of the real code. Each operation goes into a history, which a checker judges."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from typing import Final

from tidelog.chaos.history import ASSIGNED, OK, Ownership, Polled, Read, Record, Send, Sent
from tidelog.chaos.outcomes import error_name, outcome
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.producer import Ack, Producer
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.lab.contents import Contents
from tidelog.lab.tally import Tally
from tidelog.testing.sim_cluster import SimCluster

DELIVERY_MS: Final = 8_000
"""For how long a producer tries to deliver a record."""
POLL_RECORDS: Final = 5_000
POLL_S: Final = 0.2
STUCK_S: Final = 8.0
"""A reader that gets nothing for so long gives up."""
FAILURES: Final = (TidelogError, TransportError, ClusterUnreachable, TimeoutError)

ACKS: Final = ("all", "1", "0")


@dataclass(slots=True)
class Sends:
    """Outcomes of the records of one call of `produce`. They change while the cluster runs."""

    topic: str
    acks: str
    count: int = 0
    acked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Records that were not acknowledged, by the name of the error."""
    offsets: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of acknowledged records by partition, in the order of the acknowledgements."""
    on_end: Callable[[], None] = lambda: None
    """Called when no record waits."""

    @property
    def waiting(self) -> int:
        """Records without an answer so far."""
        return self.count - self.acked - self.failed.total()

    def outcome(self) -> str:
        """Returns what became of the records, with the offsets of those that were acknowledged."""
        where = [f"{self.topic}-{number} at {_span(offsets)}" for number, offsets in sorted(self.offsets.items())]
        return ": ".join([str(self), *([", ".join(where)] if where else [])])

    def expect(self, places: Sequence[int]) -> Sequence[int]:
        """Counts records that are about to be sent."""
        self.count += len(places)
        return places

    def __str__(self) -> str:
        parts = [
            f"{self.acked} of {self.count} acknowledged",
            *(f"{n} failed: {code}" for code, n in self.failed.items()),
        ]
        return ", ".join([*parts, *([f"{self.waiting} waiting"] if self.waiting else [])])


class Clients:
    def __init__(self, sim: SimCluster, now: Callable[[], float]) -> None:
        self.history: list[Record] = []
        self.tally = Tally()
        self.contents = Contents(sim.world)
        self._sim = sim
        self._now = now
        self._ids = count(1)
        self._polls = count(1)
        self._readers = count(1)
        self._producers: dict[str, Producer] = {}

    # -- producers ---------------------------------------------------------------------------------------------------

    @staticmethod
    def name_of(acks: str) -> str:
        """Returns the name of the producer with these acks, by which links to it are cut."""
        return "producer" if acks == "all" else f"producer-acks-{acks}"

    async def _producer(self, acks: str) -> Producer:
        known = self._producers.get(acks)
        if known is None:
            name = self.name_of(acks)
            known = Producer(
                self._sim.bootstrap,
                ports=self._sim.client_ports(name),
                acks=acks,
                request_timeout_ms=self._sim.timing.request_ms,
                delivery_timeout_ms=DELIVERY_MS,
                client_id=name,
            )
            await known.start()
            self._producers[acks] = known
        return known

    async def send(self, sends: Sends, places: Sequence[int]) -> None:
        """Hands a record for each partition of `places` to the producer. It waits for no acknowledgement."""
        name = self.name_of(sends.acks)
        for partition in places:
            id_ = next(self._ids)
            value = f"{name}-{id_}"
            self.history.append(Send(self._now(), id_, name, sends.topic, partition, value, sends.acks))
            self.tally.sent(id_, sends.acks, self._now())
            try:
                producer = await self._producer(sends.acks)
                ack = await producer.send(sends.topic, value.encode(), partition=partition)
            except FAILURES as error:
                self._failed(sends, id_, error)
            else:
                ack.add_done_callback(partial(self._answered, sends, id_, partition))

    def _answered(self, sends: Sends, id_: int, partition: int, ack: Ack) -> None:
        error = ack.exception()
        if error is not None:
            self._failed(sends, id_, error)
            return
        found = ack.result()
        sends.acked += 1
        self.tally.answered(id_, sends.acks, self._now(), acked=True)
        if found.offset != NO_OFFSET:
            sends.offsets.setdefault(partition, []).append(found.offset)
            self.contents.acked(TopicPartition(sends.topic, partition), id_, found.offset)
        offset = None if found.offset == NO_OFFSET else found.offset
        self.history.append(Sent(self._now(), id_, OK, offset, found.leader_epoch))
        if not sends.waiting:
            sends.on_end()

    def _failed(self, sends: Sends, id_: int, error: BaseException) -> None:
        name = error_name(error)
        sends.failed[name] += 1
        self.tally.answered(id_, sends.acks, self._now(), acked=False)
        self.history.append(Sent(self._now(), id_, outcome(error), error=name))
        if not sends.waiting:
            sends.on_end()

    async def stop(self) -> None:
        for producer in self._producers.values():
            await producer.stop(flush=False)
        self._producers.clear()

    # -- readers -----------------------------------------------------------------------------------------------------

    async def read(
        self, partitions: Sequence[TopicPartition], *, final: bool = False
    ) -> tuple[list[ConsumerRecord], list[Record]]:
        """Reads partitions from their log start to the end of this moment.

        Returns the records and what goes into a history. TidelogError, TransportError: it came to no end.
        """
        name = f"{'final-' if final else ''}reader-{next(self._readers)}"
        found: list[ConsumerRecord] = []
        clock = self._sim.client_ports(name).clock
        consumer = Consumer(
            self._sim.bootstrap,
            ports=self._sim.client_ports(name),
            request_timeout_ms=self._sim.timing.request_ms,
            client_id=name,
        )
        async with consumer:
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(partitions)
            told: list[Record] = [Ownership(self._now(), ASSIGNED, name, tuple(partitions), final=final)]
            news_at = clock.now()
            while [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
                began = self._now()
                records = await consumer.poll(POLL_RECORDS, POLL_S)
                if records:
                    found += records
                    news_at = clock.now()
                    told.append(self._polled(name, began, records, final))
                elif clock.now() > news_at + STUCK_S:
                    raise TidelogError(f"{name} gets nothing of {', '.join(map(str, partitions))} for {STUCK_S:g} s")
        return found, told

    def _polled(self, name: str, began: float, records: Sequence[ConsumerRecord], final: bool) -> Polled:
        return polled(name, next(self._polls), began, self._now(), records, final=final)


def polled(name: str, id_: int, began: float, now: float, records: Sequence[ConsumerRecord], *, final: bool) -> Polled:
    """Returns what a history says of a poll, or of a look that a poll might have been."""
    reads = tuple(
        Read(topic, partition, tuple((each.offset, (each.value or b"").decode()) for each in some))
        for (topic, partition), some in groupby(records, key=lambda each: (each.topic, each.partition))
    )
    return Polled(now, name, id_, began, reads, final=final)


def _span(offsets: Sequence[int]) -> str:
    return str(offsets[0]) if len(offsets) == 1 else f"{min(offsets)} to {max(offsets)}"
