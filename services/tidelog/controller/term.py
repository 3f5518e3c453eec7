"""One term of office: a machine, the queue that feeds it, and the hands that carry out what it decides.

It acts only while its lease holds. When the lease lapses for a moment (a pause, a store that is away) everything stands
still; when it can never be had again, or the machine resigns, the term is over and everything is dropped.
"""

import asyncio
import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.config import ControllerSettings
from tidelog.controller import planner
from tidelog.controller.channels import BrokerChannel, internal_address
from tidelog.controller.effects import (
    AskEnds,
    Connect,
    Disconnect,
    Effect,
    Examinable,
    Examine,
    IsrsChanged,
    MakePlan,
    Reply,
    Resign,
    Send,
    Write,
)
from tidelog.controller.events import (
    BrokersChanged,
    ControlledShutdownRequested,
    Elected,
    Event,
    Examined,
    Planned,
    ReplicaEnd,
    ReplicaEndsTold,
    Suspected,
    Tick,
    Token,
    WritesDone,
)
from tidelog.controller.liveness import LivenessWatch, News
from tidelog.controller.machine import ControllerMachine
from tidelog.controller.model import Broker
from tidelog.controller.record import FAILOVER, record_choices, record_step, record_suspicions
from tidelog.controller.rounds import TAKE_OVER, Round, Rounds
from tidelog.controller.store import (
    Directories,
    FencedStore,
    Results,
    brokers_of,
    is_any_readable,
    read_directories,
    read_snapshot,
)
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.bundle import Ports
from tidelog.ports.meta import MetaError, OutcomeUnknown, SessionExpired, Stat
from tidelog.ports.net import Channel
from tidelog.ports.recorder import CAUSE, Cause, Origin, Znode
from tidelog.runtime import zk_patterns
from tidelog.runtime.election_event import record_election
from tidelog.runtime.lease import LeaseKeeper
from tidelog.runtime.metrics import BrokerState, ControllerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire import services, znodes
from tidelog.wire.limits import parts

log = logging.getLogger(__name__)

LEASE_POLL_S: Final = 0.01
TICK_S: Final = 1.0
READ_AGAIN_S: Final = 0.1
ASK_ENDS_S: Final = 2.0
"""Time that an unclean election waits for a broker that does not say how far its logs go."""
REPAIRED_S: Final = 5.0
"""Between two looks at settings that could not be read."""
RECONCILE_S: Final = 30.0
"""Registrations are read again at least this often, whatever the watch says (HOLE-41)."""


@dataclass(frozen=True, slots=True)
class _Queued:
    event: Event
    arrived_at: float
    began_at: float
    cause: Origin | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that waits."""

    answer: "asyncio.Future[Any]"
    """With its cause."""
    repeatable: bool


@dataclass(frozen=True, slots=True)
class _Link:
    broker_epoch: int
    channel: BrokerChannel
    wire: Channel
    task: "asyncio.Task[None]"


class Term:
    def __init__(
        self,
        elected: zk_patterns.Elected,
        payload: bytes,
        machine: ControllerMachine,
        settings: ControllerSettings,
        ports: Ports,
        metrics: ControllerMetrics,
        show_unread: Callable[[Collection[str]], None],
    ) -> None:
        """`payload` is what /controller holds: the lease writes it again and again."""
        self._elected = elected
        self._machine = machine
        self._settings = settings
        self._ports = ports
        self._clock = ports.clock
        self._metrics = metrics
        self._show_unread = show_unread
        self._over = asyncio.Event()
        self.resigned: Cause | None = None
        """The event of its end."""
        self.has_acted = False
        self._acting = False
        self._queue: deque[_Queued] = deque()
        self._news = asyncio.Event()
        self._links: dict[BrokerId, _Link] = {}
        self._lives: dict[str, int] = {}
        """Broker epochs by the names of registrations, as last read."""
        self._directories: dict[str, tuple[tuple[int, str], ...]] = {}
        self._waiting: dict[Token, _Asked] = {}
        self._tokens = itertools.count(1)
        self._rounds = Rounds(self._on_written, self._on_told)
        self._tasks = Supervisor(f"controller epoch {elected.epoch}", self._on_failure)
        self._keeper = LeaseKeeper(
            ports.meta,
            ports.clock,
            znodes.CONTROLLER,
            payload,
            session_id=elected.session_id,
            version=elected.version,
        )
        self._store = FencedStore(
            ports.meta,
            ports.clock,
            elected.epoch_version,
            self._tasks.start,
            self._on_results,
            multi_max_operations=settings.multi_max_operations,
            multi_max_bytes=settings.multi_max_bytes,
            recorder=ports.recorder,
        )

    @property
    def acting(self) -> bool:
        """Whether it may answer at this instant."""
        return self._acting and not self._over.is_set() and self._keeper.holds()

    def queue_size(self) -> int:
        return len(self._queue)

    def end(self, reason: str) -> None:
        """Stops acting at once; `run` returns soon."""
        if not self._over.is_set():
            resigned = m.ControllerResigned(controller_epoch=self._elected.epoch, reason=reason)
            self.resigned = self._ports.recorder.record(None, resigned)
            self._over.set()

    async def run(self) -> None:
        """Until the term is over. TaskFailed: a bug."""
        recorder = self._ports.recorder
        written = record_election(
            recorder, znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, self._elected, "controller epoch"
        )
        elected = recorder.record(None, m.ControllerElected(controller_epoch=self._elected.epoch), written)
        self._tasks.start("controller lease", self._keep_lease())
        self._tasks.start("controller take-over", self._take_over(self._clock.now(), elected))
        try:
            await self._over.wait()
        finally:
            self._over.set()
            await self._tasks.stop()
            self._refuse_waiting()
            self._show_unread(())
            self._metrics.standing_by()
        await self._tasks.wait()

    async def ask(self, event: Callable[[Token], Event], *, repeatable: bool = True) -> Any:
        """The machine's answer to a request.

        TidelogError NOT_CONTROLLER when the term ends before there is one; or REQUEST_TIMED_OUT if it has begun with the
        request, which may be done then, and must not be done twice (not `repeatable`).
        """
        token = Token(next(self._tokens))
        asked = self._waiting[token] = _Asked(asyncio.get_running_loop().create_future(), repeatable)
        try:
            self._put(event(token))
            answer, cause = await asked.answer
            CAUSE.set(cause)
            return answer
        finally:
            del self._waiting[token]

    def _refuse_waiting(self) -> None:
        queued = {getattr(each.event, "token", None) for each in self._queue}
        for token, asked in self._waiting.items():
            if asked.answer.done():
                continue
            text, code = "this controller has been deposed", ErrorCode.NOT_CONTROLLER
            if not asked.repeatable and token not in queued:
                text, code = f"{text}; it may have been done", ErrorCode.REQUEST_TIMED_OUT
            asked.answer.set_exception(TidelogError(text, code))

    # tasks

    async def _keep_lease(self) -> None:
        await self._keeper.run()
        self.end("its lease is lost")

    async def _take_over(self, won_at: float, elected: Cause | None) -> None:
        await self._may_act()
        while True:
            try:
                snapshot = await read_snapshot(self._ports.meta)
                break
            except MetaError as error:
                log.info("cannot read the cluster's state: %r; again", error)
                await self._clock.sleep(READ_AGAIN_S)
            except znodes.BadZnode as error:
                # Brokers would delete what a controller leaves out; a damaged znode is an operator's business.
                log.error("cannot take over: %s; repair or delete this znode", error)
                self.end("a znode is damaged")
                return
        for problem in snapshot.unread.values():
            log.error("%s; it goes on without: repair this znode", problem)
        loaded = m.ControllerLoaded(
            controller_epoch=self._elected.epoch, topics=len(snapshot.topics), brokers=len(snapshot.brokers)
        )
        CAUSE.set(self._ports.recorder.record(None, loaded, elected))
        self._lives = {str(each.broker_id): each.epoch for each in snapshot.brokers}
        self._directories = {str(each.broker_id): each.directories for each in snapshot.brokers}
        self._put(Elected(self._elected.epoch, snapshot), self._clock.now() - won_at)
        self._acting = self.has_acted = True
        self._metrics.became_active(self._elected.epoch, self._clock.now() - won_at)
        self._tasks.start("controller store", self._store.run())
        self._tasks.start("controller brokers", self._watch_brokers())
        self._tasks.start("controller ticks", self._tick())
        if snapshot.unread:
            self._tasks.start("controller unread znodes", self._watch_unread(snapshot.unread))
        await self._run_events()

    async def _watch_unread(self, unread: Iterable[str]) -> None:
        """Ends the term when settings that could not be read are repaired: the next one reads and tells them."""
        paths = set(unread)
        while paths:
            self._show_unread(paths)
            await self._clock.sleep(REPAIRED_S)
            paths &= self._machine.state.unread.keys()  # those of a deleted topic are gone
            try:
                if await is_any_readable(self._ports.meta, paths):
                    self.end("a znode that could not be read is repaired")
                    return
            except MetaError as error:
                log.info("cannot look at damaged znodes: %r; again", error)
        self._show_unread(())

    async def _watch_brokers(self) -> None:
        async for nodes in zk_patterns.watch_children(self._ports.meta, znodes.BROKER_IDS, reconcile_s=RECONCILE_S):
            self._put(BrokersChanged(brokers_of(nodes, await self._read_directories(nodes))))

    async def _read_directories(self, nodes: dict[str, tuple[bytes, Stat]]) -> Directories:
        """Reads them for lives that begin: that one has ended must be known at once."""
        lives = {name: stat.czxid for name, (_, stat) in nodes.items()}
        begun = [name for name, life in lives.items() if self._lives.get(name) != life]
        while begun:
            try:
                self._directories |= await read_directories(self._ports.meta, begun)
                break
            except (OutcomeUnknown, SessionExpired) as error:
                log.info("cannot read the data directories of brokers: %r; again", error)
                await self._clock.sleep(READ_AGAIN_S)
        self._lives = lives
        return self._directories

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            self._put(Tick(self._clock.now()))

    async def _run_events(self) -> None:
        while not self._over.is_set():
            if not self._queue:
                self._news.clear()
                await self._news.wait()
            await self._may_act()
            queued = self._queue.popleft()
            if self._settings.shutdown_reads_states and isinstance(queued.event, ControlledShutdownRequested):
                await self._read_states_of(BrokerId(queued.event.request.broker_id))
            self._step(queued)
            await self._clock.sleep(0)  # a long queue must not keep the lease and the answers waiting

    async def _read_states_of(self, broker_id: BrokerId) -> None:
        """What the machine knows already: it costs its time and changes nothing."""
        paths = [znodes.state_path(*tp) for tp in self._machine.state.partitions_on(broker_id)]
        try:
            await self._ports.meta.sync(znodes.TOPICS)
            await self._ports.meta.get_many(paths)
        except MetaError as error:
            log.info("cannot read the states of broker %d: %r", broker_id, error)

    def _step(self, queued: _Queued) -> None:
        CAUSE.set(queued.cause)
        suspects = self._machine.suspects
        started_at = self._clock.now()
        effects = self._machine.step(queued.event)
        decided_at = self._clock.now()
        record_suspicions(self._ports.recorder, suspects, self._machine.suspects)
        name = type(queued.event).__name__
        self._metrics.handled(name, started_at - queued.arrived_at, decided_at - started_at)
        told: list[Round] = []
        if isinstance(queued.event, WritesDone):
            told = self._rounds.written((group for group, _ in queued.event.results), decided_at)
        elif isinstance(queued.event, Elected):
            told = [Round(TAKE_OVER, 0, queued.began_at, queued.arrived_at, decided_at, set())]
        for effect in effects:
            if isinstance(effect, Write):
                begun = self._rounds.begin(
                    effect, began_at=queued.began_at, noticed_at=queued.arrived_at, decided_at=decided_at
                )
                if begun is not None:
                    record_step(self._ports.recorder, 1, begun, begun.noticed_at - begun.began_at)
                    record_step(self._ports.recorder, 2, begun, begun.decided_at - begun.noticed_at)
            self._do(effect, told)
        self._show()
        if isinstance(queued.event, Tick):
            self._metrics.vetoed(len(self._machine.vetoed()))

    # effects

    def _do(self, effect: Effect, told: list[Round]) -> None:
        match effect:
            case Connect(broker):
                self._connect(broker)
            case Disconnect(broker_id, broker_epoch):
                self._disconnect(broker_id, broker_epoch)
            case Write(groups):
                record_choices(self._ports.recorder, effect, self._machine.state)
                for tp in effect.unclean:
                    log.warning("%s: unclean election (%s): acknowledged records may be lost", tp, effect.cause)
                self._store.submit(groups)
            case Examine(groups):
                self._tasks.start("controller examine", self._examine(groups))
            case Send(broker_id, request):
                self._send(broker_id, request, told)
            case AskEnds():
                self._tasks.start(f"controller question: broker {effect.broker_id}", self._ask_ends(effect))
            case Reply(token, answer):
                asked = self._waiting.get(Token(token))
                if asked is not None and not asked.answer.done():
                    asked.answer.set_result((answer, CAUSE.get()))
            case MakePlan():
                self._tasks.start("controller plan", self._plan(effect))
            case IsrsChanged(shrinks, expansions):
                self._metrics.isrs_changed(shrinks, expansions)
            case Resign(reason):
                self.end(reason)

    def _send(
        self,
        broker_id: BrokerId,
        request: m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest,
        told: list[Round],
    ) -> None:
        link = self._links.get(broker_id)
        if link is None:
            return
        # A suspect is told too, but nobody waits for its answer.
        waited_for = told if broker_id not in self._machine.suspects else []
        marks = [self._rounds.tell(each, self._clock.now) for each in waited_for]

        def delivered() -> None:
            for mark in marks:
                mark()

        link.channel.send(request, delivered if marks else None)

    def _connect(self, broker: Broker) -> None:
        address = internal_address(broker)
        if address is None:
            log.error("broker %d is registered without an INTERNAL listener", broker.broker_id)
            return
        # A life begins when its ephemeral is made, which is version 0.
        made = Znode(znodes.broker_path(broker.broker_id), 0)
        seen = self._ports.recorder.record(broker.broker_id, m.BrokerSeen(broker_id=broker.broker_id), made)
        if CAUSE.get() is None:
            CAUSE.set(seen)  # after an election and after the end of a life, that led to what follows
        wire = self._ports.net.channel(address, purpose="control")
        channel = BrokerChannel(
            broker,
            wire,
            self._clock,
            self._settings.request_timeout_ms / 1000,
            self._may_act,
            self._put,
            merges=self._settings.control_requests_merged,
            recorder=self._ports.recorder,
        )
        watch = LivenessWatch(
            broker,
            wire,
            self._ports.net,
            self._clock,
            m.LivenessPing(controller_id=self._settings.controller_id, controller_epoch=self._elected.epoch),
            self._settings.suspect_probe_interval_ms / 1000,
            self._may_act,
            self._on_liveness,
        )

        async def run() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(channel.run())
                    group.create_task(watch.run())
            finally:
                await wire.close()

        task = self._tasks.start(f"controller link: broker {broker.broker_id}", run())
        self._links[broker.broker_id] = _Link(broker.epoch, channel, wire, task)

    def _disconnect(self, broker_id: BrokerId, broker_epoch: int) -> None:
        gone = Znode(znodes.broker_path(broker_id), znodes.NO_VERSION)
        CAUSE.set(self._ports.recorder.record(broker_id, m.BrokerLost(broker_id=broker_id), gone))
        link = self._links.get(broker_id)
        if link is not None and link.broker_epoch == broker_epoch:
            del self._links[broker_id]
            link.task.cancel()
            link.channel.gone()

    async def _ask_ends(self, effect: AskEnds) -> None:
        """An answer follows in any case: an election waits for it."""
        ends: dict[TopicPartition, ReplicaEnd] = {}
        link = self._links.get(effect.broker_id)
        if link is not None and link.broker_epoch == effect.broker_epoch:
            asked = [
                m.ReplicaEndsPartition(topic=tp.topic, topic_id=topic_id, partition=tp.partition)
                for tp, topic_id in effect.partitions
            ]
            try:
                async with asyncio.timeout(ASK_ENDS_S):
                    for part in parts(m.ReplicaEndsRequest, asked):
                        request = m.ReplicaEndsRequest(
                            controller_id=self._settings.controller_id,
                            controller_epoch=self._elected.epoch,
                            broker_epoch=effect.broker_epoch,
                            partitions=part,
                        )
                        answer = await link.wire.call(services.BROKER_CONTROL_REPLICA_ENDS, request, ASK_ENDS_S)
                        ends.update(
                            (TopicPartition(each.topic, each.partition), ReplicaEnd(each.last_epoch, each.end_offset))
                            for each in answer.partitions
                            if each.error_code is ErrorCode.NONE
                        )
            except (TransportError, TimeoutError) as error:
                log.info("broker %d does not say how far its logs go: %s", effect.broker_id, error)
        for tp, end in ends.items():
            log.info("%s: broker %d holds records up to offset %d of epoch %d", tp, effect.broker_id, end[1], end[0])
        self._put(ReplicaEndsTold(effect.broker_id, effect.broker_epoch, effect.partitions, ends))

    async def _examine(self, groups: tuple[Examinable, ...]) -> None:
        self._put(Examined(tuple(await self._store.examine(groups))))

    async def _plan(self, effect: MakePlan) -> None:
        token = Token(effect.token)
        work = functools.partial(planner.rebalance, effect.current, effect.brokers, leaving=effect.leaving)
        try:
            rows = await self._ports.disk.in_background(work)
        except TidelogError as error:
            self._put(Planned(token, {}, error.code, error.message))
        else:
            self._put(Planned(token, rows))

    async def _may_act(self) -> None:
        while not self._keeper.holds():
            await self._clock.sleep(LEASE_POLL_S)

    # news

    def _put(self, event: Event, ago_s: float = 0.0) -> None:
        now = self._clock.now()
        self._queue.append(_Queued(event, now, now - ago_s, CAUSE.get()))
        self._news.set()

    def _on_results(self, results: Results) -> None:
        self._put(WritesDone(tuple(results)))

    def _on_liveness(self, event: News, ago_s: float) -> None:
        if isinstance(event, Suspected):
            log.debug("broker %d refuses connections", event.broker_id)
        self._put(event, ago_s)

    def _on_failure(self, task: str) -> None:
        self._metrics.process.task_failed(task)
        self._over.set()

    def _on_written(self, each: Round) -> None:
        record_step(self._ports.recorder, 3, each, each.written_at - each.decided_at)
        self._metrics.elected(each.cause, each.elections, each.written_at - each.began_at, unclean=each.unclean)

    def _on_told(self, each: Round) -> None:
        steps = each.steps()
        record_step(self._ports.recorder, 4, each, each.told_at - each.written_at)
        log.info(
            "%s: %d leaders elected; %s",
            each.cause,
            each.elections,
            ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in steps.items()),
        )
        if each.cause == TAKE_OVER:
            for name, seconds in steps.items():
                self._metrics.take_over_step(name, seconds)
        elif each.cause in FAILOVER:
            for name, seconds in steps.items():
                self._metrics.failover_step(name, seconds)

    def _show(self) -> None:
        state, health = self._machine.state, self._machine.state.health
        suspected = len(self._machine.suspects)
        self._metrics.cluster(
            alive=len(state.brokers) - len(self._machine.suspects | state.shutting_down),
            suspected=suspected,
            shutting_down=len(state.shutting_down),
            topics=len(state.topics),
            partitions=state.partition_count,
            reassigning=len(state.moving),
            offline=health.leaderless,
            under_replicated=health.under_replicated,
            under_min_isr=health.under_min_isr,
            at_min_isr=health.at_min_isr,
            not_preferred=health.not_preferred,
        )
        self._metrics.broker_states({broker_id: self._state_of(broker_id) for broker_id in state.brokers})

    def _state_of(self, broker_id: BrokerId) -> BrokerState:
        if broker_id in self._machine.suspects:
            return BrokerState.SUSPECTED
        return BrokerState.SHUTTING_DOWN if broker_id in self._machine.state.shutting_down else BrokerState.ALIVE
