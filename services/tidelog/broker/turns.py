"""Turns of callers at work that is done beside the event loop: one's work does not hold up the others'."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 2
"""It is work in Python, so more would slow down the event loop and not end sooner."""


class Turns:
    """A caller has one turn at a time, in the order in which it asked; callers that wait take turns."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._working: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waits of each caller; the one that has waited longest for a turn comes first."""

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        if len(self._working) < self._at_once and caller not in self._working and caller not in self._waiting:
            self._working.add(caller)
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._end(caller)

    async def _wait(self, caller: str) -> None:
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._end(caller)  # it came just now
            else:
                self._leave(caller, given)
            raise

    def _leave(self, caller: str, given: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(caller)
        if waiting is not None and given in waiting:
            waiting.remove(given)
            if not waiting:
                del self._waiting[caller]

    def _end(self, caller: str) -> None:
        self._working.remove(caller)
        while len(self._working) < self._at_once and self._begin_next():
            pass

    def _begin_next(self) -> bool:
        for caller in [each for each in self._waiting if each not in self._working]:
            waiting = self._waiting.pop(caller)
            while waiting:
                given = waiting.popleft()
                if given.done():
                    continue  # it is cancelled, and has not run since
                if waiting:
                    self._waiting[caller] = waiting  # behind the others
                self._working.add(caller)
                given.set_result(None)
                return True
        return False
