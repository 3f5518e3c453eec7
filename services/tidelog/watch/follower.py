"""Watches every process of a cluster: finds them, follows their events, and goes on when they die and come back."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import NO_LEADER, Address
from tidelog.ports.recorder import Cause
from tidelog.runtime.tasks import Supervisor
from tidelog.watch.kinds import FAMILY_OF
from tidelog.watch.order import Told
from tidelog.watch.service import BEAT_S, CONTROLLER
from tidelog.watch.text import printable
from tidelog.watch.window import AWAY_S, Shown, Window
from tidelog.watch.wire import from_message
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts

LOOK_S: Final = 0.5
"""Between two looks for brokers and the controller."""
MEMBERS_S: Final = 2.0
"""Between two looks for members of groups."""
AGAIN_S: Final = 0.2
AGAIN_REFUSED_S: Final = 5.0
"""To a process that has refused."""
ANSWER_S: Final = 1.0
SILENT_S: Final = 3 * BEAT_S
NAMED_MAX: Final = 1_000
"""Any client may name causes."""

_MEMBER: Final = "member"
_MEMBER_NAME: Final = re.compile(r"(?!(broker|controller)-\d+$)[A-Za-z0-9._-]+")
"""Members with other names are not watched: that of a server, for example."""
_ANOTHER: Final = "another process answers in its place"
_LIVE_BROKERS: Final = m.ClusterMetadataRequest(all_topics=False)
_PASSING: Final = tuple(
    f"{code.name}:"
    for code in (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
)
"""Refusals of a broker while a role moves, or a member comes or goes."""


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
        self._tell = note
        self._tasks = Supervisor("watch")
        self._window = Window(shows_writes=not wanted.families or "zookeeper" in wanted.families)
        self._brokers: dict[str, Address] = {}
        self._live: set[str] = set()
        """Brokers that are registered."""
        self._members: dict[str, tuple[str, m.WatchedMember]] = {}
        """Members that show their events, by process, each with the broker that coordinates its group."""
        self._seeks_members = not wanted.families or _MEMBER in wanted.families
        self._members_sought = not self._seeks_members
        """True once they were looked for."""
        self._followed: set[str] = set()
        self._later: set[str] = set()
        """Processes that were found after the first look: they tell all since the beginning of the watch."""
        self._named: set[tuple[str, int]] = set()
        """Processes of causes, each with its life, that were not heard when they were named."""
        self._strangers = False
        """One was named since the last look for members."""
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

    def _note(self, text: str) -> None:
        self._tell(printable(text))

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
        told = self.caught_up | self.refusals.keys()
        return bool(self._followed) and self._followed <= told and self._members_sought

    def start(self) -> None:
        """Once or more."""
        if self._looks:
            return
        self._looks = True
        self._tasks.start("look for processes", self._look())
        if self._seeks_members:
            self._tasks.start("look for members", self._look_for_members())

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
        first = not self._brokers
        self._live = {f"broker-{broker.id}" for broker in metadata.brokers_info}
        for broker in metadata.brokers_info:
            address = Address(broker.host, broker.port)
            self._brokers[f"broker-{broker.id}"] = address
            if address not in self._doors:
                self._doors.append(address)
        for name in self._brokers:
            self._follow(name, "", first)
        name = f"controller-{metadata.controller_id}"
        if metadata.controller_id != NO_LEADER:
            self._follow(name, CONTROLLER, first)

    async def _look_for_members(self) -> None:
        while True:
            self._strangers, knows_brokers = False, bool(self._brokers)
            await self._find_members()
            self._members_sought = knows_brokers
            again_at = self._clock.now() + (MEMBERS_S if knows_brokers else 0.0)
            await self._clock.sleep(AGAIN_S)
            while not self._strangers and self._clock.now() < again_at:
                await self._clock.sleep(AGAIN_S)

    async def _find_members(self) -> None:
        for broker, address in list(self._brokers.items()):
            try:
                found = await self._members_at(broker, address)
            except TransportError:
                if broker in self._live:
                    continue
                found = {}  # if another broker coordinates its groups now, the members are found there
            gone = [name for name, (where, _) in self._members.items() if where == broker and name not in found]
            for name in gone:
                del self._members[name]
            self._members |= found
            for name in found:
                self._follow(name, _MEMBER, not self._members_sought)

    async def _members_at(self, broker: str, address: Address) -> dict[str, tuple[str, m.WatchedMember]]:
        channel = self._connections.to(address, "metadata")
        listed = await channel.call(s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest(), ANSWER_S)
        group_ids = [each.group_id for each in listed.groups]
        if self._wanted.groups:
            group_ids = [group_id for group_id in group_ids if group_id in self._wanted.groups]
        found = {}
        for part in parts(m.DescribeGroupsRequest, group_ids):
            request = m.DescribeGroupsRequest(group_ids=part)
            described = await channel.call(s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request, ANSWER_S)
            for group in described.groups:
                for member in group.members:
                    # An agent's client id is the name of its process.
                    if member.watch_port and _MEMBER_NAME.fullmatch(member.client_id):
                        name = m.WatchedMember(group_id=group.group_id, consumer_id=member.consumer_id)
                        found[member.client_id] = broker, name
        return found

    def _follow(self, name: str, kind: str, first: bool) -> None:
        if name in self._followed:
            return
        self._followed.add(name)
        if not first:
            self._later.add(name)
        self._tasks.start(name, self._run(name, kind))

    # -- one process --------------------------------------------------------------------------------------------------

    async def _run(self, name: str, kind: str) -> None:
        """Follows a broker for ever, a controller until another one is active, and a member until it has left its group: the
        latter are found again if they return."""
        told = ""
        while kind != _MEMBER or name in self._members:
            why, wait_s = await self._listen(name, kind)
            if self._heard_at.pop(name, None) is not None:
                self._named = {each for each in self._named if each[0] != name}
                self._wait_for(name)
            if why != told and (name in self.caught_up or wait_s == AGAIN_REFUSED_S):
                self._note(f"{name}: {why}")
                told = why
            await self._clock.sleep(wait_s)
            if why == _ANOTHER and kind == CONTROLLER:
                break
        self._followed.discard(name)

    def _wait_for(self, name: str) -> None:
        """Effects of its events wait for a moment, since it is looked for."""
        self._window.away[name] = self._clock.now() + AWAY_S

    async def _listen(self, name: str, kind: str) -> tuple[str, float]:
        """Returns why the stream has ended, and when to try again."""
        broker, member = self._members[name] if kind == _MEMBER else (name, None)
        address = self._relay() if kind == CONTROLLER else self._brokers[broker]
        channel = self._net.channel(address, purpose="watch")
        try:
            stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
            process = CONTROLLER if kind == CONTROLLER else ""
            await stream.write(replace(self._begin(name), process=process, member=member))
            while (response := await stream.read()) is not None:
                if response.process != name:
                    return _ANOTHER, AGAIN_REFUSED_S if kind == _MEMBER else AGAIN_S
                self._hear(response, kind)
            return "its stream has ended", AGAIN_S
        except TransportError as error:
            if (
                kind == _MEMBER
                and error.status == "UNAVAILABLE"
                and name not in self._positions
                and broker in self._heard_at
            ):
                return self._refused(name, f"{broker} does not reach it")
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
        elif error.status in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED") or error.detail.startswith(_PASSING):
            return "its stream broke, it is watched again when it answers", AGAIN_S
        else:
            why = error.detail
        return self._refused(name, why)

    def _refused(self, name: str, why: str) -> tuple[str, float]:
        self.refusals[name] = why
        return why, AGAIN_REFUSED_S

    def _begin(self, name: str) -> m.WatchRequest:
        """Returns what is asked of a process, and from which event on."""
        if name in self._positions:
            life, number = self._positions[name]
            return replace(self._wanted, life=life, number=number)
        if name in self._later:
            return replace(self._wanted, last=0, age_ms=round((self._clock.now() - self._started) * 1000))
        return self._wanted

    def _hear(self, response: m.WatchResponse, kind: str) -> None:
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
        self._window.away.pop(process, None)
        self._positions[process] = (life, response.number)
        if response.number >= response.newest:
            self.caught_up.add(process)
        for message in response.events:
            event = from_message(message)
            if kind == _MEMBER and FAMILY_OF.get(type(event.fields)) != _MEMBER:
                continue  # it is for servers to tell of the rest
            told = Told(process, life, event)
            if told.cause is not None:
                self._expect(told.cause)
            self._window.add(told, now)
        self._window.looked_at(process, life, response.number)

    def _expect(self, cause: Cause) -> None:
        """Waits for a process that is not heard, such as a controller that was elected just now, a new agent, or one whose
        coordinator has died."""
        name = cause.process, cause.life
        if name in self._named or (cause.process in self._heard_at and cause.life in self._lives[cause.process]):
            return
        if len(self._named) >= NAMED_MAX:
            self._named.clear()
            self._window.away.clear()
        self._named.add(name)
        self._wait_for(cause.process)
        self._strangers = True
