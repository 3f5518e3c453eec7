"""The ring of protocol events of one process: numbers, bounds, folding."""

from helpers.cpu import calls_of
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import CAUSE, Cause, led_on
from tidelog.testing.clock import ManualClock
from tidelog.watch.ring import FOLDED_S, Ring
from tidelog.wire import messages as m

TP = TopicPartition("events", 0)
LOST = m.BrokerLost(broker_id=1)


def ring(kept: int = 100) -> tuple[Ring, ManualClock]:
    clock = ManualClock()
    return Ring("broker-1", 3, clock, kept), clock


def test_events_have_numbers_without_gaps_and_the_oldest_go() -> None:
    events, _ = ring(kept=3)
    assert [events.record(TP, LOST) for _ in range(5)] == [Cause("broker-1", 3, number) for number in range(1, 6)]
    assert [event.number for event in events.events()] == [3, 4, 5]


def test_what_is_handled_is_the_cause_unless_another_is_named() -> None:
    events, _ = ring()
    order, other = Cause("controller-1", 1, 17), Cause("controller-2", 1, 4)
    with led_on(order):
        events.record(TP, LOST)
        events.record(TP, LOST, other)
    events.record(TP, LOST)
    assert [event.cause for event in events.events()] == [order, other, None]
    assert CAUSE.get() is None


def advances(events: Ring) -> list[tuple[int, int, int]]:
    found = [event.fields for event in events.events()]
    return [(f.from_offset, f.to_offset, f.count) for f in found if isinstance(f, m.HighWatermarkAdvanced)]


def test_a_high_watermark_is_told_once_in_100_ms() -> None:
    events, clock = ring()
    for end in range(1, 6):
        events.fold(TP, m.HighWatermarkAdvanced, end - 1, end)
    assert advances(events) == [(0, 1, 1)]
    clock.advance(FOLDED_S)
    events.fold(TP, m.HighWatermarkAdvanced, 5, 9)
    assert advances(events) == [(0, 1, 1), (1, 9, 5)]


def test_the_first_advance_is_told_at_once_at_any_time() -> None:
    clock = ManualClock(0.3)
    for _ in range(100):
        events = Ring("broker-1", 1, clock)
        events.fold(TP, m.HighWatermarkAdvanced, 0, 1)
        assert advances(events) == [(0, 1, 1)]
        clock.advance(0.001)


def test_partitions_are_folded_apart() -> None:
    events, _ = ring()
    for partition in range(3):
        events.fold(TopicPartition("events", partition), m.HighWatermarkAdvanced, 0, 1)
    assert advances(events) == [(0, 1, 1)] * 3


def test_a_batch_costs_few_calls() -> None:
    events, _ = ring()
    events.fold(TP, m.HighWatermarkAdvanced, 0, 1)
    assert calls_of(lambda: events.fold(TP, m.HighWatermarkAdvanced, 1, 2)) <= 5


def test_fields_may_be_made_when_they_are_read() -> None:
    events, _ = ring()
    made: list[int] = []

    def fields() -> m.BrokerLost:
        made.append(1)
        return LOST

    events.record(TP, fields)
    assert not made
    assert [event.fields for event in events.events()] == [LOST] and made


def test_many_events_have_one_cause_and_numbers_without_gaps() -> None:
    events, _ = ring(kept=4)
    cause = Cause("controller-1", 1, 17)
    events.record(None, LOST)
    with led_on(cause):
        events.record_all([(TopicPartition("events", n), LOST) for n in range(4)])
    assert events.record(None, LOST) == Cause("broker-1", 3, 6)
    assert [(event.number, event.cause) for event in events.events()] == [*((n, cause) for n in (3, 4, 5)), (6, None)]
