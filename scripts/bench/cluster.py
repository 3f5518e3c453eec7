"""A local cluster to measure, and produce requests to it without the Producer's own work."""

import asyncio
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from bench.harness import percentile
from tidelog.client.admin import Admin
from tidelog.client.produce_link import ProduceLink
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId
from tidelog.ports.net import Channel
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_CLUSTER_METADATA

ALL: Final = -1
REPLICAS: Final = 3
CALL_S: Final = 20.0
OFFER_S: Final = 5.0
OFFER_AGAIN_S: Final = 0.005
RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 64 * 1024


def batch_of(size_bytes: int) -> bytes:
    """One encoded batch of about `size_bytes`, filled with records of 1 KiB (or one smaller record)."""
    count = max(1, size_bytes // (RECORD_BYTES + 32))
    value = os.urandom(min(RECORD_BYTES, size_bytes))
    return encode_batch(Record(None, value, (), 1_700_000_000_000) for _ in range(count))


class Probe:
    """Raw produce requests to the leaders of one topic."""

    def __init__(self, topic: str, bootstrap: Sequence[Address]) -> None:
        self.topic = topic
        self.bootstrap = list(bootstrap)
        self.leaders: dict[int, BrokerId] = {}
        self._addresses: dict[BrokerId, Address] = {}
        self._net = GrpcNet()
        self._channels: dict[Address, Channel] = {}
        self._links: dict[Address, ProduceLink] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for link in self._links.values():
            await link.close()
        for channel in self._channels.values():
            await channel.close()

    def _channel(self, address: Address) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._net.channel(address, purpose="bench")
        return channel

    async def refresh(self, timeout_s: float = CALL_S) -> None:
        """Asks the bootstrap brokers in turn until one answers."""
        request = m.ClusterMetadataRequest(topics=(self.topic,))
        for address in self.bootstrap:
            try:
                answer = await self._channel(address).call(COORDINATOR_SERVICE_CLUSTER_METADATA, request, timeout_s)
            except TransportError:
                continue
            self._addresses = {BrokerId(b.id): Address(b.host, b.port) for b in answer.brokers_info}
            (topic,) = answer.topics
            self.leaders = {
                p.partition: BrokerId(p.leader) for p in topic.partitions if BrokerId(p.leader) in self._addresses
            }
            return

    async def wait_known(self, partitions: int, timeout_s: float = CALL_S) -> None:
        """Until a broker knows a leader for each: what the controller has decided reaches brokers a moment later."""
        async with asyncio.timeout(timeout_s):
            await self.refresh()
            while len(self.leaders) < partitions:
                await asyncio.sleep(0.02)
                await self.refresh()

    async def produce(
        self, partitions: Sequence[int], batch: bytes, timeout_s: float = CALL_S, *, acks: int = ALL
    ) -> set[int]:
        """One request to the leader of all `partitions`; returns those that acknowledged."""
        return await self._offer(self._addresses[self.leaders[partitions[0]]], partitions, batch, timeout_s, acks)

    async def _offer(
        self, address: Address, partitions: Sequence[int], batch: bytes, timeout_s: float, acks: int = ALL
    ) -> set[int]:
        request = m.ProduceRequest(
            client_id="bench",
            acks=acks,
            timeout_ms=int(timeout_s * 1000),
            partitions=tuple(
                m.ProducePartition(topic=self.topic, partition=p, leader_epoch=-1, records=batch) for p in partitions
            ),
        )
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = ProduceLink(self._channel(address))
        answer = await link.call(request, timeout_s + 1.0)
        return {r.partition for r in answer.results if r.error_code is ErrorCode.NONE}

    async def must_produce(self, partition: int, batch: bytes, acks: int = ALL) -> None:
        if not await self.produce((partition,), batch, acks=acks):
            raise RuntimeError(f"{self.topic}-{partition} refused a batch while nothing was wrong with the cluster")

    async def until_acked(
        self, partitions: Sequence[int], batch: bytes, *, step_s: float, timeout_s: float
    ) -> dict[int, float]:
        """Tries until each partition has acknowledged one batch; returns when each did (perf_counter)."""
        acked: dict[int, float] = {}
        end = time.perf_counter() + timeout_s
        while waiting := [p for p in partitions if p not in acked]:
            if time.perf_counter() > end:
                raise RuntimeError(f"{self.topic}: partitions {waiting[:5]} took no write for {timeout_s:g} s")
            await self.refresh(timeout_s=0.5)
            by_leader: dict[BrokerId, list[int]] = defaultdict(list)
            for partition in waiting:
                if partition in self.leaders:
                    by_leader[self.leaders[partition]].append(partition)
            for answer in await asyncio.gather(
                *(self.produce(group, batch, timeout_s=1.0) for group in by_leader.values()), return_exceptions=True
            ):
                if isinstance(answer, set):
                    acked.update(dict.fromkeys(answer, time.perf_counter()))
                elif not isinstance(answer, TransportError):
                    raise answer
            await asyncio.sleep(step_s)
        return acked

    async def until_served(
        self, partitions: Sequence[int], batch: bytes, brokers: Sequence[Address], *, at_once: int, timeout_s: float
    ) -> float:
        """Offers one batch for each partition to all of `brokers`, `at_once` partitions a request, until each partition's
        leader has acknowledged one; returns when the last did (perf_counter).

        Asks nobody who leads: with thousands of partitions that answer costs more than a refusal.
        """
        waiting = set(partitions)
        end = time.perf_counter() + timeout_s

        async def offer(address: Address, group: tuple[int, ...]) -> None:
            try:
                waiting.difference_update(await self._offer(address, group, batch, OFFER_S))
            except TransportError:
                pass  # asked again

        while waiting:
            if time.perf_counter() > end:
                raise RuntimeError(f"{self.topic}: partitions {sorted(waiting)[:5]} took no write for {timeout_s:g} s")
            order = sorted(waiting)
            groups = [tuple(order[i : i + at_once]) for i in range(0, len(order), at_once)]
            await asyncio.gather(*(offer(address, group) for group in groups for address in brokers))
            if waiting:
                await asyncio.sleep(OFFER_AGAIN_S)
        return time.perf_counter()

    async def rate(self, batch: bytes, window: int, seconds: float, acks: int = ALL) -> float:
        """Acknowledged bytes a second, `window` requests of one batch in flight, spread over the partitions."""
        acked = 0
        begin = time.perf_counter()
        end = begin + seconds

        async def send(partition: int) -> None:
            nonlocal acked
            while time.perf_counter() < end:
                await self.must_produce(partition, batch, acks)
                acked += 1

        async with asyncio.TaskGroup() as group:
            for number in range(window):
                group.create_task(send(number % len(self.leaders)))
        return acked * len(batch) / (time.perf_counter() - begin)

    async def fill(self, batch: bytes, count: int, window: int) -> None:
        """Writes `count` batches, `window` of them in flight, to the partitions by turns."""
        numbers = iter(range(count))

        async def send() -> None:
            for number in numbers:
                await self.must_produce(number % len(self.leaders), batch)

        async with asyncio.TaskGroup() as group:
            for _ in range(window):
                group.create_task(send())

    async def p50(self, batch: bytes, seconds: float) -> float:
        """Median seconds of a request, one at a time, to one partition."""
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            await self.must_produce(0, batch)
            took.append(time.perf_counter() - begin)
        return percentile(took, 0.5)

    async def paced(self, batch: bytes, bytes_per_s: float, seconds: float) -> list[float]:
        """Seconds of each request, counted from when it was due: a stall counts for everything that it held up."""
        begin = time.perf_counter()
        took: list[float] = []

        async def send(due: float, partition: int) -> None:
            await self.must_produce(partition, batch)
            took.append(time.perf_counter() - due)

        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                due = begin + number * len(batch) / bytes_per_s
                if due > begin + seconds:
                    break
                if (wait_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait_s)
                group.create_task(send(due, number % len(self.leaders)))
        return took


class BenchCluster:
    """ZooKeeper, two controllers and three brokers with default settings unless said otherwise, and a client of them."""

    def __init__(
        self, directory: Path, *, brokers: int = REPLICAS, settings: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.local = LocalCluster(directory)
        self._brokers = range(brokers)
        self._settings = settings
        self._topics = itertools.count()
        self._admin: Any = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(
                self.local.up, self._brokers, settings=self._settings
            )  # it has an event loop of its own to ask the brokers
            self._admin = Admin(self.bootstrap, request_timeout_ms=60_000)
            await self._admin.start()
        except BaseException:
            self.local.down(grace_s=0.0)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._admin.stop()
        finally:
            self.local.down(grace_s=0.0)

    @property
    def bootstrap(self) -> str:
        return bootstrap_servers(self.local)

    @property
    def addresses(self) -> list[Address]:
        return list(self.local.endpoints().values())

    @property
    def admin(self) -> Admin:
        assert isinstance(self._admin, Admin)
        return self._admin

    async def new_topic(
        self, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = REPLICAS
    ) -> str:
        """Created, led and in sync."""
        name = f"bench-{next(self._topics)}"
        await self.admin.create_topic(name, partitions, replicas, configs=configs)
        await self.admin.wait_until_led(name, in_sync=True, timeout_s=60.0)
        return name

    async def rate(
        self,
        batch: bytes,
        window: int,
        partitions: int,
        seconds: float,
        *,
        replicas: int = REPLICAS,
        acks: int = ALL,
    ) -> float:
        """As `Probe.rate`, to a topic of its own that is gone afterwards: rounds must not fill the disk."""
        topic = await self.new_topic(partitions, replicas=replicas)
        async with Probe(topic, self.addresses) as probe:
            await probe.wait_known(partitions)
            moved = await probe.rate(batch, window, seconds, acks)
        await self.admin.delete_topic(topic)
        return moved

    async def producer_rate(self, value: bytes, partitions: int, seconds: float, *, replicas: int = REPLICAS) -> float:
        """Acknowledged payload bytes a second of the real Producer, record by record."""
        topic = await self.new_topic(partitions, replicas=replicas)
        acked = 0

        def count(_ack: asyncio.Future[Any]) -> None:
            nonlocal acked
            acked += 1

        async with Producer(self.bootstrap, acks="all") as producer:
            begin = time.perf_counter()
            while time.perf_counter() - begin < seconds:
                (await producer.send(topic, value)).add_done_callback(count)
            rate = acked * len(value) / (time.perf_counter() - begin)
        await self.admin.delete_topic(topic)
        return rate
