"""Everything that happens in a lab, in the order in which it happens: protocol events, and acts from outside."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from tidelog.ports.clock import Clock
from tidelog.ports.recorder import CAUSE, Cause, Fields, Origin, ProtocolEvent, Subject
from tidelog.values import Message
from tidelog.watch import kinds
from tidelog.watch.order import Told, Writes, ordered
from tidelog.watch.ring import Ring
from tidelog.watch.text import sentence
from tidelog.wire import messages as m

KEPT: Final = 200_000
"""Steps that a lab keeps; older ones are dropped."""

FAMILIES: Final[Mapping[str, tuple[type[Message], ...]]] = {**kinds.FAMILIES, "election": (m.LeaderChosen,)}
"""Kinds of events by the names under which `Lab.events` finds them."""


class Step(NamedTuple):
    """A protocol event."""

    t: float
    """Seconds of virtual time since the lab began."""
    process: str
    life: int
    """Counts the starts of the process."""
    event: ProtocolEvent

    @property
    def kind(self) -> str:
        """The class of the event, like `LeaderChosen`."""
        return type(self.event.fields).__name__

    @property
    def subject(self) -> Subject:
        return self.event.subject

    @property
    def fields(self) -> Message:
        return self.event.fields

    @property
    def name(self) -> Cause:
        return Cause(self.process, self.life, self.event.number)

    @property
    def cause(self) -> Cause | None:
        """The event that led to this one, as far as it is known."""
        return self.event.cause if isinstance(self.event.cause, Cause) else None

    def __str__(self) -> str:
        return f"{self.t:9.3f}  {self.process}  {sentence(self.event)}"


class Act(NamedTuple):
    """Something that was done to the cluster from outside, or a word of the narrator of a story."""

    t: float
    text: str
    narrated: bool = False
    struck: tuple[str, ...] = ()
    """The processes that it was done to."""
    mends: bool = False
    """It is the end of a fault."""

    def __str__(self) -> str:
        return f"{self.t:9.3f}  {'#' if self.narrated else '>'} {self.text}"


class Steps:
    def __init__(self) -> None:
        self._kept: deque[Step | Act] = deque(maxlen=KEPT)
        self._writes = Writes()
        self.dropped = 0

    def tell(self, told: Told) -> None:
        """Adds an event that happens now."""
        (told,) = ordered([told], self._writes)
        self.add(Step(asyncio.get_running_loop().time(), told.process, told.life, told.event))

    def add(self, step: Step | Act) -> None:
        if len(self._kept) == KEPT:
            self.dropped += 1
        self._kept.append(step)

    def __iter__(self) -> Iterator[Step | Act]:
        return iter(self._kept)

    @property
    def count(self) -> int:
        """All steps so far, those that were dropped too."""
        return self.dropped + len(self._kept)

    def since(self, number: int) -> list[Step | Act]:
        """Returns the steps from this number on, as far as they are kept."""
        return list(islice(reversed(self._kept), max(0, self.count - number)))[::-1]

    def events(self) -> Iterator[Step]:
        return (each for each in self._kept if isinstance(each, Step))

    def ring(self, process: str, life: int, clock: Clock) -> Ring:
        """Makes the ring of a process that starts. Its events are added here."""
        return _LabRing(process, life, clock, self)


class _LabRing(Ring):
    def __init__(self, process: str, life: int, clock: Clock, steps: Steps) -> None:
        super().__init__(process, life, clock)
        self._steps = steps

    def fold(self, subject: Subject, kind: type[Message], before: int, after: int) -> None:
        """Tells each advance by itself and at once, so that no follower seems to be ahead of its leader."""
        self.clock.now()  # as the ring does it: each read moves a clock that drifts
        fields: dict[str, Any] = {"from_offset": before, "to_offset": after, "count": 1}
        self.record(subject, kind(**fields))

    def record(self, subject: Subject, fields: Fields, cause: Origin | None = None) -> Cause:
        made = fields if isinstance(fields, Message) else fields()
        name = super().record(subject, made, cause)
        led_on = CAUSE.get() if cause is None else cause
        event = ProtocolEvent(self.clock.wall_ns(), name.number, subject, made, led_on)
        self._steps.tell(Told(self.process, self.life, event))
        return name

    def record_all(self, events: Iterable[tuple[Subject, Fields]]) -> None:
        for subject, fields in events:
            self.record(subject, fields)


def kinds_of(name: str) -> tuple[str, ...]:
    """Returns the kinds of a family, or the kind itself. ValueError: neither."""
    family = FAMILIES.get(name.lower())
    if family is not None:
        return tuple(kind.__name__ for kind in family)
    if name in KINDS:
        return (name,)
    raise ValueError(f"{name!r} is no kind of event; kinds are {', '.join(KINDS)}, families {', '.join(FAMILIES)}")


KINDS: Final = tuple(sorted({kind.__name__ for family in FAMILIES.values() for kind in family}))
