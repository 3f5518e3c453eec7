"""Work on the event loop that is done in portions: everything else runs between them."""

import asyncio
from collections import deque
from typing import Final

_WOKEN: Final = 16
"""The most that are woken in one turn of the event loop. Most of them find that those before them have taken the portion, so to
wake all each time could be more work than what they wait for."""


class Pace:
    def __init__(self, portion: int) -> None:
        """`portion` is in any unit. The work that exceeds it is still done, as the last of that turn of the event loop."""
        self._portion = portion
        self._done = 0
        self._rests = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Returns once this turn of the event loop has some of its portion left; at once if it has."""
        while self._done >= self._portion:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def spend(self, work: int) -> None:
        self._done += work
        if self._done >= self._portion:
            self._rest()

    def _rest(self) -> None:
        if not self._rests:
            self._rests = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._done, self._rests = 0, False
        for _ in range(min(_WOKEN, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its caller has left
                waiter.set_result(None)
        if self._waiting:
            self._rest()
