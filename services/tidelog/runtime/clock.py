"""The clock of the operating system, and one that does not follow its jumps ahead."""

import asyncio
import time
from typing import Final

_GAIN_MAX: Final = 1.0
"""Seconds that the clock of retention may gain in a second."""


class SystemClock:
    """`ports.clock.Clock` over CLOCK_MONOTONIC, which goes on while the process is stopped."""

    now = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RetentionClock:
    """The wall clock, but it gains on the monotonic one no faster than the latter runs.

    A clock that is set forward by an hour must not delete an hour of what is still to be kept, neither records nor groups.
    The hour is made up for within an hour, so that a clock that was set right is believed in the end; one that is
    set back is believed at once, since that keeps more.
    """

    def __init__(self, wall_ms: float, now: float) -> None:
        self._ms = wall_ms
        self._at = now

    def read(self, wall_ms: float, now: float) -> float:
        """Unix time in ms, given both clocks as they are."""
        elapsed_ms = (now - self._at) * 1000
        self._ms, self._at = min(wall_ms, self._ms + elapsed_ms * (1 + _GAIN_MAX)), now
        return self._ms
