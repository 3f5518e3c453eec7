"""One partition on this broker: its log, its replica machine, and what waits on it. It runs effects and decides nothing."""

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from tidelog.broker.control_plane.port import Decision
from tidelog.broker.pending import PendingProduces, Settle
from tidelog.broker.readers import Readers
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.recorder import CAUSE, SILENT, Cause, Recorder, led_on
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.leader import LeaderState
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime.metrics import ReplicationMetrics
from tidelog.storage.log_context import Appended
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import AS_SENT, SentCrcs
from tidelog.storage.recovery import Damage, RottenError
from tidelog.storage.segment import Segment
from tidelog.storage.time_lookup import TimestampOffset
from tidelog.topic_config import LOG_APPEND_TIME, TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import NO_CRC, NO_PRODUCER_ID, Batches
from tidelog.wire.records import check_times

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SYNC: Final = "sync"
_FENCED_S: Final = 0.1
"""The least time between two events of requests of older epochs."""
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.STALE_BROKER_EPOCH})

OnBytes = Callable[[int, bool], None]
"""Told of records on their way from a leader to a follower: how many bytes, and whether they are of a copy that a
reassignment brings."""


class FollowerSink(Protocol):
    """One follower's stream, as the partitions that it follows see it."""

    def news(self, host: "PartitionHost") -> None:
        """The log grew: send it as soon as the stream is free."""
        ...

    def high_watermark_moved(self, host: "PartitionHost") -> None:
        """Rides on the next chunk, or goes alone before long."""
        ...


class Fetchers(Protocol):
    def follow(self, host: "PartitionHost", leader: int) -> None: ...

    def unfollow(self, host: "PartitionHost", newer_epoch: int) -> None: ...

    def restate(self, host: "PartitionHost") -> None:
        """Its position may be stated now; harmless when it follows nobody."""
        ...


class Flushes(Protocol):
    def request(self, host: "PartitionHost") -> None:
        """Makes the log durable soon, off the event loop; `synced` follows unless it fails."""
        ...

    def request_epochs(self) -> None: ...

    def beside(self, name: str, work: Coroutine[Any, Any, None]) -> None: ...

    def busy(self, host: "PartitionHost") -> bool:
        """Whether a flush of its log is under way."""
        ...

    def read_index(self, host: "PartitionHost", segment: Segment) -> None:
        """Makes a lost index beside the event loop; `index_read` follows unless it fails."""
        ...

    def reads_index(self, host: "PartitionHost") -> bool: ...

    def check_stalls(self, now: float) -> None: ...

    def resumed(self, now: float) -> None: ...


class IsrProposals(Protocol):
    def propose_isr(self, tp: TopicPartition, topic_id: bytes, proposal: fx.ProposeIsr) -> None: ...


@dataclass(frozen=True, slots=True)
class HostContext:
    """What all partitions of a broker share."""

    clock: Clock
    fetchers: Fetchers
    flushes: Flushes
    proposals: IsrProposals
    metrics: ReplicationMetrics
    on_offline: "Callable[[PartitionHost], None]"
    on_rotten: "Callable[[PartitionHost, Damage], TidelogError]"
    """Decides what becomes of a log with a batch that is not what it was; returns what its reader is told."""
    recorder: Recorder = SILENT


class PartitionHost:
    """Single threaded: every method runs to its end on the event loop."""

    __slots__ = (
        "_awaited",
        "_context",
        "_fenced_until",
        "_followed",
        "_led_since",
        "_proposed",
        "assigned",
        "config",
        "follower_log_starts",
        "isr_size",
        "leader_high_watermark",
        "log",
        "moving",
        "offline",
        "pending",
        "readers",
        "replica",
        "sinks",
        "told_offline",
        "topic_id",
        "tp",
        "trimming",
        "unsynced",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        log: PartitionLog,
        replica: PartitionReplica,
        context: HostContext,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.config = config
        self.log = log
        self.replica = replica
        self.assigned: tuple[int, ...] = ()
        self.isr_size = 0
        self.moving: frozenset[int] = frozenset()
        """Followers that a reassignment brings and that the controller has not put into the ISR yet."""
        self.leader_high_watermark = NO_OFFSET
        """What the leader last answered to a position of this object."""
        self._followed: Cause | None = None
        """The event with which it began to follow its leader."""
        self.offline: TidelogError | None = None
        self.told_offline: Decision | None = None
        """What the controller has said since this copy went offline."""
        self.pending = PendingProduces()
        self.unsynced = PendingProduces()
        """Produces with acks=1 to a topic with flush=sync, and deletions of records that are to be durable."""
        self.trimming = PendingProduces()
        """Deletions of records that wait for every live replica's log start."""
        self.follower_log_starts: dict[int, int] = {}
        """As followers have stated them in this epoch."""
        self.readers = Readers()
        self.sinks: dict[int, FollowerSink] = {}
        self._context = context
        log.segment_bytes = config.segment_bytes
        self._fenced_until = -inf
        self._awaited: set[int] = set()
        """Followers of the ISR that have not connected since this leader's epoch began, for the breakdown of a failover."""
        self._led_since = 0.0
        self._proposed: fx.ProposeIsr | None = None
        """The last one, which is sent again while its outcome is not known."""

    def configure(self, config: TopicConfig) -> None:
        """The topic's settings from now on; what waits because of the old ones goes on by the new."""
        old, self.config = self.config, config
        self.log.segment_bytes = config.segment_bytes
        if old.flush == SYNC != config.flush and self.is_leader:
            # What has been appended and not synced yet counts now as it would have counted from the start.
            self.step(ev.Synced(self.log.log_end_offset, self._context.clock.now()))
            self.unsynced.complete_below(self.log.log_end_offset)

    @property
    def is_leader(self) -> bool:
        return self.replica.role is Role.LEADER

    def throttles(self, follower: int) -> bool:
        """Whether this copy waits for the quota of moves. Not once the high watermark may wait for it (KIP-73)."""
        if follower not in self.moving:
            return False
        if self.is_leader:
            return not self.replica.awaits(follower, self._context.clock.now())
        # A leader that waits for this copy has committed no more than it holds: it may count it before any controller says so.
        return self.log.log_end_offset < self.leader_high_watermark

    def append(self, batches: Batches, leader_epoch: int, acks: int) -> Appended:
        """Appends what a producer sent. Raises before anything is written if it may not be.

        What an idempotent producer repeats is where it was: 0 bytes, appended before, by this leader or another (HOLE-28).
        INVALID_TIMESTAMP when a batch is too far from this leader's clock.
        """
        self._check_online()
        self.replica.check_produce(leader_epoch, acks)
        if batches.headers[0].producer_id != NO_PRODUCER_ID:
            sent_crc = batches.headers[0].crc if batches.sent_crc == NO_CRC else batches.sent_crc
            stored = self.log.producers.check(batches.headers[0], sent_crc)
            if stored is not None:
                if stored.crc == NO_CRC:
                    self._context.metrics.unverified_repetitions.inc()
                return Appended(stored.base_offset, stored.last_offset, 0)
        now_ms = self._context.clock.wall_ms()
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            appended = self._on_disk(self.log.append_as_leader, batches, self.replica.leader_epoch, now_ms)
        else:
            check_times(batches, now_ms, self.config)
            appended = self._on_disk(self.log.append_as_leader, batches, self.replica.leader_epoch)
        self.readers.appended(self.log.log_end_offset, appended.size_bytes)
        syncs = self.config.flush == SYNC
        self.step(ev.Appended(self.log.log_end_offset, self._context.clock.now(), counts=not syncs))
        if syncs:
            self._context.flushes.request(self)
        for sink in self.sinks.values():
            sink.news(self)
        return appended

    def repeats(self, batches: Batches) -> bool:
        """Whether an idempotent producer sends again what is stored: a setting that has changed since does not refuse it."""
        header = batches.headers[0]
        try:
            return header.producer_id != NO_PRODUCER_ID and self.log.producers.check(header, header.crc) is not None
        except TidelogError:
            return False

    def wait_committed(self, end: int, settle: Settle) -> None:
        """For acks=all: calls `settle` when everything below `end` is committed, at once if it is, or with why it never will."""
        self.pending.add(end, settle)
        self.pending.complete_below(self.replica.high_watermark)

    def wait_synced(self, end: int, settle: Settle) -> None:
        """For acks=1 with flush=sync, and for a log start that is to be durable; as `wait_committed`."""
        self.unsynced.add(end, settle)
        self.unsynced.complete_below(self.log.recovery_point)

    @property
    def countable(self) -> bool:
        """Whether all that the log holds may be counted: with flush=sync only what is on the device (3.6 rule F)."""
        return self.config.flush != SYNC or self.log.recovery_point >= self.log.log_end_offset

    def may_state(self) -> bool:
        """Whether a follower may tell its position now; if not, it is restated when the log has been synced."""
        if self.countable or self.offline is not None:
            return True
        self._context.flushes.request(self)
        return False

    @property
    def holds_committed(self) -> bool:
        """Whether this follower holds everything that its leader had committed when it last answered."""
        return self.countable and NO_OFFSET < self.leader_high_watermark <= self.log.log_end_offset

    def synced(self) -> None:
        """A flush has ended well."""
        if self.is_leader:
            self.step(ev.Synced(self.log.recovery_point, self._context.clock.now()))
            self.unsynced.complete_below(self.log.recovery_point)
        elif self.countable:
            self._context.fetchers.restate(self)

    def read(self, offset: int, max_bytes: int, end: int, min_one: bool) -> bytes:
        """Empty also while a lost index is made: see `reads_index`. Readers and followers are woken when it is there."""
        self._check_online()
        try:
            return self._on_disk(
                self.log.read, offset, max_bytes, end, min_one=min_one, on_lost_index=self._index_is_lost
            )
        except RottenError as rotten:
            raise self._context.on_rotten(self, rotten.damage) from rotten

    def _index_is_lost(self, segment: Segment) -> None:
        self._context.flushes.read_index(self, segment)

    @property
    def reads_index(self) -> bool:
        """True while an index that was lost is made."""
        return self._context.flushes.reads_index(self)

    def index_read(self) -> None:
        self.readers.fire()
        for sink in self.sinks.values():
            sink.news(self)

    def find_time(self, timestamp_ms: int | None, start: int = 0) -> TimestampOffset | None:
        """The first committed batch with a record at or after the instant, of those that end after `start`; None asks for the
        largest timestamp there is."""
        self._check_online()
        end = self.replica.high_watermark
        if timestamp_ms is None:
            return self._on_disk(self.log.offset_of_max_timestamp, end, start)
        return self._on_disk(self.log.offset_for_timestamp, timestamp_ms, end, start)

    def step(self, event: ev.Event) -> list[fx.Effect]:
        """Runs what can be run here; returns the effects that only the caller knows how to run."""
        high_watermark = self.replica.high_watermark
        effects = self.replica.step(event)
        return self._run(effects, high_watermark) if effects else []

    def _run(self, effects: Iterable[fx.Effect], high_watermark: int) -> list[fx.Effect]:
        """`high_watermark`: as it was before the step."""
        left: list[fx.Effect] = []
        for effect in effects:
            match effect:
                case fx.AdvanceHighWatermark():
                    self._context.recorder.fold(self.tp, m.HighWatermarkAdvanced, high_watermark, effect.high_watermark)
                    self.pending.complete_below(effect.high_watermark)
                    self.readers.committed(effect.high_watermark)
                    for sink in self.sinks.values():
                        sink.high_watermark_moved(self)
                case fx.SendRecords() | fx.AppendChunk():  # told apart here only because they come with every batch
                    left.append(effect)
                case fx.ProposeIsr():
                    with led_on(self._record_proposal(effect)):
                        self._context.proposals.propose_isr(self.tp, self.topic_id, effect)
                case fx.StartEpoch():
                    self.sinks.clear()  # what followers stated in an earlier epoch says nothing in this one (HOLE-04)
                    self.follower_log_starts.clear()
                    self._await_isr()
                    self._on_disk(self.log.assign_epoch, effect.leader_epoch, effect.start)
                    self._record_lead(effect)
                case fx.StartFetching():
                    self._record_follow(effect)
                    self.sinks.clear()
                    self._context.fetchers.follow(self, effect.leader)
                case fx.StopFetching():
                    self._context.fetchers.unfollow(self, self.replica.leader_epoch)
                case fx.FailPending():
                    self.pending.fail(effect.code)
                    self.unsynced.fail(effect.code)
                    if not self.is_leader:
                        self.trimming.fail(effect.code)
                    self.readers.fire()
                case fx.TruncateTo():
                    before, began_at = self.log.log_end_offset, self._context.clock.now()
                    end = self._on_disk(self.log.truncate_to, effect.offset, effect.committed)
                    took_s = self._context.clock.now() - began_at
                    self._context.metrics.truncated(before - end, took_s)
                    self._record_cut(before, end, effect)
                    self._record_step(6, took_s)
                    left += self.step(ev.Truncated(end))
                case fx.ResetTo():
                    before = self.log.log_end_offset
                    self._on_disk(self.log.reset_to, effect.offset, effect.committed)
                    self._context.recorder.record(self.tp, m.LogReset(from_offset=before, to_offset=effect.offset))
                case _:
                    left.append(effect)
        return left

    def _record_lead(self, effect: fx.StartEpoch) -> None:
        recorder = self._context.recorder
        if recorder is SILENT:
            return
        log_end, high_watermark = self.log.log_end_offset, self.replica.high_watermark
        recorder.record(
            self.tp,
            m.BecameLeader(leader_epoch=effect.leader_epoch, log_end=log_end, high_watermark=high_watermark),
        )
        recorder.record(self.tp, m.EpochStarted(leader_epoch=effect.leader_epoch, start=effect.start))

    def _record_follow(self, effect: fx.StartFetching) -> None:
        self._followed = self._context.recorder.record(
            self.tp,
            m.BecameFollower(
                leader=effect.leader,
                leader_epoch=effect.leader_epoch,
                log_end=self.log.log_end_offset,
                high_watermark=self.replica.high_watermark,
            ),
        )

    def _record_cut(self, before: int, end: int, effect: fx.TruncateTo) -> None:
        fields = m.LogTruncated(from_offset=before, to_offset=end, rule=effect.rule.value, epoch=effect.epoch)
        # Positions and their answers have no causes: it is the decision to follow that leads to it.
        self._context.recorder.record(self.tp, fields, CAUSE.get() or self._followed)

    def _record_step(self, step: int, took_s: float) -> None:
        if self._context.recorder is SILENT:
            return
        fields = m.FailoverStep(step=step, took_us=round(took_s * 1_000_000), partitions=1)
        self._context.recorder.record(self.tp, fields)

    def _record_lag(self, leading: LeaderState, replica: int) -> Cause | None:
        progress, log_end = leading.progress.get(replica), self.log.log_end_offset
        offset = NO_OFFSET if progress is None else progress.offset
        behind_s = leading.lag_s(offset, log_end, self._context.clock.now())
        fields = m.LagNoticed(broker_id=replica, offset=offset, log_end=log_end, behind_ms=round(behind_s * 1000))
        return self._context.recorder.record(self.tp, fields)

    def _record_proposal(self, effect: fx.ProposeIsr) -> Cause | None:
        leading, cause = self.replica.leading, None
        before = frozenset() if leading is None else leading.isr.committed.isr
        if leading is not None and effect != self._proposed:
            for member in sorted(before - effect.isr, key=lambda each: each.broker_id):
                cause = self._record_lag(leading, member.broker_id)
        self._proposed = effect
        return self._context.recorder.record(
            self.tp,
            m.IsrProposed(
                isr_before=tuple(sorted(member.broker_id for member in before)),
                isr=tuple(sorted(member.broker_id for member in effect.isr)),
                partition_epoch=effect.partition_epoch,
            ),
            cause,
        )

    def decide(self, event: ev.LeaderAndIsr | ev.IsrAnswered) -> None:
        """Steps a decision of the controller. It alone brings the ISR below its minimum, or back."""
        if self._context.recorder is SILENT:
            self.step(event)
            return
        frozen = self._is_frozen
        self.step(event)
        leading = self.replica.leading
        if leading is None or leading.under_min_isr == frozen:
            return
        fields: dict[str, int] = {
            "high_watermark": self.replica.high_watermark,
            "log_end": self.log.log_end_offset,
            "isr_size": len(leading.isr.committed.isr),
            "min_isr": leading.min_isr,
        }
        self._context.recorder.record(
            self.tp, m.HighWatermarkFreed(**fields) if frozen else m.HighWatermarkFrozen(**fields)
        )

    @property
    def _is_frozen(self) -> bool:
        return self.replica.leading is not None and self.replica.leading.under_min_isr

    def check_epoch(self, request: str, claimed: int) -> None:
        """Raises what refuses a request of this leader epoch; -1 claims none."""
        try:
            self.replica.check_epoch(claimed)
        except TidelogError as error:
            self.fenced(request, claimed, error.code)
            raise

    def fenced(self, request: str, claimed: int, code: ErrorCode) -> ErrorCode:
        """Records that a request is refused, if that is for an older epoch, and none was a moment ago: any client may send
        thousands. Returns `code`."""
        now = self._context.clock.now()
        if code in _FENCED and now >= self._fenced_until:
            self._fenced_until = now + _FENCED_S
            fields = m.RequestFenced(
                request=request, claimed_epoch=claimed, leader_epoch=self.replica.leader_epoch, code=code
            )
            self._context.recorder.record(self.tp, fields)
        return code

    def depose(self, newer_epoch: int) -> None:
        """A follower knows a newer epoch, in which another broker leads."""
        led, epoch = self.is_leader, self.replica.leader_epoch
        self.step(ev.Deposed(newer_epoch))
        if led and not self.is_leader:
            self._context.recorder.record(self.tp, m.LeaderDeposed(leader_epoch=epoch, newer_epoch=newer_epoch))

    def move_log_start(self, offset: int) -> bool:
        """Nothing below `offset` is kept any more, as far as it is committed here. Whether that was news; followers hear of
        it as of a new high watermark."""
        offset = min(offset, self.replica.high_watermark)
        if offset <= self.log.log_start_offset:
            return False
        self._on_disk(self.log.move_log_start, offset)
        for sink in self.sinks.values():
            sink.high_watermark_moved(self)
        self.check_trimmed()
        return True

    def deletable(self, offset: int) -> int:
        """Where DeleteRecords up to `offset` lets the log begin; -1 stands for the high watermark. Raises what refuses it."""
        self._check_online()
        self.replica.check_epoch(NO_EPOCH)
        high_watermark = self.replica.high_watermark
        if not self.config.deletes:
            raise TidelogError(
                f"cleanup.policy of {self.tp.topic} is {self.config.cleanup_policy}, records are deleted by key only",
                ErrorCode.INVALID_REQUEST,
            )
        if not NO_OFFSET <= offset <= high_watermark:
            raise TidelogError(
                f"offset: {offset}, {self.tp} can be deleted up to its high watermark {high_watermark} (or -1)",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        return high_watermark if offset == NO_OFFSET else offset

    def wait_trimmed(self, offset: int, settle: Settle) -> None:
        """Calls `settle` when no live replica keeps anything below `offset`, or with why nobody will know."""
        self.trimming.add(offset, settle)
        self.check_trimmed()

    def check_trimmed(self) -> None:
        if self.trimming:
            self.trimming.complete_below(self.low_watermark())

    def low_watermark(self) -> int:
        """The lowest log start of the live replicas, as far as this leader knows."""
        start, leading = self.log.log_start_offset, self.replica.leading
        if leading is None:
            return start
        others = (each for each in self.assigned if each != self.replica.leader and each in leading.live)
        return min([start, *(self.follower_log_starts.get(each, 0) for each in others)])

    def follower_stated_start(self, follower: int, log_start: int) -> None:
        self.follower_log_starts[follower] = log_start
        self.check_trimmed()

    def _await_isr(self) -> None:
        leading = self.replica.leading
        assert leading is not None
        self._awaited = {member.broker_id for member in leading.isr.maximal_isr} - {self.replica.leader}
        self._led_since = self._context.clock.now()

    def connected(self, follower: int, sink: FollowerSink) -> None:
        """`follower` has stated a position in this epoch, and hears of this partition through `sink` from now on."""
        self.sinks[follower] = sink
        if follower in self._awaited:
            self._awaited.remove(follower)
            if not self._awaited:
                took_s = self._context.clock.now() - self._led_since
                self._context.metrics.isr_connected(took_s)
                if self.replica.leader_epoch > 0:
                    self._record_step(5, took_s)

    def append_chunk(self, records: bytes, sent: SentCrcs = AS_SENT) -> Appended:
        """What the leader sent, after the machine accepted it."""
        self._check_online()
        return self._on_disk(self.log.append_as_follower, records, sent)

    @property
    def in_sync(self) -> int:
        """Size of the ISR of a leader; 0 for a follower."""
        leading = self.replica.leading
        return 0 if leading is None else len(leading.isr.committed.isr)

    @property
    def is_sole(self) -> bool:
        """It leads, and no other replica is in sync: this copy is the partition."""
        return self.in_sync == 1

    def refused(self, damage: Damage) -> TidelogError:
        """Where nobody decides about rot: the whole copy is given up."""
        self.condemn(damage)
        assert self.offline is not None
        return self.offline

    def condemn(self, damage: Damage) -> None:
        """This copy is to be fetched again from the damage on."""
        self.take_offline(self.log.condemn(damage))

    def take_offline(self, reason: TidelogError) -> None:
        """This copy is unusable; the process and its other partitions live on (reliability 8.1)."""
        if self.offline is None:
            _log.error("partition is offline on this broker: %s", reason, extra={"partition": str(self.tp)})
            self.offline = reason
            self.step(ev.Stopped())
            self._context.on_offline(self)

    def _check_online(self) -> None:
        if self.offline is not None:
            raise self.offline

    def _on_disk(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What touches the partition's files: a disk that fails takes the partition offline."""
        try:
            return act(*args, **named)
        except TidelogError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.take_offline(error)
            raise
