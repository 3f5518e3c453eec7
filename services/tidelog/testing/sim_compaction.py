"""A seeded run with a compacted topic whose few keys are written and deleted over and over while everything breaks, and brokers
that compact and scrub without a pause.

It is the story of the cluster and more: the other topics are scrubbed too, and held to all that they promise. Of the compacted
one the invariants of the bytes say nothing, since each replica compacts by itself: when all is healed it is read from every
replica. The newest record of each key that was acknowledged is there, or a later one of the key; a key without any was deleted;
and no offset names another record than it did.
"""

import asyncio
from typing import Final

from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Producer
from tidelog.client.records import decode_batch
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing import goals
from tidelog.testing.invariants import Violation
from tidelog.testing.rand import seeded
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_story import Run
from tidelog.wire.batch import whole_batch

TABLE: Final = TopicPartition("table", 0)
CONFIGS: Final = {
    "min.insync.replicas": "2",
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0",
}
TOMBSTONES_MS: Final = (0, 1_000, 5_000)
KEYS: Final = 12
DELETED: Final = 0.3
"""Of the records."""
PACE_S: Final = 0.05


class CompactRun(Run):
    RETURNS = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rand = seeded(seed, "table")
        self._number = 0
        self._sent: dict[bytes, tuple[bytes, bytes | None]] = {}
        """By the number that each record carries in its header: key and value."""
        self._acked: dict[int, bytes] = {}
        """By offset, the number."""

    def _made(self, seed: int) -> SimCluster:
        return SimCluster(seed, compacted=TABLE.topic)

    async def _until_created(self) -> None:
        await super()._until_created()
        tombstones_ms = TOMBSTONES_MS[self._rand.randrange(len(TOMBSTONES_MS))]
        configs = {**CONFIGS, "delete.retention.ms": str(tombstones_ms)}
        await self._create("table-admin", {TABLE.topic: configs}, 1)

    async def _churn(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._churn())
            tasks.create_task(self._update())

    async def _update(self) -> None:
        request_ms = self.cluster.timing.request_ms
        producer = Producer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports("updater"),
            batch_bytes=256,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=4 * request_ms,
        )
        async with producer, asyncio.TaskGroup() as sends:
            while not self._idle.is_set():
                sends.create_task(self._send_one(producer))
                await asyncio.sleep(PACE_S)

    async def _send_one(self, producer: Producer) -> None:
        self._number += 1
        number, key = b"%d" % self._number, b"key-%d" % self._rand.randrange(KEYS)
        value = None if self._rand.random() < DELETED else b"value-" + number
        self._sent[number] = key, value
        try:
            ack = await producer.send(TABLE.topic, value, key, [("number", number)], TABLE.partition)
            self._acked[(await ack).offset] = number
        except (DeliveryError, TidelogError):
            return  # nothing is promised, and it may be there

    async def _final_read(self, vetoed: frozenset[TopicPartition]) -> int:
        total = await super()._final_read(vetoed)
        if TABLE in vetoed:
            return total
        copies = self.cluster.logs(TABLE)
        for broker, log in copies.items():
            self._check(broker, log)
        reached = self.cluster.observer.reached
        kept = min(len(self._records(log)) for log in copies.values())
        reached[goals.COMPACTED] += kept < len(self._acked) / 2
        return total

    def _records(self, log: bytes) -> dict[int, tuple[bytes, bytes]]:
        """By offset, number and key."""
        found, at = {}, 0
        while at < len(log):
            header = whole_batch(log, at)
            for record in decode_batch(TABLE, memoryview(log)[at : at + header.size_bytes], header):
                ((_, number),) = record.headers
                assert number is not None and record.key is not None
                if self._sent[number] != (record.key, record.value):
                    raise Violation(f"compaction: {TABLE} holds {record} where {self._sent[number]} was sent")
                found[record.offset] = (number, record.key)
            at += header.size_bytes
        return found

    def _check(self, broker: int, log: bytes) -> None:
        newest: dict[bytes, int] = {}
        for offset, (number, key) in self._records(log).items():
            newest[key] = offset
            if self._acked.get(offset, number) != number:
                raise Violation(f"compaction: {TABLE} on broker {broker} has another record at offset {offset}")
        deletable = {key for number, (key, value) in self._sent.items() if value is None}
        last: dict[bytes, int] = {}
        for offset, number in self._acked.items():
            key = self._sent[number][0]
            last[key] = max(offset, last.get(key, -1))
        for key, offset in last.items():
            if newest.get(key, offset) < offset:
                raise Violation(
                    f"compaction: {TABLE} on broker {broker}: the newest record of {key!r} is at {newest[key]}, and one was "
                    f"acknowledged at {offset}: {self._sent[self._acked[offset]]}"
                )
            if key not in newest and not self._may_be_gone(key, offset, deletable):
                raise Violation(f"compaction: {TABLE} on broker {broker} has lost {key!r}, acknowledged at {offset}")

    def _may_be_gone(self, key: bytes, offset: int, deletable: set[bytes]) -> bool:
        """Its last acknowledged record deletes it, or one may have come later that nobody has heard of."""
        if self._sent[self._acked[offset]][1] is None:
            return True
        acked = set(self._acked.values())
        return key in deletable and any(
            each == key and value is None and number not in acked for number, (each, value) in self._sent.items()
        )
