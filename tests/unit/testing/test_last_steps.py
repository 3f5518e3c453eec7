"""A failed run shows what the protocol did before."""

import pytest

from tidelog.ids import TopicPartition
from tidelog.testing.clock import ManualClock
from tidelog.testing.invariants import Violation
from tidelog.testing.last_steps import SHOWN, add_last_steps, first_error
from tidelog.testing.sim import describe
from tidelog.watch.ring import Ring
from tidelog.wire import messages as m


def filled() -> Ring:
    ring = Ring("broker-1", 1, ManualClock())
    for offset in range(100):
        for partition in range(2):
            tp = TopicPartition("events", partition)
            ring.record(tp, m.LogReset(from_offset=offset + 1, to_offset=offset))
    return ring


def test_a_failure_is_described_with_the_steps_of_its_partition() -> None:
    error = BaseExceptionGroup("two", [ExceptionGroup("one", [Violation("events-1 has lost 17")])])
    add_last_steps(error, [filled()])
    title, *steps = describe(error).splitlines()[1:]
    assert describe(error).startswith("Violation: events-1 has lost 17\n")
    assert title == f"The last {SHOWN} steps of events-1:" and len(steps) == SHOWN
    assert steps[-1].endswith("broker-1  events-1: drops its log, which ended at 100, and begins at 99")
    assert all("events-1" in step for step in steps)


@pytest.mark.parametrize(
    "text",
    [
        "alpha events-0 offset fell from 7 to 3",
        "Seat(group='alpha', consumer='c-1') hands out events-0 4, which it was not given",
        "/consumers/alpha/offsets/events/0 is written by session 0x1, elected is 0x2",
    ],
)
def test_a_failure_is_described_with_the_steps_of_its_group(text: str) -> None:
    ring = filled()
    elected = ring.record(None, m.CoordinatorElected(shard=0, coordinator_epoch=1))
    for group in ("alpha", "beta"):
        begun = m.RebalanceBegun(generation=3, reason="a member has joined", members=1, stopped=0)
        ring.record(group, begun, elected)
        ring.record(TopicPartition("events", 0), m.FetchingStarted(group_id=group, offset=3))
    add_last_steps(error := Violation(text), [ring])
    title, *steps = describe(error).splitlines()[1:]
    assert title == "The last 3 steps of alpha:"
    assert [step.partition("  broker-1  ")[2] for step in steps] == [
        "is elected coordinator of shard 0, epoch 1",
        "begins a rebalance of alpha: generation 3, 1 member (a member has joined)",
        "fetches events-0 for alpha from 3 on",
    ]


def test_a_failure_of_no_partition_is_described_with_all_steps() -> None:
    error = Violation("no topic was created within 60 s")
    add_last_steps(error, [filled()])
    assert sum("events-0" in step for step in describe(error).splitlines()) == SHOWN // 2
    add_last_steps(bare := Violation("at once"), [])
    assert describe(bare) == "Violation: at once" and first_error(bare) is bare
