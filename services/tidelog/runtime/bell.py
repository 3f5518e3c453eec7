"""What wakes the one task that waits for it, and lets it run."""

import asyncio


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
