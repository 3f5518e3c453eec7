"""Timers: the priority queue of the ping scheduler, and the watchers of the purgatory."""

import random

from helpers.requirements import requirement
from tidelog.coordinator.schedule import Asked, MemberKey, Timers, Watcher


def popped(timers: Timers[str], now: float) -> list[str]:
    found = []
    while (key := timers.pop_due(now)) is not None:
        found.append(key)
    return found


@requirement("Pings wait in a priority queue ordered by time")
def test_what_is_due_comes_out_in_the_order_of_its_times() -> None:
    rand = random.Random(3)
    timers: Timers[str] = Timers()
    times = {f"c{n}": rand.uniform(0, 100) for n in range(200)}
    for key, at in times.items():
        timers.set(key, at)
    assert timers.next_at() == min(times.values())
    assert popped(timers, 50.0) == sorted((k for k, at in times.items() if at <= 50), key=lambda k: times[k])
    assert len(timers) == sum(at > 50 for at in times.values())


@requirement("Pings wait in a priority queue ordered by time")
def test_equal_times_come_out_in_the_order_in_which_they_were_set() -> None:
    timers: Timers[str] = Timers()
    for key in ("b", "a", "c"):
        timers.set(key, 1.0)
    assert popped(timers, 0.999) == [] and popped(timers, 1.0) == ["b", "a", "c"]
    assert timers.next_at() is None and timers.pop_due(9.0) is None


@requirement("A ping sets its watcher and schedules the next one")
def test_a_key_that_is_set_again_has_moved_and_comes_out_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.set("b", 2.0)
    timers.set("a", 3.0)
    assert (len(timers), timers.next_at()) == (2, 2.0)
    assert popped(timers, 2.5) == ["b"] and popped(timers, 10.0) == ["a"]
    timers.set("a", 5.0)
    timers.set("a", 4.0)
    assert popped(timers, 4.0) == ["a"] and popped(timers, 10.0) == []


@requirement("An answer clears the expiry watcher of its request")
def test_a_watcher_that_is_cleared_does_not_fire_and_others_of_its_member_do() -> None:
    member = MemberKey("g", "c")
    purgatory: Timers[Watcher] = Timers()
    for number in (1, 2):
        purgatory.set(Watcher(Asked.PING, member, number), float(number))
    purgatory.set(Watcher(Asked.STOP, member), 1.5)
    purgatory.clear(Watcher(Asked.PING, member, 1))
    purgatory.clear(Watcher(Asked.START, member))
    assert Watcher(Asked.PING, member, 1) not in purgatory and Watcher(Asked.STOP, member) in purgatory
    assert purgatory.pop_due(9.0) == Watcher(Asked.STOP, member)
    assert purgatory.pop_due(9.0) == Watcher(Asked.PING, member, 2)
    assert purgatory.pop_due(9.0) is None


def test_coord_08_what_is_postponed_keeps_its_order_and_what_was_cleared_stays_so() -> None:
    timers: Timers[str] = Timers()
    for key, at in (("a", 1.0), ("b", 1.0), ("c", 0.5), ("gone", 0.1), ("moved", 0.2)):
        timers.set(key, at)
    timers.clear("gone")
    timers.set("moved", 7.0)
    timers.postpone_all(10.0)
    assert popped(timers, 10.9) == ["c"]
    assert popped(timers, 11.0) == ["a", "b"]
    assert timers.next_at() == 17.0 and popped(timers, 17.0) == ["moved"]
