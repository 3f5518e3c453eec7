"""Plays a story: the actions at their times, the looks of the expectations between them, and the verdict."""

import hashlib
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.lab.cast import resolved
from tidelog.lab.clients import FAILURES, Sends
from tidelog.lab.cluster import LabError
from tidelog.lab.engine import Engine
from tidelog.lab.expectations import Outcome, Seen
from tidelog.lab.matching import Past
from tidelog.lab.steps import Act, Step
from tidelog.lab.story import Beat, Story, StoryError
from tidelog.lab.verdict import Verdict
from tidelog.testing.invariants import Violation
from tidelog.watch.formats import plain

PROCESSES = ("process", "from", "to")
"""Parameters of actions that hold a process, or a role."""


@dataclass(frozen=True, slots=True)
class Played:
    """A story that has been played, with its steps and results."""

    story: Story
    began_s: float
    """When the cluster and its topics were up."""
    steps: Sequence[Step | Act]
    outcomes: Sequence[Outcome]
    verdict: Verdict

    @property
    def held(self) -> bool:
        """True if every expectation holds and the verdict is sound."""
        return self.verdict.sound and all(outcome.held for outcome in self.outcomes)

    @property
    def digest(self) -> str:
        """A digest of every field of every event, and of the acts between them."""
        digest = hashlib.sha256()
        for step in self.steps:
            digest.update(encoded(step).encode() + b"\n")
        return digest.hexdigest()


def encoded(step: Step | Act) -> str:
    """Returns one line of JSON."""
    return json.dumps(as_json(step), separators=(",", ":"))


def as_json(step: Step | Act) -> dict[str, Any]:
    t = round(step.t, 6)
    if isinstance(step, Act):
        return {"t": t, "say" if step.narrated else "act": step.text}
    cause = step.cause
    return {
        "t": t,
        "process": step.process,
        "life": step.life,
        "number": step.event.number,
        "wall_ns": step.event.wall_ns,
        "kind": step.kind,
        "subject": plain(step.subject if step.subject is None else str(step.subject)),
        "cause": None if cause is None else list(cause),
        "fields": plain(step.fields),
    }


@dataclass(slots=True)
class _Player:
    engine: Engine
    story: Story
    labels: dict[str, str] = field(default_factory=dict)
    sends: dict[str, Sends] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    looks: list[list[Any]] = field(default_factory=list)

    def set_up(self) -> None:
        self.engine.start()
        for topic in self.story.topics:
            self.engine.do(
                self.engine.cluster.create_topic(
                    topic.name, topic.partitions, topic.replication_factor, topic.replicas, topic.settings
                )
            )

    def play(self) -> None:
        """StoryError, Violation."""
        self.looks = [[] for _ in self.story.expectations]
        moments = [(at_s, 0, number) for number, each in enumerate(self.story.expectations) for at_s in each.moments]
        moments += [(beat.at_s, 1, number) for number, beat in enumerate(self.story.beats)]
        for at_s, is_beat, number in sorted(moments):
            self._until(at_s)
            if is_beat:
                self._beat(self.story.beats[number])
            else:
                self._look(number)
        self._until(self.story.duration_s)

    def _until(self, at_s: float) -> None:
        left = at_s - self.engine.time
        if left > 0:
            self.engine.run(left)

    def _look(self, number: int) -> None:
        view = self.engine.cluster.view
        self.looks[number].append(self.story.expectations[number].look(view, self.labels, self.sends))

    def _beat(self, beat: Beat) -> None:
        cluster = self.engine.cluster
        if beat.action is None:
            cluster.steps.add(Act(self.engine.time, beat.values["say"], narrated=True))
            return
        action, line = beat.action, f"{self.story.file}:{beat.line}"

        def play() -> None:
            values = {
                name: resolved(value, cluster.view, self.labels) if name in PROCESSES else value
                for name, value in beat.values.items()
            }
            found = action.play(cluster, values)
            if isinstance(found, Sends):
                self.sends[beat.label] = found
            elif found is not None:
                cluster.tasks.start("action", self._result(beat.label, found))
            elif beat.label:
                self.labels[beat.label] = values["process"]

        try:
            self.engine.act(play)
        except LabError as error:
            raise StoryError(f"{line}: {error}") from None

    async def _result(self, label: str, coro: Coroutine[Any, Any, Any]) -> None:
        cluster = self.engine.cluster
        try:
            found = await coro
        except FAILURES as error:
            code = error.code.name if isinstance(error, TidelogError) else type(error).__name__
            cluster.say(f"refused: {error}" if isinstance(error, TidelogError) else f"failed: {error}")
        else:
            code = "none"
            if isinstance(found, list):
                _tell_read(cluster, found)
        if label:
            self.results[label] = code


def _tell_read(cluster: Any, records: Sequence[ConsumerRecord]) -> None:
    cluster.say(f"{len(records):,} records were read")


def play(story: Story, *, invariants: bool = True) -> Played:
    """Plays a story. StoryError: an action could not be done, since it is for a process that is down, say.

    A broken invariant ends the story there; expectations of later times do not hold then.
    """
    engine = Engine(story.seed, story.brokers, story.controllers, story.timing, invariants=invariants)
    player = _Player(engine, story)
    try:
        began_s, violation = 0.0, ""
        verdict = Verdict(0, 0, 0, 0)
        steps: list[Step | Act] = []
        try:
            player.set_up()
            began_s = engine.time
            if began_s > story.beats[0].at_s:
                line = f"{story.file}:{story.beats[0].line}"
                raise StoryError(f"{line}: the cluster is up after {began_s:.2f} s; the first action is too early")
            player.play()
            steps = list(engine.cluster.steps)
            verdict = engine.do(engine.cluster.verdict(story.promise))
        except Violation as error:
            violation = str(error)
            steps = steps or list(engine.cluster.steps)
            verdict = Verdict(0, 0, 0, 0, violation=violation)
        past = Past([step for step in steps if isinstance(step, Step)], player.labels)
        seen = Seen(past, player.sends, player.results, verdict)
        looks = player.looks or [[] for _ in story.expectations]
        outcomes = [each.judge(found, seen) for each, found in zip(story.expectations, looks, strict=True)]
        return Played(story, began_s, steps, outcomes, verdict)
    finally:
        engine.close()
