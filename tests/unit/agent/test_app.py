"""Agents against brokers in memory."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.brokers import Brokers
from tidelog.agent.app import STATES, Agent, handler_of
from tidelog.agent.handler import Handler, Records
from tidelog.agent.watching import CountHandler
from tidelog.client.consumer import Consumer
from tidelog.client.membership import Standing
from tidelog.client.records import Record, encode_batch
from tidelog.config import AgentSettings
from tidelog.errors import TidelogError
from tidelog.ids import Address, TopicPartition
from tidelog.runtime.agent_metrics import AgentMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.disk import SimDisk

PARTITIONS = 4


class Life:
    """One agent from its start to its end, as `serve` runs it."""

    def __init__(self, bed: "Bed", name: str, own: Handler | None, **options: Any) -> None:
        settings = AgentSettings(
            **{
                **{"bootstrap_servers": bed.servers, "group_id": "g", "topics": ("t",), "agent_id": name},
                **{"session_timeout_ms": 3_000, "commit_interval_ms": 1_000, **options},
            }
        )
        self.host = f"host-{next(bed.hosts)}"
        ports = bed.cluster.ports_of(self.host)
        handler = own or handler_of(settings, name, ports, bed.disk)
        self.agent = Agent(settings, name, handler, ports, AgentMetrics(CollectorRegistry()))
        self._supervisor = Supervisor()
        self._task = self._supervisor.start(name, self._serve())
        self.failure: TidelogError | None = None

    async def _serve(self) -> None:
        try:
            await self.agent.run(self._supervisor)
        except TidelogError as error:
            self.failure = error
        finally:
            await self.agent.stop()

    @property
    def owned(self) -> int:
        return sum(self.agent.snapshot().owned.values())

    async def end(self) -> None:
        """SIGTERM."""
        self._task.cancel()
        await self._supervisor.wait()


class Bed:
    def __init__(self) -> None:
        self.cluster = Brokers()
        self.servers = tuple(map(Address.parse, self.cluster.bootstrap.split(",")))
        self.hosts = itertools.count(1)
        self.disk = SimDisk()

    async def start(self) -> "Bed":
        await self.cluster.start()
        await self.cluster.create("t", partitions=PARTITIONS)
        await self.cluster.create("copy", partitions=PARTITIONS)
        return self

    def agent(self, name: str, own: Handler | None = None, **options: Any) -> Life:
        return Life(self, name, own, **options)

    async def fill(self, count: int) -> None:
        for number in range(PARTITIONS):
            first = self.cluster.end("t", number)
            rows = (Record(b"k", b"%d-%d" % (number, first + i), (), 1000) for i in range(count))
            await self.cluster.append("t", number, encode_batch(rows))

    async def until(self, condition: Callable[[], Any], limit_s: float = 60.0) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():
                await self.cluster.clock.sleep(0.02)

    async def committed(self) -> list[int]:
        consumer = Consumer(self.cluster.bootstrap, group="g", topics=["t"], ports=self.cluster.ports)
        names = [TopicPartition("t", number) for number in range(PARTITIONS)]
        found = await consumer.committed(names)
        return [-1 if (at := found[tp]) is None else at.offset for tp in names]

    def copied(self) -> list[bytes | None]:
        return [value for number in range(PARTITIONS) for value in self.cluster.values("copy", number)]


def everything(count: int) -> list[bytes]:
    return sorted(b"%d-%d" % (number, offset) for number in range(PARTITIONS) for offset in range(count))


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    yield await Bed().start()


async def test_two_agents_share_the_partitions_and_handle_every_record_once(bed: Bed) -> None:
    await bed.fill(100)
    first, second = (bed.agent(name, handler="forward", forward_topic="copy") for name in ("a", "b"))
    await bed.until(lambda: first.owned == second.owned == 2)
    await bed.fill(100)
    await bed.until(lambda: len(bed.copied()) >= 800)
    assert sorted(v or b"" for v in bed.copied()) == everything(200)
    await first.end()
    await second.end()
    assert await bed.committed() == [200] * PARTITIONS
    assert len(bed.copied()) == 800


async def test_a_clean_leave_stores_the_last_offsets_and_the_next_owner_begins_there(bed: Bed) -> None:
    """A18.01, HOLE-49: without waiting for the session to run out."""

    await bed.fill(50)
    first = bed.agent("a", CountHandler(), commit_interval_ms=1_000_000)
    await bed.until(lambda: first.agent.snapshot().lag_records.get("t") == 0 and first.owned == PARTITIONS)
    left_at = bed.cluster.clock.now()
    await first.end()
    assert await bed.committed() == [50] * PARTITIONS
    counting = CountHandler()
    second = bed.agent("b", counting)
    await bed.until(lambda: second.owned == PARTITIONS)
    assert bed.cluster.clock.now() - left_at < 2.0
    await bed.fill(1)
    await bed.until(lambda: counting.counts["t"] == PARTITIONS)
    await second.end()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "joined by another"])
async def test_an_idle_agent_keeps_the_place_of_latest(bed: Bed, killed: bool) -> None:
    await bed.fill(10)
    counting = CountHandler()
    first = bed.agent("a", counting, auto_offset_reset="latest")
    await bed.until(lambda: first.owned == PARTITIONS)
    await bed.cluster.clock.sleep(2.0)
    assert await bed.committed() == [10] * PARTITIONS
    if killed:
        bed.cluster.cut(first.host)
        await bed.until(lambda: not first.owned)
        await bed.fill(100)
    second = bed.agent("b", counting, auto_offset_reset="latest")
    await bed.until(lambda: second.owned)
    if not killed:
        await bed.fill(100)
    await bed.until(lambda: counting.counts["t"] == 100 * PARTITIONS)
    await second.end()
    await first.end()


async def test_an_agent_whose_brokers_are_gone_is_unwell(bed: Bed) -> None:
    await bed.fill(10)
    life = bed.agent("a")
    bed.cluster.refuse(life.host)
    await bed.cluster.clock.sleep(1.0)
    assert life.agent.unwell() == "no broker has answered yet"
    bed.cluster.heal()
    await bed.until(lambda: life.owned == PARTITIONS and life.agent.unwell() == "")
    await bed.cluster.clock.sleep(60.0)
    assert life.agent.unwell() == "", "leaders answer that there is nothing new"
    bed.cluster.refuse(life.host)
    await bed.cluster.clock.sleep(8.0)
    assert life.agent.unwell() == "", "a failover takes less"
    await bed.cluster.clock.sleep(3.0)
    assert life.agent.unwell().endswith(" for 9 s")
    bed.cluster.heal()
    await bed.until(lambda: life.agent.unwell() == "")
    await life.end()


async def test_an_agent_without_partitions_is_well(bed: Bed) -> None:
    busy = [bed.agent(name) for name in "abcd"]
    await bed.until(lambda: [each.owned for each in busy] == [1] * PARTITIONS)
    spare = bed.agent("e")
    await bed.cluster.clock.sleep(60.0)
    assert (spare.owned, spare.agent.unwell()) == (0, "")
    for each in (*busy, spare):
        await each.end()


async def test_what_moves_to_another_agent_is_committed_first_so_that_nothing_is_handled_twice(bed: Bed) -> None:
    await bed.fill(50)
    counts = CountHandler(), CountHandler()
    first = bed.agent("a", counts[0], commit_interval_ms=1_000_000)
    await bed.until(lambda: first.agent.snapshot().lag_records.get("t") == 0)
    assert await bed.committed() == [-1] * PARTITIONS
    second = bed.agent("b", counts[1])
    await bed.until(lambda: first.owned == second.owned == 2)
    assert sorted(await bed.committed()) == [-1, -1, 50, 50]
    await bed.fill(1)
    await bed.until(lambda: counts[0].counts["t"] + counts[1].counts["t"] >= 51 * PARTITIONS)
    await asyncio.sleep(5)
    assert (counts[0].counts["t"], counts[1].counts["t"]) == (202, 2)
    await first.end()
    await second.end()


async def test_open_02_a_handler_that_takes_longer_than_the_session_keeps_its_partitions(bed: Bed) -> None:
    class Slow(CountHandler):
        async def handle(self, records: Records) -> None:
            await asyncio.sleep(10.0)
            await super().handle(records)

    await bed.fill(1)
    slow = Slow()
    agent = bed.agent("a", slow)
    await bed.until(lambda: slow.counts["t"] == PARTITIONS, limit_s=120)
    snapshot = agent.agent.snapshot()
    assert (snapshot.losses, snapshot.starts, snapshot.state) == (0, 1, "stable")
    await agent.end()


async def test_coord_15_a_handler_beyond_the_processing_limit_loses_its_partitions_and_commits_nothing_of_them(
    bed: Bed,
) -> None:
    stuck = asyncio.Event()

    class Stuck(CountHandler):
        async def handle(self, records: Records) -> None:
            await stuck.wait()

    await bed.fill(1)
    first = bed.agent("a", Stuck(), max_processing_ms=5_000)
    await bed.until(lambda: first.owned == PARTITIONS)
    counting = CountHandler()
    second = bed.agent("b", counting)
    await bed.until(lambda: second.owned == PARTITIONS and counting.counts["t"] == PARTITIONS)
    await bed.until(lambda: second.agent.snapshot().lag_records == {"t": 0})
    await second.end()
    stuck.set()
    await first.end()
    assert await bed.committed() == [1] * PARTITIONS


async def test_a_handler_that_fails_ends_the_agent_with_the_reason_and_leaves_the_group(bed: Bed) -> None:
    class Fails(CountHandler):
        async def handle(self, records: Records) -> None:
            raise ValueError("no such customer")

    await bed.fill(1)
    agent = bed.agent("a", Fails())
    await bed.until(lambda: agent.failure is not None)
    assert agent.failure is not None and "no such customer" in agent.failure.message
    await bed.until(lambda: agent.agent.snapshot().state == "left")
    assert await bed.committed() == [-1] * PARTITIONS


async def test_open_06_an_agent_waits_for_brokers_that_come_later(bed: Bed) -> None:
    agent = bed.agent("a", CountHandler())
    bed.cluster.refuse(agent.host)
    await asyncio.sleep(60)
    assert agent.agent.snapshot().state == "starting"
    bed.cluster.heal()
    await bed.until(lambda: agent.owned == PARTITIONS)
    assert agent.agent.snapshot().state == "stable"
    await agent.end()


async def test_an_agent_that_was_killed_is_followed_at_once_by_one_of_its_name(bed: Bed) -> None:
    killed = bed.agent("a", CountHandler())
    await bed.until(lambda: killed.owned == PARTITIONS)
    bed.cluster.cut(killed.host)
    second = bed.agent("a", CountHandler())
    await bed.until(lambda: second.owned == PARTITIONS)
    assert second.failure is None
    await second.end()
    await killed.end()


async def test_a_stop_does_not_wait_for_a_handler_for_ever(bed: Bed) -> None:
    class Stuck(CountHandler):
        async def handle(self, records: Records) -> None:
            await asyncio.Event().wait()

    await bed.fill(1)
    agent = bed.agent("a", Stuck(), stop_timeout_ms=2_000)
    await bed.until(lambda: agent.owned == PARTITIONS)
    await asyncio.sleep(1)
    began_at = bed.cluster.clock.now()
    await agent.end()
    assert 2.0 <= bed.cluster.clock.now() - began_at < 6.0
    assert await bed.committed() == [-1] * PARTITIONS


def test_every_state_of_a_membership_has_its_series() -> None:
    assert {each.value for each in Standing} <= set(STATES)


@pytest.mark.parametrize("text", ["handled", "lost"])
async def test_the_snapshot_follows_the_membership(bed: Bed, text: str) -> None:
    await bed.fill(3)
    agent = bed.agent("a", CountHandler())
    await bed.until(lambda: agent.agent.snapshot().lag_records == {"t": 0})
    snapshot = agent.agent.snapshot()
    assert (snapshot.generation, snapshot.owned, snapshot.starts, snapshot.stops) == (1, {"t": PARTITIONS}, 1, 0)
    assert 0 <= snapshot.since_ping_s < 3
    if text == "lost":
        bed.cluster.refuse(agent.host)
        await bed.until(lambda: agent.agent.snapshot().losses == 1)
        assert agent.owned == 0
        bed.cluster.heal()
    await agent.end()
