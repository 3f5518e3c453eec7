"""A topic of four partitions, brokers in memory, and members of a group."""

from typing import Any

from helpers.brokers import Brokers
from tidelog.client.consumer import Consumer
from tidelog.client.records import ConsumerRecord, Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.wire.batch import Codec

SESSION_S = 3.0
T = [TopicPartition("t", p) for p in range(4)]


class Bed:
    """A topic of four partitions, its brokers, and a group whose coordinator is broker 3, which comes first in the order."""

    def __init__(self, *, replicas: int = 3, min_isr: int = 2, **settings: Any) -> None:
        self.cluster = Brokers(**settings)
        self.replicas = replicas
        self.min_isr = min_isr
        self.clock = self.cluster.clock
        self.calls: list[tuple[str, list[int]]] = []

    async def start(self) -> "Bed":
        await self.cluster.start()
        await self.create()
        await self.cluster.until(lambda: self.cluster.coordinator() == 3, "broker 3 coordinates")
        return self

    async def create(self) -> None:
        await self.cluster.create("t", 4, replicas=self.replicas, min_insync_replicas=str(self.min_isr))

    async def fill(self, *partitions: int, count: int = 10) -> None:
        for partition in partitions or range(4):
            first = self.cluster.end("t", partition)
            records = (Record(None, b"%d" % (first + i), (), 1000) for i in range(count))
            await self.cluster.append("t", partition, encode_batch(records, Codec.NONE))

    async def lead(self, broker: int) -> None:
        for partition in range(4):
            await self.cluster.elect("t", partition, broker)

    def consumer(self, consumer_id: str = "a", **options: Any) -> Consumer:
        """Its host has its name, unless `ports` are those of another one."""
        ports = self.cluster.ports_of(consumer_id)
        known: dict[str, Any] = {"group": "g", "session_timeout_ms": round(SESSION_S * 1000), "ports": ports}
        if not {"pattern", "exclude_pattern"} & options.keys():
            known["topics"] = ["t"]
        return Consumer(self.cluster.bootstrap, consumer_id=consumer_id, **{**known, **options})

    def listener(self, name: str) -> Any:
        return lambda tps: self.calls.append((name, sorted(tp.partition for tp in tps)))

    async def until(self, condition: Any, *consumers: Consumer, limit_s: float = 30.0) -> list[ConsumerRecord]:
        """Polls these in turn until `condition` holds; what they gave."""
        records: list[ConsumerRecord] = []
        give_up_at = self.clock.now() + limit_s
        while not condition():
            assert self.clock.now() < give_up_at, "the condition did not come true"
            for consumer in consumers:
                records += await consumer.poll(timeout_s=0.05)
            if not consumers:
                await self.clock.sleep(0.05)
        return records


async def bed(**settings: Any) -> Bed:
    """`settings` are settings of brokers."""
    return await Bed(**settings).start()


def offsets_of(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return sorted((r.partition, r.offset) for r in records)


def every(count: int, partitions: int = 4) -> list[tuple[int, int]]:
    return [(p, o) for p in range(partitions) for o in range(count)]
