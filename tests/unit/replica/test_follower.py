"""The follower's half: role changes, truncation by epoch, high watermark (F-15, HOLE-01 to 06, 34)."""

from helpers.replica import ReplicaHarness, follower, leader
from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.partition import Role


@requirement("Killing every broker at once loses no written record")
@requirement("A committed record never disappears or changes")
@requirement("A broker ends its old fetch before it changes its role")
@requirement("A follower never truncates to its high watermark")
def test_becoming_follower_fetches_in_the_new_epoch_and_truncates_nothing_by_itself() -> None:
    harness = ReplicaHarness(1, leo=10, hw=8)
    assert harness.told(2) == [fx.StartFetching(2, 5)]
    # HOLE-01: the log is cut by what the leader's history says, never back to the high watermark.
    assert harness.replica.log_end_offset == 10


@requirement("A broker ends its old fetch before it changes its role")
@requirement("Every new leader epoch runs the truncation check again")
def test_the_same_leader_in_a_new_epoch_runs_the_check_again() -> None:
    harness = follower()
    assert harness.told(2, leader_epoch=6) == [fx.StopFetching(), fx.StartFetching(2, 6)]


@requirement("Epochs never decrease and one epoch has one leader")
@requirement("Decisions are delivered in order and may be applied twice")
@requirement("A new controller sends every decision again")
@requirement("Repeated or reordered control messages break no invariant")
def test_a_repeated_decision_changes_nothing() -> None:
    harness = follower()
    assert harness.told(2) == []
    assert harness.told(3, leader_epoch=4) == []
    assert harness.replica.leader == 2


@requirement("A partition without a live replica publishes no leader")
def test_without_a_leader_nobody_is_followed() -> None:
    harness = follower()
    assert harness.told(-1, leader_epoch=6) == [fx.StopFetching()]
    assert harness.replica.leader == -1


@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("A deposed leader that wakes up commits nothing")
@requirement("A broker ends its old fetch before it changes its role")
def test_a_deposed_leader_fails_parked_produces_then_follows() -> None:
    harness = leader()
    assert harness.told(2, leader_epoch=6) == [
        fx.FailPending(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fx.StartFetching(2, 6),
    ]


@requirement("A committed record never disappears or changes")
def test_i15_a_chunk_is_applied_only_at_the_log_end_and_in_this_epoch() -> None:
    harness = follower()
    assert harness.step(ev.ChunkArrived(5, 10)) == [fx.AppendChunk()]
    assert harness.step(ev.ChunkArrived(5, 9)) == [fx.Reposition()]
    assert harness.step(ev.ChunkArrived(4, 10)) == [fx.Reposition()]
    assert harness.step(ev.ChunkArrived(6, 10)) == []


@requirement("A torn log tail is cut back to the last valid batch")
@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("An asynchronous write is acknowledged after the local append")
@requirement("Diverging logs are cut where their leader epochs part")
def test_divergence_cuts_to_the_end_of_the_common_epoch() -> None:
    harness = follower()
    # The leader's epoch 3 ends at 7, ours at 9: what lies beyond 7 is not the leader's.
    diverged = ev.ChunkArrived(5, 10, diverging_epoch=3, diverging_end=7, own_epoch=3, own_end=9)
    assert harness.step(diverged) == [fx.TruncateTo(7, committed=8), fx.Reposition()]
    assert harness.replica.log_end_offset == 7
    assert harness.replica.high_watermark == 7


@requirement("Truncation repeats until leader and follower share an epoch")
def test_an_epoch_unknown_here_cuts_to_the_end_of_the_next_smaller_one() -> None:
    harness = follower()
    diverged = ev.ChunkArrived(5, 10, diverging_epoch=3, diverging_end=9, own_epoch=2, own_end=8)
    assert harness.step(diverged) == [fx.TruncateTo(8, committed=8), fx.Reposition()]


@requirement("A committed record never disappears or changes")
def test_divergence_of_another_epoch_or_position_cuts_nothing_mut_05() -> None:
    harness = follower()
    stale = ev.ChunkArrived(4, 10, diverging_epoch=3, diverging_end=7, own_epoch=3, own_end=9)
    assert harness.step(stale) == [fx.Reposition()]
    moved = ev.ChunkArrived(5, 9, diverging_epoch=3, diverging_end=7, own_epoch=3, own_end=9)
    assert harness.step(moved) == [fx.Reposition()]
    assert harness.replica.log_end_offset == 10


@requirement("A follower takes over the high watermark up to its log end")
@requirement("A follower high watermark never exceeds the end of its log")
def test_the_high_watermark_is_the_leaders_capped_at_the_own_end() -> None:
    harness = follower()
    harness.step(ev.ChunkArrived(5, 10))
    assert harness.step(ev.FollowerAppended(5, 12, 9, 0)) == [fx.AdvanceHighWatermark(9)]
    assert harness.step(ev.FollowerAppended(5, 12, 20, 0)) == [fx.AdvanceHighWatermark(12)]


def test_i06_the_high_watermark_never_falls_with_a_leaders_older_one() -> None:
    harness = follower()
    assert harness.step(ev.FollowerAppended(5, 12, 3, 0)) == []
    assert harness.replica.high_watermark == 8


@requirement("A follower high watermark never exceeds the end of its log")
def test_mut_15_kafka_14704_a_divergence_does_not_move_the_high_watermark() -> None:
    harness = follower(hw=5)
    harness.step(ev.ChunkArrived(5, 10, diverging_epoch=3, diverging_end=7, own_epoch=3, own_end=9))
    assert harness.replica.high_watermark == 5


@requirement("The replica of a deleted topic is stopped and deleted")
def test_stopping_ends_every_role() -> None:
    harness = follower()
    assert harness.step(ev.Stopped()) == [fx.StopFetching()]
    assert harness.replica.role is Role.NONE
    assert harness.step(ev.ChunkArrived(5, 10)) == []
    led = leader()
    assert led.step(ev.Stopped()) == [fx.FailPending(ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@requirement("A fetch offset tells the leader how far its follower is")
def test_a_position_at_a_follower_is_refused() -> None:
    harness = follower()
    assert harness.fetched(3, 10) == [fx.RefusePosition(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@requirement("A broker ends its old fetch before it changes its role")
def test_kafka_10706_an_empty_epoch_leaves_the_history_although_nothing_is_cut() -> None:
    harness = follower()
    diverged = ev.ChunkArrived(5, 10, diverging_epoch=3, diverging_end=10, own_epoch=3, own_end=10)
    assert harness.step(diverged) == [fx.TruncateTo(10, committed=8), fx.Reposition()]
