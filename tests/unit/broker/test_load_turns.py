"""A start opens logs in turns of a thread: many in one turn, and none that keeps the event loop waiting for long."""

from functools import partial

from tidelog.broker.app import LOAD_TURN_S, _load_some
from tidelog.testing.clock import ManualClock


def test_a_turn_takes_what_can_be_opened_in_its_time() -> None:
    clock = ManualClock()
    taken: list[float] = []

    def step(seconds: float) -> None:
        taken.append(seconds)
        clock.advance(seconds)

    quick, slow = LOAD_TURN_S / 2.5, LOAD_TURN_S * 20
    steps = iter([partial(step, seconds) for seconds in (*[quick] * 7, slow, quick)])
    turns = []
    while _load_some(steps, clock.now):
        turns.append(len(taken))
    assert turns == [3, 6, 8] and len(taken) == 9
