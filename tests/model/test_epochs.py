"""Reliability 3.3: logs, epochs and truncation. `make model` does the same at the full bounds."""

import pytest

from helpers.reachable import reachable
from helpers.requirements import requirement
from tidelog.model.catalogue import FIVE, HISTORY, TIDELOG
from tidelog.model.epochs import Bounds, EpochModel, Rules, end_of_epoch, kip_101_end, shared_end
from tidelog.model.search import search

SMALL = Bounds(2, 2, 3)
TINY = Bounds(2, 2, 2)


def log(*epochs: int) -> int:
    return sum(epoch + 1 << 3 * k for k, epoch in enumerate(epochs))


class Unreduced(EpochModel):
    """Every naming of the replicas is a state of its own."""

    def canonical(self, state: int) -> int:
        return state


@requirement("A follower never truncates to its high watermark")
@requirement("Diverging logs are cut where their leader epochs part")
@requirement("Truncation repeats until leader and follower share an epoch")
@requirement("Every replica fetch carries the current leader epoch")
@requirement("A replica joins the ISR only past the start of the leader epoch")
@requirement("ISR members agree below the HW of a presumed leader")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("Literal early designs break exactly the expected invariants")
@pytest.mark.parametrize("rules", [Rules(), TIDELOG], ids=["kip-320", "tidelog"])
def test_all_five_rules_hold_at_small_bounds(rules: Rules) -> None:
    outcome = search(EpochModel(rules, SMALL))
    assert outcome.violation is None and outcome.exhausted
    assert outcome.states > 50_000


@pytest.mark.parametrize("key", ["MUT-1", "MUT-2", "MUT-5"])
def test_mut_1_2_5_each_rule_left_out_is_found_at_the_documented_depth(key: str) -> None:
    """Those that need more states (3, 4 and the whole bounds) are searched by `make model`."""
    rules, depth = next((rules, depth) for name, rules, _, depth, _ in FIVE if name == key)
    outcome = search(EpochModel(rules, Bounds(2, 2, 4)))
    assert outcome.violation is not None and outcome.violation.startswith("LOST")
    assert outcome.depth == len(outcome.story) == depth


@requirement("A follower never truncates to its high watermark")
@requirement("Diverging logs are cut where their leader epochs part")
@requirement("Truncation repeats until leader and follower share an epoch")
@requirement("Literal early designs break exactly the expected invariants")
@pytest.mark.parametrize(("key", "rules", "depth"), [(key, rules, depth) for key, rules, _, depth, _ in HISTORY])
def test_the_older_truncation_rules_lose_at_the_documented_depths(key: str, rules: Rules, depth: int) -> None:
    assert search(EpochModel(rules, Bounds(1, 1, 4))).depth == depth, key


@requirement("Literal early designs break exactly the expected invariants")
def test_the_rules_of_kip_320_keep_the_leader_in_the_isr() -> None:
    model, led = EpochModel(Rules(), TINY), 0
    for state in reachable(model):
        epochs = state >> model._counters & 7
        rows = [state >> i * model._width & model._row for i in range(3)]
        leaders = [row for row in rows if epochs and row >> model._leader_of + epochs - 1 & 1]
        assert all(row >> model._in_isr & 1 for row in leaders)
        led += len(leaders)
    assert led > 100, "leaders were seen"


@pytest.mark.parametrize("rules", [Rules(), TIDELOG, HISTORY[0][1]], ids=["kip-320", "tidelog", "truncate-to-hw"])
def test_symmetry_is_sound_the_reduced_states_are_the_orbits_of_all(rules: Rules) -> None:
    model, whole = EpochModel(rules, Bounds(1, 1, 2)), Unreduced(rules, Bounds(1, 1, 2))
    everything = reachable(whole)
    assert {model.canonical(state) for state in everything} == reachable(model)
    assert len(everything) > 4 * len(reachable(model))
    assert search(model).depth == search(whole).depth


def test_canonical_form_does_not_depend_on_names() -> None:
    model = EpochModel(Rules(), TINY)
    for state in list(reachable(model))[:500]:
        width, mask = model._width, model._row
        rows = [state >> i * width & mask for i in range(3)]
        relation, rest = state >> 3 * width & 511, state >> 3 * width + 9
        turned = sum(rows[(i + 1) % 3] << i * width for i in range(3)) | rest << 3 * width + 9
        for i in range(3):
            for j in range(3):
                turned |= (relation >> 3 * ((i + 1) % 3) + (j + 1) % 3 & 1) << 3 * width + 3 * i + j
        assert model.canonical(turned) == state


class Remembering(EpochModel):
    """Forgets no request."""

    def _forget(self, rows: list[int], row: int, epoch: int) -> int:
        return 0


def forgotten(model: EpochModel, state: int) -> int:
    """`state` without all that the model would have forgotten on the way."""
    width, mask = model._width, model._row
    rows = [state >> i * width & mask for i in range(3)]
    dead = 0
    for row in rows:
        epoch = (row >> model._epoch & 7) - 1
        if epoch >= 0:
            dead |= model._forget(rows, row, epoch)
    return model.canonical(state & ~(dead | dead << width | dead << 2 * width))


@pytest.mark.parametrize("rules", [Rules(), HISTORY[0][1], HISTORY[1][1]], ids=["kip-320", "truncate-to-hw", "kip-101"])
def test_forgetting_dead_requests_leaves_out_no_state_and_adds_none(rules: Rules) -> None:
    bounds = Bounds(1, 1, 3) if rules == Rules() else Bounds(1, 1, 2)
    model = EpochModel(rules, bounds)
    remembered = reachable(Remembering(rules, bounds))
    known = reachable(model)
    assert {forgotten(model, state) for state in remembered} == known
    assert len(known) < len(remembered)


@requirement("Truncation repeats until leader and follower share an epoch")
def test_a_question_without_the_epoch_in_the_answer_cuts_too_little() -> None:
    """KIP-279's trace: A has offsets of e1 up to 2 and leads e3; B has one of e1 and two of e2."""
    leader, follower = log(1, 1), log(1, 2)
    assert kip_101_end(follower, leader, 0) == 0
    assert shared_end(follower, leader) == 1
    leader = log(1, 1, 3)
    assert kip_101_end(follower, leader, 0) == 2
    assert shared_end(follower, leader) == 1


def test_f15_2_the_largest_epoch_up_to_the_one_asked_for_and_its_end() -> None:
    assert end_of_epoch(log(0, 2, 2), 2) == (2, 3)
    assert end_of_epoch(log(0, 2, 2), 1) == (0, 1)
    assert end_of_epoch(log(2), 1) == (-1, 0)
    assert end_of_epoch(log(), 1) == (-1, 0)
