"""Cuts of many logs wait for the device together, beside the event loop: a failover may cut thousands in one turn.

Before a log is cut its marks must be lowered on disk, or a crash would leave a log that lacks what they tell of. Before it is
written again what was removed must be gone for good.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import TidelogError
from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.log_store import LogStore

_log = logging.getLogger(__name__)


class Cuts:
    def __init__(self, logs: LogStore, disk: Disk, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """`checkpoint` is durable when it returns; TidelogError or OSError."""
        self._logs = logs
        self._disk = disk
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def cutting(self, ends: Mapping[PartitionHost, int]) -> AsyncIterator[None]:
        """Logs that are cut inside, back to these `ends`, wait for no device then.

        A cut that was not foreseen, or for which this fails, does its own part on the event loop.
        """
        async with self.lowered(_starts_of_batches(ends)):
            yield
        await self._settle([host for host in ends if host.offline is None and host.log.unsettled])

    @asynccontextmanager
    async def lowered(self, ends: Mapping[LogKey, int]) -> AsyncIterator[None]:
        """The marks on disk are not above these ends of logs, if that can be."""
        try:
            if self._logs.marks.expect_cuts(ends):
                await self._try_checkpoint()
            yield
        finally:
            self._logs.marks.cuts_made(ends)

    async def _settle(self, hosts: list[PartitionHost]) -> None:
        cut = [(host, host.log, host.log.cuts) for host in hosts]
        if not cut:
            return
        outcomes = await self._disk.in_background(lambda: [_synced(self._disk, log.folder) for _, log, _ in cut])
        for (host, log, cuts), error in zip(cut, outcomes, strict=True):
            try:
                if error is not None:
                    log.failed("truncate", error)
                log.removal_synced(cuts)
            except TidelogError as failure:
                host.take_offline(failure)
        if any(log.unsettled for _, log, _ in cut) and await self._try_checkpoint():
            for _, log, _ in cut:
                log.checkpointed()

    async def _try_checkpoint(self) -> bool:
        try:
            await self._checkpoint()
        except (TidelogError, OSError) as error:
            _log.error("checkpoint for logs that are cut failed: %s", error)
            return False
        return True


def _synced(disk: Disk, folder: str) -> OSError | None:
    try:
        disk.sync_dir(folder)
    except OSError as error:
        return error
    return None


def _starts_of_batches(ends: Mapping[PartitionHost, int]) -> dict[LogKey, int]:
    """Ends of the logs once they are cut, as a batch goes as a whole."""
    found: dict[LogKey, int] = {}
    for host, end in ends.items():
        try:
            found[host.log.key] = host.log.batch_start(end)
        except TidelogError:
            pass  # the cut meets the same error
    return found
