"""Looks at a whole cluster again and again, cheaply: three requests to one broker, and at most three to each.

Each source is asked in a loop of its own. A silent one holds up no look at another, and what it said before stays known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap
from tidelog.client.offsets import LATEST
from tidelog.client.overview import (
    NO_CONTROLLER,
    NOT_LIVE,
    ClusterLook,
    GroupsLook,
    Look,
    Overview,
    ReplicasLook,
    SeenBroker,
    SeenGroup,
    Told,
)
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, Address, BrokerId, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import Unary
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts, parts_or_all

Req = TypeVar("Req")
Res = TypeVar("Res")
Chosen = Callable[[str], object]
"""True of a name that is to be looked at."""

ANSWER_S: Final = 1.0
"""For all that a source answers in a look."""
_SHORTEST_S: Final = 0.01


async def repeat(clock: Clock, period_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Begins `act` every `period_s`, or when it has ended if that is later. It never returns."""
    while True:
        began = clock.now()
        await act()
        await clock.sleep(max(0.0, began + period_s - clock.now()))


class ClusterObserver:
    """Looks between `start` and `stop`, and changes nothing in the cluster."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        ports: ClientPorts,
        period_s: float,
        *,
        topics: Chosen = lambda name: True,
        groups: Chosen = lambda name: True,
        on_look: Callable[[Look], None] = lambda look: None,
    ) -> None:
        """`period_s`: between the beginnings of two looks at one source. `on_look` is called with each look as it ends; by then
        `overview` has that at the groups of a broker."""
        self._clock = ports.clock
        self._connections = Connections(ports.net)
        self._period_s = period_s
        self._topics = topics
        self._groups = groups
        self._on_look = on_look
        self._given = parse_bootstrap(bootstrap)
        self._doors = list(self._given)
        """Addresses to ask about the cluster, in this order: one that fails or knows nothing goes to the end."""
        self._asked = asyncio.Event()
        """Set when every source was asked once, or a loop has failed."""
        self._supervisor = Supervisor("observer", lambda task: self._asked.set())
        self._seen = Overview(self._clock.now(), self._clock.wall_ms())
        """Problems of brokers are those of their own looks."""
        self._live: frozenset[BrokerId] = frozenset()
        self._wanted: dict[BrokerId, list[m.ListOffsetsPartition]] = {}
        self._coordinated: dict[BrokerId, GroupsLook] = {}
        """The newest look at each broker."""
        self._loops: dict[BrokerId, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._start("cluster", self._look_at_cluster)

    async def stop(self) -> None:
        """TaskFailed when a loop has ended before by a mistake of its own, or by one of `on_look`."""
        await self._supervisor.stop()
        await self._connections.close()
        self._raise_failure()

    @property
    def overview(self) -> Overview:
        """The newest answer of each source. TaskFailed as from `stop`."""
        self._raise_failure()
        brokers = {
            each: broker if each in self._live else replace(broker, problem=NOT_LIVE)
            for each, broker in self._seen.brokers.items()
        }
        return replace(self._seen, at=self._clock.now(), wall_ms=self._clock.wall_ms(), brokers=brokers)

    async def first(self) -> Overview:
        """The overview when every source was asked once."""
        await self._asked.wait()
        return self.overview

    def _start(self, name: str, look: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._supervisor.start(name, repeat(self._clock, self._period_s, look))

    def _raise_failure(self) -> None:
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _note(self, seen: Overview) -> None:
        self._seen = seen
        if not self._asked.is_set() and self.overview.complete:
            self._asked.set()

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def _look_at_cluster(self) -> None:
        asked = self._clock.now()
        problem = await self._describe(asked + ANSWER_S)
        took = self._clock.now() - asked
        for each, broker in self._seen.brokers.items():
            if broker.address is not None and each not in self._loops:
                self._loops[each] = self._start(str(each), partial(self._look_at_broker, each))
        self._note(replace(self._seen, problem=problem))
        topics = () if problem else self._seen.topics
        self._on_look(ClusterLook(asked=asked, took=took, problem=problem, topics=topics))

    async def _describe(self, deadline: float) -> str:
        """Returns why there is no word of the controller, "" if there is."""
        why = "not reached"
        for door in list(self._doors):
            if self._clock.now() >= deadline:
                break  # the next look begins with those that were not asked now
            try:
                metadata = await self._ask_door(door, s.COORDINATOR_SERVICE_CLUSTER_METADATA, _WHO_LIVES, deadline)
            except TransportError as error:
                self._ask_last(door)
                why = _why(error)
                continue
            if not metadata.brokers_info:
                self._ask_last(door)  # it has just started and knows nothing yet
                continue
            self._learn({BrokerId(each.id): Address(each.host, each.port) for each in metadata.brokers_info})
            try:
                cluster = await self._ask_door(
                    door, s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), deadline
                )
                topics = await self._ask_door(
                    door, s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(), deadline
                )
                _raise_for(cluster.error_code)
                _raise_for(topics.error_code)
            except (TransportError, TidelogError) as error:
                self._ask_last(door)  # it may be the one that is cut off, not the controller
                return _why(error)
            self._know(cluster, topics.topics)
            return ""
        # Nobody says who lives.
        self._live = frozenset(each for each, broker in self._seen.brokers.items() if broker.address is not None)
        return why

    def _ask_last(self, door: Address) -> None:
        self._doors.remove(door)
        self._doors.append(door)

    def _learn(self, live: Mapping[BrokerId, Address]) -> None:
        """Takes over the addresses of live brokers.

        One that is no longer live may believe that it leads: it is asked too, unless a live one has its address.
        """
        brokers = {
            each: replace(broker, address=None) if broker.address in live.values() else broker
            for each, broker in self._seen.brokers.items()
        }
        for each, address in live.items():
            brokers[each] = replace(brokers.get(each) or SeenBroker(each), address=address)
        self._doors += [address for address in live.values() if address not in self._doors]
        self._live = frozenset(live)
        self._seen = replace(self._seen, brokers=dict(sorted(brokers.items())))

    def _know(self, cluster: m.DescribeClusterResponse, described: tuple[m.TopicDescription, ...]) -> None:
        expected = {
            *self._live,
            *(BrokerId(each.broker.broker_id) for each in cluster.brokers),
            *(BrokerId(replica) for topic in described for p in topic.partitions for replica in p.replicas),
        }
        brokers = self._without_gone(expected)
        topics = tuple(topic for topic in described if self._topics(topic.name))
        there = {TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions}
        self._seen = replace(
            self._seen,
            cluster=cluster,
            topics=topics,
            described_at=self._clock.now(),
            brokers=brokers,
            high_watermarks={tp: told for tp, told in self._seen.high_watermarks.items() if tp in there},
        )
        self._wanted = _wanted(topics, brokers)

    def _without_gone(self, expected: Iterable[BrokerId]) -> dict[BrokerId, SeenBroker]:
        """Forgets each broker that is not expected and does not answer; it is looked at anew if it lives again.

        What such a broker told last does not keep it: its replicas may have been moved away after its end.
        """
        seen = self._seen.brokers
        known = {*expected, *(each for each, broker in seen.items() if not broker.problem)}
        brokers = {each: seen.get(each) or SeenBroker(each) for each in sorted(known)}
        for gone in seen.keys() - known:
            self._coordinated.pop(gone, None)
            if loop := self._loops.pop(gone, None):
                loop.cancel()
        addresses = {*self._given, *(broker.address for broker in brokers.values())}
        self._doors = [door for door in self._doors if door in addresses]
        return brokers

    # -- brokers ------------------------------------------------------------------------------------------------------

    async def _look_at_broker(self, broker: BrokerId) -> None:
        deadline = self._clock.now() + ANSWER_S
        replicas = await self._ask_replicas(broker, deadline)
        self._on_look(replicas)
        if replicas.problem:
            groups = GroupsLook(asked=replicas.asked, took=replicas.took, problem=replicas.problem, broker=broker)
        else:
            groups = await self._ask_groups(broker, deadline)
        self._take(replicas, groups)
        self._on_look(groups)

    async def _ask_replicas(self, broker: BrokerId, deadline: float) -> ReplicasLook:
        asked, problem = self._clock.now(), ""
        replicas: dict[TopicPartition, m.ListOffsetsResult] = {}
        high_watermarks: dict[TopicPartition, int] = {}
        try:
            for asks in parts_or_all(m.ListOffsetsRequest, self._wanted.get(broker, ())):
                request = m.ListOffsetsRequest(partitions=asks)
                offsets = await self._call_broker(broker, s.REPLICA_SERVICE_LIST_OFFSETS, request, deadline)
                for ask, told in zip(asks, offsets.results, strict=False):
                    tp = TopicPartition(told.topic, told.partition)
                    if told.error_code is ErrorCode.NONE and ask.own:
                        replicas[tp] = told
                    elif told.error_code is ErrorCode.NONE:
                        high_watermarks[tp] = told.offset
        except TransportError as error:
            problem, replicas, high_watermarks = _why(error), {}, {}
        return ReplicasLook(
            asked=asked,
            took=self._clock.now() - asked,
            problem=problem,
            broker=broker,
            replicas=replicas,
            high_watermarks=high_watermarks,
        )

    async def _ask_groups(self, broker: BrokerId, deadline: float) -> GroupsLook:
        asked, told = self._clock.now(), GroupsLook(asked=0.0, took=0.0, broker=broker)
        try:
            # One that still reads its groups says which it has read.
            request = m.ListGroupsRequest()
            listing = await self._call_broker(broker, s.COORDINATOR_SERVICE_LIST_GROUPS, request, deadline)
            groups: list[m.DescribedGroup] = []
            chosen = [each.group_id for each in listing.groups if self._groups(each.group_id)]
            for ids in parts(m.DescribeGroupsRequest, chosen):
                request_ = m.DescribeGroupsRequest(group_ids=ids)
                answer = await self._call_broker(broker, s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request_, deadline)
                groups += [each for each in answer.groups if each.error_code is ErrorCode.NONE]
            told = replace(told, groups=groups, shards=frozenset(listing.shards), shard_count=listing.shard_count)
        except TransportError as error:
            told = replace(told, problem=_why(error))
        return replace(told, asked=asked, took=self._clock.now() - asked)

    def _take(self, replicas: ReplicasLook, groups: GroupsLook) -> None:
        seen, number = self._seen, replicas.broker
        broker = replace(seen.brokers[number], problem=replicas.problem or groups.problem)
        if not replicas.problem:
            broker = replace(broker, answered_at=replicas.answered, replicas=replicas.replicas)
        told = {tp: Told(offset, replicas.answered) for tp, offset in replicas.high_watermarks.items()}
        self._coordinated[number] = groups
        brokers, high_watermarks = {**seen.brokers, number: broker}, {**seen.high_watermarks, **told}
        self._seen = replace(seen, brokers=brokers, high_watermarks=high_watermarks)
        self._note(replace(self._seen, groups=self._groups_now()))

    def _groups_now(self) -> dict[str, SeenGroup]:
        found: dict[str, SeenGroup] = {}
        shards: set[int] = set()
        served: set[int] = set()
        brokers = self.overview.brokers
        for look in (look for broker, look in self._coordinated.items() if not brokers[broker].problem):
            shards.update(range(look.shard_count))
            served |= look.shards
            for group in look.groups:
                known = found.get(group.group_id)
                if known is None or known.group.coordinator_epoch < group.coordinator_epoch:
                    found[group.group_id] = SeenGroup(group, look.answered)
        if not shards or shards - served:
            # Some shard has no coordinator that says anything: its groups are there, and nobody tells of them.
            found = {**self._seen.groups, **found}
        return dict(sorted(found.items()))

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _ask_door(self, door: Address, method: Unary[Req, Res], request: Req, deadline: float) -> Res:
        """Its address may be another one than the one that the broker there tells of itself."""
        return await self._call(door, method, request, deadline, to_anyone=True)

    async def _call_broker(self, broker: BrokerId, method: Unary[Req, Res], request: Req, deadline: float) -> Res:
        address = self._seen.brokers[broker].address
        if address is None:
            raise TransportError("UNAVAILABLE", "another broker has its address")
        return await self._call(address, method, request, deadline)

    async def _call(
        self, address: Address, method: Unary[Req, Res], request: Req, deadline: float, *, to_anyone: bool = False
    ) -> Res:
        left_s = max(_SHORTEST_S, deadline - self._clock.now())
        return await self._connections.to(address, "metadata", to_anyone=to_anyone).call(method, request, left_s)


_WHO_LIVES: Final = m.ClusterMetadataRequest()


def _wanted(
    topics: Iterable[m.TopicDescription], brokers: Mapping[BrokerId, SeenBroker]
) -> dict[BrokerId, list[m.ListOffsetsPartition]]:
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
            # One whose replica was moved away may not have heard of it.
            tp = TopicPartition(topic.name, p.partition)
            holders = {*map(BrokerId, p.replicas), *(each for each, seen in brokers.items() if tp in seen.replicas)}
            for holder in holders:
                wanted.setdefault(holder, []).append(own)
            if p.leader >= 0:
                committed = replace(own, leader_epoch=p.leader_epoch, own=False)
                wanted.setdefault(BrokerId(p.leader), []).append(committed)
    return wanted


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
