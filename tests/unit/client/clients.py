"""Clients of a cluster in memory, and the values that they send."""

from collections import Counter
from typing import Any

from helpers.brokers import Brokers
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.testing.intercept import Call


def producer(cluster: Brokers, **options: Any) -> Producer:
    return Producer(cluster.bootstrap, ports=cluster.ports, **options)


def admin(cluster: Brokers, **options: Any) -> Admin:
    return Admin(cluster.bootstrap, ports=cluster.ports, **options)


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


class Flights:
    """Counts the produce requests that a broker has not answered yet, by partition."""

    def __init__(self, cluster: Brokers) -> None:
        self.most = 0
        self._now: Counter[tuple[str, int]] = Counter()
        cluster.faults.append(self._watch)

    async def _watch(self, call: Call) -> Any:
        if call.method != "Produce":
            return NotImplemented
        partitions = [(p.topic, p.partition) for p in call.request.partitions]
        self._now.update(partitions)
        self.most = max(self.most, *self._now.values())
        try:
            return await call.serve()
        finally:
            self._now.subtract(partitions)
