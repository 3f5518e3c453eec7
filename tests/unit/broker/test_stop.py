"""How a broker stops: what it still answers while others take over."""

import asyncio
from typing import Any, cast

from tidelog.broker.app import CALLS_GRACE_S, Broker
from tidelog.config import BrokerSettings
from tidelog.ports.bundle import Ports
from tidelog.ports.net import Server
from tidelog.runtime.metrics import BrokerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock


class Recorded:
    """Its session and its listeners: what happens to them, and when."""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def close(self) -> None:
        await SimClock().sleep(0.1)
        self.story.append("the session is over")


class Listener:
    def __init__(self, name: str, record: Recorded) -> None:
        self._name = name
        self._record = record

    def set_serving(self, serving: bool) -> None:
        assert not serving

    async def stop(self, grace_s: float) -> None:
        """A stream is open on it, as always."""
        self._record.story.append(f"{self._name} refuses")
        await SimClock().sleep(grace_s)
        self._record.story.append(f"{self._name} is cut")


async def test_a_broker_that_stops_answers_nobody_once_its_session_is_over() -> None:
    """It would send clients to itself: the news of who leads instead may never reach it. And one grace is for all listeners."""

    record = Recorded()
    ports = cast(Ports, type("P", (), {"meta": record, "clock": SimClock(), "worker": None}))
    nothing: Any = None
    broker = Broker(cast(BrokerSettings, nothing), ports, Supervisor("test"), cast(BrokerMetrics, nothing))
    broker._servers = [cast(Server, Listener(name, record)) for name in ("INTERNAL", "EXTERNAL")]
    began_at = asyncio.get_running_loop().time()
    await broker.stop()
    assert record.story == [
        "INTERNAL refuses",
        "EXTERNAL refuses",
        "the session is over",
        "INTERNAL is cut",
        "EXTERNAL is cut",
    ]
    assert asyncio.get_running_loop().time() - began_at == CALLS_GRACE_S
