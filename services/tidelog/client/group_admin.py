"""Administration of consumer groups: what there is, who is in them, and what is committed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.coordinators import Coordinators, raise_if_elsewhere
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, RequestTimedOutError, TidelogError, TransportError
from tidelog.ids import NO_OFFSET, Address, BrokerId, TopicPartition
from tidelog.runtime.retry import COORDINATOR
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts_or_all

NOBODY: Final = -1
"""Generation and coordinator epoch of a commit that is no member's."""
_ONE_BROKER_S: Final = 2.0
_MEMBERS_HOLD_IT: Final = frozenset(
    {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What refuses a commit by nobody: the group has members, or is getting some."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    groups: tuple[m.ListedGroup, ...] = ()
    """By id."""
    unheard: Mapping[BrokerId, str] = field(default_factory=dict)
    """Brokers that did not say what they coordinate, and why: their groups are missing above."""
    vacant: int = 0
    """Shards of the groups that no broker coordinates, if all were heard: their groups are missing above."""


class GroupAdmin:
    """An Admin's `groups`. An error of one group names it. Any call about a group may raise CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError or TransportError when its coordinator does not answer in `request_timeout_ms`, and
    InvalidGroupIdError."""

    def __init__(self, ports: ClientPorts, connections: Connections, metadata: ClusterMetadata, limit_s: float) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._limit_s = limit_s
        self._coordinators = Coordinators(ports, connections, metadata, limit_s)

    async def listing(self, states: Sequence[str] = ()) -> GroupListing:
        """Groups in these states, or all: every live broker is asked for those that it coordinates.

        While a coordinator is elected they are asked again.
        """
        listing = GroupListing()
        try:
            async for attempt in COORDINATOR.retrying(self._ports.clock, self._ports.rand, self._limit_s):
                with attempt:
                    listing = await self._ask_everybody(states)
                    if listing.vacant:
                        raise TidelogError("a shard is vacant", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except TidelogError:
            if not listing.vacant:
                raise
        return listing

    async def _ask_everybody(self, states: Sequence[str]) -> GroupListing:
        await self._metadata.refresh(self._metadata.version)
        found: dict[str, m.ListedGroup] = {}
        unheard: dict[BrokerId, str] = {}
        shards: set[int] = set()
        served: set[int] = set()
        for broker, address in sorted(self._metadata.snapshot.brokers.items()):
            try:
                answer = await self._list_at(address, m.ListGroupsRequest(states=tuple(states)))
            except (TransportError, TidelogError) as error:
                unheard[broker] = str(error)
                continue
            shards.update(range(answer.shard_count))
            served.update(answer.shards)
            for group in answer.groups:
                self._coordinators.learn(group.group_id, address)
                found[group.group_id] = group
        groups = tuple(found[group_id] for group_id in sorted(found))
        # Who was not heard may serve what nobody else does.
        return GroupListing(groups, unheard, 0 if unheard else len(shards - served))

    async def describe(self, group_ids: Iterable[str]) -> list[m.DescribedGroup]:
        """One answer a group, in order. That for an unknown one has an error code; it raises nothing."""
        return [await self._describe(group_id) for group_id in group_ids]

    async def describe_one(self, group_id: str) -> m.DescribedGroup:
        """State, members and what each reads. Raises GroupIdNotFoundError."""
        group = await self._describe(group_id)
        _raise_for(group_id, group.error_code, group.error_message)
        return group

    async def coordinator(self, group_id: str) -> Address:
        """Where the broker listens that coordinates the group, as far as is known: one look."""
        return await self._coordinators.find(group_id)

    async def members(self, group_id: str) -> list[m.DescribedMember]:
        """The members of a group and what each reads. Raises GroupIdNotFoundError."""
        return list((await self.describe_one(group_id)).members)

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, m.OffsetInfo]:
        """The committed offsets of these partitions, or of all; a partition without one is left out."""
        names = tuple(m.PartitionName(topic=tp.topic, partition=tp.partition) for tp in partitions or ())
        if partitions is not None and not names:
            return {}  # on the wire no partition stands for all
        offsets: list[m.OffsetInfo] = []
        for part in parts_or_all(m.FetchOffsetsRequest, names):
            request = m.FetchOffsetsRequest(group_id=group_id, partitions=part)
            answer = await self._coordinators.call(group_id, s.COORDINATOR_SERVICE_FETCH_OFFSETS, request)
            _raise_for(group_id, answer.error_code, answer.error_message)
            offsets += answer.offsets
        return {TopicPartition(o.topic, o.partition): o for o in offsets if o.offset != NO_OFFSET}

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[m.CommittedResult]:
        """Commits these for a group without members; one result a partition, each with its own error code.

        They count in the topics that this client knows, from `list_offsets` for instance: where another one has the name by now,
        the result has the code of InconsistentTopicIdError. Raises NonEmptyGroupError when the group has members: they own their
        offsets. A group that does not exist is created.
        """
        known = self._metadata.snapshot.topics
        wanted = [
            m.OffsetInfo(
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                leader_epoch=NOBODY,
                topic_id=known[tp.topic].topic_id if tp.topic in known else b"",
            )
            for tp, offset in offsets.items()
        ]
        results: list[m.CommittedResult] = []
        for part in parts_or_all(m.CommitOffsetsRequest, wanted):
            request = m.CommitOffsetsRequest(
                group_id=group_id,
                incarnation=0,
                coordinator_epoch=NOBODY,
                generation=NOBODY,
                number=0,
                offsets=part,
            )
            answer = await self._coordinators.call(group_id, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, request)
            codes = {answer.error_code, *(each.error_code for each in answer.results)}
            if codes & _MEMBERS_HOLD_IT:
                _raise_for(group_id, ErrorCode.NON_EMPTY_GROUP, "")
            _raise_for(group_id, answer.error_code, answer.error_message)
            results += answer.results
        return results

    async def delete(self, group_id: str) -> None:
        """Removes a group without members, and its offsets. Raises GroupIdNotFoundError or NonEmptyGroupError."""
        request = m.DeleteGroupsRequest(group_ids=(group_id,))
        asked_in_vain = False
        async for attempt in COORDINATOR.retrying(self._ports.clock, self._ports.rand, self._limit_s):
            with attempt:
                try:
                    answer = await self._coordinators.call_once(group_id, s.COORDINATOR_SERVICE_DELETE_GROUPS, request)
                    _raise_for(group_id, answer.error_code, answer.error_message)
                    (deleted,) = answer.results
                    if deleted.error_code is ErrorCode.REQUEST_TIMED_OUT:
                        _raise_for(group_id, deleted.error_code, deleted.error_message)
                except (TransportError, RequestTimedOutError):
                    self._coordinators.forget(group_id)
                    asked_in_vain = True
                    raise
        if deleted.error_code is ErrorCode.GROUP_ID_NOT_FOUND and asked_in_vain:
            return  # an earlier try, whose answer was lost, has deleted it
        _raise_for(group_id, deleted.error_code, deleted.error_message)

    async def _describe(self, group_id: str) -> m.DescribedGroup:
        request = m.DescribeGroupsRequest(group_ids=(group_id,))
        answer = await self._coordinators.call(group_id, s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request)
        _raise_for(group_id, answer.error_code, answer.error_message)
        (group,) = answer.groups
        return group

    async def _list_at(self, address: Address, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
        """A broker that still reads its groups is waited for; one that says nothing is asked once more at most."""
        patience_s = min(_ONE_BROKER_S, self._limit_s)
        channel = self._connections.to(address, "coordinator")
        async for attempt in COORDINATOR.retrying(self._ports.clock, self._ports.rand, patience_s):
            with attempt:
                answer = await channel.call(s.COORDINATOR_SERVICE_LIST_GROUPS, request, patience_s)
                raise_if_elsewhere(answer)
        if answer.error_code is not ErrorCode.NONE:
            raise TidelogError(answer.error_message or answer.error_code.name, answer.error_code)
        return answer


def _raise_for(group_id: str, code: ErrorCode, message: str) -> None:
    if code is ErrorCode.NONE:
        return
    said = {
        ErrorCode.GROUP_ID_NOT_FOUND: "does not exist; `tidelog groups list` shows those that do",
        ErrorCode.NON_EMPTY_GROUP: "has members: stop its consumers first; `tidelog groups members` shows them",
    }.get(code)
    raise TidelogError(f"group {group_id!r} {said}" if said else f"group {group_id!r}: {message or code.name}", code)
