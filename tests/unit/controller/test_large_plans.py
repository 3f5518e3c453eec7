"""Plans for brokers that came or that go, in a cluster of 2,000 topics: written in parts, over deletions, moves and failovers."""

from collections import Counter
from collections.abc import Callable

import pytest

from tidelog.controller.effects import ReassignmentWrite
from tidelog.controller.operations import operations
from tidelog.controller.placement import spread
from tidelog.controller.planner import rebalance
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.meta import MULTI_LIMIT_BYTES, size_bytes
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, MemoryStore, broker, isr, refusal, snapshot_of, state, stored_topic

TOPICS = 2_000
PARTITIONS = 3
BROKERS = tuple(broker(number, 10 + number) for number in range(1, 5))
OLD = isr(b1=11, b2=12, b3=13)
NAMES = [f"a-topic-with-a-name-of-some-length-{number:04d}" for number in range(TOPICS)]


def large_cluster(placed_on: int = 3) -> Harness:
    """Its replicas are on the first so many brokers."""
    live = {each.broker_id: "" for each in BROKERS[:placed_on]}
    members = isr(**{f"b{each.broker_id}": each.epoch for each in BROKERS})
    topics = []
    for number, name in enumerate(NAMES):
        rows = spread(live, PARTITIONS, 3, start=number % placed_on, shift=number // placed_on % (placed_on - 1))
        states = [state(row[0], 5, tuple(x for x in members if x.broker_id in row), 20) for row in rows]
        topics.append(stored_topic(name, rows, states))
    harness = Harness()
    harness.elected(*topics, brokers=BROKERS)
    return harness


def targets(store: MemoryStore) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    found = {}
    for name in NAMES:
        if (node := store.znodes.get(znodes.topic_path(name))) is not None:
            topic = znodes.decode_topic(name, node[0])
            for index, row in enumerate(topic.partitions):
                found[TopicPartition(name, index)] = topic.moves[index].target if index in topic.moves else row
    return found


def held(store: MemoryStore) -> Counter[int]:
    return Counter(int(each) for row in targets(store).values() for each in row)


def placement(store: MemoryStore) -> znodes.StoredPlacement:
    return znodes.decode_placement(store.znodes[znodes.PLACEMENT][0])


def write_parts(c: Harness, count: int) -> None:
    """Each of them has room in a multi."""
    for _ in range(count):
        (group,) = c.in_flight
        assert isinstance(group, ReassignmentWrite)
        assert size_bytes(operations(group)) < MULTI_LIMIT_BYTES / 2
        c.write()


def successor_of(c: Harness) -> Harness:
    successor = Harness()
    successor.store = c.store
    successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    return successor


def test_a_new_broker_gets_its_share_of_2000_topics() -> None:
    c = large_cluster()
    token, _ = c.add_brokers(4)
    c.plan()
    write_parts(c, 1)
    assert placement(c.store).planning and token not in c.replies
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and not placement(c.store).planning
    assert held(c.store) == dict.fromkeys((1, 2, 3, 4), 4_500)
    answer = c.replies[token]
    moved = {TopicPartition(t.topic, p.partition): p.replicas for t in answer.topics for p in t.partitions}
    assert len(moved) == 4_500 and moved.items() <= targets(c.store).items()


def test_a_drain_of_2000_topics_outlives_its_controller() -> None:
    c = large_cluster(placed_on=4)
    rows = targets(c.store)
    least = rebalance(rows, {each.broker_id: "" for each in BROKERS[:3]}, leaving={BrokerId(4)})
    c.drain(4)
    c.plan()
    write_parts(c, 3)
    assert placement(c.store) == znodes.StoredPlacement((BrokerId(4),), planning=True)
    before = c.machine.state.moving.keys()
    successor = successor_of(c)
    assert successor.machine.state.draining == {4} and successor.machine.state.moving.keys() == before
    successor.plan()
    write_parts(successor, 2)
    last = successor_of(successor)
    last.plan()
    last.run()
    assert held(c.store) == dict.fromkeys((1, 2, 3), 6_000)
    assert placement(c.store) == znodes.StoredPlacement((BrokerId(4),))
    assert len(last.machine.state.moving) == len(least), "no partition moves that a single plan would leave alone"
    assert c.plans == successor.plans == last.plans == []
    assert successor_of(last).plans == []


def delete(c: Harness) -> None:
    c.delete(NAMES[-1])


def create(c: Harness) -> None:
    c.create(m.NewTopic(name="u", num_partitions=2, replication_factor=3))


def grow(c: Harness) -> None:
    c.grow(m.NewPartitions(name=NAMES[-1], total_count=4))


@pytest.mark.parametrize("when", ["planned", "written"])
@pytest.mark.parametrize("change", [delete, create, grow])
def test_a_plan_outlives_what_does_not_concern_it(change: Callable[[Harness], None], when: str) -> None:
    """A cluster in which topics come and go is never planned anew from the start."""
    c = large_cluster(placed_on=4)
    token, _ = c.drain(4)
    if when == "planned":
        change(c)
    c.plan()
    if when == "written":
        write_parts(c, 2)
        change(c)
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and c.plans == []
    assert held(c.store)[4] == 0 and not placement(c.store).planning


def test_what_moves_meanwhile_is_planned_once_more() -> None:
    c = large_cluster(placed_on=4)
    token, _ = c.drain(4)
    rows = c.plans[0].current
    last = max(tp for tp, row in rows.items() if 4 in row)
    c.plan()
    write_parts(c, 2)
    c.move({last.partition: rows[last][::-1]}, topic=last.topic)
    c.run()
    assert token not in c.replies and len(c.plans) == 1 and placement(c.store).planning
    c.plan()
    c.run()
    assert refusal(c, token) == (ErrorCode.NONE, "") and c.plans == []
    assert held(c.store)[4] == 0 and not placement(c.store).planning


def test_a_topic_of_too_many_moves_keeps_no_other_waiting() -> None:
    lives = [broker(2_000_000_000 + number, 10 + number) for number in range(4)]
    ids = [int(each.broker_id) for each in lives]
    rows = [tuple(ids[:3])] * 4_000
    c = Harness()
    members = tuple(m.IsrMember(broker_id=each.broker_id, broker_epoch=each.epoch) for each in lives[:3])
    stored = [
        stored_topic(name, rows[:size], [state(ids[0], 5, members, 20)] * size)
        for name, size in (("a", 4_000), ("z", 9))
    ]
    c.elected(*stored, brokers=lives)
    token, _ = c.drain(ids[0])
    c.plan()
    c.run()
    message = "topic 'a' has as many moves under way as its znode holds: repeat this when they have ended"
    assert refusal(c, token) == (ErrorCode.INVALID_REQUEST, message)
    moving = Counter(tp.topic for tp in c.machine.state.moving)
    assert moving["z"] == 9 and 2_000 < moving["a"] < 4_000 and not placement(c.store).planning
