"""All partitions of this broker: opens and removes their logs, applies the controller's decisions, ticks, checkpoints."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.broker.control_plane.port import ControlPlane, Decision
from tidelog.broker.cuts import Cuts
from tidelog.broker.partition_host import SYNC, Fetchers, Flushes, HostContext, PartitionHost
from tidelog.broker.pending import Settle
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import DELETED_TOPIC_EPOCH, NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.names import shown, validate_topic_name
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.ports.recorder import SILENT, Recorder
from tidelog.replica import events as ev
from tidelog.replica.effects import ProposeIsr, Rule
from tidelog.replica.isr import Member
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime.metrics import ReplicationMetrics
from tidelog.runtime.tasks import HandlerBug, contained_step
from tidelog.sizes import Carriage
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Damage
from tidelog.storage.strays import Stray, Strays
from tidelog.wire import messages as m

_log = logging.getLogger(__name__)

_TAIL_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    broker_id: int
    lag_max_s: float
    tick_s: float
    checkpoint_s: float


class ReplicaManager:
    """Implements `control_plane.port.Replicas`."""

    def __init__(
        self,
        settings: ReplicaSettings,
        clock: Clock,
        logs: LogStore,
        metrics: ReplicationMetrics,
        disk: Disk,
        recorder: Recorder = SILENT,
    ) -> None:
        self._recorder = recorder
        self._settings = settings
        self._clock = clock
        self._logs = logs
        logs.strays.on_cut = _tell_cut
        self._hosts: dict[TopicPartition, PartitionHost] = {}
        self.examined: set[TopicPartition] = set()
        """Partitions of topics whose records are looked at when they come, mostly none."""
        self._metrics = metrics
        self._disk = disk
        self._context: HostContext | None = None
        self.on_rotten: Callable[[PartitionHost, Damage], TidelogError] = PartitionHost.refused
        """Called when a batch is found that is not what it was; returns what its reader is told."""
        self.on_failed: Callable[[], None] = lambda: None
        """Called when `failed` has changed."""
        self._former: dict[TopicPartition, tuple[bytes, PartitionReplica]] = {}
        """Copies that came back from a disk error and have no orders yet, with their topic ids."""
        self.live: dict[int, int] = {}
        self.carriage = Carriage()
        """Limits of what is appended here and sent from here."""
        self.bugs = 0
        """Orders whose application raised what is no part of the protocol."""
        self._hands_over = False
        self._checkpointing = asyncio.Lock()
        self.cuts = Cuts(logs, disk, partial(self.checkpoint, durable=True))
        self._starts: list[tuple[PartitionHost, int, Settle]] = []
        """Log starts that the next checkpoint makes durable."""
        self.lacking: dict[TopicPartition, Decision] = {}
        """Copies that lack records for which they may be counted, until they have fetched them; with their last orders."""
        self.unopened: dict[TopicPartition, Decision] = {}
        """Last orders for partitions whose logs could not be opened."""

    def connect(self, fetchers: Fetchers, control_plane: ControlPlane, flushes: Flushes) -> None:
        """Closes the circle of construction: these need the manager, and it needs them."""
        self._context = HostContext(
            *(self._clock, fetchers, flushes, control_plane, self._metrics, self._went_offline),
            lambda host, damage: self.on_rotten(host, damage),
            self._recorder,
        )

    def _went_offline(self, host: PartitionHost) -> None:
        """A copy that lacks records counts as failed already, so the controller sends no new orders: its last ones still hold."""
        host.told_offline = self.lacking.get(host.tp)
        self.on_failed()

    def __iter__(self) -> Iterator[PartitionHost]:
        return iter(self._hosts.values())

    @property
    def strays(self) -> Strays:
        return self._logs.strays

    @property
    def another_past(self) -> str:
        return self._logs.past.another

    def __len__(self) -> int:
        return len(self._hosts)

    def find(self, tp: TopicPartition) -> PartitionHost | None:
        return self._hosts.get(tp)

    def find_named(self, topic: str, partition: int) -> PartitionHost | None:
        return self._hosts.get(TopicPartition(topic, partition))

    def host(
        self, topic: str, partition: int, topic_id: bytes = b"", foreign: ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
    ) -> PartitionHost:
        """What a request names; INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, or `foreign` where the id is that of
        another topic of this name (HOLE-10)."""
        host = self._hosts.get(TopicPartition(topic, partition))
        if host is None:
            validate_topic_name(topic)
            raise TidelogError(
                f"partition {topic}-{partition} has no replica on broker {self._settings.broker_id}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if topic_id and topic_id != host.topic_id:
            raise TidelogError(f"topic_id {shown(topic_id.hex())} of {topic} is not {host.topic_id.hex()!r}", foreign)
        return host

    # -- decisions ---------------------------------------------------------------------------------------------------

    def become(self, decisions: Sequence[Decision], live: dict[int, int]) -> list[m.PartitionResult]:
        self.live = live
        now = self._clock.now()
        results: list[m.PartitionResult] = []
        begun: dict[int, PartitionHost] = {}
        """Those that lead in a new epoch, by their place in the results."""
        for decision in decisions:
            state = decision.state
            try:
                host = contained_step(
                    f"an order for {state.topic}-{state.partition}", partial(self._become, decision, live, now)
                )
                code = ErrorCode.NONE
                if host is not None:
                    begun[len(results)] = host
            except HandlerBug as bug:
                code = self._give_up(TopicPartition(state.topic, state.partition), bug)
            except TidelogError as error:
                _log.warning("%s-%s: %s", state.topic, state.partition, error)
                code = error.code
                if code is ErrorCode.KAFKA_STORAGE_ERROR:
                    self.on_failed()
            results.append(_result(state, code))
        if begun:
            # One write for all new epochs, before anything is appended or answered in them (KAFKA-7415, design section 3).
            assert self._context is not None
            try:
                self._logs.write_epochs()
            except TidelogError as error:
                for place, host in begun.items():
                    host.take_offline(error)
                    results[place] = _result(decisions[place].state, error.code)
            else:
                self._context.flushes.request_epochs()
        return results

    def _give_up(self, tp: TopicPartition, bug: HandlerBug) -> ErrorCode:
        """An order that met a bug costs its own partition, and not those beside it."""
        self.bugs += 1
        host = self._hosts.get(tp)
        if host is not None:
            error = TidelogError(f"an order could not be applied: {bug}", ErrorCode.KAFKA_STORAGE_ERROR)
            try:
                contained_step(f"the end of {tp}", partial(host.take_offline, error))
            except HandlerBug:
                pass  # logged, and offline all the same
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _become(self, decision: Decision, live: dict[int, int], now: float) -> PartitionHost | None:
        """The partition, if it leads in an epoch that begins now."""
        state = decision.state
        tp = TopicPartition(state.topic, state.partition)
        host = self._hosts.get(tp)
        if host is not None and host.topic_id != state.topic_id:
            # The name was deleted and created again while we did not look: the old data are another topic's (HOLE-10).
            self._remove(host, keep=True)
            host = None
        if host is None:
            host = self._open(tp, decision)
            if host.offline is None and self._lacks_all(host, state):
                self.lacking[tp] = decision
        if host.offline is not None:
            host.told_offline = decision
            raise host.offline
        if state.leader_epoch < host.replica.leader_epoch:
            host.fenced("LeaderAndIsr", state.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
            raise TidelogError(
                f"leader_epoch {state.leader_epoch} is older than {host.replica.leader_epoch}",
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        if state.leader == self._settings.broker_id:
            if tp in self.lacking and not state.recovering:
                raise TidelogError(
                    f"leader_epoch {state.leader_epoch}: this copy lacks records, and leads only after an unclean election",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                )
            self._check_led_before(host.replica, state.leader_epoch)
            if state.leader_epoch < host.log.epochs.latest_epoch:
                host.take_offline(_older_epoch(host, state.leader_epoch))
                raise _older_epoch(host, state.leader_epoch)
            if host.log.dropped_to > host.log.log_end_offset:
                host.log.record_dropped_to(host.log.log_end_offset)  # what it has not copied by now is nobody's
            self.lacking.pop(tp, None)  # elected uncleanly: what it holds is what there is
        elif tp in self.lacking:
            self.lacking[tp] = decision
        before = host.is_leader, host.replica.leader_epoch
        (self.examined.add if decision.config.examined else self.examined.discard)(tp)
        host.configure(decision.config)
        host.isr_size = len(state.isr)
        host.moving = frozenset(state.adding_replicas) - {member.broker_id for member in state.isr}
        host.assigned = tuple(each for each in state.replicas if each not in state.adding_replicas)
        host.decide(
            ev.LeaderAndIsr(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=frozenset(Member(x.broker_id, x.broker_epoch) for x in state.isr),
                replicas=state.replicas,
                min_isr=decision.config.min_insync_replicas,
                live=live,
                at=now,
                own_end=host.log.recovery_point if decision.config.flush == SYNC else None,
                recovering=state.recovering,
                adding=state.adding_replicas,
            )
        )
        if host.is_leader and not host.countable:
            assert self._context is not None
            self._context.flushes.request(host)
        host.check_trimmed()
        return host if host.is_leader and before != (True, host.replica.leader_epoch) else None

    def _lacks_all(self, host: PartitionHost, state: m.PartitionState) -> bool:
        """Returns whether this log lacks all that its in-sync set counts on.

        An in-sync set from an older copy of ZooKeeper may name a replica that has moved away since, and whose log was deleted.
        Its new log has no history. Neither has a follower's if the partition never had a record; the two cannot be told apart.
        """
        is_first = state.is_new or state.partition_epoch == 0
        counts = any(member.broker_id == self._settings.broker_id for member in state.isr)
        has_history = host.log.log_end_offset > 0 or host.log.epochs.latest_epoch >= 0
        return counts and not is_first and not has_history and self.another_past != ""

    @staticmethod
    def _check_led_before(replica: PartitionReplica, leader_epoch: int) -> None:
        """A copy that came back has forgotten its proposals for the ISR of the epoch that it led. The controller may have granted
        one, or still will, so a high watermark counted by the ISR of an order could leave a member out."""
        if replica.role is Role.NONE and leader_epoch <= replica.led_epoch:
            raise TidelogError(
                f"leader_epoch {leader_epoch}: this copy was closed in this epoch, and leads again only in a newer one",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )

    def _open(self, tp: TopicPartition, decision: Decision) -> PartitionHost:
        assert self._context is not None
        topic_id = decision.state.topic_id
        if self._logs.stored_topic_id(tp) not in (None, topic_id):
            self._set_aside(tp)
        try:
            log = self._logs.create(tp, topic_id)
        except TidelogError:
            self.unopened[tp] = decision
            raise
        self.unopened.pop(tp, None)
        replica = PartitionReplica(
            self._settings.broker_id, log.log_end_offset, log.recorded_high_watermark, self._settings.lag_max_s
        )
        if (former := self._former.pop(tp, None)) is not None and former[0] == topic_id:
            replica.remember_epochs(former[1])
        host = self._hosts[tp] = PartitionHost(tp, topic_id, decision.config, log, replica, self._context)
        if log.failure is not None:
            host.take_offline(TidelogError(log.failure, ErrorCode.KAFKA_STORAGE_ERROR))
        if self._hands_over:
            host.step(ev.HandOver())
        return host

    def stop(self, tp: TopicPartition, topic_id: bytes, leader_epoch: int, delete: bool) -> ErrorCode:
        """StopReplica; a smaller or equal epoch is a late or repeated command (HOLE-09)."""
        key = LogKey(tp.topic, tp.partition, topic_id)
        if delete and leader_epoch == DELETED_TOPIC_EPOCH:
            for cut in self.strays.cuts(key):
                self.delete_stray(cut)
            if (stray := self.strays.find(key)) is not None:
                return self.delete_stray(stray)
        host = self._hosts.get(tp)
        if host is None:
            if topic_id and self._logs.stored_topic_id(tp) not in (None, topic_id):
                return ErrorCode.INCONSISTENT_TOPIC_ID
            return self._delete_log(tp) if delete else ErrorCode.NONE
        if topic_id and topic_id != host.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if leader_epoch not in (DELETED_TOPIC_EPOCH, NO_EPOCH) and leader_epoch <= host.replica.leader_epoch:
            return host.fenced("StopReplica", leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
        if delete:
            return self._remove(host, keep=False)
        host.step(ev.Stopped())
        return ErrorCode.NONE

    def _remove(self, host: PartitionHost, *, keep: bool) -> ErrorCode:
        host.step(ev.Stopped())
        host.offline = TidelogError(f"{host.tp} is no longer on this broker", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        del self._hosts[host.tp]
        self.lacking.pop(host.tp, None)
        self.examined.discard(host.tp)
        if not keep:
            return self._delete_log(host.tp)
        code = self._set_aside(host.tp, host.replica.high_watermark)
        self._former[host.tp] = host.topic_id, host.replica
        return code

    def _delete_log(self, tp: TopicPartition) -> ErrorCode:
        """A bad folder must not keep the partitions beside it from their orders."""
        self._former.pop(tp, None)
        self.unopened.pop(tp, None)
        try:
            self._logs.delete(tp)
        except TidelogError as error:
            _log.error("%s", error)
            return error.code
        return ErrorCode.NONE

    def delete_stray(self, stray: Stray) -> ErrorCode:
        """Its topic is deleted, this broker has no replica of it any more, or what was cut off it has been kept for long."""
        try:
            self._logs.delete_stray(stray)
        except OSError as error:
            _log.error("%s cannot be deleted: %s", stray.folder, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        _log.info("%s is deleted", stray.folder)
        return ErrorCode.NONE

    def _set_aside(self, tp: TopicPartition, high_watermark: int = 0) -> ErrorCode:
        """Closes a log whose topic may not be deleted; the records stay."""
        self.unopened.pop(tp, None)
        try:
            stray = self._logs.set_aside(tp, high_watermark)
        except TidelogError as error:
            _log.error("%s", error)
            return error.code
        if stray is not None:
            _log.warning("%s is not listed by the controller: its log is set aside as %s", tp, stray.folder)
        return ErrorCode.NONE

    def set_strays_aside(self, listed: frozenset[tuple[TopicPartition, bytes]]) -> None:
        """Follows a full LeaderAndIsr. What it leaves out was deleted while this broker was away, or the list is wrong."""
        for host in [h for h in self._hosts.values() if (h.tp, h.topic_id) not in listed]:
            self._remove(host, keep=True)
        for tp in [*self._logs.logs, *self._logs.failed]:
            if (tp, self._logs.stored_topic_id(tp)) not in listed:
                self._set_aside(tp)

    def failed(self) -> tuple[m.PartitionResult, ...]:
        """Those that are rebuilt among them: a controller that hears of them admits them to no in-sync set."""
        unopened = tuple(
            m.PartitionResult(
                topic=tp.topic, partition=tp.partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR, topic_id=log.topic_id
            )
            for tp, log in self._logs.failed.items()
        )
        return unopened + tuple(
            m.PartitionResult(
                topic=host.tp.topic,
                partition=host.tp.partition,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR if host.offline is None else host.offline.code,
                topic_id=host.topic_id,
            )
            for host in self._hosts.values()
            if host.offline is not None or host.tp in self.lacking
        )

    def isr_answered(
        self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr, code: ErrorCode, state: m.LeaderAndIsr | None
    ) -> None:
        host = self._hosts.get(tp)
        if host is None or host.topic_id != topic_id:
            return
        before = host.replica.isr
        size_before = len(before.committed.isr) if before is not None else 0
        self._recorder.record(tp, _isr_answer(code, state))
        host.decide(
            ev.IsrAnswered(
                proposal=proposal,
                code=code,
                leader_epoch=state.leader_epoch if state is not None else NO_EPOCH,
                partition_epoch=state.current_zk_version if state is not None else NO_EPOCH,
                isr=frozenset(Member(x.broker_id, x.broker_epoch) for x in state.isr) if state else frozenset(),
                at=self._clock.now(),
            )
        )
        after = host.replica.isr
        size_after = len(after.committed.isr) if after is not None else size_before
        if code is not ErrorCode.NONE:
            self._metrics.isr_update_failures.inc()
        elif size_after > size_before:
            self._metrics.isr_expands.inc()
        elif size_after < size_before:
            self._metrics.isr_shrinks.inc()

    def live_changed(self, live: Mapping[int, int]) -> None:
        self.live = dict(live)
        now = self._clock.now()
        for host in self._hosts.values():
            if host.is_leader:
                host.step(ev.LiveBrokers(self.live, now))
                host.check_trimmed()

    async def hand_over(self, limit_s: float) -> int:
        """Appends nothing more as leader, and waits until the ISR holds all that was. Returns how many partitions lead
        with a tail that is not replicated after `limit_s`."""
        self._hands_over = True
        for host in self._hosts.values():
            host.step(ev.HandOver())
        deadline = self._clock.now() + limit_s
        behind = list(self._hosts.values())
        while True:
            behind = [host for host in behind if host.offline is None and not host.replica.tail_is_replicated]
            if not behind or self._clock.now() >= deadline:
                return len(behind)
            await self._clock.sleep(_TAIL_POLL_S)

    # -- logs of any state ---------------------------------------------------------------------------------------------

    def stored(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every open log, also those that no order has named yet."""
        return self._logs.logs

    def recorded_end(self, log: PartitionLog) -> int:
        return self._logs.marks.end(log)

    def end_of(self, asked: m.ReplicaEndsPartition) -> m.ReplicaEnd:
        """The end of a log, also of one that no order has named yet."""
        tp = TopicPartition(asked.topic, asked.partition)
        code, last_epoch, end_offset = ErrorCode.NONE, NO_EPOCH, 0
        try:
            log = self._logs.get(tp)
            if log is not None and log.key.topic_id == asked.topic_id:
                code = ErrorCode.NONE if log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
                last_epoch, end_offset = log.last_record_epoch, log.log_end_offset
        except TidelogError as error:
            code = error.code
        return m.ReplicaEnd(
            topic=tp.topic, partition=tp.partition, error_code=code, last_epoch=last_epoch, end_offset=end_offset
        )

    def discard_damage(self, tp: TopicPartition, end: int) -> None:
        """Cuts a damaged log where its damage begins, on an operator's word; then it is as after a start of the process.
        `end` is where its records end, as far as it can be known.

        INVALID_REQUEST where it is not for an operator to say. The damage must have been found before this broker registered:
        only then does the controller know that this copy may lack records (`intact_since`).
        """
        host = self._hosts.get(tp)
        if host is None or host.told_offline is None:
            raise TidelogError(f"no controller has named the leader of {tp}; ask again", ErrorCode.INVALID_REQUEST)
        leader = host.told_offline.state.leader
        if leader not in (NO_LEADER, self._settings.broker_id):
            raise TidelogError(
                f"broker {leader} leads {tp}: this one discards the damage by itself and fetches it again",
                ErrorCode.INVALID_REQUEST,
            )
        if self._logs.intact_since is None:
            raise TidelogError(
                f"the damage of {tp} was found after broker {self._settings.broker_id} had registered; restart it first",
                ErrorCode.INVALID_REQUEST,
            )
        host.log.discard_damage(max(self.recorded_end(host.log), host.log.log_end_offset + 1))
        self.record_cut(tp, end, host.log.log_end_offset, Rule.DAMAGE)
        _log.warning("%s was cut at its damage by an operator, its log ends at %d", tp, host.log.log_end_offset)
        self.forget(host)
        self.on_failed()

    def record_cut(self, tp: TopicPartition, before: int, end: int, rule: Rule) -> None:
        self._recorder.record(tp, m.LogTruncated(from_offset=before, to_offset=end, rule=rule.value, epoch=NO_EPOCH))

    def forget(self, host: PartitionHost) -> None:
        """The partition is as after a start of the process: the controller says what to do. Its log stays."""
        self._hosts.pop(host.tp, None)
        self._former[host.tp] = host.topic_id, host.replica

    def flushes(self, host: PartitionHost) -> bool:
        """Returns whether a thread may be at work on its files."""
        return self._context is not None and self._context.flushes.busy(host)

    # -- time --------------------------------------------------------------------------------------------------------

    async def run_ticks(self) -> None:
        """Lag is judged here. A gap between two ticks is our own pause, not the followers' (row 9, COORD-8)."""
        assert self._context is not None
        flushes = self._context.flushes
        last = self._clock.now()
        while True:
            await self._clock.sleep(self._settings.tick_s)
            now = self._clock.now()
            paused = now - last > self._settings.tick_s + self._settings.lag_max_s / 4
            last = now
            if paused:
                _log.warning("this process stood still; lag is measured anew")
                flushes.resumed(now)
            flushes.check_stalls(now)
            pending_s = 0.0
            for host in list(self._hosts.values()):
                if host.replica.heeds_time:
                    if paused:
                        host.step(ev.Resumed(now))
                    host.step(ev.Tick(now))
                if host.replica.leading is not None:
                    pending_s = max(pending_s, host.replica.leading.pending_s(now))
            self._metrics.isr_change_pending.set(pending_s)

    async def run_checkpoints(self) -> None:
        while True:
            await self._clock.sleep(self._settings.checkpoint_s)
            self._logs.expire_producers(self._clock.now())
            try:
                await self.checkpoint()
                await self._disk.in_background(self._logs.purge)
            except (TidelogError, OSError) as error:
                # An older checkpoint is always safe; a full disk must not end the process (reliability 8.1).
                _log.error("checkpoint failed: %s", error)

    async def checkpoint(self, *, durable: bool = False) -> None:
        """All high watermarks in one file; entries of partitions not opened yet are carried over.

        A `durable` one survives a loss of power at once, others with the next one.
        """
        async with self._checkpointing:
            checkpoint = self._logs.begin_checkpoint(self.high_watermarks())
            failed: OSError | None = None
            try:
                await self._disk.in_background(checkpoint.run)
            except OSError as error:
                failed = error
            for tp, reason in self._logs.end_checkpoint(checkpoint, failed).items():
                if host := self._hosts.get(tp):
                    host.take_offline(reason)
            if durable:
                await self._disk.in_background(self._logs.sync_names)
                self._logs.marks.names_synced()

    def durable_start(self, host: PartitionHost) -> int:
        """The log begins there or later after the end of this process."""
        return self._logs.durable_start(host.log)

    def wait_start_durable(self, host: PartitionHost, offset: int, settle: Settle) -> None:
        """Calls `settle` when neither the end of this process nor a loss of power can bring back what lies below `offset`, which
        the log does not serve any more; or with the reason why that will not be. All that wait in one turn share a checkpoint."""
        assert self._context is not None
        if self.durable_start(host) >= offset:
            settle(ErrorCode.NONE)
            return
        # A checkpoint names no start above what is synced.
        host.wait_synced(offset, partial(self._start_synced, host, offset, settle))
        if host.log.recovery_point < offset:
            self._context.flushes.request(host)

    def _start_synced(self, host: PartitionHost, offset: int, settle: Settle, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            settle(code)
            return
        assert self._context is not None
        self._starts.append((host, offset, settle))
        if len(self._starts) == 1:
            self._context.flushes.beside("checkpoint of log starts", self._run_starts())

    async def _run_starts(self) -> None:
        while self._starts:
            code, begun = ErrorCode.NONE, len(self._starts)
            try:
                await self.checkpoint(durable=True)
            except (TidelogError, OSError) as error:
                _log.error("checkpoint of log starts failed: %s", error)
                code = ErrorCode.KAFKA_STORAGE_ERROR
            again = []
            for host, offset, settle in self._starts[:begun]:
                if code is not ErrorCode.NONE or self._logs.durable_start(host.log) >= offset:
                    settle(code)
                elif not host.is_leader:
                    settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                else:
                    again.append((host, offset, settle))  # another log was cut meanwhile
            self._starts[:begun] = again
            if again:
                await self._clock.sleep(_TAIL_POLL_S)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks that have moved since the last checkpoint.

        Those of copies that are offline are left out: a cut that the disk refused has lowered them already.
        """
        hosts = self._hosts.values()
        return {
            h.tp: h.replica.high_watermark
            for h in hosts
            if h.replica.high_watermark != h.log.recorded_high_watermark and h.offline is None
        }


def _isr_answer(code: ErrorCode, state: m.LeaderAndIsr | None) -> m.IsrAnswered:
    if state is None:
        return m.IsrAnswered(code=code, partition_epoch=NO_EPOCH)
    isr = tuple(sorted(member.broker_id for member in state.isr))
    return m.IsrAnswered(code=code, isr=isr, partition_epoch=state.current_zk_version)


def _tell_cut(stray: Stray, records: int) -> None:
    _log.warning(
        "%s: %d records from offset %d on, of which some were committed, are cut off the log: %d bytes are set aside in %s",
        *(stray.key, records, stray.cut_at, stray.size_bytes, stray.folder),
    )


def _older_epoch(host: PartitionHost, leader_epoch: int) -> TidelogError:
    return TidelogError(
        f"leader_epoch {leader_epoch} is older than {host.log.epochs.latest_epoch}, in which records of {host.tp} were written: "
        "the controller's state may come from an older copy of ZooKeeper",
        ErrorCode.KAFKA_STORAGE_ERROR,
    )


def _result(state: m.PartitionState, code: ErrorCode) -> m.PartitionResult:
    return m.PartitionResult(topic=state.topic, partition=state.partition, error_code=code, topic_id=state.topic_id)
