"""Does beside the event loop what logs wait for the device for: syncs, for flush=sync and to keep a recovery short, and reads of
whole segments whose index is lost.

At most one flush a log is under way; what is appended meanwhile is in the next one, whoever asked for it (group commit).
A sync that fails is never tried again: the log is fenced and its partition goes offline (reliability 8.1).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from tidelog.broker.partition_host import SYNC, PartitionHost
from tidelog.broker.retention import read_index
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.storage.segment import Segment

_log = logging.getLogger(__name__)

DRAIN_POLL_S: Final = 0.01

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]


class Flusher:
    """Implements `partition_host.Flushes`."""

    def __init__(
        self, clock: Clock, disk: Disk, spawn: Spawn, stall_limit_s: float, sync_epochs: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._spawn = spawn
        self._stall_limit_s = stall_limit_s
        self._sync_epochs = sync_epochs
        self._began_at: dict[PartitionHost, float] = {}
        """Of the flush that is under way."""
        self._indexes: dict[PartitionHost, set[Segment]] = {}
        """Segments whose lost index is being made."""

    def request(self, host: PartitionHost) -> None:
        # The task's first step comes in a later turn of the loop: what this turn appends is in one flush.
        if host not in self._began_at:
            self._began_at[host] = self._clock.now()
            self._spawn(f"flush of {host.tp}", self._flush_until_countable(host))

    def beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in a task of its own, which ends with the broker."""
        self._spawn(name, work)

    def request_epochs(self) -> None:
        """New leader epochs are durable soon. Nothing waits for it: those with records are in the batches too."""
        self._spawn("sync of the epoch journal", self._run_sync_epochs())

    async def _run_sync_epochs(self) -> None:
        try:
            await self._disk.in_background(self._sync_epochs)
        except TidelogError as error:
            _log.error("%s; it is written anew", error)

    def busy(self, host: PartitionHost) -> bool:
        """Whether a thread may be using the log's files."""
        return host in self._began_at

    def read_index(self, host: PartitionHost, segment: Segment) -> None:
        under_way = self._indexes.setdefault(host, set())
        if segment not in under_way:
            under_way.add(segment)
            self._spawn(f"index of {host.tp}", self._read_index(host, segment))

    def reads_index(self, host: PartitionHost) -> bool:
        return host in self._indexes

    async def _read_index(self, host: PartitionHost, segment: Segment) -> None:
        try:
            await read_index(self._disk, host.log, segment)
        except TidelogError as error:
            if host.offline is None:
                host.take_offline(error)
        finally:
            self._indexes[host].remove(segment)
            if not self._indexes[host]:
                del self._indexes[host]
        host.index_read()

    async def drain(self, limit_s: float) -> None:
        """Until no flush is under way, or the time is up."""
        until = self._clock.now() + limit_s
        while self._began_at and self._clock.now() < until:
            await self._clock.sleep(DRAIN_POLL_S)

    async def _flush_until_countable(self, host: PartitionHost) -> None:
        try:
            while host.offline is None:
                self._began_at[host] = self._clock.now()
                await self._flush(host)
                if host.countable and not host.unsynced:
                    return
        finally:
            del self._began_at[host]

    async def _flush(self, host: PartitionHost) -> None:
        try:
            flush = host.log.begin_flush()
            try:
                error = await self._disk.in_background(flush.outcome)
            except asyncio.CancelledError:
                # The kernel tells of a failure once: whoever syncs next would take the answer for his own.
                host.log.fence("a sync was given up before its end")
                raise
            host.log.end_flush(flush, error)
        except TidelogError as failure:
            host.take_offline(failure)
            return
        if host.offline is None:
            host.synced()

    async def run(self, hosts: Iterable[PartitionHost], interval_s: float) -> None:
        """Moves every log's recovery point now and then, so that a killed broker reads only the tails when it returns."""
        while True:
            await self._clock.sleep(interval_s)
            await self.flush_all(hosts)

    async def flush_all(self, hosts: Iterable[PartitionHost]) -> None:
        """One after the other: this is in nobody's way."""
        for host in list(hosts):
            if host.offline is None and not host.log.flushed and not self.busy(host):
                self._began_at[host] = self._clock.now()
                await self._flush_until_countable(host)

    def check_stalls(self, now: float) -> None:
        """A device that answers nothing is as bad as one that fails: whoever waits for it gets another leader (row 30)."""
        for host, began_at in list(self._began_at.items()):
            if host.config.flush == SYNC and host.offline is None and now - began_at > self._stall_limit_s:
                host.take_offline(
                    TidelogError(
                        f"{host.log.folder}: a sync has taken longer than log_flush_stall_limit_ms, "
                        f"{self._stall_limit_s * 1000:.0f}; the partition comes back when it ends",
                        ErrorCode.KAFKA_STORAGE_ERROR,
                    )
                )

    def resumed(self, now: float) -> None:
        """This process stood still: the device may have answered meanwhile (row 9)."""
        self._began_at = dict.fromkeys(self._began_at, now)
