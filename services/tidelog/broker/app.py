"""A broker: builds its parts from settings and ports, starts them in order, stops them in order.

The same class runs in production and in the simulator; only the ports differ.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from tidelog import topic_config
from tidelog.broker.admin_service import BrokerAdmin
from tidelog.broker.cleaner import CleanerSettings, LogCleaner
from tidelog.broker.config_view import topic_defaults
from tidelog.broker.control_plane.alter_isr import AlterIsrControlPlane, AlterIsrSettings
from tidelog.broker.control_service import ControlService, controller_epoch_in
from tidelog.broker.controller_link import ControllerLink
from tidelog.broker.fetch import FetchHandler
from tidelog.broker.flusher import Flusher
from tidelog.broker.follower_session import FollowerSessions
from tidelog.broker.groups import coordinators, group_snapshots
from tidelog.broker.hand_over import HandOver
from tidelog.broker.leader_fetcher import LeaderFetchers
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.past_guard import PastGuard
from tidelog.broker.produce import ProduceHandler
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.registration import Registration
from tidelog.broker.replica_manager import ReplicaManager, ReplicaSettings
from tidelog.broker.retention import Retention
from tidelog.broker.reviver import Reviver
from tidelog.broker.rot import RottenLogs
from tidelog.broker.scrubber import Scrubber, ScrubSettings
from tidelog.broker.service import BrokerService
from tidelog.broker.snapshots import longest_stalls, partition_snapshots
from tidelog.broker.stray_keeper import StrayKeeper
from tidelog.broker.throttle import Quota
from tidelog.broker.watch_relay import WatchRelay
from tidelog.config import BrokerSettings
from tidelog.coordinator.service import CoordinatorService
from tidelog.coordinator.shards import Coordinators
from tidelog.errors import TidelogError
from tidelog.ids import BrokerId
from tidelog.ports.bundle import Ports
from tidelog.ports.net import Server
from tidelog.release import RELEASE
from tidelog.runtime.authorization import guarded
from tidelog.runtime.cluster_id import ensure_cluster_id
from tidelog.runtime.joining import check_release
from tidelog.runtime.metrics import BrokerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.sizes import Carriage, Carried
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.producer_state import ProducerLimits
from tidelog.topic_config import TopicConfig
from tidelog.watch.service import WatchService
from tidelog.wire.messages import ConfigEntry, Listener
from tidelog.wire.services import ADMIN_SERVICE_DESCRIBE_TOPICS
from tidelog.wire.znodes import INTACT_SINCE_NOW, BrokerRegistration

_log = logging.getLogger(__name__)

TICK_SHARE: Final = 1 / 20
"""Of the lag limit: how often lag is judged."""

HIGH_WATERMARK_FLUSH_S: Final = 0.1
CALLS_GRACE_S: Final = 0.5
"""For answers that are on their way. What other brokers, controllers and producers have open is streams, which end only when
they are cut, so that every stop takes this long."""
LOAD_TURN_S: Final = 0.05
"""For so long a thread opens logs before the event loop hears of it: a turn for each log costs more than to open it."""
FLUSH_GRACE_S: Final = 2.0


def parse_known(entries: tuple[ConfigEntry, ...], defaults: TopicConfig) -> TopicConfig:
    """A newer controller may send a key that this broker does not know: the others still count."""
    config = defaults
    for entry in entries:
        try:
            config = topic_config.parse((entry,), config)
        except TidelogError as error:
            _log.warning("topic config left out: %s", error)
    return config


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        ports: Ports,
        supervisor: Supervisor,
        metrics: BrokerMetrics,
        *,
        open_files_max: int | None = None,
    ) -> None:
        """`open_files_max`: for a process that cannot open as many as the settings say."""
        self._settings = settings
        self._open_files_max = open_files_max
        self._ports = ports
        self._supervisor = supervisor
        self._metrics = metrics
        self._servers: list[Server] = []
        self._watch: WatchService | None = None
        self._flusher: Flusher | None = None
        self._stopping = False
        self._serves = False
        self._hand_over: HandOver | None = None
        self._logs: LogStore | None = None
        self.manager: ReplicaManager | None = None
        self.registration: Registration | None = None
        self.coordinators: Coordinators | None = None
        self.metadata = MetadataCache()

    async def start(self) -> None:
        """Returns when the broker listens and has begun to register; it serves once the controller has spoken."""
        settings, ports = self._settings, self._ports
        await ports.meta.start()
        cluster_id = await ensure_cluster_id(ports.meta, ports.rand, settings.cluster_id)
        await check_release(ports.meta, f"broker {settings.broker_id}")
        self.metadata.cluster_id = cluster_id
        self.metadata.cluster_name = settings.cluster_name
        self.metadata.on_deleted = self._metrics.topics.deleted
        logs = self._logs = await self._open_logs(cluster_id)
        manager = self.manager = self._replica_manager(logs)
        link = ControllerLink(ports.meta, ports.net, ports.clock)
        control = self._control(manager)
        manager.on_failed = control.disk_failed
        guard = PastGuard(settings.broker_id, logs.past, ports.meta, ports.clock)
        control.on_controller = guard.ordered
        manager.carriage = self.metadata.carriage = Carriage(settings.fetch_max_bytes)
        registration = self.registration = Registration(
            self._describe,
            ports.meta,
            ports.net,
            ports.clock,
            ports.rand,
            self._spawn,
            lambda epoch: self._on_registered(epoch, guard, control, fetchers),
            guard.witness,
            ports.recorder,
        )
        self._hand_over = self._leaving(manager, link, registration)
        plane = AlterIsrControlPlane(
            AlterIsrSettings(
                broker_id=settings.broker_id,
                timeout_s=settings.request_timeout_ms / 1000,
                expand_linger_s=settings.isr_expand_linger_ms / 1000,
            ),
            lambda: registration.broker_epoch,
            lambda: control.controller_epoch,
            link,
            manager,
            ports.clock,
            ports.rand,
            self._metrics.replication.alter_isr_answered,
        )
        fetchers, sessions = self._replication(manager)
        flusher = self._flusher = Flusher(
            ports.clock, ports.disk, self._spawn, settings.log_flush_stall_limit_ms / 1000, logs.sync_epochs
        )
        manager.connect(fetchers, plane, flusher)
        groups = self._coordinate()
        await self._listen(self._service(manager, sessions, control, link, registration, groups))
        self._metrics.watch_partitions(
            lambda: partition_snapshots(manager, settings.broker_id, ports.clock),
            lambda: longest_stalls(manager, ports.clock),
            settings.metrics_partitions_max,
        )
        self._spawn("controller link", link.run())
        self._spawn("AlterIsr", plane.run())
        self._spawn("lag", manager.run_ticks())
        self._spawn("checkpoints", manager.run_checkpoints())
        retention_s = settings.log_retention_check_interval_ms / 1000
        self._spawn(
            "retention", Retention(ports.clock, ports.disk, manager, retention_s, self._metrics.log.ahead).run()
        )
        self._maintain(manager, logs)
        reviver = Reviver(settings.broker_id, manager, logs, ports.clock, ports.disk)
        self._spawn("revivals", reviver.run(settings.replica_fetch_chunk_bytes * 2))
        self._spawn("flushes", flusher.run(manager, settings.log_flush_interval_ms / 1000))
        self._spawn("high watermarks", sessions.run_flushes())
        self._spawn("registration", registration.run())
        self._spawn("witness", guard.run())

    def _maintain(self, manager: ReplicaManager, logs: LogStore) -> None:
        """Strays, and compaction and scrub in the worker process, and what becomes of logs that have rotted."""
        settings, ports = self._settings, self._ports
        self._spawn("strays", StrayKeeper(settings.broker_id, manager, ports.meta, ports.clock).run())
        rotten = RottenLogs(ports.clock, self._metrics.cleaner, logs.data_lost)
        manager.on_rotten = rotten.found
        self._spawn("rotten logs", rotten.run())
        if ports.worker is None:
            return
        scrub = ScrubSettings(settings.log_scrub_interval_ms / 1000, settings.log_scrub_io_max_bytes_per_second)
        scrubber = Scrubber(scrub, ports.worker, ports.clock, manager, self._metrics.cleaner, rotten.found)
        self._spawn("scrub", scrubber.run())
        if settings.log_cleaner_enable:
            cleaner_settings = CleanerSettings(
                backoff_s=settings.log_cleaner_backoff_ms / 1000,
                keys_max=settings.log_cleaner_keys_max,
                inflated_bytes_max=settings.validate_inflated_bytes_max,
                index_interval_bytes=settings.index_interval_bytes,
                bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
            )
            cleaner = LogCleaner(
                *(cleaner_settings, ports.worker, ports.clock, ports.disk),
                *(manager, logs.marks.cleaner_offsets, self._metrics.cleaner, rotten.found),
                all_in_sync=self.metadata.all_in_sync,
            )
            self._spawn("compaction", cleaner.run())

    def _replica_manager(self, logs: LogStore) -> ReplicaManager:
        settings, ports = self._settings, self._ports
        replica_settings = ReplicaSettings(
            broker_id=settings.broker_id,
            lag_max_s=settings.replica_lag_time_max_ms / 1000,
            tick_s=settings.replica_lag_time_max_ms / 1000 * TICK_SHARE,
            checkpoint_s=settings.high_watermark_checkpoint_interval_ms / 1000,
        )
        return ReplicaManager(
            replica_settings, ports.clock, logs, self._metrics.replication, ports.disk, ports.recorder
        )

    def _replication(self, manager: ReplicaManager) -> tuple[LeaderFetchers, FollowerSessions]:
        """What this broker takes as a follower, and what it sends as a leader."""
        settings, ports = self._settings, self._ports
        fetchers = LeaderFetchers(
            settings.broker_id,
            ports.net,
            ports.clock,
            self.metadata.address_of,
            self._spawn,
            self._metrics.replication.received,
            Quota(ports.clock, lambda: self.metadata.follower_throttle),
            manager.cuts.cutting,
        )
        sessions = FollowerSessions(
            manager,
            ports.clock,
            settings.replica_fetch_chunk_bytes,
            HIGH_WATERMARK_FLUSH_S,
            self._metrics.replication.sent,
            Quota(ports.clock, lambda: self.metadata.leader_throttle),
        )
        self._metrics.replication.watch_held_back(lambda: sessions.held_back)
        return fetchers, sessions

    def _leaving(self, manager: ReplicaManager, link: ControllerLink, registration: Registration) -> HandOver | None:
        settings = self._settings
        if not settings.controlled_shutdown_enable:
            return None
        backoff_s = settings.controlled_shutdown_retry_backoff_ms / 1000
        return HandOver(
            settings.broker_id,
            lambda: registration.broker_epoch,
            link,
            manager,
            self._ports.clock,
            limit_s=settings.controlled_shutdown_max_retries * backoff_s,
            backoff_s=backoff_s,
        )

    def _control(self, manager: ReplicaManager) -> ControlService:
        defaults = topic_defaults(self._settings)
        return ControlService(
            self._settings.broker_id,
            lambda: -1 if self.registration is None else self.registration.broker_epoch,
            manager,
            self.metadata,
            lambda entries: parse_known(entries, defaults),
            manager.set_strays_aside,
            manager.live_changed,
            self._set_serving,
            lambda: controller_epoch_in(self._ports.meta),
            self._ports.recorder,
        )

    def _service(
        self,
        manager: ReplicaManager,
        sessions: FollowerSessions,
        control: ControlService,
        link: ControllerLink,
        registration: Registration,
        groups: CoordinatorService | None,
    ) -> BrokerService:
        clock, topics = self._ports.clock, self._metrics.topics
        refuse_alone = self._settings.acks_without_lease == "refuse"
        produce = ProduceHandler(
            manager,
            clock,
            # While it stops another leader may be chosen already: what only this one holds would be cut away.
            lambda: not self._stopping and (not refuse_alone or registration.holds_lease()),
            topics.produced,
            topics.rejected,
            self._metrics.requests,
            self._ports.disk.in_background,
            self._settings.validate_inflated_bytes_max,
        )
        fetch = FetchHandler(manager, clock, self._settings.fetch_max_bytes, topics.fetched, self._metrics.requests)
        self._metrics.requests.watch_parked("Fetch", lambda: fetch.waiting)
        self._metrics.requests.watch_parked("Produce", lambda: produce.waiting)
        producer_ids = ProducerIds(
            self._settings.broker_id,
            lambda: registration.broker_epoch,
            link,
            clock,
            self._ports.rand,
            self._settings.request_timeout_ms / 1000,
        )
        self._spawn("producer ids", producer_ids.run())
        admin = BrokerAdmin(
            self._settings,
            manager,
            self._ports.disk,
            lambda asked: link.call(ADMIN_SERVICE_DESCRIBE_TOPICS, asked, self._settings.request_timeout_ms / 1000),
        )
        self._watch = WatchService(self._ports.recorder, clock, WatchRelay(link, groups, self._ports.net))
        return BrokerService(
            produce,
            producer_ids,
            fetch,
            sessions,
            control,
            admin,
            self.metadata,
            link,
            self._metrics.requests,
            clock,
            groups,
            self._watch,
        )

    def _coordinate(self) -> CoordinatorService | None:
        if self._ports.coordinator_meta is None:
            return None
        settings, metrics = self._settings, self._metrics.groups
        found = self.coordinators = coordinators(
            settings, self._ports, self._ports.coordinator_meta, self.metadata, metrics
        )
        metrics.watch_groups(
            lambda: group_snapshots(found, settings.group_failed_pings_max),
            settings.metrics_groups_max,
            settings.metrics_partitions_max,
        )
        self._spawn("coordinators", found.run(self._spawn))
        return CoordinatorService(found, metrics, settings.group_max_partitions)

    async def _listen(self, service: BrokerService) -> None:
        for name, address in self._settings.listener_addresses.items():
            routes = guarded(service.routes(name), self._ports.authorizer, self._metrics.requests.denied)
            server = await self._ports.net.serve(address, routes, self._settings.advertised_addresses[name])
            self._servers.append(server)
            _log.info("listener %s on %s", name, server.address)

    def _spawn(self, name: str, coro: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._supervisor.start(name, coro)

    def _describe(self) -> BrokerRegistration:
        assert self._logs is not None
        return BrokerRegistration(
            broker_id=BrokerId(self._settings.broker_id),
            listeners=tuple(
                Listener(name=name, host=address.host, port=address.port)
                for name, address in self._settings.advertised_addresses.items()
            ),
            rack=self._settings.rack,
            intact_since=INTACT_SINCE_NOW if self._logs.intact_since is None else self._logs.intact_since,
            attempt="",
            release=RELEASE,
            directory_id=self._logs.data_dir.identity.directory_id.hex(),
            carried=Carried(self._settings.request_max_bytes, self._settings.fetch_max_bytes),
        )

    def _on_registered(
        self, broker_epoch: int, guard: PastGuard, control: ControlService, fetchers: LeaderFetchers
    ) -> None:
        assert self._logs is not None
        guard.registered(broker_epoch)
        self._logs.registered(broker_epoch)
        control.registered_again()
        fetchers.new_broker_epoch(broker_epoch)

    def unwell(self) -> str:
        """The reason for which this broker does no work; "": it serves."""
        return "" if self._serves else "the broker does not serve"

    def _set_serving(self, serves: bool) -> None:
        self._serves = serves
        for server in self._servers:
            server.set_serving(serves)

    async def stop(self) -> None:
        """In order: others take over its groups (A8.04) and what it leads, no more acks=0 and 1, no more requests, the end of
        the session so that leaders are elected for what is left, the files.

        From the end of its session on nobody tells it who leads: whoever asks it for metadata must be sent away by then.
        """
        if not self._supervisor.failures:  # after a bug its parts may be in any state
            if self.coordinators is not None:
                await self.coordinators.stop()
            if self._hand_over is not None:
                await self._hand_over.run()
        elif self._ports.coordinator_meta is not None:
            await self._ports.coordinator_meta.close()
        self._stopping = True
        self._set_serving(False)
        if self.registration is not None:
            self.registration.stop()
        if self._watch is not None:
            self._watch.end()
        async with asyncio.TaskGroup() as group:
            for server in self._servers:
                group.create_task(server.stop(CALLS_GRACE_S))
            await self._ports.meta.close()
        if self._flusher is not None:
            await self._flusher.drain(FLUSH_GRACE_S)
        await self._supervisor.stop()
        if self._ports.worker is not None:
            self._ports.worker.close()
        if self._logs is not None:
            self._close_logs(self._logs)

    async def _open_logs(self, cluster_id: str) -> LogStore:
        """Locks the data directory and recovers every log; what an operator should know goes to the log.

        It may take long: sessions with ZooKeeper live on meanwhile, and a signal ends it soon after the log that is being opened.
        """
        started = self._ports.clock.now()
        producers = ProducerLimits(self._settings.producer_ids_max, self._settings.producer_id_expiration_ms / 1000)
        producers.now = started
        logs = LogStore.open(
            self._ports.disk,
            str(self._settings.data_dir),
            cluster_id=cluster_id,
            broker_id=self._settings.broker_id,
            rand=self._ports.rand,
            config=LogConfig(
                self._settings.segment_bytes, self._settings.index_interval_bytes, self._settings.metadata_reserve_bytes
            ),
            open_files_max=self._open_files_max or self._settings.max_open_segments,
            producers=producers,
        )
        steps = logs.loading()
        while await self._ports.disk.in_background(partial(_load_some, steps, self._ports.clock.now)):
            pass
        for note in logs.notes:
            _log.warning("%s", note)
        self._metrics.log.watch_strays(lambda: len(logs.strays), lambda: bool(logs.past.another))
        self._metrics.log.recovered(self._ports.clock.now() - started)
        disk, data_dir = self._ports.disk, str(self._settings.data_dir)
        self._metrics.log.watch_space(partial(disk.free_bytes, data_dir), partial(disk.total_bytes, data_dir))
        return logs

    def _close_logs(self, logs: LogStore) -> None:
        high_watermarks = {} if self.manager is None else self.manager.high_watermarks()
        epoch = -1 if self.registration is None else self.registration.broker_epoch
        clean = logs.close(high_watermarks, epoch)
        _log.info("data directory closed %s", "cleanly" if clean else "without the clean-shutdown marker")


def _load_some(steps: Iterator[Callable[[], None]], now: Callable[[], float]) -> bool:
    """Takes steps for one turn. Returns False after the last one."""
    until = now() + LOAD_TURN_S
    for step in steps:
        step()
        if now() >= until:
            return True
    return False
