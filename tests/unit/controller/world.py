"""Real controllers over the twins of their ports, and brokers that only remember what they were told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from tidelog.config import ControllerSettings
from tidelog.controller.__main__ import UnreadZnodes
from tidelog.controller.app import Controller
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.ports.authorizer import ALLOW_EVERYTHING, Authorizer
from tidelog.ports.bundle import Ports
from tidelog.ports.meta import Stat
from tidelog.ports.net import CallContext, Channel, Route, Stream
from tidelog.release import RELEASE
from tidelog.runtime.metrics import ControllerMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.zk_patterns import register
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire import services, znodes

T = TypeVar("T")

SESSION_S = 6.0
PORT = 9092


@dataclass(eq=False)
class FakeBroker:
    """Fences as a broker does, remembers every request, and answers what the test says."""

    broker_id: int
    process: SimProcess
    meta: SimMeta
    epoch: int = -1
    controller_epoch: int = -1
    said: list[m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest] = field(default_factory=list)
    states: dict[TopicPartition, m.PartitionState] = field(default_factory=dict)
    metadata: dict[TopicPartition, m.PartitionState] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Control requests wait for it."""
    refusing: ErrorCode = ErrorCode.NONE
    end: tuple[int, int] = (-1, 0)
    """Epoch of the last record, and the end, of each of its logs."""

    def __post_init__(self) -> None:
        self.gate.set()

    def routes(self) -> list[Route]:
        return [
            Route(services.BROKER_CONTROL_LEADER_AND_ISR, self.leader_and_isr),
            Route(services.BROKER_CONTROL_STOP_REPLICA, self.stop_replica),
            Route(services.BROKER_CONTROL_UPDATE_METADATA, self.update_metadata),
            Route(services.BROKER_CONTROL_LIVENESS, self.liveness),
            Route(services.BROKER_CONTROL_REPLICA_ENDS, self.replica_ends),
        ]

    async def _fence(
        self, request: m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest
    ) -> ErrorCode:
        await self.gate.wait()
        if self.refusing is not ErrorCode.NONE:
            return self.refusing
        if self.epoch < 0 or request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        self.said.append(request)
        return ErrorCode.NONE

    async def leader_and_isr(self, request: m.LeaderAndIsrRequest, _: CallContext) -> m.LeaderAndIsrResponse:
        code = await self._fence(request)
        if code is ErrorCode.NONE:
            if request.full:
                self.states.clear()
            self.states.update((TopicPartition(each.topic, each.partition), each) for each in request.partition_states)
        return m.LeaderAndIsrResponse(error_code=code)

    async def stop_replica(self, request: m.StopReplicaRequest, _: CallContext) -> m.StopReplicaResponse:
        code = await self._fence(request)
        if code is ErrorCode.NONE:
            for each in request.partitions:
                self.states.pop(TopicPartition(each.topic, each.partition), None)
        return m.StopReplicaResponse(error_code=code)

    async def update_metadata(self, request: m.UpdateMetadataRequest, _: CallContext) -> m.UpdateMetadataResponse:
        code = await self._fence(request)
        if code is ErrorCode.NONE:
            if request.full:
                self.metadata.clear()
            self.metadata = {tp: each for tp, each in self.metadata.items() if tp.topic not in request.deleted_topics}
            self.metadata.update((TopicPartition(s.topic, s.partition), s) for s in request.partition_states)
        return m.UpdateMetadataResponse(error_code=code)

    async def replica_ends(self, request: m.ReplicaEndsRequest, _: CallContext) -> m.ReplicaEndsResponse:
        await self.gate.wait()
        return m.ReplicaEndsResponse(
            partitions=tuple(
                m.ReplicaEnd(topic=p.topic, partition=p.partition, last_epoch=self.end[0], end_offset=self.end[1])
                for p in request.partitions
            )
        )

    async def liveness(self, stream: Stream[m.LivenessPing, m.LivenessPong], _: CallContext) -> None:
        while await stream.read() is not None:
            await stream.write(m.LivenessPong(broker_id=self.broker_id, broker_epoch=self.epoch))

    @property
    def leads(self) -> set[TopicPartition]:
        return {tp for tp, each in self.states.items() if each.leader == self.broker_id}

    def full(self) -> list[m.LeaderAndIsrRequest]:
        return [each for each in self.said if isinstance(each, m.LeaderAndIsrRequest) and each.full]


class World:
    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.zookeeper = SimZooKeeper(seeded(seed, "zookeeper"))
        self.network = SimNetwork(seeded(seed, "network"))
        self.brokers: dict[int, FakeBroker] = {}
        self.controllers: dict[int, Controller] = {}
        self.metas: dict[int, SimMeta] = {}
        self.processes: dict[int, SimProcess] = {}
        self.registries: dict[int, CollectorRegistry] = {}
        self.clock = SimClock()
        self._client = self.network.node("client")
        self._channels: dict[int, Channel] = {}
        self._lives = 0
        self._requests = 0
        self._background = Supervisor("test")
        self.authorizer: Authorizer = ALLOW_EVERYTHING

    async def controller(self, number: int, **settings: Any) -> Controller:
        """Starts one and waits until it stands for election."""
        name = f"controller-{number}"
        process = self.processes[number] = SimProcess(name)
        meta = self.metas[number] = self.zookeeper.client(session_timeout_s=SESSION_S, request_timeout_s=3.0)
        self._lives += 1
        ports = Ports(
            clock=SimClock(),
            net=self.network.node(name, process),
            disk=SimDisk(),
            meta=meta,
            rand=seeded(self.seed, f"{name}/{self._lives}"),
            authorizer=self.authorizer,
        )
        registry = self.registries[number] = CollectorRegistry()
        config = ControllerSettings(
            controller_id=number,
            zookeeper=(Address("zookeeper", 2181),),
            listen=Address(name, PORT),
            request_timeout_ms=3000,
            **settings,
        )
        controller = Controller(
            config, ports, process.supervisor, ControllerMetrics(registry), UnreadZnodes(registry).show
        )
        self.controllers[number] = controller
        await process.start("start", controller.start())
        return controller

    async def active(self, number: int = 1, **settings: Any) -> Controller:
        controller = await self.controller(number, **settings)
        await self.until(lambda: controller.active, f"controller {number} acts")
        return controller

    async def broker(self, number: int, intact_since: int = znodes.INTACT_SINCE_NOW) -> FakeBroker:
        """Listens and registers, in a new life."""
        name = f"broker-{number}"
        process = SimProcess(name)
        meta = self.zookeeper.client(session_timeout_s=SESSION_S)
        old = self.brokers.get(number)
        broker = self.brokers[number] = FakeBroker(number, process, meta)
        await self.network.node(name, process).serve(Address(name, PORT), broker.routes())
        await meta.start()
        self._lives += 1
        registration = znodes.BrokerRegistration(
            broker_id=BrokerId(number),
            listeners=(m.Listener(name="INTERNAL", host=name, port=PORT),),
            rack="",
            intact_since=intact_since,
            attempt=str(self._lives),
            release=RELEASE,
        )
        previous = 0 if old is None else old.meta.session_id

        async def is_dead(_: bytes, found: Stat) -> bool:
            return found.ephemeral_owner == previous

        stat = await register(meta, znodes.broker_path(number), znodes.encode_broker(registration), is_dead)
        broker.epoch = stat.czxid
        return broker

    async def listen_unregistered(self, number: int) -> None:
        """A new process at the old address, while the registration is still that of the life before."""
        name = f"broker-{number}"
        process = SimProcess(name)
        broker = FakeBroker(number, process, self.brokers[number].meta)
        await self.network.node(name, process).serve(Address(name, PORT), broker.routes())

    def in_background(self, request: Coroutine[Any, Any, object]) -> None:
        """A request whose answer may get lost with the controller."""

        async def ask() -> None:
            try:
                await request
            except TransportError:
                return

        self._background.start("request", ask())

    def kill_broker(self, number: int) -> None:
        self.network.kill(f"broker-{number}")
        self.brokers[number].meta.kill()

    def kill_controller(self, number: int) -> None:
        self.network.kill(f"controller-{number}")
        self.metas[number].kill()

    def pause_controller(self, number: int) -> None:
        self.network.pause(f"controller-{number}")
        self.metas[number].pause()

    def resume_controller(self, number: int) -> None:
        self.network.resume(f"controller-{number}")
        self.metas[number].resume()

    def channel(self, number: int) -> Channel:
        if number not in self._channels:
            self._channels[number] = self._client.channel(Address(f"controller-{number}", PORT), purpose="test")
        return self._channels[number]

    async def create(
        self, *names: str, partitions: int = 3, factor: int = 3, number: int = 1, timeout_ms: int = 10_000
    ) -> list[ErrorCode]:
        topics = tuple(m.NewTopic(name=name, num_partitions=partitions, replication_factor=factor) for name in names)
        request = m.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)
        answer = await self.channel(number).call(services.ADMIN_SERVICE_CREATE_TOPICS, request, 30.0)
        return [each.error_code for each in answer.topics]

    async def delete(self, *names: str, number: int = 1) -> list[ErrorCode]:
        request = m.DeleteTopicsRequest(names=names, timeout_ms=10_000)
        answer = await self.channel(number).call(services.ADMIN_SERVICE_DELETE_TOPICS, request, 30.0)
        return [each.error_code for each in answer.topics]

    async def alter_isr(
        self, asker: int, tp: TopicPartition, isr: dict[int, int], number: int = 1
    ) -> m.AlterIsrResponse:
        """As the leader that `asker` believes it is."""
        known = self.brokers[asker].states[tp]
        wanted = m.LeaderAndIsr(
            leader=asker,
            leader_epoch=known.leader_epoch,
            isr=tuple(m.IsrMember(broker_id=each, broker_epoch=epoch) for each, epoch in isr.items()),
            current_zk_version=known.partition_epoch,
        )
        item = m.AlterIsrPartition(partition_id=tp.partition, leader_and_isr=wanted)
        topic = m.AlterIsrTopic(topic=tp.topic, topic_id=known.topic_id, partitions=(item,))
        broker = self.brokers[asker]
        self._requests += 1
        request = m.AlterIsrRequest(
            broker_id=asker,
            broker_epoch=broker.epoch,
            controller_epoch=broker.controller_epoch,
            sequence=self._requests,
            topics=(topic,),
        )
        return await self.channel(number).call(services.CONTROLLER_SERVICE_ALTER_ISR, request, 30.0)

    def states(self) -> dict[TopicPartition, znodes.StoredState]:
        found = {}
        for path, node in self.zookeeper.dump().items():
            if path.endswith("/state"):
                _, _, _, topic, _, partition, _ = path.split("/")
                found[TopicPartition(topic, int(partition))] = znodes.decode_state(topic, int(partition), node.data)
        return found

    def in_sync(self, number: int) -> int:
        """In how many stored ISRs a broker is."""
        return sum(member.broker_id == number for each in self.states().values() for member in each.isr)

    def everybody_knows(self, *, alive: set[int]) -> bool:
        """Every live broker has been told, in roles and in metadata, exactly what is stored."""
        stored = self.states()
        for number in alive:
            broker = self.brokers[number]
            if set(broker.metadata) != set(stored):
                return False
            for known in (broker.metadata, broker.states):
                for tp, told in known.items():
                    state = stored.get(tp)
                    if state is None or (state.leader, state.leader_epoch, state.isr) != (
                        told.leader,
                        told.leader_epoch,
                        told.isr,
                    ):
                        return False
        return True

    async def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> float:
        """Waits for `condition`; the virtual seconds that it took."""
        began_at = self.clock.now()
        while not condition():
            assert self.clock.now() - began_at < timeout_s, f"not within {timeout_s} s: {what}"
            await self.clock.sleep(0.005)
        return self.clock.now() - began_at

    def sample(self, number: int, name: str, **labels: str) -> float:
        return self.registries[number].get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def controller_world(seed: int = 1) -> AsyncIterator[World]:
    """A supervised task that failed in it fails the test."""
    world = World(seed)
    yield world
    failures = {name: process.supervisor.failures for name, process in world.processes.items()}
    assert not any(failures.values()), failures
