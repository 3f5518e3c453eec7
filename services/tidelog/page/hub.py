"""Hands messages of a source to all open pages. What is told comes from any thread; pages live in an event loop.

A page that is too slow gets the newest picture only, and loses events, of which it is told.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from tidelog.page.messages import VERSION

PAGES_MAX: Final = 20
EVENTS_KEPT: Final = 5_000
"""For pages that open later."""
MARKED_KEPT: Final = 1_000
"""Further events that are marks of the scrub bar."""
OUTBOX_MAX: Final = 4 << 20
"""Characters of events that wait for a page."""
CHUNK: Final = 500
BEAT_S: Final = 15.0
"""A page that has gone is noticed after this time at the latest."""

_NEWEST: Final = ("hello", "picture", "time", "lesson")
"""Kinds of which only the newest message counts, in the order in which a new page needs them."""
_AFTER_HELLO: Final = _NEWEST[1:]


class Full(Exception):
    """There are as many pages as may be open at once."""


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self._newest: dict[str, str] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._marked: deque[dict[str, Any]] = deque(maxlen=MARKED_KEPT)

    @property
    def pages(self) -> int:
        """The number of open pages."""
        return len(self._pages)

    def tell(self, kind: str, content: Any) -> None:
        """Tells all pages, and those that open later as far as it concerns them."""
        with self._lock:
            match kind:
                case "reset":
                    self._newest.clear()
                    self._events.clear()
                    self._marked.clear()
                case "cut":
                    for kept in (self._events, self._marked):
                        while kept and kept[-1]["n"] >= content["n"]:
                            kept.pop()
                case "events":
                    self._keep(content)
            data = _message(kind, content)
            if kind in _NEWEST:
                if self._newest.get(kind) == data:
                    return
                self._newest[kind] = data
            for page in self._pages:
                page.put(kind, data, len(content) if kind == "events" else 0)

    def _keep(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if len(self._events) == EVENTS_KEPT and self._events[0]["mark"]:
                self._marked.append(self._events[0])
            self._events.append(event)

    def join(self) -> "Page":
        """Opens a page in the running event loop. Full."""
        page = Page(asyncio.get_running_loop(), self._lock)
        with self._lock:
            if len(self._pages) >= PAGES_MAX:
                raise Full(f"{PAGES_MAX} pages are open, which is the limit: close one, and load this page again")
            if "hello" in self._newest:
                page.put("hello", self._newest["hello"], 0)
            events = [*self._marked, *self._events]
            for at in range(0, len(events), CHUNK):
                page.put("events", _message("events", events[at : at + CHUNK]), CHUNK)
            for kind in _AFTER_HELLO:
                if kind in self._newest:
                    page.put(kind, self._newest[kind], 0)
            self._pages.append(page)
        return page

    def leave(self, page: "Page") -> None:
        with self._lock:
            self._pages.remove(page)

    def close(self) -> None:
        """Ends all pages."""
        with self._lock:
            for page in self._pages:
                page.end()


class Page:
    """The messages that wait for one page."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock) -> None:
        self._loop = loop
        self._lock = lock
        self._waiting: dict[int, tuple[str, str, int]] = {}
        """Messages in their order: kind, text, number of events."""
        self._next = 0
        self._size = self._dropped = 0
        self._ended = False
        self._news = asyncio.Event()

    def put(self, kind: str, data: str, events: int) -> None:
        """Called under the hub's lock, from any thread."""
        if not self._waiting:  # else the page is on its way
            self._loop.call_soon_threadsafe(self._news.set)
        if kind in _NEWEST:
            for key in [key for key, each in self._waiting.items() if each[0] == kind]:
                del self._waiting[key]
        elif kind == "reset":
            self._waiting.clear()
            self._size = self._dropped = 0
        self._waiting[self._next] = (kind, data, events)
        self._next += 1
        self._size += len(data) if kind == "events" else 0
        self._shed()

    def _shed(self) -> None:
        """Drops the oldest events while there are too many."""
        while self._size > OUTBOX_MAX:
            key = next(key for key, each in self._waiting.items() if each[0] == "events")
            _, data, events = self._waiting.pop(key)
            self._size -= len(data)
            self._dropped += events

    def end(self) -> None:
        self._ended = True
        self._loop.call_soon_threadsafe(self._news.set)

    async def messages(self) -> AsyncIterator[str]:
        """Yields what waits, as server-sent events have it, until the hub closes."""
        while not self._ended:
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._news.wait()
            except TimeoutError:
                yield ": still there\n\n"
                continue
            self._news.clear()
            if told := self._taken():
                yield "".join([f"data: {data}\n\n" for data in told])

    def _taken(self) -> list[str]:
        with self._lock:
            taken, self._waiting = [data for _, data, _ in self._waiting.values()], {}
            dropped, self._size, self._dropped = self._dropped, 0, 0
        return [_message("dropped", {"events": dropped}), *taken] if dropped else taken


def _message(kind: str, content: Any) -> str:
    return json.dumps({"v": VERSION, kind: content}, separators=(",", ":"))
