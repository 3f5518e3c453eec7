"""More partitions for a topic (HL2, KIP-195), over every write that may be lost (fault matrix row 18)."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import (
    DeletionMark,
    Outcome,
    PartitionsWrite,
    ReassignmentWrite,
    Resign,
    Send,
    StateWrite,
    TopicRemoval,
)
from tidelog.controller.events import WritesDone
from tidelog.controller.operations import can_be_ended
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, codes, isr, metadata, roles, state, stored_topic, writes

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ID = b"id-of-t"
OLD = ((1, 2), (2, 3))
STATES = (state(1, 0, isr(b1=11, b2=12), 0), state(2, 0, isr(b2=12, b3=13), 0))


def rows(*each: tuple[int, ...]) -> tuple[tuple[BrokerId, ...], ...]:
    return tuple(tuple(map(BrokerId, row)) for row in each)


def more(total: int, *assigned: tuple[int, ...], name: str = "t", first: int = 2) -> m.NewPartitions:
    assignments = tuple(m.PartitionAssignment(partition=first + i, replicas=row) for i, row in enumerate(assigned))
    return m.NewPartitions(name=name, total_count=total, assignments=assignments)


@pytest.fixture
def c() -> Harness:
    """Topic `t` with partitions 0 and 1, two replicas each, on brokers 1 to 3."""
    harness = Harness()
    harness.elected(stored_topic("t", OLD, STATES), brokers=(B1, B2, B3))
    return harness


def assigned(c: Harness) -> tuple[tuple[int, ...], ...]:
    return znodes.decode_topic("t", c.store.znodes[znodes.topic_path("t")][0]).partitions


@requirement("The topic znode holds the replicas of every partition")
def test_hl2_partitions_are_added_step_by_step(c: Harness) -> None:
    token, effects = c.grow(more(4))
    # The wrapped shift goes on: a second full round would begin with partition 3.
    all_rows = rows((1, 2), (2, 3), (3, 1), (1, 3))
    assert writes(effects) == [PartitionsWrite("t", ID, all_rows, 1)]
    effects = c.write()
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 2), state(3, 0, isr(b3=13, b1=11), 0, controller_epoch=2)),
        StateWrite(TopicPartition("t", 3), state(1, 0, isr(b1=11, b3=13), 0, controller_epoch=2)),
    ]
    assert roles(effects) == {} and metadata(effects) == {} and token not in c.replies
    effects = c.write()
    two, three = ("t-2", 3, 0, {3: 13, 1: 11}), ("t-3", 1, 0, {1: 11, 3: 13})
    assert roles(effects) == {1: [two, three], 3: [two, three]}
    assert metadata(effects) == {1: [two, three], 2: [two, three], 3: [two, three]}
    told = [each.request for each in effects if isinstance(each, Send)]
    assert all(s.is_new for r in told if isinstance(r, m.LeaderAndIsrRequest) for s in r.partition_states)
    assert c.replies[token] == m.CreatePartitionsResponse(topics=(m.PartitionsCreated(name="t"),))
    assert assigned(c) == all_rows


def test_a_topic_grows_again_on_its_new_version(c: Harness) -> None:
    c.grow(more(3))
    c.run()
    _, effects = c.grow(more(4))
    assert writes(effects) == [PartitionsWrite("t", ID, rows((1, 2), (2, 3), (3, 1), (1, 3)), 2)]
    token, _ = c.grow(more(5))
    assert codes(c, token) == [("t", ErrorCode.INVALID_REQUEST)]
    c.run()
    assert c.machine.state.partition_count == 4 and c.machine.state.health.leaderless == 0


def test_each_topic_is_refused_alone(c: Harness) -> None:
    c.create(m.NewTopic(name="u", num_partitions=1, replication_factor=1))
    c.run()
    token, _ = c.grow(
        more(2),
        more(3, name="nope"),
        more(3, name="a/b"),
        more(2, name="u"),
        more(9, name="twice"),
        more(9, name="twice"),
    )
    c.run()
    assert codes(c, token) == [
        ("t", ErrorCode.INVALID_PARTITIONS),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("u", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert c.replies[token].topics[1].error_message == "topic 'nope' does not exist"
    assert len(c.machine.state.topics["u"].partitions) == 2
    assert assigned(c) == OLD


def test_by_hand(c: Harness) -> None:
    token, effects = c.grow(more(3, (3, 2)))
    assert writes(effects) == [PartitionsWrite("t", ID, rows((1, 2), (2, 3), (3, 2)), 1)]
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


def test_validate_only_changes_nothing(c: Harness) -> None:
    token, effects = c.grow(more(3), validate_only=True)
    assert codes(c, token) == [("t", ErrorCode.NONE)] and writes(effects) == []
    token, _ = c.grow(more(1), validate_only=True)
    assert codes(c, token) == [("t", ErrorCode.INVALID_PARTITIONS)]


def test_f01_3_a_partition_without_a_live_replica_waits_and_its_asker_does_not(c: Harness) -> None:
    token, _ = c.grow(more(3, (3, 1)))
    c.died(1, 3)
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert c.machine.state.partition(TopicPartition("t", 2)) is not None
    c.came(broker(3, 23))
    c.run()
    assert c.partition("t", 2) == (3, 0, {3: 23}, 0)


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_growth_whose_write_was_lost_changed_nothing(c: Harness) -> None:
    token, _ = c.grow(more(3))
    c.write(lost=True)
    c.examine()
    assert codes(c, token) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    assert assigned(c) == OLD
    token, _ = c.grow(more(3))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_growth_whose_answer_was_lost_is_completed(c: Harness) -> None:
    token, _ = c.grow(more(3))
    c.write(unknown=True)
    assert c.in_flight == []
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert c.partition("t", 2) == (3, 0, {3: 13, 1: 11}, 0)


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("made", [0, 1])
def test_a_new_controller_completes_a_growth(made: int) -> None:
    """The controller before it died behind the assignment, or between the first states."""
    c = Harness()
    states = [*STATES, state(3, 0, isr(b3=13, b1=11), 0) if made else None, None]
    effects = c.elected(stored_topic("t", [*OLD, (3, 1), (1, 3)], states), brokers=(B1, B2, B3))
    first = [each.tp.partition for each in writes(effects) if isinstance(each, StateWrite)]
    assert first == ([3] if made else [2, 3])
    c.run()
    assert c.machine.state.health.leaderless == 0


@requirement("Every controller write checks the controller epoch")
def test_a_deposed_controller_adds_nothing(c: Harness) -> None:
    c.grow(more(3))
    c.store.fenced = True
    assert any(isinstance(each, Resign) for each in c.write())
    assert assigned(c) == OLD


def test_another_hand_on_the_assignment_ends_the_term(c: Harness) -> None:
    """Its books are wrong: the next controller reads everything."""
    c.grow(more(3))
    other = znodes.TopicAssignment(ID, rows((1, 2), (2, 3), (1, 3)))
    c.store.znodes[znodes.topic_path("t")] = znodes.encode_topic(other), 1
    c.write()
    assert [type(each) for each in c.examine()] == [Resign]


def test_a_topic_that_is_being_deleted_does_not_grow(c: Harness) -> None:
    c.delete("t")
    token, effects = c.grow(more(3))
    assert codes(c, token) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] and writes(effects) == []
    c.write()
    token, _ = c.grow(more(3))
    assert "is being deleted" in c.replies[token].topics[0].error_message
    c.run()
    assert c.store.znodes == {}


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("late", ["written", "unknown", "unknown and lost"])
def test_a_deletion_overtakes_a_growth(c: Harness, late: str) -> None:
    """The mark is confirmed first: the new partitions get no state, and every znode goes."""
    token, _ = c.grow(more(3))
    (growth,) = c.in_flight
    outcome = Outcome.UNKNOWN if late.endswith("lost") else c.store.apply(growth)
    c.in_flight = []
    c.delete("t")
    assert c.in_flight == [DeletionMark("t")]
    c.write()
    c.step(WritesDone(((growth, Outcome.UNKNOWN if late != "written" else outcome),)))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert c.store.znodes == {} and c.machine.state.topics == {}


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("lost", [True, False])
def test_a_deletion_meets_partitions_whose_first_state_is_in_flight(c: Harness, lost: bool) -> None:
    token, _ = c.grow(more(4))
    c.write()
    firsts, c.in_flight = c.in_flight, []
    deletion, _ = c.delete("t")
    c.write()
    results = tuple((each, Outcome.UNKNOWN if lost else c.store.apply(each)) for each in firsts)
    c.step(WritesDone(results))
    c.run()
    assert [code for _, code in codes(c, token)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if lost else ErrorCode.NONE]
    assert codes(c, deletion) == [("t", ErrorCode.NONE)]
    assert c.store.znodes == {} and c.machine.state.topics == {}


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_growth_after_delete_and_recreate_is_of_the_earlier_topic(c: Harness) -> None:
    """An answer that comes very late must not make the new topic grow (HOLE-10)."""
    token, _ = c.grow(more(3))
    c.in_flight = []
    c.delete("t")
    c.run()
    c.create(m.NewTopic(name="t", num_partitions=2, replication_factor=2))
    c.run()
    c.step(WritesDone(((PartitionsWrite("t", ID, rows(*OLD, (3, 1)), 1), Outcome.UNKNOWN),)))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert len(c.machine.state.topics["t"].partitions) == 2


def test_what_is_deleted_is_what_was_removed(c: Harness) -> None:
    c.grow(more(3))
    c.run()
    c.delete("t")
    c.write()
    assert writes(c.write()) == [TopicRemoval("t")]


def test_too_many_for_the_store(c: Harness) -> None:
    token, _ = c.grow(more(3))
    groups, c.in_flight = c.in_flight, []
    c.step(WritesDone(tuple((group, Outcome.REFUSED) for group in groups)))
    assert codes(c, token) == [("t", ErrorCode.INVALID_PARTITIONS)]


def test_a_topic_that_moves_grows_no_further_than_it_may() -> None:
    """The end of a move is written together with the whole topic."""
    lives = [broker(2_000_000_000 + number, 10 + number) for number in range(4)]
    ids = [int(each.broker_id) for each in lives]
    members = tuple(m.IsrMember(broker_id=each.broker_id, broker_epoch=each.epoch) for each in lives[:3])
    c = Harness()
    c.elected(stored_topic("t", [ids[:3]] * 4_000, [state(ids[0], 5, members, 20)] * 4_000), brokers=lives)
    moved = 3_000
    c.move({p: [ids[3], *ids[1:3]] for p in range(moved)})
    c.run()
    assert len(c.machine.state.moving) == moved
    for total in range(4_500, 10_000, 500):
        token, _ = c.grow(more(total))
        c.run()
        if codes(c, token)[0][1] is not ErrorCode.NONE:
            break
    refused = c.replies[token].topics[0]
    assert refused.error_code is ErrorCode.INVALID_PARTITIONS
    assert (
        refused.error_message == "topic 't' holds as much as its znode can while it is moved: wait until that has ended"
    )
    topic = c.machine.state.topics["t"]
    write = PartitionsWrite(
        "t", topic.topic_id, tuple(p.replicas for p in topic.partitions), topic.version + 1, topic.moves
    )
    assert can_be_ended(ReassignmentWrite((write,)))
