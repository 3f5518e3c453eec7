"""What a leader keeps of its followers, and the rules over it."""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.replica.isr import Committed, IsrState, Member, Pending, PendingExpand, PendingRecovery, PendingShrink

INELIGIBLE_PAUSE_S: Final = 1.0
"""After INELIGIBLE_REPLICA the same life of a follower is not proposed again for this long: acks come by the thousand."""

MARKS_MAX: Final = 64


class Progress(NamedTuple):
    """One consistent picture of a follower in this leader epoch: replaced whole (KAFKA-15221)."""

    member: Member
    offset: int
    connected: bool = True


class AppendMarks:
    """When the log first passed an offset, coarsely: a follower's lag starts at its first unacknowledged append.

    An idle partition has no such append, so its followers never lag (HOLE-31).
    """

    __slots__ = ("_grain_s", "_marks")

    def __init__(self, grain_s: float) -> None:
        self._grain_s = grain_s
        self._marks: deque[tuple[int, float]] = deque()

    def __bool__(self) -> bool:
        """Whether there is an append that not every follower has acknowledged."""
        return bool(self._marks)

    def add(self, end: int, at: float) -> None:
        marks = self._marks
        if marks and at - marks[-1][1] < self._grain_s:
            marks[-1] = (end, marks[-1][1])
            return
        marks.append((end, at))
        if len(marks) > MARKS_MAX:
            # The two oldest become one that keeps the older instant: lag may be over-stated there, never hidden.
            (_, oldest), (second_end, _) = marks.popleft(), marks.popleft()
            marks.appendleft((second_end, oldest))

    def behind_since(self, offset: int) -> float | None:
        """When the first append beyond `offset` happened; None if there is none."""
        return next((at for end, at in self._marks if end > offset), None)

    def older_than(self, age_s: float, at: float) -> bool:
        """Whether any append that is remembered happened longer ago."""
        return bool(self._marks) and at - self._marks[0][1] > age_s

    def forget_below(self, offset: int) -> None:
        while self._marks and self._marks[0][0] <= offset:
            self._marks.popleft()

    def restart(self, at: float) -> None:
        """All lag begins at `at`."""
        if self._marks:
            end = self._marks[-1][0]
            self._marks.clear()
            self._marks.append((end, at))


class Stall:
    """Times in which records beyond the high watermark waited and it did not move."""

    __slots__ = ("_longest_s", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """The beginning of the one that goes on."""
        self._longest_s = 0.0

    def ended(self, at: float, *, next_began: bool) -> None:
        """The high watermark has moved; `next_began`: not to the log's end."""
        if self.since is not None and at - self.since > self._longest_s:
            self._longest_s = at - self.since
        self.since = at if next_began else None

    def take_longest_s(self, at: float) -> float:
        """The longest since the last call; one that goes on counts from its beginning."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s if self.since is None else max(longest_s, at - self.since)


class LeaderState:
    """Of one leader epoch. Created when the epoch begins, dropped when it ends."""

    __slots__ = (
        "_begun_anew",
        "_committed",
        "_counted",
        "_factor",
        "_isr",
        "_lag_max_s",
        "_me",
        "_outsiders",
        "_replicas",
        "epoch",
        "epoch_start",
        "hands_over",
        "ineligible_until",
        "live",
        "marks",
        "min_isr",
        "partition_epoch",
        "pending_since",
        "progress",
        "recovering",
        "stall",
    )

    def __init__(self, me: int, epoch: int, epoch_start: int, lag_max_s: float, at: float) -> None:
        self._me = me
        self._lag_max_s = lag_max_s
        self.epoch = epoch
        self.epoch_start = epoch_start
        self.partition_epoch = -1
        self.hands_over = False
        self.recovering = False
        self._begun_anew: dict[int, int] = {}
        """Replicas whose copies were begun from this very log, with its `drops` of then."""
        self._isr: IsrState = Committed(frozenset())
        self._replicas: tuple[int, ...] = ()
        self._factor = 0
        self._counted: tuple[Member, ...] = ()
        """Followers that every commit waits for. This and the next two follow from ISR and replicas and are kept, because every
        position asks for them."""
        self._outsiders: tuple[int, ...] = ()
        """The replicas that may only join."""
        self._committed = 0
        """How many replicas are in the committed ISR."""
        self.pending_since = at
        """When the change that is pending was first asked for; means nothing while none is."""
        self.min_isr = 1
        self.live: Mapping[int, int] = {}
        self.progress: dict[int, Progress] = {}
        self.ineligible_until: dict[Member, float] = {}
        self.stall = Stall()
        self.marks = AppendMarks(grain_s=lag_max_s / 20)
        if epoch_start > 0:
            # What lies in the log already must reach the followers too; their time starts with the epoch.
            self.marks.add(epoch_start, at)

    @property
    def isr(self) -> IsrState:
        return self._isr

    @isr.setter
    def isr(self, isr: IsrState) -> None:
        self._isr = isr
        self._sort_followers()

    @property
    def replicas(self) -> tuple[int, ...]:
        return self._replicas

    @property
    def factor(self) -> int:
        """How many copies there ought to be, without those that a reassignment is just adding."""
        return self._factor

    def assign(self, replicas: tuple[int, ...], adding: tuple[int, ...]) -> None:
        """`adding` are those of `replicas` that had no copy before a reassignment."""
        self._replicas, self._factor = replicas, len(replicas) - len(adding)
        self._sort_followers()

    def _sort_followers(self) -> None:
        maximal = self._isr.maximal_isr
        present = {member.broker_id for member in maximal}
        self._committed = len(self._isr.committed.isr)
        self._counted = tuple([member for member in maximal if member.broker_id != self._me])
        self._outsiders = tuple([r for r in self._replicas if r not in present and r != self._me])

    @property
    def under_min_isr(self) -> bool:
        """Judged on the committed ISR; the minimum is capped at the replication factor (HOLE-23)."""
        return self._committed < self.min_isr and self._committed < self._factor

    def must_begin_anew(self, member: Member, offset: int, own_start: int, dropped_to: int, drops: int) -> bool:
        """Whether this follower may hold what a tombstone deletes that it has not come to, and that this log has dropped.

        Kafka takes delete.retention.ms for long enough that nobody is so far behind. Here nothing depends on time: after a loss
        of power a copy may lack what every other one has had, and a leader may have compacted while it followed.
        """
        before = self.progress.get(member.broker_id)
        # What it has fetched since its last position may be read when the tombstone was gone, and reach beyond the mark.
        behind = offset if before is None else min(offset, before.offset)
        if behind >= dropped_to or self._begun_anew.get(member.broker_id) == drops:
            return False
        return offset > own_start and member not in self._counted  # commits count on what a counted one holds

    def copies_from(self, member: Member, offset: int, own_start: int, dropped_to: int, drops: int) -> None:
        """This follower copies from `offset` on; with nothing yet it will hold what this log holds, even if it is interrupted."""
        self.progress[member.broker_id] = Progress(member, offset)
        if offset == own_start < dropped_to:
            self._begun_anew[member.broker_id] = drops

    def committed_end(self, log_end: int, own_end: int, high_watermark: int, at: float) -> int:
        """End of what every counted replica holds, `own_end` being this one's; never below `high_watermark`.

        Followers about to join are waited for too, else a fast log would never let one in (F05.6).
        """
        end = own_end
        for member in self._counted:
            progress = self.progress.get(member.broker_id)
            if progress is None or progress.member != member:
                return high_watermark  # another life of that broker says nothing about what this one holds (HOLE-21)
            if progress.offset <= high_watermark:
                return high_watermark
            if progress.offset < end:
                end = progress.offset
        if self.under_min_isr:
            return high_watermark  # HOLE-24
        for replica in self._outsiders:
            progress = self.progress.get(replica)
            if progress is not None and self._about_to_join(progress, high_watermark, log_end, at):
                end = min(end, progress.offset)
        return max(end, high_watermark)

    @property
    def waits_for_somebody(self) -> bool:
        """To catch up with an append, or to be admitted to the ISR; who is gone must speak first."""
        outsiders = (self.progress.get(replica) for replica in self._outsiders)
        return bool(self.marks) or any(each is not None and each.connected for each in outsiders)

    def forget_acknowledged(self) -> None:
        """The appends that no follower lags behind; for when every member of the ISR has stated a position."""
        self.marks.forget_below(min([p.offset for p in self.progress.values()], default=0))

    def all_hold(self, end: int) -> bool:
        """Whether every replica that may be in the ISR holds everything below `end`."""
        found = ((member, self.progress.get(member.broker_id)) for member in self._counted)
        return all(p is not None and p.member == member and p.offset >= end for member, p in found)

    def awaits(self, replica: int, high_watermark: int, log_end: int, at: float) -> bool:
        """Whether the high watermark may wait for this follower."""
        if any(replica == member.broker_id for member in self._counted):
            return True
        progress = self.progress.get(replica)
        return progress is not None and self._about_to_join(progress, high_watermark, log_end, at)

    def _about_to_join(self, progress: Progress, high_watermark: int, log_end: int, at: float) -> bool:
        # While the HW stands still below min ISR, a follower that stalls at it would else be dropped and re-added for ever.
        # Whoever joins a leader that leaves is elected at once: with less than all, what acks=1 promised would be cut away.
        if self.hands_over and progress.offset < log_end:
            return False
        return self._eligible(progress, high_watermark, at) and not self.lags(progress.offset, log_end, at)

    def _eligible(self, progress: Progress, high_watermark: int, at: float) -> bool:
        """HOLE-05, HOLE-20, HOLE-21: in this epoch, at the HW and at the epoch's start, alive in the same life."""
        member = progress.member
        return (
            progress.connected
            and member.broker_id in self.replicas
            and progress.offset >= max(high_watermark, self.epoch_start)
            and self.live.get(member.broker_id) == member.broker_epoch
            and self.ineligible_until.get(member, at) <= at
        )

    def pending_s(self, at: float) -> float:
        """For how long an ISR change has waited for its answer (HOLE-14: somebody should look when it never comes)."""
        return 0.0 if isinstance(self.isr, Committed) else at - self.pending_since

    def lags(self, offset: int, log_end: int, at: float) -> bool:
        if offset >= log_end:
            return False
        since = self.marks.behind_since(offset)
        return since is not None and at - since > self._lag_max_s

    def lag_s(self, offset: int, log_end: int, at: float) -> float:
        since = None if offset >= log_end else self.marks.behind_since(offset)
        return 0.0 if since is None else at - since

    def joiners(self, log_end: int, high_watermark: int, at: float) -> frozenset[Member]:
        """Followers to propose while no change is pending. One life of a broker replaces another only after the old one has
        left the ISR."""
        found = (self.progress.get(replica) for replica in self._outsiders)
        return frozenset(
            p.member for p in found if p is not None and self._about_to_join(p, high_watermark, log_end, at)
        )

    def laggards(self, log_end: int, at: float) -> frozenset[Member]:
        """Members to drop while no change is pending: behind for longer than the lag limit, this leader never among them
        (HOLE-31)."""
        found = []
        for member in self._counted:
            progress = self.progress.get(member.broker_id)
            offset = progress.offset if progress is not None and progress.member == member else -1
            if self.lags(offset, log_end, at):
                found.append(member)
        return frozenset(found)

    def next_change(self, log_end: int, high_watermark: int, at: float) -> Pending | None:
        """The ISR change to ask for now; None while one is pending (C4, I11)."""
        if not isinstance(self.isr, Committed):
            return None
        if self.recovering:
            return PendingRecovery(self.isr)
        if self._outsiders and (joining := self.joiners(log_end, high_watermark, at)):
            return PendingExpand(self.isr, joining)
        # Nobody lags behind what is not old enough: mostly that is the whole answer.
        if self.marks.older_than(self._lag_max_s, at) and (leaving := self.laggards(log_end, at)):
            return PendingShrink(self.isr, leaving)
        return None
