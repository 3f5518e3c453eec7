"""Closes old segments and moves the starts of logs, beside everything else that a broker does (KIP-107, `log.retention.*`).

The leader decides where a log starts and its followers hear of it with their chunks, so that all replicas serve the same
records. Every replica rolls its own segments. The files go with the next checkpoints: see `LogStore.begin_checkpoint`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import TidelogError
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.runtime.clock import RetentionClock
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.retention import (
    FOREVER,
    SegmentFacts,
    age_timestamp,
    is_expired,
    size_start,
    time_start,
)
from tidelog.storage.segment import Segment

_log = logging.getLogger(__name__)

AHEAD_MS: Final = 3_600_000
"""Limit beyond which a timestamp ahead of the clock is warned of: clocks differ by less."""


class Retention:
    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        hosts: Iterable[PartitionHost],
        interval_s: float,
        on_ahead: Callable[[int], None] = lambda segments: None,
    ) -> None:
        """`on_ahead` is told how many segments have a timestamp that is far ahead of the clock."""
        self._clock = clock
        self._disk = disk
        self._hosts = hosts
        self._interval_s = interval_s
        self._time = RetentionClock(clock.wall_ms(), clock.now())
        self._begun: dict[PartitionLog, tuple[int, float]] = {}
        """Base offset of each log's active segment, and since when it is in use (ms)."""
        self._on_ahead = on_ahead
        self._ahead: dict[PartitionLog, set[int]] = {}
        """Base offsets of the segments that `on_ahead` counts."""

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            await self.check_all()

    async def check_all(self) -> None:
        """One partition after the other; others have their turn in between."""
        hosts = [host for host in self._hosts if host.offline is None and host.log.failure is None]
        known = {host.log for host in hosts}
        self._begun = {log: begun for log, begun in self._begun.items() if log in known}
        self._ahead = {log: ahead for log, ahead in self._ahead.items() if log in known}
        for host in hosts:
            try:
                await self.check(host)
            except TidelogError as error:
                host.take_offline(error)
            await self._clock.sleep(0)
        self._on_ahead(sum(map(len, self._ahead.values())))

    async def check(self, host: PartitionHost) -> None:
        """KAFKA_STORAGE_ERROR when the log's files fail."""
        now_ms = self._now_ms()
        if host.offline is None and host.log.failure is None:
            self._roll_old(host, now_ms)
            self._look_ahead(host, now_ms)
        if host.is_leader and host.config.deletes:
            await self._expire(host, now_ms)

    def _look_ahead(self, host: PartitionHost, now_ms: float) -> None:
        """Warns of segments that a producer's clock has put far ahead, once each."""
        found = {
            segment.base_offset: segment.latest_timestamp
            for segment in host.log.segments
            if segment.knows_latest_timestamp and segment.latest_timestamp > now_ms + AHEAD_MS
        }
        for base in found.keys() - self._ahead.get(host.log, set()):
            _log.warning(
                "%s: a record of the segment at %d has timestamp %d, which is ahead of the clock: retention and compaction go by "
                "the time of the last write to the segment",
                *(host.tp, base, found[base]),
            )
        self._ahead[host.log] = set(found)

    def _now_ms(self) -> float:
        return self._time.read(self._clock.wall_ms(), self._clock.now())

    def _roll_old(self, host: PartitionHost, now_ms: float) -> None:
        log = host.log
        if not log.segments or not log.segments[-1].size_bytes:
            self._begun.pop(log, None)
            return
        active = log.segments[-1]
        begun = self._begun.get(log)
        if begun is None:
            # What was there at the start of the process is as old as its first record says, but never younger than now.
            stamped = log.guarded("read", active.first_timestamp)
            begun = (active.base_offset, min(now_ms, stamped) if stamped >= 0 else now_ms)
        elif begun[0] != active.base_offset:
            begun = (active.base_offset, now_ms)
        self._begun[log] = begun
        config = host.config
        # What is in the active segment is not compacted (KIP-354).
        age_max_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        if now_ms - begun[1] > age_max_ms and log.roll():
            self._begun[log] = (log.log_end_offset, now_ms)

    async def _expire(self, host: PartitionHost, now_ms: float) -> None:
        config, log, before = host.config, host.log, host.log.log_start_offset
        high_watermark, cuts = host.replica.high_watermark, log.cuts
        facts = [SegmentFacts(log.end_of(segment), segment.size_bytes) for segment in log.segments]
        start = size_start(facts, before, high_watermark, config.retention_bytes)
        if config.retention_ms != FOREVER:
            dated = await self._dated(log, now_ms, config.retention_ms)
            start = max(start, time_start(dated, before, high_watermark, now_ms, config.retention_ms))
            if log.cuts != cuts or not host.is_leader or host.offline is not None:
                return  # it is another log now, or another's to decide about
        if start <= log.log_start_offset:
            return
        if start == log.log_end_offset:
            log.roll()  # the active segment goes too, and must not be active then
        _log.info("%s starts at %d now, it was %d: what lies before is past its retention", host.tp, start, before)
        host.move_log_start(start)

    async def _dated(self, log: PartitionLog, now_ms: float, keep_ms: int) -> list[SegmentFacts]:
        """The oldest segments with their timestamps, up to the first one that is to stay: mostly one, and cheap."""
        dated: list[SegmentFacts] = []
        for segment, end in [(segment, log.end_of(segment)) for segment in log.segments]:
            if end <= log.log_start_offset:
                continue  # its file may go at any time
            if segment not in log.segments:
                break  # compaction or a cut has put others in its place: the next look finds them
            if not segment.knows_latest_timestamp:
                await read_index(self._disk, log, segment)
                if not segment.knows_latest_timestamp:
                    break  # the log was cut meanwhile
            latest = segment_dated(self._disk, log, segment, now_ms)
            dated.append(SegmentFacts(end, segment.size_bytes, latest))
            if latest >= 0 and not is_expired(latest, now_ms, keep_ms):
                break
        return dated


def segment_dated(disk: Disk, log: PartitionLog, segment: Segment, now_ms: float) -> int:
    """The timestamp (ms) that the age of a segment goes by; it is known. KAFKA_STORAGE_ERROR when its file fails."""
    latest = segment.latest_timestamp
    if latest <= now_ms:
        return latest
    return age_timestamp(latest, log.guarded("read", lambda: disk.modified_ms(segment.path)), now_ms)


async def read_index(disk: Disk, log: PartitionLog, segment: Segment) -> None:
    """Beside the event loop: an index that was lost is rebuilt from every batch header of the segment.

    KAFKA_STORAGE_ERROR, with the log fenced, when it cannot be read.
    """
    path, file, cuts = segment.path, log.pin(segment), log.cuts
    try:
        index, in_file = await disk.in_background(lambda: segment.read_index(file))
    except OSError as error:
        log.failed("read", error)
    finally:
        log.unpin(path)
    if log.cuts == cuts:
        segment.adopt_index(index, in_file)
