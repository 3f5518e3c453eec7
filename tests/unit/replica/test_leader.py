"""The leader's half of the partition machine: high watermark, ISR, fencing (C4, HOLE-04 to 24, reliability 3.3, 3.5)."""

from collections.abc import Sequence

import pytest

from helpers.replica import LAG_MAX_S, ReplicaHarness, leader, life, members
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.isr import Committed, Member, PendingExpand, PendingShrink
from tidelog.replica.leader import MARKS_MAX, AppendMarks
from tidelog.replica.partition import Role


def expand(*ids: int, version: int = 50) -> fx.ProposeIsr:
    return fx.ProposeIsr(5, version, members(*ids))


@requirement("KeepInSyncTime bounds the lag of an ISR member")
@requirement("Every new leader epoch runs the truncation check again")
def test_becoming_leader_records_the_epoch_before_anything_else_kafka_7415() -> None:
    harness = ReplicaHarness(1, leo=10, hw=7)
    effects = harness.told(1)
    assert effects == [fx.StartEpoch(5, 10)]
    assert harness.replica.role is Role.LEADER
    harness.replica.check_produce(5, acks=-1)  # it waits for no follower


@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("A new leader keeps its own high watermark")
def test_a_new_leader_keeps_its_own_high_watermark() -> None:
    harness = ReplicaHarness(1, leo=10, hw=7)
    harness.told(1)
    assert harness.replica.high_watermark == 7
    assert harness.fetched(2, 10) == []
    assert harness.fetched(3, 10) == [fx.AdvanceHighWatermark(10)]


@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("A committed record never disappears or changes")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("ISR members agree below the HW of a presumed leader")
@requirement("The leader maintains the set of replicas that are caught up")
@requirement("The next fetch position of a follower is its acknowledgement")
@requirement("A message is committed when every ISR member has it")
@requirement("A fetch offset tells the leader how far its follower is")
def test_a_record_is_committed_when_every_member_has_it() -> None:
    harness = leader()
    assert harness.appended(12) == []
    assert harness.fetched(2, 12) == []
    assert harness.fetched(3, 12) == [fx.AdvanceHighWatermark(12)]


@requirement("ISR members agree below the HW of a presumed leader")
@requirement("A leader changes the ISR only on the version that it was told")
@requirement("A leader asks for an ISR change and does not wait")
@requirement("A pending expansion counts before it is confirmed")
@requirement("The high watermark waits for the largest ISR that may be in force")
def test_a_pending_member_counts_at_once() -> None:
    harness = leader(members(1, 2))
    assert harness.fetched(3, 10, at=1.1) == [expand(1, 2, 3)]
    harness.replica.check_produce(5, acks=-1)  # the leader refuses nothing meanwhile
    harness.appended(12)
    assert harness.fetched(2, 12, at=1.2) == []
    assert harness.fetched(3, 12, at=1.3) == [fx.AdvanceHighWatermark(12)]


@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("The high watermark waits for the largest ISR that may be in force")
@requirement("An ISR change of unknown outcome stays pending")
def test_mut_06_an_accepted_but_unanswered_expansion_still_counts() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.appended(12)
    assert harness.fetched(2, 12) == []
    # The answer was lost: the controller may have stored member 3, so member 2 alone commits nothing.
    assert harness.answered(expand(1, 2, 3), ErrorCode.REQUEST_TIMED_OUT) == [expand(1, 2, 3)]
    assert isinstance(harness.replica.isr, PendingExpand)
    assert harness.replica.high_watermark == 10


@requirement("A leader asks for an ISR change and does not wait")
@requirement("A killed follower stalls writes briefly and rejoins the ISR")
@requirement("A leader cut from the controllers keeps its ISR change pending")
@requirement("A follower paused beyond the lag limit rejoins after catch-up")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("A deposed leader that wakes up commits nothing")
@requirement("A pending shrink leaves the old ISR in force")
@requirement("The high watermark waits for the largest ISR that may be in force")
@requirement("A follower that lags too long is dropped and writes go on")
@requirement("KeepInSyncTime bounds the lag of an ISR member")
@requirement("A shrink of the ISR counts only once it is confirmed")
def test_mut_07_a_shrink_counts_only_when_confirmed() -> None:
    harness = leader()
    harness.appended(12, at=1.0)
    harness.fetched(2, 12, at=1.1)
    proposal = fx.ProposeIsr(5, 50, members(1, 2))
    assert harness.tick(1.0 + LAG_MAX_S + 0.1) == [proposal]
    assert isinstance(harness.replica.isr, PendingShrink)
    assert harness.tick(1.0 + LAG_MAX_S + 0.2) == []
    assert harness.replica.high_watermark == 10
    assert harness.answered(proposal, at=12.0) == [fx.AdvanceHighWatermark(12)]


@requirement("A pending shrink leaves the old ISR in force")
@pytest.mark.parametrize(
    ("code", "again"), [(ErrorCode.REQUEST_TIMED_OUT, True), (ErrorCode.INVALID_UPDATE_VERSION, False)]
)
def test_a_shrink_is_repeated_only_if_its_outcome_is_unknown(code: ErrorCode, again: bool) -> None:
    harness = leader()
    harness.appended(12, at=1.0)
    harness.fetched(2, 12, at=1.1)
    (proposal,) = harness.tick(1.0 + LAG_MAX_S + 0.1)
    assert isinstance(proposal, fx.ProposeIsr)
    assert harness.answered(proposal, code, at=12.0) == ([proposal] if again else [])
    assert harness.tick(13.0) == []
    assert harness.replica.isr == PendingShrink(Committed(members(1, 2, 3)), members(3))
    assert harness.replica.high_watermark == 10


@requirement("A leader cut from the controllers keeps its ISR change pending")
@requirement("A partition has one pending ISR change, and it is resolved")
@requirement("An ISR change of unknown outcome stays pending")
@requirement("An AlterIsr during a controller failover reaches the successor")
@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_mut_08_an_unknown_outcome_is_asked_again_and_never_rolled_back(code: ErrorCode) -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    assert harness.answered(expand(1, 2, 3), code) == [expand(1, 2, 3)]
    assert harness.replica.isr == PendingExpand(Committed(members(1, 2)), members(3))


@requirement("An AlterIsr that meets a controller change waits for its result")
@requirement("A partition has one pending ISR change, and it is resolved")
@requirement("An AlterIsr during a controller failover reaches the successor")
@requirement("FENCED_LEADER_EPOCH means that a newer leader exists")
@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
@requirement("An ISR proposal on an outdated version is refused")
@requirement("AlterIsr reports a topic that is gone")
@requirement("A newer state makes a leader judge its followers again")
@requirement("A pending ISR change is retried and its age is measured")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_these_answers_leave_it_pending_until_a_newer_state(code: ErrorCode) -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    assert harness.answered(expand(1, 2, 3), code) == []
    assert harness.tick(9.0) == [], "it is not asked for again"
    assert isinstance(harness.replica.isr, PendingExpand)
    harness.told(1, partition_epoch=51, isr=members(1, 2, 3))
    assert harness.replica.isr == Committed(members(1, 2, 3))


def test_only_who_waits_for_a_follower_heeds_the_time() -> None:
    """That a tick changes nothing for the others is asserted after every step of these tests."""
    harness = leader()
    assert harness.tick(0.5) == [] and not harness.replica.heeds_time
    harness.appended(12)
    assert harness.replica.heeds_time
    harness.fetched(2, 12)
    assert harness.replica.heeds_time
    harness.fetched(3, 12)
    assert not harness.replica.heeds_time


@requirement("The ISR converges to all live replicas that have caught up")
def test_a_follower_outside_the_isr_is_looked_at_again() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.answered(expand(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA, 50, at=2.0)
    assert harness.tick(2.1) == [] and harness.replica.heeds_time
    assert harness.tick(3.5) == [expand(1, 2, 3)]


def test_a_follower_that_is_gone_is_not_looked_at_until_it_speaks() -> None:
    """A dead broker follows thousands of partitions: while it is away none of them needs a tick for its sake."""
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.answered(expand(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA, 50, at=2.0)
    harness.step(ev.FollowerGone(3, life(3)))
    assert harness.tick(3.5) == [] and not harness.replica.heeds_time
    assert harness.fetched(3, 10, at=3.6) == [expand(1, 2, 3)]


def test_a_former_life_that_is_gone_says_nothing_of_this_one() -> None:
    """Its stream may end long after that of the next life has begun."""
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.answered(expand(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA, 50, at=2.0)
    harness.step(ev.FollowerGone(3, life(3, epoch=0)))
    assert harness.replica.heeds_time and harness.tick(3.5) == [expand(1, 2, 3)]


def test_lag_is_never_hidden_where_marks_are_merged() -> None:
    marks = AppendMarks(grain_s=1.0)
    for n in range(2 * MARKS_MAX):
        marks.add(end=10 + n, at=2.0 * n)
    assert marks.behind_since(9) == 0.0 and marks.older_than(4.0 * MARKS_MAX - 3.0, at=4.0 * MARKS_MAX - 2.0)
    assert marks.behind_since(8 + 2 * MARKS_MAX) == 4.0 * MARKS_MAX - 2.0


@requirement("A leader cut from its followers commits nothing below min ISR")
def test_a_member_that_has_said_nothing_lags_from_the_start_of_the_epoch() -> None:
    """A tick before it is due must not forget since when."""
    harness = ReplicaHarness(1, leo=10, hw=10)
    harness.told(1, at=0.0)
    harness.fetched(2, 10, at=0.1)
    assert harness.tick(1.0) == [] and harness.replica.heeds_time
    assert harness.tick(LAG_MAX_S + 1.0) == [fx.ProposeIsr(5, 50, members(1, 2))]


@requirement("The ISR admits no broker that is dead or shutting down")
def test_ineligible_replica_reverts_and_is_not_asked_again_at_once() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    assert harness.answered(expand(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA, 50, at=2.0) == []
    assert harness.replica.isr == Committed(members(1, 2))
    assert harness.fetched(3, 10, at=2.1) == []
    assert harness.fetched(3, 10, at=3.5) == [expand(1, 2, 3)]


@requirement("The high watermark waits for the largest ISR that may be in force")
@requirement("A pending expansion counts before it is confirmed")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("An ISR change of unknown outcome stays pending")
def test_a_member_whose_admission_is_in_doubt_counts_even_when_it_has_gone() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.appended(12)
    harness.fetched(2, 12)
    harness.answered(expand(1, 2, 3), ErrorCode.REQUEST_TIMED_OUT)
    harness.step(ev.FollowerGone(3, life(3)))
    harness.tick(3.0)
    assert harness.replica.high_watermark == 10


@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@pytest.mark.parametrize(("version", "after"), [(49, [expand(1, 2, 3)]), (-1, [expand(1, 2, 3)]), (51, [])])
def test_only_a_controller_that_knows_our_version_can_say_that_nothing_was_applied(
    code: ErrorCode, version: int, after: list[fx.Effect]
) -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    # An older version says that somebody is behind: ask again. A newer one is on its way to us.
    assert harness.answered(expand(1, 2, 3), code, version) == after
    assert harness.replica.isr == PendingExpand(Committed(members(1, 2)), members(3))


@requirement("ISR expansions wait briefly to share one request")
def test_open_19_an_expansion_may_wait_unless_producers_wait_for_it_and_a_shrink_may_not() -> None:
    def waits(harness: ReplicaHarness, effects: Sequence[fx.Effect]) -> list[bool]:
        return [effect.may_wait for effect in effects if isinstance(effect, fx.ProposeIsr)]

    plenty = leader(members(1, 2))
    assert waits(plenty, plenty.fetched(3, 10)) == [True]
    below_min_isr = leader(members(1), min_isr=2)
    assert waits(below_min_isr, below_min_isr.fetched(2, 10)) == [False]
    lagging = leader()
    lagging.appended(12, at=1.0)
    lagging.fetched(2, 12, at=1.1)
    assert waits(lagging, lagging.tick(1.0 + LAG_MAX_S + 0.1)) == [False]


@requirement("The ISR converges to all live replicas that have caught up")
@requirement("The ISR admits no broker that is dead or shutting down")
def test_a_replica_that_is_not_live_here_is_not_proposed() -> None:
    harness = leader(members(1, 2))
    harness.step(ev.LiveBrokers({1: life(1), 2: life(2)}, 0.5))
    assert harness.fetched(3, 10) == []
    assert harness.step(ev.LiveBrokers({1: life(1), 2: life(2), 3: life(3)}, 1.0)) == [expand(1, 2, 3)]


@requirement("AlterIsr names the broker epoch of every ISR member")
def test_only_the_life_that_fetched_is_proposed() -> None:
    harness = leader(members(1, 2))
    # Broker 3 came back as life 2 while our metadata still name life 1: neither may be proposed yet.
    assert harness.fetched(3, 10, epoch=2) == []
    harness.live[3] = life(3, 2)
    wanted = members(1, 2) | {Member(3, life(3, 2))}
    assert harness.step(ev.LiveBrokers(dict(harness.live), 1.0)) == [fx.ProposeIsr(5, 50, wanted)]


@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("AlterIsr names the broker epoch of every ISR member")
def test_positions_of_another_life_commit_nothing() -> None:
    harness = leader()
    harness.appended(12)
    harness.fetched(2, 12)
    assert harness.fetched(3, 12, epoch=2) == []
    assert harness.replica.high_watermark == 10


@requirement("Epochs never decrease and one epoch has one leader")
def test_mut_12_an_older_life_is_refused() -> None:
    harness = leader()
    harness.fetched(3, 10, epoch=2)
    assert harness.fetched(3, 10, epoch=1) == [fx.RefusePosition(3, ErrorCode.STALE_BROKER_EPOCH)]


@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("A follower paused beyond the lag limit rejoins after catch-up")
@requirement("A committed record never disappears or changes")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
@requirement("The leader maintains the set of replicas that are caught up")
@requirement("A replica joins the ISR only past the start of the leader epoch")
def test_mut_02_joining_needs_the_start_of_this_epoch() -> None:
    # HW 7 lags the truth: everything below 10 may be committed, so a follower at 8 lacks records.
    harness = ReplicaHarness(1, leo=10, hw=7)
    harness.told(1, isr=members(1, 2))
    assert harness.fetched(3, 8) == []
    assert harness.fetched(3, 10) == [expand(1, 2, 3)]


@requirement("The leader maintains the set of replicas that are caught up")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("A committed record never disappears or changes")
@requirement("A follower paused beyond the lag limit rejoins after catch-up")
def test_joining_needs_the_high_watermark() -> None:
    harness = leader(members(1, 2))
    harness.appended(12)
    assert harness.fetched(2, 12) == [fx.AdvanceHighWatermark(12)]
    assert harness.fetched(3, 11) == []
    assert harness.fetched(3, 12) == [expand(1, 2, 3)]


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("A follower paused beyond the lag limit rejoins after catch-up")
@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("Every replica fetch carries the current leader epoch")
def test_mut_04_positions_of_another_epoch_are_refused() -> None:
    harness = leader()
    harness.appended(12)
    assert harness.fetched(2, 12, leader_epoch=4) == [fx.RefusePosition(2, ErrorCode.FENCED_LEADER_EPOCH)]
    assert harness.fetched(2, 12, leader_epoch=6) == [fx.RefusePosition(2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    assert harness.replica.high_watermark == 10


@requirement("ISR members agree below the HW of a presumed leader")
def test_mut_01_mut_03_a_new_epoch_forgets_all_progress() -> None:
    harness = leader()
    harness.appended(12)
    harness.fetched(2, 12)
    harness.told(1, leader_epoch=6, partition_epoch=51)
    assert harness.fetched(3, 12, leader_epoch=6) == []
    assert harness.replica.high_watermark == 10
    assert harness.fetched(2, 12, leader_epoch=6) == [fx.AdvanceHighWatermark(12)]


@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("ISR members agree below the HW of a presumed leader")
def test_f15_4_a_diverged_position_is_answered_and_not_counted() -> None:
    harness = leader()
    harness.appended(12)
    harness.fetched(2, 12)
    diverged = harness.fetched(3, 12, last_epoch=4, found=(3, 9))
    assert diverged == [fx.SendDivergence(3, 12, 3, 9)]
    assert harness.replica.high_watermark == 10


@requirement("A leader killed between append and ack stores all or nothing")
@requirement("A torn log tail is cut back to the last valid batch")
@requirement("Truncation repeats until leader and follower share an epoch")
def test_an_epoch_that_ended_earlier_here_diverges_too() -> None:
    harness = leader()
    assert harness.fetched(3, 11, last_epoch=4, found=(4, 10)) == [fx.SendDivergence(3, 11, 4, 10)]


@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("Fencing holds when any single link is cut")
@requirement("A leader cut from its followers commits nothing below min ISR")
@requirement("The high watermark stands still below min.insync.replicas")
def test_mut_14_the_high_watermark_stands_still_below_min_isr() -> None:
    harness = leader(members(1), min_isr=2)
    assert harness.appended(12) == []
    assert harness.replica.high_watermark == 10


@requirement("A partition stays available on its last live replica")
@requirement("Killing every broker at once loses no written record")
@requirement("A leader and a follower killed together lose no committed record")
@requirement("A leader cut from its followers commits nothing below min ISR")
@requirement("Writes with acks=all are refused below min.insync.replicas")
def test_acks_all_is_refused_below_min_isr_and_acks_1_is_not() -> None:
    harness = leader(members(1), min_isr=2)
    with pytest.raises(TidelogError) as refused:
        harness.replica.check_produce(-1, -1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "min.insync.replicas is 2" in refused.value.message
    harness.replica.check_produce(-1, 1)


@requirement("A leader and a follower killed together lose no committed record")
@requirement("With f replicas a partition tolerates f - 1 failures")
@requirement("A partition stays available on its last live replica")
def test_the_last_replica_takes_records_and_commits_them_if_min_isr_allows_it() -> None:
    harness = leader(members(1), min_isr=1)
    harness.replica.check_produce(5, acks=-1)
    assert harness.appended(12) == [fx.AdvanceHighWatermark(12)]


@requirement("Writes with acks=all are refused below min.insync.replicas")
def test_min_isr_is_capped_at_the_replication_factor() -> None:
    harness = ReplicaHarness(1)
    harness.told(1, isr=members(1), replicas=(1,), min_isr=2)
    harness.replica.check_produce(-1, -1)
    assert harness.appended(12) == [fx.AdvanceHighWatermark(12)]


@requirement("Writes with acks=all are refused below min.insync.replicas")
def test_a_confirmed_shrink_below_min_isr_fails_what_is_parked() -> None:
    harness = leader(members(1, 2))
    harness.appended(12, at=1.0)
    proposal = fx.ProposeIsr(5, 50, members(1))
    assert harness.tick(1.0 + LAG_MAX_S + 0.1) == [proposal]
    assert harness.answered(proposal, at=12.0) == [fx.FailPending(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert harness.replica.high_watermark == 10


@requirement("Follower lag is measured in time and is zero on an idle log")
def test_an_idle_partition_never_shrinks() -> None:
    harness = leader()
    assert harness.tick(1_000_000.0) == []


@requirement("The ISR converges to all live replicas that have caught up")
@requirement("A slow follower leaves the ISR after the lag limit")
@requirement("KeepInSyncTime bounds the lag of an ISR member")
@requirement("Follower lag is measured in time and is zero on an idle log")
def test_lag_starts_at_the_first_unacknowledged_append() -> None:
    harness = leader(members(1, 2))
    harness.appended(12, at=100.0)
    assert harness.tick(100.0 + LAG_MAX_S - 0.1) == []
    assert harness.tick(100.0 + LAG_MAX_S + 0.1) == [fx.ProposeIsr(5, 50, members(1))]


@requirement("Follower lag is measured in time and is zero on an idle log")
@requirement("A slow follower leaves the ISR after the lag limit")
def test_a_follower_that_keeps_up_under_constant_load_stays() -> None:
    harness = leader(members(1, 2))
    for second in range(60):
        harness.appended(10 + second * 5 + 5, at=float(second))
        harness.fetched(2, 10 + second * 5, at=second + 0.5)  # always one append behind, never at the end
        assert harness.tick(second + 0.9) == []


@requirement("A slow follower leaves the ISR after the lag limit")
def test_a_follower_that_moves_on_too_slowly_leaves() -> None:
    harness = leader(members(1, 2))
    proposed: list[int] = []
    for second in range(int(LAG_MAX_S * 2)):
        harness.appended(10 + (second + 1) * 10, at=float(second))
        effects = harness.fetched(2, 11 + second, at=second + 0.5)  # a tenth of the load
        assert fx.AdvanceHighWatermark(11 + second) in effects, "it moves on"
        proposed += [second] * effects.count(fx.ProposeIsr(5, 50, members(1)))
    (first,) = proposed
    assert LAG_MAX_S <= first < LAG_MAX_S + 2


@requirement("A follower that receives no answers is not counted as caught up")
def test_a_follower_that_hears_no_answer_counts_for_nothing() -> None:
    harness = leader(members(1, 2))
    harness.appended(12, at=1.0)
    at = 1.0
    while at < 1.0 + LAG_MAX_S - 0.5:  # it asks again for what was sent to it
        assert harness.fetched(2, 10, at=at) == []
        assert harness.tick(at + 0.1) == []
        at += 0.5
    assert harness.replica.high_watermark == 10
    assert harness.tick(1.0 + LAG_MAX_S + 0.1) == [fx.ProposeIsr(5, 50, members(1))]


@requirement("A leader paused within its session drops no follower")
def test_after_an_own_pause_lag_is_measured_anew() -> None:
    harness = leader(members(1, 2))
    harness.appended(12, at=1.0)
    harness.step(ev.Resumed(61.0))
    assert harness.tick(61.1) == []
    assert harness.tick(61.0 + LAG_MAX_S + 0.1) == [fx.ProposeIsr(5, 50, members(1))]


@requirement("A leader and a follower killed together lose no committed record")
@requirement("The ISR converges to all live replicas that have caught up")
@requirement("A leader asks for an ISR change and does not wait")
@requirement("A partition has one pending ISR change, and it is resolved")
def test_i11_one_change_is_pending_at_a_time() -> None:
    harness = leader(members(1))
    assert harness.fetched(2, 10) == [expand(1, 2)]
    assert harness.fetched(3, 10) == []
    # The confirmed expansion lets the next one out.
    assert harness.answered(expand(1, 2)) == [expand(1, 2, 3, version=51)]


@requirement("A leader cut from its followers commits nothing below min ISR")
def test_everything_that_came_into_sync_goes_into_one_proposal() -> None:
    harness = leader(members(1))
    proposal = harness.fetched(2, 10)[0]
    assert proposal == expand(1, 2)
    harness.fetched(3, 10)
    harness.told(1, partition_epoch=51, isr=members(1))
    assert harness.replica.isr == PendingExpand(Committed(members(1)), members(2, 3))


@requirement("A rolling restart batches ISR changes and drops no replica")
def test_no_member_leaves_the_isr_while_another_one_is_added() -> None:
    harness = leader(members(1, 2))
    harness.appended(12, at=1.0)
    late = 1.0 + LAG_MAX_S + 0.1  # member 2 lags too long by now
    assert harness.fetched(3, 12, at=late) == [expand(1, 2, 3)]
    assert harness.tick(late + 0.1) == []
    assert harness.answered(expand(1, 2, 3), at=late + 0.2) == [fx.ProposeIsr(5, 51, members(1, 3))]


def test_f05_6_the_high_watermark_waits_for_a_follower_about_to_join() -> None:
    harness = leader(members(1, 2))
    harness.step(ev.LiveBrokers({1: life(1), 2: life(2)}, 0.0))
    harness.fetched(3, 10)  # caught up, but not known to be alive: cannot join yet
    harness.appended(12, at=1.0)
    assert harness.fetched(2, 12, at=1.1) == [fx.AdvanceHighWatermark(12)]  # not eligible, not waited for
    harness.fetched(3, 12, at=1.2)
    harness.step(ev.LiveBrokers(dict(harness.live), 1.3))
    harness.appended(14, at=1.4)
    assert harness.fetched(2, 14, at=1.5) == []
    assert harness.fetched(3, 14, at=1.6) == [fx.AdvanceHighWatermark(14)]


def test_kafka_13837_a_position_of_a_stranger_is_an_error() -> None:
    harness = leader()
    assert harness.fetched(9, 10) == [fx.RefusePosition(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@requirement("A repeated AlterIsr succeeds once its ISR is in force")
def test_an_equal_version_in_a_success_ends_the_pending_state() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.answered(expand(1, 2, 3), partition_epoch=50)
    assert harness.replica.isr == Committed(members(1, 2, 3))


@requirement("An AlterIsr answer settles only its own proposal")
def test_an_answer_to_a_state_no_longer_held_is_ignored() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.told(1, leader_epoch=6, partition_epoch=52, isr=members(1, 2))
    assert harness.answered(expand(1, 2, 3), partition_epoch=51) == []
    assert harness.replica.isr == Committed(members(1, 2))
    assert harness.replica.partition_epoch == 52


@requirement("A newer state makes a leader judge its followers again")
@requirement("An AlterIsr that meets a controller change waits for its result")
@requirement("An AlterIsr answer settles only its own proposal")
def test_an_answer_to_an_earlier_proposal_does_not_settle_the_pending_one() -> None:
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    assert harness.told(1, partition_epoch=51, isr=members(1, 2)) == [expand(1, 2, 3, version=51)]
    assert harness.answered(expand(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA, 51) == []
    assert harness.replica.isr == PendingExpand(Committed(members(1, 2)), members(3))


@requirement("An AlterIsr answer settles only its own proposal")
@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(6, 51), (4, 51), (5, 49)])
def test_an_answer_about_another_state_settles_nothing(leader_epoch: int, partition_epoch: int) -> None:
    """A controller that is behind, or knows of a later election: what it has written is told by LeaderAndIsr."""
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    proposal = expand(1, 2, 3)
    assert harness.answered(proposal, partition_epoch=partition_epoch, leader_epoch=leader_epoch) == []
    assert harness.replica.isr == PendingExpand(Committed(members(1, 2)), members(3))


@requirement("Repeated or reordered control messages break no invariant")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("A newer state makes a leader judge its followers again")
@requirement("An AlterIsr during a controller failover reaches the successor")
def test_conflict_12_leader_and_isr_with_the_same_epoch_and_a_higher_version_is_adopted() -> None:
    harness = leader(members(1, 2))
    harness.told(1, partition_epoch=51, isr=members(1, 2, 3))
    assert harness.replica.isr == Committed(members(1, 2, 3))
    harness.told(1, partition_epoch=50, isr=members(1, 2))
    assert harness.replica.isr == Committed(members(1, 2, 3))


@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("A deposed leader that wakes up commits nothing")
def test_a_deposed_leader_fails_what_is_parked_and_answers_no_more() -> None:
    harness = leader()
    harness.appended(12)
    assert harness.step(ev.Deposed(6)) == [fx.FailPending(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with pytest.raises(TidelogError) as refused:
        harness.replica.check_produce(-1, 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The decision that follows still applies.
    assert harness.told(2, leader_epoch=6) == [fx.StartFetching(2, 6)]


def test_deposed_by_an_older_or_equal_epoch_means_nothing() -> None:
    harness = leader()
    assert harness.step(ev.Deposed(5)) == []
    assert harness.replica.role is Role.LEADER


@pytest.mark.parametrize(("claimed", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_requests_of_another_epoch_are_fenced(claimed: int, code: ErrorCode) -> None:
    harness = leader()
    with pytest.raises(TidelogError) as refused:
        harness.replica.check_epoch(claimed)
    assert refused.value.code is code
    assert str(claimed) in refused.value.message


@requirement("A started replica recovers and takes the lower high watermark")
@requirement("A restarted broker returns to its stored roles")
def test_high_watermark_above_the_log_is_refused_at_the_door() -> None:
    with pytest.raises(ValueError, match="high watermark 11"):
        ReplicaHarness(1, leo=10, hw=11)


def test_kafka_7415_an_empty_log_that_began_an_epoch_is_compared_too() -> None:
    """Broker 3 led epoch 4 from offset 0 and wrote nothing; this log has records of epoch 3 there, which it never saw. Sent
    as they are, it would refuse them as older than its own history, for ever."""
    harness = leader()
    assert harness.fetched(3, 0, last_epoch=4, found=(3, 7)) == [fx.SendDivergence(3, 0, 3, 7)]
    assert harness.fetched(3, 0, last_epoch=-1, found=(-1, -1)) == []


# -- flush=sync (reliability 3.6 rule F) -------------------------------------------------------------------------------


@requirement("A last ISR member that lost power is not elected automatically")
def test_with_flush_sync_a_leader_counts_itself_when_its_sync_has_ended() -> None:
    harness = leader()
    harness.step(ev.Appended(12, 1.0, counts=False))
    assert harness.fetched(2, 12) == harness.fetched(3, 12) == [], "both followers hold it, this leader may lose it"
    assert harness.step(ev.Synced(11, 1.2)) == [fx.AdvanceHighWatermark(11)]
    assert harness.step(ev.Synced(12, 1.3)) == [fx.AdvanceHighWatermark(12)]
    assert harness.step(ev.Synced(11, 1.4)) == [], "late news"


@requirement("A last ISR member that lost power is not elected automatically")
def test_a_new_leader_does_not_count_its_unsynced_tail() -> None:
    harness = ReplicaHarness(1, leo=10, hw=4)
    harness.step(ev.LeaderAndIsr(1, 5, 50, members(1, 2, 3), (1, 2, 3), 2, dict(harness.live), 0.0, own_end=6))
    harness.fetched(2, 10)
    assert harness.fetched(3, 10) == [fx.AdvanceHighWatermark(6)]
    assert harness.step(ev.Synced(10, 1.2)) == [fx.AdvanceHighWatermark(10)]
    harness.replica.step(ev.Stopped())
    assert harness.step(ev.Synced(10, 1.3)) == [], "it leads no more"
