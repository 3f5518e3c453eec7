"""A run in parts: it stops where it is told to, and is the same as a run at once."""

import asyncio
import math
from collections.abc import Callable

import pytest

from tidelog.testing.loop import Deadlock, SimLoop


def start(loop: SimLoop, log: list[tuple[float, str]]) -> None:
    """Starts tasks that wake each other, several at a time, whose order the seed draws."""

    async def work(name: str) -> None:
        for _ in range(20):
            log.append((round(loop.time(), 3), name))
            await asyncio.sleep(0.1)
            await asyncio.sleep(0)

    async def begin() -> None:
        tasks.extend(loop.create_task(work(name)) for name in "abcde")

    tasks: list[asyncio.Task[None]] = []
    loop.run_until_complete(begin())
    loop.tasks = tasks  # type: ignore[attr-defined]  # kept, as the loop itself keeps none


def played(advance: Callable[[SimLoop], None]) -> list[tuple[float, str]]:
    loop, log = SimLoop(7), list[tuple[float, str]]()
    start(loop, log)
    advance(loop)
    loop.finish()
    return log


def at_once(loop: SimLoop) -> None:
    assert loop.advance(1.5, lambda: False)


def by_steps(loop: SimLoop) -> None:
    while not loop.advance(1.5, lambda: True):
        pass


def by_time(loop: SimLoop) -> None:
    for tenth in range(1, 16):
        assert loop.advance(tenth / 10 - 0.03, lambda: False)
    assert loop.advance(1.5, lambda: False)


@pytest.mark.parametrize("parts", [by_steps, by_time])
def test_a_run_in_parts_is_the_same_as_one_at_once(parts: Callable[[SimLoop], None]) -> None:
    expected = played(at_once)
    assert played(parts) == expected
    assert [name for _, name in expected[5:10]] != list("abcde"), "the order is drawn, else this shows nothing"


def test_the_clock_is_at_the_end_though_nothing_is_due() -> None:
    loop = SimLoop(1)
    assert loop.advance(3.0, lambda: False) and loop.time() == 3.0
    assert loop.advance(1.0, lambda: False) and loop.time() == 3.0
    loop.finish()


def test_a_deadlock_is_told_where_the_run_must_go_on() -> None:
    loop = SimLoop(1)
    loop.must_go_on = True
    loop.call_later(2.0, lambda: None)
    assert loop.advance(1.0, lambda: False) and loop.time() == 1.0
    with pytest.raises(Deadlock, match=r"at 2\.000 s nothing can go on"):
        loop.advance(math.inf, lambda: False)
    loop.finish()


def test_it_halts_right_after_the_step_that_was_meant() -> None:
    loop, log = SimLoop(7), list[tuple[float, str]]()
    start(loop, log)
    assert not loop.advance(1.5, lambda: len(log) == 8)
    assert len(log) == 8 and loop.time() == 0.1
    loop.finish()
