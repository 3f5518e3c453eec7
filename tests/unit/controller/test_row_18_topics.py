"""A controller dies between any two writes of a topic's creation, growth or deletion; the next one finishes or finds nothing.

Fault matrix row 18: completed or cleanly absent, no orphan znode, no partition without a leader although a replica is alive.
"""

from collections.abc import Callable

import pytest

from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import (
    Harness,
    MemoryStore,
    broker,
    full_roles,
    isr,
    roles,
    snapshot_of,
    state,
    stored_topic,
    want,
)

BROKERS = (broker(1, 11), broker(2, 12), broker(3, 13))
Deed = Callable[[Harness], object]


def create(c: Harness) -> object:
    return c.create(m.NewTopic(name="t", num_partitions=3, replication_factor=2))


def grow(c: Harness) -> object:
    return c.grow(m.NewPartitions(name="t", total_count=5))


def delete(c: Harness) -> object:
    return c.delete("t")


def next_controller(store: MemoryStore) -> Harness:
    c = Harness()
    c.store = store
    c.takes_over(snapshot_of(store, BROKERS), 3)
    return c


def begun(before: tuple[Deed, ...], deed: Deed) -> Harness:
    c = Harness()
    c.elected(brokers=BROKERS)
    for each in before:
        each(c)
        c.run()
    deed(c)
    return c


def written(c: Harness, groups: int) -> int:
    """Lets so many write groups through, in order, each confirmed before the next step; returns how many there were."""
    done = 0
    while c.in_flight and done < groups:
        head, rest = c.in_flight[: groups - done], c.in_flight[groups - done :]
        c.in_flight = head
        done += len(head)
        c.write()
        c.in_flight = rest + c.in_flight
    return done


DEEDS: dict[str, tuple[tuple[Deed, ...], Deed, set[int]]] = {
    # what was there before, what is done, how many partitions there may be in the end
    "creation": ((), create, {0, 3}),
    "growth": ((create,), grow, {3, 5}),
    "deletion": ((create,), delete, {0, 3}),
    "deletion of a grown topic": ((create, grow), delete, {0, 5}),
}


@requirement("A decision stored but not published is not lost")
@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("groups", range(8))
@pytest.mark.parametrize("name", DEEDS)
def test_a_controller_dies_between_two_writes(name: str, groups: int) -> None:
    before, deed, sizes = DEEDS[name]
    c = begun(before, deed)
    written(c, groups)
    successor = next_controller(c.store)
    successor.run()
    state = successor.machine.state
    partitions = state.partition_count
    assert partitions in sizes, partitions
    assert state.health.leaderless == 0
    if partitions == 0:
        assert c.store.znodes == {}, "an orphan znode"
    # The first write decides; after it nothing goes back.
    if groups:
        assert partitions == {"creation": 3, "growth": 5}.get(name, 0)
    # And the name can be used again.
    create(successor) if partitions == 0 else delete(successor)
    successor.run()
    assert successor.machine.state.partition_count == (3 if partitions == 0 else 0)


def three_led_by_one() -> Harness:
    c = Harness()
    members = isr(b1=11, b2=12, b3=13)
    c.elected(stored_topic("t", [(1, 2, 3)] * 3, [state(1, 4, members, 7)] * 3), brokers=BROKERS)
    return c


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("groups", range(4))
def test_a_controller_dies_between_two_writes_of_an_election(groups: int) -> None:
    c = three_led_by_one()
    c.died(1)
    assert written(c, groups) == groups and len(c.in_flight) == 3 - groups
    successor = Harness()
    successor.store = c.store
    effects = successor.takes_over(snapshot_of(c.store, BROKERS[1:]), 3)
    effects += successor.run()
    assert [successor.partition(index=index) for index in range(3)] == [(2, 5, {2: 12, 3: 13}, 8)] * 3
    for told in roles(effects).values():
        assert {name: each for name, *each in told} == {f"t-{index}": [2, 5, {2: 12, 3: 13}] for index in range(3)}


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("groups", range(4))
def test_a_controller_dies_between_two_changes_of_isrs(groups: int) -> None:
    c, members = three_led_by_one(), {1: 11, 2: 12, 3: 13}
    changes = [want(1, 4, isr(b1=11, b2=12), 7, index=index) for index in range(3)]
    c.proposed(1, *changes)
    assert written(c, groups) == groups and len(c.in_flight) == 3 - groups
    successor = Harness()
    successor.store = c.store
    effects = successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    told = {name: isr_ for name, _, _, isr_ in roles(effects)[1]}
    assert told == {f"t-{index}": {1: 11, 2: 12} if index < groups else members for index in range(3)}
    token, _ = successor.proposed(1, *changes)
    successor.run()
    assert {code for _, _, code in successor.isr_answers(token)} == {ErrorCode.NONE}
    assert [successor.partition(index=index) for index in range(3)] == [(1, 4, {1: 11, 2: 12}, 8)] * 3


@pytest.mark.parametrize("name", DEEDS)
def test_the_cuts_above_reach_beyond_the_last_write(name: str) -> None:
    before, deed, _ = DEEDS[name]
    assert written(begun(before, deed), 99) < 8


@requirement("A topic id separates topics that share a name")
def test_a_full_list_waits_for_first_states_that_are_being_written() -> None:
    """Somebody removed a state znode by hand. What a full list leaves out is deleted, and the broker holds that replica."""
    c = begun((), create)
    c.run()
    for path in (znodes.state_path("t", 0), znodes.partition_path("t", 0)):
        del c.store.znodes[path]
    snapshot = snapshot_of(c.store, BROKERS)
    successor = Harness()
    successor.store = c.store
    effects = successor.takes_over(snapshot, 3)
    holders = {int(b) for b in snapshot.topics[0].replicas[0]}
    assert set(full_roles(effects)) == {1, 2, 3} - holders
    effects = successor.write()
    assert set(full_roles(effects)) == holders
    assert all("t-0" in [told for told, *_ in roles(effects)[b]] for b in holders)
