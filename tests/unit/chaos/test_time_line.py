"""When which faults come: what a scenario asks for, and what a seed draws."""

from dataclasses import replace
from random import Random

import pytest

from helpers.requirements import requirement
from tidelog.chaos import scenario_file
from tidelog.chaos.faults.base import FaultMissed, On
from tidelog.chaos.scenario import RandomPlan, Scenario
from tidelog.chaos.time_line import time_line

RANDOM = "row-37-random-mix"


def library(name: str) -> Scenario:
    return scenario_file.load(scenario_file.find(name))


def test_faults_keep_their_share_of_another_duration() -> None:
    scenario = library("row-01-kill-leader")
    (asked,) = time_line(scenario, On.LOCAL, scenario.duration_s, Random(1))
    (halved,) = time_line(scenario, On.LOCAL, scenario.duration_s / 2, Random(1))
    assert asked.planned == scenario.faults[0] and not asked.drawn
    assert halved.planned.for_s is not None and asked.planned.for_s is not None
    assert (halved.planned.at_s * 2, halved.planned.for_s * 2) == (asked.planned.at_s, asked.planned.for_s)


@requirement("A random mix of faults loses no record acknowledged by all")
def test_a_seed_is_one_time_line() -> None:
    scenario = library(RANDOM)
    drawn = [time_line(scenario, On.LOCAL, 300.0, Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@requirement("A random mix of faults loses no record acknowledged by all")
def test_faults_are_re_drawn_a_quarter_of_the_time_is_quiet_and_the_end_always_is() -> None:
    scenario, periods = library(RANDOM), 2_000
    plan = scenario.random
    assert isinstance(plan, RandomPlan) and plan.quiet == 0.25
    duration_s = plan.every_s * (periods + 0.5)
    moments = time_line(scenario, On.LOCAL, duration_s, Random(7))
    by_period: dict[int, list[str]] = {}
    for moment in moments:
        period, into_s = divmod(moment.planned.at_s - plan.every_s / 2, plan.every_s)
        assert moment.drawn and moment.planned.for_s is not None
        assert into_s + moment.planned.for_s < plan.every_s, "it is over before the next draw"
        by_period.setdefault(int(period), []).append(moment.text)
    assert 0.22 < 1 - len(by_period) / periods < 0.28
    assert {len(drawn) for drawn in by_period.values()} == {1, 2}
    assert {text for drawn in by_period.values() for text in drawn} == {
        f"{each.fault.name} {each.target.text}" for each in plan.faults
    }
    assert max(m.planned.at_s + (m.planned.for_s or 0.0) for m in moments) < duration_s


@requirement("A random mix of faults loses no record acknowledged by all")
def test_a_run_in_which_every_period_is_quiet_is_none() -> None:
    scenario = library(RANDOM)
    with pytest.raises(FaultMissed, match="in 10 s no fault is drawn with this seed"):
        time_line(scenario, On.LOCAL, 10.0, Random(1))


@requirement("A random mix of faults loses no record acknowledged by all")
def test_without_quiet_every_period_has_a_fault() -> None:
    scenario = library(RANDOM)
    assert scenario.random is not None
    busy = replace(scenario, random=replace(scenario.random, quiet=0.0))
    assert len({moment.planned.at_s for moment in time_line(busy, On.LOCAL, 105.0, Random(3))}) == 10


@requirement("A random mix of faults loses no record acknowledged by all")
def test_what_cannot_be_played_on_containers_is_not_drawn_there() -> None:
    scenario = library(RANDOM)
    drawn = {on: {moment.planned.fault.name for moment in time_line(scenario, on, 2_000.0, Random(5))} for on in On}
    assert drawn[On.LOCAL] - drawn[On.COMPOSE] == {"slow-link"} and drawn[On.COMPOSE] < drawn[On.LOCAL]
