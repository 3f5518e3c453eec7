"""Time, as a port. Nothing else in the package may ask what time it is."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic seconds; the only time that leases, lag and deadlines know."""
        ...

    def wall_ms(self) -> int:
        """Unix time in milliseconds; for record timestamps, retention and log lines only (MUT-28)."""
        ...

    def wall_ns(self) -> int:
        """The same in nanoseconds; for protocol events only."""
        ...

    async def sleep(self, seconds: float) -> None: ...
