"""The newest protocol events of one process. They are encoded and sent only if something watches."""

from collections import deque
from typing import Any, Final, NamedTuple

from tidelog.ports.clock import Clock
from tidelog.ports.recorder import CAUSE, Cause, Subject
from tidelog.values import Message

KEPT: Final = 10_000
FOLDED_S: Final = 0.1
"""The least time between two folded events of a subject."""


class ProtocolEvent(NamedTuple):
    wall_ms: int
    number: int
    """Counts from 1 in this life of the process, without gaps."""
    subject: Subject
    fields: Message
    """Their class is the event's kind."""
    cause: Cause | None


class _Folded:
    __slots__ = ("after", "before", "count", "kept_at")

    def __init__(self, kept_at: float) -> None:
        self.kept_at = kept_at
        self.count = 0
        """Counts advances since then."""
        self.before = self.after = 0


class Ring:
    """Implements `ports.recorder.Recorder` for one life of `process`."""

    def __init__(self, process: str, life: int, clock: Clock, kept: int = KEPT) -> None:
        self.process = process
        self.life = life
        self._clock = clock
        self._events: deque[ProtocolEvent] = deque(maxlen=kept)
        self._number = 0
        self._folded: dict[tuple[Subject, type[Message]], _Folded] = {}

    def record(self, subject: Subject, fields: Message, cause: Cause | None = None) -> Cause:
        number = self._number = self._number + 1
        self._events.append(
            ProtocolEvent(self._clock.wall_ms(), number, subject, fields, CAUSE.get() if cause is None else cause)
        )
        return Cause(self.process, self.life, number)

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        now, key = self._clock.now(), (subject, kind)
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = _Folded(now - FOLDED_S)
        if not folded.count:
            folded.before = before
        folded.after = after
        folded.count += 1
        if now - folded.kept_at >= FOLDED_S:
            self._keep(key, folded, now)

    def _keep(self, key: tuple[Subject, type[Message]], folded: _Folded, now: float) -> None:
        subject, kind = key
        fields: dict[str, Any] = {
            "from_offset": folded.before,
            "to_offset": folded.after,
            "count": folded.count,
        }
        self.record(subject, kind(**fields))
        folded.kept_at, folded.count = now, 0

    def events(self) -> list[ProtocolEvent]:
        """Returns the events that are kept, in order."""
        return list(self._events)
