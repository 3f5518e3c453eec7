"""How the cluster looked over time: states as spans, numbers as points, from the looks of an observer."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidelog.chaos import samples as s
from tidelog.chaos.report.timeline import Reading, Where

HOLE_S: Final = 3.0
"""Without a look for so long, a state is not known any more."""
UNKNOWN: Final = "silent"
"""A process that runs and does not answer."""
NAN: Final = math.nan
"""A point that breaks a line: nothing is known there."""


@dataclass(frozen=True, slots=True)
class Span:
    """`row` was in `state` from `began` to `ended`."""

    row: str
    state: str
    began: float
    ended: float
    detail: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


States = Mapping[Where, Sequence[tuple[float, s.PartitionState]]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look told of a row."""

    t: float
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order of their times; NAN among the values is a hole."""

    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]


def spans(row: str, seen: Iterable[Seen]) -> Iterator[Span]:
    """A state lasts until another one is seen, or until nothing was seen for HOLE_S."""
    first: Seen | None = None
    last = 0.0
    for each in seen:
        hole = first is not None and each.t - last > HOLE_S
        if first is not None and (hole or (each.state, each.detail) != (first.state, first.detail)):
            yield Span(row, first.state, first.t, last if hole else each.t, first.detail)
            first = each
        first = first or each
        last = each.t
    if first is not None:
        yield Span(row, first.state, first.t, last, first.detail)


def holes(known: Iterable[tuple[float, float]], until: float, least_s: float = HOLE_S) -> Iterator[tuple[float, float]]:
    """The parts of [0, `until`] longer than `least_s` of which nothing is known."""
    reached = 0.0
    for began, ended in (*sorted(known), (until, until)):
        if began - reached > least_s:
            yield reached, began
        reached = max(reached, ended)


# -- processes -------------------------------------------------------------------------------------------------------------


def process_spans(samples: s.Samples) -> list[Span]:
    """running, paused or stopped; who runs shows its part instead: active, standby, leader, follower."""
    seen: dict[str, list[Seen]] = {}
    parts = _first_parts(samples)
    for look in samples.looks:
        match look:
            case s.ProcessStates():
                for name, state in look.states.items():
                    running = state == "running"
                    if not running:
                        parts.pop(name, None)  # whoever comes back has to say it again
                    seen.setdefault(name, []).append(Seen(look.t, parts.get(name, state) if running else state))
            case s.ControllerLook() | s.ZooKeeperLook():
                parts[look.process] = _part(look)
            case s.BrokerLook():
                parts.pop(look.process, None)
            case s.Silent():
                parts[look.source] = UNKNOWN
    return [span for name in sorted(seen, key=_kind_and_number) for span in spans(name, seen[name])]


def _part(look: s.ControllerLook | s.ZooKeeperLook) -> str:
    if isinstance(look, s.ZooKeeperLook):
        return look.role or "no quorum"
    return "active" if look.active else "standby"


def _first_parts(samples: s.Samples) -> dict[str, str]:
    """What each said first: the cluster was up before the run, so it had that part before it was asked."""
    looks = [look for look in samples.looks if isinstance(look, s.ControllerLook | s.ZooKeeperLook)]
    return {look.process: _part(look) for look in reversed(looks)}


def _kind_and_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition("-")
    return kind, int(number) if number.isdigit() else 0


# -- partitions ------------------------------------------------------------------------------------------------------------


def partition_states(samples: s.Samples) -> dict[Where, list[tuple[float, s.PartitionState]]]:
    """What clients were told of each partition. A broker that is behind tells old news: they are left out."""
    found: dict[Where, list[tuple[float, s.PartitionState]]] = {}
    for look in samples.of(s.Partitions):
        for state in look.partitions:
            told = found.setdefault((state.topic, state.partition), [])
            if not told or _version(state) >= _version(told[-1][1]):
                told.append((look.t, state))
    return found


def _version(state: s.PartitionState) -> tuple[int, int]:
    return state.leader_epoch, state.partition_epoch


def name_of(where: Where) -> str:
    return f"{where[0]}-{where[1]}"


def leader_spans(states: States, name: Callable[[Where], str] = name_of) -> list[Span]:
    """State: the broker, or none; detail: the leader epoch."""
    return [
        span
        for where, told in states.items()
        for span in spans(
            name(where),
            (Seen(t, f"broker {p.leader}" if p.leader >= 0 else "none", f"epoch {p.leader_epoch}") for t, p in told),
        )
    ]


def isr_spans(states: States, name: Callable[[Where], str] = name_of) -> list[Span]:
    """State: size of the ISR; detail: its members, of the replicas."""
    return [
        span
        for where, told in states.items()
        for span in spans(
            name(where),
            (Seen(t, str(len(p.isr)), f"{_listed(p.isr)} of {_listed(p.replicas)}") for t, p in told),
        )
    ]


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "nobody"


def elections(states: States) -> Line:
    """Sum over all partitions since the first look: a leader epoch counts the elections of its partition."""
    changes = sorted(
        (t, now.leader_epoch - before.leader_epoch)
        for told in states.values()
        for (_, before), (t, now) in pairwise(told)
        if now.leader_epoch > before.leader_epoch
    )
    seen_at = [t for told in states.values() for t, _ in told]
    if not seen_at:
        return Line("elections", (), ())
    times, values = [min(seen_at)], [0.0]
    for t, count in changes:
        times.append(t)
        values.append(values[-1] + count)
    return Line("elections", (*times, max(seen_at)), (*values, values[-1]))


def controller_spans(samples: s.Samples) -> list[Span]:
    """Who is the active controller, by its own word; the detail is its epoch."""
    seen = (Seen(x.t, x.process, f"epoch {x.epoch}") for x in samples.of(s.ControllerLook) if x.active)
    return list(spans("controller", seen))


# -- offsets ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offsets:
    """Of one partition."""

    where: Where
    high_watermark: Line
    """As its leader of the newest epoch tells it."""
    log_ends: tuple[Line, ...]
    """One a replica."""


def offsets(samples: s.Samples) -> dict[Where, Offsets]:
    ends: dict[Where, dict[str, _Points]] = {}
    marks: dict[Where, _Points] = {}
    epochs: dict[Where, int] = {}
    for look in samples.looks:
        match look:
            case s.Silent():
                for of_partition in ends.values():
                    if look.source in of_partition:
                        of_partition[look.source].add(look.t, NAN)
            case s.BrokerLook():
                for replica in look.replicas:
                    where = replica.topic, replica.partition
                    ends.setdefault(where, {}).setdefault(look.process, _Points()).add(look.t, replica.log_end)
                    if replica.leads and replica.leader_epoch >= epochs.get(where, -1):
                        epochs[where] = replica.leader_epoch
                        marks.setdefault(where, _Points()).add(look.t, replica.high_watermark)
    return {
        where: Offsets(
            where,
            marks.get(where, _Points()).line("HW"),
            tuple(points.line(process) for process, points in sorted(of_partition.items())),
        )
        for where, of_partition in sorted(ends.items())
    }


class _Points:
    """A line that grows; it has a hole where nothing came for HOLE_S."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._values: list[float] = []

    def add(self, t: float, value: float) -> None:
        if self._times and t - self._times[-1] > HOLE_S and not math.isnan(value):
            self._times.append(self._times[-1])
            self._values.append(NAN)
        self._times.append(t)
        self._values.append(value)

    def line(self, name: str) -> Line:
        return Line(name, tuple(self._times), tuple(self._values))


# -- groups and consumers --------------------------------------------------------------------------------------------------


def group_spans(samples: s.Samples) -> list[Span]:
    seen: dict[str, list[Seen]] = {}
    for look in samples.of(s.GroupLook):
        detail = f"generation {look.generation}, {look.members} members, coordinator broker {look.coordinator}"
        seen.setdefault(look.group, []).append(Seen(look.t, look.state, detail))
    return [span for group, each in sorted(seen.items()) for span in spans(group, each)]


class AsOf:
    """The newest value of a line that was known at a time."""

    def __init__(self, line: Line) -> None:
        known = [(t, value) for t, value in zip(line.times, line.values, strict=True) if not math.isnan(value)]
        self._times = [t for t, _ in known]
        self._values = [value for _, value in known]

    def __call__(self, t: float) -> float | None:
        at = bisect_right(self._times, t)
        return self._values[at - 1] if at else None

    def times(self, began: float, ended: float) -> Sequence[float]:
        return self._times[bisect_left(self._times, began) : bisect_right(self._times, ended)]


def lags(samples: s.Samples, readings: Iterable[Reading]) -> list[Line]:
    """Records committed to the log and not read yet: of each group by what it has committed, of each consumer with assigned
    partitions by its position."""
    marks = {where: AsOf(found.high_watermark) for where, found in offsets(samples).items()}
    groups: dict[str, _Points] = {}
    for look in samples.of(s.GroupLook):
        reached = dict.fromkeys(marks, 0.0) | {(c.topic, c.partition): float(c.offset) for c in look.committed}
        groups.setdefault(look.group, _Points()).add(look.t, _behind(marks, look.t, reached))
    lines = [points.line(f"group {name}") for name, points in sorted(groups.items())]
    of_process: dict[str, dict[Where, AsOf]] = {}
    for each in readings:
        points = Line("", tuple(p.t for p in each.positions), tuple(float(p.offset) for p in each.positions))
        of_process.setdefault(each.process, {})[each.topic, each.partition] = AsOf(points)
    return [*lines, *(_consumer_lag(name, of, marks) for name, of in sorted(of_process.items()))]


def _consumer_lag(process: str, readings: Mapping[Where, AsOf], marks: Mapping[Where, AsOf]) -> Line:
    """At each look at a watermark and each position, from its first to its last poll."""
    polled = [t for reading in readings.values() for t in reading.times(0.0, math.inf)]
    began, ended = min(polled), max(polled)
    watched = [t for where in readings if where in marks for t in marks[where].times(began, ended)]
    points = _Points()
    for t in sorted({*polled, *watched}):
        reached = {where: offset for where, reading in readings.items() if (offset := reading(t)) is not None}
        points.add(t, _behind(marks, t, reached))
    return points.line(process)


def _behind(marks: Mapping[Where, AsOf], t: float, reached: Mapping[Where, float]) -> float:
    """Sum over the partitions of which both ends are known."""
    ends = ((marks[where](t), offset) for where, offset in reached.items() if where in marks)
    return sum(max(0.0, high - offset) for high, offset in ends if high is not None)


# -- what to draw ----------------------------------------------------------------------------------------------------------


def most_eventful(
    partitions: Sequence[Where], limit: int, score: Callable[[Where], tuple[float, ...]]
) -> Sequence[Where]:
    """At most `limit`, those with the highest scores; in their own order."""
    chosen = sorted(partitions, key=score, reverse=True)[:limit]
    return [where for where in partitions if where in set(chosen)]
