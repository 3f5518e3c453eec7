"""The longest time without an acknowledgement, by partition, as a scrape takes it."""

from tidelog.traffic.ack_gaps import AckGaps


def acked(*instants: float, partition: int = 0) -> AckGaps:
    gaps = AckGaps()
    for at in instants:
        gaps.acked(partition, at)
    return gaps


def test_a_partition_without_an_acknowledgement_is_unknown() -> None:
    assert AckGaps().take_longest_s(9.0) == {}


def test_the_longest_gap_since_the_last_call_is_told_once() -> None:
    gaps = acked(1.0, 1.25, 2.0, 2.5)
    assert gaps.take_longest_s(2.5) == {0: 0.75}
    assert gaps.take_longest_s(2.75) == {0: 0.25}


def test_an_open_gap_counts_up_to_now_and_once_more_when_it_ends() -> None:
    gaps = acked(1.0)
    assert gaps.take_longest_s(4.0) == {0: 3.0}
    assert gaps.take_longest_s(6.0) == {0: 5.0}
    gaps.acked(0, 7.0)
    assert gaps.take_longest_s(8.0) == {0: 6.0}
    assert gaps.take_longest_s(8.5) == {0: 1.5}


def test_each_partition_has_its_own() -> None:
    gaps = acked(1.0)
    gaps.acked(1, 3.0)
    gaps.acked(1, 3.5)
    assert gaps.take_longest_s(3.5) == {0: 2.5, 1: 0.5}
