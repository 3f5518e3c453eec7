"""A scrape runs on a thread of its own; what it asks for lives on the event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

SCRAPE_WAIT_S: Final = 5.0
"""An event loop that answers no scrape for so long counts as down: the scrape fails and `up` is 0."""


def ask_on(loop: asyncio.AbstractEventLoop | None, question: Callable[[], T]) -> Callable[[], T]:
    """Calls `question` on `loop`, to be made on that loop's thread; None: in the thread that scrapes."""
    loop_thread = threading.get_ident()

    async def take() -> T:
        return question()

    def ask() -> T:
        if loop is None or threading.get_ident() == loop_thread:
            return question()
        return asyncio.run_coroutine_threadsafe(take(), loop).result(SCRAPE_WAIT_S)

    return ask
