"""X5: owners, commits, and what a group processed; and the set of offsets it is kept in."""

import random

import pytest

from helpers.histories import Story, found, rows
from tidelog.chaos.checker.intervals import Intervals
from tidelog.chaos.checker.promise import Promise

LOG = tuple("abcdefghij")
AT_MOST_TWO = Promise(uncommitted_max=2)


def group(*, ends: bool = True) -> Story:
    """Ten values in the log; `c` owns the partition."""
    return Story().log(*LOG).owns(0, group="g", term=(1, 1))


def ended(story: Story) -> Story:
    return story.end(rows(*LOG))


def test_x5_a_group_that_processes_and_commits_everything_is_sound() -> None:
    verdict = ended(group().processed(0, 4).committed(5).processed(5, 9).committed(10)).check(AT_MOST_TWO)
    assert found(verdict) == {} and verdict.sound
    assert set(verdict.anomalies) >= {
        *("group-two-owners", "group-commit-fell", "group-commit-ahead"),
        *("group-skipped", "group-unprocessed", "group-duplicates"),
    }


def test_x5_without_a_group_nothing_of_it_is_judged() -> None:
    assert not any(name.startswith("group") for name in ended(Story().log(*LOG)).check().anomalies)


def test_x5_two_owners_in_one_generation() -> None:
    verdict = group().owns(0, group="g", term=(1, 1), process="d").check()
    assert found(verdict) == {"group-two-owners": 1} and not verdict.sound
    assert verdict.anomalies["group-two-owners"].examples[0].text == (
        "group g, chaos-0: d got it, which c has in generation 1 of coordinator epoch 1 at 0.220 s"
    )


@pytest.mark.parametrize(
    "term, partition, name", [((1, 2), 0, "g"), ((2, 1), 0, "g"), ((1, 1), 1, "g"), ((1, 1), 0, "h")]
)
def test_x5_owners_of_other_generations_epochs_partitions_and_groups_are_others(
    term: tuple[int, int], partition: int, name: str
) -> None:
    assert found(group().owns(partition, group=name, term=term, process="d").check()) == {}


def test_x5_an_owner_that_is_told_again_is_one() -> None:
    assert found(group().owns(0, 1, group="g", term=(1, 1)).check()) == {}


@pytest.mark.parametrize(
    "process, term, bad",
    [("c", (1, 1), False), ("d", (1, 2), False), ("c", (1, 2), True), ("c", (1, 3), True), ("c", (2, 1), True)],
)
def test_a_commit_is_that_of_the_owner(process: str, term: tuple[int, int], bad: bool) -> None:
    """Member `d` got the partition in generation 2, which `c` may not know yet."""
    story = group().processed(0, 4).owns(0, group="g", term=(1, 2), process="d")
    verdict = story.committed(5, process=process, term=term).check()
    assert found(verdict) == ({"group-two-owners": 1} if bad else {}) and verdict.sound is not bad
    if term == (1, 3):
        assert verdict.anomalies["group-two-owners"].examples[0].text == (
            "group g, chaos-0: c committed offset 5 in generation 3, in which d has it, at 0.240 s"
        )


def test_a_commit_where_no_member_was_given_anything_is_one() -> None:
    assert found(Story().log(*LOG).processed(0, 4).committed(5).check()) == {}


def test_a_member_has_processed_no_more_than_it_has_read() -> None:
    """Its report of its work reaches from the first record of a poll to the last."""
    story = (
        group().poll((0, "a"), (1, "b"), group="g").poll((2, "c"), (5, "f"), group="g").processed(0, 1).processed(2, 5)
    )
    story.poll(*rows(*LOG)[6:], group="g").processed(6, 9)
    verdict = ended(story).check()
    assert found(verdict) == {"int-poll-skip": 1, "group-skipped": 2} and not verdict.sound
    assert "never processed 'd' (sent by p at 0.070 s), offset 3" in verdict.anomalies["group-skipped"].examples[0].text


def test_a_value_in_doubt_is_processed_too() -> None:
    story = Story().sent("a", 0).sent("b", None, "info").sent("c", 2).owns(0, group="g", term=(1, 1))
    story.processed(0, 0).processed(2, 2)
    assert found(story.end(rows("a", "b", "c")).check()) == {"group-skipped": 1}
    gone = Story().sent("a", 0).sent("b", None, "info").sent("c", 1).owns(0, group="g", term=(1, 1)).processed(0, 1)
    assert found(gone.end(rows("a", "c")).check()) == {}


@pytest.mark.parametrize(
    "stored, text",
    [
        (10, ""),
        (9, "group g, chaos-0: offset 9 is committed, and 9 was processed, at 0.260 s"),
        (5, "group g, chaos-0: offset 5 is committed, and 9 was processed, at 0.260 s"),
        (4, "group g, chaos-0: offset 4 is committed, and 5 was acknowledged, at 0.260 s"),
        (0, "group g, chaos-0: offset 0 is committed, and 5 was acknowledged, at 0.260 s"),
    ],
)
def test_what_was_processed_is_committed_at_last(stored: int, text: str) -> None:
    story = group().processed(0, 4).committed(5).processed(5, 9).committed(10, outcome="info").stored(stored)
    verdict = ended(story).check()
    assert found(verdict) == ({"group-commit-lost": 1} if text else {}) and verdict.sound is not bool(text)
    assert [each.text for each in verdict.anomalies["group-commit-lost"].examples] == ([text] if text else [])


@pytest.mark.parametrize(("first", "again"), [(5, 0), (4, 1)])
def test_an_owner_begins_behind_what_a_coordinator_told(first: int, again: int) -> None:
    """The commits of agents are in no history; their coordinator tells of them."""
    story = group().processed(0, 5).stored(5).owns(0, group="g", term=(1, 2), process="d").processed(first, 9, "d")
    assert found(story.check()).get("group-duplicates", 0) == again


def test_a_group_whose_commits_are_all_refused() -> None:
    story = group().processed(0, 4).committed(5, outcome="fail").processed(5, 9).committed(10, outcome="fail").stored(0)
    assert found(ended(story).check()) == {"group-commit-lost": 1}


def test_x5_a_commit_that_falls_within_a_generation() -> None:
    verdict = group().processed(0, 4).committed(5).committed(4).check()
    assert found(verdict) == {"group-commit-fell": 1} and not verdict.sound
    assert "c committed offset 4 after c had committed 5" in verdict.anomalies["group-commit-fell"].examples[0].text


def test_x5_a_commit_that_falls_from_one_generation_to_the_next() -> None:
    story = group().processed(0, 4).committed(5).owns(0, group="g", term=(1, 2), process="d")
    assert found(story.committed(4, process="d", term=(1, 2)).check()) == {"group-commit-fell": 1}


def test_x5_a_commit_of_an_older_generation_whose_answer_comes_late_is_none_that_fell() -> None:
    story = group().processed(0, 4).owns(0, group="g", term=(1, 2), process="d").processed(5, 6, process="d")
    assert found(story.committed(7, process="d", term=(1, 2)).committed(5, term=(1, 1)).check()) == {}


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_x5_a_commit_that_was_not_acknowledged_does_not_fall(outcome: str) -> None:
    story = group().processed(0, 4).committed(5).committed(4, outcome=outcome)
    assert found(story.check()) == {}


@pytest.mark.parametrize("outcome", ["ok", "fail", "info"])
def test_x5_a_commit_beyond_what_was_processed_whatever_becomes_of_it(outcome: str) -> None:
    verdict = group().processed(0, 4).committed(6, outcome=outcome).processed(5, 9).check()
    assert found(verdict) == {"group-commit-ahead": 1} and not verdict.sound


def test_x5_a_new_owner_may_commit_where_the_group_was() -> None:
    story = group().processed(0, 4).committed(5).owns(0, group="g", term=(1, 2), process="d")
    assert found(story.committed(5, process="d", term=(1, 2)).check()) == {}


def test_x5_a_group_may_begin_at_the_log_start() -> None:
    story = Story().log(*LOG).watermark(10, log_start=4).owns(0, group="g", term=(1, 1)).committed(4).processed(4, 9)
    assert found(story.end(rows(*LOG)[4:]).check(Promise(records_expire=True))) == {}


def test_x5_a_group_passes_over_values() -> None:
    verdict = ended(group().processed(0, 3).processed(6, 9)).check()
    assert found(verdict) == {"group-skipped": 2} and not verdict.sound
    assert "never processed 'e' (sent by p at 0.090 s), offset 4" in verdict.anomalies["group-skipped"].examples[0].text


def test_x5_a_group_that_commits_what_it_does_not_process_passes_over_it() -> None:
    assert found(ended(group().processed(0, 7).committed(10)).check()) == {"group-commit-ahead": 1, "group-skipped": 2}


def test_x5_a_group_that_does_not_come_to_the_end() -> None:
    story = group().processed(0, 7)
    assert found(story.check()) == {}, "it may still come to the rest"
    assert found(ended(story).check()) == {"group-unprocessed": 2}


def test_x5_every_partition_of_its_topics_is_a_groups() -> None:
    story = group().processed(0, 9).log("x", "y", partition=1)
    assert found(story.end(rows(*LOG), rows("x", "y")).check()) == {"group-unprocessed": 2}


def test_x5_what_is_not_in_the_log_need_not_be_processed() -> None:
    story = Story().log("a", "b", "c").owns(0, group="g", term=(1, 1)).processed(0, 1)
    assert found(story.end(rows("a", "b")).check()) == {"unseen": 1, "lost-acked": 1}


def test_x5_a_member_repeats_itself_without_a_rebalance() -> None:
    verdict = ended(group().processed(0, 4).processed(4, 9)).check()
    assert found(verdict) == {"group-duplicates": 1} and not verdict.sound
    assert "c processed offset 4 again, after 4, with no rebalance between" in (
        verdict.anomalies["group-duplicates"].examples[0].text
    )


def test_x5_the_same_assignment_again_is_no_rebalance() -> None:
    story = group().processed(0, 4).owns(0, group="g", term=(1, 2)).processed(4, 9)
    assert found(ended(story).check()) == {"group-duplicates": 1}


def test_x5_a_member_that_lost_the_partition_and_got_it_back_may_repeat() -> None:
    story = group().processed(0, 4).owns(0, group="g", kind="revoked").owns(0, group="g", term=(1, 3)).processed(4, 9)
    assert found(ended(story).check(AT_MOST_TWO)) == {}


@pytest.mark.parametrize("start, bad", [(5, False), (4, False), (3, False), (2, True)])
def test_x5_a_new_owner_repeats_nothing_that_was_committed(start: int, bad: bool) -> None:
    story = group().processed(0, 2).committed(3).processed(3, 4).crash("c").owns(0, group="g", term=(1, 2), process="d")
    verdict = ended(story.processed(start, 6, process="d").processed(7, 9, process="d")).check()
    assert found(verdict) == ({"group-duplicates": 1} if bad else {}) and verdict.sound is not bad
    if bad:
        text = verdict.anomalies["group-duplicates"].examples[0].text
        assert "d processed offset 2 again, although 3 was committed before" in text


@pytest.mark.parametrize("start, bad", [(5, False), (3, False), (2, True)])
def test_x5_a_new_owner_repeats_no_more_than_the_one_before_had_in_hand(start: int, bad: bool) -> None:
    def story() -> Story:
        made = group().processed(0, 4).crash("c").owns(0, group="g", term=(1, 2), process="d")
        return ended(made.processed(start, 6, process="d").processed(7, 9, process="d"))

    assert found(story().check(AT_MOST_TWO)) == ({"group-duplicates": 1} if bad else {})
    assert found(story().check()) == {}, "without a bound nothing is too many"


def test_x5_a_commit_that_was_acknowledged_after_the_assignment_says_nothing_of_where_to_begin() -> None:
    story = group().processed(0, 4).owns(0, group="g", term=(1, 2), process="d").committed(5)
    assert found(ended(story.processed(0, 9, process="d")).check()) == {}


@pytest.mark.parametrize("last, bad", [(6, False), (7, True)])
def test_x5_an_evicted_owner_finishes_no_more_than_it_had_in_hand(last: int, bad: bool) -> None:
    story = group().processed(0, 4).owns(0, group="g", term=(1, 2), process="d").processed(5, 9, process="d")
    assert found(ended(story.processed(5, last)).check(AT_MOST_TWO)) == ({"group-duplicates": 1} if bad else {})


def test_x5_what_an_owner_repeats_at_its_begin_and_at_its_end_is_not_added_up() -> None:
    story = group().processed(0, 3).owns(0, group="g", term=(1, 2), process="d").processed(2, 4, process="d")
    story.owns(0, group="g", term=(1, 3), process="e").processed(5, 9, process="e").processed(5, 6, process="d")
    assert found(ended(story).check(AT_MOST_TWO)) == {}


@pytest.mark.parametrize("seed", range(100))
def test_a_set_of_offsets_is_one(seed: int) -> None:
    rand = random.Random(seed)
    intervals, expected = Intervals(), set[int]()
    for _ in range(rand.randrange(12)):
        start = rand.randrange(30)
        end = start + rand.randrange(1, 8)
        assert intervals.common(start, end) == len(expected & set(range(start, end)))
        intervals.add(start, end)
        expected |= set(range(start, end))
        assert intervals.end == max(expected) + 1
    holes = list(intervals.holes(3, 28))
    assert [offset for start, end in holes for offset in range(start, end)] == sorted(set(range(3, 28)) - expected)
    assert all(start < end for start, end in holes)
