"""Waiting for what a job needs and is not there yet: brokers, topics, Spark's master."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidelog.errors import TidelogError, TransportError, is_transient
from tidelog.ids import Address
from tidelog.ports.clock import Clock

T = TypeVar("T")

ASK_AGAIN_S: Final = 2.0
CONNECT_S: Final = 5.0
STANDALONE: Final = "spark://"


async def awaited(ask: Callable[[], Awaitable[T]], limit_s: float, clock: Clock, say: Callable[[str], None]) -> T:
    """What `ask` returns once it does not fail for something that may come; after `limit_s` its last error.

    `say` is told what is waited for, once for each reason.
    """
    deadline, said = clock.now() + limit_s, ""
    while True:
        try:
            return await ask()
        except (TidelogError, TransportError, ConnectionError) as error:
            if not (isinstance(error, ConnectionError) or is_transient(error)) or clock.now() >= deadline:
                raise
            reason = error.message if isinstance(error, TidelogError) else str(error)
        if reason != said:
            say(f"waiting, {reason}")
            said = reason
        await clock.sleep(min(ASK_AGAIN_S, max(0.0, deadline - clock.now())))


async def master_listens(master: str | None) -> None:
    """ConnectionError when `master` is the address of a standalone cluster and none of its masters takes a connection.

    Spark itself gives them a minute, and then ends the program.
    """
    if master is None or not master.startswith(STANDALONE):
        return
    failed = "none is named"
    for text in master.removeprefix(STANDALONE).split(","):
        try:
            address = Address.parse(text)
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, ValueError) as error:
            failed = f"{text}: {error or type(error).__name__}"
            continue
        writer.close()
        return
    raise ConnectionError(f"no master of Spark listens at {master} ({failed})")
