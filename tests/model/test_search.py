"""The engine: shortest traces, bounds, and that symmetry changes how many states there are, not which are reachable."""

from itertools import permutations

import pytest

from tidelog.model.search import Label, Progress, search

Jug = tuple[int, int]


class Jugs:
    """Two jugs of 5 and 3 litres: fill, empty, pour. Four litres take six steps, and never fewer."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted

    def initial(self) -> Jug:
        return 0, 0

    def moves(self, state: Jug) -> list[tuple[Label, Jug]]:
        a, b = state
        right, left = min(a, 3 - b), min(b, 5 - a)
        return [
            (("fill", 5), (5, b)),
            (("fill", 3), (a, 3)),
            (("empty", 5), (0, b)),
            (("empty", 3), (a, 0)),
            (("pour", 5), (a - right, b + right)),
            (("pour", 3), (a + left, b - left)),
        ]

    def canonical(self, state: Jug) -> Jug:
        return state

    def violation(self, state: Jug) -> str | None:
        return f"{self.wanted} litres" if self.wanted in state else None

    def tell(self, label: Label, before: Jug, after: Jug) -> str:
        return f"{label[0]} {label[1]}: {before} becomes {after}"


class Ring:
    """Three counters, any of which may be raised up to 2; all alike, so only their sizes matter."""

    def __init__(self, *, reduced: bool, bad: tuple[int, ...] = (9,)) -> None:
        self.reduced, self.bad = reduced, bad

    def initial(self) -> tuple[int, ...]:
        return 0, 0, 0

    def moves(self, state: tuple[int, ...]) -> list[tuple[Label, tuple[int, ...]]]:
        return [(("raise", i), (*state[:i], state[i] + 1, *state[i + 1 :])) for i in range(3) if state[i] < 2]

    def canonical(self, state: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(state)) if self.reduced else state

    def violation(self, state: tuple[int, ...]) -> str | None:
        return f"{state}" if tuple(sorted(state)) == self.bad else None

    def tell(self, label: Label, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        return f"{label[1]}: {after}"


def test_the_first_violation_found_has_a_shortest_trace() -> None:
    outcome = search(Jugs(4))
    assert (outcome.depth, len(outcome.story), outcome.violation) == (6, 6, "4 litres")
    assert outcome.story[0] == "fill 5: (0, 0) becomes (5, 0)"
    assert outcome.story[-1].endswith("becomes (4, 3)")


def test_without_a_violation_everything_reachable_is_counted() -> None:
    outcome = search(Jugs(9))
    assert outcome.exhausted and outcome.violation is None
    assert outcome.states == 16  # one of the two is always full or empty


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_a_bound_on_depth_stops_before_the_violation(depth: int) -> None:
    outcome = search(Jugs(4), depth_max=depth)
    assert outcome.violation is None and not outcome.exhausted and outcome.depth == depth


def test_a_search_bounded_at_its_very_depth_finds_the_violation() -> None:
    assert search(Jugs(4), depth_max=6).violation == "4 litres"


def test_a_bad_initial_state_is_a_violation_of_no_steps() -> None:
    outcome = search(Jugs(0))
    assert (outcome.depth, outcome.violation, outcome.story) == (0, "0 litres", ())


def test_symmetry_reduces_states_and_keeps_depth_and_reachability() -> None:
    whole, reduced = search(Ring(reduced=False)), search(Ring(reduced=True))
    assert (whole.states, reduced.states) == (27, 10)
    assert whole.depth == reduced.depth == 6


def test_a_trace_found_among_canonical_states_is_told_with_lasting_names() -> None:
    outcome = search(Ring(reduced=True, bad=(0, 1, 2)))
    last = outcome.story[-1].split(": ")[1]
    assert outcome.violation == last and outcome.depth == 3
    assert last in {str(p) for p in permutations((0, 1, 2))}
    steps = [sentence.split(": ") for sentence in outcome.story]
    counts = [0, 0, 0]
    for name, after in steps:
        counts[int(name)] += 1
        assert after == str(tuple(counts))


def test_progress_is_reported_at_each_level() -> None:
    seen: list[Progress] = []
    search(Ring(reduced=False), report=seen.append)
    assert [p.depth for p in seen] == list(range(7))
    assert seen[-1].states == 27
