"""Deaths, bounces, suspicions and take-overs as the whole machine handles them, effect by effect."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import Connect, Disconnect, Effect, Outcome, Resign, Send, StateWrite
from tidelog.controller.events import (
    BrokerAnswered,
    BrokersChanged,
    FailedReplica,
    StreamBroken,
    StreamOpened,
    Suspected,
    Tick,
    WritesDone,
)
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import (
    Harness,
    broker,
    full_roles,
    isr,
    links,
    metadata,
    roles,
    state,
    stored_topic,
    want,
    writes,
)

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ALL = isr(b1=11, b2=12, b3=13)


@pytest.fixture
def c() -> Harness:
    """Broker 1 leads t-0 with everybody in sync; controller epoch 2."""
    harness = Harness()
    harness.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, ALL, 7)]), brokers=(B1, B2, B3))
    return harness


@requirement("A controller killed in mid-change leaves it complete or absent")
@requirement("A new controller sends every decision again")
@requirement("A decision stored but not published is not lost")
def test_a_new_controller_sends_every_decision_again() -> None:
    c = Harness()
    effects = c.elected(
        stored_topic("t", [(1, 2, 3), (2, 3, 1)], [state(1, 4, ALL, 7), state(2, 0, ALL, 0)]),
        stored_topic("u", [(3,)], [state(3, 0, isr(b3=13), 0)]),
        brokers=(B1, B2, B3),
    )
    t0, t1 = ("t-0", 1, 4, {1: 11, 2: 12, 3: 13}), ("t-1", 2, 0, {1: 11, 2: 12, 3: 13})
    u0 = ("u-0", 3, 0, {3: 13})
    assert links(effects) == [Connect(B1), Connect(B2), Connect(B3)]
    assert roles(effects) == {1: [t0, t1], 2: [t0, t1], 3: [t0, t1, u0]}
    assert full_roles(effects) == [1, 2, 3]
    assert metadata(effects) == {1: [t0, t1, u0], 2: [t0, t1, u0], 3: [t0, t1, u0]}
    assert writes(effects) == []


@requirement("A controller killed in mid-change leaves it complete or absent")
@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("A takeover replaces dead leaders and completes new partitions")
@requirement("A controller and a leader killed together are both replaced")
def test_a_leader_that_died_with_the_old_controller_is_replaced_at_take_over() -> None:
    c = Harness()
    effects = c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, ALL, 7)]), brokers=(B2, B3))
    tp = TopicPartition("t", 0)
    assert writes(effects) == [StateWrite(tp, state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=2))]
    # What was in force is sent at once; the new decision follows its write.
    assert roles(effects) == {each: [("t-0", 1, 4, {1: 11, 2: 12, 3: 13})] for each in (2, 3)}
    effects = c.write()
    assert roles(effects) == {each: [("t-0", 2, 5, {2: 12, 3: 13})] for each in (2, 3)}
    assert full_roles(effects) == []


@requirement("A killed leader loses no acknowledged record")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("A change of the live brokers triggers new decisions")
@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("Each step of a failover of many partitions is measured")
def test_a_dead_leader_is_replaced_after_the_write_and_not_before(c: Harness) -> None:
    effects = c.died(1)
    assert links(effects) == [Disconnect(BrokerId(1), 11)]
    assert len(writes(effects)) == 1 and c.doubtful == [], "it is decided from memory"
    assert roles(effects) == {}
    assert metadata(effects) == {2: [], 3: []}  # the list of live brokers, nothing else
    effects = c.write()
    new = ("t-0", 2, 5, {2: 12, 3: 13})
    assert roles(effects) == {2: [new], 3: [new]}
    assert metadata(effects) == {2: [new], 3: [new]}
    assert c.partition() == (2, 5, {2: 12, 3: 13}, 8)


@requirement("A change of the live brokers triggers new decisions")
@requirement("A dead follower leaves the ISR without a new leader epoch")
def test_a_dead_follower_leaves_and_its_leader_is_told(c: Harness) -> None:
    effects = c.died(3)
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 0), state(1, 4, isr(b1=11, b2=12), 8, controller_epoch=2)),
    ]
    new = ("t-0", 1, 4, {1: 11, 2: 12})
    assert roles(c.write()) == {1: [new], 2: [new]}


@requirement("A change of the live brokers triggers new decisions")
@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("Each step of a failover of many partitions is measured")
def test_brokers_that_die_together_are_all_replaced() -> None:
    c = Harness()
    states = [state(1, 0, isr(b1=11, b3=13), 0), state(2, 0, isr(b2=12, b3=13), 0)]
    c.elected(stored_topic("t", [(1, 3), (2, 3)], states), brokers=(B1, B2, B3))
    c.died(1, 2)
    c.run()
    assert [c.partition(index=number) for number in (0, 1)] == [(3, 1, {3: 13}, 1)] * 2


@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("A takeover replaces dead leaders and completes new partitions")
def test_a_take_over_decides_about_all_partitions_in_one_pass() -> None:
    c = Harness()
    states = [state(1, 4, ALL, 7), None, state(1, 2, ALL, 3), None]
    effects = c.elected(stored_topic("t", [(1, 2, 3)] * 4, states), brokers=(B2, B3))
    assert {write.tp.partition for write in writes(effects) if isinstance(write, StateWrite)} == {0, 1, 2, 3}
    c.write()
    assert [c.partition(index=number)[:3] for number in range(4)] == [
        (2, 5, {2: 12, 3: 13}),
        (2, 0, {2: 12, 3: 13}),
        (2, 3, {2: 12, 3: 13}),
        (2, 0, {2: 12, 3: 13}),
    ]
    assert c.in_flight == []


@requirement("A leader and a follower killed together lose no committed record")
@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("The leader maintains the set of replicas that are caught up")
@requirement("A partition stays available on its last live replica")
def test_the_replicas_die_one_after_another_and_the_last_one_leads(c: Harness) -> None:
    for dead in (1, 2):
        effects = c.died(dead)
        told = c.write()
    assert writes(effects) == [StateWrite(TopicPartition("t", 0), state(3, 6, isr(b3=13), 9, controller_epoch=2))]
    assert roles(told) == {3: [("t-0", 3, 6, {3: 13})]}


@requirement("A partition has one pending ISR change, and it is resolved")
def test_a_second_death_waits_for_the_first_write(c: Harness) -> None:
    assert len(writes(c.died(1))) == 1
    assert writes(c.died(2)) == []
    effects = c.write()
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 0), state(3, 6, isr(b3=13), 9, controller_epoch=2)),
    ]
    c.run()
    assert c.partition() == (3, 6, {3: 13}, 9)


@requirement("An offline partition returns without loss with an ISR member")
@requirement("A partition without a live replica publishes no leader")
def test_the_last_death_leaves_no_leader_and_the_isr(c: Harness) -> None:
    c.died(1, 2, 3)
    c.run()
    assert c.partition() == (-1, 5, {1: 11, 2: 12, 3: 13}, 8)
    assert c.machine.state.health == (1, 1, 1, 0, 1)


@requirement("A partition with no live replica has leader -1 and keeps its ISR")
@requirement("A change of the live brokers triggers new decisions")
@requirement("An offline partition returns without loss with an ISR member")
def test_a_member_that_returns_intact_leads_again(c: Harness) -> None:
    c.died(1, 2, 3)
    c.run()
    effects = c.came(broker(2, 22, intact_since=12))
    # It does not hear of the partition before it is settled who leads: nothing names its former life as leader.
    assert roles(effects) == {2: [("t-0", -1, 5, {1: 11, 2: 12, 3: 13})]}
    assert full_roles(effects) == [2]
    effects = c.write()
    assert roles(effects) == {2: [("t-0", 2, 6, {2: 22})]}


@requirement("An offline partition returns without loss with an ISR member")
@requirement("A committed record never disappears or changes")
def test_mut_13_a_member_that_lost_something_stays_offline(c: Harness) -> None:
    c.died(2, 3)
    c.run()
    c.died(1)
    c.run()
    c.came(broker(1, 21))  # power loss: intact only since this life
    c.run()
    assert c.partition() == (-1, 5, {1: 11}, 9)
    c.came(B2, B3)
    c.run()
    assert c.partition() == (-1, 5, {1: 11}, 9)  # neither was in the ISR (HOLE-25)


@requirement("A fast bounce is detected by the broker epoch")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("A committed record never disappears or changes")
@requirement("A bounced broker is treated as a failure plus a startup")
def test_a_bounced_leader_hears_of_its_partition_only_after_the_next_election(c: Harness) -> None:
    effects = c.came(broker(1, 21, intact_since=11))
    assert links(effects) == [Disconnect(BrokerId(1), 11), Connect(broker(1, 21, intact_since=11))]
    # To be told that it leads epoch 4 would let it append where its former life has appended.
    assert 1 not in roles(effects)
    assert metadata(effects)[1] == [("t-0", 1, 4, {1: 11, 2: 12, 3: 13})]
    effects = c.write()
    assert full_roles(effects) == [1]
    assert roles(effects) == {each: [("t-0", 2, 5, {2: 12, 3: 13})] for each in (1, 2, 3)}


@requirement("The ISR converges to all live replicas that have caught up")
@requirement("A bounced broker is treated as a failure plus a startup")
def test_a_bounced_follower_leaves_the_isr_and_gets_everything(c: Harness) -> None:
    effects = c.came(broker(3, 23, intact_since=13))
    assert full_roles(effects) == [3]
    effects = c.write()
    assert c.partition() == (1, 4, {1: 11, 2: 12}, 8)
    assert roles(effects) == {each: [("t-0", 1, 4, {1: 11, 2: 12})] for each in (1, 2, 3)}


@requirement("A checkpoint keeps the entries that an update does not name")
def test_nothing_partial_goes_before_the_full_one(c: Harness) -> None:
    # Broker 1 bounces; while its election is written, another partition of its changes.
    c = Harness()
    topic = stored_topic("t", [(1, 2), (2, 1)], [state(1, 0, isr(b1=11, b2=12), 0), state(2, 0, isr(b2=12), 0)])
    c.elected(topic, brokers=(B1, B2))
    c.came(broker(1, 21, intact_since=1))
    c.proposed(2, want(2, 0, isr(b2=12, b1=21), 0, index=1))
    bounce, expand = c.in_flight
    effects = c.step(WritesDone(((expand, c.store.apply(expand)),)))
    assert set(roles(effects)) == {2}
    effects = c.step(WritesDone(((bounce, c.store.apply(bounce)),)))
    assert full_roles(effects) == [1]
    assert roles(effects)[1] == [("t-0", 2, 1, {2: 12}), ("t-1", 2, 0, {2: 12, 1: 21})]


@requirement("A fast bounce is detected by the broker epoch")
def test_mut_24_the_same_ids_with_another_epoch_are_a_bounce(c: Harness) -> None:
    assert c.brokers_are(B1, B2, B3) == []
    assert len(writes(c.brokers_are(B1, broker(2, 99), B3))) == 1


def test_a_suspect_is_removed_and_replaced_by_one_write(c: Harness) -> None:
    effects = c.suspected(1)
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 0), state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=2)),
    ]
    assert links(effects) == []  # it is still registered and is told, if it lives
    assert roles(c.write()) == {each: [("t-0", 2, 5, {2: 12, 3: 13})] for each in (1, 2, 3)}


@requirement("A partition whose leader is dead gets a new leader and ISR")
@requirement("A change of the live brokers triggers new decisions")
@pytest.mark.parametrize("event", [Suspected(BrokerId(1), 11), BrokersChanged((B2, B3))], ids=["suspected", "gone"])
def test_new_leaders_are_written_before_smaller_isrs(event: Suspected | BrokersChanged) -> None:
    """With ten thousand partitions the first multi goes out long before the last: what nobody leads must not wait for it."""
    c = Harness()
    followed, led = state(2, 0, ALL, 0), state(1, 4, ALL, 7)
    replicas = [(2, 1, 3), (1, 2, 3), (2, 3, 1), (1, 3, 2)]
    c.elected(stored_topic("t", replicas, [followed, led, followed, led]), brokers=(B1, B2, B3))
    assert [write.tp.partition for write in writes(c.step(event))] == [1, 3, 0, 2]


def test_there_is_one_suspect_at_a_time(c: Harness) -> None:
    c.suspected(1)
    c.write()
    assert c.suspected(2) == []
    c.died(1)  # its session has ended: the place is free
    assert len(writes(c.suspected(2))) == 1


def test_a_suspicion_of_a_former_life_is_ignored(c: Harness) -> None:
    assert c.step(Suspected(BrokerId(1), 10)) == []
    c.came(broker(1, 21, intact_since=11))
    c.write()
    assert c.step(Suspected(BrokerId(1), 11)) == []


def test_a_suspect_that_comes_back_in_another_life_is_no_suspect(c: Harness) -> None:
    c.suspected(1)
    c.write()
    c.came(broker(1, 21, intact_since=11))
    c.run()
    token, _ = c.proposed(2, want(2, 5, isr(b2=12, b3=13, b1=21), 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_a_suspect_stays_ineligible_until_its_stream_has_held(c: Harness) -> None:
    c.suspected(1)
    c.write()
    c.step(StreamOpened(BrokerId(1), 11, now=100.0))
    c.step(StreamBroken(BrokerId(1), 11))
    c.step(Tick(now=111.0))
    assert c.machine.suspects == {1}
    c.step(StreamOpened(BrokerId(1), 11, now=105.0))
    c.step(Tick(now=114.9))
    token, _ = c.proposed(2, want(2, 5, ALL, 8))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]
    c.step(Tick(now=115.0))
    assert c.machine.suspects == frozenset()
    token, _ = c.proposed(2, want(2, 5, ALL, 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_without_a_stream_a_suspicion_does_not_end(c: Harness) -> None:
    c.suspected(1)
    c.step(Tick(now=1e9))
    assert c.machine.suspects == {1}


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("Every controller write checks the controller epoch")
def test_a_raised_controller_epoch_ends_the_term(c: Harness) -> None:
    c.died(1)
    c.store.fenced = True
    assert c.write() == [Resign("another controller has raised /controller_epoch")]
    assert c.step(BrokersChanged((B2,))) == []


def test_i12_a_broker_that_knows_a_newer_controller_ends_the_term(c: Harness) -> None:
    assert c.step(BrokerAnswered(BrokerId(2), 12, ErrorCode.STALE_BROKER_EPOCH)) == []
    assert c.step(BrokerAnswered(BrokerId(2), 12, ErrorCode.STALE_CONTROLLER_EPOCH)) == [
        Resign("broker 2 has heard of a newer controller")
    ]


@requirement("A write of unknown outcome is read back before it is judged")
def test_an_unknown_outcome_that_was_applied_is_adopted(c: Harness) -> None:
    c.died(1)
    assert roles(c.write(unknown=True)) == {}
    effects = c.examine()
    assert roles(effects) == {each: [("t-0", 2, 5, {2: 12, 3: 13})] for each in (2, 3)}
    assert writes(effects) == []


@requirement("A write of unknown outcome is read back before it is judged")
def test_an_unknown_outcome_that_was_not_applied_is_written_again(c: Harness) -> None:
    c.died(1)
    c.write(lost=True)
    effects = c.examine()
    assert roles(effects) == {}
    assert len(writes(effects)) == 1
    c.run()
    assert c.partition() == (2, 5, {2: 12, 3: 13}, 8)


@requirement("A write of unknown outcome is read back before it is judged")
def test_a_conflict_adopts_what_is_stored_and_decides_again(c: Harness) -> None:
    c.died(1)
    other = znodes.StoredState(BrokerId(3), 9, isr(b2=12, b3=13), 1)
    c.store.znodes[znodes.state_path("t", 0)] = znodes.encode_state(other), 20
    c.write()
    effects = c.examine()
    assert roles(effects) == {each: [("t-0", 3, 9, {2: 12, 3: 13})] for each in (2, 3)}
    assert c.partition() == (3, 9, {2: 12, 3: 13}, 20)


def test_a_state_that_has_disappeared_ends_the_term(c: Harness) -> None:
    c.died(1)
    del c.store.znodes[znodes.state_path("t", 0)]
    c.write()
    assert c.examine() == [Resign("the state znode of t-0 has disappeared")]


def test_a_damaged_state_ends_the_term_and_names_its_path(c: Harness) -> None:
    c.died(1)
    c.store.znodes[znodes.state_path("t", 0)] = b"junk", 20
    c.write()
    (resign,) = c.examine()
    assert isinstance(resign, Resign) and "/brokers/topics/t/partitions/0/state" in resign.reason


def test_a_refused_state_ends_the_term(c: Harness) -> None:
    c.died(1)
    effects = c.step(WritesDone(tuple((group, Outcome.REFUSED) for group in c.in_flight)))
    assert effects == [Resign("the store refuses the state of t-0")]


@requirement("A disk error takes one partition of one broker offline")
@requirement("A stalled log sync moves leadership to another replica")
@requirement("A full disk moves leadership and heals when space returns")
@requirement("A full or failed disk fails over only the partitions on it")
def test_a_replica_whose_disk_failed_leaves_the_isr_and_stays_out_for_this_life(c: Harness) -> None:
    tp = TopicPartition("t", 0)
    effects = c.step(BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, failed=(FailedReplica(tp, b"id-of-t"),)))
    assert writes(effects) == [StateWrite(tp, state(2, 5, isr(b2=12, b3=13), 8, controller_epoch=2))]
    c.run()
    assert c.step(BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, failed=(FailedReplica(tp, b"id-of-t"),))) == []
    token, _ = c.proposed(2, want(2, 5, ALL, 8))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]
    c.came(broker(1, 21))
    token, _ = c.proposed(2, want(2, 5, isr(b1=21, b2=12, b3=13), 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_an_answer_of_a_former_life_says_nothing_about_this_one(c: Harness) -> None:
    c.came(broker(3, 23))
    c.run()
    assert (
        c.step(
            BrokerAnswered(BrokerId(3), 13, ErrorCode.NONE, failed=(FailedReplica(TopicPartition("t", 0), b"id-of-t"),))
        )
        == []
    )


@requirement("A topic id separates topics that share a name")
def test_a_disk_that_failed_an_earlier_topic_of_the_name_is_no_news(c: Harness) -> None:
    failed = (FailedReplica(TopicPartition("t", 0), b"id-of-the-one-before"),)
    assert c.step(BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, failed=failed)) == []


# --- disks ------------------------------------------------------------------------------------------------------------


def pong(broker_id: int, *failed: TopicPartition) -> BrokerAnswered:
    """What a broker of the fixture says of its disk."""
    named = tuple(FailedReplica(tp, b"id-of-t") for tp in failed)
    return BrokerAnswered(BrokerId(broker_id), 10 + broker_id, ErrorCode.NONE, named, lists_all_failed=True)


def told_roles(effects: list[Effect], broker_id: int) -> list[m.PartitionState]:
    return [
        state
        for each in effects
        if isinstance(each, Send) and each.broker_id == broker_id and isinstance(each.request, m.LeaderAndIsrRequest)
        for state in each.request.partition_states
    ]


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A full disk moves leadership and heals when space returns")
def test_a_disk_that_works_again_is_told_what_to_do_and_may_enter_the_isr(c: Harness) -> None:
    tp = TopicPartition("t", 0)
    c.step(pong(1, tp))
    effects = c.write()
    (state_,) = [s for s in told_roles(effects, 1) if s.topic == "t" and s.partition == 0]
    assert state_.offline_replicas == (1,), "the replica hears that the controller knows (HOLE-27)"
    assert {x.broker_id for x in state_.isr} == {2, 3}
    c.run()
    assert c.step(pong(1, tp)) == [], "known"
    effects = c.step(pong(1))
    (state_,) = told_roles(effects, 1)
    assert (state_.leader, state_.offline_replicas) == (2, ())
    token, _ = c.proposed(2, want(2, 5, ALL, 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


@requirement("A full disk moves leadership and heals when space returns")
@requirement("A last ISR member that lost power is not elected automatically")
def test_a_replica_with_a_failed_disk_is_told_so_only_when_no_write_may_admit_it(c: Harness) -> None:
    tp = TopicPartition("t", 0)
    c.step(pong(3, tp))
    c.run()
    c.step(pong(3))
    c.run()
    # It is being admitted when its disk fails again: the state with it is told first, then the one without.
    c.proposed(1, want(1, 4, ALL, 8))
    assert told_roles(c.step(pong(3, tp)), 3) == []
    told: list[m.PartitionState] = []
    while c.in_flight:
        told += told_roles(c.write(), 3)
    assert [({x.broker_id for x in s.isr}, s.offline_replicas) for s in told] == [({1, 2, 3}, ()), ({1, 2}, (3,))]


def alone(c: Harness) -> tuple[TopicPartition, int, int]:
    """Broker 1 is the only member of the ISR left: the partition, its leader epoch and its version."""
    c.died(2, 3)
    c.run()
    leader, epoch, members, version = c.partition()
    assert (leader, members) == (1, {1: 11})
    return TopicPartition("t", 0), epoch, version


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A leader whose disk failed leads again only in a new epoch")
def test_a_last_replica_leads_in_a_new_epoch_when_its_disk_works(c: Harness) -> None:
    """The epoch fences its proposals from before its disk failed."""
    tp, epoch, version = alone(c)
    assert writes(c.step(pong(1, tp))) == [], "nobody else may lead"
    assert writes(c.step(pong(1))) == [StateWrite(tp, state(1, epoch + 1, isr(b1=11), version + 1, controller_epoch=2))]
    (told,) = told_roles(c.write(), 1)
    assert (told.leader, told.leader_epoch, told.offline_replicas) == (1, epoch + 1, ())
    assert writes(c.step(pong(1))) == []


@requirement("A leader whose disk failed leads again only in a new epoch")
def test_a_leader_that_refuses_its_epoch_gets_a_new_one(c: Harness) -> None:
    """A broker refuses to lead in the epoch in which its disk failed; then its report says that the disk works."""
    tp, epoch, version = alone(c)
    c.step(BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, failed=(FailedReplica(tp, b"id-of-t"),)))
    assert writes(c.step(pong(1))) == [StateWrite(tp, state(1, epoch + 1, isr(b1=11), version + 1, controller_epoch=2))]
