"""A story: a cluster, what is done to it and when, and what must be seen. Made from a file by `story_file`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos.checker.promise import Loss
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.lab.actions import Action
from tidelog.lab.cluster import TIMING
from tidelog.lab.digest import Chain
from tidelog.lab.expectations import Expectation
from tidelog.testing.sim_node import Timing

VERSION: Final = 1
DURATION_MAX_S: Final = 24 * 3600.0

StoryError = ScenarioError
"""One line about a file: `file:line: text`."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    replication_factor: int
    replicas: tuple[tuple[int, ...], ...] = ()
    """Brokers of each partition; if given, the two numbers do not count."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Partitions of the topic."""
        return len(self.replicas) or self.partitions


@dataclass(frozen=True, slots=True)
class Beat:
    """Something that happens at a time of the story."""

    at_s: float
    line: int
    action: Action | None
    """None: the narrator speaks."""
    values: Mapping[str, Any]
    """The parameters of the action, or `say`."""
    label: str = ""
    """The name under which expectations and later actions know the result."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The action as it stands in the file."""


@dataclass(frozen=True, slots=True)
class Story:
    file: str
    title: str
    seed: int
    duration_s: float
    beats: tuple[Beat, ...]
    expectations: tuple[Expectation, ...]
    lesson: int | None = None
    text: str = ""
    question: str = ""
    answer: str = ""
    mutant: str = ""
    """The planted mistake with which an expectation fails; scripts/mutants has it."""
    brokers: int = 3
    controllers: int = 2
    timing: Timing = field(kw_only=True)
    topics: tuple[TopicPlan, ...] = ()
    promise: Loss = "none"
    simulation: str = ""
    """The name of a run of the simulator. Its seed decides everything, so the story has nothing else and no duration."""
    chain: Chain | None = None
    """The steps of the run that was saved as this story."""

    @property
    def promised(self) -> Loss:
        """The losses that must be expected: those of `promise`, and those that its actions ask for."""
        values = [beat.values for beat in self.beats if beat.action is not None]
        if self.promise == "allowed" or any(each.get("unclean") for each in values) or self._does("release veto"):
            return "allowed"
        return "one-copy" if any(each.get("acks") == "1" for each in values) else self.promise

    def _does(self, name: str) -> bool:
        return any(beat.written.get("do") == name for beat in self.beats)

    @property
    def heading(self) -> str:
        return self.title if self.lesson is None else f"Lesson {self.lesson}: {self.title}"


def free(seed: int, brokers: int, controllers: int, topics: tuple[TopicPlan, ...]) -> Story:
    """Returns a story in which nothing is planned: the reader decides."""
    return Story(
        file="lab",
        title=f"{brokers} brokers, {controllers} controllers",
        seed=seed,
        duration_s=DURATION_MAX_S,
        beats=(),
        expectations=(),
        brokers=brokers,
        controllers=controllers,
        timing=TIMING,
        topics=topics,
    )


def simulated(seed: int, simulation: str) -> Story:
    """Returns the story of a run of the simulator. simulation: one of `testing.stories.NAMES`."""
    return Story(
        file="",
        title=f"A run of the simulator ({simulation})",
        seed=seed,
        duration_s=math.inf,
        beats=(),
        expectations=(),
        timing=TIMING,
        simulation=simulation,
    )
