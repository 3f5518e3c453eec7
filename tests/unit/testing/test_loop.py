"""The simulator's loop and clocks: virtual time, seeded order, deadlocks, and processes that stop and die."""

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.runtime.tasks import Supervisor
from tidelog.testing import loop as sim
from tidelog.testing.clock import ManualClock, SimClock
from tidelog.testing.loop import Deadlock, Livelock, SimLoop, SimProcess
from tidelog.testing.rand import seeded


async def workers(trace: list[str]) -> None:
    """Ten tasks that compete for every turn."""
    group = Supervisor()
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def worker(name: str) -> None:
        for turn in range(5):
            await asyncio.sleep(0 if turn % 2 else 0.001)
            queue.put_nowait(f"{name}{turn}")

    for number in range(10):
        group.start(f"w{number}", worker(f"w{number}"))
    await group.wait()
    while not queue.empty():
        trace.append(queue.get_nowait())


def trace_of(seed: int | None) -> str:
    trace: list[str] = []
    sim.run(workers(trace), seed)
    assert len(trace) == 50
    return " ".join(trace)


def test_equal_seeds_give_equal_runs_and_others_differ() -> None:
    traces = [trace_of(seed) for seed in range(8)]
    assert traces == [trace_of(seed) for seed in range(8)]
    assert len(set(traces)) == 8


def test_the_hash_seed_changes_nothing() -> None:
    program = "from unit.testing.test_loop import trace_of; print(trace_of(7))"
    tests = str(Path(__file__).parents[2])
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{tests}:{tests}/../services"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "2")
    }
    assert runs == {trace_of(7)}


def test_without_a_seed_tasks_run_first_in_first_out() -> None:
    assert trace_of(None).split()[:10] == [f"w{n}0" for n in range(10)]


@pytest.mark.parametrize("seed", range(5))
async def test_callbacks_keep_their_order_under_every_seed(seed: int) -> None:
    seen: list[int] = []
    for number in range(20):
        asyncio.get_running_loop().call_soon(seen.append, number)
    await asyncio.sleep(0.1)
    assert seen == list(range(20))


async def test_twenty_minutes_pass_in_no_time() -> None:
    start = time.perf_counter()
    for _ in range(1200):
        await asyncio.sleep(1.0)
    assert asyncio.get_running_loop().time() == pytest.approx(1200.0)
    assert time.perf_counter() - start < 60.0, "the virtual time was waited for"


async def waits_for_ever() -> None:
    group = Supervisor()
    group.start("waits for godot", asyncio.Event().wait())
    await group.wait()


def test_a_deadlock_is_an_error_that_names_who_waits() -> None:
    with pytest.raises(Deadlock, match="waits for godot"):
        sim.run(waits_for_ever(), 1)


async def works_without_end_after_seven_seconds() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    await asyncio.sleep(7)
    again()
    await asyncio.sleep(1)


def test_work_without_end_at_one_instant_is_an_error_that_says_when() -> None:
    with pytest.raises(Livelock, match=r"at 7\.000 s"):
        sim.run(works_without_end_after_seven_seconds(), 1)


async def sleeps_on() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.001)


async def goes_on_at_once() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


async def has_an_heir() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        Supervisor().start("heir", has_an_heir())


async def fails_beside(endless: Coroutine[None, None, None]) -> None:
    Supervisor().start("endless", endless)
    for _ in range(3):
        await asyncio.sleep(0)
    raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore")  # what does not end is left as it is
@pytest.mark.timeout(60)
@pytest.mark.parametrize("endless", [sleeps_on, goes_on_at_once, has_an_heir])
def test_what_has_ended_a_run_is_told_although_a_task_heeds_no_cancellation(
    endless: Callable[[], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim, "_STEPS_AT_ONCE_MAX", 5_000)
    with pytest.raises(ZeroDivisionError):
        sim.run(fails_beside(endless()), 1)
    gc.collect()  # what is left ends here, and not in another test


async def waits(number: int, until: asyncio.Event, ended: list[int]) -> None:
    try:
        await until.wait()
    finally:
        ended.append(number)


async def five_wait_and_the_first_end_is_an_error(ended: list[int]) -> None:
    loop, group, go = asyncio.get_running_loop(), Supervisor(), asyncio.Event()
    assert isinstance(loop, SimLoop)
    for number in range(5):
        group.start("waits", waits(number, go, ended))
    await asyncio.sleep(1)

    def found() -> None:
        if ended:
            raise ZeroDivisionError

    go.set()  # all five are about to run
    loop.after_step = found
    await asyncio.sleep(1)


def test_who_was_ready_when_a_run_was_ended_ends_too() -> None:
    ended: list[int] = []
    with pytest.raises(ZeroDivisionError):
        sim.run(five_wait_and_the_first_end_is_an_error(ended), 1)
    assert sorted(ended) == list(range(5))


async def test_timeouts_and_threads_work_in_virtual_time() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == pytest.approx(60.0)
    assert await asyncio.to_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)


class Ticker:
    """A process that counts seconds."""

    def __init__(self) -> None:
        self.process = SimProcess("ticker")
        self.ticks: list[float] = []
        self.ended = False
        self.process.start("parent", self._spawn())

    async def _spawn(self) -> None:
        self.process.supervisor.start("child", self._tick())  # inherits the process

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                self.ticks.append(asyncio.get_running_loop().time())
        finally:
            self.ended = True


@pytest.mark.parametrize("seed", range(3))
async def test_a_paused_process_runs_nothing_and_goes_on_late(seed: int) -> None:
    ticker = Ticker()
    await asyncio.sleep(2.5)
    ticker.process.pause()
    await asyncio.sleep(10.0)
    assert ticker.ticks == pytest.approx([1.0, 2.0])
    ticker.process.resume()
    await asyncio.sleep(1.1)
    assert ticker.ticks == pytest.approx([1.0, 2.0, 12.5, 13.5])


async def kills_its_ticker() -> Ticker:
    ticker = Ticker()
    await asyncio.sleep(2.5)
    ticker.process.kill()
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    await asyncio.sleep(10.0)
    assert ticker.ticks == pytest.approx([1.0, 2.0]) and not ticker.ended
    return ticker


def test_a_killed_process_runs_nothing_any_more_not_even_its_finally() -> None:
    ticker = sim.run(kills_its_ticker(), 1)
    assert ticker.ended, "its coroutines are closed when the simulation is over"


async def test_on_step_shows_who_runs_when() -> None:
    steps: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    loop.on_step = lambda at, name: steps.append((at, name))
    group = Supervisor()
    group.start("sleeper", asyncio.sleep(2.0))
    await group.wait()
    assert [step for step in steps if step[1] == "sleeper"] == [(0.0, "sleeper"), (2.0, "sleeper")]


async def test_a_simulated_clock_drifts_and_its_calendar_jumps() -> None:
    right, fast = SimClock(), SimClock(offset_s=50.0, drift=0.1)
    start, wall = fast.now(), right.wall_ms()
    await fast.sleep(11.0)
    assert right.now() == pytest.approx(10.0) and fast.now() - start == pytest.approx(11.0)
    assert right.wall_ms() - wall == 10_000
    right.wall_offset_ms = -3_600_000
    assert right.now() == pytest.approx(10.0) and right.wall_ms() < wall


async def test_a_manual_clock_moves_only_by_hand() -> None:
    clock, woken = ManualClock(), []
    group = Supervisor()

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    for seconds in (3.0, 1.0, 2.0):
        group.start("sleeper", sleeper(seconds))
    await asyncio.sleep(0)
    assert clock.sleepers == 3
    clock.advance(2.0)
    await asyncio.sleep(0)
    assert woken == [1.0, 2.0] and clock.sleepers == 1
    before = clock.wall_ms()
    clock.advance(1.0)
    assert clock.wall_ms() - before == 1000
    await group.wait()


def test_named_streams_of_random_numbers_are_apart() -> None:
    assert seeded(1, "a").random() == seeded(1, "a").random()
    assert len({seeded(1, "a").random(), seeded(1, "b").random(), seeded(2, "a").random()}) == 3
