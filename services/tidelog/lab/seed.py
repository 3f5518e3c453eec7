"""A run of the simulator in the lab: event by event the one that `make sim` plays for its seed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.lab.expectations import Outcome
from tidelog.lab.player import Player
from tidelog.lab.shown import Shown
from tidelog.lab.steps import Act, Step
from tidelog.lab.story import Beat, Story
from tidelog.lab.verdict import Counts, Verdict
from tidelog.lab.view import Partition
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.drive import Drive
from tidelog.testing.invariants import Violation
from tidelog.testing.last_steps import first_error
from tidelog.testing.sim_groups import GroupRun
from tidelog.testing.sim_story import FAILURES
from tidelog.testing.stories import NAMES


class SeedPlayer:
    """The cluster of a simulated run, at some moment of it, as `Player` is that of a story. `close` ends it.

    A run that is played in parts is the same as one that is played at once.
    """

    began_s: Final = 0.0
    added: Final[Sequence[Beat]] = ()

    def __init__(self, story: Story) -> None:
        self.story = story
        self._drive = Drive(story.seed)
        loop = self._drive.loop
        loop.must_go_on = True
        self._run = run = NAMES[story.simulation](story.seed)
        self._drive.watching = run.watching
        self._groups = run.watch if isinstance(run, GroupRun) else None
        self.cluster = Shown(run.cluster, self._groups, self._drive)
        run.cluster.world.on_fault = lambda text, struck, mends: self.cluster.say(text, *struck, mends=mends)
        self._tasks = Supervisor("run")
        self._task = self._drive.call(lambda: self._tasks.start("run", run.story()))
        self._task.add_done_callback(lambda _: None if loop.ended else loop.stop())
        self._violation: Violation | None = None

    @property
    def time(self) -> float:
        """Seconds of virtual time since the run began."""
        return self._drive.loop.time()

    @property
    def over(self) -> bool:
        """The run has come to its end, or something does not hold."""
        return self._task.done() or self._violation is not None

    @property
    def steps(self) -> list[Step | Act]:
        return list(self.cluster.steps)

    def set_up(self) -> None:
        """Returns when all processes have begun to start. Violation."""
        self.advance(0.0)

    def advance(self, until_s: float, halted: Callable[[], bool] = lambda: False) -> bool:
        """Plays up to `until_s` or to the end of the run, or until `halted` is true after a step of the simulation.

        Returns False if it was halted. Violation: whatever makes the seed fail.
        """
        if self._violation is not None:
            raise self._violation
        if self._task.done():
            return True
        try:
            # The loop stops by itself after the last step, as it does where the run is played at once.
            reached = self._drive.advance(until_s, lambda: halted() and not self._task.done())
            if self._task.done():
                self._task.result()
            if self._tasks.failure is not None:
                raise self._tasks.failure.__cause__ or self._tasks.failure
        except FAILURES as error:
            self._violation = _as_violation(error)
            raise self._violation from None
        return reached or self._task.done()

    def counts(self, _: Sequence[Partition]) -> Counts:
        """Counts what the checks of the run know."""
        repeated = 0 if self._groups is None else self._groups.repeated.total()
        return Counts(self._run.cluster.history.acked_count, None, None, None, None, repeated, None)

    def verdict_so_far(self) -> Verdict:
        return Verdict(self._run.cluster.history.acked_count, None, None, None)

    def verdict(self) -> Verdict:
        """Returns what was known at the end of the run, which reads everything by itself."""
        return self.verdict_so_far()

    def judge(self, verdict: Verdict, steps: Sequence[Step | Act]) -> list[Outcome]:
        """Returns nothing: a run of the simulator has no expectations but its checks."""
        return []

    def close(self) -> None:
        self._drive.finish()


def player_of(story: Story, *, invariants: bool = True, added: Iterable[Beat] = ()) -> Player | SeedPlayer:
    """Returns the player of a story; the rest is for those that are no run of the simulator."""
    return SeedPlayer(story) if story.simulation else Player(story, invariants=invariants, added=added)


def _as_violation(error: BaseException) -> Violation:
    first = first_error(error)
    return Violation(str(first) if isinstance(first, Violation) else f"{type(first).__name__}: {first}")
