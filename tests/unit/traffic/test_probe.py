"""The end-to-end probe: what it calls lost, duplicated and out of order, and what it leaves alone."""

from tidelog.traffic.probe import Arrival, Probe


def begun(open_max: int = 100) -> Probe:
    probe = Probe(open_max)
    probe.reading()
    return probe


def test_a_record_that_comes_is_counted_once_whether_its_acknowledgement_is_before_or_after_it() -> None:
    probe = begun()
    probe.sent(1, 10.0)
    probe.sent(2, 11.0)
    assert probe.acked(1, 0, 50) == 0
    assert probe.read(1, 0) == (Arrival.FIRST, 10.0)
    assert probe.passed(0, 51) == 0
    assert probe.read(2, 0) == (Arrival.FIRST, 11.0)
    assert probe.passed(0, 52) == 0
    assert probe.acked(2, 0, 51) == 0


def test_an_acknowledged_record_is_lost_when_the_reader_has_passed_it_and_not_before() -> None:
    probe = begun()
    for number in (1, 2, 3):
        probe.sent(number, 0.0)
    assert probe.acked(1, 0, 50) == 0
    assert probe.acked(2, 0, 51) == 0
    assert probe.passed(0, 51) == 1
    assert probe.passed(0, 51) == 0, "once"
    assert probe.passed(0, 52) == 1
    assert probe.acked(3, 0, 40) == 1, "acknowledged below where the reader is already"


def test_partitions_are_read_at_a_pace_of_their_own() -> None:
    probe = begun()
    probe.sent(1, 0.0)
    probe.sent(2, 0.0)
    probe.acked(1, 0, 5)
    assert probe.passed(1, 1_000) == 0
    assert probe.read(2, 1) == (Arrival.FIRST, 0.0)
    assert probe.read(1, 0) == (Arrival.FIRST, 0.0), "an earlier number of another partition"


def test_a_record_without_an_acknowledgement_is_never_lost() -> None:
    probe = begun()
    probe.sent(1, 0.0)
    assert probe.passed(0, 1_000) == 0


def test_a_second_copy_is_a_duplicate() -> None:
    probe = begun()
    probe.sent(1, 0.0)
    assert probe.read(1, 0)[0] is Arrival.FIRST
    assert probe.read(1, 0)[0] is Arrival.AGAIN


def test_a_record_behind_a_later_one_of_its_partition_is_out_of_order() -> None:
    probe = begun()
    for number in (1, 2, 3):
        probe.sent(number, float(number))
    assert probe.read(2, 0) == (Arrival.FIRST, 2.0)
    assert probe.read(1, 0) == (Arrival.OUT_OF_ORDER, 1.0)
    assert probe.read(3, 0) == (Arrival.FIRST, 3.0)


def test_what_was_sent_before_the_reader_stood_at_the_end_is_not_judged() -> None:
    probe = Probe()
    probe.sent(1, 0.0)
    assert probe.read(1, 0)[0] is Arrival.NOT_FOLLOWED
    probe.reading()
    probe.sent(2, 0.0)
    assert probe.acked(1, 0, 5) == 0 and probe.passed(0, 6) == 0
    probe.acked(2, 0, 7)
    probe.reading()  # anew, at the end: what lies before it will never be read
    assert probe.passed(0, 100) == 0
    assert probe.read(2, 0)[0] is Arrival.NOT_FOLLOWED


def test_memory_is_bounded_and_what_was_given_up_is_no_duplicate() -> None:
    probe = begun(open_max=2)
    for number in (1, 2, 3):
        probe.sent(number, 0.0)
    assert probe.read(1, 0)[0] is Arrival.NOT_FOLLOWED
    assert probe.read(2, 0)[0] is Arrival.FIRST
    assert probe.acked(1, 0, 5) == 0 and probe.passed(0, 6) == 0
