"""Partitions that appear after a group began are read from their first record, also with the reset policy `largest`."""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.coordinator.model import Committed
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import Consumer, Scene, pattern, tps

LATEST: dict[str, Any] = {"auto_offset_reset": "largest"}


def starts(consumer: Consumer) -> dict[TopicPartition, int]:
    """Offsets of its last Start; -1: the reset policy decides."""
    start: m.StartFetcherRequest = consumer.bodies(m.StartFetcherRequest)[-1]
    return {TopicPartition(p.topic, p.partition): p.offset for o in start.ownership_info for p in o.assigned_parts}


@pytest.mark.parametrize("coordinated", [True, False], ids=["seen", "unseen"])
def test_an_added_partition_is_read_from_its_start(coordinated: bool) -> None:
    scene = Scene()
    (a,) = scene.join("a", **LATEST)
    assert starts(a) == dict.fromkeys(tps("t", 0, 1, 2, 3), -1)
    if coordinated:
        scene.change_topics(t=6)
    else:
        scene = scene.failover(topics={"t": 6})
        scene.move(a)
    scene.run(5.0, lambda: len(a.owned) == 6)
    assert starts(a) == dict.fromkeys(tps("t", 0, 1, 2, 3), -1) | dict.fromkeys(tps("t", 4, 5), 0)


@pytest.mark.parametrize("coordinated", [True, False], ids=["seen", "unseen"])
@pytest.mark.parametrize("by_pattern", [True, False], ids=["pattern", "names"])
def test_a_topic_that_is_created_later_is_read_from_its_start(coordinated: bool, by_pattern: bool) -> None:
    scene = Scene(topics={"t": 1, "old": 1})
    wanted: dict[str, Any] = {"topic_count": pattern("[tn].*")} if by_pattern else {}
    a = scene.consumer("a", "t", "new", **LATEST | wanted).register()
    scene.run(5.0)
    if coordinated:
        scene.change_topics(new=2)
    else:
        scene = scene.failover(topics={"t": 1, "old": 1, "new": 2})
        scene.move(a)
    scene.run(5.0, lambda: len(a.owned) == 3)
    assert starts(a) == {TopicPartition("t", 0): -1} | dict.fromkeys(tps("new", 0, 1), 0)


def test_a_group_that_begins_without_topics() -> None:
    scene = Scene(topics={})
    a = scene.consumer("a", **LATEST).register()
    scene.run(5.0)
    scene.change_topics(t=2)
    scene.run(5.0, lambda: len(a.owned) == 2)
    assert starts(a) == dict.fromkeys(tps("t", 0, 1), 0)


def test_a_later_owner_begins_at_the_start_too() -> None:
    scene = Scene()
    (a,) = scene.join("a", **LATEST)
    scene.change_topics(t=5)
    scene.run(5.0, lambda: len(a.owned) == 5)
    a.lose_connection()
    (b,) = scene.join("b", **LATEST)
    scene.run(20.0, lambda: len(b.owned) == 5)
    assert starts(b)[TopicPartition("t", 4)] == 0 and starts(b)[TopicPartition("t", 0)] == -1


def test_an_old_topic_that_is_subscribed_later() -> None:
    scene = Scene(topics={"t": 1, "old": 1})
    (a,) = scene.join("a", **LATEST)
    b = scene.consumer("b", "old", **LATEST).register()
    scene.run(5.0, lambda: bool(b.owned))
    assert starts(b) == {TopicPartition("old", 0): -1} and a.owned == tps("t", 0)


def test_other_policies_are_left_to_the_member() -> None:
    scene = Scene()
    (a,) = scene.join("a", auto_offset_reset="smallest")
    (b,) = scene.join("b", auto_offset_reset="")
    scene.change_topics(t=6)
    scene.run(5.0, lambda: len(a.owned | b.owned) == 6)
    assert set((starts(a) | starts(b)).values()) == {-1}


def test_a_committed_offset_of_a_new_partition_is_kept() -> None:
    scene = Scene()
    (a,) = scene.join("a", **LATEST)
    a.leave()
    scene.change_topics(t=5)
    new = TopicPartition("t", 4)
    without_a_member = {"consumer_id": "", "incarnation": 0, "coordinator_epoch": -1, "generation": -1}
    a.commit(77, new, **without_a_member)
    (b,) = scene.join("b", **LATEST)
    assert starts(b)[new] == 77 and scene.offsets["g"][new] == Committed(77)


def test_a_topic_that_goes_in_the_attempt_leaves_no_offset() -> None:
    scene = Scene()
    (a, b) = scene.join("a", "b", **LATEST)
    for each in (a, b):
        each.answers.discard("stop")
    scene.change_topics(t=6)
    scene.run(1.0, lambda: bool(a.bodies(m.StopFetcherRequest) or b.bodies(m.StopFetcherRequest)))
    scene.change_topics(t=0)
    for each in (a, b):
        for stop in each.bodies(m.StopFetcherRequest):
            each.answer_stop(stop)
    scene.run(20.0)
    assert not any(scene.offsets["g"].values())


def test_the_head_of_0_2_counts_from_the_next_coordinator_on() -> None:
    scene = Scene()
    (a,) = scene.join("a", topic_count=pattern(".*"), **LATEST)
    (stored,) = scene.stored_groups()
    old = replace(stored, head=replace(stored.head, began=None))
    after = scene.failover(stored=(old,), topics={"t": 4, "before": 1})
    after.move(a)
    after.run(5.0, lambda: len(a.owned) == 5)
    assert starts(a)[TopicPartition("before", 0)] == -1
    after.change_topics(later=1)
    after.run(5.0, lambda: len(a.owned) == 6)
    assert starts(a)[TopicPartition("later", 0)] == 0
