"""Which segments retention takes."""

from tidelog.storage.retention import FOREVER, SegmentFacts, size_start, time_start

LOG = [
    SegmentFacts(10, 100, 1_000),
    SegmentFacts(20, 100, 2_000),
    SegmentFacts(30, 100, 3_000),
    SegmentFacts(35, 50, 3_500),
]


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
