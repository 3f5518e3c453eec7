"""Tasks with an owner: nothing runs in the background that nobody waits for.

The only module that makes tasks, and the only one that catches every exception: a bug in a background task is logged with its
name, counted, and stops the group it belongs to; a bug in a request handler is logged, counted, and answered.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidelog.errors import TidelogError, TransportError
from tidelog.ports.recorder import CAUSE

T = TypeVar("T")

log = logging.getLogger(__name__)


class TaskFailed(Exception):
    """A task of a group raised; the cause is its exception."""


class MustEnd(TidelogError):
    """A reason for this process to end that is no bug, such as another process in its place. Its message is all that is said."""


class HandlerBug(Exception):
    """A request handler raised something that is no part of its protocol; the cause is that exception."""


class Supervisor:
    """A group of tasks that end together: when one raises, all are cancelled and `wait` raises TaskFailed.

    A task that returns simply leaves the group. Works on any event loop, the simulated one too.
    """

    def __init__(self, name: str = "", on_failure: Callable[[str], None] = lambda task: None) -> None:
        """`on_failure` is called with the name of a task that raised; metrics count it."""
        self.name = name
        self.failures = 0
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failure: TaskFailed | None = None
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(
        self, name: str, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T | None]:
        """Runs `coro`; the returned task may be cancelled or awaited, but need not be. In a stopped group it never runs.

        It gets a copy of `context`, or of the present one; what led to this call is not the cause of what it does.
        """
        context = contextvars.copy_context() if context is None else context.copy()
        context.run(CAUSE.set, None)
        task = asyncio.create_task(self._run(name, coro), name=name, context=context)
        self._tasks[task] = None
        self._idle.clear()
        task.add_done_callback(self._leave)
        task.add_done_callback(lambda _: coro.close())  # one that was cancelled before its first step never started
        if self._stopping:
            task.cancel()
        return task

    @property
    def failure(self) -> TaskFailed | None:
        """Of the first task that raised."""
        return self._failure

    @property
    def running(self) -> list[str]:
        """Names of the tasks that have not ended."""
        return [task.get_name() for task in self._tasks]

    async def wait(self) -> None:
        """Until every task has ended. TaskFailed if one of them raised."""
        await self._idle.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Cancels every task and waits until they have ended; a task of the group may call it and goes on itself."""
        self._stopping = True
        here = asyncio.current_task()
        while others := [task for task in self._tasks if task is not here]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def _run(self, name: str, coro: Coroutine[Any, Any, T]) -> T | None:
        try:
            return await coro
        except Exception as error:
            self.failures += 1
            if not isinstance(error, MustEnd):
                log.error("task failed, its group stops", exc_info=error, extra={"group": self.name, "task": name})
            if self._failure is None:
                self._failure = TaskFailed(f"{name}: {type(error).__name__}: {error}")
                self._failure.__cause__ = error
            self._on_failure(name)
            self._stopping = True
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            return None

    def _leave(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not self._tasks:
            self._idle.set()


async def to_its_end(work: Awaitable[T]) -> T:
    """Returns what `work` returns. A caller that is cancelled waits for its end all the same: what runs in a thread cannot be
    stopped, and counts until then."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def contained_step(name: str, step: Callable[[], T]) -> T:
    """Returns what `step` returns, and raises its TidelogError; any other exception is logged and becomes HandlerBug."""
    try:
        return step()
    except TidelogError:
        raise
    except Exception as error:
        log.error("bug in a step", exc_info=error, extra={"step": name})
        raise HandlerBug(f"{type(error).__name__} in {name}: {error}") from error


async def contained(name: str, handler: Awaitable[T], on_bug: Callable[[str], None]) -> T:
    """What `handler` returns or raises of its protocol (TidelogError, TransportError); HandlerBug for anything else.

    A request that finds a bug must not end the process, which serves others. A handler with a task group raises even an
    error of its protocol wrapped.
    """
    try:
        return await handler
    except (TidelogError, TransportError):
        raise
    except Exception as error:
        match error:
            case ExceptionGroup(exceptions=(TidelogError() | TransportError() as alone,)):
                raise alone from None
        log.error("bug in a request handler", exc_info=error, extra={"method": name})
        on_bug(name)
        raise HandlerBug(f"{type(error).__name__} in {name}; the log of the process has the trace") from error
