"""The lab behind the page: a session in a thread of its own, which takes commands and lets time pass."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

from tidelog.lab import saved
from tidelog.lab.actions import ACTIONS, Parameter
from tidelog.lab.session import Session
from tidelog.lab.story import Story, StoryError
from tidelog.lab.story_file import find, lessons, load
from tidelog.page.hub import Hub
from tidelog.page.messages import hello
from tidelog.page.source import File, Refused
from tidelog.ports.clock import Clock

FRAME_S: Final = 0.1
"""Between two pictures while time passes."""
BEHIND_S: Final = 0.25
"""Wall time that a frame makes up for at most; a machine that was away does not catch up."""


class LabSource:
    """Commands wait for each other, and for a frame at most. While no page is open, no time passes.

    hub: what is to be seen is told to it.
    story: what is played where no lesson is.
    lesson: the name of the lesson to begin with, or "".
    """

    def __init__(self, hub: Hub, story: Story, lesson: str, clock: Clock) -> None:
        self._hub = hub
        self._free = story
        self._lesson = lesson
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "lab")
        self._session: Session | None = None

    def start(self) -> None:
        """Begins the story, and returns when its cluster is up. StoryError."""
        self._thread.submit(self._open, self._lesson).result()

    async def run(self) -> None:
        """Lets time pass, until it is cancelled."""
        last = self._clock.now()
        while True:
            await self._clock.sleep(max(0.0, last + FRAME_S - self._clock.now()))
            passed, last = self._clock.now() - last, self._clock.now()
            if self._hub.pages:
                await asyncio.wrap_future(self._thread.submit(self._frame, min(passed, BEHIND_S)))

    def close(self) -> None:
        """Ends the cluster."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def do(self, command: Mapping[str, Any]) -> Future[None]:
        return self._thread.submit(self._do, command)

    def save(self, kind: str) -> Future[File]:
        return self._thread.submit(self._save, kind)

    # -- in the thread of the lab ------------------------------------------------------------------------------------

    def _frame(self, seconds: float) -> None:
        if self._session is not None:
            self._session.frame(seconds)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open(self, lesson: str) -> None:
        story = self._free
        if lesson:
            path = find(lesson)
            story = load(path)
            lesson = _name_of(path) if path in lessons() else lesson
        self._close()
        self._hub.tell("reset", {})
        self._hub.tell("hello", self._hello(story, lesson))
        session = Session(story, self._hub.tell, self._clock.now)
        session.open()
        self._session = session
        self._lesson = lesson

    def _hello(self, story: Story, lesson: str) -> dict[str, Any]:
        about = f"{story.heading} (seed {story.seed})"
        drawn = bool(story.simulation)
        can = {"acts": [] if drawn else acts(), "saves": _saves(story), "lessons": _lessons()}
        return hello("lab", "Tidelog lab", about, "driven", story=lesson, **can)

    def _do(self, command: Mapping[str, Any]) -> None:
        session = self._session
        if session is None:
            raise Refused("the cluster is not up")
        match command:
            case {"play": bool(on)} if len(command) == 1:
                session.play(on=on)
            case {"speed": int(speed) | float(speed)} if len(command) == 1 and not isinstance(speed, bool):
                session.set_speed(float(speed))
            case {"to": dict(where)} if len(command) == 1:
                session.to(where)
            case {"act": dict(body)} if len(command) == 1:
                session.act(body)
            case {"story": str(lesson)} if len(command) == 1:
                try:
                    self._open(lesson)
                except StoryError as error:
                    raise Refused(str(error)) from None
            case _:
                raise Refused("a command has one key: play, speed, to, act or story; docs/internals/page.md has them")

    def _save(self, kind: str) -> File:
        if self._session is None or kind not in (saves := _saves(self._session.story)):
            raise Refused(f"as: {kind!r} is none of {', '.join(saves)}")
        if kind == "story":
            return saved.story(self._session)
        return saved.page(self._session, self._hello(self._session.story, self._lesson))


def _saves(story: Story) -> list[str]:
    return ["page"] if story.simulation else ["page", "story"]


def _name_of(lesson: Path) -> str:
    return lesson.stem.partition("-")[2]


@cache
def _lessons() -> list[dict[str, Any]]:
    found = [(_name_of(path), load(path)) for path in lessons()]
    return [{"name": name, "number": each.lesson, "title": each.title} for name, each in found]


def acts() -> list[dict[str, Any]]:
    """Returns what a reader may do, with the fields that it needs."""
    return [
        {
            "do": name,
            "label": name[0].upper() + name[1:],
            "group": action.group,
            "asks": False,
            "about": action.about,
            "fields": [
                *(_field(each, parameter, needed=True) for each, parameter in action.needs.items()),
                *(_field(each, parameter, needed=False) for each, parameter in action.may.items()),
            ],
        }
        for name, action in ACTIONS.items()
    ]


def _field(name: str, parameter: Parameter, *, needed: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": f"{name} ({parameter.unit})" if parameter.unit else name,
        "kind": parameter.kind,
        "needed": needed,
        "choices": list(parameter.choices),
        "value": parameter.value,
    }
