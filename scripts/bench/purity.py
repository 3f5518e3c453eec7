"""B17: what the pure state machine costs on the produce path, against a stub that only moves the high watermark.

Compared are two brokers' produce paths as a producer sees them: ProduceStream over gRPC on loopback, validation, append to a
log on disk, parking for acks=all, the positions of two followers after every append (three events a batch, the most there
can be), the answer. Only `PartitionHost.replica` differs: the machine, or a stub that moves the high watermark to where the
last follower is and checks nothing. Producer and broker share one process, as they share the cores elsewhere, and its
processor time is what counts: the price is a few per cent, and a neighbour changes the clock's time by more. The same without
gRPC, by calls into the produce handler, is printed beside it: there the machine's share is larger.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry

from bench.cluster import BATCH_BYTES, REPLICAS, batch_of
from bench.harness import Bench, Line, Note, compared, take_turns
from bench.throughput import MB
from tidelog.broker.control_plane.port import Decision
from tidelog.broker.flusher import Flusher
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.produce import ProduceHandler
from tidelog.broker.produce_session import ProduceStreams
from tidelog.broker.replica_manager import ReplicaManager, ReplicaSettings
from tidelog.client.produce_link import ProduceLink
from tidelog.errors import ErrorCode
from tidelog.ids import DELETED_TOPIC_EPOCH, NO_EPOCH, Address, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import Route
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.metrics import ReplicationMetrics, RequestMetrics
from tidelog.runtime.os_disk import OsDisk
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.storage.log_store import LogStore
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_PRODUCE_STREAM

Call = Callable[[m.ProduceRequest], Awaitable[m.ProduceResponse]]

NAMES: Final = ("B17",)
TOPIC: Final = "pure"
TOPIC_ID: Final = b"\x07" * 16
EPOCH: Final = 3
FOLLOWERS: Final = tuple(range(2, REPLICAS + 1))
STALL_LIMIT_S: Final = 10.0
WINDOW: Final = 8
"""Requests in flight, so that nobody waits for anybody."""
CALL_S: Final = 20.0
SHARE: Final = 1 / 3
"""Of the usual time of a measurement: nothing here waits for anything, and the log is on a disk."""


class NoNeighbours:
    """Fetchers and control plane of a broker that is alone."""

    def follow(self, _host: PartitionHost, _leader: int) -> None: ...

    def unfollow(self, _host: PartitionHost, _newer_epoch: int) -> None: ...

    def restate(self, _host: PartitionHost) -> None: ...

    def propose_isr(self, _tp: TopicPartition, _topic_id: bytes, _proposal: fx.ProposeIsr) -> None: ...

    async def run(self) -> None: ...


class Direct:
    """Stands where the machine stands: what the last follower states is committed, whatever the others hold."""

    role: Final = Role.LEADER
    leader: Final = 1
    leader_epoch: Final = EPOCH
    leading: Final = None
    high_watermark = 0

    def check_produce(self, _claimed: int, _acks: int) -> None: ...

    def step(self, event: ev.Event) -> list[fx.Effect]:
        if not isinstance(event, ev.FollowerPosition) or event.replica != FOLLOWERS[-1]:
            return []
        self.high_watermark = event.offset
        return [fx.AdvanceHighWatermark(event.offset)]


class Follower:
    """A `FollowerSink` that has every batch as soon as it was appended, and says so as on its stream."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self._broker_id = broker_id
        self._clock = clock

    def news(self, host: PartitionHost) -> None:
        # When the append is over and its produce is parked: one position for each.
        asyncio.get_running_loop().call_soon(self.state, host, host.log.log_end_offset)

    def high_watermark_moved(self, host: PartitionHost) -> None: ...

    def state(self, host: PartitionHost, end: int) -> None:
        epoch = host.log.latest_epoch
        found_epoch, found_end = host.log.end_offset_for(epoch)
        host.step(
            ev.FollowerPosition(
                replica=self._broker_id,
                broker_epoch=100 + self._broker_id,
                leader_epoch=EPOCH,
                offset=end,
                last_epoch=epoch,
                found_epoch=found_epoch,
                found_end=found_end,
                at=self._clock.now(),
            )
        )


class Path:
    """The produce path of a broker that leads, and its followers, without their links to it."""

    def __init__(self, bench: Bench) -> None:
        self._clock = SystemClock()
        disk = OsDisk()
        self._logs = LogStore.open(
            disk,
            str(bench.directory / "data"),
            cluster_id="bench",
            broker_id=1,
            rand=random.Random(1),
        )
        self._logs.load()
        registry = CollectorRegistry()
        settings = ReplicaSettings(broker_id=1, lag_max_s=10.0, tick_s=0.5, checkpoint_s=5.0)
        self._manager = ReplicaManager(settings, self._clock, self._logs, ReplicationMetrics(registry), disk)
        alone = NoNeighbours()
        self._manager.connect(
            alone, alone, Flusher(self._clock, disk, self._spawn, STALL_LIMIT_S, self._logs.sync_epochs)
        )
        requests = RequestMetrics(registry)
        self.produce = ProduceHandler(
            self._manager,
            self._clock,
            lambda: True,
            lambda *_: None,
            lambda *_: None,
            requests,
            disk.in_background,
            1 << 26,
        )
        self._numbers = itertools.count()
        self._followers = [Follower(broker_id, self._clock) for broker_id in FOLLOWERS]

    @staticmethod
    def _spawn(name: str, coroutine: Coroutine[Any, Any, None]) -> object:
        return asyncio.create_task(coroutine, name=name)

    def _lead(self) -> PartitionHost:
        partition = next(self._numbers)
        members = tuple(m.IsrMember(broker_id=n, broker_epoch=100 + n) for n in range(1, REPLICAS + 1))
        state = m.PartitionState(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=partition,
            controller_epoch=1,
            leader=1,
            leader_epoch=EPOCH,
            isr=members,
            partition_epoch=1,
            replicas=tuple(range(1, REPLICAS + 1)),
        )
        self._manager.become([Decision(state, TopicConfig())], {n: 100 + n for n in range(1, REPLICAS + 1)})
        host = self._manager.host(TOPIC, partition)
        for broker_id, follower in zip(FOLLOWERS, self._followers, strict=True):
            follower.state(host, 0)
            host.connected(broker_id, follower)
        return host

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Call]:
        """Calls through ProduceStream, over gRPC on loopback."""
        net = GrpcNet()
        streams = ProduceStreams(self.produce.examine, self.produce.submit, self._clock, lambda *_: None)
        server = await net.serve(Address("127.0.0.1", 0), [Route(REPLICA_SERVICE_PRODUCE_STREAM, streams.serve)])
        channel = net.channel(server.address, purpose="bench")
        link = ProduceLink(channel)
        try:
            yield lambda request: link.call(request, CALL_S)
        finally:
            await link.close()
            await channel.close()
            await server.stop(CALL_S)

    async def rate(self, seconds: float, batch: bytes, call: Call, *, direct: bool) -> float:
        """Bytes a second of processor time that are appended, acknowledged by every follower and answered."""
        host = self._lead()
        if direct:
            host.replica = cast(PartitionReplica, Direct())
        request = m.ProduceRequest(
            client_id="bench",
            acks=-1,
            timeout_ms=10_000,
            partitions=(m.ProducePartition(topic=TOPIC, partition=host.tp.partition, leader_epoch=-1, records=batch),),
        )
        count, begin = 0, time.process_time()
        end = time.perf_counter() + seconds * SHARE

        async def send() -> None:
            nonlocal count
            while time.perf_counter() < end:
                answer = await call(request)
                if answer.results[0].error_code is not ErrorCode.NONE:
                    raise RuntimeError(f"a produce was refused: {answer.results[0]}")
                count += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(WINDOW):
                group.create_task(send())
        rate = count * len(batch) / (time.process_time() - begin)
        self._manager.stop(host.tp, TOPIC_ID, DELETED_TOPIC_EPOCH, delete=True)
        self._logs.purge()
        return rate

    def close(self) -> None:
        self._logs.close({}, NO_EPOCH)


async def run(bench: Bench) -> list[Line]:
    batch = batch_of(BATCH_BYTES)
    path = Path(bench)
    try:
        async with path.stream() as stream:
            taken = await take_turns(
                bench,
                {
                    "direct": lambda s: path.rate(s, batch, stream, direct=True),
                    "machine": lambda s: path.rate(s, batch, stream, direct=False),
                    "direct, called": lambda s: path.rate(s, batch, path.produce, direct=True),
                    "machine, called": lambda s: path.rate(s, batch, path.produce, direct=False),
                },
                references=("direct",),
            )
    finally:
        path.close()
    called = median(a / b for a, b in zip(taken["machine, called"], taken["direct, called"], strict=True))
    what = f" with a stub that advances the high watermark; {BATCH_BYTES >> 10} KiB batches, {len(FOLLOWERS)} followers"
    return [
        Note(f"B17 without gRPC, by calls into the produce handler: {called:.3g}"),
        compared(
            "B17",
            taken["machine"],
            taken["direct"],
            unit="MB a second of processor time",
            times=MB,
            target="at least 0.95",
            what=what,
        ),
    ]
