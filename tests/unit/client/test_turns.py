"""Calls that need not wait still let other tasks run: an application may await nothing but its client."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from helpers.brokers import brokers
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.runtime.bell import TURN_S
from tidelog.testing.loop import work
from unit.client.clients import producer, values
from unit.client.group_bed import T
from unit.client.group_bed import bed as new_bed

WORK_S = 0.01
TICK_S = 0.001


async def longest_silence(call: Callable[[], Awaitable[object]], times: int = 200) -> float:
    """The longest time that another task has to wait for its turn while `call` is made again and again."""
    now = asyncio.get_running_loop().time
    heard = [now()]

    async def tick() -> None:
        while True:
            heard.append(now())
            await asyncio.sleep(TICK_S)

    ticking = asyncio.create_task(tick())
    for _ in range(times):
        await call()
        work(WORK_S)
    ticking.cancel()
    return max(later - earlier for earlier, later in zip(heard, [*heard[1:], now()], strict=True))


CONSUMER_CALLS: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "poll": lambda c: c.poll(max_records=1, timeout_s=60),
    "position": lambda c: c.position(T[0]),
    "assign": lambda c: c.assign([T[0]]),
    "partitions_of": lambda c: c.partitions_of("t"),
    "offsets": lambda c: c.end_offsets([]),
}


@pytest.mark.parametrize("name", CONSUMER_CALLS)
async def test_calls_of_a_consumer_let_others_run(name: str) -> None:
    bed = await new_bed()
    await bed.fill(0, count=1000)
    async with Consumer(bed.cluster.bootstrap, ports=bed.cluster.ports) as c:
        await c.assign([T[0]])
        await c.poll(max_records=1, timeout_s=60)
        assert await longest_silence(lambda: CONSUMER_CALLS[name](c)) <= TURN_S + 2 * WORK_S


async def test_an_iteration_lets_others_run() -> None:
    bed = await new_bed()
    await bed.fill(0, count=1000)
    async with Consumer(bed.cluster.bootstrap, ports=bed.cluster.ports) as c:
        await c.assign([T[0]])
        records = aiter(c)
        assert await longest_silence(lambda: anext(records)) <= TURN_S + 2 * WORK_S


PRODUCER_CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda p: p.send("t", b"v", partition=0),
    "flush": lambda p: p.flush(),
    "partitions_of": lambda p: p.partitions_of("t"),
    "topic_info": lambda p: p.topic_info("t"),
}


@pytest.mark.parametrize("name", PRODUCER_CALLS)
async def test_calls_of_a_producer_let_others_run(name: str) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await p.partitions_of("t")
        assert await longest_silence(lambda: PRODUCER_CALLS[name](p)) <= TURN_S + 2 * WORK_S


async def test_work_between_sends_delays_no_record_for_long() -> None:
    """A batch is sent long before it is full."""
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        for value in values(100):
            await p.send("t", value)
            work(WORK_S)
        assert len(cluster.values("t")) > 50


@pytest.mark.parametrize("iterates", [True, False])
async def test_a_member_that_never_waits_keeps_its_partitions(iterates: bool) -> None:
    bed = await new_bed()
    await bed.fill(count=300)
    async with bed.consumer("a") as a:
        records = aiter(a)
        for _ in range(1200):
            if iterates:
                await anext(records)
            else:
                assert await a.poll(max_records=1, timeout_s=60)
            work(WORK_S)
        assert a.stats.membership.losses == 0
        stored = bed.cluster.offsets()
        assert sum(stored.get(TopicPartition("t", p), 0) for p in range(4)) > 1000
