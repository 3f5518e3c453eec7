"""Events of several processes in one order while they arrive."""

from tidelog.ports.recorder import Cause, ProtocolEvent
from tidelog.watch.order import Told
from tidelog.watch.window import AWAY_S, WAIT_S, Window
from tidelog.wire import messages as m

LOST = m.BrokerLost(broker_id=1)


def told(process: str, number: int, at_ms: int, cause: Cause | None = None, life: int = 1) -> Told:
    return Told(process, life, ProtocolEvent(at_ms * 1_000_000, number, None, LOST, cause))


def names(window: Window, now: float) -> list[str]:
    return [f"{each.told.process}{each.told.event.number}{'?' * each.cause_missing}" for each in window.due(now)]


def test_an_event_waits_for_earlier_ones_of_others() -> None:
    window = Window()
    window.add(told("a", 1, 20), 0.0)
    window.add(told("b", 1, 10), 0.1)
    assert names(window, WAIT_S - 0.01) == []
    assert names(window, WAIT_S) == ["a1"]
    window.add(told("a", 2, 40), 0.2)
    window.add(told("b", 2, 30), 0.21)
    assert names(window, 1.0) == ["b1", "b2", "a2"]
    assert names(window, 9.0) == []


def test_an_effect_waits_for_its_cause() -> None:
    window = Window()
    window.add(told("b", 1, 10, Cause("a", 1, 2)), 0.0)
    window.add(told("c", 1, 11), 0.0)
    window.add(told("c", 2, 12, Cause("b", 1, 1)), 0.0)
    window.add(told("a", 1, 500), 0.19)
    window.add(told("a", 2, 600), 0.19)
    window.add(told("a", 3, 5), 0.19)
    assert names(window, 0.2) == ["c1"]
    assert names(window, 0.4) == ["a1", "a2", "a3", "b1", "c2"]


def test_a_cause_that_has_not_arrived_is_missing() -> None:
    window = Window()
    window.add(told("b", 1, 10, Cause("a", 1, 2)), 0.0)
    window.add(told("b", 2, 11, Cause("a", 1, 1)), 0.0)
    window.looked_at("a", 1, 1)
    assert names(window, 0.2) == ["b1?", "b2"], "what was looked at and not sent was not wanted"


def test_a_cause_of_a_process_that_is_looked_for_is_waited_for() -> None:
    window = Window()
    window.away["a"] = 1.5
    window.add(told("b", 1, 10, Cause("a", 1, 1)), 0.0)
    window.add(told("b", 2, 11), 0.0)
    window.add(told("c", 1, 12), 0.0)
    assert names(window, 0.3) == ["c1"]
    window.add(told("a", 1, 9), 0.4)
    assert names(window, 0.4) == []
    assert names(window, 0.61) == ["a1", "b1", "b2"]
    window.add(told("b", 3, 13, Cause("a", 1, 2)), 1.0)
    assert names(window, 1.0 + AWAY_S) == ["b3?"]


def test_causes_that_go_round_in_a_circle_end() -> None:
    window = Window()
    window.add(told("a", 1, 10, Cause("b", 1, 1)), 0.0)
    window.add(told("b", 1, 11, Cause("a", 1, 1)), 0.0)
    assert sorted(names(window, 1.0)) == ["a1", "b1"]


def test_the_rest_comes_at_once() -> None:
    window = Window()
    window.add(told("a", 1, 10), 0.0)
    assert [each.told.event.number for each in window.rest()] == [1]
