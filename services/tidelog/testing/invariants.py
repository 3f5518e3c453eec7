"""The invariants I1 to I15 of reliability 3.7 that replication can break, over a picture of the whole cluster.

`Checker.check` is called after steps of a simulated cluster, with the truth that no process has: every log, every belief and
the stored state at one instant. It keeps what was ever committed, acknowledged or read, and raises `Violation` with the
invariant's number and both values.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tidelog.ids import TopicPartition


class Violation(AssertionError):
    """An invariant does not hold; the message begins with its number."""


class BatchView(NamedTuple):
    """Identity of a batch: its bytes are equal if these are (the CRC covers all but base offset and epoch)."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int


class LogView:
    """The batches of one log between two truncations: it only grows, so what has been checked need not be checked again."""

    __slots__ = ("_ends", "batches", "by_base", "checked", "remembered", "starts")

    def __init__(self) -> None:
        self.batches: list[BatchView] = []
        self._ends: list[int] = []
        self.by_base: dict[int, BatchView] = {}
        self.checked = 0
        """Batches from the start that `Checker` has compared with what it knows."""
        self.remembered = 0
        """Batches from the start that were below a high watermark when they were last looked at."""
        self.starts: Sequence[tuple[int, int]] = ()
        """The epochs' starts that `Checker` has looked at last."""

    def extend(self, batches: Iterable[BatchView]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self.by_base[batch.base_offset] = batch
            self._ends.append(batch.end_offset)

    @property
    def has_news(self) -> bool:
        return self.checked < len(self.batches)

    def last_below(self, end: int) -> BatchView | None:
        """The last batch that ends at or below `end`."""
        at = bisect_right(self._ends, end)
        return self.batches[at - 1] if at else None


class ReplicaView(NamedTuple):
    """One replica of a running broker that has been told about the partition in this life."""

    broker_id: int
    broker_epoch: int
    leads: bool
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    log: LogView
    maximal_isr: frozenset[tuple[int, int]] = frozenset()
    committed_isr_size: int = 0
    """With the two below: of a leader, as it knows them now."""
    min_isr: int = 0
    """Capped at the replication factor."""
    epoch_start: int = 0
    epoch_starts: Sequence[tuple[int, int]] = ()
    log_start_offset: int = 0

    def at(self, batch: BatchView) -> BatchView | None:
        """Returns the batch that it holds in the place of `batch`; `batch` itself if all its records were deleted here."""
        return batch if batch.end_offset <= self.log_start_offset else self.log.by_base.get(batch.base_offset)


@dataclass(frozen=True, slots=True)
class StoredView:
    """The state znode."""

    leader: int
    leader_epoch: int
    isr: frozenset[tuple[int, int]]
    replicas: tuple[int, ...]
    version: int
    controller_epoch: int
    topic_id: bytes = b""
    recovering: bool = False
    """The leader was elected uncleanly and has not reported back."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    tp: TopicPartition
    stored: StoredView | None
    replicas: Mapping[int, ReplicaView]
    elected: LogView | None = None
    """Log of the leader of an unclean election, which has not been told of it."""


@dataclass(slots=True)
class _Memory:
    """Of one partition, over the whole run."""

    written: dict[tuple[int, int], tuple[BatchView, tuple[int, int] | None]] = field(default_factory=dict)
    """(base offset, epoch) -> the batch ever seen there, and what came before it: equal for ever, in every log (I5)."""
    committed: dict[int, BatchView] = field(default_factory=dict)
    """Base offset -> batch that was ever below any high watermark."""
    committed_last: BatchView | None = None
    stored: StoredView | None = None
    epochs: dict[tuple[int, int], int] = field(default_factory=dict)
    """(broker, broker epoch) -> highest leader epoch seen there."""
    appenders: dict[int, int] = field(default_factory=dict)
    """Leader epoch -> the broker that led in it."""
    unclean_epoch: int = -1
    """Leader epoch of the last unclean election that was recorded."""

    def begin_again(self, elected: LogView | None) -> None:
        """After an unclean election only what the elected replica holds is still promised (N07, I6, HOLE-25)."""
        end, last = 0, None
        for base, batch in sorted(self.committed.items()):
            if elected is None or elected.by_base.get(base) != batch:
                break
            end, last = batch.end_offset, batch
        self.committed = {base: batch for base, batch in self.committed.items() if base < end}
        self.committed_last = last


def _violation(number: str, *what: object) -> Violation:
    return Violation(f"{number}: " + " ".join(str(x) for x in what))


def _require(holds: bool, number: str, *what: object) -> None:
    if not holds:
        raise _violation(number, *what)


class Checker:
    def __init__(self) -> None:
        self._memory: dict[TopicPartition, _Memory] = {}
        self.unclean_elections = 0

    def check(self, view: PartitionView, changed: Collection[int] | None = None) -> None:
        """`changed` names the replicas that are not as they were at the last check of this partition; None: any may be.

        An unclean election is known by the mark of its state, which is gone when the leader has reported back: whoever
        runs with such topics must look after every change of a state.
        """
        memory = self._memory.setdefault(view.tp, _Memory())
        if view.stored is not None and view.stored is not memory.stored:
            self._check_stored(view.tp, view.stored, memory)
            led = view.stored.leader >= 0  # the mark stays where its leader is gone again
            if view.stored.recovering and led and view.stored.leader_epoch > memory.unclean_epoch:
                elected = view.replicas.get(view.stored.leader)
                memory.begin_again(view.elected if elected is None else elected.log)
                memory.unclean_epoch = view.stored.leader_epoch
                self.unclean_elections += 1
        news = [r for r in view.replicas.values() if changed is None or r.broker_id in changed]
        for replica in news:
            self._check_replica(view.tp, replica, memory)
        for replica in news:
            self._remember_committed(view.tp, replica, memory)
        if view.stored is not None:
            self._check_leaders(view, view.stored, memory)
            self._check_members(view, view.stored, memory)

    def check_advance(self, view: PartitionView, leader: ReplicaView) -> None:
        """A leader's high watermark has risen in this step: I10, and every replica that it counts follows in its epoch.

        A replica of an older epoch may yet cut away what was counted (HOLE-04).
        """
        where = (view.tp, "leader", leader.broker_id, "HW", leader.high_watermark)
        enough = leader.committed_isr_size >= leader.min_isr
        _require(enough, "I10", *where, "rose with", leader.committed_isr_size, "in sync, min ISR", leader.min_isr)
        for member in sorted(leader.maximal_isr):
            other = view.replicas.get(member[0])
            if other is not None and other.broker_epoch == member[1]:
                same = other.leader_epoch >= leader.leader_epoch
                _require(same, "I1", *where, "epoch", leader.leader_epoch, "counts", member, "in", other.leader_epoch)

    def check_join(self, view: PartitionView, leader: ReplicaView, joining: Collection[tuple[int, int]]) -> None:
        """I14: who is proposed for the ISR follows in this epoch, and has the high watermark and the epoch's start."""
        want = max(leader.high_watermark, leader.epoch_start)
        for broker_id, broker_epoch in sorted(joining):
            other = view.replicas.get(broker_id)
            if other is None or other.broker_epoch != broker_epoch:
                continue
            who = (view.tp, "broker", broker_id)
            follows = other.leader_epoch >= leader.leader_epoch
            _require(follows, "I14", *who, "joins in epoch", other.leader_epoch, "leader's is", leader.leader_epoch)
            _require(other.log_end_offset >= want, "I14", *who, "joins at", other.log_end_offset, "needed is", want)

    def check_ack(self, tp: TopicPartition, base_offset: int) -> None:
        """I10: an acks=all answer is on its way for the batch at `base_offset`."""
        memory = self._memory.setdefault(tp, _Memory())
        _require(base_offset in memory.committed, "I10", tp, "offset", base_offset, "is acknowledged, not committed")

    def takes_back(self, tp: TopicPartition, leader_epoch: int) -> bool:
        """Returns whether a replica in this epoch follows what an unclean election has chosen, and cuts away what that lacks."""
        memory = self._memory.get(tp)
        return memory is not None and 0 <= memory.unclean_epoch <= leader_epoch

    def forget(self, tp: TopicPartition) -> None:
        """The topic is deleted; one of the same name is another (HOLE-10)."""
        self._memory.pop(tp, None)

    # -- rules -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _check_stored(tp: TopicPartition, stored: StoredView, memory: _Memory) -> None:
        ids = [broker for broker, _ in stored.isr]
        _require(len(ids) == len(set(ids)) > 0, "I3", tp, "ISR is", sorted(stored.isr))
        _require(stored.leader == -1 or stored.leader in ids, "I3", tp, "leader", stored.leader, "not in ISR", ids)
        _require(set(ids) <= set(stored.replicas), "I3", tp, "ISR", ids, "beyond replicas", stored.replicas)
        before = memory.stored
        if before is not None:
            for name in ("leader_epoch", "version", "controller_epoch"):
                old, new = getattr(before, name), getattr(stored, name)
                number = "I12" if name == "controller_epoch" else "I7"
                _require(old <= new, number, tp, name, "fell from", old, "to", new)
        memory.stored = stored

    @staticmethod
    def _check_replica(tp: TopicPartition, replica: ReplicaView, memory: _Memory) -> None:
        where = (tp, "broker", replica.broker_id)
        if not 0 <= replica.high_watermark <= replica.log_end_offset:
            raise _violation("I6", *where, "HW", replica.high_watermark, "LEO", replica.log_end_offset)
        life = (replica.broker_id, replica.broker_epoch)
        seen = memory.epochs.get(life, -1)
        if seen > replica.leader_epoch:
            raise _violation("I7", *where, "leader epoch fell from", seen, "to", replica.leader_epoch)
        memory.epochs[life] = replica.leader_epoch
        _check_new_batches(where, replica, memory)
        if replica.leads:
            known = memory.appenders.setdefault(replica.leader_epoch, replica.broker_id)
            _require(known == replica.broker_id, "I8", *where, "and", known, "both lead epoch", replica.leader_epoch)

    @staticmethod
    def _remember_committed(tp: TopicPartition, replica: ReplicaView, memory: _Memory) -> None:
        if memory.unclean_epoch >= 0 and not (replica.leads and replica.leader_epoch >= memory.unclean_epoch):
            return  # it may show what the elected replica lacks, until it is told and has cut it away
        log = replica.log
        while log.remembered < len(log.batches):
            batch = log.batches[log.remembered]
            if batch.end_offset > replica.high_watermark:
                break
            known = memory.committed.setdefault(batch.base_offset, batch)
            _require(known == batch, "I5", tp, "committed as", known, "and on broker", replica.broker_id, "as", batch)
            if memory.committed_last is None or batch.base_offset > memory.committed_last.base_offset:
                memory.committed_last = batch
            log.remembered += 1

    @staticmethod
    def _check_leaders(view: PartitionView, stored: StoredView, memory: _Memory) -> None:
        for replica in view.replicas.values():
            if not replica.leads or replica.leader_epoch < memory.unclean_epoch:
                continue
            who = (view.tp, "leader", replica.broker_id)
            shown = replica.log.last_below(replica.high_watermark)
            for member, epoch in stored.isr:
                other = view.replicas.get(member)
                if shown is None or other is None or other.broker_epoch != epoch:
                    continue  # down, or in a life that this ISR does not name
                held = other.at(shown)
                # Who has this batch has all before it: that is I5.
                if held != shown:
                    raise _violation("I1", *who, "shows", shown, member, "has", held)
            if replica.epoch_starts and replica.epoch_starts[-1][0] != replica.leader_epoch:
                raise _violation("I7", *who, "has not begun epoch", replica.leader_epoch)
            if replica.leader_epoch == stored.leader_epoch and replica.broker_id == stored.leader:
                if not replica.maximal_isr >= stored.isr:
                    raise _violation("I4", *who, "counts", sorted(replica.maximal_isr), "stored is", sorted(stored.isr))
                last = memory.committed_last
                found = None if last is None else replica.at(last)
                if found != last:
                    raise _violation("I2", *who, "has", found, "committed is", last)

    @staticmethod
    def _check_members(view: PartitionView, stored: StoredView, memory: _Memory) -> None:
        """N04: any of them may be elected next, so each has everything that was ever committed."""
        last = memory.committed_last
        if last is None:
            return
        for member, epoch in stored.isr:
            other = view.replicas.get(member)
            if other is not None and other.broker_epoch == epoch:
                found = other.at(last)
                if found != last:
                    raise _violation("N04", view.tp, "ISR member", member, "has", found, "committed is", last)


def _check_new_batches(where: tuple[object, ...], replica: ReplicaView, memory: _Memory) -> None:
    """I5 by induction: a batch is the same wherever its offset and epoch occur, and so is the one before it. I7 with it."""
    log = replica.log
    starts = replica.epoch_starts
    if starts != log.starts:
        _require(all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(starts)), "I7", *where, starts)
        log.starts = starts
    while log.checked < len(log.batches):
        batch = log.batches[log.checked]
        before = log.batches[log.checked - 1] if log.checked else None
        if before is not None:
            _require(before.end_offset == batch.base_offset, "I7", *where, "hole between", before, batch)
            _require(before.leader_epoch <= batch.leader_epoch, "I7", *where, "epoch falls", before, batch)
        seen = (batch, None if before is None else (before.base_offset, before.leader_epoch))
        known = memory.written.setdefault((batch.base_offset, batch.leader_epoch), seen)
        if known[1] is None:
            memory.written[batch.base_offset, batch.leader_epoch] = seen
        # The first batch of a log whose start has moved shows nothing before it.
        same = known[0] == batch and (None in (known[1], seen[1]) or known[1] == seen[1])
        _require(same, "I5", *where, "has", seen, "and elsewhere there was", known)
        found = next((epoch for epoch, start in reversed(starts) if start <= batch.base_offset), -1)
        _require(found == batch.leader_epoch, "I7", *where, "history", starts, "contradicts", batch)
        log.checked += 1
