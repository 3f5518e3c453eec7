"""A simulated loop that ordinary code runs for a while, again and again.

It works where another event loop runs in the same thread, as in a notebook: that loop waits meanwhile, as it does for any
other code. Nothing is collected while the simulation runs, and what a killed process leaves behind is kept to the end, since
a coroutine that Python throws away runs its `finally` at a moment that no seed determines.
"""

import asyncio
import gc
import logging
import threading
import warnings
import weakref
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

from tidelog.testing.loop import SimLoop, SimProcess

T = TypeVar("T")

_ONE_AT_A_TIME: Final = threading.RLock()
"""An observer stands behind classes of the whole Python process, so simulations of several threads take turns."""


class Drive:
    """Owns a loop. `finish` ends it; so does the end of the Python process."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.loop.set_exception_handler(lambda loop, context: None)  # an error of a killed process is no news
        self.watching: Callable[[], AbstractContextManager[None]] = nullcontext
        """Called for each run; its context lasts as long as the run."""
        self._remains: list[asyncio.Task[Any]] = []
        self._finish = weakref.finalize(self, _end, self.loop, self._remains)

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs the loop until `coro` returns. Raises what it raises, and what `after_step` of the loop raises."""
        with _ONE_AT_A_TIME, _undisturbed(), self.watching():
            return self.loop.run_until_complete(coro)

    def advance(self, until: float, halted: Callable[[], bool]) -> bool:
        """Runs what is due up to `until`, as `SimLoop.advance` does. Raises what `after_step` of the loop raises."""
        with _ONE_AT_A_TIME, _undisturbed(), self.watching():
            return self.loop.advance(until, halted)

    def call(self, act: Callable[[], T]) -> T:
        """Calls `act` as if it ran in the loop. No time passes, and a call that fails leaves no trace in what follows.

        Raises what it raises, and what `after_step` of the loop raises.
        """
        with _ONE_AT_A_TIME, _undisturbed(), self.watching(), self.at_this_time():
            found = act()
            if self.loop.after_step is not None:
                self.loop.after_step()
        return found

    @contextmanager
    def at_this_time(self) -> Iterator[None]:
        """While it lasts, clocks of simulated processes can be read, though nothing runs."""
        outer = events._get_running_loop()
        events._set_running_loop(self.loop)
        try:
            yield
        finally:
            events._set_running_loop(outer)

    def keep_remains(self, process: SimProcess | None) -> None:
        """Keeps the tasks of a process that was killed."""
        self._remains += [task for task in asyncio.all_tasks(self.loop) if getattr(task, "process", None) is process]

    def finish(self) -> None:
        """Ends everything that runs. Further calls do nothing."""
        self._finish()


@contextmanager
def _undisturbed() -> Iterator[None]:
    outer, collects, silenced = events._get_running_loop(), gc.isenabled(), logging.root.manager.disable
    events._set_running_loop(None)
    gc.disable()
    logging.disable()  # what simulated processes log is not of this process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a killed process leaves coroutines that never ended
            yield
    finally:
        events._set_running_loop(outer)
        logging.disable(silenced)
        if collects:
            gc.enable()


def _end(loop: SimLoop, remains: list[asyncio.Task[Any]]) -> None:
    with _ONE_AT_A_TIME, _undisturbed():
        loop.finish()
        remains.clear()
