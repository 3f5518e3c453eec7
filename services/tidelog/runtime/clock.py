"""The clock of the operating system."""

import asyncio
import time


class SystemClock:
    """`ports.clock.Clock` over CLOCK_MONOTONIC, which goes on while the process is stopped."""

    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
