"""Where the rules put what they find: a count for each, and the first few places."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec

from tidelog.chaos.checker.verdict import EXAMPLES_MAX, Anomaly, Example

P = ParamSpec("P")


@dataclass(slots=True)
class _Found:
    count: int = 0
    examples: list[Example] = field(default_factory=list)


class Findings:
    """Holds a rule from the moment it is judged, so that a clean one is there with count 0."""

    def __init__(self) -> None:
        self._rules: dict[str, _Found] = {}
        self.notes: list[str] = []

    def judged(self, *names: str) -> None:
        for name in names:
            self._rules.setdefault(name, _Found())

    def add(self, name: str, example: Callable[P, Example], *args: P.args, **kwargs: P.kwargs) -> None:
        """One more; `example` is called only while there are few."""
        found = self._rules[name]
        found.count += 1
        if len(found.examples) < EXAMPLES_MAX:
            found.examples.append(example(*args, **kwargs))

    def take(self, other: "Findings") -> None:
        """Adds the findings of another place."""
        for name, found in other._rules.items():
            mine = self._rules.setdefault(name, _Found())
            mine.count += found.count
            mine.examples.extend(found.examples)

    def was_judged(self, name: str) -> bool:
        return name in self._rules

    def count(self, name: str) -> int:
        return self._rules[name].count if name in self._rules else 0

    def anomalies(self, order: Iterable[str], tolerated: Callable[[str], bool]) -> Mapping[str, Anomaly]:
        """In the given order, which names every rule there is; of several partitions the examples that show first."""
        known = [name for name in order if name in self._rules]
        return {
            name: Anomaly(found.count, tolerated(name), tuple(sorted(found.examples, key=_when)[:EXAMPLES_MAX]))
            for name in known
            if (found := self._rules[name])
        }


def _when(example: Example) -> float:
    return example.t
