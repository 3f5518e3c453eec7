"""A reader's way through a story: time that passes, stands and goes back, and what the reader does to the cluster.

A session runs in one thread and tells what is to be seen to a function, as docs/internals/page.md has it. Going back plays the
story again from its start up to the wanted event; what the reader has done is a part of the story by then.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tidelog.chaos.yaml_nodes import parse
from tidelog.lab.lesson import Lesson
from tidelog.lab.player import Player
from tidelog.lab.scene import scene
from tidelog.lab.seed import player_of
from tidelog.lab.steps import Act, Step
from tidelog.lab.story import Story, StoryError
from tidelog.lab.story_file import ACTIONS_MAX, beat
from tidelog.lab.verdict import Verdict
from tidelog.lab.view import Partition
from tidelog.page.events import Events
from tidelog.page.source import Refused
from tidelog.testing.invariants import Violation
from tidelog.wire import messages as m

Tell = Callable[[str, Any], None]
"""A function that is called with the kind of a message and its content."""
Picture = dict[str, Any]

SPEED_MIN: Final = 0.1
SPEED_MAX: Final = 100.0
FRAME_S: Final = 0.05
"""Wall time that a frame may take at most."""
SLICE_S: Final = 0.2
"""Wall time between two words about a long run."""
TOLD_MAX: Final = 200
"""Events of one frame that the page is told of; beyond that the advances of high watermarks are left out first."""
PICTURES: Final = 200
"""Kept pictures of single steps, for going back one by one."""
FRAMES: Final = 1_000
"""Kept pictures for a saved page."""
KEPT_EVENTS: Final = 20_000
"""For a saved page."""
FORWARD_S: Final = 10.0
"""Virtual time in which the next event must come."""
QUICK_S: Final = 0.1
"""A verdict that takes longer is put off while a reader is at work."""
JUDGED_SHARE: Final = 0.02
"""The share of wall time that may be spent on verdicts while time passes."""
DRAWN: Final = "nothing can be done to a run of the simulator: its seed decides what happens"
STANDS: Final = "time stands, since an invariant does not hold: go back, or start again"


_ALLOWS: Final = {
    "one-copy": "records that one replica alone had may be lost",
    "allowed": "acknowledged records may be lost, since that was asked for",
}


class Session:
    """`open` comes first.

    story: what is played; the reader may do more.
    clock: seconds of wall time, by which long runs are cut into parts.
    """

    def __init__(self, story: Story, tell: Tell, clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._player = player_of(story)
        self._lesson = Lesson(story)
        self._numbering = Events()
        self.playing = False
        self.speed = 1.0
        self._behind: Picture | None = None
        """The picture that is shown, if it is of a moment before that of the cluster."""
        self._n: int | None = None
        """The number of events at the moment that is shown, if it is one of several that happened in one step."""
        self._first = 0
        """The number of events when the cluster was up."""
        self._end_s, self._end_n = 0.0, 0
        """The latest known moment of this run, and the number of events up to then."""
        self._steps: dict[int, Picture] = {}
        """Pictures by the number of events, of all steps with events from the first one here to the last."""
        self.frames: deque[Picture] = deque(maxlen=FRAMES)
        self.events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._verdict = Verdict(0, 0, 0, 0)
        self._counts: tuple[int | None, ...] = ()
        """Records that are lost, duplicated and reordered, of which the verdict knows."""
        self._judged_at, self._judging_s, self._judged_t = 0.0, 0.0, -1.0
        """Wall times of the last verdict, and the moment that it is of."""
        self._violation: dict[str, Any] | None = None

    @property
    def story(self) -> Story:
        """The story, with everything that the reader has done."""
        return self._player.story

    @property
    def time(self) -> float:
        """The moment of the cluster, in seconds of virtual time."""
        return self._player.time

    @property
    def _count(self) -> int:
        return self._player.cluster.steps.count

    def open(self) -> None:
        """Returns when the cluster is up. StoryError."""
        self._start()
        self._look()

    def close(self) -> None:
        self._player.close()

    def _start(self) -> None:
        self._busy("the cluster starts", 0.0)
        self._player.set_up()
        self._first = self._count

    def _busy(self, text: str, share: float) -> None:
        self._tell("time", self.moment({"text": text, "share": round(share, 3)}))

    def kept_story(self) -> Story:
        """Returns the story up to the latest known moment, as a reader may keep it."""
        end_s = math.ceil(self._end_s * 1e6) / 1e6
        beats = tuple(each for each in self.story.beats if each.at_s <= end_s)
        title = f"{self.story.title}, as it was played"
        kept = replace(self.story, title=title, lesson=None, question="", answer="", mutant="")
        return replace(kept, beats=beats, expectations=(), duration_s=end_s)

    # -- time passes -------------------------------------------------------------------------------------------------

    def play(self, *, on: bool) -> None:
        """Lets time pass from the moment that is shown, or stops it. Refused."""
        if on:
            self._return()
            self._lesson.answered |= self._lesson.asks(self.time)
        self.playing = on
        self._look()

    def set_speed(self, speed: float) -> None:
        """speed: seconds of virtual time in a second. Refused."""
        if not SPEED_MIN <= speed <= SPEED_MAX:
            raise Refused(f"speed: {speed:g} is not from {SPEED_MIN:g} to {SPEED_MAX:g}")
        self.speed = speed
        self._tell("time", self.moment())

    def frame(self, seconds: float) -> None:
        """Lets as much time pass as `seconds` of wall time are worth, if time passes at all."""
        if not self.playing:
            if self._judged_t < self.time and self._behind is None and self._may_judge(self._clock()):
                self._look()  # the checker was put off
            return
        end = self._clock() + FRAME_S
        stop = self._lesson.stop_after(self.time)
        self._steps.clear()
        self._advance(min(self.time + seconds * self.speed, stop), lambda: self._clock() >= end)
        if self.time >= stop or self._player.over:
            self.playing = False
        self._look()

    def _advance(self, until: float, halted: Callable[[], bool] = lambda: False) -> bool:
        """Returns False if it was halted, or if time stands now."""
        try:
            return self._player.advance(until, halted)
        except Violation as error:
            self._violated(error)
        except StoryError as error:
            self.playing = False
            self._tell("error", {"text": f"{error}; this action is left out"})
        return False

    def _violated(self, error: Violation) -> None:
        self.playing = False
        self._violation = {"text": str(error), "n": max(0, self._count - 1)}

    # -- back and forth ----------------------------------------------------------------------------------------------

    def to(self, where: Mapping[str, Any]) -> None:
        """Goes to the moment just after an event, or to a time. Refused."""
        self.playing = False
        try:
            match where:
                case {"event": int(number)} if not isinstance(number, bool) and number >= 0:
                    self._to_event(number + 1)
                case {"t": int(t) | float(t)} if math.isfinite(t):
                    self._to_time(float(t))
                case _:
                    raise Refused("to: either event, a whole number from 0, or t, a time in seconds")
        finally:
            self._look()

    def _to_event(self, count: int) -> None:
        if count > max(self._count, self._end_n) + 1:
            raise Refused(f"event: {count - 1} is not known yet; the last one is {self._end_n - 1}")
        self._n = count = max(count, self._first)
        if self._go_to_kept(count):
            return
        if count < self._count:
            self._again()
        self._behind = None
        began = self.time
        last = max(self._end_s, began) + FORWARD_S
        if not self._run(last, lambda: self._count >= count, lambda: self._count / count, keep_from=count - PICTURES):
            if self._count < count:
                self._n = None
            return
        self._n = None
        if self._player.over:
            raise Refused("the run is over")
        raise Refused(f"nothing happens from {began:.3f} s to {self.time:.3f} s; let time pass")

    def _go_to_kept(self, count: int) -> bool:
        """Shows the picture of the step in which the event number `count` happened, if it is kept."""
        kept = list(self._steps)
        if not kept or count < kept[0] or count > kept[-1]:
            return False
        self._behind = self._steps[next(each for each in kept if each >= count)]
        return True

    def _to_time(self, t: float) -> None:
        if t >= round(self._end_s, 6):
            t = self._end_s  # of which the page knows microseconds
        t = max(t, self._player.began_s)
        self._behind = self._n = None
        if t < self.time:
            self._again()
        began = self.time
        self._run(t, lambda: False, lambda: (self.time - began) / max(t - began, 1e-9), keep_from=math.inf)

    def _run(self, until: float, arrived: Callable[[], bool], share: Callable[[], float], *, keep_from: float) -> bool:
        """Lets time pass until `arrived`, and keeps a picture of each step with events once there are `keep_from` events.

        Returns False if it has arrived, or if time stands; True if it came to `until`.
        """
        seen = self._count
        if not self._steps or next(reversed(self._steps)) != seen:
            self._steps.clear()

        def halted() -> bool:
            nonlocal seen
            if self._count != seen:
                seen = self._count
                if seen >= keep_from:
                    self._keep(exact=False)
            return arrived() or self._clock() >= slice_end

        slice_end = self._clock() + SLICE_S
        while not arrived():
            if self._advance(until, halted):
                return True
            if self._violation is not None:
                return False
            if not arrived() and self._clock() >= slice_end:
                slice_end = self._clock() + SLICE_S
                self._busy("playing it again from the start", min(1.0, share()))
        return False

    def _again(self) -> None:
        """Plays the story anew up to the moment at which the cluster is up."""
        player = self._player
        player.close()
        self._player = player_of(player.story, added=player.added)
        self._violation = None
        self._steps.clear()
        self._start()

    def _return(self) -> None:
        """Takes the cluster back to the moment that is shown. Refused."""
        if self._behind is not None:
            count = self._behind["n"]
            self._again()
            self._run(math.inf, lambda: self._count >= count, lambda: self._count / count, keep_from=count - PICTURES)
        self._behind = self._n = None
        if self._violation is not None:
            raise Refused(STANDS)

    # -- what the reader does ----------------------------------------------------------------------------------------

    def act(self, body: Mapping[str, Any]) -> None:
        """Does something at the moment that is shown. What came after it in this run has not happened then. Refused."""
        if self.story.simulation:
            raise Refused(DRAWN)
        self._return()
        if len(self.story.beats) >= ACTIONS_MAX:
            raise Refused(f"actions: a story has at most {ACTIONS_MAX}")
        at_s = math.ceil(round(self.time * 1e6, 3)) / 1e6  # a file can hold this
        if not self._advance(at_s):
            raise Refused(STANDS)
        before, player = self._count, self._player
        assert isinstance(player, Player)
        try:
            player.add(beat(parse(json.dumps({**body, "at": f"{at_s:.6f}s"}), ""), player.cast()))
        except Violation as error:
            self._violated(error)
        except StoryError as error:
            raise Refused(str(error).partition(": ")[2]) from None  # without a file and a line
        self._forget_from(before)
        self._look()

    def _forget_from(self, count: int) -> None:
        """Drops events and pictures from this event on: they are of another run."""
        if count < self._numbering.count:
            self._tell("cut", {"n": count})
            while self.events and self.events[-1]["n"] >= count:
                self.events.pop()
            while self.frames and self.frames[-1]["n"] > count:
                self.frames.pop()
            self._numbering.cut(count)
        self._end_s, self._end_n = self.time, self._count
        self._steps.clear()

    # -- what there is to see ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Tells what is new."""
        self._end_s, self._end_n = max(self._end_s, self.time), max(self._end_n, self._count)
        told = [_told(self._numbering, step) for step in self._player.cluster.steps.since(self._numbering.count)]
        for each in told:
            if each["n"] < self._first:
                each["mark"] = None  # elections of the start are no news
        if len(told) > TOLD_MAX:
            told = [each for each in told if each["kind"] != m.HighWatermarkAdvanced.__name__][-TOLD_MAX:]
        if told:
            self.events.extend(told)
            self._tell("events", told)
        if self._judged_t < self.story.duration_s <= self.time:
            self._judge()  # the last expectations are of this moment
        picture = self._behind or self._keep(exact=not self.playing)
        if self._behind is None and (not self.frames or self.frames[-1]["t"] < picture["t"]):
            self.frames.append(picture)
        self._tell("picture", picture)
        self._tell("lesson", self.lesson())
        self._tell("time", self.moment())

    def _keep(self, *, exact: bool) -> Picture:
        """Makes the picture of this moment.

        exact: the checker is asked now, if it is quick; else what it says may be of a moment before. Counts are always of now.
        """
        cluster = self._player.cluster
        partitions = cluster.view.partitions()
        verdict = self._judged(partitions, exact=exact)
        picture = {**scene(cluster, partitions), "n": self._count, "verdict": verdict}
        self._steps[self._count] = picture
        while len(self._steps) > PICTURES:
            del self._steps[next(iter(self._steps))]
        return picture

    def _judged(self, partitions: Sequence[Partition], *, exact: bool) -> dict[str, Any]:
        began, counts = self._clock(), self._player.counts(partitions)
        judged = counts.lost, counts.duplicated, counts.reordered
        if judged != self._counts or (exact and self._judging_s < QUICK_S) or self._may_judge(began):
            self._counts = judged
            self._judge()
        return {
            **counts._asdict(),
            "sound": self._verdict.sound and self._violation is None,
            "allows": _ALLOWS.get(self.story.promised, ""),
            "found": [f"{name}: {count}" for name, count in self._verdict.anomalies.items()],
            "violation": self._violation,
        }

    def _judge(self) -> None:
        """Asks the checker."""
        if self._judged_t != self.time:
            began = self._clock()
            self._verdict = self._player.verdict_so_far()
            self._judged_at, self._judging_s = self._clock(), self._clock() - began
            self._judged_t = self.time

    def _may_judge(self, now: float) -> bool:
        """The checker takes the longer, the more records there are."""
        return now >= self._judged_at + self._judging_s / JUDGED_SHARE

    def lesson(self) -> dict[str, Any] | None:
        """Returns the message about the story; None for a cluster without one."""
        return self._lesson.told(self._player, self._verdict)

    def moment(self, busy: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the message about the moment that is shown."""
        t, n = (self.time, self._count) if self._behind is None else (self._behind["t"], self._behind["n"])
        return {
            "t": round(t, 6),
            "n": n if self._n is None else self._n,
            "playing": self.playing,
            "speed": self.speed,
            "end": {"t": round(self._end_s, 6), "n": self._end_n},
            "busy": busy,
        }


def _told(numbering: Events, step: Step | Act) -> dict[str, Any]:
    t = round(step.t, 6)
    if isinstance(step, Act):
        return numbering.act(t, step.text, step.struck, mends=step.mends, narrated=step.narrated)
    return numbering.event(t, step.process, step.life, step.event)
