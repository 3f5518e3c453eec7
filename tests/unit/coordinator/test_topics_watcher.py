"""Topics as a coordinator watches them: all of them once, and then only what has changed."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator.model import UNREADABLE, TopicInfo
from tidelog.coordinator.topics import TopicWatcher
from tidelog.ids import BrokerId
from tidelog.ports.meta import Create, Delete, SetData, WatchCallback
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire import znodes


class SpyMeta:
    """Hands reads on to the twin, and counts them."""

    def __init__(self, twin: SimMeta) -> None:
        self.twin = twin
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.twin, name)

    async def get(self, path: str, watch: WatchCallback | None = None) -> Any:
        self.read.append(path)
        return await self.twin.get(path, watch)


class Bench:
    def __init__(self) -> None:
        self.zookeeper = SimZooKeeper(seeded(1))
        self.operator = self.zookeeper.client()
        self.meta = SpyMeta(self.zookeeper.client())
        self.damaged: list[int] = []
        self.watcher = TopicWatcher(self.meta, SimClock(), self.damaged.append)
        self.tasks = Supervisor("watcher")
        self.told: list[Mapping[str, TopicInfo]] = []

    async def start(self) -> None:
        await self.operator.start()
        await self.meta.start()
        await self.operator.multi([Create("/brokers"), Create(znodes.TOPICS)])
        self.tasks.start("watcher", self.watcher.run())
        self.watcher.listen(self.told.append)

    async def make(self, names: Sequence[str], partitions: int = 1, topic_id: bytes = b"1") -> None:
        for begin in range(0, len(names), 500):
            await self.operator.multi(
                [Create(znodes.topic_path(name), topic(partitions, topic_id)) for name in names[begin : begin + 500]]
            )

    async def settled(self) -> Mapping[str, TopicInfo]:
        await SimClock().sleep(0.2)
        return self.told[-1]


def topic(partitions: int, topic_id: bytes = b"1") -> bytes:
    return znodes.encode_topic(znodes.TopicAssignment(topic_id, ((BrokerId(0),),) * partitions))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    async with asyncio.timeout(600):
        yield bench
    assert not bench.tasks.failures


@requirement("Added partitions start a rebalance of interested groups")
@requirement("A new topic goes to the groups with a matching pattern")
@requirement("A coordinator notices new topics and partitions")
@requirement("The coordinator watches topics and their partition counts")
async def test_topics_come_grow_and_go(bench: Bench) -> None:
    assert await bench.watcher.current() == {}
    await bench.make(["a", "b"], 2)
    assert await bench.settled() == {"a": TopicInfo(b"1", 2), "b": TopicInfo(b"1", 2)}
    await bench.operator.multi([SetData(znodes.topic_path("a"), topic(5)), SetData(znodes.topic_path("b"), topic(3))])
    assert await bench.settled() == {"a": TopicInfo(b"1", 5), "b": TopicInfo(b"1", 3)}
    await bench.operator.multi([Delete(znodes.topic_path("a"))])
    assert set(await bench.settled()) == {"b"}
    await bench.make(["a"], 1, b"2")
    assert (await bench.settled())["a"] == TopicInfo(b"2", 1)


async def test_a_topic_that_is_deleted_and_made_anew_at_once_is_another_one(bench: Bench) -> None:
    await bench.make(["a"])
    await bench.watcher.current()
    await bench.operator.multi([Delete(znodes.topic_path("a")), Create(znodes.topic_path("a"), topic(3, b"2"))])
    assert await bench.settled() == {"a": TopicInfo(b"2", 3)}
    await bench.operator.multi([SetData(znodes.topic_path("a"), topic(4, b"2"))])
    assert await bench.settled() == {"a": TopicInfo(b"2", 4)}, "it is watched as the old one was"


async def test_topics_are_in_the_order_in_which_they_were_created(bench: Bench) -> None:
    await bench.make(["b", "c", "a"])
    await bench.operator.multi([Delete(znodes.topic_path("b"))])
    await bench.make(["b"])
    await bench.operator.multi([SetData(znodes.topic_path("c"), topic(2))])
    topics = await bench.watcher.current()
    assert topics["c"].created <= topics["a"].created < topics["b"].created


@requirement("A new coordinator serves once its groups and topics are read")
async def test_what_there_is_when_a_coordinator_asks_is_what_it_gets(bench: Bench) -> None:
    await bench.make(["a"])
    assert set(await bench.watcher.current()) == {"a"}
    await bench.make(["b"])
    assert set(await bench.watcher.current()) == {"a", "b"}


async def test_nothing_is_read_before_somebody_asks(bench: Bench) -> None:
    await bench.make(["a"])
    await SimClock().sleep(100)
    assert bench.meta.read == []


@requirement("A watch only triggers a read that a timer repeats")
async def test_of_ten_thousand_topics_only_what_changed_is_read_again(bench: Bench) -> None:
    names = [f"t{n}" for n in range(10_000)]
    await bench.make(names)
    assert len(await bench.watcher.current()) == 10_000
    assert len(bench.meta.read) == 10_000
    bench.meta.read.clear()
    await bench.make(["new"])
    await bench.operator.multi([SetData(znodes.topic_path("t77"), topic(2))])
    assert len(await bench.settled()) == 10_001
    assert sorted(bench.meta.read) == [znodes.topic_path("new"), znodes.topic_path("t77")]


@requirement("An expired session clears the memory of a coordinator")
async def test_after_a_lost_connection_and_in_a_new_session_everything_is_watched_again(bench: Bench) -> None:
    await bench.make(["a"])
    await bench.watcher.current()
    for disturb in (bench.meta.drop, lambda: bench.zookeeper.expire(bench.meta.session_id)):
        disturb()
        await SimClock().sleep(0.5)
        before = bench.told[-1]["a"].partitions if bench.told else 1
        await bench.operator.multi([SetData(znodes.topic_path("a"), topic(before + 1))])
        assert (await bench.settled())["a"].partitions == before + 1


async def test_a_damaged_topic_stays_as_it_was_read_last(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.make(["a", "b"], 2)
    await bench.watcher.current()
    await bench.operator.multi([SetData(znodes.topic_path("a"), b"{")])
    await bench.operator.multi([SetData(znodes.topic_path("b"), topic(3))])
    assert await bench.settled() == {"a": TopicInfo(b"1", 2), "b": TopicInfo(b"1", 3)}
    await SimClock().sleep(100)
    assert bench.damaged[-1] == 1
    assert [r.levelname for r in caplog.records if "/brokers/topics/a" in r.getMessage()] == ["ERROR"]
    await bench.operator.multi([SetData(znodes.topic_path("a"), topic(3))])
    assert (await bench.settled())["a"] == TopicInfo(b"1", 3) and bench.damaged[-1] == 0
    await bench.operator.multi([SetData(znodes.topic_path("a"), b"{")])
    await bench.operator.multi([Delete(znodes.topic_path("a"))])
    assert set(await bench.settled()) == {"b"} and bench.damaged[-1] == 0


async def test_a_topic_that_was_damaged_from_the_start_exists(bench: Bench) -> None:
    await bench.make(["a", "b"])
    await bench.operator.multi([SetData(znodes.topic_path("a"), b"{")])
    assert await bench.watcher.current() == {"a": UNREADABLE, "b": TopicInfo(b"1", 1)}
    await bench.operator.multi([SetData(znodes.topic_path("a"), topic(2))])
    assert (await bench.settled())["a"] == TopicInfo(b"1", 2)
