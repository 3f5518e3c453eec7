"""Clocks of tests: one that a test moves by hand, and one that runs on the simulated loop's time."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

_WALL_MS = 1_600_000_000_000
"""Where the simulated calendar begins."""


class ManualClock:
    """Stands still until `advance`; for tests on an ordinary loop, or on none."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return _WALL_MS + round(self._now * 1000)

    def wall_ns(self) -> int:
        return _WALL_MS * 1_000_000 + round(self._now * 1e9)

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(seconds, 0.0), next(self._order), woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Wakes, in order, whoever sleeps no longer than until then; they run when the caller next awaits."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    @property
    def sleepers(self) -> int:
        """How many wait for a later time."""
        return sum(not woken.done() for _, _, woken in self._sleepers)


class SimClock:
    """A process's clock over the loop's time: it may begin elsewhere, run fast or slow, and show another date."""

    def __init__(self, *, offset_s: float = 0.0, drift: float = 0.0, wall_offset_ms: int = 0) -> None:
        """`drift` 0.01 gains ten milliseconds a second."""
        assert drift > -1
        self._offset_s = offset_s
        self._rate = 1.0 + drift
        self._last = -math.inf
        self.wall_offset_ms = wall_offset_ms
        """May be set at any time: the calendar jumps, monotonic time does not (MUT-28)."""

    def now(self) -> float:
        now = self._offset_s + asyncio.get_running_loop().time() * self._rate
        if self._rate != 1.0:
            # The loop waits by its own time: the rest of a wait by this clock could otherwise become too short to pass.
            now = self._last = max(now, self._last + 1e-9)
        return now

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Undoes what reads within do to a clock that drifts: each moves it by a nanosecond. It is for a look from outside."""
        last = self._last
        yield
        self._last = last

    def wall_ms(self) -> int:
        return _WALL_MS + self.wall_offset_ms + round(asyncio.get_running_loop().time() * 1000)

    def wall_ns(self) -> int:
        return (_WALL_MS + self.wall_offset_ms) * 1_000_000 + round(asyncio.get_running_loop().time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)
