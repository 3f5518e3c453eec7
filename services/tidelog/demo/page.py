"""The page of a demo: the same time lines as of a chaos run. The records are too many for a history with each of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.chaos import history as h
from tidelog.chaos.checker.verdict import Anomaly, Gap, Kept
from tidelog.chaos.checker.verdict import Verdict as Judged
from tidelog.chaos.checking import RUN, save_verdict
from tidelog.chaos.ledger import Outcome
from tidelog.chaos.observe import Observer
from tidelog.chaos.report.page import write_report, write_timeline
from tidelog.chaos.report.timeline import FaultSteps, SendBuckets, Timeline, phase_spans
from tidelog.chaos.samples import FILE_NAME as SAMPLES_FILE
from tidelog.cluster.api import Cluster
from tidelog.demo.verdict import Verdict
from tidelog.ports.clock import Clock

ACKS: Final = "all"
OUTCOMES: Final = {Outcome.ACKED: h.OK, Outcome.REFUSED: h.FAIL, Outcome.PENDING: h.INFO}
ANOMALIES: Final = {
    "lost": "lost-acked",
    "duplicated": "duplicate",
    "out_of_order": "nonmonotonic-send",
    "altered": "altered",
    "misplaced": "misplaced",
    "foreign": "never-sent",
}
"""By the finding: its name among the checker's rules, or its own."""


class Recording:
    """Takes down what happens, and writes the page in the end. Times are those of `clock`."""

    def __init__(self, directory: Path, clock: Clock, about: Mapping[str, Any]) -> None:
        """`about` goes into run.json."""
        self._directory = directory
        self._clock = clock
        self._began = clock.now()
        self._ended: float | None = None
        self._sends = SendBuckets()
        self._faults = FaultSteps()
        self._phases: list[tuple[float, str]] = []
        directory.mkdir(parents=True, exist_ok=True)
        run = {"name": "demo", "on": "local", "started_wall_ms": clock.wall_ms(), **about}
        (directory / RUN).write_text(json.dumps(run, indent=2) + "\n")

    def observer(self, cluster: Cluster, topic: str, group: str) -> Observer:
        path = self._directory / SAMPLES_FILE
        return Observer(cluster, self._clock, self._began, path, topics=[topic], groups=[group])

    def phase(self, name: str) -> None:
        self._phases.append((self._now(), name))

    def fault(self, number: int, name: str, what: str, target: str) -> None:
        self._faults.add(h.FaultStep(self._now(), "kill", what, (target,), name, number))

    def outcome(self, outcome: Outcome, sent_at: float, now: float) -> None:
        self._sends.completed(ACKS, OUTCOMES[outcome], sent_at - self._began, now - self._began)

    def end(self) -> None:
        """What comes after it is not on the time line."""
        self._ended = self._now()

    def write(self, verdict: Verdict, topic: str) -> Path:
        """The path of the page."""
        until = self._now() if self._ended is None else self._ended
        phases = tuple(phase_spans(self._phases, until))
        write_timeline(self._directory, Timeline(until, tuple(self._faults.spans()), phases, self._sends.sends(until)))
        gaps = tuple(
            Gap(topic, partition, ACKS, began - self._began, ended - self._began, over=True)
            for partition, (began, ended) in sorted(verdict.streamed.stalls.items())
        )
        save_verdict(self._directory, judgement(verdict, gaps))
        return write_report(self._directory)

    def _now(self) -> float:
        return self._clock.now() - self._began


def judgement(verdict: Verdict, gaps: tuple[Gap, ...]) -> Judged:
    streamed, found, processed = verdict.streamed, verdict.found, verdict.processed
    anomalies = {name: Anomaly(getattr(found, field), tolerated=False) for field, name in ANOMALIES.items()}
    missing = processed.found.lost
    wrong = sum(getattr(processed.found, field) for field in ("altered", "misplaced", "foreign"))
    promises = (
        Kept("every acknowledged record is read back, once and in order", found.sound, f"{found.lost:,} lost", "none"),
        Kept("every acknowledged record is processed by the group", not missing, f"{missing:,} missing", "none"),
        Kept("nothing else is processed", not wrong, f"{wrong:,} records", "none"),
    )
    notes = (
        [f"{processed.again:,} records were processed again: at least once is the promise."] if processed.again else []
    )
    if streamed.refused or streamed.unknown:
        notes.append(f"{streamed.refused:,} records were refused, and {streamed.unknown:,} not answered.")
    return Judged(anomalies, gaps, promises, notes=tuple(notes))
