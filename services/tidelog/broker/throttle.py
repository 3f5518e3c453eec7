"""How much of what moves copy a broker sends or takes in a second (KIP-73): only copies that are not in the ISR wait for it."""

from collections.abc import Callable
from typing import Final

from tidelog.ports.clock import Clock

BURST_S: Final = 0.2
"""What was not used is kept for so long: longer than the pauses after which somebody looks whether he may go on."""
_ROUNDING: Final = 1e-3
"""Of a byte: who has waited as long as he was told finds one."""


class Quota:
    """A bucket that may be overdrawn once: what is in it is exact over time, whatever the size of a batch."""

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        """`rate` is asked each time, in bytes a second; 0: no limit."""
        self._clock = clock
        self._rate = rate
        self._left_bytes = 0.0
        self._at = clock.now()

    def allowance_bytes(self) -> int | None:
        """How much may be sent now; None: any amount, 0: nothing."""
        rate, now = self._rate(), self._clock.now()
        self._left_bytes = min(BURST_S * rate, self._left_bytes + (now - self._at) * rate)
        self._at = now
        return max(0, int(self._left_bytes + _ROUNDING)) if rate else None

    def used(self, size_bytes: int) -> None:
        if self._rate():  # what is copied without a limit is not held against a later one
            self._left_bytes -= size_bytes

    def wait_s(self) -> float:
        """Until something may be sent again."""
        if self.allowance_bytes() != 0:
            return 0.0
        return (1.0 - self._left_bytes) / self._rate()
