"""A cluster in memory that is watched as `tidelog watch` does it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helpers.brokers import Brokers
from tidelog.watch.follower import ProtocolWatch
from tidelog.watch.order import Told
from tidelog.wire import messages as m


def request(**fields: Any) -> m.WatchRequest:
    return m.WatchRequest(**{"partition": -1, "life": 0, "number": 0, "last": 0, "age_ms": 0, **fields})


class Watched:
    def __init__(self, cluster: Brokers, follower: ProtocolWatch, notes: list[str]) -> None:
        self.cluster = cluster
        self.follower = follower
        self.notes = notes
        self.told: list[Told] = []
        self.missing: list[Told] = []

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            await self.cluster.wait(0.05)
            for shown in self.follower.due():
                self.told.append(shown.told)
                if shown.cause_missing:
                    self.missing.append(shown.told)

    def kinds(self, process: str) -> list[str]:
        return [type(told.event.fields).__name__ for told in self.told if told.process == process]


@asynccontextmanager
async def watched(cluster: Brokers, **fields: Any) -> AsyncIterator[Watched]:
    notes: list[str] = []
    follower = ProtocolWatch(cluster.bootstrap, cluster.ports_of("watch"), request(**fields), notes.append)
    follower.start()
    try:
        yield Watched(cluster, follower, notes)
    finally:
        await follower.stop()
