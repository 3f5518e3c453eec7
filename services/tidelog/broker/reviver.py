"""Brings back partitions that a disk error took offline, and logs that could not be opened, when trying again may help."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.broker.control_plane.port import Decision
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.revival import NO_PAUSE, Pause, Step, next_step
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.replica.effects import Rule
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.trouble import Trouble

_log = logging.getLogger(__name__)

POLL_S: Final = 1.0


class Reviver:
    def __init__(self, broker_id: int, manager: ReplicaManager, logs: LogStore, clock: Clock, disk: Disk) -> None:
        self._broker_id = broker_id
        self._manager = manager
        self._logs = logs
        self._clock = clock
        self._disk = disk

    async def run(self, wanted_bytes: int) -> None:
        """`wanted_bytes`: free space that is worth another attempt."""
        pauses: dict[TopicPartition, Pause] = {}
        while True:
            await self._clock.sleep(POLL_S)
            now = self._clock.now()
            for tp, host in self._sick():
                pause = pauses.get(tp, NO_PAUSE)
                if pause.forgotten(now):
                    pause = NO_PAUSE.longer(now)  # the first pause begins with the failure
                    pauses[tp] = pause
                next_step_now = partial(self._next_step, tp, host, wanted_bytes, pause.attempts - 1)
                if now >= pause.until and (step := next_step_now()) is not Step.WAIT:
                    pauses[tp] = pause.longer(now)
                    await self._revive(tp, host, next_step_now, step)
            self._end_lacking()
            await self._disk.in_background(self._logs.restore_reserve)

    def _room_bytes(self) -> int:
        """0 where the file system does not tell: what waits for space goes on waiting."""
        try:
            return self._logs.room_bytes
        except OSError as error:
            _log.warning("free space is not known: %s", error)
            return 0

    def _sick(self) -> list[tuple[TopicPartition, PartitionHost | None]]:
        """Partitions that are offline, and logs that could not be opened."""
        found: list[tuple[TopicPartition, PartitionHost | None]] = [
            (host.tp, host) for host in self._manager if host.offline is not None
        ]
        return found + [(tp, None) for tp in self._logs.failed]

    def _next_step(self, tp: TopicPartition, host: PartitionHost | None, wanted_bytes: int, attempts: int) -> Step:
        if self._manager.find(tp) is not host or (host is None and tp not in self._logs.failed):
            return Step.WAIT  # it is gone, or another one by now
        if host is not None and (host.offline is None or self._manager.flushes(host)):
            return Step.WAIT
        told = self._last_told(tp, host)
        state = None if told is None else told.state
        trouble = None if host is None else host.log.trouble
        return next_step(trouble or Trouble.IO, self._broker_id, state, self._room_bytes(), wanted_bytes, attempts)

    def _last_told(self, tp: TopicPartition, host: PartitionHost | None) -> Decision | None:
        return self._manager.unopened.get(tp) if host is None else host.told_offline

    async def _revive(
        self, tp: TopicPartition, host: PartitionHost | None, next_step_now: Callable[[], Step], step: Step
    ) -> None:
        """On success the partition is as after a start of the process: the controller hears of it and says what to do.

        With DISCARD records are thrown away without a word. A proposal for the ISR that is not judged yet, or that the leader
        makes later, may rest on what this broker said before. So the right life of the broker is not enough for the copy to be
        admitted: it goes on counting as failed, does what it was told last, and holds what its leader has committed before any
        controller believes that it works. A controller that has just been elected hears of the failure first.
        """
        if step is Step.DISCARD and (told := self._last_told(tp, host)) is not None:
            self._manager.lacking[tp] = told
        try:
            if host is None and step is Step.DISCARD:
                self._logs.delete(tp)  # no attempt could read it, so it cannot be cut
            elif not await self._reopen(tp, host, next_step_now, step):
                return
        except (OSError, TidelogError) as error:
            _log.warning("%s stays offline: %s", tp, error)
            return
        if host is not None:
            self._manager.forget(host)
        if tp in self._manager.lacking:
            self._manager.become([self._manager.lacking[tp]], self._manager.live)
        self._manager.on_failed()

    async def _reopen(
        self, tp: TopicPartition, host: PartitionHost | None, next_step_now: Callable[[], Step], step: Step
    ) -> bool:
        """OSError or KAFKA_STORAGE_ERROR while the disk fails. False if what was decided does not hold any more in the end."""
        discard, before = step is Step.DISCARD, 0 if host is None else self._logs.marks.end(host.log)
        high_watermark = host.replica.high_watermark if host else 0
        reopening = self._logs.begin_reopen(tp, high_watermark=high_watermark, discard=discard)
        if reopening is None:
            return True
        # A log that was not flushed for long takes long to read. Once this is cancelled, a thread may still use its files.
        error, ended = await self._disk.in_background(reopening.outcome), False
        try:
            if error is not None:
                raise error
            rebuilt_on = self._manager.lacking.get(tp)
            anew = rebuilt_on is not None and rebuilt_on.config.compacts
            cuts = reopening.cuts()
            if anew:
                cuts[reopening.log.key] = reopening.log.log_start_offset
            async with self._manager.cuts.lowered(cuts):
                if next_step_now() is not step:
                    return False  # only what this very copy is told now lets records be thrown away
                ended, log = True, self._logs.end_reopen(reopening)
                self._reopened(log, host, discard=discard, before=before, anew=anew)
        finally:
            if not ended:
                self._logs.give_up_reopen(reopening)
        return True

    def _reopened(
        self, log: PartitionLog, host: PartitionHost | None, *, discard: bool, before: int, anew: bool
    ) -> None:
        if log.failure is not None:
            raise TidelogError(log.failure, ErrorCode.KAFKA_STORAGE_ERROR)
        tp = TopicPartition(log.key.topic, log.key.partition)
        if host is not None and discard:
            lost = Rule.FAILED_SYNC if host.log.trouble is Trouble.SYNC else Rule.DAMAGE
            self._manager.record_cut(tp, before, log.log_end_offset, lost)
            if host.told_offline is not None:
                self._manager.lacking[tp] = host.told_offline
        if anew:
            # Its leader may have dropped tombstones of keys that this copy would still hold.
            before = log.log_end_offset
            end = log.truncate_to(log.log_start_offset, log.recorded_high_watermark)
            self._manager.record_cut(tp, before, end, Rule.BEGUN_ANEW)
        _log.info("%s is back, its log ends at %d", tp, log.log_end_offset)

    def _end_lacking(self) -> None:
        hosts = [host for host in map(self._manager.find, self._manager.lacking) if host is not None]
        whole = [host for host in hosts if host.offline is None and host.holds_committed]
        for host in whole:
            _log.info("%s holds again what its leader has committed", host.tp)
            del self._manager.lacking[host.tp]
        if whole:
            self._manager.on_failed()
