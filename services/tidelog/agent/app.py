"""An agent: one consumer of a group, one handler, a worker between them."""

import asyncio
import logging
import platform
from collections import Counter
from typing import Final

from tidelog.agent.files import FileHandler
from tidelog.agent.forward import ForwardHandler
from tidelog.agent.functions import FunctionHandler, load_function
from tidelog.agent.handler import Handler
from tidelog.agent.watching import CountHandler, LogHandler
from tidelog.agent.worker import Worker, WorkerOptions
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.producer import Producer
from tidelog.config import AgentSettings
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.disk import Disk
from tidelog.ports.rand import Rand
from tidelog.runtime.agent_metrics import NEVER_S, AgentMetrics, AgentSnapshot
from tidelog.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

BROKERS_AGAIN_S: Final = 1.0
SESSIONS_WITHOUT_WORK: Final = 3
"""Session timeouts after which an agent without a successful poll or commit is unwell: a failover takes less than one."""
STATES: Final = (
    "starting",
    "joining",
    "stable",
    "rebalancing",
    "reconnecting",
    "unreachable",
    "leaving",
    "left",
    "failed",
)
"""Of the membership, and before it."""


def agent_id_of(settings: AgentSettings, rand: Rand) -> str:
    return settings.agent_id or f"{platform.node()}-{rand.randbytes(4).hex()}"


def handler_of(settings: AgentSettings, agent_id: str, ports: ClientPorts, disk: Disk) -> Handler:
    """ConfigError when there is none of that name."""
    match settings.handler:
        case "count":
            return CountHandler()
        case "log":
            return LogHandler()
        case "forward":
            producer = Producer(settings.bootstrap_servers, acks="all", client_id=agent_id, ports=ports)
            return ForwardHandler(producer, settings.forward_topic)
        case "file":
            return FileHandler(
                disk, settings.file_directory, settings.file_format, settings.file_bytes_max, writer=agent_id
            )
    return FunctionHandler(load_function(settings.handler))


class Agent:
    def __init__(
        self, settings: AgentSettings, agent_id: str, handler: Handler, ports: ClientPorts, metrics: AgentMetrics
    ) -> None:
        self._settings = settings
        self._handler = handler
        self._ports = ports
        # One that was killed is a member until its session is over; its successor must not wait for that.
        life = "" if settings.static_member else f"-{ports.rand.randbytes(4).hex()}"
        self.consumer_id = agent_id + life
        self._consumer = Consumer(
            settings.bootstrap_servers,
            group=settings.group_id,
            topics=settings.topics,
            pattern=settings.pattern or None,
            consumer_id=self.consumer_id,
            client_id=agent_id,
            static=settings.static_member,
            assignor=settings.assignor,
            session_timeout_ms=settings.session_timeout_ms,
            max_processing_ms=settings.max_processing_ms,
            auto_commit=False,  # the worker commits what its handler has made safe
            auto_offset_reset=settings.auto_offset_reset,
            request_timeout_ms=settings.request_timeout_ms,
            on_revoked=self._revoked,
            on_lost=self._lost,
            max_bytes=settings.fetch_max_bytes,
            ports=ports,
        )
        options = WorkerOptions(settings.on_error, settings.chunk_records, settings.commit_interval_ms / 1000)
        self._worker = Worker(self._consumer, handler, ports.clock, metrics, options)
        self._work: asyncio.Task[None] | None = None
        self._failure: TidelogError | None = None
        self._handler_runs = False
        self._member = False

    async def run(self, supervisor: Supervisor) -> None:
        """Until it is cancelled; TidelogError when the agent cannot go on."""
        while not await self._start():
            await self._ports.clock.sleep(BROKERS_AGAIN_S)
        log.info("the agent runs", extra={"group": self._settings.group_id, "handler": self._settings.handler})
        self._work = supervisor.start("agent worker", self._run_worker())
        await asyncio.wait(
            [self._work]
        )  # a cancelled wait leaves the worker at work: `stop` ends it between two chunks
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """The chunk at hand is finished, what was handled is made safe and committed, and the group is left (A18.01)."""
        self._worker.stop()
        try:
            if self._work is not None and not self._work.done():
                await asyncio.wait([self._work], timeout=self._settings.stop_timeout_ms / 1000)
                if not self._work.done():
                    log.warning("the handler takes too long; the next owner handles its records again")
                    self._work.cancel()
            if self._member:
                await self._consumer.stop()
        finally:
            if self._handler_runs:
                await self._handler.close()

    def snapshot(self) -> AgentSnapshot:
        """For metrics."""
        if not self._member:
            return AgentSnapshot("starting")
        stats = self._consumer.stats
        owned = self._consumer.assignment
        lag: Counter[str] = Counter()
        for tp in owned:
            ends_at = self._consumer.high_watermark(tp)
            if tp in self._worker.positions and ends_at >= 0:
                lag[tp.topic] += max(ends_at - self._worker.positions[tp], 0)
        counts = stats.membership
        since_ping_s = NEVER_S if stats.last_heard_s is None else stats.last_heard_s
        by_topic = Counter(tp.topic for tp in owned)
        return AgentSnapshot(
            stats.state, stats.generation, by_topic, lag, since_ping_s, counts.stops, counts.starts, counts.losses
        )

    def unwell(self) -> str:
        """The reason for which this agent does no work; "": it does, or has none to do."""
        if not self._member:
            return "no broker has answered yet"
        limit_s = SESSIONS_WITHOUT_WORK * self._settings.session_timeout_ms / 1000
        worked_at, heard_s = self._worker.worked_at, self._consumer.stats.last_heard_s
        if worked_at is not None and self._ports.clock.now() - worked_at <= limit_s:
            return ""
        if self._consumer.assignment:
            return f"no poll and no commit has succeeded for {limit_s:g} s"
        heard = heard_s is not None and heard_s <= limit_s
        return "" if heard else f"the coordinator has not answered for {limit_s:g} s"

    async def _start(self) -> bool:
        """False while no broker answers (OPEN-06)."""
        try:
            if not self._handler_runs:
                await self._handler.start()
                self._handler_runs = True
            await self._consumer.start()
            self._member = True
        except ClusterUnreachable as error:
            log.warning("waiting for a broker", extra={"error": error.message})
        return self._member

    async def _run_worker(self) -> None:
        try:
            await self._worker.run()
        except TidelogError as error:
            self._failure = error

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        await self._worker.revoked(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._worker.lost(partitions)
