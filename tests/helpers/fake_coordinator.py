"""The coordinator of the brokers in memory: the real state machine, with a dictionary for a store and streams that can be cut.

It takes the place of `FakeCluster.groups`. Everything happens in loop callbacks, so that it leaves no task behind.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helpers.fake_broker import FakeCluster
from tidelog.coordinator import effects as e
from tidelog.coordinator import events as ev
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.model import GroupLimits, StoredGroup, TopicInfo
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

LIMITS = GroupLimits(
    handlers=2,
    session_min_s=0.1,
    session_max_s=60.0,
    failed_pings_max=2,
    commit_interval_s=0.1,
    rebalance_retries_max=4,
    backoff_s=0.1,
    backoff_max_s=1.0,
    join_delay_s=0.1,
    join_delay_max_s=0.3,
    initial_delay_s=0.1,
    incremental=True,
    members_max=100,
    partitions_max=1000,
    default_assignor="range",
    retention_s=3600.0,
)

_ENDED = object()


class FakeSession:
    """The consumer's end of a stream."""

    def __init__(self, coordinator: "FakeCoordinator", connection: int, broker: int) -> None:
        self._coordinator = coordinator
        self.connection = connection
        self.broker = broker
        self.consumer_id = ""
        self.sent: list[m.ConsumerMessage] = []
        self.received: list[m.CoordinatorMessage] = []
        self._down: asyncio.Queue[Any] = asyncio.Queue()
        self._last = {"up": 0.0, "down": 0.0}
        self.broken = False
        self.lost = False
        """It was opened over a cut link: a connection needs both ways."""

    def later(self, way: str, act: Callable[[], None]) -> None:
        """In order, however many are on their way at once."""
        loop = asyncio.get_running_loop()
        at = max(loop.time() + self._coordinator.latency_s, self._last[way] + 1e-6)
        self._last[way] = at
        loop.call_at(at, act)

    async def write(self, message: m.ConsumerMessage) -> None:
        if self.broken:
            raise TransportError("UNAVAILABLE", "connection reset")
        if message.register is not None:
            self.consumer_id = message.register.consumer_id
            self.lost = self.consumer_id in self._coordinator.cut_up | self._coordinator.cut_down
        self.sent.append(message)
        if not self.lost and self.consumer_id not in self._coordinator.cut_up:
            self.later("up", lambda: self._coordinator.arrived(self, message))

    async def read(self) -> Any:
        item = await self._down.get()
        if item is _ENDED:
            return None
        if isinstance(item, TransportError):
            self._down.put_nowait(item)
            raise item
        self.received.append(item)
        return item

    def cancel(self) -> None:
        if self.broken:
            return
        self.break_off("CANCELLED")
        if not self.lost and self.consumer_id not in self._coordinator.cut_up:
            self.later("up", lambda: self._coordinator.gone(self))

    def break_off(self, status: str = "UNAVAILABLE") -> None:
        self.broken = True
        self._down.put_nowait(TransportError(status, "connection reset"))

    def deliver(self, item: Any) -> None:
        if self.consumer_id not in self._coordinator.cut_down:
            self.later("down", lambda: self._down.put_nowait(item))


class FakeCoordinator:
    def __init__(self, cluster: FakeCluster, broker: int = 1, **limits: Any) -> None:
        self.cluster = cluster
        self.latency_s = cluster.latency_s
        self.limits = replace(LIMITS, **limits)
        self.stored: dict[str, StoredGroup] = {}
        self.epoch = 0
        self.broker = -1
        self.machine: CoordinatorMachine | None = None
        self.sessions: list[FakeSession] = []
        self.cut_up: set[str] = set()
        """Consumers of which nothing arrives here any more."""
        self.cut_down: set[str] = set()
        """Consumers that hear nothing any more."""
        self.rebalances: list[e.Rebalanced] = []
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        cluster.groups = self  # type: ignore[assignment]
        self.elect(broker)

    # -- whoever coordinates ---------------------------------------------------------------------------------------------------

    def elect(self, broker: int) -> None:
        self.epoch += 1
        self.broker = broker
        self.machine = CoordinatorMachine(self.limits, self.cluster.rand.random)
        self._step(ev.Loaded(broker, self.epoch, tuple(self.stored.values()), self._topics()))

    def depose(self) -> None:
        """It dies: streams break, callers get no answer, and what it had only in memory is gone."""
        self.broker, self.machine = -1, None
        for session in self.open_sessions:
            session.break_off()
        for reply in self._replies.values():
            reply.set_exception(TransportError("UNAVAILABLE", "connection reset"))
        self._replies.clear()
        if self._timer is not None:
            self._timer.cancel()

    def learn_topics(self) -> None:
        """What its watch on the topics tells."""
        self._step(ev.TopicsChanged(self._topics()))

    def name_brokers(self, *brokers: int) -> None:
        """What a Start says of who is alive."""
        known = self.cluster.addresses
        infos = tuple(m.BrokerInfo(id=b, host=known[b].host, port=known[b].port) for b in brokers)
        self._step(ev.BrokersChanged(infos))

    @property
    def open_sessions(self) -> list[FakeSession]:
        return [session for session in self.sessions if not session.broken]

    def session_of(self, consumer_id: str) -> FakeSession:
        return [session for session in self.sessions if session.consumer_id == consumer_id][-1]

    def coordinator_of(self, group_id: str) -> int:
        return self.broker

    def owners(self, group_id: str = "g") -> dict[TopicPartition, str]:
        """As stored."""
        group = self.stored.get(group_id)
        return {} if group is None else {tp: owner.consumer_id for tp, owner in group.owners.items()}

    def offsets(self, group_id: str = "g") -> dict[TopicPartition, int]:
        """As stored."""
        group = self.stored.get(group_id)
        return {} if group is None else {tp: each.offset for tp, each in group.offsets.items()}

    def members(self, group_id: str = "g") -> list[str]:
        group = None if self.machine is None else self.machine.groups.get(group_id)
        return [] if group is None else sorted(group.members)

    def _topics(self) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(each.topic_id, len(each.partitions), number)
            for number, (name, each) in enumerate(self.cluster.topics.items(), 1)
        }

    # -- streams and calls -----------------------------------------------------------------------------------------------------

    def open(self, broker: int) -> FakeSession:
        session = FakeSession(self, len(self.sessions) + 1, broker)
        self.sessions.append(session)
        if broker in self.cluster.down:
            session.break_off()
        return session

    def arrived(self, session: FakeSession, message: m.ConsumerMessage) -> None:
        if session.broken:
            return
        if self.machine is None or session.broker != self.broker:
            refusal = m.RegisterConsumerResponse(
                error_code=ErrorCode.NOT_COORDINATOR, coordinator_epoch=-1, admission=0
            )
            session.deliver(m.CoordinatorMessage(last_number=0, registered=refusal))
            return
        self._step(ev.MessageArrived(ev.ConnectionId(session.connection), "somewhere", message))

    def gone(self, session: FakeSession) -> None:
        if self.machine is not None:
            self._step(ev.ConnectionLost(ev.ConnectionId(session.connection)))

    async def commit_offsets(self, broker_id: int, request: m.CommitOffsetsRequest) -> Any:
        if self.machine is None or broker_id != self.broker:
            return m.CommitOffsetsResponse(error_code=ErrorCode.NOT_COORDINATOR)
        token = len(self.cluster.calls)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[token] = reply
        self._step(ev.CommitRequested(ev.Token(token), request))
        return await reply

    async def fetch_offsets(self, broker_id: int, request: m.FetchOffsetsRequest) -> m.FetchOffsetsResponse:
        if self.machine is None or broker_id != self.broker:
            return m.FetchOffsetsResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return self.machine.fetch_offsets(request)

    # -- effects ---------------------------------------------------------------------------------------------------------------

    def _step(self, event: ev.Event) -> None:
        machine = self.machine
        if machine is None:
            return
        clock = self.cluster.clock
        for effect in machine.step(event, clock.now(), clock.wall_ms()):
            self._do(effect)
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        at = machine.next_at()
        self._timer = None if at is None else loop.call_at(at, lambda: self._step_if(machine, ev.Woken()))

    def _step_if(self, machine: CoordinatorMachine, event: ev.Event) -> None:
        """Unless it was deposed meanwhile."""
        if machine is self.machine:
            self._step(event)

    def _soon(self, event: ev.Event) -> None:
        machine = self.machine
        assert machine is not None
        asyncio.get_running_loop().call_soon(lambda: self._step_if(machine, event))

    def _do(self, effect: e.Effect) -> None:
        match effect:
            case e.Send(connection, message):
                self.sessions[connection - 1].deliver(message)
            case e.Close(connection):
                self.sessions[connection - 1].deliver(_ENDED)
            case e.Reply(token, response):
                self._replies.pop(token).set_result(response)
            case e.Write():
                self._store(effect)
                self._soon(ev.WriteDone(effect.write_id, ev.Outcome.WRITTEN))
            case e.FindEnds(partitions):
                ends = {tp: self.cluster.partition(*tp).end for tp in partitions}
                self._soon(ev.EndsFound(ends))
            case e.Rebalanced():
                self.rebalances.append(effect)
            case e.Resign(reason):
                raise AssertionError(reason)
            case _:
                pass

    def _store(self, write: e.Write) -> None:
        group = self.stored.get(write.group_id)
        owners = {} if group is None else dict(group.owners)
        offsets = {} if group is None else dict(group.offsets)
        for tp, owner in write.owners.items():
            owners.pop(tp, None)
            if owner is not None:
                owners[tp] = owner
        for tp, committed in write.offsets.items():
            offsets.pop(tp, None)
            if committed is not None:
                offsets[tp] = committed
        head = write.head or (None if group is None else group.head)
        assert head is not None
        self.stored[write.group_id] = StoredGroup(write.group_id, head, owners, offsets)
