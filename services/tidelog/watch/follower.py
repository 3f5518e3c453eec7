"""Watches every process of a cluster: finds them, follows their events, and goes on when they die and come back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap
from tidelog.errors import TransportError
from tidelog.ids import NO_LEADER, Address
from tidelog.runtime.tasks import Supervisor
from tidelog.watch.order import Told
from tidelog.watch.service import BEAT_S, CONTROLLER
from tidelog.watch.window import AWAY_S, Shown, Window
from tidelog.watch.wire import from_message
from tidelog.wire import messages as m
from tidelog.wire import services as s

LOOK_S: Final = 0.5
"""Between two looks for processes."""
AGAIN_S: Final = 0.2
AGAIN_REFUSED_S: Final = 5.0
"""To a process that has refused."""
ANSWER_S: Final = 1.0
SILENT_S: Final = 3 * BEAT_S

_ANOTHER_LEADS: Final = "another controller is active"
_LIVE_BROKERS: Final = m.ClusterMetadataRequest(all_topics=False)


class ProtocolWatch:
    """`start` it, ask for what is `due`, `stop` it. It changes nothing in the cluster."""

    def __init__(
        self, bootstrap: Bootstrap, ports: ClientPorts, wanted: m.WatchRequest, note: Callable[[str], None]
    ) -> None:
        """`wanted` has the filter, and how many of the newest events of each process to begin with. `note` is told what befalls
        the watch itself, a line each."""
        self._clock = ports.clock
        self._net = ports.net
        self._connections = Connections(ports.net)
        self._doors = parse_bootstrap(bootstrap)
        self._wanted = wanted
        self._note = note
        self._tasks = Supervisor("watch")
        self._window = Window()
        self._brokers: dict[str, Address] = {}
        self._followed: set[str] = set()
        self._named: set[str] = set()
        """Processes of causes."""
        self._positions: dict[str, tuple[int, int]] = {}
        """Life and number of the newest event of each process that was looked at."""
        self._lives: dict[str, list[int]] = {}
        self._heard_at: dict[str, float] = {}
        self._quiet: set[str] = set()
        self._looks = False
        self._relays = 0
        self._started = self._clock.now()
        self.caught_up: set[str] = set()
        """Processes whose events from before the watch have arrived."""
        self.refusals: dict[str, str] = {}
        """Reasons of processes that cannot be watched."""

    async def stop(self) -> None:
        await self._tasks.stop()
        await self._connections.close()

    def incarnation(self, process: str, life: int) -> int:
        """Counts the lives of a process that were seen, from 1; 0 for another."""
        lives = self._lives.get(process, [])
        return lives.index(life) + 1 if life in lives else 0

    @property
    def complete(self) -> bool:
        """True once every process that was found has sent its events from before the watch."""
        return bool(self._followed) and self._followed <= self.caught_up | self.refusals.keys()

    def start(self) -> None:
        """Once or more."""
        if self._looks:
            return
        self._looks = True
        self._tasks.start("look for processes", self._look())

    def due(self) -> list[Shown]:
        """Returns the events that have waited for others long enough."""
        now = self._clock.now()
        self._tell_silence(now)
        return self._window.due(now)

    def rest(self) -> list[Shown]:
        """Returns all other events that have arrived."""
        return self._window.rest()

    def _tell_silence(self, now: float) -> None:
        for process, at in self._heard_at.items():
            if now - at >= SILENT_S and process not in self._quiet:
                self._quiet.add(process)
                self._note(f"{process} has been silent for {SILENT_S:.0f} s")

    # -- which processes there are ------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            for door in list(self._doors):
                try:
                    found = await self._connections.to(door, "metadata", to_anyone=True).call(
                        s.COORDINATOR_SERVICE_CLUSTER_METADATA, _LIVE_BROKERS, ANSWER_S
                    )
                except TransportError:
                    self._doors.remove(door)
                    self._doors.append(door)
                    continue
                self._found(found)
                break
            await self._clock.sleep(LOOK_S)

    def _found(self, metadata: m.ClusterMetadataResponse) -> None:
        for broker in metadata.brokers_info:
            address = Address(broker.host, broker.port)
            self._brokers[f"broker-{broker.id}"] = address
            if address not in self._doors:
                self._doors.append(address)
        for name in self._brokers:
            if name not in self._followed:
                self._follow(name, "")
        name = f"controller-{metadata.controller_id}"
        if metadata.controller_id != NO_LEADER and name not in self._followed:
            self._follow(name, CONTROLLER)

    def _follow(self, name: str, process: str) -> None:
        self._followed.add(name)
        self._tasks.start(name, self._run(name, process))

    # -- one process --------------------------------------------------------------------------------------------------

    async def _run(self, name: str, process: str) -> None:
        """Follows a broker for ever, a controller until another one is active: it is found again if it is elected again."""
        told = ""
        while True:
            why, wait_s = await self._listen(name, process)
            if self._heard_at.pop(name, None) is not None:
                self._wait_for(name)
            if why != told and (name in self.caught_up or wait_s == AGAIN_REFUSED_S):
                self._note(f"{name}: {why}")
                told = why
            await self._clock.sleep(wait_s)
            if why == _ANOTHER_LEADS:
                self._followed.discard(name)
                return

    def _wait_for(self, name: str) -> None:
        """Effects of its events wait for a moment, since it is looked for."""
        self._window.away.add(name)
        self._tasks.start(f"{name} is away", self._gone_soon(name))

    async def _gone_soon(self, name: str) -> None:
        await self._clock.sleep(AWAY_S)
        self._window.away.discard(name)

    async def _listen(self, name: str, process: str) -> tuple[str, float]:
        """Returns why the stream has ended, and when to try again."""
        address = self._relay() if process == CONTROLLER else self._brokers[name]
        channel = self._net.channel(address, purpose="watch")
        try:
            stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
            await stream.write(self._request(name, process))
            while (response := await stream.read()) is not None:
                if response.process != name:
                    return _ANOTHER_LEADS, AGAIN_S
                self._hear(response)
            return "its stream has ended", AGAIN_S
        except TransportError as error:
            return self._ended(name, error)
        finally:
            await channel.close()

    def _relay(self) -> Address:
        """Returns the address of a broker, one that answers if there is one; each time of the next."""
        answering = [address for broker, address in self._brokers.items() if broker in self._heard_at]
        self._relays += 1
        return (answering or list(self._brokers.values()))[self._relays % len(answering or self._brokers)]

    def _ended(self, name: str, error: TransportError) -> tuple[str, float]:
        if error.status == "UNIMPLEMENTED":
            why = "it runs a release that shows no protocol events"
        elif error.status in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED") or "NOT_CONTROLLER" in error.detail:
            return "its stream broke, it is watched again when it answers", AGAIN_S
        else:
            why = error.detail
        self.refusals[name] = why
        return why, AGAIN_REFUSED_S

    def _request(self, name: str, process: str) -> m.WatchRequest:
        if name in self._positions:
            life, number = self._positions[name]
            return replace(self._wanted, process=process, life=life, number=number)
        if self.caught_up:
            age_ms = round((self._clock.now() - self._started) * 1000)
            return replace(self._wanted, process=process, last=0, age_ms=age_ms)
        return replace(self._wanted, process=process)

    def _hear(self, response: m.WatchResponse) -> None:
        process, life, now = response.process, response.life, self._clock.now()
        lives = self._lives.setdefault(process, [])
        if life not in lives:
            if lives:
                self._note(f"{process} has started again")
            lives.append(life)
        if process in self._quiet:
            self._quiet.discard(process)
            self._note(f"{process} speaks again")
        if response.lost:
            self._note(f"{response.lost:,} events of {process} were dropped before they could be sent")
        self.refusals.pop(process, None)
        self._heard_at[process] = now
        self._window.away.discard(process)
        self._positions[process] = (life, response.number)
        if response.number >= response.newest:
            self.caught_up.add(process)
        for message in response.events:
            event = from_message(message)
            if event.cause is not None and event.cause.process not in self._named:
                self._named.add(event.cause.process)
                if event.cause.process not in self._followed:
                    self._wait_for(event.cause.process)  # such as a controller that was elected just now
            self._window.add(Told(process, life, event), now)
        self._window.looked_at(process, life, response.number)
