"""A consumer's lease (design section 5): it may fetch until it sent the newest message that has arrived + session timeout.

Judged by the consumer's own monotonic clock. The coordinator gives a partition away only when a session timeout and a drift
margin have passed since that message arrived, so a message that is lost, either way, never makes two owners.
"""

from collections import deque
from typing import Final

NEVER: Final = float("-inf")


class Lease:
    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque()
        self.until = NEVER

    def next_number(self, now: float) -> int:
        """Of the message that is about to be sent."""
        self._number += 1
        while self._sent and self._sent[0][1] + self._session_s <= now:
            self._sent.popleft()  # it could no longer give anything
        self._sent.append((self._number, now))
        return self._number

    def arrived(self, number: int) -> None:
        """The coordinator has said that `number` is the newest that has reached it."""
        while self._sent and self._sent[0][0] <= number:
            sent, at = self._sent.popleft()
            if sent == number:
                self.until = max(self.until, at + self._session_s)

    def holds(self, now: float) -> bool:
        return now < self.until

    def end(self) -> None:
        self.until = NEVER
