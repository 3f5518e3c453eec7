"""A topic under a verified load while a test plays a fault, and what every row of the fault matrix promises whatever the fault.

Nothing acknowledged is lost, duplicated or reordered, no reader sees a record that is gone or another one later (I9), every
ISR is full again by itself, and the logs of all replicas are the same bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from helpers.batches import batch
from helpers.cluster import end_faults, unique_topic
from helpers.loads import Load
from helpers.metrics import metric
from helpers.stored import State, Stored, stored_by
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.cluster.api import CONTROLLER, bootstrap_servers, broker_name, process_name
from tidelog.cluster.api import State as ProcessState
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import listens, wait_ready
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

SPREAD: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
"""Every broker leads a partition; broker 0 that with number 0, which the tests talk about."""
WITHIN_S: Final = 60.0
"""How long anything may take that a fault does not keep from happening."""
POLL_S: Final = 0.05
SOME_ACKS: Final = 60
REQUEST_TIMEOUT_MS: Final = 2_000
"""Of the load: a leader that is cut off from its followers keeps a request so long and does not know better."""
ONE_REQUEST_MS: Final = 3_000
ESTABLISHED: Final = "01"
"""As /proc/net/tcp has it."""


@dataclass
class Scene:
    cluster: LocalCluster
    servers: str
    stored: Stored
    topic: str
    load: Load
    assignment: Sequence[Sequence[int]]
    seen: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    """What a reader that reads along has found, by partition and offset."""

    def state(self, partition: int = 0) -> State:
        return self.stored.state(self.topic, partition)

    def states(self) -> list[State]:
        return [self.state(partition) for partition in range(len(self.assignment))]

    @property
    def leader(self) -> str:
        """Of partition 0."""
        return broker_name(self.state().leader)

    async def until(self, what: str, holds: Callable[[], bool], timeout_s: float = WITHIN_S) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await asyncio.to_thread(holds):  # what it asks may take its time, and the load shares our loop
            if asyncio.get_running_loop().time() >= deadline:
                told = self.states() if self.stored.reachable else "ZooKeeper is away"
                raise AssertionError(f"{timeout_s:g} s without: {what}; {told}")
            await asyncio.sleep(POLL_S)

    async def reached(self, what: str, holds: Callable[[State], bool], timeout_s: float = WITHIN_S) -> State:
        """The stored state of partition 0, as soon as it is so."""
        await self.until(what, lambda: holds(self.state()), timeout_s)
        return self.state()

    async def full(self) -> None:
        def is_full() -> bool:
            return all(
                state.leader >= 0 and state.isr == set(replicas)
                for state, replicas in zip(self.states(), self.assignment, strict=True)
            )

        await self.until("every ISR full", is_full)

    async def mended(self) -> None:
        """No fault is left, and every process serves."""
        await self.do(end_faults, self.cluster)
        for row in self.cluster.status():
            for address in row.addresses.values():
                await self.until(f"{row.name} on {address}", lambda address=address: listens(address))  # type: ignore[misc]
        await self.until("every broker", lambda: self.stored.brokers() == {0, 1, 2})

    @property
    def active(self) -> str:
        """The controller in office."""
        found = self.stored.controller()
        assert found is not None
        return process_name(CONTROLLER, found)

    async def succeeded(self, controller: str) -> str:
        """The other controller, once it acts."""
        (other,) = set(self.cluster.names(CONTROLLER)) - {controller}
        await self.until(f"{other} in office", lambda: metric(self.cluster, other, "tidelog_controller_active") == 1)
        return other

    @property
    def acked(self) -> int:
        return self.load.acked

    async def more_acks(self, count: int = SOME_ACKS, timeout_s: float = WITHIN_S) -> None:
        """Until `count` records more are acknowledged."""
        wanted = self.acked + count
        await self.until(f"{count} more acks", lambda: self.acked >= wanted, timeout_s)

    async def acks_for(self, seconds: float, within_s: float = WITHIN_S) -> None:
        """For so long, and never for longer than `within_s` without any."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await self.more_acks(timeout_s=within_s)

    async def do(self, act: Callable[..., None], *arguments: object) -> None:
        """A fault, beside the load."""
        await asyncio.to_thread(act, *arguments)

    def longest_stall_s(self, partition: int = 0) -> float:
        return self.load.longest_stall_s(partition)


@contextmanager
def left_as_found(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Complete, and afterwards whole again, whatever became of the test."""
    wait_ready(cluster, WITHIN_S)
    yield cluster
    end_faults(cluster)


def state_of(cluster: LocalCluster, name: str) -> ProcessState:
    return next(row.state for row in cluster.status() if row.name == name)


@asynccontextmanager
async def under_load(
    cluster: LocalCluster,
    directory: Path,
    *,
    assignment: Sequence[Sequence[int]] = SPREAD,
    min_isr: int = 2,
    flush: str = "none",
) -> AsyncIterator[Scene]:
    """A new topic; inside, the test plays its fault and ends it. What every fault promises is checked behind it."""
    servers, topic = bootstrap_servers(cluster), unique_topic("scene")
    load = Load(topic, len(assignment), "all", directory, request_timeout_ms=REQUEST_TIMEOUT_MS)
    async with Admin(servers) as admin:
        await admin.create_topic(
            topic, assignment=assignment, configs={"min.insync.replicas": str(min_isr), "flush": flush}
        )
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
    with stored_by(cluster) as stored:
        scene = Scene(cluster, servers, stored, topic, load, assignment)
        reader = asyncio.create_task(_read_along(scene))
        try:
            async with load.running(servers):
                await scene.more_acks()
                yield scene
                await scene.full()
                await scene.more_acks()
            assert scene.acked == load.sent, "whatever was refused for a while is acknowledged in the end"
            await _check(scene)
        finally:
            await _end(reader)


async def _read_along(scene: Scene) -> None:
    partitions = [TopicPartition(scene.topic, partition) for partition in range(len(scene.assignment))]
    async with Consumer(scene.servers) as consumer:
        await consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, 0)
        while True:
            for record in await consumer.poll(timeout_s=1.0):
                place = (record.partition, record.offset)
                # Every record differs: its headers hold a sequence number.
                found = b"".join(value or b"" for _, value in record.headers)
                assert scene.seen.setdefault(place, found) == found, f"another record at {place}"


async def _check(scene: Scene) -> None:
    found = await scene.load.read_back(scene.servers)
    assert found.sound and found.read == scene.load.sent, found
    await scene.until("the same log on every replica", lambda: _logs_are_equal(scene))
    await scene.until("a reader that has seen everything", lambda: len(scene.seen) >= found.read)
    seen = dict(scene.seen)
    again = replace(scene, seen={})
    reader = asyncio.create_task(_read_along(again))
    try:
        await scene.until("a second reading", lambda: seen.keys() <= again.seen.keys())
    finally:
        await _end(reader)
    assert seen.items() <= again.seen.items(), "what a reader has seen is there for the next one (I9)"


async def _end(reader: asyncio.Task[None]) -> None:
    """Fails with what it found wrong."""
    reader.cancel()
    await asyncio.wait([reader])
    if not reader.cancelled():
        reader.result()


def _logs_are_equal(scene: Scene) -> bool:
    return all(
        len({log_bytes(scene.cluster, broker, scene.topic, partition) for broker in replicas}) == 1
        for partition, replicas in enumerate(scene.assignment)
    )


def log_bytes(cluster: LocalCluster, broker: int, topic: str, partition: int) -> bytes:
    """All batches of one replica, from its files."""
    folder = cluster.data_dir(broker_name(broker)) / f"{topic}-{partition}"
    while True:
        try:
            return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))
        except FileNotFoundError:  # removed since it was listed: by compaction, or by a cut where others go on
            continue


async def produce(scene: Scene, broker: str, value: bytes, *, acks: int = -1) -> m.ProduceResult | None:
    """One record for partition 0, once, to that broker, whether it leads or not; None when no answer came."""
    part = m.ProducePartition(topic=scene.topic, partition=0, leader_epoch=-1, records=batch(value))
    request = m.ProduceRequest(acks=acks, timeout_ms=ONE_REQUEST_MS, partitions=(part,))
    channel = GrpcNet().channel(scene.cluster.endpoints()[broker], purpose="test")
    try:
        return (await channel.call(s.REPLICA_SERVICE_PRODUCE, request, ONE_REQUEST_MS / 1000 + 1.0)).results[0]
    except TransportError:
        return None
    finally:
        await channel.close()


def is_acked(result: m.ProduceResult | None) -> bool:
    return result is not None and result.error_code is ErrorCode.NONE


def unread_bytes(address: Address) -> int:
    """What has arrived at a process that listens there and was not read yet; a stopped one reads nothing."""
    port, total = f":{address.port:04X}", 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            if local.endswith(port) and state == ESTABLISHED:
                total += int(queues.rpartition(":")[2], 16)
    return total
