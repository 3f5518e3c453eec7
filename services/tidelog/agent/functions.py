"""Handler `package.module:function`: what somebody else has written."""

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tidelog.agent.handler import Immediate, Records
from tidelog.config import ConfigError

Function = Callable[[list[Any]], Awaitable[object] | object]


class FunctionHandler(Immediate):
    """Calls it with a list of ConsumerRecords of one partition, which it has processed when it returns.

    One that is not `async def` runs in a thread, so that it may block: pings are answered meanwhile (OPEN-02).
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
        )

    async def handle(self, records: Records) -> None:
        if self._asynchronous:
            result = self._function(list(records))
            assert inspect.isawaitable(result)
            await result
        else:
            await asyncio.to_thread(partial(self._function, list(records)))


def load_function(entry_point: str) -> Function:
    """ConfigError in one line when there is no such function."""
    module_name, colon, path = entry_point.partition(":")
    if not (module_name and colon and path):
        raise ConfigError(f"handler: {entry_point!r} is no built-in handler and not package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"handler: cannot import {module_name!r}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"handler: module {module_name!r} has no {path!r}")
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(f"handler: {entry_point} cannot be called: it is a {type(found).__name__}")
    function: Function = found
    return function
