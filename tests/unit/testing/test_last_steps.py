"""A failed run shows what the protocol did before."""

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


def test_a_failure_of_no_partition_is_described_with_all_steps() -> None:
    error = Violation("no topic was created within 60 s")
    add_last_steps(error, [filled()])
    assert sum("events-0" in step for step in describe(error).splitlines()) == SHOWN // 2
    add_last_steps(bare := Violation("at once"), [])
    assert describe(bare) == "Violation: at once" and first_error(bare) is bare
