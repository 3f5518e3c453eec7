"""Events of what a controller chooses and writes: what they say, and how little thousands of them cost."""

from typing import get_args

import pytest

from helpers.cpu import calls_of
from tidelog.controller.effects import Outcome, ReassignmentWrite, StateWrite, TopicWrite, Write, WriteGroup
from tidelog.controller.record import PURPOSES, record_choices, store_written
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.recorder import CAUSE
from tidelog.testing.clock import ManualClock
from tidelog.watch.ring import Ring
from tidelog.wire import messages as m
from unit.controller.harness import Harness, broker, isr, state, stored_topic

MANY = 1_000
ROW = (BrokerId(1), BrokerId(2), BrokerId(3))


def with_partitions(count: int) -> Harness:
    before = [state(1, 4, isr(b1=11, b2=12, b3=13), 7) for _ in range(count)]
    c = Harness()
    c.elected(stored_topic("t", [(1, 2, 3)] * count, before), brokers=(broker(1, 11), broker(2, 12), broker(3, 13)))
    return c


def elections(count: int) -> Write:
    after = state(2, 5, isr(b2=12, b3=13), 8)
    return Write(tuple(StateWrite(TopicPartition("t", n), after) for n in range(count)), "suspected", count)


def recorded(write: Write, count: int) -> Ring:
    ring = Ring("controller-1", 1, ManualClock())
    record_choices(ring, write, with_partitions(count).machine.state)
    return ring


def test_each_choice_is_an_event() -> None:
    events = recorded(elections(3), 3).events()
    assert [event.subject for event in events] == [TopicPartition("t", n) for n in range(3)]
    assert events[0].fields == m.LeaderChosen(
        leader_before=1, leader=2, leader_epoch=5, isr_before=(1, 2, 3), isr=(2, 3), why="suspected"
    )


async def test_only_an_isr_with_other_members_is_an_event() -> None:
    same = StateWrite(TopicPartition("t", 0), state(1, 4, isr(b1=11, b2=12, b3=99), 8))
    other = StateWrite(TopicPartition("t", 1), state(1, 4, isr(b1=11, b2=12), 8))
    ring = recorded(Write((same, ReassignmentWrite((), (other,))), "isr"), 2)
    (event,) = ring.events()
    assert event.fields == m.IsrChosen(isr_before=(1, 2, 3), isr=(1, 2), why="isr")
    assert CAUSE.get() == ("controller-1", 1, 1), "a single choice leads to what follows"


def test_a_choice_that_is_not_read_costs_few_calls() -> None:
    ring, write, known = Ring("controller-1", 1, ManualClock()), elections(MANY), with_partitions(MANY).machine.state
    assert calls_of(lambda: record_choices(ring, write, known)) < 3 * MANY


@pytest.mark.parametrize("kind", get_args(WriteGroup), ids=lambda kind: kind.__name__)
def test_each_kind_of_write_has_a_purpose(kind: type) -> None:
    assert PURPOSES[kind]


def test_a_multi_says_what_it_is_for() -> None:
    written = store_written([TopicWrite("u", b"\x01" * 16, (ROW,), {}), *elections(2).groups], Outcome.CONFLICT)
    assert (written.purpose, written.result, written.more) == ("topic created, leader and ISR", "conflict", 0)
    assert [(each.path, each.version_before, each.version) for each in written.changes][-1] == (
        "/brokers/topics/t/partitions/1/state",
        7,
        8,
    )
