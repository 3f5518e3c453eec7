"""The hub gives each page what it needs, and a slow one the newest picture and a count of what it missed."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.page import hub as hubs
from tidelog.page.hub import Full, Hub, Page


def event(n: int, mark: str | None = None, text: str = "x") -> dict[str, Any]:
    return {"n": n, "text": text, "mark": mark}


async def taken(page: Page, count: int) -> list[dict[str, Any]]:
    """The next messages of a page, without the version."""
    found: list[dict[str, Any]] = []
    stream: AsyncIterator[str] = page.messages()
    while len(found) < count:
        for data in (await anext(stream)).removesuffix("\n\n").split("\n\n"):
            message = json.loads(data.removeprefix("data: "))
            assert message.pop("v") == 1
            found.append(message)
    return found


async def test_a_new_page_gets_everything_that_it_needs() -> None:
    hub = Hub()
    hub.tell("picture", {"t": 1})
    hub.tell("hello", {"title": "a"})
    hub.tell("events", [event(0), event(1)])
    hub.tell("picture", {"t": 2})
    assert await taken(hub.join(), 3) == [
        {"hello": {"title": "a"}},
        {"events": [event(0), event(1)]},
        {"picture": {"t": 2}},
    ]


async def test_what_did_not_happen_is_not_told_to_later_pages() -> None:
    hub = Hub()
    hub.tell("events", [event(0, "fault"), event(1), event(2)])
    hub.tell("cut", {"n": 1})
    hub.tell("events", [event(1, text="y")])
    assert await taken(hub.join(), 1) == [{"events": [event(0, "fault"), event(1, text="y")]}]
    hub.tell("reset", {})
    hub.tell("hello", {})
    assert await taken(hub.join(), 1) == [{"hello": {}}]


async def test_marks_are_kept_longer_than_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    hub.tell("events", [event(0, "fault"), *(event(n) for n in range(1, hubs.EVENTS_KEPT + 50))])
    found = [each for message in await taken(hub.join(), 11) for each in message["events"]]
    assert found[0] == event(0, "fault") and found[1]["n"] == 50 and len(found) == hubs.EVENTS_KEPT + 1


async def test_the_same_again_is_told_once() -> None:
    hub = Hub()
    page = hub.join()
    for t in (1, 1, 2):
        hub.tell("lesson", {"t": t})
        hub.tell("events", [event(t)])
    assert await taken(page, 4) == [
        {"events": [event(1)]},
        {"events": [event(1)]},
        {"lesson": {"t": 2}},
        {"events": [event(2)]},
    ]


async def test_a_slow_page_loses_events_and_is_told_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "OUTBOX_MAX", 1_000)
    hub = Hub()
    page = hub.join()
    for n in range(86_400):
        hub.tell("picture", {"t": n})
        hub.tell("events", [event(n)])
    assert len(page._waiting) < 50, "what waits is bounded"
    found = await taken(page, 3)
    lost = found[0]["dropped"]["events"]
    assert lost > 86_000 and next(each["events"][0]["n"] for each in found if "events" in each) == lost
    assert page._size == 0


async def test_what_waits_comes_at_once_and_is_taken_under_the_lock() -> None:
    hub = Hub()
    page = hub.join()

    class Waiting(dict[int, tuple[str, str, int]]):
        def values(self) -> Any:
            taken_under.append(hub._lock.locked())
            return super().values()

    taken_under: list[bool] = []
    wakes: list[Any] = []
    page._waiting = Waiting()
    page._loop = SimpleNamespace(call_soon_threadsafe=wakes.append)  # type: ignore[assignment]
    hub.tell("events", [event(0)])
    hub.tell("picture", {"t": 0})
    assert len(wakes) == 1, "the loop is woken once"
    wakes[0]()
    stream = page.messages()
    assert (await anext(stream)).count("data: ") == 2
    hub.tell("picture", {"t": 1})
    assert len(wakes) == 2 and taken_under == [True]


async def test_twenty_one_pages_are_too_many() -> None:
    hub = Hub()
    pages = [hub.join() for _ in range(hubs.PAGES_MAX)]
    with pytest.raises(Full, match="20 pages are open, which is the limit: close one, and load this page again"):
        hub.join()
    hub.leave(pages[0])
    hub.join()


async def test_pages_end_with_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    page = hub.join()
    reading = asyncio.create_task(taken(page, 1))
    await asyncio.sleep(0)
    hub.close()
    with pytest.raises(StopAsyncIteration):
        await reading
