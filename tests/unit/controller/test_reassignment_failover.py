"""A controller dies between any two writes of a reassignment; the next one goes on from what is stored (L26, F11.2, row 18)."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import ReassignmentWrite
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, MemoryStore, broker, isr, snapshot_of, state, stops, stored_topic, want

BROKERS = tuple(broker(number, 10 + number) for number in range(1, 6))
PLAN = {0: (3, 4), 1: (2, 3), 2: (5, 1)}
"""All replicas, one of them, and the leader's; one step after the other each gets a target into its ISR."""


def begun() -> Harness:
    c = Harness()
    rows = ((1, 2), (2, 1), (1, 2))
    states = [state(r[0], 5, tuple(isr(**{f"b{b}": 10 + b})[0] for b in r), 20) for r in rows]
    c.elected(stored_topic("t", rows, states), brokers=BROKERS)
    c.move(PLAN)
    return c


def assignment(store: MemoryStore) -> znodes.TopicAssignment:
    return znodes.decode_topic("t", store.znodes[znodes.topic_path("t")][0])


def check(store: MemoryStore) -> None:
    """HOLE-32: whatever the moment, an ISR is within the replicas, and a removed one is in no ISR."""
    stored = assignment(store)
    for index, replicas in enumerate(stored.partitions):
        found = znodes.decode_state("t", index, store.znodes[znodes.state_path("t", index)][0])
        members = {member.broker_id for member in found.isr}
        assert members <= set(replicas) and found.leader in members
        assert len(members) >= 2, "below min ISR"
        if index not in stored.moves:
            assert replicas in (BEFORE[index], tuple(map(BrokerId, PLAN[index])))


BEFORE = [(BrokerId(1), BrokerId(2)), (BrokerId(2), BrokerId(1)), (BrokerId(1), BrokerId(2))]


def one_joins(c: Harness) -> bool:
    """One leader brings one target into its ISR; False: every target is in."""
    for tp, partition in c.machine.state.moving.items():
        found = partition.state
        if found is None or partition.writing is not None:
            continue
        present = {member.broker_id for member in found.isr}
        missing = [each for each in partition.target if each not in present]
        if missing:
            wanted = (*found.isr, m.IsrMember(broker_id=missing[0], broker_epoch=10 + missing[0]))
            c.proposed(
                found.leader,
                want(found.leader, found.leader_epoch, wanted, found.partition_epoch, index=tp.partition),
                controller_epoch=c.machine.controller_epoch,
            )
            return True
    return False


def one_write(c: Harness) -> None:
    head, rest = c.in_flight[:1], c.in_flight[1:]
    c.in_flight = head
    c.write()
    c.in_flight = rest + c.in_flight
    check(c.store)


def goes_on(c: Harness, writes: int) -> int:
    """Up to so many writes, one at a time; how many there were."""
    done = 0
    while done < writes and (c.in_flight or one_joins(c)):
        if c.in_flight:
            one_write(c)
            done += 1
    return done


def test_the_cuts_below_reach_beyond_the_last_write() -> None:
    c = begun()
    assert 0 < goes_on(c, 99) < 12 and assignment(c.store).moves == {}


@requirement("A reassignment completes only when all targets are in sync")
@requirement("A reassignment survives a failure at each of its steps")
@requirement("A controller killed in mid-change leaves it complete or absent")
@requirement("A crash at the end of a reassignment leaves it whole or undone")
@pytest.mark.parametrize("writes", range(12))
def test_a_controller_dies_between_two_writes_of_a_move(writes: int) -> None:
    c = begun()
    goes_on(c, writes)
    successor = Harness()
    successor.store = c.store
    effects = successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    # What the plan has removed is known from the full lists that everybody gets.
    assert stops(effects) == {}
    goes_on(successor, 99)
    expected = tuple(map(tuple, PLAN.values())) if writes else tuple(BEFORE)
    assert assignment(c.store) == znodes.TopicAssignment(b"id-of-t", expected)
    for index, row in enumerate(expected):
        leader, _, members, _ = successor.partition(index=index)
        assert set(members) == set(row) and leader in members


@requirement("A reassignment survives a failure at each of its steps")
@requirement("A crash at the end of a reassignment leaves it whole or undone")
def test_a_controller_dies_after_every_write() -> None:
    c = begun()
    epoch = 3
    while True:
        if goes_on(c, 1) == 0:
            break
        successor = Harness()
        successor.store = c.store
        successor.takes_over(snapshot_of(c.store, BROKERS), epoch)
        c, epoch = successor, epoch + 1
    assert assignment(c.store) == znodes.TopicAssignment(b"id-of-t", tuple(map(tuple, PLAN.values())))


@requirement("A reassignment survives a failure at each of its steps")
@pytest.mark.parametrize("writes", range(1, 10))
def test_a_cancelled_move_goes_back_whoever_is_controller(writes: int) -> None:
    c = begun()
    goes_on(c, writes)
    moving = [tp.partition for tp in c.machine.state.moving]
    c.in_flight.clear()
    successor = Harness()
    successor.store = c.store
    successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    left = [tp.partition for tp in successor.machine.state.moving if not successor.in_flight]
    if not left:
        return
    assert set(left) <= set(moving)
    successor.move({}, cancelled=left)
    one_write(successor)
    third = Harness()
    third.store = c.store
    third.takes_over(snapshot_of(c.store, BROKERS), 4)
    third.run()
    stored = assignment(c.store)
    assert stored.moves == {} and all(stored.partitions[index] == BEFORE[index] for index in left)


def test_an_end_is_written_by_the_controller_that_finds_it_due() -> None:
    """Every target is in the ISR, and the one before died before it wrote the end."""
    c = begun()
    while not any(isinstance(group, ReassignmentWrite) and group.states for group in c.in_flight):
        goes_on(c, 1)
    successor = Harness()
    successor.store = c.store
    successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    assert any(isinstance(group, ReassignmentWrite) and group.states for group in successor.in_flight)
    assert successor.machine.state.partition(TopicPartition("t", 0)) is not None
