"""Looks at a whole cluster again and again, cheaply: three requests to one broker, and at most three to each.

Who is silent holds up a look for its patience and no longer, and what he said before stays known.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap
from tidelog.client.offsets import LATEST
from tidelog.client.overview import NO_CONTROLLER, Overview, SeenBroker, SeenGroup, Told
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, Address, BrokerId, TopicPartition
from tidelog.ports.net import Unary
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts

Req = TypeVar("Req")
Res = TypeVar("Res")
Chosen = Callable[[str], object]
"""True of a name that is to be looked at."""

_SHORTEST_S: Final = 0.01


@dataclass(slots=True)
class _Answer:
    """What one broker said in one look."""

    at: float
    log_ends: dict[TopicPartition, int] = field(default_factory=dict)
    logs: dict[TopicPartition, m.OwnLog] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    groups: list[m.DescribedGroup] = field(default_factory=list)
    shards: frozenset[int] = frozenset()
    shard_count: int = 0


class ClusterObserver:
    """`look` as often as wanted; `stop` at the end. It changes nothing in the cluster."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        ports: ClientPorts,
        *,
        topics: Chosen = lambda name: True,
        groups: Chosen = lambda name: True,
    ) -> None:
        self._clock = ports.clock
        self._connections = Connections(ports.net)
        self._topics = topics
        self._groups = groups
        self._doors = parse_bootstrap(bootstrap)
        """Who is asked about the cluster, in this order: whoever failed last comes last."""
        self._seen = Overview(self._clock.now(), self._clock.wall_ms())

    async def stop(self) -> None:
        await self._connections.close()

    async def look(self, patience_s: float) -> Overview:
        """What is seen now, and of the silent what was seen before. Takes twice `patience_s` at most."""
        described = await self._describe(patience_s)
        live = [broker for broker in described.brokers.values() if broker.address is not None and not broker.problem]
        wanted = _wanted(described.topics)
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(self._ask(broker.address, wanted.get(broker.broker_id, ()), patience_s))
                for broker in live
                if broker.address is not None
            ]
        answers = {broker.broker_id: task.result() for broker, task in zip(live, asked, strict=True)}
        self._seen = _merged(described, answers, self._clock.now(), self._clock.wall_ms())
        return self._seen

    async def _describe(self, patience_s: float) -> Overview:
        """The last overview with what the controller says now. Brokers that can be asked have no problem in it."""
        seen, deadline, why = self._seen, self._clock.now() + patience_s, "not reached"
        for door in list(self._doors):
            if self._clock.now() >= deadline:
                break  # the next look begins with those that were not asked now
            try:
                metadata = await self._call(door, s.COORDINATOR_SERVICE_CLUSTER_METADATA, _WHO_LIVES, deadline)
            except TransportError as error:
                self._ask_last(door)
                why = _why(error)
                continue
            if not metadata.brokers_info:
                continue  # it has just started and knows nothing yet
            live = {BrokerId(each.id): Address(each.host, each.port) for each in metadata.brokers_info}
            self._doors += [address for address in live.values() if address not in self._doors]
            seen = replace(seen, brokers=_known(seen.brokers, live))
            try:
                cluster = await self._call(door, s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), deadline)
                topics = await self._call(door, s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(), deadline)
                _raise_for(cluster.error_code)
                _raise_for(topics.error_code)
            except (TransportError, TidelogError) as error:
                self._ask_last(door)  # it may be the one that is cut off, not the controller
                return replace(seen, problem=_why(error))
            chosen = tuple(topic for topic in topics.topics if self._topics(topic.name))
            named = {BrokerId(each.broker.broker_id) for each in cluster.brokers} | {
                BrokerId(replica) for topic in chosen for p in topic.partitions for replica in p.replicas
            }
            return replace(
                seen,
                cluster=cluster,
                topics=chosen,
                described_at=self._clock.now(),
                problem="",
                brokers={**{each: SeenBroker(each, problem="not in the cluster") for each in named}, **seen.brokers},
            )
        # Nobody says who lives: everybody who is known is asked once more.
        known = {broker.broker_id: broker.address for broker in seen.brokers.values() if broker.address is not None}
        return replace(seen, problem=why, brokers=_known(seen.brokers, known))

    def _ask_last(self, door: Address) -> None:
        self._doors.remove(door)
        self._doors.append(door)

    async def _ask(
        self, address: Address | None, wanted: Sequence[m.ListOffsetsPartition], patience_s: float
    ) -> _Answer | str:
        """Or why there is none."""
        assert address is not None
        deadline = self._clock.now() + patience_s
        answer = _Answer(self._clock.now())
        try:
            for asks in parts(m.ListOffsetsRequest, wanted):
                request = m.ListOffsetsRequest(partitions=asks)
                offsets = await self._call(address, s.REPLICA_SERVICE_LIST_OFFSETS, request, deadline)
                answer.at = self._clock.now()
                for ask, told in zip(asks, offsets.results, strict=False):
                    if told.error_code is ErrorCode.NONE:
                        ends = answer.log_ends if ask.own else answer.high_watermarks
                        ends[TopicPartition(told.topic, told.partition)] = told.offset
                        if told.own_log is not None:
                            answer.logs[TopicPartition(told.topic, told.partition)] = told.own_log
            # One that still reads its groups says which it has read.
            listing = await self._call(address, s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest(), deadline)
            answer.shards, answer.shard_count = frozenset(listing.shards), listing.shard_count
            chosen = [each.group_id for each in listing.groups if self._groups(each.group_id)]
            for ids in parts(m.DescribeGroupsRequest, chosen):
                request_ = m.DescribeGroupsRequest(group_ids=ids)
                groups = await self._call(address, s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request_, deadline)
                answer.groups += [each for each in groups.groups if each.error_code is ErrorCode.NONE]
        except TransportError as error:
            return _why(error)
        return answer

    async def _call(self, address: Address, method: Unary[Req, Res], request: Req, deadline: float) -> Res:
        left_s = max(_SHORTEST_S, deadline - self._clock.now())
        return await self._connections.to(address, "metadata").call(method, request, left_s)


_WHO_LIVES: Final = m.ClusterMetadataRequest()


def _known(before: Mapping[BrokerId, SeenBroker], live: Mapping[BrokerId, Address]) -> dict[BrokerId, SeenBroker]:
    """Everybody of whom anybody has heard; those alive have no problem yet."""
    known = {each: replace(broker, problem="not in the cluster") for each, broker in before.items()}
    for each, address in live.items():
        known[each] = replace(known.get(each) or SeenBroker(each), address=address, problem="")
    return dict(sorted(known.items()))


def _wanted(topics: Iterable[m.TopicDescription]) -> dict[BrokerId, list[m.ListOffsetsPartition]]:
    """Of every replica the end of its log, and of the leader also the high watermark, in one request: they fit together."""
    wanted: dict[BrokerId, list[m.ListOffsetsPartition]] = {}
    for topic in topics:
        for p in topic.partitions:
            own = m.ListOffsetsPartition(
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=p.partition,
                leader_epoch=NO_EPOCH,
                timestamp=LATEST,
                own=True,
            )
            for replica in p.replicas:
                wanted.setdefault(BrokerId(replica), []).append(own)
            if p.leader >= 0:
                committed = replace(own, leader_epoch=p.leader_epoch, own=False)
                wanted.setdefault(BrokerId(p.leader), []).append(committed)
    return wanted


def _merged(described: Overview, answers: Mapping[BrokerId, _Answer | str], at: float, wall_ms: int) -> Overview:
    brokers = dict(described.brokers)
    there = {TopicPartition(topic.name, p.partition) for topic in described.topics for p in topic.partitions}
    high_watermarks = {tp: told for tp, told in described.high_watermarks.items() if tp in there}
    groups: dict[str, SeenGroup] = {}
    shards: set[int] = set()
    served: set[int] = set()
    for broker_id, answer in answers.items():
        if isinstance(answer, str):
            brokers[broker_id] = replace(brokers[broker_id], problem=answer)
            continue
        brokers[broker_id] = replace(
            brokers[broker_id], answered_at=answer.at, log_ends=answer.log_ends, logs=answer.logs
        )
        high_watermarks |= {tp: Told(offset, answer.at) for tp, offset in answer.high_watermarks.items()}
        shards.update(range(answer.shard_count))
        served |= answer.shards
        for group in answer.groups:
            known = groups.get(group.group_id)
            if known is None or known.group.coordinator_epoch < group.coordinator_epoch:
                groups[group.group_id] = SeenGroup(group, answer.at)
    if not shards or shards - served:
        # Some shard has no coordinator that says anything: its groups are there, and nobody tells of them.
        groups = {**described.groups, **groups}
    return replace(
        described,
        at=at,
        wall_ms=wall_ms,
        brokers=brokers,
        high_watermarks=high_watermarks,
        groups=dict(sorted(groups.items())),
    )


def _raise_for(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        raise TidelogError(code.name, code)


def _why(error: TransportError | TidelogError) -> str:
    match error:
        case TidelogError(code=ErrorCode.NOT_CONTROLLER):
            return NO_CONTROLLER
        case TransportError(status="DEADLINE_EXCEEDED"):
            return "no answer"
        case TransportError(status="UNAVAILABLE"):
            return "not reached"
    return str(error)
