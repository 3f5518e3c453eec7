"""Placement of replicas (HL2.06 to HL2.08, F09.1) and what is refused."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.controller.placement import PARTITIONS_MAX, grow, plan, spread
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId
from tidelog.wire import messages as m
from unit.controller.harness import in_racks


def ids(count: int) -> dict[BrokerId, str]:
    """Brokers without racks."""
    return {BrokerId(each): "" for each in range(count)}


@requirement("All other brokers take over the load of a dead broker")
@requirement("Partition i goes to broker i mod n")
def test_partition_i_goes_to_broker_i_mod_n() -> None:
    assert [row[0] for row in spread(ids(5), 15, 3)] == [i % 5 for i in range(15)]


@requirement("All other brokers take over the load of a dead broker")
def test_a_dead_brokers_load_goes_to_all_others() -> None:
    # CONFLICT-23: the rule decides, so broker 0 leads p0, p5, p10, and three other brokers take over.
    rows = spread(ids(5), 20, 2)
    assert sorted(row[1] for row in rows if row[0] == 0) == [1, 2, 3, 4]


@requirement("Partition i goes to broker i mod n")
@requirement("The other replicas of a broker spread over all other brokers")
def test_f09_1_literal_rows() -> None:
    assert spread(ids(3), 6, 3) == ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0))
    assert spread(ids(1), 2, 1) == ((0,), (0,))
    assert spread({BrokerId(7): "", BrokerId(3): ""}, 2, 2, start=1) == ((7, 3), (3, 7))


@requirement("The other replicas of a broker spread over all other brokers")
@given(
    n=st.integers(1, 9),
    partitions=st.integers(1, 60),
    start=st.integers(0, 50),
    shift=st.integers(0, 50),
    data=st.data(),
)
def test_f09_1_no_two_replicas_on_one_broker_and_even_loads(
    n: int, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, n))
    rows = spread(ids(n), partitions, factor, start, shift)
    assert len(rows) == partitions
    assert all(len(row) == len(set(row)) == factor for row in rows)
    leaders = Counter(row[0] for row in rows)
    loads = Counter(broker for row in rows for broker in row)
    assert max(leaders.values()) - min(leaders[each] for each in ids(n)) <= 1
    # A full round gives every broker the same; only the last, partial one can make a difference.
    assert max(loads.values()) - min(loads[each] for each in ids(n)) <= min(factor, partitions % n)


def new(partitions: int = -1, factor: int = -1, *rows: tuple[int, ...], first: int = 0) -> m.NewTopic:
    assignments = tuple(m.PartitionAssignment(partition=first + i, replicas=row) for i, row in enumerate(rows))
    return m.NewTopic(name="t", num_partitions=partitions, replication_factor=factor, assignments=assignments)


def assigned(*partitions: int) -> m.NewTopic:
    rows = tuple(m.PartitionAssignment(partition=each, replicas=(0,)) for each in partitions)
    return m.NewTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows)


def planned(topic: m.NewTopic, start: int = 0) -> tuple[tuple[int, ...], ...]:
    return plan(topic, ids(3), default_partitions=2, default_factor=3, start=start)


def test_defaults_fill_what_is_not_given() -> None:
    assert planned(new()) == ((0, 1, 2), (1, 2, 0))
    assert planned(new(1, 2)) == ((0, 1),)


def test_the_draw_turns_the_ring_and_the_shift() -> None:
    assert planned(new(1), start=1) == ((1, 2, 0),)
    assert planned(new(1), start=3) == ((0, 2, 1),)


def test_explicit_assignments_are_taken_as_they_are() -> None:
    assert planned(new(-1, -1, (2, 0), (1, 2))) == ((2, 0), (1, 2))


@requirement("A topic is created with a number of partitions")
@pytest.mark.parametrize(
    ("topic", "code", "names"),
    [
        (new(0), ErrorCode.INVALID_PARTITIONS, "number of partitions 0"),
        (new(-2), ErrorCode.INVALID_PARTITIONS, "number of partitions -2"),
        (new(PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS, str(PARTITIONS_MAX)),
        (new(1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor 0"),
        (new(1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "from 1 to 3"),
        (new(2, -1, (0,), (1,)), ErrorCode.INVALID_REQUEST, "num_partitions"),
        (new(-1, 1, (0,)), ErrorCode.INVALID_REQUEST, "replication_factor"),
        (new(-1, -1, (0,), (1,), first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 on"),
        (new(-1, -1, (0, 0)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (new(-1, -1, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica"),
        (new(-1, -1, (0,), (0, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 replicas"),
        (new(-1, -1, (0, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, r"\[9\]"),
        (new(-1, -1, (-1,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, r"brokers \[-1\]"),
        (assigned(0, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 on"),
        (assigned(0, 0), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "once"),
        (assigned(-1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 on"),
        (assigned(*range(PARTITIONS_MAX + 1)), ErrorCode.INVALID_PARTITIONS, "10001 partitions, the limit is 10000"),
        (new(2**31 - 1), ErrorCode.INVALID_PARTITIONS, "number of partitions 2147483647"),
    ],
)
def test_what_cannot_be_is_refused_with_field_and_limit(topic: m.NewTopic, code: ErrorCode, names: str) -> None:
    with pytest.raises(TidelogError, match=names) as caught:
        planned(topic)
    assert caught.value.code is code


def test_without_brokers_nothing_is_placed() -> None:
    with pytest.raises(TidelogError, match="live brokers") as caught:
        plan(new(1, 1), {}, default_partitions=1, default_factor=1, start=0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def more(total: int, *rows: tuple[int, ...], first: int = 2) -> m.NewPartitions:
    assignments = tuple(m.PartitionAssignment(partition=first + i, replicas=row) for i, row in enumerate(rows))
    return m.NewPartitions(name="t", total_count=total, assignments=assignments)


@requirement("The other replicas of a broker spread over all other brokers")
@given(n=st.integers(1, 9), old=st.integers(1, 30), added=st.integers(1, 30), start=st.integers(0, 80), data=st.data())
def test_added_partitions_lie_where_they_would_have_lain_from_the_start(
    n: int, old: int, added: int, start: int, data: st.DataObject
) -> None:
    live = ids(n)
    factor = data.draw(st.integers(1, n))

    def made(partitions: int) -> tuple[tuple[BrokerId, ...], ...]:
        return plan(new(partitions, factor), live, default_partitions=1, default_factor=1, start=start)

    assert made(old) + grow(more(old + added), made(old), live) == made(old + added)


@requirement("The other replicas of a broker spread over all other brokers")
def test_on_other_brokers_than_then_the_rows_are_sound() -> None:
    present = ((BrokerId(2), BrokerId(0), BrokerId(1)), (BrokerId(0), BrokerId(1), BrokerId(2)))
    live = {BrokerId(each): "" for each in (0, 3, 4, 7)}
    assert grow(more(4), present, live) == ((7, 4, 0), (0, 7, 3))


PRESENT = ((BrokerId(0), BrokerId(1)), (BrokerId(1), BrokerId(2)))


@requirement("Added partitions start a rebalance of interested groups")
@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (more(2), ErrorCode.INVALID_PARTITIONS, "topic 't' has 2 partitions already"),
        (more(1), ErrorCode.INVALID_PARTITIONS, "topic 't' has 2 partitions, which is more than the requested 1"),
        (more(0), ErrorCode.INVALID_PARTITIONS, "more than the requested 0"),
        (more(-1), ErrorCode.INVALID_PARTITIONS, "more than the requested -1"),
        (more(-(2**31)), ErrorCode.INVALID_PARTITIONS, "more than the requested -2147483648"),
        (more(PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS, "over the limit of 10000"),
        (more(2**31 - 1), ErrorCode.INVALID_PARTITIONS, "over the limit of 10000"),
        (more(4, (0, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions 2 to 3 are not each named once"),
        (more(3, (0, 1), (1, 2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions 2 to 2"),
        (more(3, (0, 1), first=0), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions 2 to 2"),
        (more(3, (0,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has 1 replicas and partition 0 has 2"),
        (more(3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has no replica"),
        (more(3, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 names a broker twice"),
        (more(3, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names brokers [9], which are not alive"),
        (more(3, (1, -1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names brokers [-1], which are not alive"),
        (more(3, *[(0, 1)] * 10_001), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions 2 to 2"),
    ],
)
def test_bad_growths_are_named(wanted: m.NewPartitions, code: ErrorCode, message: str) -> None:
    with pytest.raises(TidelogError) as caught:
        grow(wanted, PRESENT, ids(3))
    assert caught.value.code is code
    assert message in caught.value.message


def test_a_growth_needs_as_many_live_brokers_as_replicas() -> None:
    with pytest.raises(TidelogError, match="replication factor is 2, and 1 brokers are alive") as caught:
        grow(more(3), PRESENT, ids(1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_growth_may_be_placed_by_hand() -> None:
    assert grow(more(4, (2, 0), (0, 2)), PRESENT, ids(3)) == ((2, 0), (0, 2))


@requirement("New replicas take the racks in turn")
@requirement("Replicas of a partition are spread over the racks")
def test_literal_rows_over_racks_taken_in_turn() -> None:
    # KIP-36: the ring is 0 (a), 3 (b), 5 (c), 1 (a), 4 (b), 2 (a); the shift grows by three with each round.
    rows = spread(in_racks("aaabbc"), 7, 3)
    assert rows == ((0, 3, 5), (3, 5, 1), (5, 1, 4), (1, 4, 5), (4, 2, 5), (2, 3, 5), (0, 4, 5))


@requirement("New replicas take the racks in turn")
@requirement("Replicas of a partition are spread over the racks")
@given(
    racks=st.text("abcd", min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    start=st.integers(0, 50),
    shift=st.integers(0, 50),
    data=st.data(),
)
def test_every_first_part_of_the_replicas_is_in_as_many_racks_as_can_be(
    racks: str, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers = in_racks(racks)
    factor = data.draw(st.integers(1, len(racks)))
    rows = spread(brokers, partitions, factor, start, shift)
    assert len(rows) == partitions
    for row in rows:
        assert len(row) == len(set(row)) == factor
        for length in range(1, factor + 1):
            assert len({racks[each] for each in row[:length]}) == min(length, len(set(racks)))
    leaders = Counter(row[0] for row in rows)
    assert max(leaders.values()) - min(leaders[each] for each in brokers) <= 1


@requirement("The other replicas of a broker spread over all other brokers")
@requirement("Replicas of a partition are spread over the racks")
@given(racks=st.text("abc", min_size=1, max_size=7), old=st.integers(1, 20), start=st.integers(0, 40), data=st.data())
def test_added_partitions_lie_over_racks_as_from_the_start(
    racks: str, old: int, start: int, data: st.DataObject
) -> None:
    live = in_racks(racks)
    factor = data.draw(st.integers(1, len(racks)))
    present = plan(new(old, factor), live, default_partitions=1, default_factor=1, start=start)
    added = grow(more(old + 5), present, live)
    for row in added:
        assert len({racks[each] for each in row}) == min(factor, len(set(racks)))
    leaders = Counter(row[0] for row in present + added)
    assert max(leaders.values()) - min(leaders[each] for each in live) <= 1


@requirement("Replicas of a partition are spread over the racks")
def test_some_brokers_without_a_rack_are_refused_as_by_kafka_unless_placed_by_hand() -> None:
    live = {**in_racks("ab"), BrokerId(2): ""}
    with pytest.raises(TidelogError, match=r"rack: brokers \[2\] have none") as caught:
        plan(new(1, 2), live, default_partitions=1, default_factor=1, start=0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(TidelogError, match=r"rack: brokers \[2\] have none"):
        grow(more(3), PRESENT, live)
    assert plan(new(-1, -1, (2, 0)), live, default_partitions=1, default_factor=1, start=0) == ((2, 0),)
    assert grow(more(3, (2, 0)), PRESENT, live) == ((2, 0),)
