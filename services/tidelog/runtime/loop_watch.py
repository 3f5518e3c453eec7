"""Watches the event loop from a thread of its own: what keeps it from turning is counted, logged, and ends the session with
ZooKeeper, since a process that does nothing must not keep its place.

The thread asks the loop for a sign of life and counts the periods in which it runs itself and gets none. A process that is
stopped as a whole (SIGSTOP, a debugger, a suspended machine) counts none. Where a step in C holds the interpreter's lock, the
thread cannot run either; the processor time that the process has used tells that from a stop.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

log = logging.getLogger(__name__)

PERIOD_S: Final = 0.05
SLOW_S: Final = 0.1
"""A step of the loop that takes longer is counted and logged. It begins up to a period before the question that it keeps from
being answered, so a step is known to half a period."""
_BUSY_SHARE: Final = 0.1
"""A process that was not stopped has used so much of a processor at least, also on a machine that does much else."""
_SHOWN_AFTER: Final = round(SLOW_S / PERIOD_S)
_SHOWN_MAX: Final = 6
"""Innermost functions that are named."""

Turned = Callable[[float], None]
"""Told by how much the loop was late, in seconds; also for a stop of the whole process."""


class LoopWatch:
    def __init__(self, on_turned: Turned, on_slow: Callable[[float], None]) -> None:
        """`on_slow` is called with the seconds of each step above SLOW_S. Both are called on the loop."""
        self._on_turned = on_turned
        self._on_slow = on_slow
        self._ended = threading.Event()
        self._asked_at: float | None = None
        """Monotonic time of the question that the loop has not answered; None when it has."""
        self._due_at = 0.0
        """When it should have been asked: what stops the whole process stops the thread too."""
        self._asked_cpu = 0.0
        self._missed = 0
        """Periods since the question in which the thread ran."""
        self._seen = ""
        """Functions that the loop was in when it was found to be slow."""

    @property
    def stalled_s(self) -> float:
        """Time for which this process has run and its loop has not turned; from any thread."""
        return self._missed * PERIOD_S

    async def run(self) -> None:
        """Until cancelled; to be given to the supervisor."""
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
        thread = threading.Thread(target=self._ask_again, args=(loop, loop_thread), name="loop watch", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._ended.set()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _ask_again(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        due_at = time.monotonic() + PERIOD_S
        while not self._ended.wait(PERIOD_S):
            missed_at, due_at = due_at, time.monotonic() + PERIOD_S
            if self._asked_at is not None:
                self._missed += 1
                if self._missed == _SHOWN_AFTER:
                    self._seen = _functions(sys._current_frames().get(loop_thread))
                continue
            self._missed = 0
            self._asked_cpu = time.process_time()
            self._due_at = missed_at
            self._asked_at = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                return  # the loop is closed

    # -- on the loop -------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        assert self._asked_at is not None
        now = time.monotonic()
        late = now - self._asked_at
        used = time.process_time() - self._asked_cpu
        ran, seen = self.stalled_s, self._seen
        self._on_turned(now - self._due_at)
        self._missed, self._seen, self._asked_at = 0, "", None
        if late > ran + 2 * PERIOD_S and used < late * _BUSY_SHARE:
            late = ran  # the process as a whole did not run
        took = late + PERIOD_S / 2
        if took >= SLOW_S:
            self._on_slow(took)
            log.warning("a step of the event loop took %.3f s", took, extra={"in": seen} if seen else None)


def _functions(frame: FrameType | None) -> str:
    """The innermost first, such as `read (segment.py:118) < fetch (fetch.py:60)`."""
    if frame is None:
        return ""
    found = traceback.extract_stack(frame)[-_SHOWN_MAX:]
    return " < ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in reversed(found))
