"""Reads again from time to time what is durable of every log, slowly, and reports what has rotted.

A worker process reads; what becomes of a rotten log is decided in `rot`.
"""

import errno
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import TidelogError
from tidelog.ports.clock import Clock
from tidelog.ports.worker import Worker
from tidelog.runtime.metrics import CleanerMetrics
from tidelog.storage.compaction import Progress, Source
from tidelog.storage.recovery import Damage
from tidelog.storage.scrub import Scrub
from tidelog.storage.segment import Segment, segment_name
from tidelog.storage.segment_swap import closed_below, flushed_part

_log = logging.getLogger(__name__)

_UNREADABLE: Final = frozenset({errno.EIO, errno.ENOENT})
"""Other errors, such as too many open files, say nothing of the disk."""


class ScrubSettings(NamedTuple):
    interval_s: float
    """From the start of one round over all logs to the start of the next, if that is done by then."""
    bytes_per_s: float


class Scrubber:
    def __init__(
        self,
        settings: ScrubSettings,
        worker: Worker,
        clock: Clock,
        hosts: Iterable[PartitionHost],
        metrics: CleanerMetrics,
        on_damage: Callable[[PartitionHost, Damage], object],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._hosts = hosts
        self._metrics = metrics
        self._on_damage = on_damage

    async def run(self) -> None:
        while True:
            began_at = self._clock.now()
            await self.scrub_all()
            spent_s = self._clock.now() - began_at
            await self._clock.sleep(max(self._settings.interval_s - spent_s, self._settings.interval_s / 10))

    async def scrub_all(self) -> None:
        """One round."""
        for host in list(self._hosts):
            for part in _parts(host):
                if part.is_there():  # a cut, or a compaction, may have come while others were read
                    await self._scrub(host, part)

    async def _scrub(self, host: PartitionHost, part: "_Part") -> None:
        """A segment that cannot be read twice is no copy of its records."""
        for again in (True, False):
            try:
                return await self._read(host, part)
            except OSError as error:
                if not part.is_there():
                    return
                if not again and error.errno in _UNREADABLE:
                    damage = Damage(part.path, 0, part.source.base_offset, f"it cannot be read: {error}")
                    self._on_damage(host, damage)
                    return
                _log.warning("scrub of %s was broken off: %s", part.path, error)
                await self._clock.sleep(self._settings.interval_s / 10)

    async def _read(self, host: PartitionHost, part: "_Part") -> None:
        """Reads it once, and reports damage. OSError."""
        async with aclosing(self._worker.run(Scrub(host.log.folder, part.source))) as steps:
            async for step in steps:
                if not part.is_there():
                    return
                if isinstance(step, Progress):
                    self._metrics.scrubbed(step.read_bytes)
                    await self._clock.sleep(step.read_bytes / self._settings.bytes_per_s)
                else:
                    self._on_damage(host, step)


class _Part:
    """A part of a log as it was when the round came to the log."""

    def __init__(self, host: PartitionHost, segment: Segment, source: Source) -> None:
        self.source = source
        self._host = host
        self._log = host.log
        self._cuts = host.log.cuts
        self._segment = segment

    @property
    def path(self) -> str:
        return f"{self._log.folder}/{segment_name(self.source.base_offset)}"

    def is_there(self) -> bool:
        """It was neither cut, compacted nor deleted since, and some of it is served.

        What lies below the log's start waits for its removal. A log that is opened again does not read it.
        """
        host, log = self._host, self._log
        works = host.offline is None and host.log is log and log.failure is None and log.cuts == self._cuts
        return works and self._segment in log.segments and log.end_of(self._segment) > log.log_start_offset


def _parts(host: PartitionHost) -> list[_Part]:
    segments = {segment.base_offset: segment for segment in host.log.segments}
    return [_Part(host, segments[source.base_offset], source) for source in _sources(host)]


def _sources(host: PartitionHost) -> tuple[Source, ...]:
    """Closed segments, and what is flushed of the next one. None of a copy that is offline."""
    log = host.log
    if host.offline is not None or log.failure is not None:
        return ()
    closed = closed_below(log, log.log_end_offset)
    try:
        part = log.guarded("read", lambda: flushed_part(log))
    except TidelogError as error:
        host.take_offline(error)
        return ()
    return closed if part is None or part.base_offset in {each.base_offset for each in closed} else (*closed, part)
