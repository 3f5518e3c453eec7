"""A seeded run at the edges of the protocol: records are deleted by offset and by age, batches are encoded anew, clients choose
timestamps, topics flush, and all brokers come back at each other's addresses, while everything else breaks too.

It is the story of the cluster and more. One topic has configurations that are drawn, two numbered producers, one consumer that
lives through the whole run, and an operator that deletes records and looks offsets up by time. Its promises:

* In the log the numbers of one producer rise.
* The positions of the consumer rise, and it leaves out no acknowledged record unless it was deleted.
* A lookup by time names a record that exists and is not older.
* Records that were deleted stay deleted, and every other acknowledged one is read at the end.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable, DeliveryError
from tidelog.client.offsets import LATEST
from tidelog.client.producer import Ack, Producer
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing import goals
from tidelog.testing.clock import SimClock
from tidelog.testing.invariants import Violation
from tidelog.testing.rand import seeded
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_story import HEAL_S, Run, within

EDGE: Final = TopicPartition("edge", 0)
PRODUCERS: Final = ("left", "right")
PACE_S: Final = 0.1
BATCH: Final = 3
"""Records that one producer sends at once, so that offsets cut batches."""
LAG_S: Final = 0.3
"""Longest delay of a write at a follower of ZooKeeper."""
DRIFT: Final = 0.005
"""Largest difference of the rate of a host's clock: of two hosts it is what leases allow for."""
MINUTE_MS: Final = 60_000
AHEAD_MS: Final = 30 * MINUTE_MS
BEHIND_MS: Final = 365 * 24 * 60 * MINUTE_MS
RETENTION_MS: Final = 2_000
LOST: Final = (DeliveryError, TidelogError, TransportError, ClusterUnreachable, TimeoutError)
"""Errors of a client that gives up."""


class EdgeFaults(Faults):
    """All kinds of faults, and brokers that swap their addresses."""

    def _breaking(self) -> dict[str, Callable[[], bool]]:
        return {**super()._breaking(), "swapped addresses": self._swap}

    def _drawn(self, kinds: Sequence[str]) -> Sequence[str]:
        drawn = super()._drawn(kinds)
        return [*drawn, "swapped addresses"] if self._maybe() else drawn

    def _swap(self) -> bool:
        """Every broker is killed; they come back in another order, each at the IP address of another."""
        brokers = self._shuffled(self._cluster.brokers)
        if any(node.terminating or not node.running for node in brokers):
            return False
        for node in brokers:
            node.kill()
        at = self._between(0.2, 2.0)
        self._later(at, partial(self._swap_addresses, [node.name for node in brokers]))
        for node in self._shuffled(brokers):
            self._later(at, partial(self._start_one, node))
            at += self._between(0.0, 1.0)
        return True

    def _swap_addresses(self, names: Sequence[str]) -> None:
        self._say(f"{', '.join(names)} swap their addresses", *names)
        self._cluster.network.swap(names)


class EdgeRun(Run):
    RETURNS = False

    def __init__(self, seed: int) -> None:
        self._rand = seeded(seed, "edge")
        super().__init__(seed)
        self._clock = SimClock()
        self._numbers = dict.fromkeys(PRODUCERS, 0)
        self._times: dict[bytes, int] = {}
        """Timestamp of each value that was sent, ms."""
        self._acked: dict[int, bytes] = {}
        """Acknowledged values, by offset."""
        self._seen: dict[int, bytes] = {}
        """Records that the long-lived consumer saw, by offset."""
        self._next = 0
        """Position of the long-lived consumer."""
        self._end = 0
        """The highest end of the log that a client was told."""
        self._asked = 0
        """The highest offset before which a deletion was asked for."""
        self._confirmed = 0
        """The highest offset before which a deletion was confirmed."""
        self._deleted = 0
        """The highest one that is on the disk of every replica, too. A leader answers for its own disk only: a follower that
        was killed before its next checkpoint, with all others, may bring records back (as in Kafka)."""
        self._expires = self._rand.random() < 0.3

    def _made(self, seed: int) -> SimCluster:
        cluster = SimCluster(seed, zookeeper_lag_s=LAG_S * self._rand.randrange(2))
        for node in cluster.brokers:
            node.settings = {"log_retention_check_interval_ms": 500, "log_flush_interval_ms": 500}
        for node in cluster.nodes.values():
            node.clock = SimClock(drift=DRIFT * (2 * self._rand.random() - 1))
        return cluster

    def _faults(self) -> EdgeFaults:
        return EdgeFaults(self.cluster)

    def _one_of(self, *choices: str) -> str:
        return choices[self._rand.randrange(len(choices))]

    async def _until_created(self) -> None:
        await super()._until_created()
        configs = {
            "min.insync.replicas": "2",
            "segment.bytes": "1024",
            "flush": self._one_of("none", "sync"),
            "compression.type": self._one_of("producer", "uncompressed", "zstd"),
            **({"retention.ms": str(RETENTION_MS), "segment.ms": "1000"} if self._expires else {}),
        }
        await self._create("edge-admin", {EDGE.topic: configs}, 1)

    async def _churn(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._churn())
            for name in PRODUCERS:
                tasks.create_task(self._write(name))
            tasks.create_task(self._operate())

    async def _consume(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._consume())
            tasks.create_task(self._follow())

    # -- the load ------------------------------------------------------------------------------------------------------

    async def _write(self, name: str) -> None:
        request_ms = self.cluster.timing.request_ms
        producer = Producer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports(f"edge-{name}"),
            linger_ms=5,
            compression=self._one_of("none", "zstd"),
            request_timeout_ms=request_ms,
            delivery_timeout_ms=4 * request_ms,
        )
        async with producer, asyncio.TaskGroup() as waits:
            while not self._idle.is_set():
                for _ in range(BATCH):
                    self._numbers[name] += 1
                    value = b"%s %d" % (name.encode(), self._numbers[name])
                    self._times[value] = self._time()
                    try:
                        ack = await producer.send(
                            EDGE.topic, value, partition=EDGE.partition, timestamp_ms=self._times[value]
                        )
                    except TidelogError:
                        continue
                    waits.create_task(self._confirm(ack, value))
                await asyncio.sleep(PACE_S * (0.5 + self._rand.random()))

    def _time(self) -> int:
        """Mostly now; a few clients have a clock that is behind or ahead."""
        drawn, now = self._rand.random(), self._clock.wall_ms()
        if drawn < 0.1:
            return now - self._rand.randrange(BEHIND_MS)
        return now + self._rand.randrange(AHEAD_MS) if drawn < 0.2 else now

    async def _confirm(self, ack: Ack, value: bytes) -> None:
        try:
            offset = (await ack).offset
        except LOST:
            return  # nothing is promised, and it may be there
        if offset >= 0 and self._acked.setdefault(offset, value) != value:
            raise Violation(f"edge: offset {offset} was acknowledged for {self._acked[offset]!r} and for {value!r}")

    async def _operate(self) -> None:
        """Deletes records, and looks some up by time."""
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports("edge-operator"))
        async with admin:
            while not self._idle.is_set():
                await asyncio.sleep(0.5 * self._rand.random())
                self._deleted = max(self._deleted, min(self._confirmed, self._durable_start()))
                try:
                    if self._rand.random() < 0.2:
                        await self._delete(admin)
                    else:
                        await self._look_up(admin)
                        await self._look_at_end(admin)
                except LOST:
                    continue

    async def _delete(self, admin: Admin) -> None:
        if not self._acked:
            return
        end = max(self._acked)
        before = self._confirmed + self._rand.randrange(max(1, end - self._confirmed))
        self._asked = max(self._asked, before)
        result = (await admin.logs.delete_records({EDGE: before}))[EDGE]
        if not result.error_code:
            self._confirmed = max(self._confirmed, before)
            self.cluster.observer.reached[goals.DELETED] += 1

    def _durable_start(self) -> int:
        """The lowest start of the log that a replica has on its disk; 0 while one does not run."""
        starts = []
        for node in self.cluster.brokers:
            manager = node.broker.manager if node.running and node.broker is not None else None
            host = None if manager is None else manager.find(EDGE)
            starts.append(0 if manager is None or host is None else manager.durable_start(host))
        return min(starts)

    async def _look_at_end(self, admin: Admin) -> None:
        """The end that clients are told never goes back, whichever leader tells it (KIP-207)."""
        before = max(self._end, self._next)
        found = (await admin.list_offsets({EDGE: LATEST}))[EDGE]
        if found.offset < before:
            raise Violation(f"edge: the log ends at {found.offset}, and {before} was told or read before")
        self._end = max(self._end, found.offset)

    async def _look_up(self, admin: Admin) -> None:
        wanted = self._clock.wall_ms() - 5_000 + self._rand.randrange(10_000)
        start, acked = self._deleted, dict(self._acked)
        found = (await admin.list_offsets({EDGE: wanted}))[EDGE]
        late = [offset for offset, value in acked.items() if self._times[value] >= wanted and offset >= self._asked]
        if found.offset < 0:
            if late and not self._expires:
                raise Violation(f"edge: no record is found from {wanted} on, and {min(late)} was acknowledged")
            return
        if found.offset < start:
            raise Violation(f"edge: a lookup names {found.offset}, and records before {start} are deleted")
        if found.timestamp_ms < wanted:
            raise Violation(f"edge: a lookup of {wanted} names {found.offset} of {found.timestamp_ms}")
        value = self._acked.get(found.offset)
        if value is not None and self._times[value] != found.timestamp_ms:
            raise Violation(f"edge: {found.offset} has time {self._times[value]}, a lookup says {found.timestamp_ms}")
        if late and min(late) < found.offset and not self._expires:
            raise Violation(f"edge: a lookup of {wanted} skips {min(late)}: {found}")

    async def _follow(self) -> None:
        """One consumer for the whole run."""
        consumer = Consumer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports("edge-consumer"),
            request_timeout_ms=self.cluster.timing.request_ms,
        )
        async with consumer:
            assigned = False
            while not self._stop.is_set():
                try:
                    if not assigned:
                        await consumer.assign([EDGE])
                        assigned = True
                    self._take(await consumer.poll(timeout_s=0.5))
                except LOST:
                    await asyncio.sleep(0.2)

    def _take(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            if record.offset < self._next:
                raise Violation(f"edge: the consumer went back from {self._next} to {record.offset}")
            self._next = record.offset + 1
            self._seen[record.offset] = record.value or b""

    # -- judgement -----------------------------------------------------------------------------------------------------

    async def _final_read(self, vetoed: frozenset[TopicPartition]) -> int:
        total = await super()._final_read(vetoed)
        if EDGE in vetoed:
            return total
        async with self._consumer("edge-final") as consumer:
            if self._expires:
                await self._until_expired(consumer)
            start = (await consumer.beginning_offsets([EDGE]))[EDGE]
            end = (await consumer.end_offsets([EDGE]))[EDGE]
            await consumer.assign([EDGE])
            records: dict[int, bytes] = {}
            while await consumer.position(EDGE) < end:
                records.update((each.offset, each.value or b"") for each in await consumer.poll(timeout_s=0.5))
        if start < self._deleted or (records and min(records) < self._deleted):
            raise Violation(f"edge: the log begins at {start}, and records before {self._deleted} are deleted")
        if start > self._asked and not self._expires:
            raise Violation(f"edge: the log begins at {start}, and deletions reach {self._asked}")
        for offset, value in self._acked.items():
            if offset >= start and records.get(offset) != value:
                raise Violation(f"edge: {offset} was acknowledged as {value!r} and is {records.get(offset)!r}")
        self._check_reader(records)
        check_order("edge: the log", records)
        return total + len(records)

    def _check_reader(self, records: dict[int, bytes]) -> None:
        check_order("edge: what the consumer read", self._seen)
        for offset, value in self._seen.items():
            if self._acked.get(offset, value) != value or records.get(offset, value) != value:
                raise Violation(f"edge: the consumer read {value!r} at {offset}")
        left_out = [o for o in self._acked if self._asked <= o < self._next and o not in self._seen]
        if left_out and not self._expires:
            raise Violation(f"edge: the consumer is at {self._next} and left out {sorted(left_out)[:5]}")

    async def _until_expired(self, consumer: Consumer) -> None:
        """Retention comes to its end, whatever timestamps clients have chosen."""
        async with within(HEAL_S / 2, f"records outlive a retention of {RETENTION_MS} ms"):
            while True:
                try:
                    if (await consumer.beginning_offsets([EDGE]))[EDGE] > max(self._acked, default=-1):
                        return
                except LOST:
                    pass
                await asyncio.sleep(0.5)


def check_order(where: str, records: Mapping[int, bytes]) -> None:
    """The numbers of each producer rise with the offsets."""
    last = dict.fromkeys(PRODUCERS, 0)
    for offset, value in sorted(records.items()):
        name, _, number = value.decode().partition(" ")
        if int(number) <= last[name]:
            raise Violation(f"{where}: {value!r} at {offset} comes after number {last[name]}")
        last[name] = int(number)
