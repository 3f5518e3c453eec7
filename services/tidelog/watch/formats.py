"""Protocol events as JSON and as a Mermaid sequence diagram."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Subject
from tidelog.values import Message
from tidelog.watch.kinds import FAMILY_OF
from tidelog.watch.order import Told
from tidelog.watch.text import sentence, time_of_day
from tidelog.wire import messages as m

Incarnation = Callable[[str, int], int]
"""Process and life -> a small number; 0: nothing else is known of that life."""


def json_of(told: Told, incarnation: Incarnation, *, cause_missing: bool = False) -> dict[str, Any]:
    """Returns an object with `text`, the sentence, beside all fields of the event."""
    event, cause = told.event, told.event.cause
    found: dict[str, Any] = {
        "time_ns": event.wall_ns,
        "process": told.process,
        "incarnation": incarnation(told.process, told.life),
        "number": event.number,
        "family": FAMILY_OF.get(type(event.fields)),
        "kind": type(event.fields).__name__,
        "subject": _subject(event.subject),
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


def _subject(subject: Subject) -> dict[str, Any] | None:
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


def mermaid(events: Sequence[Told]) -> Iterator[str]:
    """Yields the lines of a diagram: processes as lanes, an arrow from the process of each event's cause."""
    names = list(dict.fromkeys(told.process for told in events))
    by_name = {told.name: told for told in events}
    writes = any(isinstance(told.event.fields, m.StoreWritten) for told in events)
    yield "sequenceDiagram"
    for name in [*names, *(["zookeeper"] if writes else [])]:
        yield f"    participant {name}"
    for told in events:
        cause = None if told.event.cause is None else by_name.get(told.event.cause)
        text = f"{time_of_day(told.event.wall_ns)} {_escaped(sentence(told.event))}"
        if isinstance(told.event.fields, m.StoreWritten):
            yield f"    {told.process}->>zookeeper: {text}"
        elif cause is not None and cause.process != told.process:
            yield f"    {cause.process}->>{told.process}: {text}"
        else:
            yield f"    Note over {told.process}: {text}"


def _escaped(text: str) -> str:
    """Mermaid ends a statement at a semicolon, and # begins an entity."""
    return text.translate({ord("#"): "#35;", ord(";"): "#59;"})
