"""A request whose caller has given up at the very moment when its connection breaks (simulator, seed 3255)."""

import asyncio

import pytest

from tidelog.ports.meta import Create, MetaError, OutcomeUnknown, SessionState
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.rand import seeded

REQUEST_S = 3.0


@pytest.mark.parametrize("kind", ["write", "read"])
async def test_a_client_that_stood_still_beyond_a_requests_time_connects_again(kind: str) -> None:
    """Its time is up and the task that waits has not run since: the future is cancelled and the ticket still there.
    An exception here left the requests behind it without their news, watches unfired and the twin unconnected."""

    store = SimZooKeeper(seeded(1, "zookeeper"))
    client = store.client(session_timeout_s=60.0, request_timeout_s=REQUEST_S)
    await client.start()
    process = SimProcess("client")
    seen: list[str] = []

    async def ask() -> None:
        try:
            await (client.multi([Create("/a")]) if kind == "write" else client.exists("/a"))
        except MetaError as error:
            seen.append(type(error).__name__)

    client.cut()
    process.start("ask", ask())
    await asyncio.sleep(0.5)
    process.pause()
    client.pause()
    fired: list[None] = []
    await asyncio.sleep(REQUEST_S + 1)
    client.resume()  # its news come before its tasks run
    client.heal()
    await asyncio.sleep(0.01)
    process.resume()
    await asyncio.sleep(1.0)
    assert client.state is SessionState.CONNECTED
    assert seen == [OutcomeUnknown.__name__]
    await client.exists("/b", watch=lambda: fired.append(None))
    await client.multi([Create("/b")])
    await asyncio.sleep(0.1)
    assert fired == [None]
