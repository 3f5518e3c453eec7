"""A handler for agents that tests kill and stop: one line for each record, written when its processing begins.

The clock is the machine's monotonic one, so that the lines of different processes can be put in order.
"""

import asyncio
import functools
import os
import time
from collections.abc import Sequence
from typing import Final

from tidelog.client.records import ConsumerRecord

FILE: Final = "RECORDER_FILE"
TAKES_S: Final = "RECORDER_TAKES_S"
"""How long one record is processed."""


@functools.cache
def _opened() -> tuple[int, float]:
    return os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND), float(os.environ[TAKES_S])


async def record(records: Sequence[ConsumerRecord]) -> None:
    out, takes_s = _opened()
    for each in records:
        # In one write: a line is there or not, however the process ends.
        os.write(out, f"{time.monotonic()!r} {each.topic} {each.partition} {each.offset}\n".encode())
        await asyncio.sleep(takes_s)
