"""The replicas of a broker as metrics: a snapshot taken at each scrape, turned into series, capped."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.ids import BrokerId, TopicPartition
from tidelog.runtime.scrape import ask_on


class FollowerSnapshot(NamedTuple):
    """How far one follower is behind its leader."""

    broker_id: BrokerId
    lag_records: int
    lag_s: float


class PartitionSnapshot(NamedTuple):
    """One replica on this broker as it stands at a scrape. Offsets are exclusive ends."""

    topic_partition: TopicPartition
    broker_id: BrokerId
    """This broker."""
    leader: BrokerId
    leader_epoch: int
    replicas: int
    isr_size: int
    """As this broker knows it; exact at the leader."""
    min_isr: int
    """min(min.insync.replicas, replicas)."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    offline: bool = False
    """The disk below it failed, or it is damaged."""
    behind_leader_records: int = 0
    """Of a follower: the leader's high watermark at the last chunk minus its own end, at least 0."""
    followers: Sequence[FollowerSnapshot] = ()
    """Of a leader."""
    isr: Sequence[BrokerId] = ()
    """The members of the committed ISR, as the leader knows them."""

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id and not self.offline


PartitionSnapshots = Callable[[], Sequence[PartitionSnapshot]]
"""Called on the event loop at each scrape."""

Stalls = Callable[[], Sequence[tuple[TopicPartition, float]]]
"""The partitions that are led, each with its longest stall since the last call; called on the event loop at each scrape."""

_BROKER_GAUGES: Final = {
    "tidelog_broker_partitions": "Replicas on this broker.",
    "tidelog_broker_leaders": "Partitions that it leads.",
    "tidelog_broker_under_replicated_partitions": "Led, with fewer replicas in sync than assigned.",
    "tidelog_broker_under_min_isr_partitions": "Led, with an ISR below min ISR: acks=all is refused.",
    "tidelog_broker_at_min_isr_partitions": "Led, with an ISR of exactly min ISR: one more loss stops acks=all.",
    "tidelog_broker_offline_replicas": "Replicas that this broker cannot serve.",
    "tidelog_replica_fetcher_max_lag_records": "The farthest that a replica here is behind its leader's high watermark.",
    "tidelog_metrics_partitions_left_out": "Partitions without series of their own (metrics_partitions_max).",
}
_PARTITION_GAUGES: Final = {
    "tidelog_partition_log_start_offset": "First offset still kept.",
    "tidelog_partition_high_watermark": "First offset that is not committed.",
    "tidelog_partition_log_end_offset": "The offset that the next record gets.",
    "tidelog_partition_leader_epoch": "As this broker knows it.",
    "tidelog_log_size_bytes": "Of all segments.",
    "tidelog_log_segments": "Number of segments.",
}
_LEADER_GAUGES: Final = {
    "tidelog_partition_leader": "Broker id, told by the leader alone: no series means no leader.",
    "tidelog_partition_isr_size": "Told by the leader.",
    "tidelog_partition_replicas": "Told by the leader.",
    "tidelog_partition_under_replicated": "1 if the ISR is smaller than the replica list; told by the leader.",
}
_MEMBER_GAUGES: Final = {
    "tidelog_partition_isr_member": "Broker id of each member of the ISR, told by the leader alone.",
}
_FOLLOWER_GAUGES: Final = {
    "tidelog_replica_lag_records": "Leader's log end minus the follower's; told by the leader.",
    "tidelog_replica_lag_seconds": "Since the first append that the follower has not acknowledged; told by the leader.",
}


class PartitionCollector(Collector):
    """Turns the broker's own state into series at scrape time; nothing is kept between scrapes.

    Series by partition are capped at `partitions_max` (the rest is counted, not forgotten silently); the broker's totals
    always cover every partition.
    """

    def __init__(
        self, snapshots: PartitionSnapshots, partitions_max: int, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """`loop`: where `snapshots` must run; None: in the thread that scrapes."""
        self._ask = ask_on(loop, snapshots)
        self._partitions_max = partitions_max

    def describe(self) -> Iterable[Metric]:
        return self._families([])

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._ask())

    def _families(self, snapshots: Sequence[PartitionSnapshot]) -> Iterator[Metric]:
        shown = sorted(snapshots)[: self._partitions_max]
        yield from _totals(snapshots, len(snapshots) - len(shown))
        yield from _by_partition(shown)


class StallCollector(Collector):
    """Stalls since the last scrape: a collector of its own, since a scrape that names other families must not take them."""

    def __init__(self, stalls: Stalls, partitions_max: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: where `stalls` must run; None: in the thread that scrapes."""
        self._ask = ask_on(loop, stalls)
        self._partitions_max = partitions_max

    def describe(self) -> Iterable[Metric]:
        return [self._family([])]

    def collect(self) -> Iterator[Metric]:
        yield self._family(sorted(self._ask())[: self._partitions_max])

    def _family(self, stalls: Sequence[tuple[TopicPartition, float]]) -> Metric:
        family = GaugeMetricFamily(
            "tidelog_partition_high_watermark_stall_seconds",
            "The longest time since the last scrape in which records beyond the high watermark waited and it did not move; a "
            "stall that goes on counts up to now; told by the leader.",
            labels=["topic", "partition"],
        )
        for (topic, partition), seconds in stalls:
            family.add_metric([topic, str(partition)], seconds)
        return family


def _totals(snapshots: Sequence[PartitionSnapshot], left_out: int) -> Iterator[Metric]:
    led = [s for s in snapshots if s.is_leader]
    values = {
        "tidelog_broker_partitions": len(snapshots),
        "tidelog_broker_leaders": len(led),
        "tidelog_broker_under_replicated_partitions": sum(s.isr_size < s.replicas for s in led),
        "tidelog_broker_under_min_isr_partitions": sum(s.isr_size < s.min_isr for s in led),
        "tidelog_broker_at_min_isr_partitions": sum(s.isr_size == s.min_isr for s in led),
        "tidelog_broker_offline_replicas": sum(s.offline for s in snapshots),
        "tidelog_replica_fetcher_max_lag_records": max((s.behind_leader_records for s in snapshots), default=0),
        "tidelog_metrics_partitions_left_out": left_out,
    }
    for name, text in _BROKER_GAUGES.items():
        yield GaugeMetricFamily(name, text, value=values[name])


def _by_partition(snapshots: Sequence[PartitionSnapshot]) -> Iterator[Metric]:
    of_partition = ["topic", "partition"]
    families = {
        name: GaugeMetricFamily(name, text, labels=labels)
        for group, labels in (
            (_PARTITION_GAUGES, of_partition),
            (_LEADER_GAUGES, of_partition),
            (_MEMBER_GAUGES, [*of_partition, "broker"]),
            (_FOLLOWER_GAUGES, [*of_partition, "follower"]),
        )
        for name, text in group.items()
    }

    def add(group: dict[str, str], where: list[str], values: tuple[float, ...]) -> None:
        for name, value in zip(group, values, strict=True):
            families[name].add_metric(where, value)

    for s in snapshots:
        where = [s.topic_partition.topic, str(s.topic_partition.partition)]
        add(
            _PARTITION_GAUGES,
            where,
            (s.log_start_offset, s.high_watermark, s.log_end_offset, s.leader_epoch, s.size_bytes, s.segments),
        )
        if s.is_leader:
            add(_LEADER_GAUGES, where, (s.leader, s.isr_size, s.replicas, s.isr_size < s.replicas))
        for member in s.isr if s.is_leader else ():
            add(_MEMBER_GAUGES, [*where, str(member)], (member,))
        for follower in s.followers:
            add(_FOLLOWER_GAUGES, [*where, str(follower.broker_id)], (follower.lag_records, follower.lag_s))
    yield from families.values()
