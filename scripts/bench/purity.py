"""B17: what the pure state machine costs on the produce path, against one that only moves the high watermark."""

import asyncio
import itertools
import random
import time
from collections.abc import Coroutine
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry

from bench.cluster import BATCH_BYTES, REPLICAS, batch_of
from bench.harness import Bench, Line, compared, take_turns
from bench.throughput import MB
from tidelog.broker.control_plane.port import Decision
from tidelog.broker.flusher import Flusher
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.produce import ProduceHandler
from tidelog.broker.replica_manager import ReplicaManager, ReplicaSettings
from tidelog.errors import ErrorCode
from tidelog.ids import DELETED_TOPIC_EPOCH, NO_EPOCH, TopicPartition
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.metrics import ReplicationMetrics, RequestMetrics
from tidelog.runtime.os_disk import OsDisk
from tidelog.storage.log_store import LogStore
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

NAMES: Final = ("B17",)
TOPIC: Final = "pure"
TOPIC_ID: Final = b"\x07" * 16
EPOCH: Final = 3
FOLLOWERS: Final = tuple(range(2, REPLICAS + 1))
STALL_LIMIT_S: Final = 10.0
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
    """Stands where the machine stands: every append is committed at once, and followers count for nothing."""

    role: Final = Role.LEADER
    leader: Final = 1
    leader_epoch: Final = EPOCH
    high_watermark = 0

    def check_produce(self, _claimed: int, _acks: int) -> None: ...

    def step(self, event: ev.Event) -> list[fx.Effect]:
        if not isinstance(event, ev.Appended):
            return []
        self.high_watermark = event.end
        return [fx.AdvanceHighWatermark(event.end)]


class Path:
    """The produce handler over one partition that this broker leads, and followers that acknowledge what it appends."""

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
        self._produce = ProduceHandler(
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
        self._ack(host)
        return host

    def _ack(self, host: PartitionHost) -> None:
        """Every follower states that it has everything, as on its stream."""
        end, epoch = host.log.log_end_offset, host.log.latest_epoch
        found_epoch, found_end = host.log.end_offset_for(epoch)
        for follower in FOLLOWERS:
            host.step(
                ev.FollowerPosition(
                    replica=follower,
                    broker_epoch=100 + follower,
                    leader_epoch=EPOCH,
                    offset=end,
                    last_epoch=epoch,
                    found_epoch=found_epoch,
                    found_end=found_end,
                    at=self._clock.now(),
                )
            )

    async def rate(self, seconds: float, batch: bytes, *, direct: bool) -> float:
        """Bytes a second that are appended, acknowledged by every follower and answered."""
        host = self._lead()
        if direct:
            host.replica = cast(PartitionReplica, Direct())
        request = m.ProduceRequest(
            client_id="bench",
            acks=-1,
            timeout_ms=10_000,
            partitions=(m.ProducePartition(topic=TOPIC, partition=host.tp.partition, leader_epoch=-1, records=batch),),
        )
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds * SHARE:
            answering = asyncio.create_task(self._produce(request))
            await asyncio.sleep(0)  # it has appended, and waits for the followers
            self._ack(host)
            answer = await answering
            if answer.results[0].error_code is not ErrorCode.NONE:
                raise RuntimeError(f"a produce was refused: {answer.results[0]}")
            count += 1
        rate = count * len(batch) / (time.perf_counter() - begin)
        self._manager.stop(host.tp, TOPIC_ID, DELETED_TOPIC_EPOCH, delete=True)
        self._logs.purge()
        return rate

    def close(self) -> None:
        self._logs.close({}, NO_EPOCH)


async def run(bench: Bench) -> list[Line]:
    batch = batch_of(BATCH_BYTES)
    path = Path(bench)
    try:
        taken = await take_turns(
            bench,
            {
                "direct": lambda s: path.rate(s, batch, direct=True),
                "machine": lambda s: path.rate(s, batch, direct=False),
            },
            references=("direct",),
        )
    finally:
        path.close()
    what = f" with a stub that advances the high watermark; {BATCH_BYTES >> 10} KiB batches, {len(FOLLOWERS)} followers"
    return [
        compared("B17", taken["machine"], taken["direct"], unit="MB/s", times=MB, target="at least 0.95", what=what)
    ]
