"""Plays a story as far as it is asked to: actions at their times, and between them the looks of expectations."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.lab.cast import Cast, resolved
from tidelog.lab.clients import FAILURES, Sends
from tidelog.lab.cluster import LabCluster, LabError
from tidelog.lab.engine import Engine
from tidelog.lab.expectations import Outcome, Seen
from tidelog.lab.matching import Past
from tidelog.lab.steps import Act, Step
from tidelog.lab.story import Beat, Story, StoryError
from tidelog.lab.verdict import Counts, Verdict
from tidelog.lab.view import Partition
from tidelog.testing.sim_agent import AgentNode

PROCESSES: Final = ("process", "from", "to")
"""Parameters of actions that hold a process, or a role."""


class _Moment(NamedTuple):
    at_s: float
    is_beat: bool
    """At the same time, looks come before actions."""
    number: int
    """The place of the expectation or the beat."""


class Player:
    """The cluster of a story, at some moment of it. `close` ends it.

    A story that is played in parts is the same as one that is played at once. What is added to it is a part of it from then on.
    """

    def __init__(self, story: Story, *, invariants: bool = True, added: Iterable[Beat] = ()) -> None:
        """added: actions of the story that `add` has made a part of it."""
        self.story = story
        self._added = list(added)
        self.engine = Engine(story.seed, story.brokers, story.controllers, story.timing, invariants=invariants)
        self.began_s = 0.0
        """When the cluster and its topics were up."""
        self.labels: dict[str, str] = {}
        self._sends: dict[str, Sends] = {}
        self._results: dict[str, str] = {}
        self._looks: list[list[Any]] = [[] for _ in story.expectations]
        self._beats = list(story.beats)
        self._moments = sorted(
            [
                *(
                    _Moment(at_s, False, number)
                    for number, each in enumerate(story.expectations)
                    for at_s in each.moments
                ),
                *(_Moment(beat.at_s, True, number) for number, beat in enumerate(story.beats)),
            ]
        )
        self._next = 0
        """The first moment that is still to come."""

    @property
    def cluster(self) -> LabCluster:
        return self.engine.cluster

    @property
    def time(self) -> float:
        """Seconds of virtual time since the cluster began to start."""
        return self.engine.time

    @property
    def over(self) -> bool:
        """Nothing will happen any more."""
        return False

    @property
    def steps(self) -> list[Step | Act]:
        return list(self.cluster.steps)

    def set_up(self) -> None:
        """Returns when the cluster and its topics are up. StoryError, Violation."""
        self.engine.start()
        for topic in self.story.topics:
            self.engine.do(
                self.cluster.create_topic(
                    topic.name, topic.partitions, topic.replication_factor, topic.replicas, topic.settings
                )
            )
        self.began_s = self.engine.time
        first = next(iter(self.story.beats), None)
        if first is not None and self.began_s > first.at_s:
            line = f"{self.story.file}:{first.line}"
            raise StoryError(f"{line}: the cluster is up after {self.began_s:.2f} s; the first action is too early")

    def advance(self, until_s: float, halted: Callable[[], bool] = lambda: False) -> bool:
        """Plays up to `until_s`, actions of that time included, or until `halted` is true after a step of the simulation.

        Returns False if it was halted. StoryError, Violation.
        """
        while self._next < len(self._moments) and self._moments[self._next].at_s <= until_s:
            moment = self._moments[self._next]
            if not self.engine.advance(moment.at_s, halted):
                return False
            self._next += 1
            if moment.is_beat:
                self._play_or_drop(self._beats[moment.number])
            else:
                look = self.story.expectations[moment.number].look
                self._looks[moment.number].append(look(self.cluster.view, self.labels, self._sends))
        return self.engine.advance(until_s, halted)

    @property
    def added(self) -> Sequence[Beat]:
        return self._added

    def add(self, beat: Beat) -> None:
        """Plays an action now, which `beat.at_s` must be, and makes it a part of the story.

        What was added for later is dropped. StoryError: it could not be done, and the story is as it was. Violation.
        """
        self._play(beat)
        later = [self._beats[moment.number] for moment in self._moments[self._next :] if moment.is_beat]
        self._drop([each for each in later if _is_among(each, self._added)])
        coming = [each for each in later if not _is_among(each, self._added)]
        place = len(self.story.beats) - len(coming)
        self.story = replace(self.story, beats=(*self.story.beats[:place], beat, *self.story.beats[place:]))
        self._added.append(beat)

    def _drop(self, beats: Sequence[Beat]) -> None:
        gone = [number for number, each in enumerate(self._beats) if _is_among(each, beats)]
        self._moments[self._next :] = [
            moment for moment in self._moments[self._next :] if not (moment.is_beat and moment.number in gone)
        ]
        self._added = [each for each in self._added if not _is_among(each, beats)]
        kept = tuple(each for each in self.story.beats if not _is_among(each, beats))
        self.story = replace(self.story, beats=kept)

    def _play_or_drop(self, beat: Beat) -> None:
        """An action that cannot be done is no part of the story any more."""
        try:
            self._play(beat)
        except StoryError:
            self._drop([beat])
            raise

    def cast(self) -> Cast:
        """Returns the names that an action may use now."""
        view, nodes = self.cluster.view, self.cluster.sim.nodes
        return Cast(
            self.story.brokers,
            self.story.controllers,
            topics={name: view.count(name) for name in view.topics()},
            agents=[name for name, node in nodes.items() if isinstance(node, AgentNode)],
            groups=view.groups(),
            labels=dict.fromkeys(self.labels, "process"),
        )

    def _play(self, beat: Beat) -> None:
        cluster = self.cluster
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
                self._sends[beat.label] = found
            elif found is not None:
                cluster.tasks.start("action", self._result(beat.label, found))
            elif beat.label:
                self.labels[beat.label] = values["process"]

        try:
            self.engine.act(play)
        except LabError as error:
            raise StoryError(f"{line}: {error}") from None

    async def _result(self, label: str, coro: Coroutine[Any, Any, Any]) -> None:
        cluster = self.cluster
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
            self._results[label] = code

    def counts(self, partitions: Sequence[Partition]) -> Counts:
        """Counts what clients were told and what the logs hold now. partitions: all of this moment."""
        cluster = self.cluster
        leaders = {TopicPartition(each.topic, each.number): each.leader for each in partitions}
        lost, duplicated, reordered = cluster.clients.contents.look(leaders)
        tally = cluster.clients.tally
        return Counts(
            tally.acknowledged,
            tally.waiting.total(),
            lost,
            duplicated,
            reordered,
            cluster.groups.repeated.total(),
            round(tally.longest_wait(self.time), 6),
        )

    def verdict_so_far(self) -> Verdict:
        """Judges without a read; no time passes."""
        return self.cluster.verdict_so_far(self.story.promised)

    def verdict(self) -> Verdict:
        """Judges by reading everything, which takes time. Violation."""
        return self.engine.do(self.cluster.verdict(self.story.promise))

    def judge(self, verdict: Verdict, steps: Sequence[Step | Act]) -> list[Outcome]:
        """Judges every expectation by what has been seen so far."""
        past = Past([step for step in steps if isinstance(step, Step)], self.labels)
        seen = Seen(past, self._sends, self._results, verdict)
        return [each.judge(found, seen) for each, found in zip(self.story.expectations, self._looks, strict=True)]

    def close(self) -> None:
        self.engine.close()


def _is_among(beat: Beat, beats: Sequence[Beat]) -> bool:
    """Two actions may be equal and yet two."""
    return any(each is beat for each in beats)


def _tell_read(cluster: LabCluster, records: Sequence[ConsumerRecord]) -> None:
    cluster.say(f"{len(records):,} records were read")
