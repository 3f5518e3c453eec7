"""Each invariant of groups: what keeps it is accepted, and what breaks it is found."""

import pytest

from helpers.requirements import requirement
from tidelog.ids import TopicPartition
from tidelog.testing.group_invariants import GroupChecker, Seat
from tidelog.testing.invariants import Violation

TP = TopicPartition("t", 0)
A, B = Seat("g", "a"), Seat("g", "b")


@pytest.fixture
def checker() -> GroupChecker:
    """A owns the partition, has processed offsets 0 to 4, and has committed 3."""
    found = GroupChecker()
    found.owner_stored("g", TP, "a")
    found.given(A, TP, -1, (1, 1))
    for offset in range(5):
        found.handed_out(A, TP, offset)
        found.processed(A, TP, offset, asked=True)
    found.offset_stored("g", TP, 3)
    return found


def moved(checker: GroupChecker) -> GroupChecker:
    checker.owner_stored("g", TP, "b")
    checker.given(B, TP, 3, (1, 2))
    checker.handed_out(B, TP, 3)
    return checker


def test_x5_the_next_owner_begins_at_what_is_committed(checker: GroupChecker) -> None:
    moved(checker).processed(B, TP, 3, asked=True)
    assert checker.again == {"g": 1} and checker.stage("g", TP) == ("b", 3, 5)
    assert checker.processed_of("g") == {TP: 5} and checker.processed_of("other") == {}
    checker.owner_stored("g", TP, "a")
    checker.given(A, TP, 3, (1, 3))
    checker.handed_out(A, TP, 3)


@requirement("Committed offsets never move back and leave no gap")
@pytest.mark.parametrize("offset", [-1, 2, 6])
def test_no_gap_between_the_stored_offset_and_the_start_of_the_next_owner(checker: GroupChecker, offset: int) -> None:
    with pytest.raises(Violation, match="N12"):
        checker.given(B, TP, offset, (1, 2))


@requirement("At most one consumer of a group delivers a partition")
def test_two_consumers_hand_out_records_of_one_partition(checker: GroupChecker) -> None:
    moved(checker)
    with pytest.raises(Violation, match="N11"):
        checker.handed_out(A, TP, 5)


@requirement("At most one consumer of a group delivers a partition")
def test_who_asks_processes_nothing_once_another_has_begun(checker: GroupChecker) -> None:
    moved(checker)
    checker.processed(A, TP, 4, asked=False)
    with pytest.raises(Violation, match="N11"):
        checker.processed(A, TP, 4, asked=True)


@requirement("At most one consumer of a group delivers a partition")
def test_the_stored_owner_alone_is_not_believed(checker: GroupChecker) -> None:
    """The store may say what it wants: who was not given it again since another has acted is no owner."""
    moved(checker).owner_stored("g", TP, "a")
    with pytest.raises(Violation, match="and so does"):
        checker.handed_out(A, TP, 5)


@requirement("At most one consumer of a group delivers a partition")
def test_a_consumer_that_was_given_nothing_hands_out_nothing(checker: GroupChecker) -> None:
    with pytest.raises(Violation, match="not given"):
        checker.handed_out(B, TP, 3)


def test_i16_two_are_given_a_partition_in_one_generation(checker: GroupChecker) -> None:
    with pytest.raises(Violation, match="I16"):
        checker.given(B, TP, 3, (1, 1))


def test_i16_a_receiver_obeys_nothing_older(checker: GroupChecker) -> None:
    checker.obeyed(A, (1, 4))
    checker.obeyed(A, (2, 1))
    with pytest.raises(Violation, match="I16"):
        checker.obeyed(A, (1, 9))


def test_i16_the_stored_generation_does_not_fall(checker: GroupChecker) -> None:
    checker.generation_stored("g", 2)
    with pytest.raises(Violation, match="I16"):
        checker.generation_stored("g", 1)


@requirement("Committed offsets never move back and leave no gap")
@pytest.mark.parametrize(("offset", "number"), [(2, "N12"), (6, "X5")])
def test_x5_a_committed_offset_neither_falls_nor_runs_ahead(checker: GroupChecker, offset: int, number: str) -> None:
    checker.offset_stored("g", TP, 5)
    with pytest.raises(Violation, match=number):
        checker.offset_stored("g", TP, offset)


def test_x5_no_record_is_skipped(checker: GroupChecker) -> None:
    with pytest.raises(Violation, match="X5"):
        checker.handed_out(A, TP, 6)
    with pytest.raises(Violation, match="X5"):
        checker.processed(A, TP, 6, asked=True)


ANEW = TopicPartition("renewed", 0)


@requirement("Committed offsets never move back and leave no gap")
def test_offsets_of_each_life_of_a_topic_rise(checker: GroupChecker) -> None:
    for topic_id, offset in ((b"1", 4), (b"1", 7), (b"2", 0), (b"2", 3)):
        checker.offset_of_life_stored("g", ANEW, topic_id, offset)
    with pytest.raises(Violation, match="fell from 3 to 2"):
        checker.offset_of_life_stored("g", ANEW, b"2", 2)
    with pytest.raises(Violation, match="after one of"):
        checker.offset_of_life_stored("g", ANEW, b"1", 8)


@pytest.mark.parametrize(("topic_id", "offset"), [(b"1", 4), (b"1", 6), (b"2", 1)])
def test_a_position_goes_through_a_life_in_turn(checker: GroupChecker, topic_id: bytes, offset: int) -> None:
    checker.handed_out_in_life(A, ANEW, b"1", 3)
    checker.handed_out_in_life(A, ANEW, b"1", 4)
    with pytest.raises(Violation, match="is next"):
        checker.handed_out_in_life(A, ANEW, topic_id, offset)
    checker.given_anew(A, ANEW)
    checker.handed_out_in_life(A, ANEW, topic_id, offset)
    checker.handed_out_in_life(A, ANEW, b"3", 0)
