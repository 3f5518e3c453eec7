"""Reliability 3.5: the ISR changed by AlterIsr. `make model` does the same at larger bounds."""

from dataclasses import replace

import pytest

from helpers.reachable import reachable
from helpers.requirements import requirement
from tidelog.model.alter_isr import AlterIsrModel, Bounds, Rules, State
from tidelog.model.catalogue import ALTER_ISR, NUMBERED, REPEATED
from tidelog.model.search import search

SMALL = Bounds(records=2, versions=3)


class Unreduced(AlterIsrModel):
    def canonical(self, state: State) -> State:
        return state


@requirement("A shrink of the ISR counts only once it is confirmed")
@requirement("A repeated AlterIsr succeeds once its ISR is in force")
@requirement("An ISR change of unknown outcome stays pending")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("Repeated or reordered control messages break no invariant")
def test_all_rules_hold_whatever_arrives_again() -> None:
    outcome = search(AlterIsrModel(Rules(), SMALL))
    assert outcome.violation is None and outcome.exhausted
    assert outcome.states > 20_000


@pytest.mark.parametrize(("key", "rules", "depth"), [(key, rules, depth) for key, rules, _, depth in ALTER_ISR])
def test_mut_6_7_8_9_each_is_found_at_the_documented_depth(key: str, rules: Rules, depth: int) -> None:
    outcome = search(AlterIsrModel(rules, SMALL))
    assert outcome.violation is not None and outcome.violation.startswith("LOST"), key
    assert outcome.depth == len(outcome.story) == depth


@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize(
    ("key", "rules", "bounds", "depth"), [(*each[:3], depth) for each, depth in zip(REPEATED, (10, 11), strict=True)]
)
def test_a_refusal_is_not_final_while_its_reason_may_pass_and_the_request_may_come_again(
    key: str, rules: Rules, bounds: Bounds, depth: int
) -> None:
    """A suspicion passes; so whoever was refused under it must not be granted by another copy of the request."""
    outcome = search(AlterIsrModel(rules, bounds))
    story = "".join(outcome.story)
    assert outcome.violation is not None and outcome.violation.startswith("LOST") and outcome.depth == depth
    assert "INELIGIBLE_REPLICA" in story and "alive again" in story
    assert ("Another controller takes over" in story) == (key == "REPEATED-TERM")


@requirement("An ISR change of unknown outcome stays pending")
def test_numbered_requests_that_name_a_term_make_a_refusal_final() -> None:
    outcome = search(AlterIsrModel(NUMBERED, replace(SMALL, numbers=2, terms=2)))
    assert outcome.violation is None and outcome.exhausted
    assert outcome.states > 60_000


@pytest.mark.parametrize(
    "rules",
    [Rules(), ALTER_ISR[0][1], ALTER_ISR[2][1], NUMBERED, REPEATED[1][1]],
    ids=["right", "MUT-6", "MUT-8", "numbered", "REPEATED-TERM"],
)
def test_symmetry_of_the_followers_keeps_verdict_and_depth(rules: Rules) -> None:
    bounds = Bounds(records=1, versions=2, numbers=1, terms=2)
    reduced, whole = search(AlterIsrModel(rules, bounds)), search(Unreduced(rules, bounds))
    assert (reduced.violation is None) == (whole.violation is None)
    assert reduced.depth == whole.depth
    assert reduced.states < whole.states <= 2 * reduced.states
    if whole.exhausted:
        model = AlterIsrModel(rules, bounds)
        assert {model.canonical(state) for state in reachable(Unreduced(rules, bounds))} == reachable(model)
