"""Keeps the protocol events of a run: protocol.jsonl, a JSON object a line, in the order in which `tidelog watch` prints them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tidelog.chaos.lines import Lines
from tidelog.client.connections import ClientPorts
from tidelog.runtime.tasks import Supervisor
from tidelog.watch.follower import ProtocolWatch
from tidelog.watch.formats import json_of
from tidelog.watch.window import Shown
from tidelog.wire import messages as m

PROTOCOL: Final = "protocol.jsonl"
TICK_S: Final = 0.1


class ProtocolLog:
    """Keeps the events from `async with` on. A process that cannot be watched is left out."""

    def __init__(self, path: Path, servers: str, ports: ClientPorts, topics: Sequence[str], began: float) -> None:
        """`began` is when the run began, by the clock of `ports`. Truncates the file. OSError."""
        wanted = m.WatchRequest(topics=tuple(topics), partition=-1, life=0, number=0, last=0, age_ms=0)
        self._watch = ProtocolWatch(servers, ports, wanted, lambda note: None)
        self._clock = ports.clock
        self._began_ns = self._clock.wall_ns() - round((self._clock.now() - began) * 1e9)
        self._lines = Lines(path)
        self._tasks = Supervisor("protocol events")

    async def __aenter__(self) -> Self:
        self._watch.start()
        self._tasks.start("protocol events", self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """TaskFailed after a mistake of its own, OSError of a full disk: then events are missing."""
        await self._tasks.stop()
        self._write(self._watch.rest())
        await self._watch.stop()
        self._lines.close()
        if self._tasks.failure is not None:
            raise self._tasks.failure

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            self._write(self._watch.due())

    def _write(self, events: Sequence[Shown]) -> None:
        for shown in events:
            found = json_of(shown.told, self._watch.incarnation, cause_missing=shown.cause_missing)
            t = (shown.told.event.wall_ns - self._began_ns) / 1e9
            self._lines.write(json.dumps({"t": round(t, 6), **found}))
