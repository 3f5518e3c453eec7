"""A member's stream to its group's coordinator: finds the coordinator, carries messages both ways, and connects again.

The shell of `membership`. It runs in tasks of its own, so that no processing delays the answer to a ping (COORD-15).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.coordinators import Coordinators
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.member_events import Broke, Close, Effect, Event, Opened, Received, Send, Tick
from tidelog.client.membership import Membership
from tidelog.client.record import MemberRecorder
from tidelog.errors import TidelogError, TransportError
from tidelog.ports.net import Stream
from tidelog.ports.recorder import CAUSE, Origin
from tidelog.runtime.retry import COORDINATOR
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_SESSION

PURPOSE: Final = "group"
"""A connection of its own: neither fetches nor commits delay a ping."""

_SEARCH_S: Final = 1.0
"""Brokers that do not answer for so long are reported as unreachable, and asked again."""


class _Link:
    """One stream: what is to be written, and whether it has been given up."""

    def __init__(self, stream: Stream[m.CoordinatorMessage, m.ConsumerMessage]) -> None:
        self.stream = stream
        self.outbox: deque[tuple[m.ConsumerMessage, Origin | None]] = deque()
        self.news = asyncio.Event()
        self.closed = False

    def write(self, message: m.ConsumerMessage) -> None:
        self.outbox.append((message, CAUSE.get()))
        self.news.set()

    def close(self) -> None:
        self.closed = True
        self.stream.cancel()

    async def keep_writing(self) -> None:
        try:
            while True:
                while self.outbox:
                    message, cause = self.outbox.popleft()
                    CAUSE.set(cause)
                    await self.stream.write(message)
                self.news.clear()
                await self.news.wait()
        except TransportError:
            pass  # the reader sees the same break, and tells why


class GroupSession:
    """`on_effect` is called with every effect that is not the stream's own."""

    def __init__(
        self,
        ports: ClientPorts,
        connections: Connections,
        coordinators: Coordinators,
        membership: Membership,
        on_effect: Callable[[Effect], None],
        recorder: MemberRecorder | None,
    ) -> None:
        """`recorder` is None where nothing is recorded."""
        self._ports = ports
        self._connections = connections
        self._coordinators = coordinators
        self._membership = membership
        self._on_effect = on_effect
        self._recorder = recorder
        self._events: deque[Event] = deque()
        self._stepping = False
        self._stepped = asyncio.Event()
        self._link: _Link | None = None
        self.unreachable = False
        """No broker answers (OPEN-06): it asks on for as long as it lives."""

    def start(self, supervisor: Supervisor) -> asyncio.Task[None]:
        """Returns the task that keeps the membership's time: without it nothing ends by itself any more."""
        supervisor.start("group-session", self._connect())
        return supervisor.start("group-time", self._keep_time())

    def feed(self, event: Event) -> None:
        """Steps the membership; what an effect feeds in turn comes after the other effects."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping, cause = True, CAUSE.get()
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._stepping = False
            CAUSE.set(cause)
        self._stepped.set()

    def _step(self, event: Event) -> None:
        recorder, now = self._recorder, self._ports.clock.now()
        if recorder is None:
            for effect in self._membership.step(event, now):
                self._do(effect)
            return
        recorder.begin(event)
        effects = self._membership.step(event, now)
        recorder.stepped()
        for effect in effects:
            recorder.note(effect)
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(message):
                if self._link is not None:
                    self._link.write(message)
            case Close():
                if self._link is not None:
                    self._link.close()
            case _:
                self._on_effect(effect)

    async def _keep_time(self) -> None:
        clock = self._ports.clock
        while True:
            self._stepped.clear()
            now = clock.now()
            at = self._membership.next_at(now)
            try:
                async with asyncio.timeout(None if at is None else max(at - now, 0)):
                    await self._stepped.wait()
            except TimeoutError:
                self.feed(Tick())

    async def _connect(self) -> None:
        failures = 0
        while True:
            while not self._membership.wants_stream:
                self._stepped.clear()
                await self._stepped.wait()
            registered = self._membership.counters.registrations
            try:
                await self._find_and_converse()
            except (TransportError, TidelogError) as error:
                self.unreachable = isinstance(error, ClusterUnreachable)
            # What was believed of the coordinator did not hold, or holds no longer (A17.03).
            self._coordinators.forget(self._membership.member.group_id)
            failures = 0 if self._membership.counters.registrations > registered else failures + 1
            await self._ports.clock.sleep(COORDINATOR.pause_s(self._ports.rand, max(failures, 1)))

    async def _find_and_converse(self) -> None:
        address = await self._coordinators.find(self._membership.member.group_id, _SEARCH_S)
        self.unreachable = False
        link = _Link(self._connections.to(address, PURPOSE).open(COORDINATOR_SERVICE_SESSION))
        self._link = link
        CAUSE.set(None)  # what the stream before this one brought leads to nothing here
        try:
            self.feed(Opened())
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(link.keep_writing(), name="group-writer")
                try:
                    while not link.closed and (message := await link.stream.read()) is not None:
                        if not link.closed:
                            self.feed(Received(message))
                except TransportError:
                    pass  # it is opened again
                finally:
                    writer.cancel()
        finally:
            link.close()
            self._link = None
            self.feed(Broke())
