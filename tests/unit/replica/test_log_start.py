"""Where logs begin: followers below the leader's start, or empty beyond its end, begin anew (KIP-107)."""

import pytest

from helpers.replica import follower, leader, life, members
from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.replica import effects as fx
from tidelog.replica import events as ev


def position(offset: int, last_epoch: int, *, log_start: int = 0, own_start: int = 0, found: int = 4) -> ev.Event:
    found_end = 1_000 if found >= 0 else -1
    return ev.FollowerPosition(3, life(3), 5, offset, last_epoch, found, found_end, 1.0, log_start, own_start)


def test_a_position_below_the_start_is_sent_there_and_not_counted() -> None:
    harness = leader(leo=10, hw=10)
    assert harness.step(position(3, 4, log_start=4)) == [fx.SendLogStart(3, 3)]
    assert harness.replica.leading is not None and 3 not in harness.replica.leading.progress
    assert harness.step(position(4, 4, log_start=4))[-1] == fx.SendRecords(3, 4), "the start itself is there"


def test_a_log_that_was_begun_anew_has_no_history_to_compare() -> None:
    harness = leader(leo=10, hw=10)
    assert harness.step(position(7, -1, log_start=4, own_start=7, found=-1))[-1] == fx.SendRecords(3, 7)
    assert harness.step(position(7, -1, own_start=6, found=-1)) == [
        fx.RefusePosition(3, ErrorCode.UNKNOWN_LEADER_EPOCH)
    ], "records without an epoch are nobody's"


@requirement("An unclean election needs the consent of the topic")
def test_an_empty_log_beyond_the_end_of_an_unclean_leader_begins_with_it() -> None:
    harness = leader(leo=10, hw=10)
    assert harness.step(position(11, -1, own_start=11, found=-1)) == [fx.SendLogStart(3, 11)]


@pytest.mark.parametrize(
    ("last_epoch", "found", "found_end", "diverging_end"),
    [(4, 4, 1_000, -1), (4, 4, 2, 2), (4, 3, 1_000, 1_000), (9, -1, -1, 0)],
    ids=["the same", "went on here", "another epoch", "never heard of"],
)
def test_a_position_below_the_start_is_told_if_it_diverges(
    last_epoch: int, found: int, found_end: int, diverging_end: int
) -> None:
    harness = leader(leo=10, hw=10)
    stated = ev.FollowerPosition(3, life(3), 5, 3, last_epoch, found, found_end, 1.0, 4, 0)
    assert harness.step(stated) == [fx.SendLogStart(3, 3, diverging_end)]


def test_what_the_leader_never_had_is_set_aside() -> None:
    harness = follower(leo=10, hw=8)
    told = ev.BelowLogStart(5, 10, 40, diverges=True)
    assert harness.step(told) == [fx.ResetTo(40, committed=8), fx.Reposition()]


@pytest.mark.parametrize("log_start", [4, 40])
def test_who_is_sent_to_the_start_drops_everything(log_start: int) -> None:
    harness = follower(leo=10, hw=8)
    assert harness.step(ev.BelowLogStart(5, 10, log_start)) == [fx.ResetTo(log_start), fx.Reposition()]
    assert harness.replica.log_end_offset == harness.replica.high_watermark == log_start


def test_i15_the_start_of_another_epoch_or_position_is_not_taken() -> None:
    harness = follower(leo=10, hw=8)
    assert harness.step(ev.BelowLogStart(4, 10, 40)) == []
    assert harness.step(ev.BelowLogStart(5, 9, 40)) == [fx.Reposition()]
    assert leader().step(ev.BelowLogStart(5, 10, 40)) == []
    assert (harness.replica.log_end_offset, harness.replica.high_watermark) == (10, 8)


def test_a_start_beyond_what_is_held_does_not_lift_the_high_watermark_over_the_end() -> None:
    harness = follower(leo=10, hw=8)
    assert harness.step(ev.FollowerAppended(5, 10, 9, log_start=12)) == [fx.AdvanceHighWatermark(10)]


@requirement("Decisions are delivered in order and may be applied twice")
@requirement("A new controller sends every decision again")
def test_a_raised_min_isr_fails_what_waits_for_more_copies_than_there_are() -> None:
    harness = leader(isr=members(1, 2), leo=10, hw=10)
    harness.appended(12)
    assert harness.told(1, min_isr=2) == [], "nothing has changed"
    assert harness.told(1, min_isr=3) == [fx.FailPending(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert harness.fetched(2, 12) == [], "the high watermark stands still"
    assert fx.AdvanceHighWatermark(12) in harness.told(1, min_isr=1)
