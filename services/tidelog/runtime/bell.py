"""What wakes the one task that waits for it, and lets it run."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE: Final = 1_000
"""Items of a request that are looked at in one turn of the event loop: some 3 ms."""
TURN_S: Final = 0.05
"""The longest that calls which need not wait keep other tasks from running, beside the work of their caller."""
_NEVER: Final = float("-inf")
_STEPS: Final = 4
"""A message is read in one turn of the loop, handled in the next and answered in a third."""


class Bell:
    """An `asyncio.Event` for one waiter, which clears it by waking: half the work of each record's wakings is that class's
    list of waiters."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until it has rung since the last wait; however often that was, it counts once."""
        if not self._rung:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._rung = False


async def give_way() -> None:
    """Whoever has been woken runs first: a reader that asks gRPC for the next message before would keep what it has just read
    waiting for that."""
    await asyncio.sleep(0)


async def in_turns(call: Callable[[T], R], items: Sequence[T]) -> tuple[R, ...]:
    """Calls `call` with each item. Others run after each AT_ONCE of them."""
    found = []
    for number, item in enumerate(items, 1):
        found.append(call(item))
        if not number % AT_ONCE:
            await give_way()
    return tuple(found)


class Turns:
    """Lets other tasks run between calls that find what they return at hand: a loop of such calls never suspends, and would
    keep the event loop to itself."""

    __slots__ = ("_now", "due_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.due_at = _NEVER
        """When the others are to run; a hot path compares it with a time that it has anyway."""

    async def pass_on(self) -> None:
        """Begins every such call; it costs a look at the clock unless a turn is due."""
        now = self._now()
        if now >= self.due_at:
            first, self.due_at = self.due_at == _NEVER, now + TURN_S
            if not first:
                for _ in range(_STEPS):
                    await give_way()
