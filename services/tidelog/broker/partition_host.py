"""One partition on this broker: its log, its replica machine, and what waits on it. It runs effects and decides nothing."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.broker.control_plane.port import Decision
from tidelog.broker.pending import PendingProduces, Settle, Wakeup
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime.metrics import ReplicationMetrics
from tidelog.storage.partition_log import Appended, PartitionLog, TimestampOffset
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import NO_PRODUCER_ID, Batches

_log = logging.getLogger(__name__)

SYNC: Final = "sync"


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

    def busy(self, host: "PartitionHost") -> bool:
        """Whether a flush of its log is under way."""
        ...

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
    on_offline: Callable[[], None]


class PartitionHost:
    """Single threaded: every method runs to its end on the event loop."""

    __slots__ = (
        "_awaited",
        "_context",
        "_led_since",
        "assigned",
        "config",
        "isr_size",
        "leader_high_watermark",
        "log",
        "offline",
        "pending",
        "readers",
        "replica",
        "sinks",
        "told_offline",
        "topic_id",
        "tp",
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
        self.leader_high_watermark = NO_OFFSET
        """What the leader last answered to a position of this object."""
        self.offline: TidelogError | None = None
        self.told_offline: Decision | None = None
        """What the controller has said since this copy went offline."""
        self.pending = PendingProduces()
        self.unsynced = PendingProduces()
        """Produces with acks=1 to a topic with flush=sync."""
        self.readers: dict[Wakeup, None] = {}
        self.sinks: dict[int, FollowerSink] = {}
        self._context = context
        self._awaited: set[int] = set()
        """Followers of the ISR that have not connected since this leader's epoch began, for the breakdown of a failover."""
        self._led_since = 0.0

    @property
    def is_leader(self) -> bool:
        return self.replica.role is Role.LEADER

    def append(self, batches: Batches, leader_epoch: int, acks: int) -> Appended:
        """Appends what a producer sent. Raises before anything is written if it may not be.

        What an idempotent producer repeats is where it was: 0 bytes, appended before, by this leader or another (HOLE-28).
        """
        self._check_online()
        self.replica.check_produce(leader_epoch, acks)
        if batches.headers[0].producer_id != NO_PRODUCER_ID:
            stored = self.log.producers.check(batches.headers[0])
            if stored is not None:
                return Appended(stored.base_offset, stored.last_offset, 0)
        with _Disk(self):
            appended = self.log.append_as_leader(batches, self.replica.leader_epoch)
        syncs = self.config.flush == SYNC
        self.step(ev.Appended(self.log.log_end_offset, self._context.clock.now(), counts=not syncs))
        if syncs:
            self._context.flushes.request(self)
        for sink in self.sinks.values():
            sink.news(self)
        return appended

    def wait_committed(self, end: int, settle: Settle) -> None:
        """For acks=all: calls `settle` when everything below `end` is committed, at once if it is, or with why it never will."""
        self.pending.add(end, settle)
        self.pending.complete_below(self.replica.high_watermark)

    def wait_synced(self, end: int, settle: Settle) -> None:
        """For acks=1 with flush=sync; as `wait_committed`."""
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
        self._check_online()
        with _Disk(self):
            return self.log.read(offset, max_bytes, end, min_one=min_one)

    def find_time(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """The first committed batch with a record at or after the instant; None asks for the largest timestamp there is."""
        self._check_online()
        end = self.replica.high_watermark
        with _Disk(self):
            if timestamp_ms is None:
                return self.log.offset_of_max_timestamp(end)
            return self.log.offset_for_timestamp(timestamp_ms, end)

    def step(self, event: ev.Event) -> list[fx.Effect]:
        """Runs what can be run here; returns the effects that only the caller knows how to run."""
        effects = self.replica.step(event)
        return self._run(effects) if effects else []

    def _run(self, effects: Iterable[fx.Effect]) -> list[fx.Effect]:
        left: list[fx.Effect] = []
        for effect in effects:
            match effect:
                case fx.AdvanceHighWatermark():
                    self.pending.complete_below(effect.high_watermark)
                    for reader in self.readers:
                        reader.fire()
                    for sink in self.sinks.values():
                        sink.high_watermark_moved(self)
                case fx.SendRecords() | fx.AppendChunk():  # told apart here only because they come with every batch
                    left.append(effect)
                case fx.ProposeIsr():
                    self._context.proposals.propose_isr(self.tp, self.topic_id, effect)
                case fx.StartEpoch():
                    self.sinks.clear()  # what followers stated in an earlier epoch says nothing in this one (HOLE-04)
                    self._await_isr()
                    with _Disk(self):
                        self.log.assign_epoch(effect.leader_epoch, effect.start)
                case fx.StartFetching():
                    self.sinks.clear()
                    self._context.fetchers.follow(self, effect.leader)
                case fx.StopFetching():
                    self._context.fetchers.unfollow(self, self.replica.leader_epoch)
                case fx.FailPending():
                    self.pending.fail(effect.code)
                    self.unsynced.fail(effect.code)
                    for reader in self.readers:
                        reader.fire()
                case fx.TruncateTo():
                    before, began_at = self.log.log_end_offset, self._context.clock.now()
                    with _Disk(self):
                        end = self.log.truncate_to(effect.offset)
                    _log.info("%s truncated from %d to %d", self.tp, before, end)
                    self._context.metrics.truncated(before - end, self._context.clock.now() - began_at)
                    left += self.step(ev.Truncated(end))
                case _:
                    left.append(effect)
        return left

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
                self._context.metrics.isr_connected(self._context.clock.now() - self._led_since)

    def append_chunk(self, records: bytes) -> Appended:
        """What the leader sent, after the machine accepted it."""
        self._check_online()
        with _Disk(self):
            return self.log.append_as_follower(records)

    def take_offline(self, reason: TidelogError) -> None:
        """This copy is unusable; the process and its other partitions live on (reliability 8.1)."""
        if self.offline is None:
            _log.error("partition is offline on this broker: %s", reason, extra={"partition": str(self.tp)})
            self.offline = reason
            self.told_offline = None
            self._run(self.replica.step(ev.Stopped()))
            self._context.on_offline()

    def _check_online(self) -> None:
        if self.offline is not None:
            raise self.offline


class _Disk:
    """Around what touches a partition's files: a disk that fails takes the partition offline."""

    __slots__ = ("_host",)

    def __init__(self, host: PartitionHost) -> None:
        self._host = host

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TidelogError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._host.take_offline(error)
