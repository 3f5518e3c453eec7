"""The watch of the event loop: which steps it counts, what it says of them, and what does not count."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from helpers.aio import eventually
from helpers.requirements import requirement
from tidelog.runtime.loop_watch import PERIOD_S, SLOW_S, LoopWatch

pytestmark = pytest.mark.real_loop


class Watched:
    def __init__(self) -> None:
        self.late: list[float] = []
        self.slow: list[float] = []
        self.watch = LoopWatch(self.late.append, self.slow.append)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.watch.run())
        try:
            await eventually(lambda: len(self.late) > 2)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def holds_the_loop(seconds: float) -> None:
    time.sleep(seconds)


def computes_in_c(seconds: float) -> None:
    """Keeps the lock of the interpreter."""
    until = time.monotonic() + seconds
    size = 1_000_000
    while time.monotonic() < until:
        sum(range(size))
        size *= 4


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_a_slow_step_is_counted_and_its_function_named(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    async with watched.running():
        with caplog.at_level(logging.WARNING):
            holds_the_loop(4 * SLOW_S)
            await eventually(lambda: bool(watched.slow))
        (took,) = watched.slow
        assert took > 3 * SLOW_S and max(watched.late) > 3 * SLOW_S
        (said,) = [record for record in caplog.records if "a step of the event loop took" in record.message]
        assert "holds_the_loop (test_loop_watch.py:" in vars(said)["in"]


async def test_a_step_in_c_is_counted_too() -> None:
    watched = Watched()
    async with watched.running():
        computes_in_c(4 * SLOW_S)
        await eventually(lambda: bool(watched.slow))
        assert watched.slow[0] > 3 * SLOW_S


async def test_a_loop_that_turns_has_no_slow_steps() -> None:
    watched = Watched()
    async with watched.running():
        await asyncio.sleep(6 * PERIOD_S)
        assert watched.watch.stalled_s <= SLOW_S


async def test_a_stall_is_known_to_other_threads_while_it_lasts() -> None:
    watched, seen = Watched(), 0.0

    def look() -> None:
        nonlocal seen
        time.sleep(4 * SLOW_S)
        seen = watched.watch.stalled_s

    async with watched.running():
        looking = asyncio.get_running_loop().run_in_executor(None, look)
        holds_the_loop(6 * SLOW_S)
        await looking
        assert seen > SLOW_S
        await eventually(lambda: watched.watch.stalled_s <= PERIOD_S)


def test_a_stop_of_the_whole_process_is_no_step() -> None:
    """Neither the thread ran then, nor was the processor used."""
    watched = Watched()
    watched.watch._asked_at, watched.watch._asked_cpu = time.monotonic() - 20.0, time.process_time()
    watched.watch._missed = 1
    assert watched.watch.stalled_s == PERIOD_S
    watched.watch._answer()
    assert watched.slow == [] and watched.late[0] >= 20.0
