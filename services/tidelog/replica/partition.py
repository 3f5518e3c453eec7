"""The state machine of one partition's replica, generation 3: `step(event) -> effects`, no clock and no I/O.

See PROTOCOL.md beside this file for the events, the effects and the invariants. The five rules of KIP-320 (reliability 3.3):
a position is fenced by epoch (`_on_position`), truncation follows a leader of the same epoch (`_on_chunk`), the high
watermark counts followers of this epoch only (progress dies with the epoch), and only those may join the ISR, not below the
epoch's start (`LeaderState.joiners`).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, assert_never

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_OFFSET
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.isr import Committed, IsrState, Member, PendingExpand
from tidelog.replica.leader import INELIGIBLE_PAUSE_S, LeaderState, Progress


class Role(Enum):
    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class _After(Enum):
    """What a refused proposal does to the pending change (F05.9)."""

    RESET = "the controller says it was not applied and our version is right"
    WAIT = "a newer state exists and will reach us by LeaderAndIsr"
    RESEND = "nobody knows: the same proposal goes out again"


_ON_REFUSED: Final[Mapping[ErrorCode, _After]] = {
    ErrorCode.INELIGIBLE_REPLICA: _After.RESET,
    ErrorCode.OPERATION_NOT_ATTEMPTED: _After.RESET,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _After.WAIT,
    ErrorCode.UNKNOWN_TOPIC_ID: _After.WAIT,
    ErrorCode.FENCED_LEADER_EPOCH: _After.WAIT,
    ErrorCode.INVALID_UPDATE_VERSION: _After.WAIT,
    ErrorCode.INVALID_REQUEST: _After.WAIT,
    ErrorCode.NEW_LEADER_ELECTED: _After.WAIT,
}


class PartitionReplica:
    """`log_end_offset` and `high_watermark` are those of the log when it was opened: hw = min(checkpoint, LEO) (HOLE-35)."""

    def __init__(self, me: int, log_end_offset: int, high_watermark: int, lag_max_s: float) -> None:
        if not 0 <= high_watermark <= log_end_offset:
            raise ValueError(f"high watermark {high_watermark} is not within 0..{log_end_offset}")
        self._me = me
        self._lag_max_s = lag_max_s
        self.role = Role.NONE
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.log_end_offset = log_end_offset
        self.own_end = log_end_offset
        """How far a leader counts itself: behind the log's end while a sync is under way (flush=sync)."""
        self.high_watermark = high_watermark
        self.leading: LeaderState | None = None
        self.led_epoch = -1
        """The last epoch in which it led."""
        self._hands_over = False

    def step(self, event: ev.Event) -> Sequence[fx.Effect]:
        match event:
            case ev.FollowerPosition():
                return self._on_position(event)
            case ev.Appended():
                return self._on_appended(event)
            case ev.Synced():
                return self._on_synced(event)
            case ev.ChunkArrived():
                return self._on_chunk(event)
            case ev.BelowLogStart():
                return self._on_below_log_start(event)
            case ev.FollowerAppended():
                return self._on_follower_appended(event)
            case ev.Tick():
                return self._on_tick(event.at)
            case ev.IsrAnswered():
                return self._on_isr_answered(event)
            case ev.LeaderAndIsr():
                return self._on_leader_and_isr(event)
            case ev.LiveBrokers():
                return self._on_live(event)
            case ev.FollowerGone():
                return self._on_follower_gone(event)
            case ev.Deposed():
                return self._on_deposed(event)
            case ev.Resumed():
                return self._on_resumed(event)
            case ev.Truncated():
                return self._on_truncated(event)
            case ev.HandOver():
                return self._on_hand_over()
            case ev.Stopped():
                return self._on_stopped()
            case _:
                assert_never(event)

    def remember_epochs(self, former: "PartitionReplica") -> None:
        """Takes the epochs of the same copy from before its disk failed."""
        self.leader_epoch, self.led_epoch = former.leader_epoch, former.led_epoch

    # -- questions; they change nothing ------------------------------------------------------------------------------

    def check_epoch(self, claimed: int) -> None:
        """Fences a request that names a leader epoch; -1 claims none. The one place where epochs are compared."""
        if self.leading is None:
            raise TidelogError(f"leader is broker {self.leader}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if claimed == -1 or claimed == self.leader_epoch:
            return
        if claimed < self.leader_epoch:
            raise TidelogError(
                f"leader_epoch {claimed} is older than {self.leader_epoch}", ErrorCode.FENCED_LEADER_EPOCH
            )
        raise TidelogError(f"leader_epoch {claimed} is newer than {self.leader_epoch}", ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_produce(self, claimed: int, acks: int) -> None:
        """Raises what refuses a produce before its append."""
        self.check_epoch(claimed)
        assert self.leading is not None
        if self._hands_over:
            raise TidelogError("this leader hands over, another follows", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and self.leading.under_min_isr:
            have, want = len(self.leading.isr.committed.isr), self.leading.min_isr
            raise TidelogError(
                f"{have} replicas are in sync, min.insync.replicas is {want}", ErrorCode.NOT_ENOUGH_REPLICAS
            )

    @property
    def isr(self) -> IsrState | None:
        """The leader's view; None on a follower."""
        return self.leading.isr if self.leading is not None else None

    @property
    def heeds_time(self) -> bool:
        """Whether a Tick may change anything here: of ten thousand partitions that are idle none needs one."""
        return self.leading is not None and self.leading.waits_for_somebody

    def awaits(self, follower: int, at: float) -> bool:
        """Whether this leader's high watermark may wait for that follower."""
        leading = self.leading
        return leading is not None and leading.awaits(follower, self.high_watermark, self.log_end_offset, at)

    @property
    def tail_is_replicated(self) -> bool:
        """Whoever of the ISR leads next has all that is in this log; True where this replica does not lead."""
        return self.leading is None or self.leading.all_hold(self.log_end_offset)

    def validate(self) -> None:
        """Invariants of one replica (reliability 3.7: I6, I7, I11, I15); AssertionError with both values."""
        assert 0 <= self.high_watermark <= self.log_end_offset, (self.high_watermark, self.log_end_offset)
        assert (self.role is Role.LEADER) == (self.leading is not None), (self.role, self.leading)
        if self.leading is not None:
            assert self.leader == self._me and self.leading.epoch == self.leader_epoch
            waits = self.high_watermark < self.log_end_offset
            assert waits == (self.leading.stall.since is not None), (self.high_watermark, self.log_end_offset)
            ids = [m.broker_id for m in self.leading.isr.maximal_isr]
            assert len(ids) == len(set(ids)), f"two lives of one broker in {sorted(ids)}"
            assert self._me in ids, f"leader {self._me} outside its ISR {sorted(ids)}"
            assert set(ids) <= set(self.leading.replicas), (ids, self.leading.replicas)

    # -- decisions of the controller ---------------------------------------------------------------------------------

    def _on_leader_and_isr(self, event: ev.LeaderAndIsr) -> list[fx.Effect]:
        if event.leader_epoch < self.leader_epoch:
            return []
        if event.leader_epoch == self.leader_epoch and self.role is not Role.NONE:
            return self._on_same_epoch(event)
        return self._become_leader(event) if event.leader == self._me else self._become_follower(event)

    def _on_same_epoch(self, event: ev.LeaderAndIsr) -> list[fx.Effect]:
        """An ISR change keeps the leader epoch and raises the partition epoch (CONFLICT-12); the rest is a repetition."""
        if self.leading is None:
            self.partition_epoch = max(self.partition_epoch, event.partition_epoch)
            return []
        self.leading.live = event.live
        raised = event.min_isr > self.leading.min_isr
        self.leading.min_isr = event.min_isr
        if event.partition_epoch == self.partition_epoch:
            # A reassignment that begins adds replicas and writes no state. Orders come in order, so these are the latest.
            self.leading.assign(event.replicas, event.adding)
        if event.partition_epoch <= self.partition_epoch:
            # A topic's settings can change without its partitions: more copies may be asked for than there are.
            return self._after_isr_change(event.at) if raised else self._reconsider(event.at)
        self._adopt(self.leading, event)
        return self._after_isr_change(event.at)

    def _adopt(self, leading: LeaderState, event: ev.LeaderAndIsr) -> None:
        leading.isr, leading.recovering = Committed(event.isr), event.recovering
        leading.assign(event.replicas, event.adding)
        leading.min_isr = event.min_isr
        leading.live = event.live
        leading.partition_epoch = event.partition_epoch
        self.partition_epoch = event.partition_epoch

    def _become_leader(self, event: ev.LeaderAndIsr) -> list[fx.Effect]:
        out = [] if self.role is Role.LEADER else self._leave_role()  # its own next epoch keeps what is parked
        self.role = Role.LEADER
        self.leader, self.leader_epoch = event.leader, event.leader_epoch
        self.led_epoch = event.leader_epoch
        self.own_end = self.log_end_offset if event.own_end is None else event.own_end
        # The HW stays: raising it to the LEO would expose what others in the ISR may lack (HOLE-36).
        before = self.leading
        self.leading = LeaderState(self._me, event.leader_epoch, self.log_end_offset, self._lag_max_s, event.at)
        self.leading.hands_over = self._hands_over
        if before is not None:
            self.leading.stall = before.stall
        elif self.high_watermark < self.log_end_offset:
            self.leading.stall.since = event.at
        self._adopt(self.leading, event)
        out.append(fx.StartEpoch(event.leader_epoch, self.log_end_offset))
        return out + self._reconsider(event.at)

    def _become_follower(self, event: ev.LeaderAndIsr) -> list[fx.Effect]:
        out = self._leave_role()
        self.role = Role.FOLLOWER
        self.leading = None
        self.leader, self.leader_epoch = event.leader, event.leader_epoch
        self.partition_epoch = event.partition_epoch
        if event.leader >= 0:
            # Also when the leader is the one of before: every new epoch runs the truncation check again (HOLE-06).
            out.append(fx.StartFetching(event.leader, event.leader_epoch))
        return out

    def _on_hand_over(self) -> list[fx.Effect]:
        self._hands_over = True
        if self.leading is not None:
            self.leading.hands_over = True
        return []

    def _on_stopped(self) -> list[fx.Effect]:
        out = self._leave_role()
        self.role = Role.NONE
        self.leading = None
        return out

    def _leave_role(self) -> list[fx.Effect]:
        if self.role is Role.LEADER:
            return [fx.FailPending(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        return [fx.StopFetching()] if self.role is Role.FOLLOWER and self.leader >= 0 else []

    def _on_deposed(self, event: ev.Deposed) -> list[fx.Effect]:
        """Stops answering at once; the epoch stays, so that the LeaderAndIsr on its way still applies."""
        if self.leading is None or event.newer_epoch <= self.leader_epoch:
            return []
        out = self._leave_role()
        self.role, self.leading, self.leader = Role.FOLLOWER, None, -1
        return out

    def _on_live(self, event: ev.LiveBrokers) -> list[fx.Effect]:
        if self.leading is None:
            return []
        self.leading.live = event.live
        return self._reconsider(event.at)

    # -- leader ------------------------------------------------------------------------------------------------------

    def _on_appended(self, event: ev.Appended) -> list[fx.Effect]:
        assert self.leading is not None and event.end >= self.log_end_offset, (self.role, event)
        self.log_end_offset = event.end
        if event.counts:
            self.own_end = event.end
        self.leading.marks.add(event.end, event.at)
        if self.leading.stall.since is None:
            self.leading.stall.since = event.at
        return self._advance(self.leading, event.at)

    def _on_synced(self, event: ev.Synced) -> list[fx.Effect]:
        if self.leading is None or event.end <= self.own_end:
            return []
        self.own_end = min(event.end, self.log_end_offset)
        return self._advance(self.leading, event.at)

    def _on_position(self, event: ev.FollowerPosition) -> list[fx.Effect]:
        leading = self.leading
        if leading is None:
            return [fx.RefusePosition(event.replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        if event.leader_epoch != leading.epoch:
            older = event.leader_epoch < leading.epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return [fx.RefusePosition(event.replica, code)]
        if event.replica not in leading.replicas or event.replica == self._me:
            return [fx.RefusePosition(event.replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]  # KAFKA-13837
        known = leading.progress.get(event.replica)
        if known is not None and event.broker_epoch < known.member.broker_epoch:
            return [fx.RefusePosition(event.replica, ErrorCode.STALE_BROKER_EPOCH)]
        # An empty log has a history too, of an epoch that it once led and wrote nothing in: what we send may be older.
        # One that was begun anew at a leader's log start has none: all before was committed, and then deleted.
        has_history = event.offset > event.own_start or event.last_epoch >= 0
        diverges = has_history and (event.found_epoch != event.last_epoch or event.found_end < event.offset)
        if event.offset < event.log_start or (not has_history and event.offset > self.log_end_offset):
            leading.progress.pop(event.replica, None)
            return [fx.SendLogStart(event.replica, event.offset, max(event.found_end, 0) if diverges else NO_OFFSET)]
        if has_history and event.found_epoch < 0:
            return [fx.RefusePosition(event.replica, ErrorCode.UNKNOWN_LEADER_EPOCH)]  # a history that we do not know
        if diverges:
            # Whatever it holds beyond is not ours: counting it would commit what it will cut away (HOLE-04).
            leading.progress.pop(event.replica, None)
            return [fx.SendDivergence(event.replica, event.offset, event.found_epoch, event.found_end)]
        same_life = known is not None and event.broker_epoch == known.member.broker_epoch
        member = known.member if known and same_life else Member(event.replica, event.broker_epoch)
        if leading.must_begin_anew(member, event.offset, event.own_start, event.dropped_to, event.drops):
            leading.progress.pop(event.replica, None)
            return [fx.SendLogStart(event.replica, event.offset)]
        leading.copies_from(member, event.offset, event.own_start, event.dropped_to, event.drops)
        out = self._reconsider(event.at)
        out.append(fx.SendRecords(event.replica, event.offset))
        return out

    def _on_follower_gone(self, event: ev.FollowerGone) -> list[fx.Effect]:
        known = self.leading.progress.get(event.replica) if self.leading is not None else None
        if self.leading is not None and known is not None and known.member.broker_epoch == event.broker_epoch:
            self.leading.progress[event.replica] = Progress(known.member, known.offset, connected=False)
        return []

    def _on_resumed(self, event: ev.Resumed) -> list[fx.Effect]:
        if self.leading is not None:
            self.leading.marks.restart(event.at)
        return []

    def _on_tick(self, at: float) -> list[fx.Effect]:
        if self.leading is not None and self.leading.all_hold(self.log_end_offset):
            self.leading.forget_acknowledged()  # what lay in the log when the epoch began no advance has forgotten
        return self._reconsider(at)

    def _advance(self, leading: LeaderState, at: float) -> list[fx.Effect]:
        end = leading.committed_end(self.log_end_offset, self.own_end, self.high_watermark, at)
        if end <= self.high_watermark:
            return []
        self.high_watermark = end
        leading.stall.ended(at, next_began=end < self.log_end_offset)
        leading.forget_acknowledged()
        return [fx.AdvanceHighWatermark(end)]

    def _reconsider(self, at: float) -> list[fx.Effect]:
        """Advance the HW as far as it goes, then ask for the ISR change that is due."""
        leading = self.leading
        if leading is None:
            return []
        out = self._advance(leading, at)
        change = leading.next_change(self.log_end_offset, self.high_watermark, at)
        if change is not None:
            leading.isr, leading.pending_since = change, at
            # Below min ISR producers wait for the new member.
            may_wait = isinstance(change, PendingExpand) and not leading.under_min_isr
            out.append(fx.ProposeIsr(leading.epoch, leading.partition_epoch, change.proposed, may_wait))
        return out

    def _after_isr_change(self, at: float) -> list[fx.Effect]:
        assert self.leading is not None
        out: list[fx.Effect] = []
        if self.leading.under_min_isr:
            # They are in the log, but the promised copies will not come (HOLE-23); the HW stands still from here on.
            out.append(fx.FailPending(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        return out + self._reconsider(at)

    def _on_isr_answered(self, event: ev.IsrAnswered) -> list[fx.Effect]:
        leading = self.leading
        if leading is None or isinstance(leading.isr, Committed):
            return []
        pending = leading.isr
        if event.proposal != fx.ProposeIsr(leading.epoch, leading.partition_epoch, pending.proposed):
            return []  # of a state no longer held (HOLE-19)
        if event.code is ErrorCode.NONE:
            if event.leader_epoch != leading.epoch or event.partition_epoch < leading.partition_epoch:
                return []
            leading.isr, leading.recovering = Committed(event.isr), False
            leading.partition_epoch = self.partition_epoch = event.partition_epoch
            return self._after_isr_change(event.at)
        after = _ON_REFUSED.get(event.code, _After.RESEND)
        if after is _After.RESET and (event.leader_epoch, event.partition_epoch) != (
            leading.epoch,
            leading.partition_epoch,
        ):
            # Not applied, but to another state than ours: only one of our own version lets us go back (HOLE-52).
            after = _After.RESEND if event.partition_epoch < leading.partition_epoch else _After.WAIT
        match after:
            case _After.RESET:
                leading.isr = pending.committed
                if isinstance(pending, PendingExpand):
                    until = event.at + INELIGIBLE_PAUSE_S
                    leading.ineligible_until = dict.fromkeys(pending.joining, until)
                return self._reconsider(event.at)
            case _After.WAIT:
                return []
            case _After.RESEND:
                return [event.proposal]

    # -- follower ----------------------------------------------------------------------------------------------------

    def _on_chunk(self, event: ev.ChunkArrived) -> list[fx.Effect]:
        """Applied only if it answers this very position in this very epoch (I15); divergence before the HW (HOLE-34)."""
        if self.role is not Role.FOLLOWER:
            return []
        if event.leader_epoch != self.leader_epoch or event.offset != self.log_end_offset:
            return [fx.Reposition()] if event.leader_epoch <= self.leader_epoch else []
        if event.diverging_epoch < 0 and event.diverging_end < 0:
            return [fx.AppendChunk()]
        cut, rule = event.own_end, fx.Rule.COMMON_EPOCH
        if event.own_epoch == event.diverging_epoch:
            cut, rule = min(event.diverging_end, event.own_end), fx.Rule.LEADER_EPOCH
        # Also when nothing is cut off: an epoch that was begun here and stayed empty must leave the history, else the
        # same answer comes for ever (KAFKA-10706).
        cut = max(0, min(cut, self.log_end_offset))
        committed = self.high_watermark
        self._cut_to(cut)
        return [fx.TruncateTo(cut, committed, rule, event.own_epoch), fx.Reposition()]

    def _on_below_log_start(self, event: ev.BelowLogStart) -> list[fx.Effect]:
        """Everything that the leader keeps lies behind what we hold, or before it (after an unclean election)."""
        if self.role is not Role.FOLLOWER or event.leader_epoch != self.leader_epoch:
            return []
        if event.offset != self.log_end_offset:
            return [fx.Reposition()]
        # What the leader had and has deleted is not lost, and what it still has comes again.
        committed = self.high_watermark if event.diverges else 0
        self.log_end_offset = self.high_watermark = event.log_start
        return [fx.ResetTo(event.log_start, committed), fx.Reposition()]

    def _on_truncated(self, event: ev.Truncated) -> list[fx.Effect]:
        self._cut_to(event.end)
        return []

    def _cut_to(self, end: int) -> None:
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)

    def _on_follower_appended(self, event: ev.FollowerAppended) -> list[fx.Effect]:
        if self.role is not Role.FOLLOWER:
            return []
        assert event.end >= self.log_end_offset, (event.end, self.log_end_offset)
        self.log_end_offset = event.end
        high_watermark = min(event.end, max(event.log_start, event.leader_high_watermark))
        if event.leader_epoch != self.leader_epoch or high_watermark <= self.high_watermark:
            return []
        self.high_watermark = high_watermark
        return [fx.AdvanceHighWatermark(high_watermark)]
