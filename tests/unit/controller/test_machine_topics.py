"""Creation and deletion of topics (F-01, HOLE-10, fault matrix row 18)."""

from dataclasses import replace

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import (
    DeletionMark,
    Outcome,
    PartitionRemoval,
    Send,
    StateWrite,
    TopicRemoval,
    TopicWrite,
)
from tidelog.controller.events import DescribeRequested, Token, WritesDone
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import (
    Harness,
    broker,
    codes,
    isr,
    metadata,
    roles,
    snapshot_of,
    state,
    stops,
    stored_topic,
    want,
    writes,
)

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ALL = isr(b1=11, b2=12, b3=13)


def new(name: str = "t", partitions: int = 2, factor: int = 3, **configs: str) -> m.NewTopic:
    entries = tuple(m.ConfigEntry(key=key.replace("_", "."), value=value) for key, value in configs.items())
    return m.NewTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=entries)


@pytest.fixture
def c() -> Harness:
    harness = Harness()
    harness.elected(brokers=(B1, B2, B3))
    return harness


def paths(c: Harness) -> list[str]:
    return sorted(c.store.znodes)


def test_f01_5_creation_step_by_step(c: Harness) -> None:
    token, effects = c.create(new(min_insync_replicas="3"))
    rows = tuple(tuple(map(BrokerId, row)) for row in [(1, 2, 3), (2, 3, 1)])
    assert writes(effects) == [TopicWrite("t", b"new-t", rows, {"min.insync.replicas": "3"})]
    effects = c.write()
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 0), state(1, 0, ALL, 0, controller_epoch=2)),
        StateWrite(TopicPartition("t", 1), state(2, 0, isr(b2=12, b3=13, b1=11), 0, controller_epoch=2)),
    ]
    assert roles(effects) == {} and token not in c.replies
    effects = c.write()
    told = [("t-0", 1, 0, {1: 11, 2: 12, 3: 13}), ("t-1", 2, 0, {1: 11, 2: 12, 3: 13})]
    assert roles(effects) == {1: told, 2: told, 3: told}
    assert metadata(effects) == {1: told, 2: told, 3: told}
    assert c.replies[token] == m.CreateTopicsResponse(
        topics=(m.CreatedTopic(name="t", topic_id=b"new-t", num_partitions=2, replication_factor=3),)
    )
    requests = [each.request for each in effects if isinstance(each, Send)]
    first = next(each for each in requests if isinstance(each, m.LeaderAndIsrRequest))
    assert [each.is_new for each in first.partition_states] == [True, True]
    config = m.ConfigEntry(key="min.insync.replicas", value="3")
    assert first.topic_states == (m.TopicState(topic="t", topic_id=b"new-t", configs=(config,)),)


@requirement("Replicas of a partition are spread over the racks")
def test_replicas_of_a_new_topic_and_of_new_partitions_are_in_different_racks() -> None:
    c = Harness()
    c.elected(brokers=(replace(B1, rack="a"), replace(B2, rack="a"), replace(B3, rack="b")))
    c.create(new(partitions=3, factor=2))
    c.write()
    c.write()
    assert [each.replicas for each in c.machine.state.topics["t"].partitions] == [(1, 3), (3, 2), (2, 3)]


def test_each_topic_is_refused_alone(c: Harness) -> None:
    c.create(new("there"))
    c.run()
    token, _ = c.create(
        new("good"),
        new("a/b"),
        new("there"),
        new("many", factor=4),
        new("none", partitions=0),
        new("odd", bad="1"),
        replace(
            new("keys"), configs=(m.ConfigEntry(key="flush", value="none"), m.ConfigEntry(key="flush", value="sync"))
        ),
        new("twice"),
        new("twice"),
    )
    c.run()
    assert codes(c, token) == [
        ("good", ErrorCode.NONE),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("many", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("none", ErrorCode.INVALID_PARTITIONS),
        ("odd", ErrorCode.INVALID_CONFIG),
        ("keys", ErrorCode.INVALID_CONFIG),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert sorted(c.machine.state.topics) == ["good", "there"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_neither_created_nor_deleted(c: Harness, name: str) -> None:
    c.create(new("other"))
    c.run()
    for ask in (lambda: c.create(new("t"), new(name)), lambda: c.delete("other", name)):
        token, _ = ask()
        c.run()
        by_name = {each.name: each for each in c.replies[token].topics}
        assert by_name.pop(name).error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert [each.error_code for each in by_name.values()] == [ErrorCode.NONE], "the others are done"
    assert sorted(c.machine.state.topics) == ["t"]


def test_a_topic_that_is_being_created_exists(c: Harness) -> None:
    c.create(new())
    token, effects = c.create(new())
    assert codes(c, token) == [("t", ErrorCode.TOPIC_ALREADY_EXISTS)] and writes(effects) == []
    assert c.replies[token].topics[0].error_message == "topic 't' already exists"


def test_validate_only_creates_nothing(c: Harness) -> None:
    token, effects = c.create(new(), validate_only=True)
    assert codes(c, token) == [("t", ErrorCode.NONE)] and writes(effects) == []
    assert paths(c) == []


def test_f01_2_a_broker_that_died_meanwhile_is_not_in_the_first_isr(c: Harness) -> None:
    c.create(new(partitions=1))
    c.died(1)
    c.run()
    assert c.partition() == (2, 0, {2: 12, 3: 13}, 0)


@requirement("A partition with no live replica has leader -1 and keeps its ISR")
def test_f01_3_a_partition_without_a_live_replica_waits_for_one(c: Harness) -> None:
    token, _ = c.create(new(partitions=1, factor=1))
    c.died(1)
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert c.machine.state.health.leaderless == 1
    c.came(broker(1, 21))
    effects = c.write()
    assert roles(effects) == {1: [("t-0", 1, 0, {1: 21})]}


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_topic_whose_write_was_lost_is_absent(c: Harness) -> None:
    token, _ = c.create(new())
    c.write(lost=True)
    c.examine()
    assert codes(c, token) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    assert paths(c) == [] and c.machine.state.topics == {}
    token, _ = c.create(new())
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_topic_whose_answer_was_lost_is_completed(c: Harness) -> None:
    token, _ = c.create(new())
    c.write(unknown=True)
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


def test_f01_4_a_first_state_is_created_and_never_overwritten(c: Harness) -> None:
    c.create(new(partitions=1))
    c.write()
    other = znodes.StoredState(B3.broker_id, 6, isr(b3=13), 1)
    c.store.znodes[znodes.state_path("t", 0)] = znodes.encode_state(other), 5
    c.run()
    assert c.partition() == (3, 6, {3: 13}, 5)


@requirement("A takeover replaces dead leaders and completes new partitions")
@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_new_controller_completes_a_topic_without_states() -> None:
    c = Harness()
    topic = stored_topic("t", [(1, 2, 3), (2, 3, 1)], [state(1, 0, ALL, 0), None])
    effects = c.elected(topic, brokers=(B1, B2, B3))
    assert writes(effects) == [
        StateWrite(TopicPartition("t", 1), state(2, 0, isr(b2=12, b3=13, b1=11), 0, controller_epoch=2))
    ]
    c.run()
    assert c.machine.state.health.leaderless == 0


def test_a_topic_too_large_for_the_store_is_refused(c: Harness) -> None:
    token, _ = c.create(new())
    c.step(WritesDone(tuple((group, Outcome.REFUSED) for group in c.in_flight)))
    assert codes(c, token) == [("t", ErrorCode.INVALID_REQUEST)]


@requirement("The replica of a deleted topic is stopped and deleted")
@requirement("A topic is deleted in a fixed order of steps")
def test_f01_1_deletion_step_by_step(c: Harness) -> None:
    c.create(new(partitions=2, factor=2))
    c.run()
    token, effects = c.delete("t")
    assert writes(effects) == [DeletionMark("t")]
    assert stops(effects) == {}
    effects = c.write()
    # From here on it is gone for everybody, whoever is controller.
    assert stops(effects) == {
        1: [("t", 0, -2, True)],
        2: [("t", 0, -2, True), ("t", 1, -2, True)],
        3: [("t", 1, -2, True)],
    }
    gone = [each.request for each in effects if isinstance(each, Send)]
    assert [each.deleted_topics for each in gone if isinstance(each, m.UpdateMetadataRequest)] == [("t",)] * 3
    assert writes(effects) == [PartitionRemoval(TopicPartition("t", 0)), PartitionRemoval(TopicPartition("t", 1))]
    assert writes(c.write()) == [TopicRemoval("t")]
    assert token not in c.replies
    c.write()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert paths(c) == [] and c.machine.state.topics == {} and c.machine.state.partition_count == 0


def test_what_cannot_be_deleted_is_named(c: Harness) -> None:
    c.create(new("young"))
    token, _ = c.delete("nope", "young", "a/b")
    assert codes(c, token) == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("young", ErrorCode.INVALID_REQUEST),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_two_who_delete_one_topic_both_hear_of_its_end(c: Harness) -> None:
    c.create(new())
    c.run()
    first, _ = c.delete("t")
    second, _ = c.delete("t", "t")
    c.run()
    assert codes(c, first) == [("t", ErrorCode.NONE)]
    assert codes(c, second) == [("t", ErrorCode.NONE)] * 2


def test_a_topic_that_is_being_deleted_is_not_elected_for_nor_created_again(c: Harness) -> None:
    c.create(new(partitions=1))
    c.run()
    c.delete("t")
    c.write()
    effects = c.died(1)
    assert writes(effects) == []
    token, _ = c.create(new())
    assert codes(c, token) == [("t", ErrorCode.TOPIC_ALREADY_EXISTS)]
    c.run()
    token, _ = c.create(new(factor=2))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


def test_a_write_in_flight_ends_before_its_partition_is_removed(c: Harness) -> None:
    c.create(new(partitions=1))
    c.run()
    c.delete("t")
    mark = c.in_flight.pop()
    token, _ = c.proposed(1, want(1, 0, isr(b1=11), 0))
    (shrink,) = c.in_flight
    effects = c.step(WritesDone(((mark, c.store.apply(mark)),)))
    assert writes(effects) == []
    c.in_flight = []
    effects = c.step(WritesDone(((shrink, c.store.apply(shrink)),)))
    assert writes(effects) == [PartitionRemoval(TopicPartition("t", 0))]
    assert roles(effects) == {}
    assert c.isr_answers(token) == [("t", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    c.run()
    assert paths(c) == []


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("answer_lost", [True, False])
def test_every_step_of_a_deletion_may_be_of_unknown_outcome(c: Harness, answer_lost: bool) -> None:
    c.create(new())
    c.run()
    token, _ = c.delete("t")
    for _ in range(3):
        c.write(unknown=answer_lost, lost=not answer_lost)
        c.write()
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert paths(c) == []


@requirement("A controller killed in mid-change leaves it complete or absent")
def test_a_new_controller_finishes_a_deletion() -> None:
    c = Harness()
    topic = stored_topic("t", [(1, 2, 3), (2, 3, 1)], [None, state(2, 0, ALL, 0)])
    effects = c.elected(topic, brokers=(B1, B2, B3), deletions=("t", "never-was"))
    # A full LeaderAndIsr that does not list it is how brokers learn that it is gone.
    assert roles(effects) == {1: [], 2: [], 3: []}
    assert stops(effects) == {}
    assert writes(effects) == [
        PartitionRemoval(TopicPartition("t", 1)),
        TopicRemoval("never-was", has_topic_node=False, has_config_node=False),
    ]
    c.run()
    assert paths(c) == [] and c.machine.state.topics == {}


@requirement("A topic id separates topics that share a name")
def test_a_broker_that_was_away_learns_by_what_is_not_listed(c: Harness) -> None:
    c.create(new("t"), new("u", partitions=1))
    c.run()
    c.died(3)
    c.run()
    c.delete("t")
    c.run()
    effects = c.came(broker(3, 23))
    assert [name for name, *_ in roles(effects)[3]] == ["u-0"]


def test_foreign_znodes_in_the_way_are_reported_and_the_deletion_can_be_repeated(c: Harness) -> None:
    c.create(new(partitions=1))
    c.run()
    token, _ = c.delete("t")
    c.write()
    groups, c.in_flight = c.in_flight, []
    c.step(WritesDone(tuple((group, Outcome.REFUSED) for group in groups)))
    assert codes(c, token) == [("t", ErrorCode.UNKNOWN_SERVER_ERROR)]
    token, _ = c.delete("t")
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]


def test_describe_tells_topics_and_cluster(c: Harness) -> None:
    c.create(new("b", partitions=1, min_insync_replicas="3"), new("a", partitions=1, factor=1))
    c.run()
    c.died(3)
    c.run()
    c.step(DescribeRequested(m.DescribeTopicsRequest(), Token(50)))
    names = [each.name for each in c.replies[50].topics]
    assert names == ["a", "b"]
    assert c.replies[50].topics[1].partitions == (
        m.PartitionDescription(
            partition=0, leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1, min_isr=3
        ),
    )
    # The cluster's default, capped by the replication factor (HOLE-23).
    assert [p.min_isr for p in c.replies[50].topics[0].partitions] == [1]
    c.step(DescribeRequested(m.DescribeTopicsRequest(names=("nope", "a")), Token(51)))
    assert [each.error_code for each in c.replies[51].topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    c.suspected(2)
    c.step(DescribeRequested(m.DescribeClusterRequest(), Token(52)))
    answer = c.replies[52]
    assert [(each.broker.broker_id, each.state, each.leaders, each.replicas) for each in answer.brokers] == [
        (1, "alive", 2, 2),
        (2, "suspected", 0, 1),
    ]
    assert (answer.cluster_id, answer.controller_id, answer.controller_epoch) == ("c", 100, 2)
    assert (answer.topics, answer.partitions) == (2, 2)
    health = answer.leaderless_partitions, answer.under_replicated_partitions, answer.under_min_isr_partitions
    assert health == (0, 1, 1)


CONFIG = znodes.topic_config_path("t")


@pytest.mark.parametrize("by_hand", ["deleted", "deleted and created"])
def test_settings_that_go_or_come_by_hand_keep_no_topic(c: Harness, by_hand: str) -> None:
    c.create(new())
    c.run()
    del c.store.znodes[CONFIG]
    if by_hand == "deleted and created":
        successor = Harness()
        successor.store = c.store
        successor.takes_over(snapshot_of(c.store, (B1, B2, B3)), 3)
        c, c.store.znodes[CONFIG] = successor, (b"junk", 0)
    token, _ = c.delete("t")
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)] and "t" not in c.machine.state.topics
    assert [path for path in paths(c) if path != CONFIG] == []
    token, _ = c.create(new(min_insync_replicas="3"))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)], "the name can be used again"


def test_settings_without_a_topic_are_in_no_topics_way(c: Harness) -> None:
    c.store.znodes[CONFIG] = b"junk", 7
    token, _ = c.create(new(min_insync_replicas="3"))
    c.run()
    assert codes(c, token) == [("t", ErrorCode.NONE)]
    assert znodes.decode_topic_config("t", c.store.znodes[CONFIG][0]) == {"min.insync.replicas": "3"}


def test_a_topic_that_another_hand_has_created_stays_as_it_is(c: Harness) -> None:
    stranger = stored_topic("t", ((1, 2),), (None,), {})
    c.store.put_topic(stranger)
    before = dict(c.store.znodes)
    token, _ = c.create(new())
    c.run()
    assert codes(c, token) == [("t", ErrorCode.TOPIC_ALREADY_EXISTS)] and c.store.znodes == before
