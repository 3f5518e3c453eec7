"""Reliability 3.6: restarts with loss of the log. `make model` does the same with more faults."""

from dataclasses import replace

import pytest

from helpers.reachable import reachable
from helpers.requirements import requirement
from tidelog.model.catalogue import NO_RESTART_RULES, ONE_LOSS
from tidelog.model.restarts import Bounds, RestartModel, Rules, State
from tidelog.model.search import Outcome, search

FEW = Bounds(records=1, lossy=1, kills=0, departures=1)


class Unreduced(RestartModel):
    def canonical(self, state: State) -> State:
        return state


def found(rules: Rules, bounds: Bounds = ONE_LOSS) -> Outcome:
    outcome = search(RestartModel(rules, bounds))
    assert outcome.violation is not None and outcome.violation.startswith("LOST")
    assert len(outcome.story) == outcome.depth
    return outcome


@requirement("AlterIsr names the broker epoch of every ISR member")
@requirement("The high watermark stands still below min.insync.replicas")
@requirement("A last ISR member that lost power is not elected automatically")
@requirement("A leader that loses power returns outside the ISR")
@pytest.mark.parametrize("bounds", [FEW, replace(FEW, lossy=0, kills=1)], ids=["one lossy crash", "one kill"])
def test_bounces_lives_and_the_veto_hold(bounds: Bounds) -> None:
    outcome = search(RestartModel(Rules(), bounds))
    assert outcome.violation is None and outcome.exhausted


def test_mut_11_without_bounce_detection_a_leader_comes_back_empty_and_nobody_notices() -> None:
    """Reliability 3.6 row A counts 7 steps: there a position reaches the leader with the fetch, here with the next one."""
    outcome = found(Rules(bounces_seen=False))
    assert outcome.depth == 7 + 2
    assert "before its session expired" in outcome.story[-2] and "A leads epoch 1" in outcome.story[-1]


@requirement("AlterIsr names the broker epoch of every ISR member")
@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
def test_mut_12_without_broker_epochs_in_alter_isr_an_empty_replica_is_taken_for_its_earlier_life() -> None:
    outcome = found(Rules(life_checked=False), replace(ONE_LOSS, departures=1))
    assert "B/2" in "".join(outcome.story) and "loses power" in "".join(outcome.story)


@requirement("A last ISR member that lost power is not elected automatically")
def test_mut_13_without_the_veto_the_last_replica_leads_with_an_empty_log() -> None:
    outcome = found(Rules(veto=False), replace(ONE_LOSS, departures=1))
    assert "loses power" in "".join(outcome.story)
    assert outcome.story[-1].endswith("log [].")


@requirement("The high watermark stands still below min.insync.replicas")
def test_mut_14_below_min_isr_a_record_is_shown_that_one_broker_alone_holds() -> None:
    outcome = found(Rules(frozen_under_min_isr=False))
    assert outcome.violation is not None and "nobody holds it any more" in outcome.violation


def test_mut_6_forgetting_the_expansion_in_flight_breaks_the_restart_rules_too() -> None:
    found(Rules(pending_counted=False), replace(ONE_LOSS, lossy=0))


def test_kills_alone_lose_nothing_even_without_any_restart_rule() -> None:
    """Finding D3: a killed process leaves its log behind, so killing cannot test durability."""
    outcome = search(RestartModel(NO_RESTART_RULES, replace(FEW, lossy=0, kills=1)))
    assert outcome.violation is None and outcome.exhausted


@pytest.mark.parametrize("rules", [Rules(), Rules(bounces_seen=False)], ids=["right", "MUT-11"])
def test_symmetry_is_sound_the_reduced_states_are_the_orbits_of_all(rules: Rules) -> None:
    bounds = replace(FEW, lossy=0, kills=1)
    model, whole = RestartModel(rules, bounds), reachable(Unreduced(rules, bounds))
    reduced = reachable(model)
    assert {model.canonical(state) for state in whole} == reduced
    assert len(reduced) < len(whole) <= 6 * len(reduced)
    assert search(model).depth == search(Unreduced(rules, bounds)).depth
