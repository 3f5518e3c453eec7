"""A pytest plugin: an `async def` test runs on the simulator's loop, or on a real one where it is marked.

* Virtual time is the default (`tidelog.testing.loop`): no test waits, and a deadlock is an error. The argument `seed` of a test
  also shuffles the steps of tasks that are ready together; without it they run in the order of asyncio.
* `@pytest.mark.real_loop`, and every test that starts processes or containers: asyncio's own loop. The test also fails when it
  leaves a task behind.
* A fixture that is an async generator is set up in the loop of its test, and ends there.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from helpers import aio
from tidelog.testing import loop as sim

REAL = ("real_loop", "integration", "compose")
CLEAN_UP_S = 5.0
"""Time that a test on a real loop has to end in order before pytest-timeout ends it."""


class LoopFixture:
    """An async fixture that has not begun yet."""

    def __init__(self, function: Callable[..., AsyncIterator[Any]], arguments: Mapping[str, Any]) -> None:
        self._begin = asynccontextmanager(function)
        self._arguments = arguments

    async def enter(self, stack: AsyncExitStack, begun: dict[int, Any]) -> Any:
        if id(self) not in begun:
            arguments = await entered(self._arguments, stack, begun)
            begun[id(self)] = await stack.enter_async_context(self._begin(**arguments))
        return begun[id(self)]


async def entered(arguments: Mapping[str, Any], stack: AsyncExitStack, begun: dict[int, Any]) -> dict[str, Any]:
    """The arguments of a test or a fixture, with async fixtures begun; each begins once a test."""
    values = {}
    for name, value in arguments.items():
        values[name] = await value.enter(stack, begun) if isinstance(value, LoopFixture) else value
    return values


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> object | None:
    if not inspect.isasyncgenfunction(fixturedef.func):
        return None
    arguments = {name: request.getfixturevalue(name) for name in fixturedef.argnames}
    fixture = LoopFixture(fixturedef.func, arguments)
    fixturedef.cached_result = (fixture, fixturedef.cache_key(request), None)
    return fixture


async def story(test: Callable[..., Coroutine[Any, Any, None]], arguments: Mapping[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        await test(**await entered(arguments, stack, {}))


def run_here(item: pytest.Function, coroutine: Coroutine[Any, Any, None], seed: int | None) -> None:
    if any(map(item.get_closest_marker, REAL)):
        limit = item.get_closest_marker("timeout")
        aio.run(coroutine, timeout_s=float(limit.args[0] if limit else item.config.getini("timeout")) - CLEAN_UP_S)
    else:
        sim.run(coroutine, seed)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    test = pyfuncitem.obj
    if hypothesis_handle := getattr(test, "hypothesis", None):  # @given calls the coroutine once an example
        inner = hypothesis_handle.inner_test
        if inspect.iscoroutinefunction(inner):

            @functools.wraps(inner)
            def example(**arguments: Any) -> None:
                run_here(pyfuncitem, story(inner, arguments), arguments.get("seed"))

            hypothesis_handle.inner_test = example
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_here(pyfuncitem, story(test, arguments), arguments.get("seed"))
    return True
