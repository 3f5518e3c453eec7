"""Which method of which listener calls which handler. A front door: it turns nothing but errors and counts."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.broker.admin_service import BrokerAdmin
from tidelog.broker.control_service import ControlService
from tidelog.broker.controller_link import ControllerLink
from tidelog.broker.fetch import FetchHandler
from tidelog.broker.follower_session import FollowerSessions
from tidelog.broker.metadata_cache import INTERNAL, MetadataCache
from tidelog.broker.produce import ProduceHandler
from tidelog.broker.produce_session import ProduceStreams
from tidelog.broker.producer_ids import ProducerIds
from tidelog.coordinator.service import CoordinatorService, Session
from tidelog.errors import ErrorCode
from tidelog.ids import NO_EPOCH, NO_LEADER
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext, Route, Stream, Unary, UnaryHandler
from tidelog.runtime.metrics import RequestMetrics
from tidelog.watch.service import WatchService
from tidelog.wire import messages as m
from tidelog.wire import services as s

Req = TypeVar("Req")
Res = TypeVar("Res")

ADMIN_METHODS: tuple[Unary[Any, Any], ...] = (
    s.ADMIN_SERVICE_CREATE_TOPICS,
    s.ADMIN_SERVICE_DELETE_TOPICS,
    s.ADMIN_SERVICE_CREATE_PARTITIONS,
    s.ADMIN_SERVICE_ELECT_LEADERS,
    s.ADMIN_SERVICE_RELEASE_VETO,
    s.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS,
    s.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS,
    s.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS,
    s.ADMIN_SERVICE_ADD_BROKERS,
    s.ADMIN_SERVICE_DRAIN_BROKERS,
    s.ADMIN_SERVICE_DESCRIBE_TOPICS,
)

FORWARD_TIMEOUT_S = 60.0
"""When the caller gives no deadline of its own."""


class BrokerService:
    def __init__(
        self,
        produce: ProduceHandler,
        producer_ids: ProducerIds,
        fetch: FetchHandler,
        sessions: FollowerSessions,
        control: ControlService,
        admin: BrokerAdmin,
        metadata: MetadataCache,
        link: ControllerLink,
        metrics: RequestMetrics,
        clock: Clock,
        groups: CoordinatorService | None,
        watch: WatchService,
    ) -> None:
        self._produce = produce
        self._produce_streams = ProduceStreams(produce.examine, produce.submit, clock, self._count)
        self._producer_ids = producer_ids
        self._fetch = fetch
        self._sessions = sessions
        self._control = control
        self._admin = admin
        self._metadata = metadata
        self._link = link
        self._metrics = metrics
        self._clock = clock
        self._groups = groups
        self._watch = watch

    def routes(self, listener: str) -> list[Route]:
        """INTERNAL serves everything; every other listener leaves out what only servers may call (reliability D9)."""
        routes = [
            self._counted(s.REPLICA_SERVICE_PRODUCE, lambda request, caller: self._produce(request, caller.peer)),
            Route(s.REPLICA_SERVICE_PRODUCE_STREAM, self._produce_streams.serve),
            self._counted(s.REPLICA_SERVICE_INIT_PRODUCER_ID, self._producer_ids.init_producer_id),
            self._counted(s.REPLICA_SERVICE_FETCH, self._fetch.fetch),
            self._counted(s.REPLICA_SERVICE_LIST_OFFSETS, lambda request, _: self._fetch.list_offsets(request)),
            self._counted(
                s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH,
                lambda request, _: self._fetch.offset_for_leader_epoch(request),
            ),
            self._counted(s.COORDINATOR_SERVICE_CLUSTER_METADATA, self._cluster_metadata(listener)),
            *(self._counted(method, self._forward(method)) for method in ADMIN_METHODS),
            self._counted(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, self._describe_cluster(listener)),
            *self._own_admin_routes(listener),
            *self._group_routes(listener),
            self._watch.route(),
        ]
        if listener == INTERNAL:
            routes += [
                Route(s.REPLICA_SERVICE_REPLICA_FETCH, self._replica_fetch),
                self._counted(s.BROKER_CONTROL_LEADER_AND_ISR, self._control.leader_and_isr),
                self._counted(s.BROKER_CONTROL_STOP_REPLICA, self._control.stop_replica),
                self._counted(s.BROKER_CONTROL_UPDATE_METADATA, self._control.update_metadata),
                self._counted(s.BROKER_CONTROL_REPLICA_ENDS, self._control.replica_ends),
                Route(s.BROKER_CONTROL_LIVENESS, self._control.liveness),
            ]
        return routes

    def _own_admin_routes(self, listener: str) -> list[Route]:
        """What the controller cannot answer."""
        admin = self._admin

        async def broker_configs(
            request: m.DescribeBrokerConfigsRequest, _: CallContext
        ) -> m.DescribeBrokerConfigsResponse:
            return admin.describe_broker_configs(request, listener)

        async def log_dirs(request: m.DescribeLogDirsRequest, _: CallContext) -> m.DescribeLogDirsResponse:
            return admin.describe_log_dirs(request)

        return [
            self._counted(s.ADMIN_SERVICE_DESCRIBE_CONFIGS, lambda request, _: admin.describe_configs(request)),
            self._counted(s.ADMIN_SERVICE_DESCRIBE_BROKER_CONFIGS, broker_configs),
            self._counted(s.ADMIN_SERVICE_DELETE_RECORDS, lambda request, _: admin.delete_records(request)),
            self._counted(s.ADMIN_SERVICE_DESCRIBE_LOG_DIRS, log_dirs),
            self._counted(s.ADMIN_SERVICE_DISCARD_DAMAGE, lambda request, _: admin.discard_damage(request)),
        ]

    def _group_routes(self, listener: str) -> list[Route]:
        groups = self._groups
        if groups is None:
            return []

        async def session(stream: Session, context: CallContext) -> None:
            await groups.session(stream, context, listener)

        return [
            Route(s.COORDINATOR_SERVICE_SESSION, session),
            self._counted(s.COORDINATOR_SERVICE_COMMIT_OFFSETS, groups.commit_offsets),
            self._counted(s.COORDINATOR_SERVICE_FETCH_OFFSETS, groups.fetch_offsets),
            self._counted(s.COORDINATOR_SERVICE_LIST_GROUPS, groups.list_groups),
            self._counted(s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, groups.describe_groups),
            self._counted(s.COORDINATOR_SERVICE_DELETE_GROUPS, groups.delete_groups),
        ]

    def _counted(self, method: Unary[Req, Res], handler: Callable[[Req, CallContext], Awaitable[Res]]) -> Route:
        api = method.path.rpartition("/")[2]
        clock = self._clock

        async def handle(request: Req, context: CallContext) -> Res:
            started = clock.now()
            response = await handler(request, context)
            self._count(api, response, clock.now() - started)
            return response

        return Route(method, handle)

    def _count(self, api: str, response: object, seconds: float) -> None:
        self._metrics.answered(api, _worst_code(response), seconds)

    async def _replica_fetch(
        self, stream: Stream[m.ReplicaFetchRequest, m.ReplicaFetchResponse], _: CallContext
    ) -> None:
        await self._sessions.serve(stream)

    def _cluster_metadata(
        self, listener: str
    ) -> Callable[[m.ClusterMetadataRequest, CallContext], Awaitable[m.ClusterMetadataResponse]]:
        async def handle(request: m.ClusterMetadataRequest, _: CallContext) -> m.ClusterMetadataResponse:
            coordinator_id = NO_LEADER if self._groups is None else self._groups.coordinator_of(request.group_id)
            return self._metadata.answer(request, listener, coordinator_id)

        return handle

    def _describe_cluster(
        self, listener: str
    ) -> Callable[[m.DescribeClusterRequest, CallContext], Awaitable[m.DescribeClusterResponse]]:
        """The controller's answer, with the name that this broker has for its cluster.

        A client hears of no other listener than its own, and of no broker epoch: with them it could pass for a broker.
        """
        forward = self._forward(s.ADMIN_SERVICE_DESCRIBE_CLUSTER)

        async def handle(request: m.DescribeClusterRequest, context: CallContext) -> m.DescribeClusterResponse:
            answer: m.DescribeClusterResponse = await forward(request, context)
            brokers = answer.brokers
            if listener != INTERNAL:
                brokers = tuple(replace(each, broker=_as_seen_at(listener, each.broker)) for each in brokers)
            return replace(answer, cluster_name=self._metadata.cluster_name, brokers=brokers)

        return handle

    def _forward(self, method: Unary[Req, Res]) -> UnaryHandler:
        """A client needs to know brokers only; the controller's answer comes back as it is."""

        async def handle(request: Req, context: CallContext) -> Res:
            left = context.remaining_s
            return await self._link.call(method, request, FORWARD_TIMEOUT_S if left is None else max(0.01, left))

        return handle


def _as_seen_at(listener: str, broker: m.LiveBroker) -> m.LiveBroker:
    listeners = tuple(each for each in broker.listeners if each.name == listener)
    return replace(broker, broker_epoch=NO_EPOCH, listeners=listeners)


def _worst_code(response: object) -> ErrorCode:
    """For counting: the answer's own error, or the first one among its items."""
    code: ErrorCode = getattr(response, "error_code", ErrorCode.NONE)
    if code is not ErrorCode.NONE:
        return code
    for items in (getattr(response, "results", ()), getattr(response, "topics", ())):
        for item in items if isinstance(items, tuple) else ():
            found: ErrorCode = getattr(item, "error_code", ErrorCode.NONE)
            if found is not ErrorCode.NONE:
                return found
    return ErrorCode.NONE
