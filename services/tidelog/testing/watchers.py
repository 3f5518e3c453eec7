"""Watchers of all processes of a run. They stand beside it: they draw no delays, take no turns and move no clock."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final

from tidelog.ports.net import KnownCaller
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimLoop
from tidelog.testing.sim_node import World
from tidelog.watch.ring import KEPT, Ring
from tidelog.watch.service import EVERY_S, WatchService
from tidelog.wire import messages as m

_EVERYTHING: Final = m.WatchRequest(partition=-1, life=0, number=0, last=KEPT, age_ms=0)


@types.coroutine
def _turn() -> Generator[None, None, None]:
    yield


class _Clock(SimClock):
    async def sleep(self, seconds: float) -> None:
        await _turn()


class _Stream:
    def __init__(self) -> None:
        self.events = 0
        """Events that have arrived."""

    async def read(self) -> m.WatchRequest:
        return _EVERYTHING

    async def write(self, message: m.WatchResponse) -> None:
        self.events += len(message.events)

    def cancel(self) -> None:
        """The other side ends with the run."""


class Watchers:
    """Lets the watch service of each process, in its newest life, work at its usual times."""

    def __init__(self, world: World) -> None:
        """Made in the loop of the run."""
        self._world = world
        self._stream = _Stream()
        self._rings = 0
        self._calls: dict[str, tuple[SimClock, Coroutine[Any, Any, None]]] = {}
        self._due_s = 0.0
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.on_step = self._on_step

    @property
    def events(self) -> int:
        """Events that they have seen."""
        return self._stream.events

    def _on_step(self, now: float, _: str) -> None:
        if now < self._due_s:
            return
        self._due_s = now + EVERY_S
        for ring in self._world.rings[self._rings :]:
            self._follow(ring)
        for clock, call in self._calls.values():
            with clock.unmoved():
                call.send(None)

    def _follow(self, ring: Ring) -> None:
        self._rings += 1
        handler: Any = WatchService(ring, _Clock()).route().handler
        clock = ring.clock
        assert isinstance(clock, SimClock)
        self._calls[ring.process] = clock, handler(self._stream, KnownCaller("sim:watch"))
