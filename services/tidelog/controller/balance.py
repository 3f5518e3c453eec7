"""Automatic preferred leader election: when the leaders have drifted too far from where placement put them (N10, L27)."""

from collections import Counter
from dataclasses import dataclass, field

from tidelog.controller.model import ClusterState, Partition
from tidelog.ids import BrokerId


@dataclass(slots=True)
class Balance:
    """`interval_s` None: never."""

    interval_s: float | None
    percentage: int
    """Of a broker's preferred partitions; so many may be led elsewhere."""
    _next_at: float | None = field(default=None, init=False)

    def due(self, now: float) -> bool:
        """True once an interval; the first one begins with the first question."""
        if self.interval_s is None:
            return False
        if self._next_at is not None and now < self._next_at:
            return False
        first, self._next_at = self._next_at is None, now + self.interval_s
        return not first

    def displaced(self, state: ClusterState) -> list[Partition]:
        """The partitions of every broker that misses too many of those it ought to lead."""
        wanted: Counter[BrokerId] = Counter()
        missed: dict[BrokerId, list[Partition]] = {}
        for partition in state.partitions():
            head = partition.replicas[0]
            if partition.move is not None:
                continue  # its leader follows in the end
            wanted[head] += 1
            if partition.state is not None and partition.state.leader != head:
                missed.setdefault(head, []).append(partition)
        return [
            partition
            for head, partitions in sorted(missed.items())
            if head in state.brokers and len(partitions) * 100 > self.percentage * wanted[head]
            for partition in partitions
        ]
