"""Consumer groups in memory: what a coordinator answers to administrators. Sessions of members are not here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR


@dataclass
class FakeGroup:
    members: list[m.DescribedMember] = field(default_factory=list)
    offsets: dict[TopicPartition, m.OffsetInfo] = field(default_factory=dict)
    generation: int = 1

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


class FakeGroups:
    """`homes` tells the coordinator of a group, and `believed` what brokers say of it where that is not the truth."""

    def __init__(self, default_coordinator: int) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.homes: dict[str, int] = {}
        self.believed: dict[str, int] = {}
        self.shards: list[int | None] = [default_coordinator]
        """Who coordinates each shard, as a list of groups tells it."""
        self._default = default_coordinator

    def create(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int] | None = None,
        *,
        coordinator: int | None = None,
        members: Mapping[str, list[tuple[str, int]]] | None = None,
    ) -> FakeGroup:
        """`members` maps consumer ids to what they own."""
        group = FakeGroup()
        if coordinator is not None:
            self.homes[group_id] = coordinator
        group.offsets = {
            TopicPartition(t, p): m.OffsetInfo(topic=t, partition=p, offset=offset, leader_epoch=0)
            for (t, p), offset in (offsets or {}).items()
        }
        group.members = [
            m.DescribedMember(
                consumer_id=consumer_id,
                client_id=f"client-{consumer_id}",
                host="/10.0.0.7",
                topic_count="{}",
                session_timeout_ms=6000,
                partitions=tuple(m.PartitionName(topic=t, partition=p) for t, p in owned),
            )
            for consumer_id, owned in (members or {}).items()
        ]
        self.groups[group_id] = group
        return group

    def coordinator_of(self, group_id: str) -> int:
        return self.believed.get(group_id, self._home(group_id))

    def _home(self, group_id: str) -> int:
        return self.homes.get(group_id, self._default)

    def _refusal(self, broker_id: int, group_id: str) -> ErrorCode:
        return NONE if broker_id == self._home(group_id) else NOT_COORDINATOR

    def open(self, broker_id: int) -> Any:
        raise NotImplementedError("members need a FakeCoordinator")

    # -- calls ----------------------------------------------------------------------------------------------------------

    async def list_groups(self, broker_id: int, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
        return m.ListGroupsResponse(
            groups=tuple(
                m.ListedGroup(group_id=group_id, state=group.state)
                for group_id, group in self.groups.items()
                if self._home(group_id) == broker_id and (not request.states or group.state in request.states)
            ),
            shards=tuple(shard for shard, home in enumerate(self.shards) if home == broker_id),
            shard_count=len(self.shards),
        )

    async def describe_groups(self, broker_id: int, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
        return m.DescribeGroupsResponse(groups=tuple(self._describe(broker_id, g) for g in request.group_ids))

    def _describe(self, broker_id: int, group_id: str) -> m.DescribedGroup:
        described = m.DescribedGroup(group_id=group_id, coordinator_id=broker_id, coordinator_epoch=5, generation=-1)
        code = self._refusal(broker_id, group_id)
        group = self.groups.get(group_id)
        if code is NONE and group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        if group is None or code is not NONE:
            return replace(described, error_code=code)
        return replace(
            described,
            state=group.state,
            assignor="range",
            generation=group.generation,
            members=tuple(group.members),
            offsets=tuple(group.offsets.values()),
        )

    async def delete_groups(self, broker_id: int, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
        return m.DeleteGroupsResponse(results=tuple(self._delete(broker_id, g) for g in request.group_ids))

    def _delete(self, broker_id: int, group_id: str) -> m.DeletedGroup:
        code = self._refusal(broker_id, group_id)
        group = self.groups.get(group_id)
        if code is NONE and group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif code is NONE and group is not None and group.members:
            code = ErrorCode.NON_EMPTY_GROUP
        if code is NONE:
            del self.groups[group_id]
        return m.DeletedGroup(group_id=group_id, error_code=code)

    async def fetch_offsets(self, broker_id: int, request: m.FetchOffsetsRequest) -> m.FetchOffsetsResponse:
        code = self._refusal(broker_id, request.group_id)
        group = self.groups.get(request.group_id)
        known = group.offsets if group is not None and code is NONE else {}
        wanted = [TopicPartition(p.topic, p.partition) for p in request.partitions] or list(known)
        nothing = m.OffsetInfo(topic="", partition=0, offset=-1, leader_epoch=-1)
        return m.FetchOffsetsResponse(
            error_code=code,
            offsets=tuple(known.get(tp, replace(nothing, topic=tp.topic, partition=tp.partition)) for tp in wanted),
        )

    async def commit_offsets(self, broker_id: int, request: m.CommitOffsetsRequest) -> m.CommitOffsetsResponse:
        code = self._refusal(broker_id, request.group_id)
        if code is not NONE:
            return m.CommitOffsetsResponse(error_code=code)
        group = self.groups.setdefault(request.group_id, FakeGroup())
        if request.generation != -1 or request.consumer_id or group.members:
            return m.CommitOffsetsResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.offsets |= {TopicPartition(o.topic, o.partition): o for o in request.offsets}
        return m.CommitOffsetsResponse(
            results=tuple(m.CommittedResult(topic=o.topic, partition=o.partition) for o in request.offsets)
        )
