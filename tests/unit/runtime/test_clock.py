"""The clock that retention goes by."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.runtime.clock import RetentionClock

HOUR_MS = 3_600_000.0


@requirement("A jump of the wall clock changes nothing but timestamps")
def test_a_clock_that_jumps_ahead_deletes_no_hour_of_records() -> None:
    clock = RetentionClock(0.0, 100.0)
    assert clock.read(60_000.0, 160.0) == 60_000
    assert clock.read(60_000.0 + HOUR_MS, 161.0) == 62_000, "twice the second that has passed"
    assert clock.read(62_000.0, 162.0) == 62_000, "set right again"
    assert clock.read(62_000.0 - HOUR_MS, 163.0) == 62_000 - HOUR_MS, "set back: that keeps more"


@requirement("A jump of the wall clock changes nothing but timestamps")
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e12)), max_size=30))
def test_the_clock_of_retention_is_never_ahead_of_the_wall(steps: list[tuple[float, float]]) -> None:
    now, before, clock = 0.0, 0.0, RetentionClock(0.0, 0.0)
    for elapsed_s, wall in steps:
        now += elapsed_s
        told = clock.read(wall, now)
        assert told <= wall and told <= before + elapsed_s * 2_000 + 1
        before = told
