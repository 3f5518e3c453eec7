"""Moving partitions between brokers: plans, what is under way, and how far it is (KIP-455)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.client.connections import ClientPorts
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.net import Unary
from tidelog.runtime.retry import ADMIN
from tidelog.wire import messages as m
from tidelog.wire import services as s

Req = TypeVar("Req")
Res = TypeVar("Res", bound="_Whole")
_Whole = (
    m.AlterPartitionReassignmentsResponse
    | m.ListPartitionReassignmentsResponse
    | m.AddBrokersResponse
    | m.DrainBrokersResponse
)

Plan = Mapping[TopicPartition, Sequence[int]]
"""Replicas as they are to be, by partition; the first is the preferred leader."""

_ANSWER_SLACK_S: Final = 1.0


class Throttle(NamedTuple):
    """Bytes a second of the copies that moves make, for each broker. 0: as it is; -1: no limit."""

    leader: int
    """What it sends."""
    follower: int
    """What it takes."""


AS_IT_IS: Final = Throttle(0, 0)


class ReassignmentAdmin:
    """An Admin's `reassignments`. A plan is refused whole, by an error that names the partition and the reason. Any call may
    raise NotControllerError when no controller is active for `request_timeout_ms`."""

    def __init__(self, ports: ClientPorts, metadata: ClusterMetadata, limit_s: float) -> None:
        self._ports = ports
        self._metadata = metadata
        self._limit_s = limit_s
        self._timeout_ms = round(limit_s * 1000)

    async def alter(
        self, plan: Plan, *, replace: bool = False, validate_only: bool = False, throttle: Throttle | None = None
    ) -> None:
        """Returns when the plan is stored: from then on it is carried out, whoever is controller.

        Raises ReassignmentInProgressError where a partition is being moved elsewhere already, unless `replace`;
        InvalidReplicaAssignmentError and UnknownTopicOrPartitionError. To ask twice for the same is no error.
        """
        by_topic: dict[str, list[m.PartitionAssignment]] = {}
        for tp, replicas in plan.items():
            row = m.PartitionAssignment(partition=tp.partition, replicas=tuple(replicas))
            by_topic.setdefault(tp.topic, []).append(row)
        topics = tuple(m.TopicReassignment(topic=name, partitions=tuple(rows)) for name, rows in by_topic.items())
        await self._alter(topics, replace=replace, validate_only=validate_only, throttle=throttle)

    async def throttle(self, throttle: Throttle) -> None:
        """Sets other limits for what is under way. Raises InvalidRequestError where nothing is being moved."""
        await self._alter((), throttle=throttle)

    async def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """They go back to the replicas of before. Raises NoReassignmentInProgressError if one of them is not being moved."""
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = tuple(m.TopicReassignment(topic=name, cancelled=tuple(each)) for name, each in by_topic.items())
        await self._alter(topics)

    async def list(self) -> dict[TopicPartition, m.OngoingReassignment]:
        """All partitions that are being moved, in the order in which that began."""
        return {TopicPartition(each.topic, each.partition): each for each in (await self._listed()).reassignments}

    async def throttles(self) -> Throttle:
        """The limits in force; 0 is no limit."""
        answer = await self._listed()
        return Throttle(answer.leader_throttle, answer.follower_throttle)

    async def add_brokers(
        self,
        broker_ids: Iterable[int],
        *,
        replace: bool = False,
        validate_only: bool = False,
        throttle: Throttle | None = None,
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Gives them their share by the least moves that even out the load. Returns what moves from now on.

        Raises InvalidRequestError for a broker that is not alive or is being drained, and ReassignmentInProgressError unless
        `replace`.
        """
        leader, follower = throttle or AS_IT_IS
        request = m.AddBrokersRequest(
            broker_ids=tuple(broker_ids),
            replace=replace,
            validate_only=validate_only,
            timeout_ms=self._timeout_ms,
            leader_throttle=leader,
            follower_throttle=follower,
        )
        answer = await self._ask(s.ADMIN_SERVICE_ADD_BROKERS, request, "brokers")
        return _moved(answer.topics)

    async def drain(
        self,
        broker_ids: Iterable[int],
        *,
        replace: bool = False,
        validate_only: bool = False,
        throttle: Throttle | None = None,
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Moves everything away from them by the least moves that leave the others' load even, and places nothing there until
        `undrain`. Returns what moves from now on.

        Raises InvalidRequestError for a broker that is not known, InvalidReplicationFactorError when too few are left, and
        ReassignmentInProgressError unless `replace`.
        """
        return await self._drain(
            broker_ids, undo=False, replace=replace, validate_only=validate_only, throttle=throttle
        )

    async def undrain(self, broker_ids: Iterable[int]) -> None:
        """They may hold replicas again. What moves away goes on, and nothing comes back by itself.

        Raises InvalidRequestError for a broker that is not being drained.
        """
        await self._drain(broker_ids, undo=True, replace=False, validate_only=False, throttle=None)

    async def _drain(
        self, broker_ids: Iterable[int], *, undo: bool, replace: bool, validate_only: bool, throttle: Throttle | None
    ) -> dict[TopicPartition, tuple[int, ...]]:
        leader, follower = throttle or AS_IT_IS
        request = m.DrainBrokersRequest(
            broker_ids=tuple(broker_ids),
            undo=undo,
            replace=replace,
            validate_only=validate_only,
            timeout_ms=self._timeout_ms,
            leader_throttle=leader,
            follower_throttle=follower,
        )
        answer = await self._ask(s.ADMIN_SERVICE_DRAIN_BROKERS, request, "brokers")
        return _moved(answer.topics)

    async def _listed(self) -> m.ListPartitionReassignmentsResponse:
        request = m.ListPartitionReassignmentsRequest()
        return await self._ask(s.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS, request, "reassignments")

    async def _alter(
        self,
        topics: tuple[m.TopicReassignment, ...],
        *,
        replace: bool = False,
        validate_only: bool = False,
        throttle: Throttle | None = None,
    ) -> None:
        leader, follower = throttle or AS_IT_IS
        request = m.AlterPartitionReassignmentsRequest(
            topics=topics,
            replace=replace,
            validate_only=validate_only,
            timeout_ms=self._timeout_ms,
            leader_throttle=leader,
            follower_throttle=follower,
        )
        await self._ask(s.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, request, "the plan")

    async def _ask(self, method: Unary[Req, Res], request: Req, subject: str) -> Res:
        """Again and again while no controller is reached: what was stored already is stored once."""
        async for attempt in ADMIN.retrying(self._ports.clock, self._ports.rand, self._limit_s):
            with attempt:
                answer = await self._metadata.call_any(method, request, self._limit_s + _ANSWER_SLACK_S, self._limit_s)
                if answer.error_code is not ErrorCode.NONE:
                    message = getattr(answer, "error_message", "") or answer.error_code.name
                    raise TidelogError(f"{subject}: {message}", answer.error_code)
        return answer


def _moved(topics: Iterable[m.TopicReassignment]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic.topic, p.partition): p.replicas for topic in topics for p in topic.partitions}
