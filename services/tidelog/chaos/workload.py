"""The load of a run: verifiable producers and consumers, one life after the other, whose every step is in the history."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.chaos.checker.intervals import runs
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.history import ASSIGNED, LOST, REVOKED, Committed, Crash, Ownership, Position, Processed, Span
from tidelog.chaos.outcomes import error_name, outcome
from tidelog.chaos.scenario import ProducerPlan, Workload
from tidelog.chaos.sources import Checked, Outgoing, Source
from tidelog.chaos.verifiable_consumer import Offsets, VerifiableConsumer
from tidelog.chaos.verifiable_producer import SendFailed, VerifiableProducer
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.groups import GroupMetadata
from tidelog.client.producer import Producer, RecordMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.runtime.tasks import Supervisor

GROUP: Final = "chaos-group"
REQUEST_TIMEOUT_MS: Final = 3_000
"""Of consumers."""
PRODUCE_TIMEOUT_MS: Final = 1_500
"""Of producers: a leader that says nothing for so long is asked again, or its successor is; else a gap would be the client's."""
NEXT_LIFE_S: Final = 0.2
LAG_PERIOD_S: Final = 0.05


class Load:
    """`start`, `stop_producers`, `caught_up`, `stop`, in this order and in one event loop."""

    def __init__(
        self,
        servers: str,
        topic: str,
        plan: Workload,
        chronicle: Chronicle,
        ports: Callable[[], ClientPorts],
        source: Source | None = None,
    ) -> None:
        """`ports`: of each client, which it may have to itself. `source` None: every producer sends numbered values."""
        self._ports = ports
        self._source = source
        self._marks: list[tuple[float, asyncio.Event]] = []
        self._servers = servers
        self._topic = topic
        self._plan = plan
        self._chronicle = chronicle
        self._clock = chronicle.clock
        self._producers = Supervisor("producers")
        self._consumers = Supervisor("consumers")
        self._sending: set[VerifiableProducer] = set()
        self._stopping = False
        self._members: list[_Member] = []
        self.processed: dict[TopicPartition, int] = {}
        """By the group: the offset behind the last record that is done."""
        self._read: dict[str, dict[TopicPartition, int]] = {}
        """Consumer without a group to the offsets behind the last records that it has read in its present life."""

    def start(self) -> None:
        plan = self._plan
        names = [(f"producer-{n}", each) for n, each in enumerate(_each(plan.producers), 1)]
        for name, each in names:
            per_s = None if plan.rate is None else plan.rate / len(names)
            self._producers.start(name, self._produce(name, each, per_s))
        for n in range(1, plan.consumers.assigned + 1):
            self._consumers.start(f"consumer-{n}", self._read_assigned(f"consumer-{n}"))
        for n in range(1, plan.consumers.group + 1):
            self._consumers.start(f"member-{n}", self._be_member(f"member-{n}"))
        if plan.consumers.crash_every_s is not None:
            self._consumers.start("crashes", self._crash_members(plan.consumers.crash_every_s))

    @property
    def part(self) -> float | None:
        """The share of a load that ends which was sent, from 0 to 1."""
        return None if self._source is None else self._source.part

    async def reached(self, part: float) -> None:
        """Waits until so much of a load that ends was sent."""
        assert self._source is not None
        mark = asyncio.Event()
        self._marks.append((part, mark))
        if self._source.part < part:
            await mark.wait()

    async def stop_producers(self) -> None:
        """Returns when every record is acknowledged or has failed."""
        self._stopping = True
        for producer in self._sending:
            producer.stop()
        await self._producers.wait()

    async def caught_up(self, ends: Offsets, within_s: float) -> list[str]:
        """Waits until the group has processed, and each consumer without one has read, everything below `ends`. Returns
        those that have not after that time."""
        give_up_at = self._clock.now() + within_s
        while (behind := self._behind(ends)) and self._clock.now() < give_up_at:
            await self._clock.sleep(LAG_PERIOD_S)
        return behind

    def _behind(self, ends: Offsets) -> list[str]:
        grouped = self._plan.consumers.group or self._plan.consumers.agents
        positions = {**self._read, **({"the group": self.processed} if grouped else {})}
        return [name for name, at in positions.items() if any(at.get(tp, 0) < end for tp, end in ends.items())]

    async def stop(self) -> None:
        """TaskFailed if one has ended by a mistake of its own: then the history is not whole."""
        await self._producers.stop()
        await self._consumers.stop()
        for supervisor in (self._producers, self._consumers):
            if supervisor.failure is not None:
                raise supervisor.failure

    def _records(self, name: str) -> Iterator[Outgoing]:
        if self._source is None:
            yield from Checked(f"{name}-", self._plan.keys, self._plan.value_bytes, self._clock.wall_ms)
            return
        for outgoing in self._source:
            yield outgoing
            for part, mark in self._marks:
                if self._source.part >= part:
                    mark.set()

    async def _produce(self, name: str, plan: ProducerPlan, per_s: float | None) -> None:
        tries = ProducerTries(self._chronicle, self._topic, plan.acks)
        records = self._records(name)
        for life in _lives(name):
            tries.process = life
            try:
                async with Producer(
                    self._servers,
                    acks=plan.acks,
                    request_timeout_ms=PRODUCE_TIMEOUT_MS,
                    delivery_timeout_ms=int(plan.delivery_timeout_s * 1000),
                    client_id=life,
                    ports=self._ports(),
                ) as producer:
                    sender = VerifiableProducer(
                        producer,
                        self._topic,
                        self._clock,
                        tries,
                        records,
                        per_s=per_s,
                    )
                    self._sending.add(sender)
                    try:
                        await sender.run()
                    finally:
                        self._sending.discard(sender)
                return
            except (SendFailed, TidelogError, TransportError):
                self._chronicle.append(Crash(self._chronicle.now(), life))
            if self._stopping:
                return
            await self._clock.sleep(NEXT_LIFE_S)

    async def _read_assigned(self, name: str) -> None:
        for life in _lives(name):
            position = self._read[name] = {}
            try:
                async with Consumer(
                    self._servers, request_timeout_ms=REQUEST_TIMEOUT_MS, client_id=life, ports=self._ports()
                ) as consumer:
                    await consumer.assign_topics(self._topic)
                    now, reading = self._chronicle.now(), _Alone(self._chronicle, life, position)
                    self._chronicle.append(Ownership(now, ASSIGNED, life, tuple(consumer.assignment)))
                    await VerifiableConsumer(consumer, self._clock, reading, commits=False).run()
            except (TidelogError, TransportError):
                self._chronicle.append(Crash(self._chronicle.now(), life))
            await self._clock.sleep(NEXT_LIFE_S)

    async def _be_member(self, name: str) -> None:
        for life in _lives(name):
            member = _Member(self._chronicle, life, self.processed)
            member.consumer = Consumer(
                self._servers,
                group=GROUP,
                topics=[self._topic],
                consumer_id=life,
                session_timeout_ms=int(self._plan.consumers.session_s * 1000),
                auto_commit=False,
                on_assigned=member.assigned,
                on_revoked=member.revoked,
                on_lost=member.lost,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                client_id=life,
                ports=self._ports(),
            )
            await member.live(self._members)
            await self._clock.sleep(NEXT_LIFE_S)

    async def _crash_members(self, every_s: float) -> None:
        """Until the producers stop: a crash in the final phase would be a fault after the healing."""
        turn = 0
        while not self._stopping:
            await self._clock.sleep(every_s)
            if self._members and not self._stopping:
                self._members[turn % len(self._members)].crash()
                turn += 1


class LoopLag:
    """How late the event loop is: what waits longer than it asked for waits for somebody who does not yield.

    A history whose writer stood still says little about gaps, so the worst of it belongs to the run.
    """

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self.worst_s = 0.0
        self.late = 0
        """Times that it was later than a tick."""

    async def watch(self) -> None:
        clock = self._chronicle.clock
        while True:
            asked = clock.now()
            await clock.sleep(LAG_PERIOD_S)
            lag_s = clock.now() - asked - LAG_PERIOD_S
            self.worst_s = max(self.worst_s, lag_s)
            self.late += lag_s > LAG_PERIOD_S


class ProducerTries:
    """One producer's records, in all its lives."""

    def __init__(self, chronicle: Chronicle, topic: str, acks: str) -> None:
        self.process = ""
        self._chronicle = chronicle
        self._topic = topic
        self._acks = acks

    def tried(self, partition: int | None, key: bytes | None, value: str) -> int:
        assert partition is not None, "every record of a run has its partition"
        return self._chronicle.tried(self.process, self._topic, partition, value, self._acks)

    def ended(self, number: int, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        self._chronicle.ended(number, self._acks, metadata, error)


class _Alone:
    """One life of a consumer without a group."""

    def __init__(self, chronicle: Chronicle, process: str, position: dict[TopicPartition, int]) -> None:
        """`position`: to be kept at the offset behind the last record that was read."""
        self._chronicle = chronicle
        self._process = process
        self._position = position

    def polled(self, began: float, records: Sequence[ConsumerRecord]) -> None:
        self._chronicle.polled(self._process, began, records, None)
        self._position.update((TopicPartition(r.topic, r.partition), r.offset + 1) for r in records)

    def processed(self, records: Sequence[ConsumerRecord]) -> None:
        """Nobody keeps what it has read."""

    def committed(self, offsets: Offsets, sent_in: GroupMetadata, error: BaseException | None) -> None:
        """It has nobody to commit for."""


class _Member:
    """One life of a member of the group."""

    consumer: Consumer

    def __init__(self, chronicle: Chronicle, process: str, done: dict[TopicPartition, int]) -> None:
        self._chronicle = chronicle
        self._process = process
        self._done = done
        self._owned: set[TopicPartition] = set()
        self._crash = asyncio.timeout(None)

    async def live(self, members: list["_Member"]) -> None:
        """Until it is crashed, or its consumer is of no use any more; it leaves the group if it is cancelled."""
        members.append(self)
        try:
            await self.consumer.start()
            async with self._crash:
                await VerifiableConsumer(self.consumer, self._chronicle.clock, self, commits=True).run()
        except (TidelogError, TransportError, TimeoutError):
            self._chronicle.append(Crash(self._chronicle.now(), self._process))
            await self.consumer.abandon()
        except asyncio.CancelledError:
            await self.consumer.stop()
            raise
        finally:
            members.remove(self)

    def crash(self) -> None:
        self._crash.reschedule(0.0)

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._owned.update(partitions)
        self._owns(ASSIGNED, sorted(self._owned))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(partitions)
        self._owns(REVOKED, partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(partitions)
        self._owns(LOST, partitions)

    def polled(self, began: float, records: Sequence[ConsumerRecord]) -> None:
        self._chronicle.polled(self._process, began, records, GROUP)

    def processed(self, records: Sequence[ConsumerRecord]) -> None:
        """A span for each stretch of offsets that follow each other: what lies between two was not there to be processed."""
        offsets: dict[TopicPartition, list[int]] = {}
        for record in records:
            offsets.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        for tp, its in offsets.items():
            self._done[tp] = max(self._done.get(tp, 0), its[-1] + 1)
        done = tuple(Span(*tp, start, end - 1) for tp, its in offsets.items() for start, end in runs(its))
        self._chronicle.append(Processed(self._chronicle.now(), self._process, GROUP, done))

    def committed(self, offsets: Offsets, sent_in: GroupMetadata, error: BaseException | None) -> None:
        name = None if error is None else error_name(error)
        self._chronicle.append(
            Committed(
                self._chronicle.now(),
                self._process,
                GROUP,
                sent_in.generation,
                sent_in.coordinator_epoch,
                tuple(Position(*tp, offset) for tp, offset in offsets.items()),
                outcome(error),
                name,
            )
        )

    def _owns(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        known = self.consumer.group_metadata
        now = self._chronicle.now()
        self._chronicle.append(
            Ownership(now, kind, self._process, tuple(partitions), GROUP, known.generation, known.coordinator_epoch)
        )


def _each(plans: Sequence[ProducerPlan]) -> list[ProducerPlan]:
    return [plan for plan in plans for _ in range(plan.count)]


def _lives(name: str) -> Iterator[str]:
    """Names of one client life after the other (reliability 1.1)."""
    yield name
    life = 2
    while True:
        yield f"{name}.{life}"
        life += 1
