"""Plans of moves: the least that even out the load (HL3, OPEN-15, F-10), within racks (HOLE-29), and what is refused."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.controller.leveling import Holdings
from tidelog.controller.placement import spread
from tidelog.controller.planner import Assignments, Replicas, generate, rebalance
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition
from unit.controller.harness import in_racks

Racks = Mapping[BrokerId, str]


def ids(*numbers: int) -> dict[BrokerId, str]:
    """Brokers without racks."""
    return {BrokerId(each): "" for each in numbers}


def rows(*replicas: tuple[int, ...], topic: str = "t") -> dict[TopicPartition, Replicas]:
    return {TopicPartition(topic, i): tuple(map(BrokerId, row)) for i, row in enumerate(replicas)}


def created(partitions: int, brokers: Racks, factor: int, topic: str = "t", start: int = 0) -> Assignments:
    return rows(*spread(brokers, partitions, factor, start=start), topic=topic)


def loads(after: Assignments, brokers: Collection[BrokerId]) -> list[int]:
    count = Counter(each for row in after.values() for each in row)
    return [count[each] for each in sorted(brokers)]


def leads(after: Assignments, brokers: Collection[BrokerId]) -> list[int]:
    count = Counter(row[0] for row in after.values())
    return [count[each] for each in sorted(brokers)]


def moved(before: Assignments, after: Assignments) -> int:
    return sum(len(set(after[tp]) - set(row)) for tp, row in before.items())


def spread_over_racks(row: Replicas, brokers: Racks) -> bool:
    """The rule itself, in other words than the planner's."""
    racks = [brokers[each] or str(each) for each in row]
    return len(set(racks)) == min(len(row), len({rack or str(each) for each, rack in brokers.items()}))


def optimum(current: Assignments, brokers: Racks) -> tuple[int, int]:
    """The least sum of squared loads, and the fewest moves for it, by trying all ways: loads so far -> fewest moves to them."""
    ring = sorted(brokers)
    ways: dict[tuple[int, ...], int] = {(0,) * len(ring): 0}
    for row in current.values():
        choices = [each for each in itertools.combinations(ring, len(row)) if spread_over_racks(each, brokers)]
        longer: dict[tuple[int, ...], int] = {}
        for so_far, cost in ways.items():
            for choice in choices:
                load = tuple(n + (each in choice) for n, each in zip(so_far, ring, strict=True))
                longer[load] = min(longer.get(load, 10**9), cost + len(set(choice) - set(row)))
        ways = longer
    return min((sum(n * n for n in load), cost) for load, cost in ways.items())


def needs_no_exchange(after: Assignments, brokers: Racks) -> bool:
    """Whether leaders are within one by the order of replicas alone: one replication factor, and replicas within one."""
    held = loads(after, brokers)
    return len({len(row) for row in after.values()}) == 1 and max(held) - min(held) <= 1


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, Replicas], dict[BrokerId, str], list[BrokerId]]:
    """Partitions anywhere on some brokers, those that stay or come with their racks, and those that leave."""
    n = draw(st.integers(1, 5))
    racks = draw(st.sampled_from(["", "ab", "abc"]))
    brokers = {BrokerId(i): draw(st.sampled_from(racks)) if racks else "" for i in range(n)}
    leaving = [BrokerId(i) for i in range(n, n + draw(st.integers(0, 2)))]
    old = draw(st.lists(st.sampled_from([*brokers, *leaving]), min_size=1, unique=True))
    factors = st.integers(1, min(len(old), n))
    one = draw(st.none() | factors)
    partitions = range(draw(st.integers(1, 6)))
    row = st.permutations(old).flatmap(
        lambda order: (factors if one is None else st.just(one)).map(lambda factor: tuple(order[:factor]))
    )
    return rows(*(draw(row) for _ in partitions)), brokers, leaving


Cluster = tuple[dict[TopicPartition, Replicas], dict[BrokerId, str], list[BrokerId]]


@requirement("Added brokers get an even share by the fewest moves")
@requirement("The controller plans the moves after a cluster has grown")
@given(clusters())
def test_open_15_no_plan_is_more_even_and_none_as_even_moves_less(cluster: Cluster) -> None:
    current, brokers, leaving = cluster
    after = {**current, **rebalance(current, brokers, leaving=leaving)}
    squares, fewest = optimum(current, brokers)
    assert sum(load**2 for load in loads(after, brokers)) == squares
    assert moved(current, after) >= fewest
    if needs_no_exchange(after, brokers):
        assert max(leads(after, brokers)) - min(leads(after, brokers)) <= 1
        assert moved(current, after) == fewest
    # Others may need exchanges for their leaders: never more than two moves for each lead that is one too many.
    assert moved(current, after) <= fewest + 2 * len(current)


@given(clusters())
def test_open_15_the_cycles_alone_find_the_same_optimum(cluster: Cluster) -> None:
    current, brokers, leaving = cluster
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Holdings, "_from_most_to_least", lambda _: None)
        after = {**current, **rebalance(current, brokers, leaving=leaving)}
    squares, fewest = optimum(current, brokers)
    assert sum(load**2 for load in loads(after, brokers)) == squares
    assert moved(current, after) == fewest or not needs_no_exchange(after, brokers)


@requirement("Added brokers get an even share by the fewest moves")
@given(clusters())
def test_replication_factors_and_racks_are_kept_and_nothing_is_left_on_who_leaves(cluster: Cluster) -> None:
    current, brokers, leaving = cluster
    plan = rebalance(current, brokers, leaving=leaving)
    after = {**current, **plan}
    assert after.keys() == current.keys()
    for tp, row in after.items():
        assert len(row) == len(set(row)) == len(current[tp])
        assert set(row) <= brokers.keys()
        assert spread_over_racks(row, brokers), (row, brokers)
    assert all(row != current[tp] for tp, row in plan.items())


@requirement("Added brokers get an even share by the fewest moves")
@given(clusters(), st.randoms())
def test_open_15_what_is_even_stays_and_the_order_of_the_input_says_nothing(cluster: Cluster, rand: Random) -> None:
    current, brokers, leaving = cluster
    plan = rebalance(current, brokers, leaving=leaving)
    assert rebalance({**current, **plan}, brokers) == {}
    mixed, ring = list(current.items()), list(brokers.items())
    rand.shuffle(mixed)
    rand.shuffle(ring)
    assert rebalance(dict(mixed), dict(ring), leaving=leaving[::-1]) == plan


@requirement("Added brokers get an even share by the fewest moves")
@given(
    partitions=st.integers(1, 200),
    old=st.integers(1, 8),
    added=st.integers(0, 4),
    factor=st.integers(1, 3),
    topics=st.integers(1, 3),
)
def test_who_is_added_gets_its_share_and_nothing_else_moves(
    partitions: int, old: int, added: int, factor: int, topics: int
) -> None:
    factor = min(factor, old)
    brokers = ids(*range(old + added))
    current = {
        tp: row
        for number in range(topics)
        for tp, row in created(partitions, ids(*range(old)), factor, f"t{number}", start=number).items()
    }
    after = {**current, **rebalance(current, brokers)}
    # Whoever has more than its share loses the rest: who holds most may keep the one more of an uneven share.
    share, more = divmod(partitions * factor * topics, len(brokers))
    held = sorted(loads(current, brokers), reverse=True)
    assert moved(current, after) == sum(max(0, load - share - (at < more)) for at, load in enumerate(held))
    assert max(loads(after, brokers)) - min(loads(after, brokers)) <= 1
    assert max(leads(after, brokers)) - min(leads(after, brokers)) <= 1


@requirement("Added brokers get an even share by the fewest moves")
def test_every_topic_gives_its_share() -> None:
    brokers = ids(*range(5))
    current = {tp: row for name in "abcd" for tp, row in created(60, ids(0, 1, 2), 3, name).items()}
    plan = rebalance(current, brokers)
    after = {**current, **plan}
    for name in "abcd":
        of_topic = {tp: row for tp, row in after.items() if tp.topic == name}
        assert all(30 <= load <= 42 for load in loads(of_topic, brokers)), (name, loads(of_topic, brokers))


def test_two_brokers_of_three_may_be_added_and_drained_again() -> None:
    three, five = ids(0, 1, 2), ids(0, 1, 2, 3, 4)
    current = created(100, three, 3)
    grown = {**current, **rebalance(current, five)}
    assert (loads(grown, five), leads(grown, five), moved(current, grown)) == ([60] * 5, [20] * 5, 120)
    back = {**grown, **rebalance(grown, three, leaving=[BrokerId(3), BrokerId(4)])}
    assert (loads(back, three), moved(grown, back)) == ([100] * 3, 120)
    assert sorted(leads(back, three)) == [33, 33, 34]


def test_a_replica_that_moves_takes_its_place_and_the_others_keep_theirs() -> None:
    current = rows((0, 1), (2, 0), (1, 2))
    plan = rebalance(current, ids(0, 1, 3), leaving=[BrokerId(2)])
    assert {**current, **plan} == rows((0, 1), (3, 0), (1, 3))


@requirement("Added brokers get an even share by the fewest moves")
def test_leaders_are_evened_out_by_order_alone_with_the_fewest_changes() -> None:
    current = rows((0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 2, 1), (1, 2, 0), (1, 0, 2))
    after = {**current, **(plan := rebalance(current, ids(0, 1, 2)))}
    assert (leads(after, ids(0, 1, 2)), moved(current, after), len(plan)) == ([2, 2, 2], 0, 2)


@given(clusters())
def test_leaders_change_in_the_fewest_partitions(cluster: Cluster) -> None:
    current, brokers, leaving = cluster
    after = {**current, **rebalance(current, brokers, leaving=leaving)}

    def price(heads: Collection[BrokerId]) -> tuple[int, int]:
        squares = sum(n * n for n in Counter(heads).values())
        return squares, sum(head != current[tp][0] for head, tp in zip(heads, after, strict=True))

    assert price([row[0] for row in after.values()]) == min(map(price, itertools.product(*after.values())))


@requirement("Added brokers get an even share by the fewest moves")
def test_leaders_of_several_replication_factors_are_evened_out_by_exchanges() -> None:
    # Each broker holds three replicas; whatever the order, broker 0 leads three partitions and the others have three for two.
    current = rows((0,), (0,), (0,), (1, 2), (1, 2), (2, 1))
    after = {**current, **rebalance(current, ids(0, 1, 2))}
    assert (loads(after, ids(0, 1, 2)), leads(after, ids(0, 1, 2)), moved(current, after)) == ([3] * 3, [2] * 3, 2)


def test_exchanges_for_leaders_may_be_many() -> None:
    # Even replicas, but broker 0 leads half of all partitions by itself: a third of those has to go, and as many come back.
    current = {**rows(*[(0,)] * 300, topic="x"), **rows(*[(1, 2)] * 300, topic="y")}
    after = {**current, **rebalance(current, ids(0, 1, 2))}
    assert (loads(after, ids(0, 1, 2)), leads(after, ids(0, 1, 2)), moved(current, after)) == (
        [300] * 3,
        [200] * 3,
        200,
    )


def test_a_broker_that_is_down_and_does_not_leave_keeps_what_it_holds() -> None:
    current = rows((7, 0), (0, 7), (1, 0), (0, 1))
    after = {**current, **rebalance(current, ids(0, 1, 2))}
    assert after[TopicPartition("t", 0)][0] == 7 and after[TopicPartition("t", 1)][1] == 7
    assert loads(after, ids(0, 1, 2)) == [2, 2, 2]


@requirement("Replicas of a partition are spread over the racks")
def test_a_drain_keeps_replicas_in_different_racks() -> None:
    brokers = in_racks("aabbc")
    current = created(60, brokers, 2)
    kept = {each: rack for each, rack in brokers.items() if each != 4}
    after = {**current, **rebalance(current, kept, leaving=[BrokerId(4)])}
    assert all(spread_over_racks(row, kept) for row in after.values())
    assert loads(after, kept) == [30, 30, 30, 30]


@requirement("Added brokers get an even share by the fewest moves")
@requirement("Replicas of a partition are spread over the racks")
def test_loads_are_evened_out_over_others_where_racks_are_in_the_way() -> None:
    # The broker that holds three can hand nothing to the one that holds one: others of its rack are there already.
    brokers = in_racks("aaabba")
    current = rows((2, 5, 1), (3, 1, 5), (2, 1, 3), (4, 0, 3))
    after = {**current, **rebalance(current, brokers)}
    assert loads(after, brokers) == [2] * 6
    assert (12 * 2, moved(current, after)) == optimum(current, brokers)


@requirement("Replicas of a partition are spread over the racks")
def test_two_replicas_in_one_rack_are_parted() -> None:
    brokers = in_racks("aab")
    after = rebalance(rows((0, 1)), brokers)
    assert after == {TopicPartition("t", 0): (0, 2)} or after == {TopicPartition("t", 0): (2, 1)}


@requirement("Replicas of a partition are spread over the racks")
def test_a_rack_of_one_broker_holds_one_of_each_and_the_others_share_the_rest() -> None:
    brokers = in_racks("abbb")
    current = rows(*[(0, 1), (1, 0)] * 30)
    after = {**current, **rebalance(current, brokers)}
    assert (loads(after, brokers), leads(after, brokers)) == ([60, 20, 20, 20], [15, 15, 15, 15])
    assert moved(current, after) == 40


@requirement("Replicas of a partition are spread over the racks")
def test_a_new_broker_takes_from_its_own_rack_where_every_rack_has_a_replica() -> None:
    brokers = in_racks("abcc")
    current = rows(*[(0, 1, 2), (1, 2, 0), (2, 0, 1)] * 10)
    after = {**current, **rebalance(current, brokers)}
    assert (loads(after, brokers), moved(current, after)) == ([30, 30, 15, 15], 15)
    assert all(spread_over_racks(row, brokers) for row in after.values())


@pytest.mark.parametrize(
    ("current", "brokers", "leaving", "code", "message"),
    [
        (rows((0,)), {}, [], ErrorCode.INVALID_REQUEST, "brokers: at least one is needed to hold replicas, and none is left"),
        (rows((0, 1, 2)), ids(0, 1), [2], ErrorCode.INVALID_REPLICATION_FACTOR, "t-0 needs 3 of them .*, and there are 2"),
        (rows((0,)), ids(0, 1), [1], ErrorCode.INVALID_REQUEST, r"leaving: \[1\] are named among the brokers"),
        (rows((0,)), {**ids(0, 1), BrokerId(2): "a"}, [], ErrorCode.INVALID_REQUEST, r"rack: brokers \[0, 1\] have none"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_field_and_limit(
    current: Assignments, brokers: Racks, leaving: list[BrokerId], code: ErrorCode, message: str
) -> None:
    with pytest.raises(TidelogError, match=message) as caught:
        rebalance(current, brokers, leaving=leaving)
    assert caught.value.code is code


def test_a_full_rebalance_places_all_topics_as_at_creation() -> None:
    current = {
        **rows((0, 1), (1, 2), (2, 0), (0, 1), (1, 2), topic="a"),
        **rows((0,), (0,), (0,), (0,), (0,), topic="b"),
    }
    brokers = ids(1, 2, 3, 4)
    after = {**current, **generate(current, brokers)}
    of_a = [row for tp, row in sorted(after.items()) if tp.topic == "a"]
    assert of_a == list(spread(brokers, 5, 2))
    assert [len(row) for _, row in sorted(after.items())] == [2] * 5 + [1] * 5
    assert sorted(leads(after, brokers)) == [2, 2, 3, 3]
    assert generate(after, brokers) == {}


@requirement("Replicas of a partition are spread over the racks")
@given(clusters())
def test_a_full_rebalance_keeps_racks_and_replication_factors(cluster: Cluster) -> None:
    current, brokers, _ = cluster
    after = {**current, **generate(current, brokers)}
    assert all(len(set(row)) == len(current[tp]) and spread_over_racks(row, brokers) for tp, row in after.items())
    assert max(leads(after, brokers)) - min(leads(after, brokers)) <= 1
