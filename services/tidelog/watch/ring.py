"""The newest protocol events of one process. They are encoded and sent only if something watches."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from tidelog.ports.clock import Clock
from tidelog.ports.recorder import CAUSE, Cause, Fields, Origin, ProtocolEvent, Subject
from tidelog.values import Message

KEPT: Final = 10_000
FOLDED_S: Final = 0.1
"""The least time between two folded events of a subject."""


_Kept = tuple[int, int, Subject, Fields, Origin | None]
"""A `ProtocolEvent` as it is recorded."""


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
        self.clock = clock
        self._events: deque[_Kept] = deque(maxlen=kept)
        self._number = 0
        self._folded: dict[tuple[Subject, type[Message]], _Folded] = {}
        self._untold: dict[tuple[Subject, type[Message]], _Folded] = {}
        """Has advanced since its last event."""

    def record(self, subject: Subject, fields: Fields, cause: Origin | None = None) -> Cause:
        number = self._number = self._number + 1
        self._events.append((self.clock.wall_ns(), number, subject, fields, CAUSE.get() if cause is None else cause))
        return Cause(self.process, self.life, number)

    def record_all(self, events: Iterable[tuple[Subject, Fields]]) -> None:
        wall_ns, cause = self.clock.wall_ns(), CAUSE.get()
        kept = [
            (wall_ns, number, subject, fields, cause)
            for number, (subject, fields) in enumerate(events, self._number + 1)
        ]
        self._events.extend(kept)
        self._number += len(kept)

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        now, key = self.clock.now(), (subject, kind)
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = _Folded(-math.inf)
        if not folded.count:
            folded.before = before
            self._untold[key] = folded
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
        del self._untold[key]

    def settle(self) -> None:
        now = self.clock.now()
        for key, folded in list(self._untold.items()):
            if now - folded.kept_at >= FOLDED_S:
                self._keep(key, folded, now)

    @property
    def newest(self) -> int:
        return self._number

    def after(self, number: int, limit: int) -> Sequence[ProtocolEvent]:
        first = max(0, number - self._number + len(self._events))
        return [_built(*kept) for kept in islice(self._events, first, first + limit)]

    def events(self) -> list[ProtocolEvent]:
        """Returns the events that are kept, in order."""
        return [_built(*kept) for kept in self._events]


def _built(wall_ns: int, number: int, subject: Subject, fields: Fields, cause: Origin | None) -> ProtocolEvent:
    return ProtocolEvent(wall_ns, number, subject, fields if isinstance(fields, Message) else fields(), cause)
