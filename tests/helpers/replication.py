"""Brokers that replicate to each other over the simulated network; the test plays their controller and their disks.

Broker n has broker epoch n * 100 + 1 and listens at broker-n:9092. What crosses a leader's streams is kept, so that a
test can tell how it was sent, not only what came of it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from helpers.batches import batch
from helpers.broker import STALL_LIMIT_S, TOPIC_ID, BrokerBench, SilentControlPlane, member
from tidelog.broker.flusher import Flusher
from tidelog.broker.follower_session import FollowerSessions
from tidelog.broker.leader_fetcher import LeaderFetchers
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.throttle import Quota
from tidelog.ids import Address, TopicPartition
from tidelog.ports.net import CallContext, Route, Stream
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.testing.net import SimNetwork
from tidelog.wire import messages as m
from tidelog.wire.batch import validate_produce
from tidelog.wire.services import REPLICA_SERVICE_REPLICA_FETCH

EVENTS = TopicPartition("events", 0)
CHUNK_BYTES = 1 << 20
FLUSH_S = 0.1


def address(broker_id: int) -> Address:
    return Address(f"broker-{broker_id}", 9092)


@dataclass
class Tap:
    """A leader's end of a stream that keeps what passes."""

    stream: Stream[m.ReplicaFetchRequest, m.ReplicaFetchResponse]
    requests: list[m.ReplicaFetchRequest] = field(default_factory=list)
    chunks: list[m.ReplicaFetchResponse] = field(default_factory=list)
    unacked: int = 0
    unacked_max: int = 0

    async def read(self) -> m.ReplicaFetchRequest | None:
        request = await self.stream.read()
        if request is not None:
            self.requests.append(request)
            if request.acked_chunk:
                self.unacked -= 1
        return request

    async def write(self, chunk: m.ReplicaFetchResponse) -> None:
        self.chunks.append(chunk)
        self.unacked += 1
        self.unacked_max = max(self.unacked_max, self.unacked)
        await self.stream.write(chunk)

    def cancel(self) -> None:
        self.stream.cancel()


class Node(BrokerBench):
    """One broker's replication, both sides of it."""

    def __init__(self, world: "World", broker_id: int, disk: SimDisk | None = None) -> None:
        self.sim_clock = clock = SimClock()
        super().__init__(disk, broker_id, clock)
        self.leader_throttle = self.follower_throttle = 0
        self.broker_id = broker_id
        self.process = SimProcess(f"broker-{broker_id}")
        self.net = world.network.node(self.process.name, self.process)
        self.links = LeaderFetchers(
            broker_id,
            self.net,
            clock,
            lambda i: address(i),
            self.process.start,
            self.metrics.received,
            Quota(clock, lambda: self.follower_throttle),
            self.manager.cuts.cutting,
        )
        self.links.broker_epoch = member(broker_id).broker_epoch
        quota = Quota(clock, lambda: self.leader_throttle)
        self.sessions = FollowerSessions(self.manager, clock, CHUNK_BYTES, FLUSH_S, self.metrics.sent, quota)
        self.proposals = SilentControlPlane()
        self.flusher = Flusher(clock, self.disk, self.process.start, STALL_LIMIT_S, self.logs.sync_epochs)
        self.manager.connect(self.links, self.proposals, self.flusher)
        self.taps: list[Tap] = []

    async def start(self) -> None:
        await self.net.serve(address(self.broker_id), [Route(REPLICA_SERVICE_REPLICA_FETCH, self._serve)])
        self.process.start("high watermarks", self.sessions.run_flushes())

    async def _serve(self, stream: Stream[Any, Any], _: CallContext) -> None:
        tap = Tap(stream)
        self.taps.append(tap)
        await self.sessions.serve(tap)

    def lay(self, *parts: tuple[int, int], by: int = 0) -> None:
        """Records of before: (leader epoch, how many), each a batch of its own. Those `by` one leader are the same everywhere."""
        log = self.logs.create(EVENTS, TOPIC_ID)
        for epoch, count in parts:
            for _ in range(count):
                value = b"of leader %d at %d" % (by or self.broker_id, log.log_end_offset)
                log.append_as_leader(validate_produce(batch(value), batch_bytes_max=1 << 30), epoch)

    def append(self, records: bytes = b"", topic: str = "events") -> None:
        """As the leader."""
        batches = validate_produce(records or batch(b"record"), batch_bytes_max=1 << 30)
        self.part(topic).append(batches, -1, acks=1)

    def part(self, topic: str = "events") -> PartitionHost:
        return self.manager.host(topic, 0)

    @property
    def end(self) -> int:
        return self.host.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.host.replica.high_watermark

    def everything(self, topic: str = "events") -> bytes:
        log = self.part(topic).log
        return log.read(log.log_start_offset, 1 << 30, log.log_end_offset)

    @property
    def chunks(self) -> list[m.ReplicaFetchResponse]:
        """Of every stream that this leader has served."""
        return [chunk for tap in self.taps for chunk in tap.chunks]


class World:
    def __init__(self, broker_ids: Sequence[int] = (1, 2, 3), seed: int = 1) -> None:
        self.network = SimNetwork(random.Random(seed))
        self.nodes = {i: Node(self, i) for i in broker_ids}

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    def told(
        self,
        leader: int,
        leader_epoch: int,
        *,
        isr: tuple[int, ...] | None = None,
        only: Sequence[int] = (),
        topics: Sequence[str] = ("events",),
        **fields: Any,
    ) -> None:
        """Tells every broker (or `only` some) who leads; all replicas are in the ISR unless said otherwise."""
        everybody = tuple(self.nodes)
        for broker_id in only or everybody:
            for topic in topics:
                self.nodes[broker_id].told(
                    leader,
                    leader_epoch,
                    partition_epoch=leader_epoch * 10,
                    isr=everybody if isr is None else isr,
                    replicas=everybody,
                    topic=topic,
                    **fields,
                )


@asynccontextmanager
async def broker_world(*broker_ids: int, seed: int = 1) -> AsyncIterator[tuple[Any, ...]]:
    """The world and its nodes: brokers 1 and 2 unless others are named. A task of a broker that failed fails the test."""
    world = World(broker_ids or (1, 2), seed)
    await world.start()
    yield world, *world.nodes.values()
    for node in world.nodes.values():
        assert not node.process.supervisor.failures, f"a task of broker {node.broker_id} failed"


async def until(condition: Callable[[], Any], what: str = "", limit_s: float = 5.0) -> None:
    """Polls in virtual time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while not condition():
        assert loop.time() < deadline, f"{what or 'the condition'} did not come within {limit_s} s"
        await asyncio.sleep(0.001)


class FakeLeader:
    """Serves streams that the test answers by hand."""

    def __init__(self, world: World, broker_id: int = 1) -> None:
        self.broker_id = broker_id
        self._net = world.network.node(f"broker-{broker_id}")
        self.requests: list[m.ReplicaFetchRequest] = []
        self.streams: list[Stream[m.ReplicaFetchRequest, m.ReplicaFetchResponse]] = []
        self._chunks = 0

    async def start(self) -> None:
        await self._net.serve(address(self.broker_id), [Route(REPLICA_SERVICE_REPLICA_FETCH, self._serve)])

    async def _serve(self, stream: Stream[Any, Any], _: CallContext) -> None:
        self.streams.append(stream)
        while (request := await stream.read()) is not None:
            self.requests.append(request)

    async def send(self, **fields: Any) -> m.ReplicaFetchRequest:
        """One chunk of one partition; returns the follower's acknowledgement."""
        self._chunks += 1
        part: dict[str, Any] = {
            "topic": "events",
            "topic_id": TOPIC_ID,
            "partition": 0,
            "leader_epoch": 3,
            "high_watermark": 0,
            "log_start_offset": 0,
            "diverging_epoch": -1,
            "diverging_end_offset": -1,
            "offset": 0,
            "dropped_to": 0,
        }
        part.update(fields)
        await self.streams[-1].write(m.ReplicaFetchResponse(chunk=self._chunks, partitions=(m.ReplicaChunk(**part),)))
        await until(lambda: self.requests and self.requests[-1].acked_chunk == self._chunks, "the acknowledgement")
        return self.requests[-1]

    def positions(self) -> list[m.ReplicaPosition]:
        return [position for request in self.requests for position in request.partitions]


class FakeFollower:
    """A follower whose every message the test writes by hand."""

    def __init__(self, world: World, leader: int = 1, replica: int = 2, broker_epoch: int | None = None) -> None:
        self.replica = replica
        self.broker_epoch = member(replica).broker_epoch if broker_epoch is None else broker_epoch
        net = world.network.nodes.get(f"follower-{replica}") or world.network.node(f"follower-{replica}")
        self.stream = net.channel(address(leader), purpose="replica").open(REPLICA_SERVICE_REPLICA_FETCH)

    async def state(self, offset: int, last_epoch: int = -1, acked: int = 0, **fields: Any) -> None:
        part: dict[str, Any] = {
            "topic": "events",
            "topic_id": TOPIC_ID,
            "partition": 0,
            "leader_epoch": 3,
            "offset": offset,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": 0,
        }
        part.update(fields)
        await self.write(acked, m.ReplicaPosition(**part))

    async def write(self, acked: int, *positions: m.ReplicaPosition) -> None:
        await self.stream.write(
            m.ReplicaFetchRequest(
                replica_id=self.replica, broker_epoch=self.broker_epoch, acked_chunk=acked, partitions=positions
            )
        )

    async def read(self, limit_s: float = 5.0) -> m.ReplicaFetchResponse:
        async with asyncio.timeout(limit_s):
            chunk = await self.stream.read()
        assert chunk is not None, "the stream has ended"
        return chunk
