"""A port by which a process records its protocol events. All that is watched goes through `record` and `fold`.

An event that led to another is its cause. Between processes a cause travels beside the message. Within a process it is in
`CAUSE`, and queues carry it with their items. Unless another is given, an event has the present `CAUSE` as its cause.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

from tidelog.ids import TopicPartition
from tidelog.values import Message

Subject = TopicPartition | int | str | None
"""A partition, a broker, a group; None: the cluster."""


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
        return cls(process, int(life), int(number))


CAUSE: Final[ContextVar[Cause | None]] = ContextVar("cause", default=None)
"""The event that sent the message which is handled here; None: not known. After a call it is what led to the answer."""


@contextmanager
def led_on(cause: Cause | None) -> Iterator[None]:
    """Makes this the cause of what is recorded or sent within."""
    token = CAUSE.set(cause)
    try:
        yield
    finally:
        CAUSE.reset(token)


class Recorder(Protocol):
    def record(self, subject: Subject, fields: Message, cause: Cause | None = None) -> Cause | None:
        """Keeps an event, whose kind is the class of `fields`. Returns its name as a cause; None if nothing is kept."""
        ...

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        """Keeps that an offset has advanced. It is for what happens with every batch: a subject has at most one such event in
        100 ms. `kind` has the fields from_offset, to_offset and count."""
        ...


class _Silent:
    def record(self, subject: Subject, fields: Message, cause: Cause | None = None) -> Cause | None:
        return None

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        return None


SILENT: Final[Recorder] = _Silent()
"""Keeps nothing."""
