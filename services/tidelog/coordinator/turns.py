"""Turns at writing: how many consumers' streams do so at a time."""

import asyncio
import itertools
from collections import deque


class Turns:
    """At most `most` are taken at a time, in the order of asking. One that is kept for longer than `seconds` does not count:
    a consumer that does not read keeps nobody waiting.

    gRPC's thread tells the event loop of each write that is done through a pipe that holds a few hundred notes. When it is
    full that thread waits, and answers no HTTP/2 ping: with 1,500 writes under way at a loop that was busy for 3 s, every
    connection of the process was given up as dead.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._taken: dict[int, float] = {}
        """Since when, oldest first."""
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._numbers = itertools.count()
        self._look_again: asyncio.TimerHandle | None = None

    async def take(self) -> int:
        if len(self._taken) < self._most:
            return self._next()
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._watch()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self.give_back(future.result())
            raise

    def give_back(self, turn: int) -> None:
        if self._taken.pop(turn, None) is not None:
            self._admit()

    def _next(self) -> int:
        turn = next(self._numbers)
        self._taken[turn] = asyncio.get_running_loop().time()
        return turn

    def _admit(self) -> None:
        while self._waiting and len(self._taken) < self._most:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(self._next())

    def _watch(self) -> None:
        if self._look_again is None:
            self._look_again = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def _look(self) -> None:
        self._look_again = None
        too_old = asyncio.get_running_loop().time() - self._seconds
        for turn in [turn for turn, since in self._taken.items() if since <= too_old]:
            del self._taken[turn]
        self._admit()
        if self._waiting:
            self._watch()
