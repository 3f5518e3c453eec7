"""A cluster as its clients see it: logs, high watermarks, and leaders whose records go with them if no other copy has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

BROKERS = 3


class Fate(StrEnum):
    """The way that a batch goes, apart from what a new leader does to it."""

    FINE = "fine"
    REFUSED = "refused"
    ANSWER_LOST = "answer lost"
    """It is in the log, and its producer never learns that."""
    NEVER_CAME = "never came"
    TWICE = "twice"
    """Its producer, which is not idempotent, has sent it again."""


@dataclass(slots=True, eq=False)
class Batch:
    process: str
    partition: int
    acks: str
    names: list[str]
    ids: list[int]
    number: int
    fate: Fate
    base: int | None = None
    """Its offset in the log that there is."""
    epoch: int = 0
    isr: int = 0
    """Replicas in sync when it was acknowledged."""
    attempts: int = 0
    ended: bool = False
    """Its producer knows what became of it, or has given it up, or is gone."""

    @property
    def end(self) -> int:
        assert self.base is not None
        return self.base + len(self.names)


@dataclass(slots=True, eq=False)
class Partition:
    number: int
    leader: int
    log: list[str | None] = field(default_factory=list)
    """Names of the records by offset; None: there is nothing."""
    high_watermark: int = 0
    epoch: int = 1
    led: bool = True
    isr: int = BROKERS
    spared: bool = False
    """Its leader never changes."""
    hidden: bool = False
    """No client reads it for now."""
    read: int = 0
    """The end of what was read by any client."""
    told: int = 0
    """The highest watermark that was told in this epoch with others in the ISR."""
    tail: list[Batch] = field(default_factory=list)
    """Batches that are not below the high watermark yet."""
    waiting: list[Batch] = field(default_factory=list)
    """Batches that have come while there was no leader."""

    def append(self, batch: Batch) -> None:
        batch.attempts += 1
        batch.base, batch.epoch = len(self.log), self.epoch
        for _ in range(2 if batch.fate is Fate.TWICE else 1):
            batch.base = len(self.log)
            self.log.extend(batch.names)
        batch.attempts += batch.fate is Fate.TWICE
        self.tail.append(batch)

    def replicate(self, batch: Batch) -> None:
        """All in sync have it, and what is before it."""
        if batch in self.tail:
            batch.isr = self.isr
            del self.tail[: self.tail.index(batch) + 1]
            self.high_watermark = max(self.high_watermark, batch.end)

    def lose_leader(self) -> None:
        """Takes along what only the leader had. A producer that has no answer sends its batch again."""
        self.led = False
        del self.log[self.high_watermark :]
        for batch in self.tail:
            batch.base = None
        self.waiting[:0] = [batch for batch in self.tail if not batch.ended]
        self.tail.clear()

    def lead(self) -> None:
        """The caller appends what waits."""
        self.led, self.epoch, self.leader, self.told = True, self.epoch + 1, (self.leader + 1) % BROKERS, 0

    def remove(self, offset: int, number: int = 1) -> None:
        """Whatever is behind it moves up."""
        del self.log[offset : offset + number]
        self.high_watermark = min(len(self.log), max(offset, self.high_watermark - number))
        self._moved(offset, -number)

    def insert(self, offset: int, names: Sequence[str | None]) -> None:
        self.log[offset:offset] = names
        self.high_watermark += len(names) if offset <= self.high_watermark else 0
        self._moved(offset, len(names))

    def _moved(self, offset: int, by: int) -> None:
        for batch in self.tail:
            if batch.base is not None and batch.base >= offset:
                batch.base += by

    def rows(self, start: int, most: int, end: int | None = None) -> list[tuple[int, str]]:
        """Records that a fetch from `start` brings, up to the high watermark."""
        end = self.high_watermark if end is None else end
        found = ((at, name) for at in range(start, end) if (name := self.log[at]) is not None)
        return [row for row, _ in zip(found, range(most), strict=False)]


@dataclass(slots=True, eq=False)
class Member:
    """A consumer of the group."""

    process: str
    owned: set[int] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    uncommitted: dict[int, int] = field(default_factory=dict)
    generation: int = 0
    alive: bool = True


@dataclass(slots=True, eq=False)
class Reader:
    """A consumer without a group."""

    process: str
    positions: dict[int, int] = field(default_factory=dict)
    stuck: set[int] = field(default_factory=set)
    """Partitions of which it gets nothing more."""


@dataclass(slots=True, eq=False)
class Group:
    members: list[Member] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The part of it that members know of."""
    generation: int = 0
    epoch: int = 1
    """The coordinator's."""

    def owner(self, partition: int) -> Member | None:
        return next((each for each in self.members if each.alive and partition in each.owned), None)

    def go_on(self) -> None:
        """The next generation, with all members in it."""
        self.generation += 1
        for member in self.members:
            member.generation = self.generation

    def shared(self, partitions: Iterable[int]) -> dict[Member, set[int]]:
        """A balanced assignment that moves no more than it has to."""
        living = [each for each in self.members if each.alive]
        every = set(partitions)
        most = -(-len(every) // len(living))
        planned = {each: set(sorted(each.owned & every)[:most]) for each in living}
        left = every.difference(*planned.values())
        for partition in sorted(left):
            poorest = min(living, key=lambda each: len(planned[each]))
            planned[poorest].add(partition)
        return planned
