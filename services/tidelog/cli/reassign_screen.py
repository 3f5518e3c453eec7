"""How far partitions have moved: one line that stays until all have."""

from collections.abc import Iterable
from typing import Final

from rich.filesize import decimal
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from tidelog.cli.bar import Bar
from tidelog.cli.connection import Connection
from tidelog.cli.show import note
from tidelog.client.admin import Admin
from tidelog.client.move_progress import CopyMeter, holders
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

POLL_S: Final = 0.5


async def follow(
    on: Connection,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int | None,
    quiet: bool,
) -> bool:
    """Until none of these is being moved any more; False: not within the time. `quiet`: shows nothing, for programs."""
    waited_for = set(partitions)
    moved = f"{{task.fields[moved]}}/{len(waited_for)} partitions,"
    columns = (moved, DownloadColumn(), TransferSpeedColumn(), "left", TimeRemainingColumn())
    clock, meter = on.ports.clock, CopyMeter()
    deadline = None if timeout_ms is None else clock.now() + timeout_ms / 1000
    async with on.admin() as admin:
        with Bar("moving", *columns, quiet=quiet, moved=0) as bar:
            while True:
                moving = await _moving(admin, waited_for)
                if moving is not None:
                    sizes = {} if quiet or not moving else await admin.logs.sizes(holders(moving), POLL_S)
                    have, need = meter.look(moving, sizes)
                    bar.show(completed=have, total=need or None, moved=len(waited_for) - len(moving))
                    if not moving:
                        break
                if deadline is not None and clock.now() >= deadline:
                    return False
                await clock.sleep(POLL_S)
    copied = f", {decimal(have)} copied" if have else ""
    if not quiet:
        note(f"{len(waited_for)}/{len(waited_for)} partitions have moved{copied}")
    return True


async def _moving(admin: Admin, waited_for: set[TopicPartition]) -> list[m.OngoingReassignment] | None:
    """None: nobody says so at the moment, which a failover of the controller explains."""
    try:
        return [each for tp, each in (await admin.reassignments.list()).items() if tp in waited_for]
    except (TidelogError, TransportError):
        return None
