"""Reads every closed segment again from time to time, slowly, and reports what has rotted (reliability 8.1, row 32).

A worker process reads; what becomes of a rotten log is decided in `rot`.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from tidelog.broker.partition_host import PartitionHost
from tidelog.ports.clock import Clock
from tidelog.ports.worker import Worker
from tidelog.runtime.metrics import CleanerMetrics
from tidelog.storage.compaction import Progress, Source
from tidelog.storage.recovery import Damage
from tidelog.storage.scrub import Scrub
from tidelog.storage.segment_swap import closed_below

_log = logging.getLogger(__name__)


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
            if host.offline is None and host.log.failure is None:
                for source in closed_below(host.log, host.log.log_end_offset):
                    await self._scrub(host, source)

    async def _scrub(self, host: PartitionHost, source: Source) -> None:
        log, cuts = host.log, host.log.cuts
        try:
            async with aclosing(self._worker.run(Scrub(log.folder, source))) as steps:
                async for step in steps:
                    if host.offline is not None or host.log is not log or log.failure is not None or log.cuts != cuts:
                        return
                    if isinstance(step, Progress):
                        self._metrics.scrubbed(step.read_bytes)
                        await self._clock.sleep(step.read_bytes / self._settings.bytes_per_s)
                    elif source in closed_below(log, source.end_offset):  # and neither compacted nor deleted meanwhile
                        self._on_damage(host, step)
        except FileNotFoundError:
            pass  # compacted or deleted meanwhile
        except OSError as error:
            _log.warning("scrub of %s at %d was broken off: %s", host.tp, source.base_offset, error)
            await self._clock.sleep(self._settings.interval_s / 10)
