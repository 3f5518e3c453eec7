"""Looks at batches beside the event loop: those of one caller do not hold up the others, however it leaves."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from helpers.batches import batch
from helpers.broker import BrokerBench
from helpers.compacted import keyed
from tidelog.broker.turns import AT_ONCE, Turns
from tidelog.errors import ErrorCode
from tidelog.testing.disk import SimDisk
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire import records as wire_records

FULL = TopicConfig(min_insync_replicas=1, validate="full")


class Held(SimDisk):
    """A look at batches waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[asyncio.Event] = []

    async def in_background(self, work: Callable[[], Any]) -> Any:
        if isinstance(work, partial):  # it looks at batches; the rest is of the disk
            self.held.append(asyncio.Event())
            await self.held[-1].wait()
        return work()


def _keyed(count: int) -> bytes:
    return keyed(*[(b"k", b"v")] * count, timestamp=1_000)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def sent(bench: BrokerBench, peer: str, value: bytes) -> "asyncio.Task[m.ProduceResponse]":
    part = m.ProducePartition(topic="events", partition=0, leader_epoch=-1, records=batch(value))
    request = m.ProduceRequest(client_id="c", acks=-1, timeout_ms=10_000, partitions=(part,))
    return asyncio.ensure_future(bench.produce(request, peer))


async def test_a_good_batch_waits_for_one_of_each_other_caller() -> None:
    bench = BrokerBench(disk=Held())
    assert isinstance(bench.disk, Held)
    bench.told(config=FULL)
    greedy = [sent(bench, "greedy", b"%d" % number) for number in range(8)]
    await settle()
    good = sent(bench, "good", b"good")
    await settle()
    assert len(bench.disk.held) == 2, "one of each"
    bench.disk.held[1].set()
    assert (await good).results[0].base_offset == 0
    for number, each in enumerate(greedy):
        bench.disk.held[0 if number == 0 else number + 1].set()
        assert (await each).results[0].base_offset == number + 1, "in the order in which they came"
        await settle()


async def test_a_caller_that_leaves_ends_its_turn_with_its_work() -> None:
    bench = BrokerBench(disk=Held())
    assert isinstance(bench.disk, Held)
    bench.told(config=FULL)
    left = [sent(bench, f"gone {number}", b"x") for number in range(AT_ONCE + 1)]
    await settle()
    for each in left:
        each.cancel()
    await settle()
    good = sent(bench, "good", b"good")
    await settle()
    assert len(bench.disk.held) == AT_ONCE, "its thread goes on"
    bench.disk.held[0].set()
    await settle()
    bench.disk.held[-1].set()
    assert (await good).results[0].base_offset == 0
    for event in bench.disk.held:
        event.set()
    assert all(isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*left, return_exceptions=True))


async def test_turns_go_round() -> None:
    turns, done = Turns(at_once=1), []

    async def work(caller: str) -> None:
        async with turns.turn(caller):
            await asyncio.sleep(0)
            done.append(caller)

    await asyncio.gather(*(work(caller) for caller in ("a", "a", "a", "b", "b", "c")))
    assert done == ["a", "a", "b", "c", "a", "b"] or done == ["a", "b", "c", "a", "b", "a"]
    assert not turns._waiting and not turns._working


async def test_a_turn_that_comes_to_a_cancelled_caller_goes_on() -> None:
    turns = Turns(at_once=1)
    entered = asyncio.Event()

    async def work(caller: str) -> None:
        async with turns.turn(caller):
            entered.set()
            await asyncio.sleep(0.01)

    first = asyncio.ensure_future(work("a"))
    await settle()
    waiting = [asyncio.ensure_future(work(caller)) for caller in ("b", "c", "d")]
    await settle()
    waiting[1].cancel()
    await first
    waiting[0].cancel()  # it may have its turn already
    entered.clear()
    await waiting[2]
    assert entered.is_set() and not turns._waiting and not turns._working


@pytest.mark.parametrize(
    "config", [FULL, TopicConfig(min_insync_replicas=1, cleanup_policy="compact")], ids=["full", "compact"]
)
async def test_too_many_records_to_look_at_are_refused(config: TopicConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_records, "RECORDS_MAX", 3)
    bench = BrokerBench()
    bench.told(config=config)
    refused = await bench.send(_keyed(2) + _keyed(2))
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert "they hold 4 records, at most 3 are taken at once" in refused.error_message
    assert (await bench.send(_keyed(3))).error_code is ErrorCode.NONE


async def test_where_no_record_is_looked_at_there_is_no_such_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_records, "RECORDS_MAX", 3)
    bench = BrokerBench()
    bench.told(config=TopicConfig(min_insync_replicas=1, compression_type="zstd"))
    assert (await bench.send(batch(*[b"x"] * 10))).error_code is ErrorCode.NONE
