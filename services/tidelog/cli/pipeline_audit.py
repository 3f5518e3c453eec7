"""What a person sees of an audit: each step as it is done, then what `tidelog chaos check` shows, and a line for each run."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT, Verdict, worst
from tidelog.cli.chaos_screen import print_verdict
from tidelog.cli.show import note, print_table

if TYPE_CHECKING:
    from tidelog.pipeline.jobs.audit.judged import Judged

_WORDS: Final = {0: "SOUND", 1: "BROKEN", EXIT_NO_VERDICT: "NO VERDICT"}


class Steps:
    """A line for each step on the standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = self._last = time.monotonic()

    def __call__(self, what: str, rows: int) -> None:
        now = time.monotonic()
        rate = rows / max(now - self._last, 1e-3)
        self._last = now
        if not self._quiet:
            note(f"audit: {now - self._began:6.1f} s  {what}: {rows:,} rows, {rate:,.0f} rows/s")


def exit_code(judged: Sequence["Judged"]) -> int:
    """The worst of them, as of several runs of `tidelog chaos run`."""
    return worst(map(_code, judged))


def as_json(judged: Sequence["Judged"]) -> Any:
    """Of one run its verdict, as `tidelog chaos check` prints it; of several a list."""
    if len(judged) == 1 and isinstance(judged[0].verdict, Verdict):
        return judged[0].verdict.to_json()
    return [
        {"directory": str(each.directory), "verdict": each.verdict.to_json(), "why": None}
        if isinstance(each.verdict, Verdict)
        else {"directory": str(each.directory), "verdict": None, "why": str(each.verdict)}
        for each in judged
    ]


def print_judged(judged: Sequence["Judged"]) -> None:
    for each in judged:
        if len(judged) > 1:
            note(f"{each.directory}:")
        if isinstance(each.verdict, Verdict):
            print_verdict(each.verdict)
    if len(judged) > 1:
        print_table(
            ("RUN", "VERDICT", "SENDS", "ACKED", "READ", "ANOMALIES", "PROMISES-KEPT"), [_row(each) for each in judged]
        )
    for each in judged:
        if not isinstance(each.verdict, Verdict):
            note(f"no verdict: {each.verdict}")


def _code(judged: "Judged") -> int:
    return judged.verdict.exit_code if isinstance(judged.verdict, Verdict) else EXIT_NO_VERDICT


def _row(judged: "Judged") -> tuple[Any, ...]:
    word, verdict = _WORDS[_code(judged)], judged.verdict
    if not isinstance(verdict, Verdict):
        return (judged.directory, word, "-", "-", "-", "-", "-")
    stats = verdict.stats
    bad = sum(anomaly.count for anomaly in verdict.anomalies.values() if anomaly.bad)
    kept = f"{sum(promise.kept for promise in verdict.promises)}/{len(verdict.promises)}"
    return (judged.directory, word, stats["sends"], stats["ok"], stats["records_read"], bad, kept)
