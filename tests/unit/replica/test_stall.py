"""Stalls of the high watermark, as a scrape takes them from the leader."""

from helpers.replica import ReplicaHarness, leader, members


def longest_s(harness: ReplicaHarness, at: float) -> float:
    assert harness.replica.leading is not None
    return harness.replica.leading.stall.take_longest_s(at)


def commit(harness: ReplicaHarness, end: int, at: float) -> None:
    for follower in (2, 3):
        harness.fetched(follower, end, at=at)


def test_an_idle_partition_has_no_stall() -> None:
    assert longest_s(leader(), at=100.0) == 0


def test_the_longest_stall_since_the_last_call_is_told_once() -> None:
    harness = leader()
    for end, appended_at, committed_at in ((11, 1.0, 1.25), (12, 2.0, 2.5), (13, 3.0, 3.125)):
        harness.appended(end, at=appended_at)
        commit(harness, end, at=committed_at)
    assert longest_s(harness, at=4.0) == 0.5
    assert longest_s(harness, at=6.0) == 0


def test_a_stall_that_goes_on_counts_up_to_now() -> None:
    harness = leader()
    harness.appended(11, at=1.0)
    harness.appended(12, at=3.0)
    assert longest_s(harness, at=4.0) == 3
    assert longest_s(harness, at=6.0) == 5
    commit(harness, 12, at=7.0)
    assert longest_s(harness, at=8.0) == 6
    assert longest_s(harness, at=9.0) == 0


def test_a_high_watermark_that_moves_begins_the_next_stall() -> None:
    harness = leader()
    harness.appended(20, at=1.0)
    commit(harness, 15, at=2.0)
    assert longest_s(harness, at=2.5) == 1
    assert longest_s(harness, at=4.0) == 2


def test_a_sole_member_commits_at_once() -> None:
    harness = leader(members(1), min_isr=1)
    harness.appended(11, at=1.0)
    assert longest_s(harness, at=9.0) == 0


def test_a_new_leader_counts_from_its_election() -> None:
    harness = ReplicaHarness(1, leo=10, hw=7)
    harness.told(2, at=1.0)
    harness.told(1, leader_epoch=6, at=5.0)
    assert longest_s(harness, at=7.0) == 2


def test_a_leader_of_the_next_epoch_goes_on_counting() -> None:
    harness = leader()
    harness.appended(11, at=1.0)
    harness.told(1, leader_epoch=6, partition_epoch=51, at=4.0)
    assert longest_s(harness, at=5.0) == 4
