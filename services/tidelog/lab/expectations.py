"""Expectations of a story: states of partitions, groups and processes at a time, events, outcomes of sends, the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from tidelog.ids import TopicPartition
from tidelog.lab.clients import Sends
from tidelog.lab.matching import Past, Pattern
from tidelog.lab.verdict import Verdict
from tidelog.lab.view import Group, Partition, View

STATES: Final = ("leader", "epoch", "isr", "replicas", "high_watermark", "log_end", "log_start")
"""Fields of a partition that a story can name."""
REPLICA_STATES: Final = ("log_ends", "high_watermarks", "epochs")
"""Fields of a partition's replicas, by broker."""
GROUP_STATES: Final = ("generation", "phase", "members", "owners", "committed", "processed", "repeated")
COUNTS: Final = ("acknowledged", "lost", "duplicated", "reordered")


@dataclass(slots=True)
class Seen:
    """The remains of a played story, by which its expectations are judged."""

    past: Past
    sends: Mapping[str, Sends]
    results: Mapping[str, str]
    """Codes of the errors with which actions ended, or `none`, by label."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    """The expectation in words."""
    held: bool
    found: str = ""
    """Empty, or the state that was seen instead."""
    line: int = 0


class Expectation(Protocol):
    @property
    def line(self) -> int: ...

    @property
    def moments(self) -> Sequence[float]:
        """Times at which it must look at the cluster."""
        ...

    @property
    def due_s(self) -> float:
        """The time from which on it can be judged."""
        ...

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        """Returns what it must know of this moment."""
        ...

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        """`looks` are what `look` has returned, as far as the story came."""
        ...


@dataclass(frozen=True, slots=True)
class _Base:
    line: int

    @property
    def moments(self) -> Sequence[float]:
        return ()

    @property
    def due_s(self) -> float:
        return max(self.moments, default=inf)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        return None

    def outcome(self, text: str, held: bool, found: str = "") -> Outcome:
        return Outcome(text, held, "" if held else found, self.line)

    def unreached(self, text: str) -> Outcome:
        return self.outcome(text, False, "the story did not get so far")


@dataclass(frozen=True, slots=True)
class PartitionIs(_Base):
    at_s: float
    tp: TopicPartition
    wanted: Mapping[str, Any]

    @property
    def moments(self) -> Sequence[float]:
        return (self.at_s,)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        found = pictured(view, self.tp)
        return {} if found is None else {name: of_partition(found, name) for name in self.wanted}

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = f"at {self.at_s:g} s {self.tp} has {_listed(self.wanted)}"
        if not looks:
            return self.unreached(text)
        (found,) = looks
        # Of replicas only those that are named count.
        held = all(_covers(found.get(name), value) for name, value in self.wanted.items())
        return self.outcome(text, held, _listed(found) or "there is no such partition")


@dataclass(frozen=True, slots=True)
class Stands(_Base):
    """A field of a partition has the same value at both times."""

    from_s: float
    to_s: float
    tp: TopicPartition
    name: str

    @property
    def moments(self) -> Sequence[float]:
        return (self.from_s, self.to_s)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        found = pictured(view, self.tp)
        return None if found is None else of_partition(found, self.name)

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = f"from {self.from_s:g} s to {self.to_s:g} s {_words(self.name)} of {self.tp} stands still"
        if len(looks) < len(self.moments):
            return self.unreached(text)
        before, after = looks
        return self.outcome(text, before is not None and before == after, f"{before}, then {after}")


@dataclass(frozen=True, slots=True)
class ProcessIs(_Base):
    at_s: float
    process: str
    state: str

    @property
    def moments(self) -> Sequence[float]:
        return (self.at_s,)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        name = labels.get(self.process, self.process)
        return "controller" if self.state == "controller" and view.controller == name else view.processes().get(name)

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = f"at {self.at_s:g} s {self.process} is {self.state}"
        return self.outcome(text, looks[0] == self.state, f"it is {looks[0]}") if looks else self.unreached(text)


@dataclass(frozen=True, slots=True)
class GroupIs(_Base):
    at_s: float
    group: str
    wanted: Mapping[str, Any]

    @property
    def moments(self) -> Sequence[float]:
        return (self.at_s,)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        try:
            found = view.group(self.group)
        except KeyError:
            return {}
        return {name: _of_group(found, name) for name in self.wanted}

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = f"at {self.at_s:g} s group {self.group} has {_listed(self.wanted)}"
        if not looks:
            return self.unreached(text)
        held = all(_covers(looks[0].get(name), value) for name, value in self.wanted.items())
        return self.outcome(text, held, _listed(looks[0]) or "there is no such group")


@dataclass(frozen=True, slots=True)
class SendsAre(_Base):
    label: str
    at_s: float
    acked: int | None = None
    waiting: int | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    """Records by the error with which they failed; what is not named must not have happened, if there is any."""

    @property
    def moments(self) -> Sequence[float]:
        return (self.at_s,)

    def look(self, view: View, labels: Mapping[str, str], sends: Mapping[str, Sends]) -> Any:
        found = sends.get(self.label) or Sends("", "")
        return found.acked, found.waiting, dict(found.failed), str(found)

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        parts = [f"{self.acked} acknowledged"] if self.acked is not None else []
        parts += [f"{self.waiting} waiting"] if self.waiting is not None else []
        parts += [f"{count} failed with {code}" for code, count in self.failed.items()]
        text = f"at {self.at_s:g} s of the records {self.label!r} there are {', '.join(parts)}"
        if not looks:
            return self.unreached(text)
        acked, waiting, failed, told = looks[0]
        held = self.acked in (None, acked) and self.waiting in (None, waiting)
        return self.outcome(text, held and (not self.failed or dict(self.failed) == failed), told)


@dataclass(frozen=True, slots=True)
class ResultIs(_Base):
    label: str
    error: str

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        found = seen.results.get(self.label, "it has not ended")
        return self.outcome(f"{self.label!r} ends with error {self.error}", found == self.error, found)


@dataclass(frozen=True, slots=True)
class EventsAre(_Base):
    from_s: float
    to_s: float
    patterns: tuple[Pattern, ...]

    @property
    def due_s(self) -> float:
        return self.to_s

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        told = "; ".join(f"{'which leads to ' if each.caused else ''}{each}" for each in self.patterns)
        text = f"from {self.from_s:g} s to {self.to_s:g} s: {told}"
        count = seen.past.sequence(self.patterns, seen.past.between(self.from_s, self.to_s))
        missing = "" if count == len(self.patterns) else f"{self.patterns[count]} is missing"
        return self.outcome(text, not missing, missing)


@dataclass(frozen=True, slots=True)
class NoEvent(_Base):
    from_s: float
    to_s: float
    pattern: Pattern

    @property
    def due_s(self) -> float:
        return self.to_s

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = f"from {self.from_s:g} s to {self.to_s:g} s: no {self.pattern}"
        found = seen.past.first(self.pattern, seen.past.between(self.from_s, self.to_s))
        return self.outcome(text, found is None, str(found).strip())


@dataclass(frozen=True, slots=True)
class VerdictIs(_Base):
    wanted: Mapping[str, int]

    def judge(self, looks: Sequence[Any], seen: Seen) -> Outcome:
        text = "in the end: " + ", ".join(f"{count} {name}" for name, count in self.wanted.items())
        found = {name: getattr(seen.verdict, name) for name in self.wanted}
        return self.outcome(text, found == self.wanted and not seen.verdict.unread, str(seen.verdict))


def pictured(view: View, tp: TopicPartition) -> Partition | None:
    try:
        return view.partition(*tp)
    except KeyError:
        return None


def of_partition(partition: Partition, name: str) -> Any:
    match name:
        case "log_ends":
            return {broker: replica.log_end for broker, replica in partition.at.items()}
        case "high_watermarks":
            return {broker: replica.high_watermark for broker, replica in partition.at.items()}
        case "epochs":
            return {broker: replica.epoch for broker, replica in partition.at.items()}
    found = getattr(partition, name)
    return list(found) if isinstance(found, tuple) else found


def _of_group(group: Group, name: str) -> Any:
    found = getattr(group, name)
    if isinstance(found, Mapping):
        return {str(tp): value for tp, value in found.items()}
    return list(found) if isinstance(found, tuple) else found


def _covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and found[key] == value for key, value in wanted.items())
    return bool(found == wanted)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_words(name)} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{each} at {key}" for key, each in value.items()) or "nowhere"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "empty"
    return str(value)
