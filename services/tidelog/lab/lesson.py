"""The story as the page tells it: its text, its question and answer, and its expectations."""

import math
from typing import Any, Final

from tidelog.lab.actions import GROUPS, RECORDS
from tidelog.lab.expectations import Outcome
from tidelog.lab.player import Player
from tidelog.lab.seed import SeedPlayer
from tidelog.lab.steps import Act
from tidelog.lab.story import Story
from tidelog.lab.verdict import Verdict

SAYS_S: Final = 1.5
SAYS_STEPS: Final = 2_000
"""The narrator's last words are for this long, and among so many steps."""


class Lesson:
    """Time stops at the question, which is before the first fault, and at the end."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._asks_at_s = _asks_at(story) if story.question else math.inf
        self.answered = False
        """The reader has played on."""
        self._outcomes: dict[int, Outcome] = {}
        self._texts: list[str] = []

    def stop_after(self, t: float) -> float:
        """Returns the next time at which time stops by itself."""
        stops = (() if self.answered else (self._asks_at_s,)) + (self._story.duration_s,)
        return min((each for each in stops if t < each), default=math.inf)

    def asks(self, t: float) -> bool:
        """The question is open, and time stands at it."""
        return not self.answered and t >= self._asks_at_s

    def told(self, player: Player | SeedPlayer, verdict: Verdict) -> dict[str, Any] | None:
        """Returns the message; None for a cluster without a story."""
        story, t = self._story, player.time
        if not story.text:
            return None
        ended = t >= story.duration_s
        self._judge(player, verdict, t)
        steps = player.cluster.steps.since(player.cluster.steps.count - SAYS_STEPS)
        says = [step.text for step in steps if isinstance(step, Act) and step.narrated and step.t >= t - SAYS_S]
        return {
            "number": story.lesson,
            "title": story.title,
            "text": story.text,
            "question": story.question,
            "answer": story.answer,
            "asks": self.asks(t) and not ended,
            "says": says[-1] if says else "",
            "ended": ended,
            "changed": bool(player.added),
            "expectations": [self._expectation(number, text) for number, text in enumerate(self._texts)],
        }

    def _judge(self, player: Player | SeedPlayer, verdict: Verdict, t: float) -> None:
        """Judges what has become due. Going back makes it undue again."""
        dues = [min(each.due_s, self._story.duration_s) for each in self._story.expectations]
        self._outcomes = {number: each for number, each in self._outcomes.items() if dues[number] <= t}
        due = {number for number, due_s in enumerate(dues) if due_s <= t} - self._outcomes.keys()
        if due or not self._texts:
            found = player.judge(verdict, player.steps)
            self._texts = [each.text for each in found]
            self._outcomes.update((number, found[number]) for number in due)

    def _expectation(self, number: int, text: str) -> dict[str, Any]:
        outcome = self._outcomes.get(number)
        held = None if outcome is None else outcome.held
        return {"text": text, "held": held, "found": "" if outcome is None else outcome.found}


def _asks_at(story: Story) -> float:
    """Just before the first action that is more than clients at work, by as little as a file can hold."""
    faults = (
        beat.at_s for beat in story.beats if beat.action is not None and beat.action.group not in (RECORDS, GROUPS)
    )
    return (round(next(faults, story.beats[0].at_s) * 1e6) - 1) / 1e6
