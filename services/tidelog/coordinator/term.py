"""One term of a shard's coordinator: a machine, the queue that feeds it, and the hands that carry out what it decides.

It acts only while its lease holds: nothing is sent, answered or written in between, no ping either, so that consumers stop by
themselves before another coordinator can give away what they have.
"""

import asyncio
import itertools
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, assert_never

from tidelog.coordinator import events as ev
from tidelog.coordinator.effects import (
    Alarm,
    Answered,
    Close,
    DeleteGroup,
    Disconnected,
    Due,
    Effect,
    Expired,
    FindEnds,
    Gone,
    PingAnswered,
    RebalanceBegun,
    Rebalanced,
    RebalanceWanted,
    Refused,
    Registered,
    Reply,
    Resign,
    Send,
    Write,
)
from tidelog.coordinator.ends import Ends
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.model import TopicInfo
from tidelog.coordinator.record import GroupRecorder
from tidelog.coordinator.store import FencedGroupStore, Stored, read_groups
from tidelog.coordinator.topics import TopicWatcher
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Check, Meta, MetaError, SessionClosed
from tidelog.ports.recorder import CAUSE, SILENT, Cause, Origin, Recorder
from tidelog.runtime import zk_patterns
from tidelog.runtime.election_event import record_election
from tidelog.runtime.group_metrics import GroupMetrics, RebalanceTally
from tidelog.runtime.lease import LeaseKeeper
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire import znodes

log = logging.getLogger(__name__)

INTERNAL: Final = "INTERNAL"
LEASE_POLL_S: Final = 0.01
READ_AGAIN_S: Final = 0.1
TURN_S: Final = 0.005
"""The longest that a full queue keeps the loop from its other work."""

QUEUE_MAX: Final = 20_000
DRAIN_S: Final = 2.0
"""For the last offsets, at the end of a term in order."""

REPAIRED_S: Final = 5.0
"""Between two looks at groups that could not be read."""


class Consumer(Protocol):
    """One consumer's stream."""

    @property
    def listener(self) -> str:
        """By which door it came: the addresses of brokers that it is told are this door's."""
        ...

    def send(self, message: m.CoordinatorMessage) -> None:
        """After what was sent before; never waits."""
        ...

    def close(self) -> None:
        """After what was sent before."""
        ...


class Brokers(Protocol):
    """Live brokers, as their registrations tell."""

    def infos(self, listener: str) -> tuple[m.BrokerInfo, ...]: ...

    def listen(self, listener: Callable[[], None]) -> None: ...

    def forget(self, listener: Callable[[], None]) -> None: ...


class Finder(Protocol):
    async def find(self, partitions: Sequence[TopicPartition]) -> Ends: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all terms of a broker share."""

    broker_id: int
    meta: Meta
    clock: Clock
    topics: TopicWatcher
    brokers: Brokers
    ends: Finder
    metrics: GroupMetrics
    wall_ms: Callable[[], int]
    """The calendar's time, which gains at most a second in a second."""
    notice_pause: Callable[[], None]
    """Tells every term when this process did not run for a while; to be called before anybody is judged."""
    look_up_lags: Callable[[], None]
    """To be called when there are offsets whose lag was never looked up."""
    recorder: Recorder


class _Asked(NamedTuple):
    """A request that waits."""

    answer: "asyncio.Future[Any]"
    repeatable: bool


class _Queued(NamedTuple):
    event: ev.Event
    cause: Origin | None = None


class Term:
    def __init__(
        self,
        shard: int,
        elected: zk_patterns.Elected,
        payload: bytes,
        is_mine: Callable[[str], bool],
        machine: CoordinatorMachine,
        around: Surroundings,
        connection_ids: "itertools.count[int]",
    ) -> None:
        """`payload` is what the shard's ephemeral holds: the lease writes it again and again."""
        self.shard = shard
        self._elected = elected
        self._is_mine = is_mine
        self._machine = machine
        self._around = around
        self._clock = around.clock
        self._metrics = around.metrics
        self._over = asyncio.Event()
        self.resigned: Cause | None = None
        """The event of its end."""
        self._closed = asyncio.Event()
        self._acting = False
        self._finishing = False
        self._damaged: Mapping[str, str] = {}
        self._store: FencedGroupStore | None = None
        self._queue: deque[_Queued] = deque()
        self._news = asyncio.Event()
        self._consumers: dict[ev.ConnectionId, Consumer] = {}
        self._connection_ids = connection_ids
        self._waiting: dict[ev.Token, _Asked] = {}
        self._tokens = itertools.count(1)
        self._infos: dict[str, tuple[m.BrokerInfo, ...]] = {}
        self._first_offsets: set[ev.WriteId] = set()
        """Writes under way that store the first offset of some partition."""
        self.rebalances: defaultdict[str, RebalanceTally] = defaultdict(RebalanceTally)
        """Completed ones by group: for metrics."""
        self._events = None if around.recorder is SILENT else GroupRecorder(around.recorder)
        self._tasks = Supervisor(f"coordinator shard {shard} epoch {elected.epoch}", self._on_failure)
        self._fence = Check(znodes.coordinator_epoch_path(shard), elected.epoch_version)
        self._keeper = LeaseKeeper(
            around.meta,
            around.clock,
            znodes.coordinator_path(shard),
            payload,
            session_id=elected.session_id,
            version=elected.version,
            fence=self._fence,
        )

    @property
    def epoch(self) -> int:
        return self._elected.epoch

    @property
    def acting(self) -> bool:
        """Whether it may answer at this instant."""
        return self._acting and not self._finishing and not self._over.is_set() and self._keeper.holds()

    @property
    def machine(self) -> CoordinatorMachine:
        """For questions that change nothing; only while `acting`."""
        return self._machine

    def refusal(self, group_id: str) -> tuple[ErrorCode, str]:
        """Why a request for the group cannot be answered now; NONE: it can."""
        if self._over.is_set() or self._finishing or (self._acting and not self._keeper.holds()):
            return ErrorCode.NOT_COORDINATOR, "this broker does not coordinate the group"
        if not self._acting:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator still reads its groups"
        if group_id in self._damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group cannot be read: {self._damaged[group_id]}"
        return ErrorCode.NONE, ""

    def end(self, reason: str) -> None:
        """Stops acting at once; `run` returns soon."""
        if not self._over.is_set():
            resigned = m.CoordinatorResigned(shard=self.shard, coordinator_epoch=self.epoch, reason=reason)
            self.resigned = self._around.recorder.record(None, resigned)
            self._over.set()

    async def finish(self, reason: str) -> None:
        """In order (A8.04): no more pings and rebalances, the last offsets are stored, then the end."""
        if self.acting:
            reported = {tp for group in self._machine.groups.values() for tp in group.reported}
            ends = await self._around.ends.find(sorted(reported))
            if self.acting:
                await self._say_last_words(ends)
        self.end(reason)

    async def _say_last_words(self, ends: Ends) -> None:
        assert self._store is not None
        self._step(_Queued(ev.EndsFound(ends)))
        self._finishing = True
        for effect in self._machine.shutdown():
            self._do(effect)
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._store.drained()
        except TimeoutError:
            log.warning("shard %d: not every offset was stored within %.0f s", self.shard, DRAIN_S)

    async def closed(self) -> None:
        """Until `run` has ended every stream."""
        await self._closed.wait()

    async def run(self) -> None:
        """Until the term is over. TaskFailed: a bug."""
        around = self._around
        path, epoch_path = znodes.coordinator_path(self.shard), znodes.coordinator_epoch_path(self.shard)
        written = record_election(around.recorder, path, epoch_path, self._elected, "coordinator epoch")
        won = m.CoordinatorElected(shard=self.shard, coordinator_epoch=self.epoch)
        elected = around.recorder.record(None, won, written)
        self._tasks.start("coordinator lease", self._keep_lease())
        self._tasks.start("coordinator place", self._watch_place())
        self._tasks.start("coordinator", self._take_over(self._clock.now(), elected))
        try:
            await self._over.wait()
        finally:
            self._over.set()
            around.topics.forget(self._on_topics)
            around.brokers.forget(self._on_brokers)
            for consumer in self._consumers.values():
                consumer.close()
            self._consumers.clear()
            self._refuse_waiting()
            self._metrics.deposed(self.shard)
            self._closed.set()
            await self._tasks.stop()
        await self._tasks.wait()

    # requests

    async def ask(self, event: Callable[[ev.Token], ev.Event], *, repeatable: bool = True) -> Any:
        """The machine's answer.

        TidelogError NOT_COORDINATOR when the term ends before there is one; or REQUEST_TIMED_OUT if it has begun with the
        request, which may be done then, and must not be done twice (not `repeatable`).
        """
        token = ev.Token(next(self._tokens))
        asked = self._waiting[token] = _Asked(asyncio.get_running_loop().create_future(), repeatable)
        try:
            self._put(event(token), CAUSE.get())
            return await asked.answer
        finally:
            del self._waiting[token]

    def _refuse_waiting(self) -> None:
        queued = {getattr(each.event, "token", None) for each in self._queue}
        for token, asked in self._waiting.items():
            if asked.answer.done():
                continue
            text, code = "this broker no longer coordinates the group", ErrorCode.NOT_COORDINATOR
            if not asked.repeatable and token not in queued:
                text, code = f"{text}; it may have been done", ErrorCode.REQUEST_TIMED_OUT
            asked.answer.set_exception(TidelogError(text, code))

    def connect(self, consumer: Consumer) -> ev.ConnectionId:
        """Its messages may arrive from now on."""
        connection = ev.ConnectionId(next(self._connection_ids))
        self._consumers[connection] = consumer
        return connection

    def arrived(self, connection: ev.ConnectionId, host: str, message: m.ConsumerMessage) -> None:
        """The present cause is what led the consumer to this message."""
        self._put(ev.MessageArrived(connection, host, message), CAUSE.get())

    def disconnect(self, connection: ev.ConnectionId) -> None:
        self._consumers.pop(connection, None)
        self._put(ev.ConnectionLost(connection), None)

    def paused(self, seconds: float) -> None:
        """This process did not run: whoever seems silent since then may have spoken (COORD-8)."""
        self._queue.appendleft(_Queued(ev.Paused(seconds)))
        self._news.set()

    async def room(self) -> None:
        """Waits while the queue is full: what is not read stays in the transport's window."""
        while len(self._queue) > QUEUE_MAX and not self._over.is_set():
            await self._clock.sleep(LEASE_POLL_S)

    # tasks

    async def _keep_lease(self) -> None:
        await self._keeper.run()
        self.end("its lease is lost")

    async def _watch_place(self) -> None:
        """Until the shard's ephemeral is no longer this term's. An operator may delete it while its session lives: whoever is
        elected then waits for no lease, so that ours must not last until its next beat."""
        path = znodes.coordinator_path(self.shard)
        while True:
            changed = asyncio.Event()
            try:
                stat = await self._around.meta.exists(path, changed.set)
            except SessionClosed:
                return
            except MetaError as error:
                log.info("cannot watch the place of shard %d: %r; again", self.shard, error)
                await self._clock.sleep(READ_AGAIN_S)
                continue
            if stat is None or stat.ephemeral_owner != self._elected.session_id:
                self.end("its place is gone")
                return
            await changed.wait()

    async def _take_over(self, won_at: float, elected: Cause | None) -> None:
        around = self._around
        await self._may_act()
        stored = await self._read(self._is_mine)
        await around.topics.current()
        await self._may_act()
        self._damaged = stored.damaged
        self._store = FencedGroupStore(
            around.meta,
            self._clock,
            self._fence,
            stored.known,
            self._tasks.start,
            self._on_written,
            around.recorder,
        )
        self._tasks.start("coordinator store", self._store.run())
        offsets = sum(len(group.offsets) for group in stored.groups)
        read = m.CoordinatorLoaded(
            shard=self.shard,
            coordinator_epoch=self.epoch,
            groups=len(stored.groups),
            offsets=offsets,
            took_ms=round((self._clock.now() - won_at) * 1000),
        )
        loaded = around.recorder.record(None, read, elected)
        # From here to `listen` nothing is awaited, so that no change of a topic comes in between.
        event = ev.Loaded(around.broker_id, self.epoch, tuple(stored.groups), around.topics.known)
        self._step(_Queued(event, loaded))
        self._acting = True
        around.topics.listen(self._on_topics)
        around.brokers.listen(self._on_brokers)
        self._on_brokers()
        took_s = self._clock.now() - won_at
        self._metrics.elected(self.shard, self.epoch, took_s)
        around.look_up_lags()
        if stored.damaged:
            self._tasks.start("coordinator damage", self._watch_damage())
        await self._run_events()

    async def _read(self, is_wanted: Callable[[str], bool]) -> Stored:
        while True:
            try:
                return await read_groups(self._around.meta, is_wanted, self._around.wall_ms())
            except MetaError as error:
                log.info("cannot read the groups of shard %d: %r; again", self.shard, error)
                await self._clock.sleep(READ_AGAIN_S)

    async def _watch_damage(self) -> None:
        """Ends the term when a group that could not be read is repaired or gone: the next term reads all of them."""
        while True:
            await self._clock.sleep(REPAIRED_S)
            found = await self._read(self._damaged.__contains__)
            if found.damaged.keys() != self._damaged.keys():
                await self.finish("a group that could not be read is repaired")
                return

    async def _run_events(self) -> None:
        while not self._over.is_set():
            await self._until_due()
            await self._may_act()
            self._around.notice_pause()
            turn_ends = self._clock.now() + TURN_S
            while self._queue and self._clock.now() < turn_ends and self.acting:
                self._step(self._queue.popleft())
            due = self._machine.next_at()
            if due is not None and due <= self._clock.now() and self.acting:
                self._step(_Queued(ev.Woken()))
            await self._clock.sleep(0)

    async def _until_due(self) -> None:
        if self._finishing:
            await self._over.wait()
            return
        if self._queue:
            return
        self._news.clear()
        due = self._machine.next_at()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock.now())):
                await self._news.wait()
        except TimeoutError:
            return

    def _step(self, queued: _Queued) -> None:
        event, events = queued.event, self._events
        if events is not None:
            events.begin(event, queued.cause)
        for effect in self._machine.step(event, self._clock.now(), self._around.wall_ms()):
            if events is not None:
                events.note(effect)
            self._do(effect)
        if isinstance(event, ev.WriteDone) and event.write_id in self._first_offsets:
            self._first_offsets.remove(event.write_id)
            self._around.look_up_lags()

    async def _may_act(self) -> None:
        while not self._keeper.holds():
            await self._clock.sleep(LEASE_POLL_S)

    # effects

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(connection, message):
                self._send(connection, message)
            case PingAnswered(seconds):
                self._metrics.ping_answered(seconds)
            case Write() | DeleteGroup():
                assert self._store is not None
                if isinstance(effect, Write):
                    self._metrics.committing(len(effect.offsets))
                    group = self._machine.groups.get(effect.group_id)
                    if group is not None and effect.offsets.keys() - group.offsets.keys():
                        self._first_offsets.add(effect.write_id)
                else:
                    self.rebalances.pop(effect.group_id, None)
                self._store.submit(effect)
            case Close(connection):
                consumer = self._consumers.pop(connection, None)
                if consumer is not None:
                    consumer.close()
            case Reply(token, response):
                asked = self._waiting.get(token)
                if asked is not None and not asked.answer.done():
                    asked.answer.set_result(response)
            case FindEnds(partitions):
                self._tasks.start("coordinator ends", self._find_ends(partitions))
            case Resign(reason):
                self.end(reason)
            case Rebalanced():
                self._metrics.rebalanced(effect.reason, failed=effect.failed, stopped=effect.stopped)
                if not effect.failed:
                    self.rebalances[effect.group_id].completed(effect.reason, effect.seconds)
            case Alarm(group_id, text):
                log.error("group %s: %s", group_id, text)
                self._metrics.alarmed()
            case Refused(what, code):
                self._metrics.refused(what, code)
            case Expired():
                self._metrics.expired(effect.asked.value)
            case Due() | Registered() | Disconnected() | Gone() | RebalanceWanted() | RebalanceBegun() | Answered():
                pass  # they are recorded, and call for nothing
            case _:
                assert_never(effect)

    def _send(self, connection: ev.ConnectionId, message: m.CoordinatorMessage) -> None:
        consumer = self._consumers.get(connection)
        if consumer is None:
            return
        if message.start is not None:
            infos = self._infos.get(consumer.listener)
            if infos is None:
                infos = self._infos[consumer.listener] = self._around.brokers.infos(consumer.listener)
            message = replace(message, start=replace(message.start, brokers_info=infos))
        consumer.send(message)

    async def _find_ends(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._put(ev.EndsFound(await self._around.ends.find(partitions)), None)

    # news

    def _put(self, event: ev.Event, cause: Origin | None) -> None:
        self._queue.append(_Queued(event, cause))
        self._news.set()

    def _on_written(self, write_id: ev.WriteId, outcome: ev.Outcome) -> None:
        self._put(ev.WriteDone(write_id, outcome), CAUSE.get())

    def _on_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        self._put(ev.TopicsChanged(topics), CAUSE.get())

    def _on_brokers(self) -> None:
        self._infos.clear()
        self._put(ev.BrokersChanged(self._around.brokers.infos(INTERNAL)), None)

    def _on_failure(self, task: str) -> None:
        self._metrics.failed(task)
        self._over.set()
