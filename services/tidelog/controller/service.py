"""ControllerService and AdminService: what comes in is checked for sense, and answered by the machine or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tidelog.controller.events import (
    BrokersRequested,
    ConfigsAlterRequested,
    ControlledShutdownRequested,
    DescribeRequested,
    Draw,
    ElectionRequested,
    Event,
    IsrProposed,
    PartitionsCreateRequested,
    ProducerIdsRequested,
    ReassignmentRequested,
    Token,
    TopicsCreateRequested,
    TopicsDeleteRequested,
)
from tidelog.controller.term import Term
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, TOPIC_ID_BYTES
from tidelog.names import check_lengths
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext, Route
from tidelog.ports.rand import Rand
from tidelog.runtime.metrics import RequestMetrics
from tidelog.wire import messages as m
from tidelog.wire import services

_START_RANGE: Final = 1 << 16

Req = TypeVar("Req")
Res = TypeVar("Res")
_Change = (
    m.CreateTopicsRequest
    | m.DeleteTopicsRequest
    | m.CreatePartitionsRequest
    | m.IncrementalAlterConfigsRequest
    | m.ElectLeadersRequest
    | m.ReleaseVetoRequest
    | m.AlterPartitionReassignmentsRequest
    | m.AddBrokersRequest
    | m.DrainBrokersRequest
)


class ControllerRoutes:
    """Handlers over whatever term this process serves at the moment; without one, NOT_CONTROLLER."""

    def __init__(
        self,
        term: Callable[[], Term | None],
        clock: Clock,
        rand: Rand,
        metrics: RequestMetrics,
        request_timeout_s: float,
    ) -> None:
        self._term = term
        self._clock = clock
        self._rand = rand
        self._metrics = metrics
        self._request_timeout_s = request_timeout_s

    def routes(self) -> Sequence[Route]:
        return [
            Route(services.CONTROLLER_SERVICE_ALTER_ISR, self.alter_isr),
            Route(services.CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN, self.controlled_shutdown),
            Route(services.CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS, self.allocate_producer_ids),
            Route(services.ADMIN_SERVICE_CREATE_TOPICS, self.create_topics),
            Route(services.ADMIN_SERVICE_DELETE_TOPICS, self.delete_topics),
            Route(services.ADMIN_SERVICE_CREATE_PARTITIONS, self.create_partitions),
            Route(services.ADMIN_SERVICE_ELECT_LEADERS, self.elect_leaders),
            Route(services.ADMIN_SERVICE_RELEASE_VETO, self.release_veto),
            Route(services.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, self.alter_partition_reassignments),
            Route(services.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS, self.list_partition_reassignments),
            Route(services.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS, self.alter_configs),
            Route(services.ADMIN_SERVICE_ADD_BROKERS, self.add_brokers),
            Route(services.ADMIN_SERVICE_DRAIN_BROKERS, self.drain_brokers),
            Route(services.ADMIN_SERVICE_DESCRIBE_TOPICS, self.describe_topics),
            Route(services.ADMIN_SERVICE_DESCRIBE_CLUSTER, self.describe_cluster),
        ]

    async def alter_isr(self, request: m.AlterIsrRequest, _: CallContext) -> m.AlterIsrResponse:
        """Without a time limit of its own: to give up would leave the asker in doubt about what was written (HOLE-52)."""

        def refuse(error: TidelogError) -> m.AlterIsrResponse:
            return m.AlterIsrResponse(error_code=error.code)

        return await self._answer("AlterIsr", lambda token: IsrProposed(request, token), refuse, _code_of)

    async def controlled_shutdown(
        self, request: m.ControlledShutdownRequest, _: CallContext
    ) -> m.ControlledShutdownResponse:
        """Without a time limit of its own: the broker has one, and asks again."""

        def refuse(error: TidelogError) -> m.ControlledShutdownResponse:
            return m.ControlledShutdownResponse(error_code=error.code)

        return await self._answer(
            "ControlledShutdown",
            lambda token: ControlledShutdownRequested(request, token),
            refuse,
            _code_of,
        )

    async def allocate_producer_ids(
        self, request: m.AllocateProducerIdsRequest, _: CallContext
    ) -> m.AllocateProducerIdsResponse:
        def refuse(error: TidelogError) -> m.AllocateProducerIdsResponse:
            return m.AllocateProducerIdsResponse(error_code=error.code, producer_id_start=-1, producer_id_len=0)

        return await self._answer(
            "AllocateProducerIds",
            lambda token: ProducerIdsRequested(request, token),
            refuse,
            _code_of,
            self._request_timeout_s,
        )

    async def create_topics(self, request: m.CreateTopicsRequest, context: CallContext) -> m.CreateTopicsResponse:
        def refuse(error: TidelogError) -> m.CreateTopicsResponse:
            return m.CreateTopicsResponse(
                topics=tuple(
                    m.CreatedTopic(
                        name=topic.name,
                        error_code=error.code,
                        error_message=error.message,
                        num_partitions=-1,
                        replication_factor=-1,
                    )
                    for topic in request.topics
                )
            )

        def event(token: Token) -> Event:
            return TopicsCreateRequested(request, token, tuple(self._draw() for _ in request.topics))

        return await self._change("CreateTopics", request, context, event, refuse, _first_code)

    async def delete_topics(self, request: m.DeleteTopicsRequest, context: CallContext) -> m.DeleteTopicsResponse:
        def refuse(error: TidelogError) -> m.DeleteTopicsResponse:
            return m.DeleteTopicsResponse(
                topics=tuple(
                    m.DeletedTopic(name=name, error_code=error.code, error_message=error.message)
                    for name in request.names
                )
            )

        def event(token: Token) -> Event:
            return TopicsDeleteRequested(request, token)

        return await self._change("DeleteTopics", request, context, event, refuse, _first_code)

    async def create_partitions(
        self, request: m.CreatePartitionsRequest, context: CallContext
    ) -> m.CreatePartitionsResponse:
        def refuse(error: TidelogError) -> m.CreatePartitionsResponse:
            return m.CreatePartitionsResponse(
                topics=tuple(
                    m.PartitionsCreated(name=topic.name, error_code=error.code, error_message=error.message)
                    for topic in request.topics
                )
            )

        def event(token: Token) -> Event:
            return PartitionsCreateRequested(request, token)

        return await self._change("CreatePartitions", request, context, event, refuse, _first_code)

    async def alter_configs(
        self, request: m.IncrementalAlterConfigsRequest, context: CallContext
    ) -> m.IncrementalAlterConfigsResponse:
        def refuse(error: TidelogError) -> m.IncrementalAlterConfigsResponse:
            return m.IncrementalAlterConfigsResponse(
                topics=tuple(
                    m.ConfigsAltered(name=topic.name, error_code=error.code, error_message=error.message)
                    for topic in request.topics
                )
            )

        def event(token: Token) -> Event:
            return ConfigsAlterRequested(request, token)

        return await self._change("IncrementalAlterConfigs", request, context, event, refuse, _first_code)

    async def elect_leaders(self, request: m.ElectLeadersRequest, context: CallContext) -> m.ElectLeadersResponse:
        return await self._elect(
            "ElectLeaders", request, context, lambda error: m.ElectLeadersResponse(error_code=error.code)
        )

    async def release_veto(self, request: m.ReleaseVetoRequest, context: CallContext) -> m.ReleaseVetoResponse:
        return await self._elect(
            "ReleaseVeto", request, context, lambda error: m.ReleaseVetoResponse(error_code=error.code)
        )

    async def _elect(
        self,
        api: str,
        request: m.ElectLeadersRequest | m.ReleaseVetoRequest,
        context: CallContext,
        refuse: Callable[[TidelogError], Res],
    ) -> Res:
        check_lengths("topics.topic", (each.topic for each in request.topics))

        def event(token: Token) -> Event:
            return ElectionRequested(request, token)

        return await self._change(api, request, context, event, refuse, _code_of_election)

    async def alter_partition_reassignments(
        self, request: m.AlterPartitionReassignmentsRequest, context: CallContext
    ) -> m.AlterPartitionReassignmentsResponse:
        def refuse(error: TidelogError) -> m.AlterPartitionReassignmentsResponse:
            return m.AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

        def event(token: Token) -> Event:
            return ReassignmentRequested(request, token)

        return await self._change("AlterPartitionReassignments", request, context, event, refuse, _code_of)

    async def add_brokers(self, request: m.AddBrokersRequest, context: CallContext) -> m.AddBrokersResponse:
        def refuse(error: TidelogError) -> m.AddBrokersResponse:
            return m.AddBrokersResponse(error_code=error.code, error_message=error.message)

        return await self._place("AddBrokers", request, context, refuse)

    async def drain_brokers(self, request: m.DrainBrokersRequest, context: CallContext) -> m.DrainBrokersResponse:
        def refuse(error: TidelogError) -> m.DrainBrokersResponse:
            return m.DrainBrokersResponse(error_code=error.code, error_message=error.message)

        return await self._place("DrainBrokers", request, context, refuse)

    async def _place(
        self,
        api: str,
        request: m.AddBrokersRequest | m.DrainBrokersRequest,
        context: CallContext,
        refuse: Callable[[TidelogError], Res],
    ) -> Res:
        def event(token: Token) -> Event:
            return BrokersRequested(request, token)

        return await self._change(api, request, context, event, refuse, _code_of)

    async def list_partition_reassignments(
        self, request: m.ListPartitionReassignmentsRequest, _: CallContext
    ) -> m.ListPartitionReassignmentsResponse:
        def refuse(error: TidelogError) -> m.ListPartitionReassignmentsResponse:
            return m.ListPartitionReassignmentsResponse(error_code=error.code, leader_throttle=0, follower_throttle=0)

        return await self._answer(
            "ListPartitionReassignments",
            lambda token: DescribeRequested(request, token),
            refuse,
            _code_of,
            self._request_timeout_s,
        )

    async def describe_topics(self, request: m.DescribeTopicsRequest, _: CallContext) -> m.DescribeTopicsResponse:
        def refuse(error: TidelogError) -> m.DescribeTopicsResponse:
            return m.DescribeTopicsResponse(error_code=error.code)

        return await self._answer(
            "DescribeTopics",
            lambda token: DescribeRequested(request, token),
            refuse,
            _code_of,
            self._request_timeout_s,
        )

    async def describe_cluster(self, request: m.DescribeClusterRequest, _: CallContext) -> m.DescribeClusterResponse:
        def refuse(error: TidelogError) -> m.DescribeClusterResponse:
            return m.DescribeClusterResponse(
                error_code=error.code,
                controller_id=-1,
                controller_epoch=NO_EPOCH,
                topics=0,
                partitions=0,
                leaderless_partitions=0,
                under_replicated_partitions=0,
                under_min_isr_partitions=0,
                feature_level=0,
            )

        return await self._answer(
            "DescribeCluster",
            lambda token: DescribeRequested(request, token),
            refuse,
            _code_of,
            self._request_timeout_s,
        )

    def _draw(self) -> Draw:
        return Draw(topic_id=self._rand.randbytes(TOPIC_ID_BYTES), start=self._rand.randrange(_START_RANGE))

    async def _change(
        self,
        api: str,
        request: _Change,
        context: CallContext,
        event: Callable[[Token], Event],
        refuse: Callable[[TidelogError], Res],
        code: Callable[[Any], ErrorCode],
    ) -> Res:
        """`_answer` for a request that names how long it waits, 0 ms for the default."""
        if request.timeout_ms < 0:
            said = f"timeout_ms {request.timeout_ms} is negative"
            return refuse(TidelogError(said, ErrorCode.INVALID_REQUEST))
        wanted = request.timeout_ms / 1000 if request.timeout_ms else self._request_timeout_s
        timeout_s = wanted if context.remaining_s is None else min(wanted, context.remaining_s)
        return await self._answer(api, event, refuse, code, timeout_s, repeatable=False)

    async def _answer(
        self,
        api: str,
        event: Callable[[Token], Event],
        refuse: Callable[[TidelogError], Res],
        code: Callable[[Any], ErrorCode],
        timeout_s: float | None = None,
        *,
        repeatable: bool = True,
    ) -> Res:
        began_at = self._clock.now()
        term = self._term()
        answer: Res
        try:
            if term is None or not term.acting:
                raise TidelogError("this controller is not the active one", ErrorCode.NOT_CONTROLLER)
            async with asyncio.timeout(timeout_s):
                answer = await term.ask(event, repeatable=repeatable)
        except TimeoutError:
            answer = refuse(TidelogError(f"not done within {timeout_s:.3f} s, it goes on", ErrorCode.REQUEST_TIMED_OUT))
        except TidelogError as error:
            answer = refuse(error)
        self._metrics.answered(api, code(answer), self._clock.now() - began_at)
        return answer


def _code_of(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code
    return code


def _code_of_election(answer: m.ElectLeadersResponse | m.ReleaseVetoResponse) -> ErrorCode:
    codes = (answer.error_code, *(each.error_code for each in answer.results))
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def _first_code(
    answer: m.CreateTopicsResponse
    | m.DeleteTopicsResponse
    | m.CreatePartitionsResponse
    | m.IncrementalAlterConfigsResponse,
) -> ErrorCode:
    return next((each.error_code for each in answer.topics if each.error_code is not ErrorCode.NONE), ErrorCode.NONE)
