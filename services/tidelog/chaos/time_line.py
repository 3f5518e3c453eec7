"""When which faults come and go. Pure: a seed is one time line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidelog.chaos.faults.base import FaultMissed, On
from tidelog.chaos.scenario import PlannedFault, RandomPlan, Scenario
from tidelog.ports.rand import Rand


@dataclass(frozen=True, slots=True)
class Moment:
    """A fault at its time. One that was drawn may meet a cluster in which it has no target; one that was asked for may not."""

    planned: PlannedFault
    drawn: bool

    @property
    def text(self) -> str:
        return f"{self.planned.fault.name} {self.planned.target.text}"


def time_line(scenario: Scenario, on: On, duration_s: float, rand: Rand) -> Sequence[Moment]:
    """In the order of their times. With another duration than the scenario's, times keep their share of it. What cannot be
    played `on` processes or containers is not drawn. FaultMissed: faults were to be drawn, and every period is quiet."""
    scale = duration_s / scenario.duration_s
    asked = [
        Moment(
            replace(each, at_s=each.at_s * scale, for_s=None if each.for_s is None else each.for_s * scale), drawn=False
        )
        for each in scenario.faults
    ]
    drawn = [] if scenario.random is None else list(_drawn(scenario.random, on, duration_s, rand))
    if scenario.random is not None and not asked and not drawn:
        raise FaultMissed(f"in {duration_s:g} s no fault is drawn with this seed; a longer --duration has some")
    return sorted([*asked, *drawn], key=lambda moment: moment.planned.at_s)


def _drawn(plan: RandomPlan, on: On, duration_s: float, rand: Rand) -> Iterator[Moment]:
    """Period by period, a few faults or none (reliability 1.8). The last period is quiet: the cluster is whole when it ends."""
    at_s = plan.every_s / 2
    playable = [each for each in plan.faults if each.fault.why_not(on) is None]
    while at_s + plan.every_s <= duration_s:
        if rand.random() >= plan.quiet:
            left = list(playable)
            for _ in range(min(len(left), 1 + rand.randrange(plan.at_most))):
                chosen = left.pop(rand.randrange(len(left)))
                # Each ends a little before the next draw, so that what is drawn twice begins anew.
                for_s = plan.every_s * (0.4 + 0.5 * rand.random())
                yield Moment(replace(chosen, at_s=at_s, for_s=for_s), drawn=True)
        at_s += plan.every_s
