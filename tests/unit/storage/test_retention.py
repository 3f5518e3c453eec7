"""Which segments retention takes, and the clock that it goes by."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.storage.retention import FOREVER, RetentionClock, SegmentFacts, size_start, time_start

LOG = [
    SegmentFacts(10, 100, 1_000),
    SegmentFacts(20, 100, 2_000),
    SegmentFacts(30, 100, 3_000),
    SegmentFacts(35, 50, 3_500),
]
HOUR_MS = 3_600_000.0


def test_size_keeps_at_least_what_was_asked_for_and_the_active_segment() -> None:
    for keep, start in ((FOREVER, 0), (350, 0), (251, 0), (250, 10), (249, 10), (150, 20), (50, 30), (0, 30)):
        assert size_start(LOG, 0, 35, keep) == start, keep
    assert size_start([], 0, 0, 0) == 0


def test_nothing_goes_that_is_not_committed() -> None:
    assert size_start(LOG, 0, 19, 0) == 10
    assert time_start(LOG, 0, 19, 1e9, 0) == 10
    assert time_start(LOG, 0, 34, 1e9, 0) == 30


def test_time_takes_the_oldest_segments_up_to_the_first_young_one() -> None:
    for now, start in ((2_000, 0), (2_001, 10), (3_001, 20), (4_001, 30), (4_501, 35)):
        assert time_start(LOG, 0, 35, now, 1_000) == start, now
    odd = [LOG[0], SegmentFacts(20, 100, 9_000), LOG[2]]
    assert time_start(odd, 0, 30, 5_000, 1_000) == 10, "a record of the future keeps what follows it, as in Kafka"


def test_a_segment_without_timestamps_goes_with_the_next_that_has_some() -> None:
    nameless = SegmentFacts(20, 100, -1)
    assert time_start([LOG[0], nameless, LOG[2]], 0, 30, 3_500, 1_000) == 10
    assert time_start([LOG[0], nameless, LOG[2]], 0, 30, 4_001, 1_000) == 30
    assert time_start([nameless], 0, 30, 1e15, 1_000) == 0


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
