"""The final phase (reliability 1.1): fresh readers read every partition from its log start until they are past all that was
ever seen, and up to its end."""

from collections.abc import Mapping
from typing import Final

from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.history import ASSIGNED, Crash, Ownership
from tidelog.client.consumer import Consumer
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition

READERS: Final = 2
POLL_RECORDS: Final = 5_000
POLL_S: Final = 0.5
STUCK_S: Final = 8.0
"""A reader that gets nothing for so long, below the end, is thrown away for a fresh one (1.1: in case a client is stuck)."""


class CannotRead(Exception):
    """The final read has not come to the end."""


async def read_everything(
    servers: str, ends: Mapping[TopicPartition, int], chronicle: Chronicle, within_s: float
) -> None:
    """`ends` are high watermarks of a cluster that is whole again, and nobody writes any more. CannotRead."""
    give_up_at = chronicle.clock.now() + within_s
    for number in range(1, READERS + 1):
        life = 1
        while not await _read(servers, ends, chronicle, f"reader-{number}" + (f".{life}" if life > 1 else "")):
            life += 1
            if chronicle.clock.now() >= give_up_at:
                raise CannotRead(f"no reader has come to the end of every partition within {within_s:g} s")


async def _read(servers: str, ends: Mapping[TopicPartition, int], chronicle: Chronicle, process: str) -> bool:
    """False: it was stuck, or its consumer of no use."""
    try:
        async with Consumer(servers, client_id=process) as consumer:
            await consumer.assign(ends)
            await consumer.seek_to_beginning()
            chronicle.append(Ownership(chronicle.now(), ASSIGNED, process, tuple(ends), final=True))
            left = {tp: end for tp, end in ends.items() if await consumer.position(tp) < end}
            last_news = chronicle.clock.now()
            while left:
                began = chronicle.clock.now()
                records = await consumer.poll(POLL_RECORDS, POLL_S)
                if records:
                    chronicle.polled(process, began, records, None, final=True)
                    last_news = chronicle.clock.now()
                elif began > last_news + STUCK_S:
                    break
                left = {tp: end for tp, end in left.items() if await consumer.position(tp) < end}
            if not left:
                return True
    except (TidelogError, TransportError):
        pass  # the next life may fare better; if none does, there is no verdict
    chronicle.append(Crash(chronicle.now(), process))
    return False
