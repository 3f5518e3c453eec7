"""Asynchronous tests without a plugin: `run(story())`, and waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TASKS_END_S = 5.0


def run(story: Coroutine[Any, Any, T], *, timeout_s: float = 30.0) -> T:
    """Runs a test's coroutine on a fresh loop; fails if it leaves a task behind."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            result = await story
        # What was cancelled ends in the next turns; grpc ends its own tasks a little after a call.
        await eventually(lambda: len(asyncio.all_tasks()) == 1, "the end of every task", timeout_s=TASKS_END_S)
        return result

    return asyncio.run(bounded())


async def eventually(condition: Callable[[], Any], what: str = "the condition", *, timeout_s: float = 10.0) -> None:
    """Polls until `condition` is true; fails and names it after `timeout_s`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come in {timeout_s} s; tasks: {tasks}"
        await asyncio.sleep(0.005)


def now() -> float:
    """The time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()
