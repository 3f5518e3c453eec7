"""Brokers get their share, and brokers are drained (HL3): from the request over the plan to what is stored."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.controller import describe
from tidelog.controller.effects import PlacementWrite, ReassignmentWrite
from tidelog.controller.events import Tick
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, isr, refusal, snapshot_of, state, stored_topic, writes

B1, B2, B3, B4 = (broker(number, 10 + number) for number in range(1, 5))
ROWS = ((1, 2), (2, 1), (1, 2), (2, 1))
OLD = isr(b1=11, b2=12)


@pytest.fixture
def c() -> Harness:
    """`t` has four partitions on brokers 1 and 2, two led by each; brokers 3 and 4 are empty."""
    harness = Harness()
    states = [state(row[0], 5, OLD, 20) for row in ROWS]
    harness.elected(stored_topic("t", ROWS, states), brokers=(B1, B2, B3, B4))
    return harness


def stored(c: Harness) -> znodes.TopicAssignment:
    return znodes.decode_topic("t", c.store.znodes[znodes.topic_path("t")][0])


def targets(c: Harness) -> list[tuple[int, ...]]:
    found = stored(c)
    return [tuple(found.moves[p].target if p in found.moves else row) for p, row in enumerate(found.partitions)]


def draining(c: Harness) -> tuple[int, ...]:
    node = c.store.znodes.get(znodes.PLACEMENT)
    return () if node is None else tuple(znodes.decode_placement(node[0]).draining)


@requirement("Added brokers get an even share by the fewest moves")
@requirement("The controller plans the moves after a cluster has grown")
def test_new_brokers_get_their_share(c: Harness) -> None:
    token, effects = c.add_brokers(3, 4)
    assert writes(effects) == [] and c.plans[0].leaving == frozenset()
    effects = c.plan()
    assert [type(group) for group in writes(effects)] == [ReassignmentWrite] and token not in c.replies
    c.write()
    held = [each for row in targets(c) for each in row]
    assert {each: held.count(each) for each in (1, 2, 3, 4)} == {1: 2, 2: 2, 3: 2, 4: 2}
    answer = c.replies[token]
    assert isinstance(answer, m.AddBrokersResponse) and answer.error_code is ErrorCode.NONE
    moved = {p.partition: p.replicas for topic in answer.topics for p in topic.partitions}
    assert moved == {p: move.target for p, move in stored(c).moves.items()}


def test_where_the_load_is_even_nothing_moves(c: Harness) -> None:
    c.died(3, 4)
    token, _ = c.add_brokers(1)
    assert c.plan() != [] and c.replies[token] == m.AddBrokersResponse() and c.in_flight == []


@requirement("One controller elects leaders for all partitions")
def test_a_broker_is_drained_and_marked_in_one_write(c: Harness) -> None:
    token, _ = c.drain(2)
    effects = c.plan()
    (group,) = writes(effects)
    assert isinstance(group, ReassignmentWrite)
    assert group.placement == PlacementWrite(znodes.StoredPlacement((BrokerId(2),)), znodes.NO_VERSION)
    c.write()
    assert refusal(c, token) == (ErrorCode.NONE, "") and draining(c) == (2,)
    assert all(2 not in row for row in targets(c))
    (told,) = described(c).draining
    assert (told.broker_id, told.replicas) == (2, 4)


@requirement("Added brokers get an even share by the fewest moves")
@given(
    rows=st.lists(st.permutations(range(1, 6)), min_size=1, max_size=12),
    factor=st.integers(1, 3),
    drained=st.sets(st.integers(1, 5), min_size=1, max_size=2),
)
def test_after_a_drain_the_load_is_within_one_replica_and_one_leader(
    rows: list[list[int]], factor: int, drained: set[int]
) -> None:
    """However uneven it was before: also where the rows that have to move are too few for it."""
    harness, live = Harness(), [broker(number, 10 + number) for number in range(1, 6)]
    placed = [tuple(row[:factor]) for row in rows]
    states = [state(row[0], 5, isr(**{f"b{each}": 10 + each for each in row}), 20) for row in placed]
    harness.elected(stored_topic("t", placed, states), brokers=live)
    token, _ = harness.drain(*drained)
    harness.plan()
    harness.run()
    assert refusal(harness, token) == (ErrorCode.NONE, "")
    after, stay = targets(harness), set(range(1, 6)) - drained
    held, led = Counter(each for row in after for each in row), Counter(row[0] for row in after)
    assert held.keys() <= stay and held.total() == len(rows) * factor
    assert max(held[each] for each in stay) - min(held[each] for each in stay) <= 1
    assert max(led[each] for each in stay) - min(led[each] for each in stay) <= 1


def described(c: Harness) -> m.DescribeClusterResponse:
    return describe.describe_cluster(c.machine.state, "c", 100, 2, frozenset())


def test_nothing_is_placed_on_a_broker_that_is_drained(c: Harness) -> None:
    c.drain(2)
    c.plan()
    c.run()
    c.create(m.NewTopic(name="u", num_partitions=6, replication_factor=3))
    c.grow(m.NewPartitions(name="t", total_count=6))
    c.run()
    new = znodes.decode_topic("u", c.store.znodes[znodes.topic_path("u")][0]).partitions
    assert all(2 not in row for row in (*new, *stored(c).partitions[4:]))
    bad = m.NewTopic(
        name="v",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(m.PartitionAssignment(partition=0, replicas=(1, 2)),),
    )
    token, _ = c.create(bad)
    assert c.replies[token].topics[0].error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    token, _ = c.create(m.NewTopic(name="v", num_partitions=1, replication_factor=4))
    assert c.replies[token].topics[0].error_code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_plan_names_no_broker_that_is_drained(c: Harness) -> None:
    c.drain(3)
    c.plan()
    c.run()
    token, _ = c.move({0: (1, 3)})
    message = "replicas of t-0 [1, 3] name brokers [3], which are being drained"
    assert refusal(c, token) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    token, _ = c.add_brokers(3)
    assert refusal(c, token) == (ErrorCode.INVALID_REQUEST, "3 being drained")


def test_a_drain_outlives_its_controller_and_can_be_undone(c: Harness) -> None:
    c.drain(2)
    c.plan()
    c.run()
    successor = Harness()
    successor.store = c.store
    successor.takes_over(snapshot_of(c.store, (B1, B2, B3, B4)), 3)
    assert successor.machine.state.draining == {2}
    again, _ = successor.drain(3)
    successor.plan()
    assert refusal(successor, again)[0] is ErrorCode.REASSIGNMENT_IN_PROGRESS, "what leaves 2 is on its way to 3"
    token, _ = successor.drain(2, undo=True)
    successor.run()
    assert refusal(successor, token) == (ErrorCode.NONE, "") and 2 not in draining(successor)


def test_only_so_many_are_drained_as_the_others_can_make_up_for(c: Harness) -> None:
    token, _ = c.drain(2, 3, 4)
    c.plan()
    assert refusal(c, token)[0] is not ErrorCode.NONE and "t-0 needs 2 of them" in refusal(c, token)[1]
    assert c.in_flight == [] and draining(c) == ()


def test_a_dead_broker_is_drained(c: Harness) -> None:
    c.died(2)
    c.run()
    token, _ = c.drain(2)
    c.plan()
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and all(2 not in row for row in targets(c))


def test_an_empty_broker_is_only_marked(c: Harness) -> None:
    token, _ = c.drain(3, 4)
    c.plan()
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and draining(c) == (3, 4) and stored(c).moves == {}
    token, _ = c.drain(4, validate_only=True)
    c.plan()
    assert refusal(c, token) == (ErrorCode.NONE, "") and c.in_flight == []


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("lost", [False, True])
def test_the_outcome_of_a_mark_is_unknown(c: Harness, lost: bool) -> None:
    token, _ = c.drain(3, 4)
    c.plan()
    c.write(unknown=not lost, lost=lost)
    c.examine()
    assert refusal(c, token)[0] is (ErrorCode.REQUEST_TIMED_OUT if lost else ErrorCode.NONE)
    assert c.machine.state.draining == frozenset(draining(c)) == (frozenset() if lost else {3, 4})
    again, _ = c.drain(3, 4) if lost else c.drain(3, undo=True)
    if lost:
        c.plan()
    c.run()
    assert refusal(c, again) == (ErrorCode.NONE, "") and draining(c) == ((3, 4) if lost else (4,))


@pytest.mark.parametrize("stored_first", [False, True])
def test_what_moves_meanwhile_is_planned_again(c: Harness, stored_first: bool) -> None:
    token, _ = c.drain(2)
    c.move({0: (2, 1)})
    if stored_first:
        c.run()
    c.plan()
    c.run()
    assert len(c.plans) == 1 and token not in c.replies
    node = znodes.decode_placement(c.store.znodes[znodes.PLACEMENT][0])
    assert node == znodes.StoredPlacement((BrokerId(2),), planning=True)
    c.plan()
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and c.plans == []
    assert all(2 not in row for row in targets(c))
    assert not c.machine.state.placement.planning


def test_an_interrupted_plan_is_completed_when_it_can_be(c: Harness) -> None:
    """Its controller has died, and the next one finds too few brokers alive until another comes."""
    c.drain(2)
    c.move({0: (2, 1)})
    c.plan()
    c.run()
    successor = Harness()
    successor.store = c.store
    successor.takes_over(snapshot_of(c.store, (B1,)), 3)
    successor.plan()
    successor.step(Tick(1.0))
    assert successor.plans == [], "it is not planned again and again"
    successor.brokers_are(B1, B3, B4)
    successor.plan()
    successor.run()
    assert all(2 not in row for row in targets(c)) and not successor.machine.state.placement.planning
    assert successor.plans == [] and successor.replies == {}


def test_what_is_being_placed_on_a_broker_is_drained_with_it(c: Harness) -> None:
    c.create(m.NewTopic(name="u", num_partitions=2, replication_factor=4))
    token, _ = c.drain(2)
    assert c.plans == [], "a plan would not know of it"
    c.run()
    c.plan()
    assert "u-0" in refusal(c, token)[1] and draining(c) == (), "four replicas are not placed on three brokers"
    rows = tuple(m.PartitionAssignment(partition=index, replicas=(1, 2)) for index in (4, 5))
    c.grow(m.NewPartitions(name="t", total_count=6, assignments=rows))
    c.delete("u")
    c.drain(2)
    assert c.plans == []
    c.run()
    c.plan()
    c.run()
    assert draining(c) == (2,) and len(targets(c)) == 6 and all(2 not in row for row in targets(c))


def test_nothing_is_placed_on_a_broker_whose_drain_is_not_stored_yet(c: Harness) -> None:
    token, _ = c.drain(3)
    c.create(m.NewTopic(name="u", num_partitions=4, replication_factor=3))
    moved, _ = c.move({0: (1, 3)})
    assert refusal(c, moved)[1] == "replicas of t-0 [1, 3] name brokers [3], which are being drained"
    added, _ = c.add_brokers(3)
    assert refusal(c, added) == (ErrorCode.INVALID_REQUEST, "3 being drained")
    c.run()
    while token not in c.replies:
        c.plan()
        c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and draining(c) == (3,)
    new = znodes.decode_topic("u", c.store.znodes[znodes.topic_path("u")][0]).partitions
    assert all(3 not in row for row in (*new, *targets(c)))


def test_a_drain_that_is_refused_or_only_tried_bars_nobody(c: Harness) -> None:
    c.drain(2, 3, 4)
    c.plan()
    c.drain(2, validate_only=True)
    token, _ = c.create(m.NewTopic(name="u", num_partitions=1, replication_factor=4))
    c.run()
    assert c.replies[token].topics[0].error_code is ErrorCode.NONE


def test_two_drains_at_a_time_are_both_marked(c: Harness) -> None:
    first, _ = c.drain(3)
    second, _ = c.drain(4)
    while c.plans:
        c.plan()
        c.run()
    assert refusal(c, first) == refusal(c, second) == (ErrorCode.NONE, "")
    assert draining(c) == (3, 4) and stored(c).moves == {}


def test_a_cluster_that_never_stands_still_refuses_in_the_end(c: Harness) -> None:
    token, _ = c.drain(2)
    for number in range(5):
        c.move({0: ((1, 2) if number % 2 else (2, 1))})
        c.plan()
        c.run()
    assert refusal(c, token)[0] is ErrorCode.REQUEST_TIMED_OUT and c.plans == []
    assert not c.machine.state.placement.planning


def test_bad_brokers_are_refused(c: Harness) -> None:
    asked = {
        c.add_brokers()[0]: "no broker is named",
        c.add_brokers(3, 3)[0]: "3, 3 name a broker twice",
        c.add_brokers(3, 9)[0]: "9 not alive (alive: 1, 2, 3, 4)",
        c.drain()[0]: "no broker is named",
        c.drain(9)[0]: "9 not alive (alive: 1, 2, 3, 4)",
        c.drain(3, undo=True)[0]: "3 not being drained",
    }
    assert {token: refusal(c, token) for token in asked} == {
        token: (ErrorCode.INVALID_REQUEST, message) for token, message in asked.items()
    }
    assert c.plans == [] and c.in_flight == []
