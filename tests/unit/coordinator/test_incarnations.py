"""Incarnations of a static member: the newest has the id, in whatever order they come, and the store knows which it is."""

from dataclasses import replace

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator.model import DRIFT, DRIFT_MIN_S, StoredGroup
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from unit.coordinator.scene import Consumer, Scene, tps

LEASE_S = 10.0 * (1 + DRIFT) + DRIFT_MIN_S
ALL = tps("t", 0, 1, 2, 3)


def stopped_and_replaced() -> tuple[Scene, Consumer, Consumer]:
    """A member that stands still, and the one that has taken over its id since."""
    scene = Scene()
    (old,) = scene.join("s", static_member=True)
    old.answers.clear()
    scene.run(LEASE_S + 5.0)
    (new,) = scene.join("s", static_member=True)
    assert new.owned == ALL
    return scene, old, new


def by_0_2(scene: Scene) -> tuple[StoredGroup, ...]:
    """The stored groups, as a coordinator of 0.2 writes them."""
    (group,) = scene.stored_groups()
    members = {name: replace(each, admission=0) for name, each in group.head.members.items()}
    return (replace(group, head=replace(group.head, members=members)),)


def code_of(consumer: Consumer) -> ErrorCode:
    return ErrorCode.NONE if consumer.error is None else consumer.error.error_code


@requirement("A consumer that reconnects resumes its own registration")
def test_a_replaced_member_that_goes_on_is_refused_for_good() -> None:
    scene, old, new = stopped_and_replaced()
    for _ in range(3):
        old.error = None
        old.reconnect()
        assert code_of(old) is ErrorCode.DUPLICATE_CONSUMER_ID
        scene.run(20.0)
    assert code_of(new) is ErrorCode.NONE and new.owned == ALL and scene.state() == "Stable"


def test_the_newest_of_three_has_the_id() -> None:
    scene = Scene()
    first, second, third = (scene.consumer("s", static_member=True).register() for _ in range(3))
    first.reconnect()
    second.reconnect()
    scene.run(3 * LEASE_S)
    assert [code_of(each) for each in (first, second)] == [ErrorCode.DUPLICATE_CONSUMER_ID] * 2
    assert third.owned == ALL


@requirement("A new coordinator reads its groups and their members")
def test_the_next_coordinator_refuses_a_replaced_member() -> None:
    scene, old, new = stopped_and_replaced()
    after = scene.failover()
    after.move(old)
    assert code_of(old) is ErrorCode.DUPLICATE_CONSUMER_ID
    after.move(new)
    after.run(60.0)
    assert new.owned == ALL and not after.of(fx.Rebalanced)


def test_a_member_that_leaves_and_returns_is_the_same() -> None:
    scene = Scene()
    (a,) = scene.join("s", static_member=True)
    a.leave()
    a.reconnect(rejoin=False)
    scene.run(1.0)
    assert code_of(a) is ErrorCode.NONE and a.owned == ALL


@requirement("Owners and generation are stored before any fetcher starts")
def test_the_store_names_an_incarnation_before_it_starts() -> None:
    scene = Scene()
    (old,) = scene.join("s", static_member=True)
    old.leave()
    scene.holds_writes = True
    new = scene.consumer("s", static_member=True).register()
    assert not new.owned
    scene.carry_out()
    assert new.owned == ALL and scene.heads["g"].members["s"].incarnation == new.incarnation


@requirement("At most one consumer of a group delivers a partition")
def test_a_new_coordinator_awaits_the_lease_of_the_older_one() -> None:
    scene = Scene()
    old, other = scene.join("s", "b", static_member=True)
    new = scene.consumer("s", static_member=True).register()
    scene.change_topics(t=6)  # its head is written while the new one waits for the lease of the old one
    scene.run(2.0)
    assert not new.owned and old.owned and len(other.owned) == 4
    after = scene.failover()
    after.move(other)
    after.move(new)
    after.run(LEASE_S - 0.1)
    assert not new.owned
    after.run(1.0)
    assert new.owned and new.owned | other.owned == tps("t", *range(6)) and not new.owned & other.owned


@requirement("At most one consumer of a group delivers a partition")
def test_a_leave_before_its_turn_frees_no_older_lease() -> None:
    scene = Scene()
    scene.join("s", static_member=True)
    scene.consumer("s", static_member=True).register().leave()
    third = scene.consumer("s", static_member=True).register()
    scene.run(LEASE_S - 4.0)
    assert not third.owned
    scene.run(4.0)
    assert third.owned == ALL


# -- beside 0.2 ------------------------------------------------------------------------------------------------------------


def test_a_client_of_0_2_is_admitted_as_by_0_2() -> None:
    _, old, new = stopped_and_replaced()
    old.reconnect(admission=0)
    assert code_of(old) is ErrorCode.NONE and code_of(new) is ErrorCode.DUPLICATE_CONSUMER_ID


def test_what_0_2_has_stored_is_numbered_when_it_returns() -> None:
    scene, old, new = stopped_and_replaced()
    after = scene.failover(stored=by_0_2(scene))
    new.request["admission"] = 0
    after.move(new)
    after.move(old)
    assert code_of(old) is ErrorCode.DUPLICATE_CONSUMER_ID and code_of(new) is ErrorCode.NONE


def test_a_replacement_that_0_2_admitted_gets_the_id_back() -> None:
    """The order of the two is not known when the older one comes first. They must not take turns all the same."""
    scene, old, new = stopped_and_replaced()
    after = scene.failover(stored=by_0_2(scene))
    new.request["admission"] = 0
    after.move(old)
    after.move(new)
    after.run(3 * LEASE_S)
    old.reconnect()
    assert code_of(old) is ErrorCode.DUPLICATE_CONSUMER_ID and new.owned == ALL


def test_a_member_that_is_not_static_has_no_number() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    assert [each.admission for each in a.bodies(m.RegisterConsumerResponse)] == [0]
    assert scene.heads["g"].members["a"].admission == 0
