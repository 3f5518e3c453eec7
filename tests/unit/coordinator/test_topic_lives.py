"""Topics that are deleted and made anew under the same name: no offset of one counts in the other."""

from dataclasses import replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator.model import Committed
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import Consumer, Scene, topic_count, tps

ONE, TWO = b"one", b"two"
T0 = TopicPartition("t", 0)
START = Committed(0, topic_id=TWO)

pytestmark = pytest.mark.parametrize("knows_ids", [True, False])
"""False: consumers are of 0.2.0, which knows no topic ids."""


def scene_with(consumers: int, knows_ids: bool, **values: Any) -> tuple[Scene, list[Consumer]]:
    """A group that has committed 1000 in each of four partitions."""
    scene = Scene(ids={"t": ONE}, **values)
    made = [scene.consumer(name) for name in "abc"[:consumers]]
    for each in made:
        each.knows_ids = knows_ids
        each.register()
    scene.run(5.0, lambda: scene.state() == "Stable")
    for each in made:
        each.positions = dict.fromkeys(each.owned, 1000)
        each.commit(1000)
    assert scene.offsets["g"] == dict.fromkeys(tps("t", 0, 1, 2, 3), Committed(1000, topic_id=ONE))
    return scene, made


def begins_anew(scene: Scene, *consumers: Consumer) -> bool:
    return scene.offsets["g"] == dict.fromkeys(tps("t", 0, 1, 2, 3), START) and all(
        each.positions[tp] == 0 for each in consumers for tp in each.owned
    )


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("members", [0, 2])
def test_a_topic_made_anew_unseen_is_read_from_its_start(knows_ids: bool, members: int) -> None:
    old, consumers = scene_with(2, knows_ids)
    if not members:
        for each in consumers:
            each.leave()
    new = old.failover(ids={"t": TWO})
    assert new.offsets["g"] == dict.fromkeys(tps("t", 0, 1, 2, 3), START)
    for each in consumers[:members]:
        new.move(each)
        each.answer_ping()
    joined = [] if members else new.join("late")
    new.run(20.0)
    assert begins_anew(new, *consumers[:members], *joined) and new.state() == "Stable"
    assert sum(len(each.owned) for each in (*consumers[:members], *joined)) == 4
    again = new.failover()
    assert again.machine.groups["g"].offsets[T0] == START and not again.of(fx.Write)


def test_the_next_coordinator_deletes_offsets_of_gone_topics(knows_ids: bool) -> None:
    old, _ = scene_with(1, knows_ids)
    new = old.failover(topics={"u": 1})
    assert not new.offsets["g"] and not new.machine.groups["g"].offsets
    again = new.failover(topics={"t": 4}, ids={})
    assert not again.machine.groups["g"].offsets


def test_the_next_coordinator_deletes_owners_of_gone_topics(knows_ids: bool) -> None:
    """Simulator, seed 380: a later coordinator took them for the owners in another topic of the name."""
    old, (a, b) = scene_with(2, knows_ids)
    new = old.failover(topics={"u": 1})
    assert not new.owners["g"]
    for each in (a, b):
        new.move(each)
    b.reconnect(topic_count=topic_count("u"))
    new.run(5.0)
    assert b.owned == tps("u", 0) and new.owners["g"].keys() == b.owned
    again = new.failover(topics={"t": 4, "u": 1}, ids={"t": TWO})
    for each in (a, b):
        again.move(each)
    again.run(5.0)
    assert a.owned == tps("t", 0, 1, 2, 3) and b.owned == tps("u", 0), "b has not subscribed to t"
    assert again.state() == "Stable"


def test_a_position_in_an_earlier_topic_is_not_stored(knows_ids: bool) -> None:
    scene, (a, b) = scene_with(2, knows_ids)
    generation = a.generation
    b.answers.discard("stop")
    scene.change_topics(ids={"t": TWO}, t=4)
    b.positions = dict.fromkeys(b.owned, 1005)
    b.answer_ping()
    token = b.commit(1005, generation=generation)
    results = scene.replies[token].results
    wanted = ErrorCode.INCONSISTENT_TOPIC_ID if knows_ids else ErrorCode.ILLEGAL_GENERATION
    assert {each.error_code for each in results} == {wanted}
    scene.run(2.0)
    b.answers.add("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[-1])
    scene.run(5.0)
    assert begins_anew(scene, a, b) and a.generation > generation and scene.state() == "Stable"
    assert [set(each.owned) for each in (a, b)] == [tps("t", 0, 1), tps("t", 2, 3)]
    b.positions[next(iter(sorted(b.owned)))] = 7
    scene.run(10.0)
    assert scene.offsets["g"][TopicPartition("t", 2)] == Committed(7, topic_id=TWO)


@pytest.mark.parametrize("incremental", [True, False])
def test_a_member_that_was_away_begins_the_new_topic_anew(knows_ids: bool, incremental: bool) -> None:
    scene, (a, b) = scene_with(2, knows_ids)
    scene.machine._desk.limits = replace(scene.limits, incremental=incremental)
    b.lose_connection()
    scene.change_topics(ids={"t": TWO}, t=4)
    scene.run(2.0)
    b.reconnect()
    b.answer_ping()
    scene.run(20.0)
    assert begins_anew(scene, a, b) and scene.state() == "Stable"


def test_writes_under_way_bring_no_old_offsets_back(knows_ids: bool) -> None:
    scene, (a,) = scene_with(1, knows_ids)
    scene.holds_writes = True
    a.commit(1001, T0)
    a.commit(1002, T0)
    scene.change_topics(ids={"t": TWO}, t=4)
    while scene.held:
        scene.carry_out()
    scene.holds_writes = False
    scene.run(5.0)
    assert begins_anew(scene, a)


@pytest.mark.parametrize("repaired", [ONE, TWO])
def test_an_unreadable_topic_is_known_by_its_offsets(knows_ids: bool, repaired: bytes) -> None:
    old, (a,) = scene_with(1, knows_ids)
    new = old.failover(topics={"t": 0}, ids={})
    new.move(a)
    new.run(5.0)
    assert new.offsets["g"][T0] == Committed(1000, topic_id=ONE)
    new.change_topics(ids={"t": repaired}, t=4)
    new.run(5.0)
    assert begins_anew(new, a) == (repaired == TWO)
    assert new.offsets["g"][T0].topic_id == repaired


def test_an_offset_without_an_id_counts_in_the_topic_now(knows_ids: bool) -> None:
    old = Scene()
    (a,) = old.join("a")
    a.knows_ids = knows_ids
    a.commit(1000)
    new = old.failover(ids={"t": TWO})
    new.move(a)
    assert new.machine.groups["g"].offsets[T0] == Committed(1000)
    a.commit(1001, T0)
    new.run(5.0)
    assert new.offsets["g"][T0] == Committed(1001, topic_id=TWO)
    new.change_topics(ids={"t": ONE}, t=4)
    new.run(5.0)
    assert set(new.offsets["g"].values()) == {Committed(0, topic_id=ONE)}
