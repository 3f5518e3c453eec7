"""How long ISR expansions wait for company before they are asked for (OPEN-19, C5.03).

Each AlterIsr request is a write of the metadata store and news for every broker. When a broker returns, its partitions come
into sync one after the other: a short wait makes few requests of many. Nobody misses a record meanwhile, since a follower
that is about to join is waited for already.
"""

from typing import Final

QUIET_SHARE: Final = 1 / 4
"""Of the longest wait: when nothing has joined for that long, nothing is about to."""


class ExpandWindow:
    """Adapts by itself: one expansion alone waits for the quiet time, a wave of them as long as it lasts, and none longer
    than `longest_s`. What may not wait takes everything with it."""

    def __init__(self, longest_s: float) -> None:
        """0: nothing waits."""
        self._longest_s = longest_s
        self._first_at: float | None = None
        self._last_at = 0.0
        self._at_once = False

    def add(self, now: float, *, may_wait: bool) -> None:
        """A proposal was made."""
        if not may_wait:
            self._at_once = True
        elif self._first_at is None:
            self._first_at = now
        self._last_at = now

    def left_s(self, now: float) -> float:
        """Seconds until the request is due; 0 when it is."""
        if self._at_once or self._first_at is None:
            return 0.0
        due_at = min(self._first_at + self._longest_s, self._last_at + self._longest_s * QUIET_SHARE)
        return max(0.0, due_at - now)

    def taken(self) -> None:
        """The request is on its way; what comes now waits for the next one."""
        self._first_at = None
        self._at_once = False
