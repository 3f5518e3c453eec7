"""Compacts the logs of topics with cleanup.policy=compact, the one with most to gain first (Kafka's log cleaner).

A worker process reads and writes; on the event loop a swap renames a few files. Every replica compacts its own log, below
its own high watermark, so replicas of one partition hold different bytes and the same newest records.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.retention import read_index, segment_dated
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.ports.worker import Worker
from tidelog.runtime.clock import RetentionClock
from tidelog.runtime.metrics import CleanerMetrics
from tidelog.storage.checkpoint import OffsetCheckpoint
from tidelog.storage.cleanable import Cleanable, cleanable
from tidelog.storage.compaction import Cleaned, Compaction, CompactionRules, Finished, Progress
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Damage
from tidelog.storage.segment_swap import SegmentSwap, closed_below

_log = logging.getLogger(__name__)

SICK_S = 60.0
"""How long a log is left alone whose pass has failed."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    backoff_s: float
    """Between two looks when there is nothing to do."""
    keys_max: int
    inflated_bytes_max: int
    index_interval_bytes: int
    bytes_per_s: float
    """Read at most so fast; infinity: as fast as it goes."""


class LogCleaner:
    def __init__(
        self,
        settings: CleanerSettings,
        worker: Worker,
        clock: Clock,
        disk: Disk,
        hosts: Iterable[PartitionHost],
        offsets: OffsetCheckpoint,
        metrics: CleanerMetrics,
        on_damage: Callable[[PartitionHost, Damage], object],
        all_in_sync: Callable[[TopicPartition], bool],
    ) -> None:
        """`offsets`: the first dirty offset of each log. `all_in_sync`: whether the ISR of a partition is complete."""
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._disk = disk
        self._hosts = hosts
        self._offsets = offsets
        self._metrics = metrics
        self._on_damage = on_damage
        self._all_in_sync = all_in_sync
        self._time = RetentionClock(clock.wall_ms(), clock.now())
        self._horizons: dict[PartitionLog, int] = {}
        """When the first tombstone that is left in a log may go."""
        self._sick: dict[TopicPartition, float] = {}

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._settings.backoff_s)
            while (found := await self._filthiest()) is not None:
                await self.clean(*found)

    async def _filthiest(self) -> tuple[PartitionHost, Cleanable] | None:
        hosts = [host for host in self._hosts if host.config.compacts and _works(host)]
        self._horizons = {host.log: at for host in hosts if (at := self._horizons.get(host.log)) is not None}
        best: tuple[PartitionHost, Cleanable] | None = None
        worst = 0.0
        for host in hosts:
            if self._sick.get(host.tp, 0.0) > self._clock.now() or not _works(host):
                continue
            try:
                plan = await self.plan(host)
            except TidelogError as error:
                host.take_offline(error)
                continue
            if plan is None:
                continue
            worst = max(worst, plan.dirty_ratio)
            if plan.due and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = host, plan
        self._metrics.dirty_ratio(worst)
        return best

    async def plan(self, host: PartitionHost) -> Cleanable | None:
        """What a pass over this log would take; None when there is nothing to do. KAFKA_STORAGE_ERROR when its files fail."""
        log, config = host.log, host.config
        sources = closed_below(log, host.replica.high_watermark)
        first_dirty = self._offsets.get(log.key)
        segments = [segment for segment in log.segments[: len(sources)] if log.end_of(segment) > first_dirty]
        timestamps, now_ms = [], self._now_ms()
        for segment in segments:
            if not segment.knows_latest_timestamp:
                await read_index(self._disk, log, segment)
                if closed_below(log, host.replica.high_watermark)[: len(sources)] != sources or not _works(host):
                    return None  # the next look finds what it is now
            timestamps.append(segment_dated(self._disk, log, segment, now_ms))
        horizon = self._horizons.get(log) if self._all_in_sync(host.tp) else None
        return cleanable(sources, timestamps, first_dirty, config, now_ms, horizon)

    def _now_ms(self) -> float:
        return self._time.read(self._clock.wall_ms(), self._clock.now())

    async def clean(self, host: PartitionHost, plan: Cleanable) -> None:
        """One pass. What fails leaves the log as it was, or as far as it was compacted."""
        began_at = self._clock.now()
        try:
            done = await self._pass(host, plan)
        except (TidelogError, OSError) as error:
            _log.warning("compaction of %s was broken off: %s", host.tp, error)
            done = None
        if done is None:
            self._sick[host.tp] = self._clock.now() + SICK_S
            self._metrics.broken_off()
            return
        self._sick.pop(host.tp, None)
        seconds = self._clock.now() - began_at
        self._metrics.cleaned(done.read_bytes, done.records_read - done.records_kept, seconds)
        _log.info(
            "%s compacted up to %d in %.1f s: %d of %d records kept, %d without a key dropped, %d batches unreadable",
            *(host.tp, done.first_dirty, seconds),
            *(done.records_kept, done.records_read, done.keyless, done.unreadable),
        )

    async def _pass(self, host: PartitionHost, plan: Cleanable) -> Finished | None:
        """None when it was not finished."""
        log, cuts = host.log, host.log.cuts
        if closed_below(log, host.replica.high_watermark)[: len(plan.sources)] != plan.sources:
            return None  # it was cut since it was planned: the pass would take the end of a shorter file for damage
        known = frozenset(facts.producer_id for facts in log.producers.facts())
        job = Compaction(log.folder, plan.sources, plan.first_dirty, known, self._rules(host))
        async with aclosing(self._worker.run(job)) as steps:
            async for step in steps:
                if host.log is not log or log.cuts != cuts or not _works(host):
                    return None
                match step:
                    case Progress():
                        await self._clock.sleep(step.read_bytes / self._settings.bytes_per_s)
                    case Cleaned():
                        if step.dropped_to > log.dropped_to:
                            log.record_dropped_to(step.dropped_to)  # before anybody can see that they are gone
                        if not await self._swap(host, log, step, cuts):
                            return None
                    case Damage():
                        self._on_damage(host, step)
                        return None
                    case Finished():
                        self._offsets.update({log.key: step.first_dirty})
                        if step.next_horizon_ms is not None:
                            self._horizons[log] = step.next_horizon_ms
                        else:
                            self._horizons.pop(log, None)
                        return step
        return None

    def _rules(self, host: PartitionHost) -> CompactionRules:
        return CompactionRules(
            now_ms=int(self._now_ms()),
            delete_retention_ms=host.config.delete_retention_ms,
            drops_tombstones=self._all_in_sync(host.tp),
            keys_max=self._settings.keys_max,
            inflated_bytes_max=self._settings.inflated_bytes_max,
            segment_bytes=host.log.segment_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
        )

    async def _swap(self, host: PartitionHost, log: PartitionLog, cleaned: Cleaned, cuts: int) -> bool:
        """False when the log is no longer what was compacted."""
        try:
            swap = SegmentSwap.begun(self._disk, log, cleaned, cuts)
            if swap is None:
                return False
            for step in (swap.install, swap.end):
                await self._sync(log, swap)
                if not step():
                    return False
        except TidelogError as error:
            host.take_offline(error)
            return False
        await self._disk.in_background(swap.purge)
        return True

    async def _sync(self, log: PartitionLog, swap: SegmentSwap) -> None:
        try:
            await self._disk.in_background(swap.sync)
        except OSError as error:
            # Nobody knows which names the folder holds now, and no later sync would tell.
            log.failed("sync", error)
        except asyncio.CancelledError:
            # The kernel tells of a failure once: whoever syncs next would take the answer for his own.
            log.fence("a sync of its folder was given up before its end")
            raise


def _works(host: PartitionHost) -> bool:
    return host.offline is None and host.log.failure is None
