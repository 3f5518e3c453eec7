"""A port by which a process records its protocol events. All that is watched goes through `record` and `fold`.

An event that led to another is its cause. Between processes a cause travels beside the message. Within a process it is in
`CAUSE`, and queues carry it with their items. Unless another is given, an event has the present `CAUSE` as its cause.

Nothing is written into znodes for it: what a process does because of a znode has a `Znode` as its cause, and `watch.order` finds
the event of the process that wrote it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidelog.ids import TopicPartition
from tidelog.values import Message

M = TypeVar("M")

Subject = TopicPartition | int | str | None
"""A partition, a broker, a group; None: the cluster."""

Fields = Message | Callable[[], Message]
"""The fields of an event, or a function that makes them when the event is read: most are never read."""

TEXT_MAX: Final = 100
"""Characters of a cause as text."""


class Cause(NamedTuple):
    """Names one event of one life of a process."""

    process: str
    life: int
    number: int

    def __str__(self) -> str:
        return f"{self.process} {self.life} {self.number}"

    @classmethod
    def parse(cls, text: str) -> "Cause | None":
        """Reads what `str` gives; None for anything else, which any client may send."""
        process, _, rest = text.partition(" ")
        life, _, number = rest.partition(" ")
        if (
            not process
            or len(text) > TEXT_MAX
            or not (life + number).isascii()
            or not (life.isdigit() and number.isdigit())
        ):
            return None
        found = cls(process, int(life), int(number))
        return found if max(found.life, found.number) < 1 << 63 else None  # as wide as the fields of messages


class Znode(NamedTuple):
    """Stands for the event by which a process left a znode at this version."""

    path: str
    version: int
    """-1: it is gone."""


Origin = Cause | Znode
"""A cause: an event by its name, or by the znode that it wrote."""

CAUSE: Final[ContextVar[Origin | None]] = ContextVar("cause", default=None)
"""The event that sent the message which is handled here; None: not known. After a call it is what led to the answer."""


@contextmanager
def led_on(cause: Origin | None) -> Iterator[None]:
    """Makes this the cause of what is recorded or sent within."""
    token = CAUSE.set(cause)
    try:
        yield
    finally:
        CAUSE.reset(token)


def with_cause(message: M) -> M:
    """Returns a message of a stream with the present cause in its field `cause`."""
    cause = cause_text()
    return message if cause is None else replace(message, cause=cause)  # type: ignore[type-var]


def cause_text() -> str | None:
    """Returns the present cause as it goes to another process, which knows nothing of znodes read here."""
    cause = CAUSE.get()
    return str(cause) if isinstance(cause, Cause) else None


def take_cause(message: Any) -> None:
    """Makes what led to a message of a stream the present cause."""
    CAUSE.set(Cause.parse(message.cause))


def carries_cause(kind: type[Any]) -> bool:
    """Tells whether messages of a stream have the field `cause`."""
    return "cause" in getattr(kind, "__slots__", ())


class ProtocolEvent(NamedTuple):
    wall_ns: int
    number: int
    """Counts from 1 in this life of the process, without gaps."""
    subject: Subject
    fields: Message
    """Their class is the event's kind."""
    cause: Origin | None


class Recorder(Protocol):
    @property
    def process(self) -> str:
        """Its name, such as broker-1."""
        ...

    @property
    def life(self) -> int:
        """Grows from one start of the process to the next."""
        ...

    def record(self, subject: Subject, fields: Fields, cause: Origin | None = None) -> Cause | None:
        """Keeps an event, whose kind is the class of `fields`. Returns its name as a cause; None if nothing is kept."""
        ...

    def record_all(self, events: Iterable[tuple[Subject, Fields]]) -> None:
        """Keeps events that are none the cause of another. It is for thousands at a time."""
        ...

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        """Keeps that an offset has advanced. It is for what happens with every batch: a subject has at most one such event in
        100 ms. `kind` has the fields from_offset, to_offset and count."""
        ...

    def after(self, number: int, limit: int) -> Sequence[ProtocolEvent]:
        """Returns the oldest events that are kept and have a higher number, at most `limit`, in order."""
        ...

    @property
    def newest(self) -> int:
        """The number of the newest event; 0: there is none yet."""
        ...

    def settle(self) -> None:
        """Records the advances that no event has told for 100 ms. It is for a process that is watched: what a ring holds must not
        depend on when a simulation looks."""
        ...


class _Silent:
    process = ""
    life = newest = 0

    def record(self, subject: Subject, fields: Fields, cause: Origin | None = None) -> Cause | None:
        return None

    def record_all(self, events: Iterable[tuple[Subject, Fields]]) -> None:
        return None

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        return None

    def after(self, number: int, limit: int) -> Sequence[ProtocolEvent]:
        return ()

    def settle(self) -> None:
        return None


SILENT: Final[Recorder] = _Silent()
"""Keeps nothing."""
