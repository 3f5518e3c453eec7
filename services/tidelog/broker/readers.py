"""Fetches that wait for records. They are told how many bytes are committed, so that none has to read to find out."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from tidelog.errors import ErrorCode, TidelogError

PLACES: Final = 250_000
"""Places for waiting fetches. A fetch takes one for each partition that it names, and PLACES_OF_FETCH more. A place stands for
about 400 bytes."""
PLACES_OF_CALLER: Final = 25_000
"""Places for the fetches of one connection: two of the largest, or about a thousand small ones."""
PLACES_OF_FETCH: Final = 25
_APPENDS_MAX: Final = 1_000
"""Appends that are counted one by one until they are committed."""


class Wakeup:
    """One fetch that waits on several partitions for `least` bytes."""

    __slots__ = ("_event", "_left")

    def __init__(self, least: int) -> None:
        self._left = least
        self._event = asyncio.Event()

    @property
    def enough(self) -> bool:
        return self._left <= 0

    def came(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left <= 0:
            self._event.set()

    def fire(self) -> None:
        """Something else has changed, so it must look again."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Returns when it is to look again, or when the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()


class Readers:
    """The fetches that wait on one partition, which its leader tells of what it appends and commits."""

    __slots__ = ("_appends", "_rooms")

    def __init__(self) -> None:
        self._rooms: dict[Wakeup, int] = {}
        """Bytes that each still takes from this partition."""
        self._appends: deque[tuple[int, float]] | None = None
        """End and bytes of what is not committed, in order. None while no fetch waits."""

    def __len__(self) -> int:
        return len(self._rooms)

    def add(self, reader: Wakeup, room: int, high_watermark: int, log_end: int) -> None:
        """`room`: the bytes that it takes beyond those up to the high watermark."""
        if self._appends is None:
            self._appends = deque([(log_end, inf)] if high_watermark < log_end else ())  # these were not counted
        self._rooms[reader] = room

    def remove(self, reader: Wakeup) -> None:
        if self._rooms.pop(reader, None) is not None and not self._rooms:
            self._appends = None

    def appended(self, end: int, size_bytes: int) -> None:
        if self._appends is None:
            return
        before = self._appends.pop()[1] if len(self._appends) >= _APPENDS_MAX else 0
        self._appends.append((end, before + size_bytes))

    def committed(self, high_watermark: int) -> None:
        if self._appends is None:
            return
        size_bytes: float = 0
        while self._appends and self._appends[0][0] <= high_watermark:
            size_bytes += self._appends.popleft()[1]
        # A part of an append counts as a byte: most fetches wait for no more.
        for reader, room in self._rooms.items():
            taken = int(min(max(1, size_bytes), room))
            self._rooms[reader] = room - taken
            reader.came(taken)

    def fire(self) -> None:
        for reader in self._rooms:
            reader.fire()


class Places:
    """Bounds how many fetches wait, of all callers and of each: what a waiting fetch names stays in memory."""

    def __init__(self, most: int = PLACES, of_caller: int = PLACES_OF_CALLER) -> None:
        self._most = most
        self._of_caller = of_caller
        self._taken: Counter[str] = Counter()
        self._all = 0

    @contextmanager
    def taken(self, caller: str, partitions: int) -> Iterator[None]:
        """THROTTLING_QUOTA_EXCEEDED when there is no room for another."""
        count = partitions + PLACES_OF_FETCH
        if self._taken[caller] + count > self._of_caller and self._taken[caller]:
            raise _refusal("this connection has", self._taken[caller], self._of_caller)
        if self._all + count > self._most:
            raise _refusal("this broker has", self._all, self._most)
        self._taken[caller] += count
        self._all += count
        try:
            yield
        finally:
            self._all -= count
            self._taken[caller] -= count
            if not self._taken[caller]:
                del self._taken[caller]


def _refusal(whose: str, taken: int, most: int) -> TidelogError:
    return TidelogError(
        f"{whose} {taken} of {most} places for waiting fetches taken, one for each partition and {PLACES_OF_FETCH} for each "
        "fetch: wait for answers before asking for more",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
