"""Protocol events as JSON and as a Mermaid sequence diagram."""

from collections.abc import Callable, Container, Iterator, Sequence
from enum import Enum
from typing import Any, Final

from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause, Subject
from tidelog.values import Message
from tidelog.watch.kinds import FAMILY_OF
from tidelog.watch.order import Caused, Told
from tidelog.watch.text import sentence, time_of_day

ZOOKEEPER: Final = "zookeeper"
"""The lane that writes go to."""

Incarnation = Callable[[str, int], int]
"""Process and life -> a small number; 0: nothing else is known of that life."""


def json_of(told: Told, incarnation: Incarnation, *, cause_missing: bool = False) -> dict[str, Any]:
    """Returns an object with `text`, the sentence, beside all fields of the event."""
    event, cause = told.event, told.cause
    found: dict[str, Any] = {
        "time_ns": event.wall_ns,
        "process": told.process,
        "incarnation": incarnation(told.process, told.life),
        "number": event.number,
        "family": FAMILY_OF.get(type(event.fields)),
        "kind": type(event.fields).__name__,
        "subject": subject_of(event.subject),
        "fields": plain(event.fields),
        "text": sentence(event),
        "cause": None,
    }
    if cause is not None:
        found["cause"] = {
            "process": cause.process,
            "incarnation": incarnation(cause.process, cause.life),
            "number": cause.number,
            "arrived": not cause_missing,
        }
    return found


def subject_of(subject: Subject) -> dict[str, Any] | None:
    """Returns what an event is about: a partition, a broker or a group."""
    if isinstance(subject, TopicPartition):
        return {"topic": subject.topic, "partition": subject.partition}
    if subject is None:
        return None
    return {"broker": subject} if isinstance(subject, int) else {"group": subject}


def plain(value: Any) -> Any:
    """Returns a field of an event as JSON has it: codes by name, messages as mappings."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.name
    return value.hex() if isinstance(value, bytes) else value


def lanes_and_arrows(events: Sequence[Caused]) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the lanes of a sequence diagram, and for each event the lanes at which its arrow begins and ends. An event that no
    shown event of another process led to begins and ends in its own lane."""
    names = {event.name for event in events}
    lanes = list(dict.fromkeys(event.name.process for event in events))
    if any(event.writes for event in events):
        lanes.append(ZOOKEEPER)
    return lanes, [_arrow(event, names) for event in events]


def _arrow(event: Caused, shown: Container[Cause]) -> tuple[str, str]:
    process, cause = event.name.process, event.cause
    if event.writes:
        return process, ZOOKEEPER
    return (process if cause is None or cause not in shown else cause.process), process


def mermaid(events: Sequence[Told]) -> Iterator[str]:
    """Yields the lines of a diagram: processes as lanes, an arrow from the process of each event's cause."""
    lanes, arrows = lanes_and_arrows(events)
    yield "sequenceDiagram"
    for name in lanes:
        yield f"    participant {name}"
    for told, (begin, end) in zip(events, arrows, strict=True):
        text = f"{time_of_day(told.event.wall_ns)} {_escaped(sentence(told.event))}"
        yield f"    Note over {end}: {text}" if begin == end else f"    {begin}->>{end}: {text}"


def _escaped(text: str) -> str:
    """Mermaid ends a statement at a semicolon, and # begins an entity."""
    return text.translate({ord("#"): "#35;", ord(";"): "#59;"})
