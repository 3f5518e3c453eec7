"""What a run did, small enough to draw: its faults and phases, and its sends in buckets of time.

Made from the records of a history, or fed directly by a run that keeps no history of each record (the demo).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tidelog.chaos import history as h
from tidelog.chaos.faults.registry import last_step

BUCKETS_MAX: Final = 240
"""A bar of a bucket is then about four pixels wide."""
WIDTHS_S: Final = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
UNANSWERED: Final = "unanswered"
"""Outcome of a send that has no completion in the history."""

Where = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """One fault, or the crash of a member of a group, which has a number below 0; a step that was not reached is None."""

    id: int
    name: str
    fault: str
    targets: tuple[str, ...]
    began: float
    effect: float | None = None
    healing: float | None = None
    healed: float | None = None

    def in_force(self, until: float) -> tuple[float, float] | None:
        """None: it was never seen to take effect. A fault that passes lasts from its beginning until its effect was seen."""
        if self.effect is None:
            return None
        if last_step(self.fault) == "effect":
            return self.began, self.effect
        return self.effect, max(self.effect, until if self.healed is None else self.healed)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    phase: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the send to the acknowledgement."""

    p50: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Sends:
    """By ack level. Bucket `n` holds what was completed in [n * width, (n + 1) * width)."""

    width_s: float = 1.0
    counts: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """Ack level -> outcome (ok, fail, info) -> one number a bucket."""
    latency: Mapping[str, Sequence[Latency | None]] = field(default_factory=dict)
    """Of the acknowledged ones; None for a bucket without any."""
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Ack level -> outcome, with UNANSWERED, which has no time and so no bucket."""


@dataclass(frozen=True, slots=True)
class Position:
    t: float
    offset: int


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a consumer with assigned partitions has come in one of them: the next offset to read."""

    process: str
    topic: str
    partition: int
    positions: tuple[Position, ...]
    """At most one in each bucket."""


@dataclass(frozen=True, slots=True)
class Timeline:
    until: float = 0.0
    """The last moment that is known of."""
    faults: tuple[FaultSpan, ...] = ()
    phases: tuple[PhaseSpan, ...] = ()
    sends: Sends = Sends()
    readings: tuple[Reading, ...] = ()


class SendBuckets:
    """Takes completions in any order."""

    def __init__(self) -> None:
        self._done: dict[tuple[str, str], list[tuple[float, float]]] = {}
        """Ack level and outcome -> (when, seconds since the send)."""
        self._unanswered: dict[str, int] = {}

    def completed(self, acks: str, outcome: str, sent_at: float, done_at: float) -> None:
        self._done.setdefault((acks, outcome), []).append((done_at, done_at - sent_at))

    def unanswered(self, acks: str, count: int = 1) -> None:
        self._unanswered[acks] = self._unanswered.get(acks, 0) + count

    def sends(self, until: float) -> Sends:
        width = bucket_width(until)
        buckets = int(until / width) + 1
        counts: dict[str, dict[str, list[int]]] = {}
        totals: dict[str, dict[str, int]] = {}
        latency: dict[str, list[Latency | None]] = {}
        for (acks, outcome), done in sorted(self._done.items()):
            taken: list[list[float]] = [[] for _ in range(buckets)]
            for at, seconds in done:
                taken[min(int(at / width), buckets - 1)].append(seconds)
            counts.setdefault(acks, {})[outcome] = [len(each) for each in taken]
            totals.setdefault(acks, {})[outcome] = len(done)
            if outcome == h.OK:
                latency[acks] = [percentiles(each) for each in taken]
        for acks, count in self._unanswered.items():
            totals.setdefault(acks, {})[UNANSWERED] = count
        return Sends(width, counts, latency, totals)


def bucket_width(until: float) -> float:
    return next((width for width in WIDTHS_S if until / width <= BUCKETS_MAX), WIDTHS_S[-1])


def percentiles(seconds: Sequence[float]) -> Latency | None:
    """By nearest rank: each is a latency that somebody had."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Latency(ranked(ordered, 0.5), ranked(ordered, 0.99), ordered[-1])


def ranked(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def phase_spans(begins: Iterable[tuple[float, str]], until: float) -> Iterator[PhaseSpan]:
    """Each lasts until the next one."""
    for (began, phase), (ended, _) in pairwise([*sorted(begins), (until, "")]):
        yield PhaseSpan(phase, began, max(began, ended))


class FaultSteps:
    """Steps of faults, by their ids."""

    def __init__(self) -> None:
        self._steps: dict[int, list[h.FaultStep]] = {}

    def add(self, step: h.FaultStep) -> None:
        self._steps.setdefault(step.id, []).append(step)

    def spans(self) -> Iterator[FaultSpan]:
        for number, steps in sorted(self._steps.items()):
            at = {step.what: step.t for step in reversed(steps)}
            first = steps[0]
            yield FaultSpan(
                number,
                first.name,
                first.fault,
                next((step.target for step in reversed(steps) if step.target), ()),
                first.t,
                at.get("effect"),
                at.get("heal"),
                at.get("healed"),
            )


class _Readings:
    """Positions of consumers with assigned partitions: the newest in each slot of time."""

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._newest: dict[tuple[str, str, int], dict[int, Position]] = {}

    def add(self, poll: h.Polled) -> None:
        slot = int(poll.t / self._slot_s)
        for read in poll.partitions:
            if read.records:
                reached = Position(poll.t, read.records[-1][0] + 1)
                self._newest.setdefault((poll.process, read.topic, read.partition), {})[slot] = reached

    def readings(self) -> Iterator[Reading]:
        for (process, topic, partition), slots in sorted(self._newest.items()):
            yield Reading(process, topic, partition, tuple(slots.values()))


READING_SLOT_S: Final = 0.25


def timeline(records: Iterable[h.Record]) -> Timeline:
    """Of a history that may end anywhere."""
    buckets, faults, readings = SendBuckets(), FaultSteps(), _Readings(READING_SLOT_S)
    crashes: list[FaultSpan] = []
    pending: dict[int, h.Send] = {}
    phases: list[tuple[float, str]] = []
    until = 0.0
    for record in records:
        until = record.t
        match record:
            case h.Send():
                pending[record.id] = record
            case h.Sent():
                if (send := pending.pop(record.id, None)) is not None:
                    buckets.completed(send.acks, record.outcome, send.t, record.t)
            case h.Polled(group=None, final=False):
                readings.add(record)
            case h.FaultStep():
                faults.add(record)
            case h.Crash():
                at, name = record.t, f"crash {record.process}"
                crashes.append(FaultSpan(-1 - len(crashes), name, "crash", (record.process,), at, at, at, at))
            case h.Phase():
                phases.append((record.t, record.phase))
    for send in pending.values():
        buckets.unanswered(send.acks)
    return Timeline(
        until,
        tuple(sorted([*faults.spans(), *crashes], key=lambda fault: fault.began)),
        tuple(phase_spans(phases, until)),
        buckets.sends(until),
        tuple(readings.readings()),
    )
