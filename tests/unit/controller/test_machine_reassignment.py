"""Moving replicas, step by step (B7, F-11, KIP-455): what is written, who is told, when a move ends, and what refuses a plan."""

import pytest

from helpers.requirements import requirement
from tidelog.controller import describe
from tidelog.controller import operations as controller_operations
from tidelog.controller.effects import (
    Effect,
    Outcome,
    PartitionsWrite,
    ReassignmentWrite,
    Resign,
    Send,
    StateWrite,
    Write,
)
from tidelog.controller.events import ControlledShutdownRequested, Tick, Token, WritesDone
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.meta import size_bytes
from tidelog.wire import messages as m
from tidelog.wire import znodes
from tidelog.wire.znodes import Move
from unit.controller.harness import Harness, broker, isr, metadata, roles, state, stops, stored_topic, want, writes

B1, B2, B3, B4, B5 = (broker(number, 10 + number) for number in range(1, 6))
ID = b"id-of-t"
OLD = isr(b1=11, b2=12)


def row(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def move(old: tuple[int, ...], target: tuple[int, ...]) -> Move:
    return Move(row(*old), row(*target))


@pytest.fixture
def c() -> Harness:
    """`t` has two partitions on brokers 1 and 2, led by 1 in epoch 5 and by 2 in epoch 7; brokers 3 to 5 are empty."""
    harness = Harness()
    states = (state(1, 5, OLD, 20), state(2, 7, isr(b2=12, b1=11), 30))
    harness.elected(stored_topic("t", ((1, 2), (2, 1)), states), brokers=(B1, B2, B3, B4, B5))
    return harness


def stored(c: Harness, topic: str = "t") -> znodes.TopicAssignment:
    return znodes.decode_topic(topic, c.store.znodes[znodes.topic_path(topic)][0])


def refusal(c: Harness, token: int) -> tuple[ErrorCode, str]:
    answer = c.replies[token]
    return answer.error_code, answer.error_message


def joins(c: Harness, members: tuple[m.IsrMember, ...], *, partition: int = 0) -> list[Effect]:
    """The leader asks for this ISR and gets it; effects of the write."""
    leader, epoch, _, version = c.partition(index=partition)
    token, _ = c.proposed(leader, want(leader, epoch, members, version, index=partition))
    effects = c.write()
    assert c.isr_answers(token) == [("t", partition, ErrorCode.NONE)]
    return effects


@requirement("The topic znode holds the replicas of every partition")
@requirement("A reassignment adds new replicas before it removes old ones")
@requirement("The leader of a moved partition is told of its new ISR")
@requirement("A crash at the end of a reassignment leaves it whole or undone")
def test_a_partition_moves_step_by_step(c: Harness) -> None:
    token, effects = c.move({0: (3, 4)})
    begun = PartitionsWrite("t", ID, (row(3, 4, 1, 2), row(2, 1)), 1, {0: move((1, 2), (3, 4))})
    assert writes(effects) == [ReassignmentWrite((begun,))]
    assert token not in c.replies and roles(effects) == {}

    effects = c.write()
    # Everybody who has or gets a copy hears of it, in the state as it is; the targets begin to fetch.
    assert c.replies[token] == m.AlterPartitionReassignmentsResponse()
    told = ("t-0", 1, 5, {1: 11, 2: 12})
    assert roles(effects) == {1: [told], 2: [told], 3: [told], 4: [told]}
    assert set(metadata(effects)) == {1, 2, 3, 4, 5}
    (said,) = {s for e in effects if isinstance(e, Send) for s in getattr(e.request, "partition_states", ())}
    assert said.replicas == (3, 4, 1, 2) and said.adding_replicas == (3, 4) and said.removing_replicas == (1, 2)

    # One target in the ISR is not enough (HOLE-32).
    effects = joins(c, isr(b1=11, b2=12, b3=13))
    assert writes(effects) == [] and stored(c).moves == {0: move((1, 2), (3, 4))}

    effects = joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    last = state(3, 6, isr(b3=13, b4=14), 23, controller_epoch=2)
    done = PartitionsWrite("t", ID, (row(3, 4), row(2, 1)), 2)
    assert writes(effects) == [ReassignmentWrite((done,), (StateWrite(TopicPartition("t", 0), last),))]
    (write,) = [each for each in effects if isinstance(each, Write)]
    assert (write.cause, write.elections) == ("reassigned", 1)

    effects = c.write()
    assert roles(effects) == {3: [("t-0", 3, 6, {3: 13, 4: 14})], 4: [("t-0", 3, 6, {3: 13, 4: 14})]}
    assert stops(effects) == {1: [("t", 0, 6, True)], 2: [("t", 0, 6, True)]}
    assert set(metadata(effects)) == {1, 2, 3, 4, 5}
    assert c.partition() == (3, 6, {3: 13, 4: 14}, 23)
    assert stored(c) == znodes.TopicAssignment(ID, (row(3, 4), row(2, 1)))
    assert c.machine.state.moving == {} and c.in_flight == []


@requirement("A reassignment completes only when all targets are in sync")
def test_nobody_who_was_removed_comes_back(c: Harness) -> None:
    """The old leader, not told yet, asks for its ISR; the new one asks for a removed replica."""
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    late, _ = c.proposed(1, want(1, 5, isr(b1=11, b2=12, b3=13), 21))  # while the end is being written
    c.write()
    assert c.isr_answers(late) == [("t", 0, ErrorCode.FENCED_LEADER_EPOCH)]
    token, _ = c.proposed(3, want(3, 6, isr(b3=13, b4=14, b1=11), 22))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_REQUEST)]


@requirement("A reassignment ends with the AlterIsr of its last new replica")
@requirement("A reassignment completes only when all targets are in sync")
@requirement("A crash at the end of a reassignment leaves it whole or undone")
def test_one_target_in_the_isr_is_not_enough(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    effects = joins(c, isr(b1=11, b2=12, b4=14))
    assert writes(effects) == [] and stored(c).moves == {0: move((1, 2), (3, 4))}


def test_the_leader_stays_where_it_may(c: Harness) -> None:
    c.move({0: (1, 3)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    effects = c.write()
    # A new epoch all the same: by it broker 2 tells this order from an older one.
    assert c.partition() == (1, 6, {1: 11, 3: 13}, 22)
    assert stops(effects) == {2: [("t", 0, 6, True)]}


def test_an_order_that_changes_ends_at_once_and_the_first_leads(c: Harness) -> None:
    c.move({0: (2, 1)})
    c.run()
    assert c.partition() == (2, 6, {1: 11, 2: 12}, 21)
    assert stored(c) == znodes.TopicAssignment(ID, (row(2, 1), row(2, 1)))


def test_more_and_fewer_replicas(c: Harness) -> None:
    c.move({0: (1, 2, 3), 1: (2,)})
    c.run()
    assert stored(c).moves == {0: move((1, 2), (1, 2, 3))}
    assert c.partition(index=1) == (2, 8, {2: 12}, 31)
    joins(c, isr(b1=11, b2=12, b3=13))
    c.run()
    assert stored(c) == znodes.TopicAssignment(ID, (row(1, 2, 3), row(2)))


@requirement("Writes with acks=all are refused below min.insync.replicas")
def test_what_is_added_raises_no_minimum() -> None:
    """One replica moves: with two of them min.insync.replicas 2 would refuse producers until the copy is complete."""
    harness = Harness()
    harness.elected(stored_topic("t", ((1,),), (state(1, 0, isr(b1=11), 0),)), brokers=(B1, B2))
    harness.move({0: (2,)})
    harness.write()
    partition = harness.machine.state.partition(TopicPartition("t", 0))
    assert partition is not None and (partition.min_isr, partition.factor) == (1, 1)
    assert harness.machine.state.health.under_min_isr == harness.machine.state.health.under_replicated == 0


def test_several_moves_of_a_topic_end_in_one_write(c: Harness) -> None:
    c.move({0: (3, 4), 1: (4, 3)})
    c.write()
    c.proposed(1, want(1, 5, isr(b1=11, b2=12, b3=13, b4=14), 20))
    c.proposed(2, want(2, 7, isr(b1=11, b2=12, b3=13, b4=14), 30, index=1))
    effects = c.write()
    (group,) = writes(effects)
    assert isinstance(group, ReassignmentWrite) and [each.tp.partition for each in group.states] == [0, 1]
    c.write()
    assert stored(c) == znodes.TopicAssignment(ID, (row(3, 4), row(4, 3)))


@requirement("An ISR change completes a reassignment without a poll")
@requirement("A reassignment ends with the AlterIsr of its last new replica")
@requirement("A reassignment is not checked on every produce request")
def test_a_move_ends_when_an_answer_to_alter_isr_has_made_it_complete(c: Harness) -> None:
    """Nothing is polled and no znode watched: the controller has written the ISR itself (OPEN-23)."""
    c.move({0: (3, 1)})
    c.write()
    assert c.step(Tick(1.0)) == []
    effects = joins(c, isr(b1=11, b2=12, b3=13))
    assert [type(each) for each in writes(effects)] == [ReassignmentWrite]


@requirement("A reassignment is not checked on every produce request")
def test_a_tick_finds_a_complete_move_that_no_event_told_of(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.died(2)
    c.run()
    c.move({}, cancelled=[0])
    c.run()
    assert c.step(Tick(1.0)) == [] and stored(c).moves, "broker 1 alone is below the minimum"
    topic = c.machine.state.topics["t"]
    c.machine.state.set_configs(topic, topic.configs, 1)
    effects = c.step(Tick(2.0))
    assert [type(each) for each in writes(effects)] == [ReassignmentWrite]
    c.run()
    assert stored(c).moves == {} and c.partition()[2] == {1: 11}


def test_a_move_that_ends_meanwhile_waits_for_the_topics_znode(c: Harness) -> None:
    c.move({0: (3, 4), 1: (4, 3)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13, b4=14))  # its end is being written
    end = c.in_flight.pop()
    joins(c, isr(b1=11, b2=12, b3=13, b4=14), partition=1)
    assert c.in_flight == []
    c.in_flight.append(end)
    effects = c.write()
    (group,) = writes(effects)
    assert isinstance(group, ReassignmentWrite) and group.topics[0].version == 3
    c.write()
    assert stored(c) == znodes.TopicAssignment(ID, (row(3, 4), row(4, 3)))


# what happens on the way


def test_the_leader_dies_on_the_way_and_a_target_leads(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.died(1)
    c.run()
    assert c.partition()[:3] == (3, 6, {2: 12, 3: 13})
    joins(c, isr(b2=12, b3=13, b4=14))
    c.run()
    assert c.partition()[:3] == (3, 7, {3: 13, 4: 14})


def test_a_target_dies_and_the_move_waits_for_it(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.died(3)
    c.run()
    joins(c, isr(b1=11, b2=12, b4=14))
    assert stored(c).moves and c.in_flight == []
    c.came(broker(3, 93))
    joins(c, isr(b1=11, b2=12, b4=14, b3=93))
    c.run()
    assert c.partition()[2] == {3: 93, 4: 14} and not stored(c).moves


def test_a_suspected_target_leaves_the_isr_and_the_move_waits(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.suspected(3)
    c.run()
    joins(c, isr(b1=11, b2=12, b4=14))
    assert stored(c).moves and c.in_flight == []


def test_without_a_leader_nothing_ends(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.died(1, 2, 3)
    c.run()
    assert c.partition()[0] == -1 and stored(c).moves == {0: move((1, 2), (3, 4))}


def test_a_broker_that_shuts_down_hands_over_to_a_target(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.step(ControlledShutdownRequested(m.ControlledShutdownRequest(broker_id=1, broker_epoch=11), Token(99)))
    c.run()
    assert c.partition()[:3] == (3, 6, {2: 12, 3: 13})


def test_the_only_copy_of_a_partition_that_moves_may_lead_again() -> None:
    """A target that has nothing yet is no other copy to wait for."""
    c = Harness()
    c.elected(stored_topic("t", ((1,),), (state(1, 0, isr(b1=11), 0),)), brokers=(B1, B2))
    c.move({0: (2,)})
    c.write()
    c.died(1)
    c.run()
    c.came(broker(1, 91))
    c.run()
    assert c.partition()[0] == 1
    joins(c, isr(b1=91, b2=12))
    c.died(1)  # while the end is written
    c.run()
    assert c.partition()[:3] == (2, 3, {2: 12})


def test_a_topic_grows_while_its_partitions_move(c: Harness) -> None:
    c.move({0: (3, 4)})
    token, effects = c.grow(m.NewPartitions(name="t", total_count=3))
    assert writes(effects) == []  # it waits for the topic's znode
    effects = c.write()
    assert [type(group) for group in writes(effects)] == [PartitionsWrite]
    joins_later = c.in_flight.copy()
    assert len(joins_later) == 1
    c.run()
    assert [each.error_code for each in c.replies[token].topics] == [ErrorCode.NONE]
    assert stored(c).moves == {0: move((1, 2), (3, 4))} and len(stored(c).partitions) == 3
    joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    c.run()
    assert stored(c).moves == {} and stored(c).partitions[:2] == (row(3, 4), row(2, 1))


def test_a_plan_waits_for_a_growth_and_for_a_plan_before_it(c: Harness) -> None:
    c.grow(m.NewPartitions(name="t", total_count=3))
    first, effects = c.move({0: (3, 4)})
    second, more = c.move({1: (4, 3)})
    assert writes(effects) == writes(more) == []
    c.run()
    assert refusal(c, first) == refusal(c, second) == (ErrorCode.NONE, "")
    assert stored(c).moves == {0: move((1, 2), (3, 4)), 1: move((2, 1), (4, 3))} and len(stored(c).partitions) == 3


@pytest.mark.parametrize("ending", [False, True])
def test_a_topic_is_deleted_while_it_moves(c: Harness, ending: bool) -> None:
    c.move({0: (3, 4)})
    c.write()
    if ending:
        joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    held = c.in_flight.copy()
    c.in_flight.clear()
    c.delete("t")
    effects = c.write()
    assert set(stops(effects)) == {1, 2, 3, 4}
    c.in_flight = held + c.in_flight
    c.run()
    assert c.store.znodes == {} and c.machine.state.moving == {} and c.machine.state.partition_count == 0


def test_a_copy_is_in_sync_before_the_mark_of_its_deletion_is_stored(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    leader, epoch, _, version = c.partition()
    c.proposed(leader, want(leader, epoch, isr(b1=11, b2=12, b3=13, b4=14), version))
    c.delete("t")
    mark = c.in_flight.pop()
    assert writes(c.write()) == [], "the harness finds a move that is forgotten"
    c.in_flight = [mark]
    c.run()
    assert c.store.znodes == {} and c.machine.state.moving == {}


# cancelling and replacing


def test_a_move_is_cancelled(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    token, effects = c.move({}, cancelled=[0])
    back = PartitionsWrite("t", ID, (row(1, 2, 3, 4), row(2, 1)), 2, {0: move((1, 2), (1, 2))})
    assert writes(effects) == [ReassignmentWrite((back,))]
    effects = c.write()
    assert refusal(c, token) == (ErrorCode.NONE, "")
    effects = c.write()
    assert stops(effects) == {3: [("t", 0, 6, True)], 4: [("t", 0, 6, True)]}
    assert c.partition() == (1, 6, {1: 11, 2: 12}, 22)
    assert stored(c) == znodes.TopicAssignment(ID, (row(1, 2), row(2, 1)))


def test_a_cancelled_move_never_falls_below_min_isr(c: Harness) -> None:
    """One of the old replicas is gone and a target has taken its place: it is kept until the old one is back."""
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    c.died(2)
    c.run()
    c.move({}, cancelled=[0])
    c.run()
    assert c.partition()[2] == {1: 11, 3: 13} and stored(c).moves == {0: move((1, 2), (1, 2))}
    (listed,) = listing(c).reassignments
    assert listed.cancelled and listed.adding_replicas == listed.removing_replicas == (3, 4)
    again, _ = c.move({}, cancelled=[0])
    assert refusal(c, again) == (ErrorCode.NONE, "") and c.in_flight == []
    c.came(broker(2, 92))
    c.run()
    joins(c, isr(b1=11, b3=13, b2=92))
    c.run()
    assert c.partition()[2] == {1: 11, 2: 92} and not stored(c).moves


def test_a_cancelled_move_ends_without_a_leader_where_the_isr_stays(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    c.died(1, 2)
    c.run()
    c.move({}, cancelled=[0])
    effects = c.run()
    assert c.partition()[0] == -1 and set(c.partition()[2]) <= {1, 2}
    assert not stored(c).moves and set(stops(effects)) == {3, 4}


def test_another_plan_replaces_one_if_asked(c: Harness) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13))
    refused, effects = c.move({0: (4, 5), 1: (3, 4)})
    assert effects and writes(effects) == []
    message = "t-0 is being moved to [3, 4] already, and the plan says [4, 5]"
    assert refusal(c, refused) == (ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    same, effects = c.move({0: (3, 4)})
    assert refusal(c, same) == (ErrorCode.NONE, "") and writes(effects) == []
    c.move({0: (4, 5)}, replace=True)
    c.write()
    assert stored(c).moves == {0: move((1, 2), (4, 5))} and stored(c).partitions[0] == row(4, 5, 3, 1, 2)
    joins(c, isr(b1=11, b2=12, b3=13, b4=14, b5=15))
    effects = c.write()
    assert set(stops(effects)) == {1, 2, 3}
    assert c.partition()[2] == {4: 14, 5: 15} and not stored(c).moves


def listing(c: Harness, *topics: m.TopicPartitions) -> m.ListPartitionReassignmentsResponse:
    return describe.list_reassignments(c.machine.state, m.ListPartitionReassignmentsRequest(topics=topics))


def test_moves_are_listed(c: Harness) -> None:
    c.move({0: (3, 4), 1: (1, 3)})
    c.write()
    first = m.OngoingReassignment(
        topic="t",
        partition=0,
        replicas=(3, 4, 1, 2),
        adding_replicas=(3, 4),
        removing_replicas=(1, 2),
        target=(3, 4),
        original=(1, 2),
        isr=(1, 2),
        leader=1,
    )
    both = listing(c).reassignments
    assert both[0] == first and [each.partition for each in both] == [0, 1]
    assert listing(c, m.TopicPartitions(topic="t", partitions=(0,))).reassignments == (first,)
    assert listing(c, m.TopicPartitions(topic="u", partitions=(0,))).reassignments == ()


# what refuses a plan: all of it


BAD = {
    "a dead broker": (
        {0: (1, 9)},
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "replicas of t-0 [1, 9] name brokers [9], which",
    ),
    "a broker twice": ({0: (3, 3)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicas of t-0 [3, 3] name a broker twice"),
    "no replicas": ({0: ()}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicas of t-0 are empty"),
    "an unknown partition": ({7: (3, 4)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' has no partition 7"),
    "a negative partition": ({-1: (3, 4)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' has no partition -1"),
    "a negative broker": ({0: (-1, 3)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "which are not alive"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_refused_whole(c: Harness, name: str) -> None:
    rows, code, message = BAD[name]
    before = dict(c.store.znodes)
    token, effects = c.move({1: (3, 4), **rows})
    assert writes(effects) == [] and refusal(c, token)[0] is code and message in refusal(c, token)[1]
    assert c.store.znodes == before and c.machine.state.moving == {}


def test_other_reasons_to_refuse_a_plan(c: Harness) -> None:
    one = m.TopicReassignment(topic="t", partitions=(m.PartitionAssignment(partition=0, replicas=(3, 4)),))
    cancel = m.TopicReassignment(topic="t", cancelled=(0,))
    asked = {
        c.moves()[0]: (ErrorCode.INVALID_REQUEST, "topics name no partition"),
        c.moves(one, one)[0]: (ErrorCode.INVALID_REQUEST, "topics name t-0 more than once"),
        c.moves(one, cancel)[0]: (ErrorCode.INVALID_REQUEST, "topics name t-0 more than once"),
        c.moves(cancel)[0]: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "t-0 is not being moved"),
        c.move({0: (3,)}, topic="u")[0]: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'u' does not exist"),
        c.move({0: (3,)}, topic="a/b")[0]: (ErrorCode.INVALID_TOPIC_EXCEPTION, None),
    }
    for token, (code, message) in asked.items():
        assert refusal(c, token)[0] is code, refusal(c, token)
        assert message is None or refusal(c, token)[1] == message
    assert c.in_flight == []


def test_a_plan_is_only_checked_if_that_is_asked(c: Harness) -> None:
    token, effects = c.move({0: (3, 4)}, validate_only=True)
    assert refusal(c, token) == (ErrorCode.NONE, "") and writes(effects) == []
    assert not c.machine.state.topics["t"].being_written


def test_a_topic_that_is_being_deleted_is_not_moved(c: Harness) -> None:
    c.delete("t")
    token, _ = c.move({0: (3, 4)})
    assert refusal(c, token) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' is being deleted")


def test_a_dead_replica_may_stay_where_it_is(c: Harness) -> None:
    """It moves from 1 to 3 while broker 2 is away; the move ends when 2 is back in sync."""
    c.died(2)
    c.run()
    token, _ = c.move({0: (3, 2)})
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and stored(c).moves == {0: move((1, 2), (3, 2))}


# writes that are lost


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("lost", [False, True])
def test_the_outcome_of_a_plan_is_unknown(c: Harness, lost: bool) -> None:
    token, _ = c.move({0: (3, 4)})
    c.write(unknown=not lost, lost=lost)
    c.examine()
    expected = ErrorCode.REQUEST_TIMED_OUT if lost else ErrorCode.NONE
    assert refusal(c, token)[0] is expected and bool(stored(c).moves) is not lost
    assert not c.machine.state.topics["t"].being_written
    again, _ = c.move({0: (3, 4)})
    c.run()
    assert refusal(c, again) == (ErrorCode.NONE, "") and stored(c).moves


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("lost", [False, True])
def test_the_outcome_of_an_end_is_unknown(c: Harness, lost: bool) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    c.write(unknown=not lost, lost=lost)
    c.run()
    assert c.partition()[:3] == (3, 6, {3: 13, 4: 14}) and not stored(c).moves


def test_a_plan_that_is_too_large_is_refused_whole(c: Harness) -> None:
    token, effects = c.move({0: (3, 4)})
    (group,) = writes(effects)
    c.in_flight.clear()
    c.step(WritesDone(((group, Outcome.REFUSED),)))
    assert refusal(c, token) == (ErrorCode.INVALID_REQUEST, "the plan is too large for one write: make several of it")
    assert stored(c).moves == {} and not c.machine.state.topics["t"].being_written


def test_a_plan_whose_ends_would_have_no_room_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Harness()
    rows, states = [(1, 2)] * 40, [state(1, 5, OLD, 20)] * 40
    c.elected(stored_topic("t", rows, states), brokers=(B1, B2, B3, B4, B5))
    plan = dict.fromkeys(range(40), (3, 4))
    _, effects = c.move(plan)
    (write,) = writes(effects)
    monkeypatch.setattr(
        controller_operations, "MULTI_LIMIT_BYTES", size_bytes(controller_operations.operations(write)) + 2000
    )
    c.in_flight.clear()
    c.step(WritesDone(((write, Outcome.REFUSED),)))
    token, effects = c.move(plan)
    assert writes(effects) == [] and refusal(c, token)[0] is ErrorCode.INVALID_REQUEST
    token, effects = c.move(dict.fromkeys(range(20), (3, 4)))
    assert len(writes(effects)) == 1


def test_ends_that_have_no_room_in_one_write_are_written_by_fewer_and_fewer() -> None:
    c = Harness()
    c.elected(
        stored_topic("t", [(1, 2)] * 4, [state(1, 5, OLD, 20)] * 4),
        brokers=(B1, B2, B3, B4, B5),
    )
    c.move(dict.fromkeys(range(4), (3, 4)))
    c.write()
    members = isr(b1=11, b2=12, b3=13, b4=14)
    proposed = [want(1, 5, members, c.partition(index=index)[3], index=index) for index in range(4)]
    c.proposed(1, *proposed)
    sizes, at = [], 0.0
    c.write()
    while stored(c).moves:
        (end,) = c.in_flight
        sizes.append(len(end.states))
        if sizes in ([4], [4, 2]):
            c.in_flight.clear()
            assert c.step(WritesDone(((end, Outcome.REFUSED),))) == [], "not before the next tick"
            at += 1.0
            c.step(Tick(at))
        else:
            c.write()
    assert sizes == [4, 2, 1, 1, 1, 1]
    assert all(c.partition(index=index)[0] == 3 for index in range(4))


@requirement("A reassignment adds new replicas before it removes old ones")
def test_a_plan_over_a_topic_that_goes_is_refused_whole() -> None:
    c = Harness()
    topics = [stored_topic(name, ((1, 2),), (state(1, 5, OLD, 20),)) for name in ("t", "u")]
    c.elected(*topics, brokers=(B1, B2, B3))
    plans = [
        m.TopicReassignment(topic=name, partitions=(m.PartitionAssignment(partition=0, replicas=(3, 1)),))
        for name in ("t", "u")
    ]
    token, _ = c.moves(*plans)
    plan = c.in_flight.pop()
    c.delete("u")
    c.run()
    c.in_flight = [plan]
    c.run()
    assert refusal(c, token) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'u' is being deleted")
    assert stored(c).moves == {}
    again, _ = c.moves(plans[0])
    c.run()
    assert refusal(c, again) == (ErrorCode.NONE, "")


@pytest.mark.parametrize("path", [znodes.topic_path("t"), znodes.state_path("t", 0)])
def test_foreign_hands_end_the_term(c: Harness, path: str) -> None:
    c.move({0: (3, 4)})
    c.write()
    joins(c, isr(b1=11, b2=12, b3=13, b4=14))
    data, version = c.store.znodes[path]
    c.store.znodes[path] = data, version + 1
    effects = c.write()
    assert effects == [Resign("somebody else has changed /brokers/topics/t or what was to be written with it")]


def test_the_automatic_balance_leaves_moves_alone(c: Harness) -> None:
    """The first of its replicas is a target: nothing is to be elected before the move ends."""
    c.move({0: (3, 4)})
    c.write()
    assert c.machine.state.health.not_preferred == 0
    assert c.step(Tick(100.0)) == []
