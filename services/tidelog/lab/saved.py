"""Files that a reader may keep of a session: a page that needs no server, and a story that repeats it event by event."""

from typing import Any

from tidelog.lab.session import Session
from tidelog.lab.story_text import written
from tidelog.page import files
from tidelog.page.messages import VERSION
from tidelog.page.source import File


def page(session: Session, hello: dict[str, Any]) -> File:
    """Returns the events and pictures that were told, as one HTML file."""
    hello = {**hello, "source": "run", "time": "recorded", "acts": [], "saves": [], "lessons": []}
    messages: list[dict[str, Any]] = [
        {"v": VERSION, "hello": hello},
        {"v": VERSION, "events": list(session.events)},
        *({"v": VERSION, "picture": picture} for picture in session.frames),
        {"v": VERSION, "time": session.moment()},
        {"v": VERSION, "lesson": session.lesson()},
    ]
    return File(f"tidelog-seed-{session.story.seed}.html", "text/html; charset=utf-8", files.saved(messages))


def story(session: Session) -> File:
    return File(f"tidelog-seed-{session.story.seed}.yaml", "application/yaml", written(session.kept_story()))
