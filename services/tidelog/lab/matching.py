"""Patterns of protocol events, and sequences of them with their causes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.lab.steps import Step
from tidelog.ports.recorder import Cause
from tidelog.watch.formats import plain


@dataclass(frozen=True, slots=True)
class Pattern:
    kind: str
    """A class of events."""
    process: str = ""
    """A name or a label; empty: any."""
    subject: str = ""
    """Like `events-0`, or the number of a broker; empty: any."""
    fields: Mapping[str, Any] | None = None
    """Fields that must have these values; those of znodes may be left out."""
    caused: bool = False
    """The event before it in the sequence must have led to it, in one step or several."""

    def matches(self, step: Step, labels: Mapping[str, str]) -> bool:
        if step.kind != self.kind:
            return False
        if self.process not in ("", step.process) and labels.get(self.process) != step.process:
            return False
        if self.subject and str(step.subject) != self.subject:
            return False
        return all(plain(getattr(step.fields, name)) == wanted for name, wanted in (self.fields or {}).items())

    def __str__(self) -> str:
        fields = ", ".join(f"{name} {value}" for name, value in (self.fields or {}).items())
        about = f" of {self.subject}" if self.subject else ""
        by = f" by {self.process}" if self.process else ""
        return f"{self.kind}{about}{by}" + (f" ({fields})" if fields else "")


class Past:
    """The events of a story, and which led to which."""

    def __init__(self, steps: Sequence[Step], labels: Mapping[str, str]) -> None:
        self.steps = steps
        self._labels = labels
        self._by_name = {step.name: step for step in steps}

    def between(self, begin: float, end: float) -> list[Step]:
        return [step for step in self.steps if begin <= step.t <= end]

    def led_to(self, first: Step, later: Step) -> bool:
        name: Cause | None = later.cause
        while name is not None and name in self._by_name:
            if name == first.name:
                return True
            name = self._by_name[name].cause
        return False

    def first(self, pattern: Pattern, steps: Sequence[Step]) -> Step | None:
        return next((step for step in steps if pattern.matches(step, self._labels)), None)

    def sequence(self, patterns: Sequence[Pattern], steps: Sequence[Step]) -> int:
        """Returns how many patterns, from the first on, are matched by events in this order."""
        return self._longest(patterns, steps, 0, -1, {})

    def _longest(
        self,
        patterns: Sequence[Pattern],
        steps: Sequence[Step],
        number: int,
        before: int,
        known: dict[tuple[int, int], int],
    ) -> int:
        """`before` is the place of the event that the pattern before matched."""
        if number == len(patterns):
            return number
        key = (number, before)
        if key not in known:
            pattern, best = patterns[number], number
            for place in range(before + 1, len(steps)):
                step = steps[place]
                if not pattern.matches(step, self._labels):
                    continue
                if pattern.caused and (before < 0 or not self.led_to(steps[before], step)):
                    continue
                best = max(best, self._longest(patterns, steps, number + 1, place, known))
                if best == len(patterns):
                    break
            known[key] = best
        return known[key]
