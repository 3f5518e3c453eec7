"""A simulated loop that ordinary code runs in slices leaves nothing of itself behind, and nothing of it ends by chance."""

import asyncio
import gc
import logging
import threading
import warnings

import pytest

from tidelog.testing.drive import Drive
from tidelog.testing.loop import SimProcess


async def pause(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_time_goes_on_where_the_last_slice_ended() -> None:
    drive = Drive(1)
    assert [drive.run(pause(1.5)) for _ in range(3)] == [1.5, 3.0, 4.5]
    drive.finish()
    drive.finish()


@pytest.mark.real_loop
async def test_the_loop_outside_is_the_running_one_again() -> None:
    loop, drive = asyncio.get_running_loop(), Drive(1)
    inside: list[object] = []

    async def look() -> None:
        inside.append(asyncio.get_running_loop())
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        drive.run(look())
    assert inside == [drive.loop] and asyncio.get_running_loop() is loop
    with drive.at_this_time():
        assert asyncio.get_running_loop() is drive.loop  # type: ignore[comparison-overlap]
    assert asyncio.get_running_loop() is loop
    drive.finish()


def test_collector_log_and_warnings_are_as_they_were() -> None:
    drive, seen = Drive(1), []

    async def look() -> None:
        seen.append((gc.isenabled(), logging.getLogger("x").isEnabledFor(logging.ERROR)))
        warnings.warn("unheard", UserWarning, stacklevel=1)

    drive.run(look())
    assert seen == [(False, False)]
    assert gc.isenabled() and logging.getLogger("x").isEnabledFor(logging.ERROR)
    with pytest.raises(UserWarning):
        warnings.warn("heard", UserWarning, stacklevel=1)
    drive.finish()


@pytest.mark.parametrize("kept", [True, False])
def test_a_killed_process_ends_nothing_before_the_end(kept: bool) -> None:
    """A coroutine that is thrown away runs its `finally` when Python collects it, which nothing determines."""
    drive, ended = Drive(1), []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(1)

    async def begin() -> None:
        process = SimProcess("p")
        process.start("wait", wait())
        await asyncio.sleep(1)
        process.kill()
        if kept:
            drive.keep_remains(process)

    drive.run(begin())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        gc.collect()
        logging.disable(logging.NOTSET)
    assert ended == ([] if kept else [1])
    drive.finish()
    assert ended == [1]


def test_drives_of_two_threads_take_turns() -> None:
    entered, order = threading.Event(), []
    first, second = Drive(1), Drive(2)

    async def long() -> None:
        entered.set()
        order.append("first begins")
        for _ in range(10_000):
            await asyncio.sleep(1)
        order.append("first ends")

    async def short() -> None:
        order.append("second")

    thread = threading.Thread(target=lambda: first.run(long()))
    thread.start()
    entered.wait()
    second.run(short())
    thread.join()
    assert order == ["first begins", "first ends", "second"]
    first.finish()
    second.finish()


def test_an_error_of_what_is_left_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("of a process that was killed")

    async def leave() -> None:
        left.append(asyncio.get_running_loop().create_task(fail()))
        await asyncio.sleep(1)

    left: list[asyncio.Task[None]] = []
    drive = Drive(1)
    drive.run(leave())
    drive.finish()
    assert left.pop().done()
    gc.collect()
    assert not caplog.records
