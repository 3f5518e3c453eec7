"""Histories drawn at random, full of faults: what two judges of histories must agree on, whatever it is."""

from collections.abc import Callable
from random import Random

from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.history import (
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
    Watermark,
)
from tidelog.ids import TopicPartition

TOPIC = "chaos"
PARTITIONS = 3


def drawn_promise(rand: Random) -> Promise:
    return Promise(
        lost=rand.choice(("none", "one-copy", "allowed")),
        idempotent=rand.random() < 0.5,
        available=(Availability(rand.choice((0.1, 1.0, 10.0))),) if rand.random() < 0.3 else (),
        uncommitted_max=rand.choice((None, 0, 2)),
        records_expire=rand.random() < 0.3,
    )


class Drawn:
    """One history. A few clients, a log of each partition that is cut and written anew at times, and lies about it."""

    def __init__(self, seed: int) -> None:
        self.rand = rand = Random(seed)
        self.records: list[Record] = []
        self._t = 0.0
        self._id = 0
        self._logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._values: list[str] = []
        self._open: list[tuple[int, str, int, str]] = []
        self._positions: dict[tuple[str, int], int] = {}
        self._epochs = [1] * PARTITIONS
        self._truth = rand.choice((0.0, 0.02, 0.2))
        """How often something is not as it should be."""
        self._operations = rand.random() < 0.2
        self._clients = [f"c{i}" for i in range(3)]
        self._producers = [f"p{i}" for i in range(3)]

    def history(self, steps: int) -> list[Record]:
        rand = self.rand
        actions: list[tuple[int, Callable[[], None]]] = [
            *((8, self._send), (8, self._answer), (6, self._poll), (1, self._owns), (2, self._process)),
            *((1, self._commit), (1, self._watermark), (1, self._fault), (1, self._damage)),
        ]
        self._add(Phase(self._tick(), "load"))
        for _ in range(steps):
            (action,) = rand.choices([do for _, do in actions], [weight for weight, _ in actions])
            action()
        if rand.random() < 0.8:
            self._finish()
        return self.records

    def _add(self, record: Record) -> None:
        self.records.append(record)

    def _tick(self) -> float:
        """Some records are of the same time."""
        self._t = round(self._t + self.rand.choice((0.0, 0.001, 0.013, 0.4)), 6)
        return self._t

    def _number(self) -> int:
        self._id += 1
        return self._id

    def _wrong(self) -> bool:
        return self.rand.random() < self._truth

    def _op(self, *partitions: int) -> int | None:
        """An operation is about one partition."""
        if not self._operations or len(partitions) > 1 or self.rand.random() < 0.5:
            return None
        return self.rand.randrange(6) * PARTITIONS + partitions[0]

    def _send(self) -> None:
        rand, number = self.rand, self._number()
        process, partition = rand.choice(self._producers), rand.randrange(PARTITIONS)
        value, acks = f"v{number}", rand.choice(("all", "all", "1", "0"))
        self._add(Send(self._tick(), number, process, TOPIC, partition, value, acks, self._op(partition)))
        self._open.append((number, value, partition, process))
        self._values.append(value)

    def _answer(self) -> None:
        if not self._open:
            return
        rand = self.rand
        number, value, partition, _ = self._open.pop(rand.randrange(len(self._open)) if rand.random() < 0.3 else 0)
        outcome = rand.choices(("ok", "info", "fail"), (8, 1, 1))[0]
        offset: int | None = None
        if outcome == "ok" or rand.random() < 0.5:
            offset = len(self._logs[partition])
            self._logs[partition].append(value)
        if self._wrong():
            offset = rand.choice((None, -1, 0, rand.randrange(12)))
        if outcome != "ok" and rand.random() < 0.8:
            offset = None
        epoch = self._epochs[partition] if rand.random() < 0.7 else None
        self._add(Sent(self._tick(), number, outcome, offset, epoch, rand.choice((None, 1, 2, 3))))

    def _rows(self, process: str, partition: int, final: bool) -> tuple[tuple[int, str], ...]:
        rand, log = self.rand, self._logs[partition]
        start = 0 if final else self._positions.get((process, partition), 0)
        if self._wrong():
            start = rand.randrange(len(log) + 1)
        end = len(log) if final else min(len(log), start + rand.randrange(1, 5))
        rows = [(offset, log[offset]) for offset in range(start, end)]
        if rows and self._wrong():
            rows[rand.randrange(len(rows))] = (rand.randrange(12), rand.choice([*self._values, "?"]))
        if rows and self._wrong():
            rand.shuffle(rows)
        if rows and self._wrong():
            del rows[rand.randrange(len(rows))]
        if rows and not final:
            self._positions[process, partition] = rows[-1][0] + 1
        return tuple(rows)

    def _poll(self, process: str = "", partitions: tuple[int, ...] = (), *, final: bool = False) -> None:
        rand = self.rand
        process = process or rand.choice(self._clients)
        chosen = partitions or tuple(rand.sample(range(PARTITIONS), rand.randrange(1, 3)))
        reads = tuple(Read(TOPIC, partition, self._rows(process, partition, final)) for partition in chosen)
        if not any(read.records for read in reads) and rand.random() < 0.8:
            return
        began = max(0.0, round(self._t - rand.choice((0.0, 0.01, 0.5)), 6))
        group = "g" if process == "c0" else None
        op = None if final else self._op(*chosen)
        self._add(Polled(self._tick(), process, self._number(), began, reads, group, final, op))

    def _owns(self) -> None:
        rand = self.rand
        process = rand.choice(self._clients)
        kind = rand.choice(("assigned", "assigned", "revoked", "lost"))
        owned = tuple(TopicPartition(TOPIC, p) for p in rand.sample(range(PARTITIONS), rand.randrange(3)))
        if process == "c2" or rand.random() < 0.1:
            self._add(Ownership(self._tick(), kind, process, owned))
            return
        term = rand.choice(((1, 1), (2, 1), (3, 2), (None, None)))
        self._add(Ownership(self._tick(), kind, process, owned, "g", *term))

    def _process(self) -> None:
        rand = self.rand
        spans = []
        for partition in rand.sample(range(PARTITIONS), rand.randrange(1, 3)):
            first = rand.randrange(8) if rand.random() < 0.3 else len(self._logs[partition]) // 2
            spans.append(Span(TOPIC, partition, first, first + rand.randrange(4)))
        self._add(Processed(self._tick(), rand.choice(self._clients[:2]), rand.choice("gggh"), tuple(spans)))

    def _commit(self) -> None:
        rand = self.rand
        offsets = tuple(
            Position(TOPIC, partition, rand.randrange(10))
            for partition in rand.sample(range(PARTITIONS), rand.randrange(1, 3))
        )
        outcome = rand.choice(("ok", "ok", "fail", "info"))
        term = rand.choice(((1, 1), (2, 1), (1, 2)))
        self._add(Committed(self._tick(), rand.choice(self._clients[:2]), "g", *term, offsets, outcome))

    def _watermark(self) -> None:
        rand, partition = self.rand, self.rand.randrange(PARTITIONS)
        if rand.random() < 0.3:
            self._epochs[partition] += 1
        epoch = self._epochs[partition] - (rand.random() < 0.3)
        high_watermark = max(0, len(self._logs[partition]) - rand.randrange(4))
        log_start = rand.choice((None, 0, 0, 1, 2)) if self._wrong() else None
        began = rand.choice((None, max(0.0, round(self._t - 0.02, 6))))
        mark = Watermark(self._tick(), TOPIC, partition, epoch % 3, epoch, high_watermark, None, log_start, began)
        self._add(mark)

    def _fault(self) -> None:
        rand, number = self.rand, self.rand.randrange(1, 4)
        what = rand.choice(("begin", "effect", "heal", "healed"))
        self._add(FaultStep(self._tick(), "kill", what, ("broker-1",), f"kill {number % 2}", number))

    def _damage(self) -> None:
        """A client is thrown away, or a log loses its tail."""
        rand = self.rand
        if rand.random() < 0.3:
            gone = rand.choice([*self._producers, *self._clients])
            self._add(Crash(self._tick(), gone))
            self._open = [each for each in self._open if each[3] != gone]
        elif self._wrong():
            log = self._logs[rand.randrange(PARTITIONS)]
            del log[rand.randrange(len(log) + 1) :]

    def _finish(self) -> None:
        rand = self.rand
        self._add(Phase(self._tick(), "heal"))
        self._add(Phase(self._tick(), "final"))
        self._watermark()
        for reader in ("f1", "f2", "f3")[: rand.randrange(4)]:
            if rand.random() < 0.7:
                every = tuple(TopicPartition(TOPIC, partition) for partition in range(PARTITIONS))
                self._add(Ownership(self._tick(), "assigned", reader, every, final=True))
            for partition in range(PARTITIONS):
                self._poll(reader, (partition,), final=True)
            if rand.random() < 0.2:
                self._add(Crash(self._tick(), reader))
        if rand.random() < 0.9:
            self._add(Phase(self._tick(), "end"))
        if rand.random() < 0.1:
            self._send()
