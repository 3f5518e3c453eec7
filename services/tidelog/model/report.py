"""What a reader sees: a line of progress, a trace as a story, a table. Text in, text out."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.model.catalogue import Check
from tidelog.model.search import Outcome, Progress

WIDTH = 118


@dataclass(frozen=True, slots=True)
class Finished:
    check: Check
    outcome: Outcome
    took_s: float

    @property
    def as_expected(self) -> bool:
        """A rule set that is right holds as far as was asked; a mutant is found."""
        return (self.outcome.violation is not None) == self.check.mutant

    @property
    def result(self) -> str:
        found, depth = self.outcome.violation is not None, self.check.depth
        if self.check.mutant:
            known = "" if depth is None else f", documented {depth}"
            return f"found in {self.outcome.depth} steps{known}" if found else "NOT FOUND"
        if found:
            return f"VIOLATED in {self.outcome.depth} steps"
        return "holds, exhaustive" if self.outcome.exhausted else f"holds to depth {self.outcome.depth}"


def progress_line(check: Check, progress: Progress, took_s: float) -> str:
    speed = progress.states / took_s if took_s > 0 else 0.0
    return f"{check.key}: {progress.states:,} states, depth {progress.depth}, {speed:,.0f}/s"


def story(finished: Finished) -> str:
    """The shortest trace, a numbered sentence for each step."""
    check, outcome = finished.check, finished.outcome
    lines = [f"{check.key} ({check.section}): {check.rules}; {check.bounds}"]
    for number, sentence in enumerate(outcome.story, 1):
        lines += textwrap.wrap(sentence, WIDTH, initial_indent=f"{number:4}. ", subsequent_indent=" " * 6)
    lines += textwrap.wrap(outcome.violation or "", WIDTH, initial_indent="   => ", subsequent_indent=" " * 6)
    return "\n".join(lines)


def table(all_finished: Sequence[Finished]) -> str:
    """Aligned columns, one line a check, in the order given."""
    head = ("model", "check", "rules", "bounds", "states", "depth", "result", "seconds")
    rows = [
        (
            each.check.section,
            each.check.key,
            each.check.rules,
            each.check.bounds,
            f"{each.outcome.states:,}",
            str(each.outcome.depth),
            each.result,
            f"{each.took_s:.1f}",
        )
        for each in all_finished
    ]
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    right = {4, 5, 7}
    return "\n".join(
        "  ".join(
            cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    )
