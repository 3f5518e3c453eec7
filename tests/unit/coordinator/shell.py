"""Brokers reduced to their coordinators, over the twins of the ports, and consumers that are nothing but their messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from tidelog.broker.groups import group_snapshots
from tidelog.coordinator.model import GroupLimits
from tidelog.coordinator.service import CoordinatorService
from tidelog.coordinator.shards import Coordinators, CoordinatorSettings
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.ports.meta import Create, Delete, SetData
from tidelog.ports.net import CallContext, Route, Stream
from tidelog.runtime.group_metrics import GroupCollector, GroupMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.zk_patterns import ensure_path, register
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire import znodes

PORT = 9092
SESSION_S = 2.0
GROUP = "readers"
LISTENER = "EXTERNAL"


def limits(**changes: Any) -> GroupLimits:
    values: dict[str, Any] = dict(
        handlers=2,
        session_min_s=0.1,
        session_max_s=60.0,
        failed_pings_max=0,
        commit_interval_s=0.2,
        rebalance_retries_max=4,
        backoff_s=0.1,
        backoff_max_s=1.0,
        join_delay_s=0.02,
        join_delay_max_s=0.1,
        initial_delay_s=0.05,
        incremental=True,
        members_max=100,
        partitions_max=1000,
        default_assignor="sticky",
        retention_s=3600.0,
    )
    return GroupLimits(**(values | changes))


@dataclass(eq=False)
class Host:
    """One broker's part in this: coordinators, and partitions that say where they end."""

    number: int
    process: SimProcess
    meta: SimMeta
    broker_meta: SimMeta
    coordinators: Coordinators
    service: CoordinatorService
    registry: CollectorRegistry
    clock: SimClock
    asked: list[m.ListOffsetsRequest] = field(default_factory=list)

    def serves(self, shard: int = 0) -> bool:
        term = self.coordinators.terms.get(shard)
        return term is not None and term.acting

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


class Consumer:
    """Answers what it is asked, by itself, unless it is `silent`; remembers everything."""

    def __init__(self, world: "World", host: Host, consumer_id: str = "c1", group_id: str = GROUP) -> None:
        self.world = world
        self.host = host
        self.consumer_id = consumer_id
        self.group_id = group_id
        self.number = 0
        self.silent = False
        self.starts_with = ErrorCode.NONE
        """Its answer to a Start."""
        self.ended: str | None = None
        self.heard: list[m.CoordinatorMessage] = []
        self.offsets: tuple[m.OffsetInfo, ...] = ()
        self.stream: Stream[m.CoordinatorMessage, m.ConsumerMessage] = world.open(host)

    async def say(self, **body: Any) -> None:
        self.number += 1
        await self.stream.write(m.ConsumerMessage(number=self.number, **body))

    async def register(self, **changes: Any) -> None:
        values: dict[str, Any] = dict(
            group_id=self.group_id,
            consumer_id=self.consumer_id,
            topic_count='{"pattern": "static", "subscription": {"events": 1}}',
            auto_commit=True,
            auto_offset_reset="smallest",
            session_timeout_ms=600,
            incarnation=1,
            static_member=False,
            max_processing_ms=0,
            rejoin=False,
            admission=0,
            watch_port=0,
        )
        await self.say(register=m.RegisterConsumerRequest(**(values | changes)))
        self.world.background.start(f"consumer {self.consumer_id}", self._read())

    async def _read(self) -> None:
        try:
            while (message := await self.stream.read()) is not None:
                self.heard.append(message)
                if not self.silent:
                    await self._answer(message)
            self.ended = "OK"
        except TransportError as error:
            self.ended = str(error)

    async def _answer(self, message: m.CoordinatorMessage) -> None:
        if message.ping is not None:
            answer = m.PingResponse(
                consumer_id=self.consumer_id,
                offset_info=self.offsets,
                coordinator_epoch=message.ping.coordinator_epoch,
                generation=message.ping.generation,
            )
            await self.say(ping=answer)
        elif message.stop is not None:
            await self.say(
                stopped=m.StopFetcherResponse(
                    consumer_id=self.consumer_id,
                    coordinator_epoch=message.stop.coordinator_epoch,
                    generation=message.stop.generation,
                    started_generation=0,
                    finishing=False,
                )
            )
        elif message.start is not None:
            await self.say(
                started=m.StartFetcherResponse(
                    error_code=self.starts_with,
                    consumer_id=self.consumer_id,
                    coordinator_epoch=message.start.coordinator_epoch,
                    generation=message.start.generation,
                )
            )

    @property
    def starts(self) -> list[m.StartFetcherRequest]:
        return [each.start for each in self.heard if each.start is not None]

    @property
    def pings(self) -> list[m.PingRequest]:
        return [each.ping for each in self.heard if each.ping is not None]

    @property
    def partitions(self) -> dict[int, int]:
        """Partition -> offset, of the last Start."""
        return {part.partition: part.offset for each in self.starts[-1].ownership_info for part in each.assigned_parts}

    async def commit(self, **offsets: int) -> m.CommitOffsetsResponse:
        """Of partitions p0, p1, ... of topic events."""
        self.number += 1
        last = self.starts[-1]
        request = m.CommitOffsetsRequest(
            group_id=self.group_id,
            consumer_id=self.consumer_id,
            incarnation=1,
            coordinator_epoch=last.coordinator_epoch,
            generation=last.generation,
            number=self.number,
            offsets=tuple(
                m.OffsetInfo(topic="events", partition=int(name[1:]), offset=offset, leader_epoch=0)
                for name, offset in offsets.items()
            ),
        )
        answer: m.CommitOffsetsResponse = await self.world.call(
            self.host, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, request
        )
        return answer

    async def leave(self) -> None:
        last = self.starts[-1]
        epoch, generation = last.coordinator_epoch, last.generation
        await self.say(
            leave=m.LeaveGroupRequest(
                consumer_id=self.consumer_id, coordinator_epoch=epoch, generation=generation, reason="test"
            )
        )


class World:
    def __init__(self) -> None:
        self.clock = SimClock()
        self.zookeeper = SimZooKeeper(seeded(1, "zookeeper"))
        self.network = SimNetwork(seeded(1, "network"))
        self.background = Supervisor("consumers")
        self.hosts: dict[int, Host] = {}
        self.processes: list[SimProcess] = []
        self.operator = self.zookeeper.client()
        self.ends: dict[TopicPartition, int] = {}
        self._client = self.network.node("client")

    async def start(self) -> None:
        await self.operator.start()
        await ensure_path(self.operator, znodes.TOPICS)

    async def topic(self, name: str = "events", partitions: int = 4, topic_id: bytes = b"\x01" * 16) -> None:
        """Made, or grown."""
        data = znodes.encode_topic(znodes.TopicAssignment(topic_id, ((BrokerId(0),),) * partitions))
        path = znodes.topic_path(name)
        exists = self.zookeeper.find(path) is not None
        await self.operator.multi([SetData(path, data) if exists else Create(path, data)])

    async def delete_topic(self, name: str) -> None:
        await self.operator.multi([Delete(znodes.topic_path(name))])

    async def host(self, number: int, *, shards: int = 1, lag_s: float = 30.0, **changes: Any) -> Host:
        """Starts one, registered as a broker."""
        name = f"broker-{number}"
        process = SimProcess(name)
        self.processes.append(process)
        meta = self.zookeeper.client(session_timeout_s=SESSION_S, request_timeout_s=3.0)
        broker_meta = self.zookeeper.client(session_timeout_s=SESSION_S, request_timeout_s=3.0)
        registry = CollectorRegistry()
        metrics = GroupMetrics(registry)
        coordinators = Coordinators(
            CoordinatorSettings(number, shards, 0.1, limits(**changes), lag_s, 100),
            meta,
            clock := SimClock(),
            self.network.node(name, process),
            seeded(1, f"{name}/{len(self.processes)}"),
            self._leader_of,
            lambda broker_id: Address(f"broker-{broker_id}", PORT),
            metrics,
        )
        service = CoordinatorService(coordinators, metrics, 1000)
        host = Host(number, process, meta, broker_meta, coordinators, service, registry, clock)
        registry.register(GroupCollector(lambda: group_snapshots(coordinators, 0), 100, 100))
        self.hosts[number] = host
        await process.start("start", self._run(host))
        process.start("coordinators", coordinators.run(process.supervisor.start))
        return host

    async def _run(self, host: Host) -> None:
        service = host.service

        async def session(stream: Any, context: CallContext) -> None:
            await service.session(stream, context, LISTENER)

        async def list_offsets(request: m.ListOffsetsRequest, _: CallContext) -> m.ListOffsetsResponse:
            host.asked.append(request)
            return m.ListOffsetsResponse(results=tuple(self._end(each) for each in request.partitions))

        routes = [
            Route(s.COORDINATOR_SERVICE_SESSION, session),
            Route(s.COORDINATOR_SERVICE_COMMIT_OFFSETS, service.commit_offsets),
            Route(s.COORDINATOR_SERVICE_FETCH_OFFSETS, service.fetch_offsets),
            Route(s.COORDINATOR_SERVICE_LIST_GROUPS, service.list_groups),
            Route(s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, service.describe_groups),
            Route(s.COORDINATOR_SERVICE_DELETE_GROUPS, service.delete_groups),
            Route(s.REPLICA_SERVICE_LIST_OFFSETS, list_offsets),
        ]
        await self.network.node(f"broker-{host.number}", host.process).serve(
            Address(f"broker-{host.number}", PORT), routes
        )
        await host.broker_meta.start()
        registration = znodes.BrokerRegistration(
            broker_id=BrokerId(host.number),
            listeners=tuple(
                m.Listener(name=each, host=f"{each}-{host.number}", port=1) for each in ("INTERNAL", LISTENER)
            ),
            rack=f"rack-{host.number}",
            intact_since=znodes.INTACT_SINCE_NOW,
            attempt=str(len(self.processes)),
        )
        await register(host.broker_meta, znodes.broker_path(host.number), znodes.encode_broker(registration))

    def _end(self, asked: m.ListOffsetsPartition) -> m.ListOffsetsResult:
        end = self.ends.get(TopicPartition(asked.topic, asked.partition), 1000)
        return m.ListOffsetsResult(
            topic=asked.topic, partition=asked.partition, timestamp=-1, offset=end, leader_epoch=0
        )

    def _leader_of(self, tp: TopicPartition) -> m.PartitionState | None:
        """Partition n is led by the n-th broker."""
        numbers = sorted(self.hosts)
        return m.PartitionState(
            topic=tp.topic,
            partition=tp.partition,
            topic_id=b"\x01" * 16,
            leader=numbers[tp.partition % len(numbers)],
            leader_epoch=0,
            partition_epoch=0,
            controller_epoch=1,
        )

    def kill(self, host: Host) -> None:
        self.network.kill(f"broker-{host.number}")
        host.process.kill()
        host.meta.kill()
        host.broker_meta.kill()

    def open(self, host: Host) -> Any:
        return self._channel(host).open(s.COORDINATOR_SERVICE_SESSION)

    async def call(self, host: Host, method: Any, request: Any) -> Any:
        return await self._channel(host).call(method, request, 30.0)

    def _channel(self, host: Host) -> Any:
        return self._client.channel(Address(f"broker-{host.number}", PORT), purpose="test")

    async def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> float:
        """Waits for `condition`; the virtual seconds that it took."""
        began_at = self.clock.now()
        while not condition():
            assert self.clock.now() - began_at < timeout_s, f"not within {timeout_s} s: {what}"
            await self.clock.sleep(0.002)
        return self.clock.now() - began_at

    async def serving(self, number: int = 1, **settings: Any) -> Host:
        """A broker that coordinates shard 0."""
        host = await self.host(number, **settings)
        await self.until(host.serves, f"broker {number} coordinates")
        return host

    async def member(self, host: Host, consumer_id: str = "c1", group_id: str = GROUP, **changes: Any) -> Consumer:
        """A consumer that was told to start."""
        consumer = Consumer(self, host, consumer_id, group_id)
        await consumer.register(**changes)
        await self.until(lambda: consumer.starts or consumer.ended, f"{consumer_id} is started")
        assert consumer.starts, (consumer.ended, consumer.heard)
        return consumer


@asynccontextmanager
async def coordinator_world() -> AsyncIterator[World]:
    """A supervised task that failed in it fails the test."""
    world = World()
    await world.start()
    async with asyncio.timeout(3600):
        yield world
    failures = {process.name: process.supervisor.failures for process in world.processes}
    assert not any(failures.values()), failures
