"""A worker with a consumer and a handler that do as a test says."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog.agent.handler import Immediate, Records
from tidelog.agent.worker import Worker, WorkerOptions
from tidelog.client.records import ConsumerRecord
from tidelog.ids import TopicPartition
from tidelog.testing.clock import SimClock

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def record(tp: TopicPartition, offset: int, value: bytes | None = None, key: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord(*tp, offset, 1_000 + offset, 0, key, b"%d" % offset if value is None else value, (), 0)


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord]:
    return [record(tp, offset) for offset in offsets]


class FakeReader:
    """Hands out what is queued, one item a poll; owns what `owned` says."""

    def __init__(self, *polls: Sequence[ConsumerRecord]) -> None:
        self.queue = deque(polls)
        self.owned = {T0, T1}
        self.commits: list[dict[TopicPartition, int]] = []
        self.refusals: deque[Exception] = deque()
        """What the next commits raise."""
        self.story: list[Any] = []
        self.when_empty: Callable[[], object] = lambda: None
        self.fetched_at: float | None = None
        self.placed: dict[TopicPartition, int] = {}

    async def poll(self, max_records: int, timeout_s: float) -> Sequence[ConsumerRecord]:
        if self.queue:
            return self.queue.popleft()
        self.when_empty()
        await asyncio.sleep(timeout_s)
        return []

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refusals:
            raise self.refusals.popleft()
        self.commits.append(dict(offsets))
        self.placed = {tp: at for tp, at in self.placed.items() if tp not in offsets}
        self.story.append(("commit", dict(offsets)))

    def owns(self, tp: TopicPartition) -> bool:
        return tp in self.owned


class FakeHandler(Immediate):
    """Tells the reader's story what it did; `before` runs ahead of each chunk and may raise."""

    def __init__(self, story: list[Any]) -> None:
        self.story = story
        self.handled: list[tuple[TopicPartition, int]] = []
        self.lost: list[TopicPartition] = []
        self.before: Callable[[Records], Awaitable[None] | None] = lambda chunk: None
        self.flushing: Callable[[], None] = lambda: None

    async def handle(self, records: Records) -> None:
        found = self.before(records)
        if found is not None:
            await found
        for each in records:
            self.handled.append((TopicPartition(each.topic, each.partition), each.offset))
            self.story.append(("handled", each.partition, each.offset))

    async def flush(self) -> None:
        self.flushing()
        self.story.append("flushed")

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        self.lost.extend(partitions)


class Counts:
    def __init__(self) -> None:
        self.records = 0
        self.failures: list[str] = []
        self.lost = 0

    def handled(self, topic: str, records: int, seconds: float) -> None:
        self.records += records

    def failed(self, action: str) -> None:
        self.failures.append(action)

    def dropped(self, records: int) -> None:
        self.lost += records


class Scene:
    """`run` ends when everything that was queued has been polled."""

    def __init__(self, *polls: Sequence[ConsumerRecord], **options: Any) -> None:
        self.reader = FakeReader(*polls)
        self.handler = FakeHandler(self.reader.story)
        self.counts = Counts()
        self.worker = Worker(self.reader, self.handler, SimClock(), self.counts, WorkerOptions(**options))
        self.reader.when_empty = self.worker.stop

    @property
    def story(self) -> list[Any]:
        return self.reader.story

    async def run(self) -> None:
        await self.worker.run()
