"""A topic of four partitions, its brokers in memory, and members of a group whose coordinator is the real state machine."""

from typing import Any

from helpers.fake_broker import FakeCluster
from helpers.fake_coordinator import FakeCoordinator
from tidelog.client.consumer import Consumer
from tidelog.client.records import ConsumerRecord, Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.wire.batch import Codec

SESSION_S = 3.0
T = [TopicPartition("t", p) for p in range(4)]


class Bed:
    """A topic of four partitions, its brokers, and the group's coordinator on broker 1."""

    def __init__(self, **limits: Any) -> None:
        self.cluster = FakeCluster()
        self.cluster.create("t", partitions=4)
        self.clock = self.cluster.clock
        self.coordinator = FakeCoordinator(self.cluster, **limits)
        self.calls: list[tuple[str, list[int]]] = []

    def fill(self, *partitions: int, count: int = 10) -> None:
        for partition in partitions or range(4):
            p = self.cluster.partition("t", partition)
            first = p.end
            p.append(
                encode_batch((Record(None, b"%d" % (first + i), (), 1000) for i in range(count)), Codec.NONE), 10**6
            )
        self.cluster.notify()

    def lead(self, broker: int) -> None:
        for partition in range(4):
            self.cluster.elect("t", partition, broker)

    def consumer(self, consumer_id: str = "a", **options: Any) -> Consumer:
        known: dict[str, Any] = {"group": "g", "session_timeout_ms": round(SESSION_S * 1000)}
        if not {"pattern", "exclude_pattern"} & options.keys():
            known["topics"] = ["t"]
        return Consumer(
            self.cluster.bootstrap, ports=self.cluster.ports, consumer_id=consumer_id, **{**known, **options}
        )

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


def offsets_of(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return sorted((r.partition, r.offset) for r in records)


def every(count: int, partitions: int = 4) -> list[tuple[int, int]]:
    return [(p, o) for p in range(partitions) for o in range(count)]
