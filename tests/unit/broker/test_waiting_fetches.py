"""Fetches that wait: what they cost while records come, when they end, and how many may wait."""

import asyncio
from typing import Any

import pytest

from helpers.batches import batch, offsets
from helpers.broker import BrokerBench, KnownCaller
from tidelog.broker import readers
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.readers import PLACES_OF_FETCH, Places
from tidelog.errors import ErrorCode, ThrottlingQuotaExceededError
from unit.broker.test_fetch import follower_at, led

ONE = batch(b"x" * 1_000)
WAIT = 10_000
MIB = 1 << 20


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offsets at which records are read."""
    found: list[int] = []
    read = PartitionHost.read

    def counted(self: PartitionHost, offset: int, *rest: Any) -> bytes:
        found.append(offset)
        return read(self, offset, *rest)

    monkeypatch.setattr(PartitionHost, "read", counted)
    return found


async def parked(bench: BrokerBench, count: int = 1, **asked: Any) -> list["asyncio.Task[Any]"]:
    waiting = bench.fetch.waiting
    tasks = [asyncio.ensure_future(bench.get(0, max_wait_ms=WAIT, **asked)) for _ in range(count)]
    await asyncio.sleep(0.01)
    assert bench.fetch.waiting == waiting + count
    return tasks


async def holding_half_a_turn() -> BrokerBench:
    bench = await led()
    assert (await bench.send(batch(b"x" * (MIB // 2)))).error_code is ErrorCode.NONE
    return bench


async def reads_of_each_turn(bench: BrokerBench, *callers: str, max_bytes: int) -> list[list[str]]:
    """Returns whose fetches were answered in each turn of the event loop, when all are sent in one; empty turns are left out."""
    turns: list[list[str]] = [[]]

    async def ask(caller: str) -> None:
        got = await bench.get(0, caller=caller, max_bytes=max_bytes)
        assert got.records
        turns[-1].append(caller)

    tasks = [asyncio.ensure_future(ask(caller)) for caller in callers]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns.append([])
    return [turn for turn in turns if turn]


async def test_large_reads_let_others_run_in_between() -> None:
    bench = await holding_half_a_turn()
    turns = await reads_of_each_turn(bench, *["greedy"] * 5, "modest", max_bytes=MIB)
    assert turns == [["greedy"] * 2, ["greedy"] * 2, ["greedy", "modest"]]


@pytest.mark.parametrize("large", [0, 2])
async def test_small_reads_share_a_turn(large: int) -> None:
    bench = await holding_half_a_turn()
    await bench.send(batch(b"small"))
    tasks = [asyncio.ensure_future(bench.get(0)) for _ in range(large)]
    tasks += [asyncio.ensure_future(bench.get(1)) for _ in range(9)]
    for _ in range(3 if large else 1):  # the large ones, the rest of the event loop, the small ones
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)


async def test_a_crowd_that_waits_is_woken_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await holding_half_a_turn()
    looks = 0
    room = KnownCaller.room

    def counted(self: KnownCaller, most: int) -> int:
        nonlocal looks
        looks += 1
        return room(self, most)

    monkeypatch.setattr(KnownCaller, "room", counted)
    turns = await reads_of_each_turn(bench, *["greedy"] * 100, max_bytes=MIB)
    assert turns == [["greedy"] * 2] * 50
    assert looks == 100


async def test_a_fetch_that_is_cancelled_gives_its_turn_on() -> None:
    bench = await holding_half_a_turn()
    first, second, third, last = (asyncio.ensure_future(bench.get(0, caller=caller)) for caller in "abcd")
    await asyncio.sleep(0)
    assert (first.done(), second.done(), third.done()) == (True, True, False)
    third.cancel()
    assert (await last).records


async def test_appends_beside_waiting_fetches_read_nothing(reads: list[int]) -> None:
    bench = await led(1)
    tasks = await parked(bench, 20, min_bytes=1 << 20)
    del reads[:]
    for _ in range(50):
        await bench.send(ONE)
        await asyncio.sleep(0.01)
    assert not reads
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not len(bench.host.readers) and bench.fetch.waiting == 0


async def test_a_fetch_that_waits_ends_with_the_bytes_it_asked_for(reads: list[int]) -> None:
    bench = await led()
    (task,) = await parked(bench, min_bytes=2 * len(ONE) + 1)
    for _ in range(2):
        await bench.send(ONE)
        await asyncio.sleep(0.01)
        assert not task.done()
    assert not reads
    await bench.send(ONE)
    await asyncio.sleep(0.01)
    assert task.done() and offsets(task.result().records) == [0, 1, 2] and reads == [0]


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 2 * len(ONE)}, {"partition_max_bytes": 2 * len(ONE)}], ids=["request", "partition"]
)
async def test_no_fetch_waits_for_more_than_it_takes(limits: dict[str, int]) -> None:
    bench = await led()
    (task,) = await parked(bench, min_bytes=2**31 - 1, **limits)
    await bench.send(ONE)
    await asyncio.sleep(0.01)
    assert not task.done()
    await bench.send(ONE)
    await asyncio.sleep(0.01)
    assert task.done() and offsets(task.result().records) == [0, 1]


async def test_only_committed_bytes_count(reads: list[int]) -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(ONE, acks=1)
    (task,) = await parked(bench, min_bytes=len(ONE) + 1)
    await bench.send(ONE, acks=1)
    await bench.send(ONE, acks=1)
    await asyncio.sleep(0.01)
    assert not task.done() and not reads
    bench.host.step(follower_at(2))
    await asyncio.sleep(0.01)
    assert task.done() and offsets(task.result().records) == [0, 1]


async def test_a_part_of_an_append_ends_a_wait_for_a_byte() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    (task,) = await parked(bench)
    await bench.send(ONE + ONE, acks=1)
    bench.host.step(follower_at(1))
    await asyncio.sleep(0.01)
    assert task.done() and offsets(task.result().records) == [0]


async def test_appends_without_end_take_little_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_APPENDS_MAX", 2)
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    (task,) = await parked(bench, min_bytes=3 * len(ONE))
    for _ in range(5):
        await bench.send(ONE, acks=1)
    bench.host.step(follower_at(1))
    await asyncio.sleep(0.01)
    assert not task.done()
    bench.host.step(follower_at(5))
    await asyncio.sleep(0.01)
    assert task.done() and offsets(task.result().records) == [0, 1, 2, 3, 4]


async def test_too_many_waiting_fetches_are_refused() -> None:
    bench = await led(1)
    places = Places(10 * (PLACES_OF_FETCH + 1), 3 * (PLACES_OF_FETCH + 1))
    bench.fetch._places = places
    asked = {"min_bytes": 1 << 20}
    tasks = await parked(bench, 3, caller="greedy", **asked)
    with pytest.raises(ThrottlingQuotaExceededError, match="this connection has 78 of 78 places for waiting fetches"):
        await bench.get(0, max_wait_ms=WAIT, caller="greedy", **asked)
    assert offsets((await bench.get(0, caller="greedy")).records) == [0], "one that need not wait is served"
    for number in range(7):
        tasks += await parked(bench, caller=f"other {number}", **asked)
    with pytest.raises(ThrottlingQuotaExceededError, match="this broker has 260 of 260 places"):
        await bench.get(0, max_wait_ms=WAIT, caller="one more", **asked)
    tasks.pop().cancel()
    await asyncio.sleep(0.01)
    tasks += await parked(bench, caller="one more", **asked)
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    assert {(await task).error_code for task in tasks} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
