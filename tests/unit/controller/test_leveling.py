"""The optimum behind the planner, where its first, plain hand-overs leave nothing to do or are left out (OPEN-15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.leveling import HandOver, Holdings, negative_cycle
from tidelog.controller.racks import Racks
from tidelog.ids import BrokerId


def ids(*numbers: int) -> set[BrokerId]:
    return set(map(BrokerId, numbers))


def holdings(racks: str, held: list[set[BrokerId]], home: list[set[BrokerId]]) -> Holdings:
    brokers = {BrokerId(number): rack for number, rack in enumerate(racks)}
    rule = Racks(brokers)
    return Holdings(
        brokers, held, home, lambda item, giver, among: rule.takers(held[item], giver, among), range(len(held))
    )


def test_a_unit_away_from_home_returns_if_loads_stay_even() -> None:
    held = [ids(1), ids(2), ids(0)]
    holdings("abc", held, [ids(0), ids(1), ids(2)]).level()
    assert held == [ids(0), ids(1), ids(2)]


def test_the_one_more_of_an_uneven_share_stays_at_home() -> None:
    held = [ids(0), ids(1), ids(2), ids(2)]
    holdings("abc", held, [ids(0), ids(1), ids(2), ids(1)]).level()
    assert held == [ids(0), ids(1), ids(2), ids(1)]


def test_a_cycle_that_would_bring_two_units_of_an_item_into_one_rack_is_parted() -> None:
    # Item 0 may go from 0 to 1 or from 2 to 3, not both: 1 and 3 are in one rack. Items 1 and 2 close the cycle.
    held = [ids(0, 2), ids(1), ids(3)]
    made = holdings("xkykz", held, [ids(2, 1), ids(2), ids(0)])
    cycle = [HandOver(*step) for step in ((0, BrokerId(0), BrokerId(1)), (1, BrokerId(1), BrokerId(2)))]
    cycle += [HandOver(*step) for step in ((0, BrokerId(2), BrokerId(3)), (2, BrokerId(3), BrokerId(0)))]
    walked = made._simple(cycle, moves_load=False)
    assert sum(map(made.cost, walked)) < 0
    for step in walked:
        made.hand_over(step)
    assert held == [ids(0, 1), ids(2), ids(3)]


@pytest.mark.parametrize(
    ("arcs", "cycle"),
    [
        ([(0, 1, 1), (1, 2, -2), (2, 0, 0)], {0, 1, 2}),
        ([(0, 1, 1), (1, 2, -2), (2, 0, 1)], None),
        ([(0, 1, -1), (1, 0, 1), (2, 1, -3), (1, 2, 2)], {1, 2}),
        ([], None),
    ],
)
def test_negative_cycles_are_found(arcs: list[tuple[int, int, int]], cycle: set[int] | None) -> None:
    found = negative_cycle(3, [arcs])
    assert (None if found is None else set(found)) == cycle


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-3, 5)), max_size=14))
def test_there_is_no_negative_cycle_exactly_where_distances_come_to_rest(arcs: list[tuple[int, int, int]]) -> None:
    found = negative_cycle(5, [arcs])
    # Floyd and Warshall: a negative way back to oneself.
    far = [[0 if a == b else 10**6 for b in range(5)] for a in range(5)]
    for start, end, weight in arcs:
        far[start][end] = min(far[start][end], weight)
    for via in range(5):
        for a in range(5):
            for b in range(5):
                far[a][b] = min(far[a][b], far[a][via] + far[via][b])
    assert (found is not None) == any(far[node][node] < 0 for node in range(5))
    if found is not None:
        closed = zip(found, [*found[1:], found[0]], strict=True)
        assert sum(min(w for s, e, w in arcs if (s, e) == step) for step in closed) < 0
