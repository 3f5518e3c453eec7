"""A controller process: one of several stands for election, serves its term, and stands again."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from tidelog import topic_config
from tidelog.config import ControllerSettings
from tidelog.controller.machine import ControllerMachine, MachineSettings
from tidelog.controller.service import ControllerRoutes
from tidelog.controller.term import Term
from tidelog.ports.bundle import Ports
from tidelog.ports.meta import MetaError, SessionState
from tidelog.ports.net import Server
from tidelog.release import RELEASE
from tidelog.runtime import zk_patterns
from tidelog.runtime.authorization import guarded
from tidelog.runtime.cluster_id import ensure_cluster_id
from tidelog.runtime.election_event import resign
from tidelog.runtime.joining import check_release
from tidelog.runtime.metrics import ControllerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.topic_config import TopicConfig
from tidelog.watch.service import WatchService
from tidelog.wire import znodes

log = logging.getLogger(__name__)

STAND_AGAIN_S: Final = 0.5
"""Between the end of a term and the next try, so that the other controller comes first."""
STAND_AGAIN_MAX_S: Final = 8.0
"""The same after terms that could not begin, for a damaged znode; it doubles with each of them."""

STOP_GRACE_S: Final = 1.0
READ_AGAIN_S: Final = 0.1


class Controller:
    """The same class runs in production and in the simulator; only the ports differ."""

    def __init__(
        self,
        settings: ControllerSettings,
        ports: Ports,
        supervisor: Supervisor,
        metrics: ControllerMetrics,
        show_unread: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """`show_unread`: called with all znodes that cannot be read, whenever they are others."""
        self._show_unread = show_unread
        self._settings = settings
        self._ports = ports
        self._supervisor = supervisor
        self._metrics = metrics
        self._server: Server | None = None
        self._watch = WatchService(ports.recorder, ports.clock)
        self._serves = False
        self._cluster_id = ""
        self.term: Term | None = None
        """The term that this process serves; None while it stands by."""

    @property
    def active(self) -> bool:
        """Whether this process is the controller at this instant."""
        return self.term is not None and self.term.acting

    async def start(self) -> None:
        """Returns when it listens and stands for election. OSError: the address is in use."""
        settings, ports = self._settings, self._ports
        await ports.meta.start()
        self._cluster_id = await ensure_cluster_id(ports.meta, ports.rand, settings.cluster_id)
        await check_release(ports.meta, f"controller {settings.controller_id}")
        for path in znodes.PERSISTENT_PARENTS:
            await zk_patterns.ensure_path(ports.meta, path)
        ports.meta.on_session(self._on_session)
        handlers = ControllerRoutes(
            lambda: self.term, ports.clock, ports.rand, self._metrics.requests, settings.request_timeout_ms / 1000
        )
        routes = guarded([*handlers.routes(), self._watch.route()], ports.authorizer, self._metrics.requests.denied)
        self._server = await ports.net.serve(settings.listen, routes, settings.advertised_address)
        self._set_serving(True)  # a standby serves too: it says that it is none
        self._metrics.watch_queue(lambda: 0 if self.term is None else self.term.queue_size())
        log.info("controller %d listens on %s", settings.controller_id, self._server.address)
        self._supervisor.start("controller elections", self._stand())

    def unwell(self) -> str:
        """The reason for which this controller does no work; "": it serves, as the active one or as a standby."""
        return "" if self._serves else "the controller does not serve"

    def _set_serving(self, serves: bool) -> None:
        self._serves = serves
        if self._server is not None:
            self._server.set_serving(serves)

    async def stop(self) -> None:
        """In order: no more requests, no more acts, and the session ends so that another is elected at once."""
        self._set_serving(False)
        if self.term is not None:
            self.term.end("this process stops")
        await self._supervisor.stop()
        await self._ports.meta.close()
        self._watch.end()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST and self.term is not None:
            self.term.end("the ZooKeeper session expired")

    async def _stand(self) -> None:
        standing_by, pause_s = False, STAND_AGAIN_S
        while True:
            payload = self._payload()
            try:
                elected = await zk_patterns.elect(self._ports.meta, znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, payload)
            except znodes.BadZnode as error:
                log.error("nobody can be elected: %s; repair this znode", error)
                await self._ports.clock.sleep(STAND_AGAIN_S)
                continue
            if elected is None:
                if not standing_by:
                    log.info("standing by")
                standing_by = True
                await self._until_vacant()
                continue
            standing_by = False
            term = await self._serve(elected, payload)
            # The ephemeral may still be ours; another term needs another epoch, so that the last one is fenced.
            await resign(self._ports.meta, znodes.CONTROLLER, self._ports.recorder, term.resigned)
            pause_s = STAND_AGAIN_S if term.has_acted else min(2 * pause_s, STAND_AGAIN_MAX_S)
            await self._ports.clock.sleep(pause_s)

    async def _serve(self, elected: zk_patterns.Elected, payload: bytes) -> Term:
        """Returns its term when it is over."""
        term = self.term = Term(
            elected,
            payload,
            ControllerMachine(self._machine_settings()),
            self._settings,
            self._ports,
            self._metrics,
            self._show_unread,
        )
        try:
            await term.run()
        finally:
            self.term = None
        return term

    async def _until_vacant(self) -> None:
        changed = asyncio.Event()
        try:
            if await self._ports.meta.exists(znodes.CONTROLLER, changed.set) is None:
                return
        except MetaError as error:
            log.info("cannot see who the controller is: %r; again", error)
            await self._ports.clock.sleep(READ_AGAIN_S)
            return
        # Each beat of the active controller's lease wakes us too: one read a beat keeps a standby's session proven.
        await changed.wait()

    def _payload(self) -> bytes:
        assert self._server is not None
        advertised = self._settings.advertised_address
        return znodes.encode_controller(
            znodes.ControllerRegistration(
                controller_id=self._settings.controller_id,
                host=advertised.host,
                port=advertised.port or self._server.address.port,
                attempt=self._ports.rand.randbytes(8).hex(),
                release=RELEASE,
            )
        )

    def _machine_settings(self) -> MachineSettings:
        settings = self._settings
        defaults = TopicConfig(min_insync_replicas=settings.min_insync_replicas)
        return MachineSettings(
            controller_id=settings.controller_id,
            cluster_id=self._cluster_id,
            default_partitions=settings.default_partitions,
            default_replication_factor=settings.default_replication_factor,
            min_insync_replicas=settings.min_insync_replicas,
            suspect_hold_s=settings.suspect_hold_ms / 1000,
            parse_config=lambda configs: topic_config.parse(configs, defaults),
            rebalance_interval_s=settings.leader_imbalance_check_interval_ms / 1000
            if settings.auto_leader_rebalance_enable
            else None,
            imbalance_percentage=settings.leader_imbalance_per_broker_percentage,
        )
