"""A running cluster behind the page: its protocol events as they come, and a picture of it each second."""

from typing import Any, Final, NamedTuple, Protocol

from tidelog.client.observer import ClusterObserver
from tidelog.client.overview import Overview
from tidelog.page.events import Events
from tidelog.page.hub import Hub
from tidelog.page.messages import hello
from tidelog.page.overview_picture import Pictures
from tidelog.ports.clock import Clock
from tidelog.watch.follower import ProtocolWatch
from tidelog.watch.window import Shown

LOOK_S: Final = 1.0
TICK_S: Final = 0.1
"""Between two looks for events."""


class Note(NamedTuple):
    """Something that happened to the watch itself, or that was done to the cluster."""

    text: str
    struck: tuple[str, ...] = ()
    """The processes that it was done to."""
    mends: bool = False
    """It is the end of a fault."""


class Desk(Protocol):
    """Breaks the cluster."""

    def start(self) -> None: ...

    def acts(self) -> list[dict[str, Any]]: ...

    def complete(self, seen: Overview, picture: dict[str, Any]) -> None:
        """Adds to a picture what brokers do not tell."""
        ...


class LiveSource:
    """Tells a hub of a cluster. It changes nothing there, and takes no commands.

    observer, follower, desk: `run` starts them, and the caller stops them.
    about: a line about the cluster.
    notes: what is told beside protocol events; it is emptied.
    """

    def __init__(
        self,
        hub: Hub,
        observer: ClusterObserver,
        follower: ProtocolWatch,
        clock: Clock,
        *,
        about: str,
        notes: list[Note],
        desk: Desk | None = None,
    ) -> None:
        self._hub = hub
        self._observer = observer
        self._follower = follower
        self._clock = clock
        self._about = about
        self._notes = notes
        self._desk = desk
        self._events = Events()
        self._began_ms = clock.wall_ms()
        self._pictures = Pictures(self._began_ms)

    async def run(self) -> None:
        """Runs until it is cancelled. The cluster may go and come back meanwhile."""
        acts = []
        if self._desk is not None:
            acts = self._desk.acts()
            self._desk.start()
        self._hub.tell("hello", hello("live", "Tidelog", self._about, "followed", wall_ms=self._began_ms, acts=acts))
        self._follower.start()
        self._observer.start()
        await self._observer.first()
        look_at = self._clock.now()
        while True:
            self._tell(self._follower.due())
            if self._clock.now() >= look_at:
                look_at = self._clock.now() + LOOK_S
                seen = self._observer.overview
                picture = self._pictures.picture(seen, self._events.count)
                if self._desk is not None:
                    self._desk.complete(seen, picture)
                self._hub.tell("picture", picture)
                moment = {"t": picture["t"], "n": picture["n"]}
                self._hub.tell("time", {**moment, "playing": True, "speed": 1.0, "end": moment, "busy": None})
            await self._clock.sleep(TICK_S)

    def _tell(self, found: list[Shown]) -> None:
        now = self._at(self._clock.wall_ns())
        told = [self._events.act(now, note.text, note.struck, mends=note.mends) for note in self._notes]
        self._notes.clear()
        for shown in found:
            it = shown.told
            told.append(self._events.event(self._at(it.event.wall_ns), it.process, it.life, it.event))
        if told:
            self._hub.tell("events", told)

    def _at(self, wall_ns: int) -> float:
        return round(wall_ns / 1e9 - self._began_ms / 1e3, 6)
