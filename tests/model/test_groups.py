"""Reliability 5.2: Stop and Start of a coordinator that may be past its term. `make model` does the same at larger bounds."""

from dataclasses import replace

import pytest

from helpers.reachable import reachable
from tidelog.model.catalogue import GROUPS
from tidelog.model.groups import Bounds, Counts, GroupModel, Rules, State
from tidelog.model.search import search

SMALL = Bounds(records=1, generations=3)
RECORDS = Bounds(records=2, generations=3)


class Unreduced(GroupModel):
    def canonical(self, state: State) -> State:
        return state


def test_all_rules_hold() -> None:
    outcome = search(GroupModel(Rules(), SMALL))
    assert outcome.violation is None and outcome.exhausted
    assert outcome.states > 40_000


def test_with_the_condition_in_the_store_generations_alone_are_enough() -> None:
    assert search(GroupModel(Rules(epoch_compared=False), SMALL)).exhausted


FALSE = {"MUT-17": "REWOUND", "MUT-18": "SKIPPED", "MUT-19": "TWO OWNERS", "MUT-20": "REWOUND"}


@pytest.mark.parametrize(("key", "rules", "depth"), [(key, rules, depth) for key, rules, _, depth in GROUPS])
def test_mut_17_to_20_each_rule_left_out_is_found(key: str, rules: Rules, depth: int | None) -> None:
    outcome = search(GroupModel(rules, RECORDS))
    assert outcome.violation is not None, key
    assert outcome.violation.startswith(FALSE.get(key, outcome.violation))
    assert depth is None or outcome.depth == len(outcome.story) == depth


def test_neither_the_condition_in_the_store_nor_epochs_two_own() -> None:
    rules = Rules(store_conditional=False, epoch_compared=False)
    outcome = search(GroupModel(rules, SMALL, owners_only=True))
    assert outcome.violation is not None and outcome.violation.startswith("TWO OWNERS")
    assert "Coordinator 2 is elected" in "".join(outcome.story)


def test_the_answer_to_stop_is_fenced_by_the_generation_that_it_speaks_of() -> None:
    """That whoever has not started states nothing is what the documents ask; an evicted consumer had started long ago."""
    four = replace(SMALL, generations=4)
    outcome = search(GroupModel(Rules(ack_counts=Counts.OWNERS), four))
    assert outcome.violation is not None and outcome.violation.startswith("REWOUND") and outcome.depth == 11
    assert "which answers with offset 0 of generation 1" in outcome.story[-2]


def test_g5_a_start_that_comes_again_does_nothing() -> None:
    outcome = search(GroupModel(Rules(repeat_ignored=False), replace(SMALL, again=True)))
    assert outcome.violation is not None and outcome.violation.startswith("REWOUND")


@pytest.mark.parametrize("rules", [Rules(), Rules(store_conditional=False)], ids=["right", "MUT-20"])
def test_forgetting_what_is_void_and_renaming_keep_verdict_and_depth(rules: Rules) -> None:
    bounds = Bounds(records=1, generations=2)
    reduced, whole = search(GroupModel(rules, bounds)), search(Unreduced(rules, bounds))
    assert (reduced.violation is None) == (whole.violation is None)
    assert reduced.violation is None or reduced.depth == whole.depth
    assert reduced.states < whole.states
    if whole.exhausted:
        model = GroupModel(rules, bounds)
        assert {model.canonical(state) for state in reachable(Unreduced(rules, bounds))} == reachable(model)
