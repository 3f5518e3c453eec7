"""A run that is sound, played in virtual time from a seed: a cluster, its clients, faults, and what the harness writes of them.

Whatever may happen in a sound run is drawn: records of unknown outcome, in the log or not; refused ones; acks=1 records that go
with their leader, or are in the log twice; clients that are thrown away and read again; members that die before they commit;
answers to commits that come late; a reader of the final phase that is replaced.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from planted.cluster import BROKERS, Batch, Fate, Group, Member, Partition, Reader
from tidelog.chaos.checker.intervals import runs
from tidelog.chaos.history import (
    ASSIGNED,
    FAIL,
    INFO,
    OK,
    REVOKED,
    Committed,
    Crash,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Position,
    Processed,
    Read,
    Record,
    Send,
    Sent,
    Span,
    Stored,
    Watermark,
)
from tidelog.ids import TopicPartition

TOPIC: Final = "planted"
GROUP: Final = "planted-group"
POLL_RECORDS: Final = 40
UNKNOWN_AFTER_S: Final = 2.5
TAKEOVER_S: Final = (0.5, 3.0)
LOOK_S: Final = 0.5
Rows = list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Kill:
    at: float
    seconds: float
    partition: int
    """Its leader is killed."""


class World:
    """`records` is the history. An anomaly hooks in with `at`, `sometime` and `before_the_end`."""

    def __init__(self, seed: int) -> None:
        self.rand = rand = Random(seed)
        self.seed = seed
        self.now = 0.0
        self.records: list[Record] = []
        self.partitions = [Partition(p, rand.randrange(BROKERS)) for p in range(rand.randint(2, 4))]
        self.producers = [f"producer-{n}" for n in range(1, rand.randint(2, 3))]
        self.producers.append("producer-alone")
        self.lives = dict.fromkeys(self.producers, 1)
        self.readers = [Reader(f"consumer-{n}") for n in range(1, rand.randint(2, 3))]
        self.group = Group([Member(f"member-{n}") for n in range(1, rand.randint(3, 4))])
        self.kills = self._drawn_kills()
        last = self.kills[-1]
        self.load_s = last.at + last.seconds + TAKEOVER_S[1] + rand.uniform(2.0, 10.0)
        self.lonely = rand.random() < 0.25
        """The leader of partition 0 is alone in the ISR before it dies, and what it has acknowledged then may go with it."""
        self.batches: list[Batch] = []
        self.acked: dict[str, str] = {}
        """Name of each record that was acknowledged, to the ack level that it was sent with."""
        self.seen: set[str] = set()
        """Names that some client has read."""
        self.commits_are_refused = False
        self.steady_group = False
        """No member dies."""
        self.load_until: float | None = None
        """When producers stop that should not."""
        self.producing = True
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers, self._ids, self._batch_numbers = count(), count(1), count(1)
        self._sent: dict[str, int] = {}
        self._arrivals: dict[tuple[str, int], float] = {}
        self._before_the_end: list[Callable[[], None]] = []
        self.unplanted: list[Callable[[], bool]] = []

    # -- what goes wrong hooks in here ---------------------------------------------------------------------------------

    def at(self, t: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t, next(self._numbers), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    def sometime(self, plant: Callable[[], bool], start: float | None = None) -> None:
        """Tries it from a drawn time of the load on, or from `start`, until it says that it has happened."""
        self.unplanted.append(plant)

        def attempt() -> None:
            if plant():
                self.unplanted.remove(plant)
            elif self.producing:
                self.after(0.03, attempt)

        self.at(self.load_s * self.rand.uniform(0.3, 0.75) if start is None else start, attempt)

    def after_the_faults(self) -> float:
        """A drawn time of the load when every partition has a leader again, for good."""
        last = self.kills[-1]
        return last.at + last.seconds + TAKEOVER_S[1] + self.rand.uniform(0.1, 1.0)

    def before_the_end(self, do: Callable[[], None]) -> None:
        """Does it when no client writes any more, and readers have not come to the end."""
        self._before_the_end.append(do)

    # -- the run -------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        self.write(Phase(0.0, "load"))
        for reader in self.readers:
            self.start(reader)
        self.rebalance()
        for producer in self.producers:
            self.after(self.rand.uniform(0.0, 0.2), lambda name=producer: self._produce(name))
        for reader in self.readers:
            self.after(0.1, lambda of=reader: self.keep_reading(of))
        for member in list(self.group.members):
            self.after(0.1, lambda of=member: self._keep_working(of))
        self.after(LOOK_S, self._look)
        for number, kill in enumerate(self.kills, 1):
            self.at(kill.at, lambda number=number, kill=kill: self._kill(number, kill))
        self._draw_crashes()
        if self.lonely:
            self.at(self.kills[0].at - 1.0, self._leave_alone)
        self._until(self.load_s)
        self.write(Phase(self.now, "heal"))
        self._until(self.now + 1.0)
        self.producing = False
        self._until(self.now + UNKNOWN_AFTER_S + 0.5)
        for do in self._before_the_end:
            do()
        self._finish()

    def _until(self, t: float) -> None:
        while self._events and self._events[0][0] <= t:
            t_due, _, do = heapq.heappop(self._events)
            self.now = max(self.now, t_due)
            do()
        self.now = max(self.now, t)

    def write(self, record: Record) -> None:
        self.records.append(record)

    def id(self) -> int:
        return next(self._ids)

    def _drawn_kills(self) -> list[Kill]:
        rand = self.rand
        first = rand.uniform(5.0, 9.0)
        kills = [Kill(first, rand.uniform(2.0, 4.0), 0)]
        if rand.random() < 0.5:
            second = first + kills[0].seconds + rand.uniform(1.0, 3.0)
            kills.append(Kill(second, rand.uniform(1.0, 3.0), rand.randrange(len(self.partitions))))
        return kills

    def _draw_crashes(self) -> None:
        rand = self.rand
        chances: list[tuple[float, Callable[[], None]]] = [
            (0.4, self.crash_producer),
            (0.4, self.crash_reader),
            (0.5, self.crash_member),
        ]
        for chance, crash in chances:
            if rand.random() < chance:
                self.at(self.load_s * rand.uniform(0.2, 0.8), crash)

    # -- producers -----------------------------------------------------------------------------------------------------

    def process_of(self, producer: str) -> str:
        life = self.lives[producer]
        return producer if life == 1 else f"{producer}.{life}"

    def next_names(self, producer: str, size: int) -> list[str]:
        process = self.process_of(producer)
        first = self._sent.get(process, 0)
        return [f"{process}-{n}" for n in range(first, first + size)]

    def _produce(self, producer: str) -> None:
        if not self.producing or (self.load_until is not None and self.now >= self.load_until):
            return
        self.send(producer, self.rand.randrange(len(self.partitions)))
        self.after(self.rand.uniform(0.05, 0.25), lambda: self._produce(producer))

    def send(self, producer: str, partition: int, size: int | None = None, fate: Fate | None = None) -> Batch:
        rand, process = self.rand, self.process_of(producer)
        acks = "1" if producer == "producer-alone" else "all"
        size = rand.randint(1, 5) if size is None else size
        names = self.next_names(producer, size)
        self._sent[process] = self._sent.get(process, 0) + size
        ids = [self.id() for _ in names]
        batch = Batch(process, partition, acks, names, ids, next(self._batch_numbers), fate or self._fate(acks))
        self.batches.append(batch)
        for number, name in zip(ids, names, strict=True):
            self.write(Send(self.now, number, process, TOPIC, partition, name, acks))
        arrival = max(self.now + rand.uniform(0.001, 0.02), self._arrivals.get((process, partition), 0.0) + 1e-6)
        self._arrivals[process, partition] = arrival
        self.at(arrival, lambda: self.arrive(batch))
        if batch.fate in (Fate.ANSWER_LOST, Fate.NEVER_CAME):
            self.after(UNKNOWN_AFTER_S, lambda: self.give_up(batch))
        return batch

    def _fate(self, acks: str) -> Fate:
        fates = [Fate.FINE, Fate.REFUSED, Fate.ANSWER_LOST, Fate.NEVER_CAME, *([Fate.TWICE] if acks == "1" else [])]
        return self.rand.choices(fates, [40, 1, 2, 1, 1][: len(fates)])[0]

    def arrive(self, batch: Batch) -> None:
        if batch.fate is Fate.REFUSED:
            self.end(batch, FAIL, error="NOT_ENOUGH_REPLICAS")
        elif batch.fate is not Fate.NEVER_CAME:
            partition = self.partitions[batch.partition]
            if partition.led:
                self.append(partition, batch)
            else:
                partition.waiting.append(batch)

    def append(self, partition: Partition, batch: Batch) -> None:
        rand, epoch = self.rand, partition.epoch
        partition.append(batch)
        copied = rand.uniform(0.002, 0.01) if batch.acks == "all" else rand.uniform(0.005, 0.4)
        self.after(copied, lambda: self._copied(partition, batch, epoch))
        if batch.acks == "1":
            self.after(rand.uniform(0.001, 0.005), lambda: self._answer(partition, batch, epoch))

    def _copied(self, partition: Partition, batch: Batch, epoch: int) -> None:
        if partition.epoch != epoch or not partition.led:
            return
        partition.replicate(batch)
        if batch.acks == "all":
            self.after(self.rand.uniform(0.001, 0.004), lambda: self._answer(partition, batch, epoch))

    def _answer(self, partition: Partition, batch: Batch, epoch: int) -> None:
        """An acks=1 batch that has gone with its leader is sent again; below the high watermark a batch stays."""
        gone = batch.base is None or (batch.acks == "1" and (partition.epoch != epoch or not partition.led))
        if not gone and batch.fate is not Fate.ANSWER_LOST:
            self.end(batch, OK)

    def end(self, batch: Batch, outcome: str, error: str | None = None) -> None:
        if batch.ended:
            return
        batch.ended = True
        if outcome == OK:
            self.acked.update(dict.fromkeys(batch.names, batch.acks))
        for at, number in enumerate(batch.ids):
            acked = outcome == OK
            offset = batch.base + at if acked and batch.base is not None else None
            epoch = batch.epoch if acked else None
            unknown = batch.number if outcome == INFO else None
            attempts = batch.attempts if acked and batch.acks == "1" else None
            isr = batch.isr or None if acked else None
            self.write(Sent(self.now, number, outcome, offset, epoch, isr, error, unknown, attempts))

    def give_up(self, batch: Batch) -> None:
        self.end(batch, INFO, "TimeoutError")

    def crash_producer(self, producer: str | None = None) -> None:
        producer = self.rand.choice(self.producers) if producer is None else producer
        process = self.process_of(producer)
        self.write(Crash(self.now, process))
        for batch in self.batches:
            batch.ended |= batch.process == process
        self.lives[producer] += 1

    # -- faults --------------------------------------------------------------------------------------------------------

    def _kill(self, number: int, kill: Kill) -> None:
        broker = self.partitions[kill.partition].leader
        name, target = f"kill leader of {kill.partition}", (f"broker-{broker}",)

        def step(what: str) -> None:
            self.write(FaultStep(self.now, "kill", what, target, name, number))

        step("begin")
        step("effect")
        for partition in self.partitions:
            if partition.leader == broker and partition.led and not partition.spared:
                self._lose_what_is_alone(partition)
                self.fail_over(partition)
            partition.isr = BROKERS - 1
        self.after(kill.seconds, lambda: step("heal"))
        self.after(kill.seconds + 0.3, lambda: step("healed"))
        self.after(kill.seconds + 0.6, self._whole)

    def _leave_alone(self) -> None:
        if not self.partitions[0].spared:
            self.partitions[0].isr = 1

    def _lose_what_is_alone(self, partition: Partition) -> None:
        """From the first batch on that the leader has acknowledged alone, and that is behind all that was read."""
        mine = [b for b in self.batches if b.partition == partition.number and b.base is not None]
        kept = max([partition.read, *(b.end for b in mine if b.isr > 1)])
        alone = [b for b in mine if b.isr == 1 and (b.base or 0) >= kept]
        if alone:
            partition.high_watermark = min(b.base or 0 for b in alone)
            partition.tail = sorted((b for b in mine if b.end > partition.high_watermark), key=lambda b: b.base or 0)

    def _whole(self) -> None:
        for partition in self.partitions:
            partition.isr = BROKERS

    def fail_over(self, partition: Partition) -> None:
        partition.lose_leader()
        self.after(self.rand.uniform(*TAKEOVER_S), lambda: self.lead(partition))

    def lead(self, partition: Partition) -> None:
        if partition.led:
            return
        partition.lead()
        waiting, partition.waiting = partition.waiting, []
        for batch in waiting:
            if not batch.ended:
                self.append(partition, batch)

    def _look(self) -> None:
        for partition in self.partitions:
            if partition.led:
                self.tell(partition)
        if self.producing:
            self.after(LOOK_S, self._look)

    def tell(self, partition: Partition) -> None:
        told, end = partition.high_watermark, len(partition.log)
        began = max(0.0, self.now - self.rand.uniform(0.0, 0.01))
        partition.told = max(partition.told, told)
        at = (self.now, TOPIC, partition.number, partition.leader)
        self.write(Watermark(*at, partition.epoch, told, end, 0, began, partition.isr))

    # -- consumers -----------------------------------------------------------------------------------------------------

    @property
    def every(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(TOPIC, p.number) for p in self.partitions)

    def start(self, reader: Reader) -> None:
        reader.positions = dict.fromkeys(range(len(self.partitions)), 0)
        self.write(Ownership(self.now, ASSIGNED, reader.process, self.every))

    def keep_reading(self, reader: Reader) -> None:
        if self.producing and reader in self.readers:
            self.poll(reader)
            self.after(self.rand.uniform(0.1, 0.4), lambda: self.keep_reading(reader))

    def poll(self, reader: Reader) -> None:
        found: dict[int, Rows] = {}
        for number in self.rand.sample(range(len(self.partitions)), len(self.partitions)):
            rows = self.rows(number, reader.positions[number])
            if rows and number not in reader.stuck:
                found[number] = rows
                reader.positions[number] = rows[-1][0] + 1
        self.polled(reader.process, found)

    def rows(self, number: int, start: int) -> Rows:
        partition = self.partitions[number]
        return [] if partition.hidden else partition.rows(start, POLL_RECORDS)

    def polled(self, process: str, found: dict[int, Rows], group: str | None = None, final: bool = False) -> None:
        if not any(found.values()):
            return
        for number, rows in found.items():
            self.partitions[number].read = max(self.partitions[number].read, rows[-1][0] + 1)
            self.seen.update(name for _, name in rows)
        reads = tuple(Read(TOPIC, number, tuple(rows)) for number, rows in found.items())
        began = max(0.0, self.now - self.rand.uniform(0.0, 0.02))
        self.write(Polled(self.now, process, self.id(), began, reads, group, final))

    def crash_reader(self) -> None:
        """Its successor reads everything again."""
        healthy = [each for each in self.readers if not each.stuck]
        if not healthy:
            return
        reader = self.rand.choice(healthy)
        self.write(Crash(self.now, reader.process))
        successor = Reader(f"{reader.process}.{self.id()}")
        self.readers[self.readers.index(reader)] = successor
        self.start(successor)
        self.keep_reading(successor)

    # -- the group -----------------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Takes first what moves; a new owner begins at what is committed."""
        group = self.group
        group.generation += 1
        planned = group.shared(range(len(self.partitions)))
        before = {member: set(member.owned) for member in planned}
        for member, owned in planned.items():
            if taken := member.owned - owned:
                self.owns(member, REVOKED, taken)
        for member, owned in planned.items():
            for partition in owned - before[member]:
                member.positions[partition] = group.committed.get(partition, 0)
            member.generation = group.generation
            if owned != before[member]:
                member.owned = owned
                self.owns(member, ASSIGNED, owned)

    def owns(self, member: Member, kind: str, partitions: set[int]) -> None:
        named = tuple(TopicPartition(TOPIC, p) for p in sorted(partitions))
        self.write(Ownership(self.now, kind, member.process, named, GROUP, self.group.generation, self.group.epoch))

    def _keep_working(self, member: Member) -> None:
        if self.producing and member.alive:
            busy = self.work(member)
            self.after(busy + self.rand.uniform(0.1, 0.4), lambda: self._keep_working(member))

    def work(self, member: Member) -> float:
        """A poll, and a commit of what is not committed yet: for how long the member waits for the answer to that."""
        found: dict[int, Rows] = {}
        for number in sorted(member.owned):
            if rows := self.rows(number, member.positions[number]):
                found[number] = rows
                member.positions[number] = rows[-1][0] + 1
        if found:
            self.polled(member.process, found, GROUP)
            self.processed(member, found)
        kept = member.uncommitted.items()
        member.uncommitted = {p: end for p, end in kept if p in member.owned and member.positions[p] == end}
        member.uncommitted.update({number: rows[-1][0] + 1 for number, rows in found.items()})
        ends, generation = dict(member.uncommitted), member.generation
        if not ends:
            return 0.0
        there, back = self.rand.uniform(0.002, 0.08), self.rand.choice([0.0] * 9 + [self.rand.uniform(0.2, 1.0)])
        self.after(there, lambda: self._commit(member, ends, generation, back))
        return there + back

    def processed(self, member: Member, found: dict[int, Rows]) -> None:
        spans = [Span(TOPIC, p, a, b - 1) for p, rows in found.items() for a, b in runs([at for at, _ in rows])]
        self.write(Processed(self.now, member.process, GROUP, tuple(spans)))

    def _commit(self, member: Member, ends: dict[int, int], generation: int, back: float) -> None:
        """Refused if the group has gone on; the answer comes `back` seconds later, or is in doubt."""
        if not member.alive:
            return
        unlucky = self.producing and self.rand.random() < 0.02
        if generation != self.group.generation or self.commits_are_refused or unlucky:
            self.committed(member, ends, generation, FAIL, "ILLEGAL_GENERATION")
            return
        self.group.committed.update(ends)
        member.uncommitted.clear()
        outcome = INFO if self.rand.random() < 0.02 else OK

        def answered() -> None:
            if member.alive:
                self.committed(member, ends, generation, outcome)

        self.after(back, answered)

    def committed(
        self, member: Member, ends: dict[int, int], generation: int, outcome: str, error: str | None = None
    ) -> None:
        positions = tuple(Position(TOPIC, number, end) for number, end in sorted(ends.items()))
        if outcome == OK:
            self.group.acknowledged.update(ends)
        self.write(Committed(self.now, member.process, GROUP, generation, self.group.epoch, positions, outcome, error))

    def crash_member(self) -> None:
        """It dies with what it has in hand; a session later another one is there, and what it had moves."""
        if self.steady_group:
            return
        member = self.rand.choice([each for each in self.group.members if each.alive])
        self.write(Crash(self.now, member.process))
        member.alive = False
        successor = Member(f"{member.process}.{self.id()}")

        def joined() -> None:
            self.group.members.remove(member)
            self.group.members.append(successor)
            self.rebalance()
            self._keep_working(successor)

        self.after(self.rand.uniform(0.5, 2.0), joined)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.write(Phase(self.now, "final"))
        self._catch_up()
        for partition in self.partitions:
            self.tell(partition)
        stored = tuple(Position(TOPIC, p.number, self.group.committed.get(p.number, 0)) for p in self.partitions)
        self.write(Stored(self.now, GROUP, stored))
        stuck = self.rand.random() < 0.2
        for number in (1, 2):
            if stuck and number == 1:
                self._tick()
                self.read_all("reader-1", most=self.rand.randint(1, 20))
                self.write(Crash(self.now, "reader-1"))
            self._tick()
            self.read_all(f"reader-{number}" + (".2" if stuck and number == 1 else ""))
        self._tick()
        self.write(Phase(self.now, "end"))

    def _tick(self) -> None:
        self._until(self.now + self.rand.uniform(0.01, 0.2))

    def _catch_up(self) -> None:
        for _ in range(200):
            self._tick()
            before = len(self.records)
            for reader in self.readers:
                self.poll(reader)
            for member in self.group.members:
                if member.alive:
                    self.work(member)
            self._until(self.now + 1.2)
            if len(self.records) == before:
                return

    def read_all(self, process: str, most: int | None = None) -> None:
        self.write(Ownership(self.now, ASSIGNED, process, self.every, final=True))
        for partition in self.partitions:
            rows = partition.rows(0, len(partition.log))[:most]
            while rows:
                size = self.rand.randint(20, 200)
                self.polled(process, {partition.number: rows[:size]}, final=True)
                rows = rows[size:]
                self.now += 0.001
