"""When what is due: the ping scheduler's priority queue (A9), and the purgatory's watchers (A10)."""

import heapq
from collections.abc import Hashable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Keys in the order of their times. A key has one time; to set it again moves it."""

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, at: float) -> None:
        self._at[key] = at
        self._count += 1  # equal times come out in the order in which they were set
        heapq.heappush(self._heap, (at, self._count, key))

    def clear(self, key: K) -> None:
        """Harmless for one that is not set. What is cleared leaves the heap when its time comes."""
        self._at.pop(key, None)

    def next_at(self) -> float | None:
        while self._heap:
            at, _, key = self._heap[0]
            if self._at.get(key) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> K | None:
        """The first key whose time has come, which is then no longer set; None when there is none."""
        at = self.next_at()
        if at is None or at > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._at[key]
        return key

    def postpone_all(self, seconds: float) -> None:
        """Everything that is set comes so much later (COORD-8)."""
        entries = [(at + seconds, key) for key, at in self._at.items()]
        self._heap.clear()
        for at, key in sorted(entries, key=lambda entry: entry[0]):
            self.set(key, at)


class Asked(Enum):
    """The three kinds of request whose answers the purgatory watches."""

    PING = "ping"
    STOP = "stop"
    START = "start"


class MemberKey(NamedTuple):
    group_id: str
    consumer_id: str


class Watcher(NamedTuple):
    """Of one request; `number` tells the pings of one consumer apart, of which two may be unanswered at a time."""

    asked: Asked
    member: MemberKey
    number: int = 0
