"""A story that has been played: its steps and their digest, what became of the expectations, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.lab.digest import Chain, whole
from tidelog.lab.expectations import Outcome
from tidelog.lab.seed import player_of
from tidelog.lab.steps import Act, Step
from tidelog.lab.story import Story
from tidelog.lab.verdict import Verdict
from tidelog.testing.invariants import Violation


@dataclass(frozen=True, slots=True)
class Played:
    """A story that has been played, with its steps and results."""

    story: Story
    began_s: float
    """When the cluster and its topics were up."""
    steps: Sequence[Step | Act]
    outcomes: Sequence[Outcome]
    verdict: Verdict
    notes: Sequence[Outcome] = ()
    """Remarks that are no expectations."""

    @property
    def held(self) -> bool:
        """True if every expectation holds and the verdict is sound."""
        return self.verdict.sound and all(outcome.held for outcome in self.outcomes)

    @property
    def digest(self) -> str:
        """A digest of every field of every event, and of the acts between them."""
        return whole(self.steps)


def play(story: Story, *, invariants: bool = True) -> Played:
    """Plays a story. StoryError: an action could not be done, since it is for a process that is down, say.

    A broken invariant ends the story there; expectations of later times do not hold then.
    """
    player = player_of(story, invariants=invariants)
    steps: list[Step | Act] = []
    try:
        try:
            player.set_up()
            player.advance(story.duration_s)
            steps = player.steps
            verdict = player.verdict()
        except Violation as error:
            steps = steps or player.steps
            verdict = replace(
                player.verdict_so_far() if story.simulation else Verdict(0, 0, 0, 0), violation=str(error)
            )
        outcomes = player.judge(verdict, steps)
        same = [] if story.chain is None else [_same(story.chain, steps)]
        if story.simulation:
            return Played(story, player.began_s, steps, outcomes, verdict, notes=same)
        return Played(story, player.began_s, steps, [*outcomes, *same], verdict)
    finally:
        player.close()


def _same(kept: Chain, steps: Sequence[Step | Act]) -> Outcome:
    number = kept.differs_from(steps)
    step = str(steps[number]).strip() if number is not None and number < len(steps) else "it ends there"
    found = "" if number is None else f"they differ from step {number + 1:,} on: {step}"
    return Outcome(f"the {kept.steps:,} steps are those that were saved", number is None, found)
