"""Transactions of ZooKeeper that nobody needs: a quiet ensemble has none to log for minutes, and till then no server finds
that its disk is full."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.chaos.faults.base import Bed, to_the_end
from tidelog.cluster.api import ZOOKEEPER
from tidelog.ids import Address
from tidelog.ports.meta import Create, Delete, MetaError
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.zk import ZkMeta

PATH: Final = "/chaos-full-disk"
DATA: Final = bytes(8192)
"""Whatever is left of the page of memory, or of the block, that a log ends in is less than this."""
SESSION_S: Final = 2.0
"""Nearly the shortest that servers grant: the znode is not there for long, however this ends."""
ANSWER_WITHIN_S: Final = 1.0
PAUSE_S: Final = 0.2


async def write_until(bed: Bed, seen: Callable[[], bool], what: str, timeout_s: float) -> None:
    """FaultMissed when `seen` does not come; it is asked in a thread."""
    servers = await to_the_end(_addresses, bed)
    tasks = Supervisor("transactions")
    meta = ZkMeta(
        ",".join(map(str, servers)), session_timeout_s=SESSION_S, spawn=tasks.start, request_timeout_s=ANSWER_WITHIN_S
    )
    try:
        writing = tasks.start("transactions", _write(bed, meta))
        try:
            await bed.until(seen, what, timeout_s)
        finally:
            writing.cancel()
    finally:
        await meta.close()
        await tasks.stop()


def _addresses(bed: Bed) -> Sequence[Address]:
    rows = [row for row in bed.cluster.status() if row.kind == ZOOKEEPER]
    return [row.addresses["CLIENT"] for row in rows if "CLIENT" in row.addresses]


async def _write(bed: Bed, meta: ZkMeta) -> None:
    await meta.start()
    while True:
        for op in (Create(PATH, DATA, ephemeral=True), Delete(PATH)):
            with suppress(MetaError):  # the leader may be who finds no room, or there is no quorum any more
                await meta.multi([op])
        await bed.clock.sleep(PAUSE_S)
