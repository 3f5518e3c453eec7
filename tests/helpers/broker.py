"""A broker's inside without its outside: partitions on a simulated disk, a controller played by the test."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from tidelog.broker.control_plane.port import Decision
from tidelog.broker.fetch import FetchHandler
from tidelog.broker.flusher import Flusher
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.produce import ProduceHandler
from tidelog.broker.replica_manager import ReplicaManager, ReplicaSettings
from tidelog.broker.reviver import Reviver
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import KnownCaller
from tidelog.replica.effects import ProposeIsr
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.metrics import ReplicationMetrics, RequestMetrics
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.testing.disk import SimDisk
from tidelog.topic_config import TopicConfig
from tidelog.values import Message
from tidelog.watch.ring import Ring
from tidelog.watch.text import sentence
from tidelog.wire import messages as m

STALL_LIMIT_S = 10.0
INFLATED_BYTES_MAX = 1 << 20
TOPIC_ID = bytes(range(16))


def member(broker_id: int) -> m.IsrMember:
    return m.IsrMember(broker_id=broker_id, broker_epoch=broker_id * 100 + 1)


class NoFetchers:
    def __init__(self) -> None:
        self.following: dict[TopicPartition, int] = {}

    def follow(self, host: PartitionHost, leader: int) -> None:
        self.following[host.tp] = leader

    def restate(self, host: PartitionHost) -> None: ...

    def unfollow(self, host: PartitionHost, newer_epoch: int) -> None:
        self.following.pop(host.tp, None)


class SilentControlPlane:
    def __init__(self) -> None:
        self.proposals: list[tuple[TopicPartition, ProposeIsr]] = []

    def propose_isr(self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr) -> None:
        self.proposals.append((tp, proposal))

    async def run(self) -> None:
        raise AssertionError("the test answers by itself")


class BrokerBench:
    """Broker 1. `told` makes it the leader of topic `events`, partition 0, with nobody else in the ISR unless asked."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        broker_id: int = 1,
        clock: Clock | None = None,
        config: LogConfig | None = None,
    ) -> None:
        self.disk = disk or SimDisk()
        self.clock = clock or SystemClock()
        rand = random.Random(1)
        self.logs = LogStore.open(self.disk, "/data", cluster_id="c", broker_id=broker_id, rand=rand, config=config)
        self.logs.load()
        self.registry = CollectorRegistry()
        self.metrics = ReplicationMetrics(self.registry)
        settings = ReplicaSettings(broker_id=broker_id, lag_max_s=10.0, tick_s=0.5, checkpoint_s=5.0)
        self.ring = Ring(f"broker-{broker_id}", 1, self.clock)
        self.manager = ReplicaManager(settings, self.clock, self.logs, self.metrics, self.disk, self.ring)
        self.fetchers, self.plane = NoFetchers(), SilentControlPlane()
        self.flusher = Flusher(self.clock, self.disk, self._spawn, STALL_LIMIT_S, self.logs.sync_epochs)
        self.manager.connect(self.fetchers, self.plane, self.flusher)
        self.reviver = Reviver(broker_id, self.manager, self.logs, self.clock, self.disk)
        self.may_ack_alone = True
        self.refusals: list[ErrorCode] = []
        requests = RequestMetrics(CollectorRegistry())
        self.produce = ProduceHandler(
            self.manager,
            self.clock,
            lambda: self.may_ack_alone,
            lambda *_: None,
            self.refusals.append,
            requests,
            self.disk.in_background,
            INFLATED_BYTES_MAX,
        )
        self.fetch = FetchHandler(self.manager, self.clock, 1 << 20, lambda *_: None, requests)

    @staticmethod
    def _spawn(name: str, coro: Coroutine[Any, Any, None]) -> object:
        try:
            return asyncio.get_running_loop().create_task(coro, name=name)
        except RuntimeError:
            coro.close()  # a test without a loop waits for nothing
            return None

    def said(self, kind: type[Message]) -> list[str]:
        """Returns the sentences of its protocol events of this kind."""
        return [sentence(event) for event in self.ring.events() if isinstance(event.fields, kind)]

    def told(self, *asked: Any, **named: Any) -> ErrorCode:
        """The answer to an order for one partition, as `decision` names it."""
        live = {i: member(i).broker_epoch for i in (1, 2, 3)}
        (result,) = self.manager.become([self.decision(*asked, **named)], live)
        return result.error_code

    @staticmethod
    def decision(
        leader: int = 1,
        leader_epoch: int = 3,
        partition_epoch: int = 7,
        isr: tuple[int, ...] = (1,),
        replicas: tuple[int, ...] = (1,),
        config: TopicConfig | None = None,
        topic_id: bytes = TOPIC_ID,
        topic: str = "events",
        adding: tuple[int, ...] = (),
    ) -> Decision:
        state = m.PartitionState(
            topic=topic,
            topic_id=topic_id,
            partition=0,
            controller_epoch=1,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=tuple(member(i) for i in isr),
            partition_epoch=partition_epoch,
            replicas=replicas,
            adding_replicas=adding,
        )
        return Decision(state, config or TopicConfig())

    @property
    def host(self) -> PartitionHost:
        return self.manager.host("events", 0)

    async def send(
        self,
        records: bytes,
        *,
        acks: int = -1,
        timeout_ms: int = 1000,
        topic: str = "events",
        partition: int = 0,
        leader_epoch: int = -1,
        topic_id: bytes = b"",
    ) -> m.ProduceResult:
        part = m.ProducePartition(
            topic=topic, topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, records=records
        )
        request = m.ProduceRequest(client_id="test", acks=acks, timeout_ms=timeout_ms, partitions=(part,))
        return (await self.produce(request)).results[0]

    async def get(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        topic: str = "events",
        partition: int = 0,
        topic_id: bytes = b"",
        caller: str = "test",
    ) -> m.FetchResult:
        part = m.FetchPartition(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            leader_epoch=leader_epoch,
            offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            max_bytes=partition_max_bytes,
        )
        request = m.FetchRequest(
            client_id="test", max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, partitions=(part,)
        )
        return (await self.fetch.fetch(request, KnownCaller(caller))).results[0]
