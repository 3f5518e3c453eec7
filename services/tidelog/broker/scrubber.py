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
from tidelog.storage.segment import segment_name
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
            for source in _sources(host):
                await self._scrub(host, source)

    async def _scrub(self, host: PartitionHost, source: Source) -> None:
        """A segment that cannot be read twice is no copy of its records."""
        log, cuts = host.log, host.log.cuts
        segment = next((each for each in log.segments if each.base_offset == source.base_offset), None)

        def is_there() -> bool:
            """It was neither cut, compacted nor deleted meanwhile."""
            works = host.offline is None and host.log is log and log.failure is None and log.cuts == cuts
            return works and segment in log.segments

        for again in (True, False):
            try:
                return await self._read(host, source, is_there)
            except OSError as error:
                if not is_there():
                    return
                path = f"{log.folder}/{segment_name(source.base_offset)}"
                if not again and error.errno in _UNREADABLE:
                    self._on_damage(host, Damage(path, 0, source.base_offset, f"it cannot be read: {error}"))
                    return
                _log.warning("scrub of %s was broken off: %s", path, error)
                await self._clock.sleep(self._settings.interval_s / 10)

    async def _read(self, host: PartitionHost, source: Source, is_there: Callable[[], bool]) -> None:
        """Reads it once, and reports damage. OSError."""
        async with aclosing(self._worker.run(Scrub(host.log.folder, source))) as steps:
            async for step in steps:
                if not is_there():
                    return
                if isinstance(step, Progress):
                    self._metrics.scrubbed(step.read_bytes)
                    await self._clock.sleep(step.read_bytes / self._settings.bytes_per_s)
                else:
                    self._on_damage(host, step)


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
