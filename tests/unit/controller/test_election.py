"""Who leads after deaths, bounces, suspicions and returns (reliability 3.6 rule D, HOLE-07, HOLE-25, HOLE-50, F-13)."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.controller.election import initial, released, settle, vetoed
from tidelog.controller.model import Broker, PartitionState
from tidelog.ids import NO_LEADER, BrokerId
from unit.controller.harness import broker, isr, state

R123 = (BrokerId(1), BrokerId(2), BrokerId(3))


def after(
    old: PartitionState, *alive: Broker, suspects: Collection[int] = (), replicas: tuple[BrokerId, ...] = R123
) -> PartitionState | None:
    brokers = {each.broker_id: each for each in alive}
    return settle(replicas, old, brokers, [BrokerId(each) for each in suspects], controller_epoch=9)


FULL = state(1, 4, isr(b1=11, b2=12, b3=13), version=7)


def test_nothing_changes_while_everybody_lives() -> None:
    assert after(FULL, broker(1, 11), broker(2, 12), broker(3, 13)) is None


@requirement("A partition whose leader is dead gets a new leader and ISR")
def test_f13_1_the_first_assigned_live_isr_member_leads() -> None:
    assert after(FULL, broker(2, 12), broker(3, 13)) == state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=9)


@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("A killed follower stalls writes briefly and rejoins the ISR")
@requirement("A dead follower leaves the ISR without a new leader epoch")
def test_f05_10_a_dead_follower_leaves_without_a_new_leader_epoch() -> None:
    assert after(FULL, broker(1, 11), broker(3, 13)) == state(1, 4, isr(b1=11, b3=13), 8, controller_epoch=9)


@requirement("Killing every broker at once loses no written record")
@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("An unclean election needs the consent of the topic")
def test_a_live_replica_outside_the_isr_is_not_elected() -> None:
    old = state(1, 4, isr(b1=11), version=7)
    assert after(old, broker(2, 12), broker(3, 13)) == state(-1, 5, isr(b1=11), 8, controller_epoch=9)


@requirement("A partition with no live replica has leader -1 and keeps its ISR")
@requirement("A partition without a live replica publishes no leader")
def test_without_a_live_member_the_leader_is_none_and_the_isr_is_kept() -> None:
    assert after(FULL) == state(-1, 5, isr(b1=11, b2=12, b3=13), 8, controller_epoch=9)
    assert after(state(-1, 5, isr(b1=11, b2=12, b3=13), 8)) is None


@requirement("A fast bounce is detected by the broker epoch")
@requirement("A bounced broker is treated as a failure plus a startup")
def test_a_bounced_leader_is_failure_plus_start() -> None:
    # Broker 1 lives again as 21: its leadership and its place in the ISR were the former life's.
    bounced = broker(1, 21, intact_since=11)
    assert after(FULL, bounced, broker(2, 12), broker(3, 13)) == state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=9)


@requirement("A fast bounce is detected by the broker epoch")
@requirement("A bounced broker is treated as a failure plus a startup")
def test_a_bounced_follower_leaves_the_isr() -> None:
    assert after(FULL, broker(1, 11), broker(2, 22), broker(3, 13)) == state(
        1, 4, isr(b1=11, b3=13), 8, controller_epoch=9
    )


LAST = state(1, 4, isr(b1=11), version=7)


@requirement("A power loss of the only ISR member leaves its partition offline")
@requirement("A partition with no live replica has leader -1 and keeps its ISR")
def test_mut_13_the_last_member_leads_again_if_it_has_lost_nothing() -> None:
    assert after(LAST, broker(1, 21, intact_since=11)) == state(1, 5, isr(b1=21), 8, controller_epoch=9)


@requirement("A power loss of the only ISR member leaves its partition offline")
@requirement("A crash of the whole cluster loses at most unflushed records")
@requirement("A partition with no live replica has leader -1 and keeps its ISR")
@requirement("A last ISR member that lost power is not elected automatically")
def test_mut_13_the_last_member_that_lost_something_stays_out() -> None:
    assert after(LAST, broker(1, 21, intact_since=12)) == state(-1, 5, isr(b1=11), 8, controller_epoch=9)


def test_the_veto_outlives_a_second_clean_restart() -> None:
    vetoed = state(-1, 5, isr(b1=11), 8)
    assert after(vetoed, broker(1, 31, intact_since=21)) is None


@requirement("A crash of the whole cluster loses at most unflushed records")
def test_after_a_veto_another_member_that_lost_nothing_leads() -> None:
    vetoed = state(-1, 5, isr(b1=11, b2=12), 8)
    assert after(vetoed, broker(1, 21), broker(2, 22, intact_since=5)) == state(2, 6, isr(b2=22), 9, controller_epoch=9)


def test_the_only_assigned_replica_leads_whatever_it_lost() -> None:
    assert after(LAST, broker(1, 21), replicas=(BrokerId(1),)) == state(1, 5, isr(b1=21), 8, controller_epoch=9)


@requirement("A crash of the whole cluster loses at most unflushed records")
@requirement("Killing every broker at once loses no written record")
def test_kill_of_all_heals_by_itself() -> None:
    # All three return in new lives at once; the first assigned one leads alone, the others rejoin by AlterIsr.
    back = [broker(each, 20 + each, intact_since=1) for each in (1, 2, 3)]
    assert after(FULL, *back) == state(1, 5, isr(b1=21), 8, controller_epoch=9)


def test_a_member_in_its_old_life_goes_before_an_intact_returned_one() -> None:
    assert after(FULL, broker(1, 21, intact_since=1), broker(3, 13)) == state(3, 5, isr(b3=13), 8, controller_epoch=9)


def test_a_suspect_leaves_every_isr_with_another_member() -> None:
    alive = [broker(1, 11), broker(2, 12), broker(3, 13)]
    assert after(FULL, *alive, suspects=[1]) == state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=9)
    assert after(FULL, *alive, suspects=[3]) == state(1, 4, isr(b1=11, b2=12), 8, controller_epoch=9)


def test_a_suspect_that_is_the_last_member_stays() -> None:
    assert after(LAST, broker(1, 11), broker(2, 12), suspects=[1]) is None
    # Also when the others die at the same time.
    assert after(FULL, broker(1, 11), suspects=[1]) == state(1, 4, isr(b1=11), 8, controller_epoch=9)


def test_f01_2_a_new_partition_starts_with_its_live_replicas_in_sync() -> None:
    brokers = {each.broker_id: each for each in (broker(2, 12), broker(3, 13))}
    assert initial(R123, brokers, [], 9) == state(2, 0, isr(b2=12, b3=13), 0, controller_epoch=9)
    assert initial(R123, brokers, [BrokerId(2)], 9) == state(3, 0, isr(b3=13), 0, controller_epoch=9)


@requirement("A partition with no live replica has leader -1 and keeps its ISR")
def test_f01_3_a_new_partition_without_a_live_replica_waits() -> None:
    assert initial(R123, {}, [], 9) is None


lives = st.integers(1, 3)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[PartitionState, dict[BrokerId, Broker], list[BrokerId]]:
    members = draw(st.lists(st.sampled_from(R123), min_size=1, unique=True))
    leader = draw(st.sampled_from([*members, NO_LEADER]))
    epochs = {f"b{each}": draw(lives) for each in members}
    alive = draw(st.lists(st.sampled_from(R123), unique=True))
    brokers = {each: broker(each, epoch, draw(st.integers(1, epoch))) for each in alive for epoch in [draw(lives)]}
    suspects = draw(st.lists(st.sampled_from(R123), max_size=1))
    return state(leader, 3, isr(**epochs), 5), brokers, suspects


@requirement("ISR and catch-up replicas make up the assigned replicas")
@requirement("The leader is in the ISR and the ISR is among the replicas")
@given(partitions())
def test_i3_i7_settling_keeps_the_invariants_and_ends(
    case: tuple[PartitionState, dict[BrokerId, Broker], list[BrokerId]],
) -> None:
    old, brokers, suspects = case
    new = settle(R123, old, brokers, suspects, 9)
    if new is None:
        new = old
    else:
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch == old.leader_epoch + (new.leader_epoch > old.leader_epoch)
        if new.leader != old.leader:
            assert new.leader_epoch == old.leader_epoch + 1
    before = {member.broker_id: member.broker_epoch for member in old.isr}
    members = {member.broker_id: member.broker_epoch for member in new.isr}
    assert members and set(members) <= set(before)  # only AlterIsr lets anybody in
    if new.leader == NO_LEADER:
        assert new.isr == old.isr
    else:
        # Whoever leads is alive in the life that the ISR names, and has lost nothing since it was admitted.
        leader = brokers[new.leader]
        assert members[new.leader] == leader.epoch
        assert leader.epoch == before[new.leader] or leader.intact_since <= before[new.leader]
    assert settle(R123, new, brokers, suspects, 9) is None


@requirement("A partition whose leader is dead gets a new leader and ISR")
@pytest.mark.parametrize("order", [(3, 1, 2), (2, 3, 1)])
def test_the_order_of_assignment_decides(order: tuple[int, ...]) -> None:
    replicas = tuple(BrokerId(each) for each in order)
    new = after(state(-1, 0, isr(b1=11, b2=12, b3=13), 0), *(broker(i, 10 + i) for i in (1, 2, 3)), replicas=replicas)
    assert new is not None and new.leader == order[0]


ALONE = (BrokerId(1),)
ONLY_COPY = state(1, 4, isr(b1=11), version=7)
FORMER = ((11, "d1"), (21, "d2"))


def with_directories(of: Broker, *directories: tuple[int, str]) -> Broker:
    return replace(of, directories=directories)


@requirement("A last ISR member that lost power is not elected automatically")
def test_an_only_copy_on_another_disk_needs_consent() -> None:
    """It would acknowledge records that vanish when the right disk comes back."""
    offline = state(-1, 5, isr(b1=11), 8, controller_epoch=9)
    empty = with_directories(broker(1, 21), *FORMER)
    assert after(ONLY_COPY, empty, replicas=ALONE) == offline
    assert vetoed(ALONE, offline, {ALONE[0]: empty}, ()) == 1
    led = released(offline, empty, 9)
    assert (led.leader, led.isr) == (1, isr(b1=21))
    # It stays the right disk until there is another one again.
    again = with_directories(broker(1, 31), *FORMER)
    found = after(led, again, replicas=ALONE)
    assert found is not None and (found.leader, found.isr) == (1, isr(b1=31))


def test_the_disk_of_the_life_in_the_isr_leads_when_back() -> None:
    back = with_directories(broker(1, 31, intact_since=11), *FORMER, (31, "d1"))
    assert after(ONLY_COPY, back, replicas=ALONE) == state(1, 5, isr(b1=31), 8, controller_epoch=9)


def test_a_disk_that_is_back_lacks_what_the_other_one_got() -> None:
    """It says that it is intact since 11, and so it is: it was not there when broker 1 was admitted as 21."""
    old = state(-1, 4, isr(b1=21, b2=12), version=7)
    back = with_directories(broker(1, 31, intact_since=11), *FORMER, (31, "d1"))
    assert after(old, back) is None
    assert after(old, with_directories(broker(1, 31, intact_since=21), *FORMER)) is not None


@requirement("A last ISR member that lost power is not elected automatically")
def test_an_only_copy_leads_where_no_other_disk_is_known() -> None:
    for known in ((), ((11, "d1"),), ((21, "d1"),)):
        found = after(ONLY_COPY, with_directories(broker(1, 21), *known), replicas=ALONE)
        assert found == state(1, 5, isr(b1=21), 8, controller_epoch=9)
