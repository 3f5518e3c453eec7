"""Tasks have an owner, end together, and tell when they fail."""

import asyncio

import pytest

from helpers.log_events import captured_logs
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.runtime.tasks import HandlerBug, Supervisor, TaskFailed, contained


async def forever(ended: list[str] | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if ended is not None:
            ended.append("ended")


async def broken() -> None:
    raise ValueError("a bug")


async def test_a_task_that_raises_is_logged_counted_and_stops_the_group() -> None:
    counted: list[str] = []
    ended: list[str] = []
    group = Supervisor("group", on_failure=counted.append)
    group.start("good", forever(ended))
    group.start("bad", broken())
    with captured_logs() as logs, pytest.raises(TaskFailed, match="bad: ValueError: a bug") as caught:
        await group.wait()
    assert isinstance(caught.value.__cause__, ValueError)
    assert ended == ["ended"] and counted == ["bad"] and group.failures == 1 and group.running == []
    assert [(entry["task"], entry["level"]) for entry in logs] == [("bad", "ERROR")]
    assert isinstance(logs[0]["error"], ValueError)


async def test_a_task_that_returns_leaves_the_others_alone() -> None:
    group = Supervisor()
    task = group.start("quick", asyncio.sleep(0, result=7))
    group.start("good", forever())
    assert await task == 7
    assert group.running == ["good"]
    await group.stop()
    await group.wait()


async def test_a_cancelled_task_is_no_failure() -> None:
    group = Supervisor()
    group.start("good", forever()).cancel()
    await group.wait()
    assert group.failures == 0


async def test_a_task_of_the_group_may_stop_it() -> None:
    group = Supervisor()
    after: list[str] = []

    async def stopper() -> None:
        await group.stop()
        after.append("goes on")

    group.start("good", forever())
    group.start("stopper", stopper())
    await group.wait()
    assert after == ["goes on"]


async def test_nothing_starts_in_a_stopped_group() -> None:
    group = Supervisor()
    await group.stop()
    task = group.start("late", broken())
    await group.wait()
    assert task.cancelled() and group.failures == 0


async def test_a_task_that_is_started_while_the_group_stops_is_stopped_too() -> None:
    group = Supervisor()

    async def respawning() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            group.start("child", forever())

    group.start("parent", respawning())
    await asyncio.sleep(0)
    await group.stop()
    assert group.running == []


async def test_a_bug_in_a_handler_is_contained_and_its_protocol_errors_pass() -> None:
    bugs: list[str] = []

    async def raises(error: Exception) -> None:
        raise error

    async def raises_in_a_group(error: Exception) -> None:
        async with asyncio.TaskGroup():
            raise error

    refused, gone = TidelogError("no", ErrorCode.NOT_CONTROLLER), TransportError("UNAVAILABLE")
    for error in (refused, gone):
        for handler in (raises, raises_in_a_group):
            with pytest.raises(type(error)) as caught:
                await contained("/S/M", handler(error), bugs.append)
            assert caught.value is error
    with captured_logs() as logs, pytest.raises(HandlerBug, match="KeyError in /S/M"):
        await contained("/S/M", raises(KeyError("x")), bugs.append)
    assert bugs == ["/S/M"] and logs[0]["method"] == "/S/M"
    assert await contained("/S/M", asyncio.sleep(0, result=3), bugs.append) == 3
