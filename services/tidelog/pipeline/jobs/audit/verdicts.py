"""Sums, findings and gaps of one run, to the verdict that `tidelog chaos check` gives: which rules were judged, what was not and
why, and what became of the promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos.checker.availability import check_available
from tidelog.chaos.checker.check import FINAL_READERS_MIN
from tidelog.chaos.checker.cycles import VARIANTS
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.kept import check_contents
from tidelog.chaos.checker.names import RULES, tolerated
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Example, Gap, Verdict

ALWAYS: Final = (
    *("inconsistent-offsets", "duplicate", "duplicate (not idempotent)", "G1a", "never-sent", "lost-write"),
    *("poll-skip", "nonmonotonic-poll", "poll-skip (subscribed)", "nonmonotonic-poll (subscribed)"),
    *("int-poll-skip", "int-nonmonotonic-poll", "int-send-skip", "int-nonmonotonic-send"),
    *("nonmonotonic-send", "nonmonotonic-send (unknown)", "precommitted-read", "watermark-fell"),
    *(variant.name for variant in VARIANTS),
)
OF_THE_END: Final = ("unseen", "allowed-loss")
OF_THE_FINAL_READ: Final = ("lost-acked", "final-incomplete", "final-differs")
OF_GROUPS: Final = (
    *("group-two-owners", "group-commit-fell", "group-commit-ahead", "group-skipped", "group-duplicates"),
)


@dataclass(frozen=True, slots=True)
class Sums:
    """Of one run; of a history without records all are zero."""

    records: int = 0
    ended_at: float = 0.0
    last_is_end: bool = False
    ended: bool = False
    final_read: bool = False
    has_values: bool = False
    has_group: bool = False
    has_members: bool = False
    polls: int = 0
    records_read: int = 0
    sends: int = 0
    acked: int = 0
    refused: int = 0
    partitions: int = 0
    final_readers: int = 0
    """Those that were not thrown away."""
    worst_lag_s: float = 0.0


@dataclass(slots=True)
class Found:
    """What the queries say of one run."""

    sums: Sums = field(default_factory=Sums)
    rules: dict[str, tuple[int, list[Example]]] = field(default_factory=dict)
    """By rule how many there are, and the first few."""
    gaps: list[Gap] = field(default_factory=list)
    unseen_over_time: list[tuple[float, int]] = field(default_factory=list)


def verdict(found: Found, promise: Promise, *, replicas_read: bool, history: str | None = None) -> Verdict:
    """`history`: the file's name, where a note is to say how far it reaches."""
    sums, findings = found.sums, Findings()
    findings.judged(*ALWAYS)
    if history is not None and not sums.last_is_end:
        findings.notes.append(f"{history} was cut off after line {sums.records}, at {sums.ended_at:.3f} s")
    _judge_end(sums, findings)
    if sums.has_group:
        findings.judged(*OF_GROUPS)
    if sums.has_members and sums.ended:
        findings.judged("group-unprocessed")
    if replicas_read:
        findings.judged("replicas-differ")
    else:
        findings.notes.append("replicas were not compared (X2)")
    for rule, (count, examples) in found.rules.items():
        findings.put(rule, count, examples)
    gaps = tuple(found.gaps)
    promises = (*check_contents(sums.acked, promise, findings), *check_available(gaps, promise, findings))
    anomalies = findings.anomalies(RULES, lambda name: tolerated(name, promise))
    return Verdict(anomalies, gaps, promises, _stats(found), sums.ended, tuple(findings.notes))


def _judge_end(sums: Sums, findings: Findings) -> None:
    if not sums.ended:
        findings.notes.append(
            f"the history does not reach to the end of the run, but to {sums.ended_at:.3f} s: it is checked up to there, "
            "and what only the final read can show is not judged (X1, X3, unseen)"
        )
        return
    if (readers := sums.final_readers) < FINAL_READERS_MIN:
        findings.notes.append(
            f"X1 wants {FINAL_READERS_MIN} readers of the final phase that are not thrown away; there is {readers}"
        )
    findings.judged(*OF_THE_END)
    if not sums.final_read and sums.has_values:
        findings.notes.append("there was no final read: what is in the log at last is not judged (X1)")
    else:
        findings.judged(*OF_THE_FINAL_READ)


def _stats(found: Found) -> Mapping[str, Any]:
    sums = found.sums
    return {
        "seconds": round(sums.ended_at, 6),
        "sends": sums.sends,
        "ok": sums.acked,
        "fail": sums.refused,
        "info": sums.sends - sums.acked - sums.refused,
        "polls": sums.polls,
        "records_read": sums.records_read,
        "final_readers": sums.final_readers,
        "partitions": sums.partitions,
        "worst_lag_s": round(sums.worst_lag_s, 6),
        "longest_gap_s": round(max((gap.seconds for gap in found.gaps), default=0.0), 6),
        "unseen_over_time": [[round(t, 3), count] for t, count in found.unseen_over_time],
    }


def longest_gap(
    began: float | None, ended: float | None, since: float | None, until: float
) -> tuple[float, float, bool]:
    """(began, ended, whether an acknowledgement ended it), of the longest that was ended and the one that is still open, which
    lasts `until` nobody sends any more."""
    longest = (0.0, 0.0, True) if began is None or ended is None else (began, ended, True)
    if since is not None and until - since > longest[1] - longest[0]:
        return since, until, False
    return longest


def in_force(faults: Sequence[tuple[str, float, float | None]], began: float, ended: float) -> tuple[str, ...]:
    """Names of the faults (name, began, healed at) that were in force at any time of a gap, each once."""
    names = [name for name, since, until in faults if since < ended and (until is None or until > began)]
    return tuple(dict.fromkeys(names))
