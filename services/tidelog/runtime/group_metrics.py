"""What a broker measures as the coordinator of groups: counters where something happens, and a snapshot at each scrape."""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.runtime.scrape import ask_on
from tidelog.runtime.tallies import Timing

PING_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REBALANCE_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STATES: Final = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance")


REASONS: Final = ("join", "leave", "failure", "topics", "subscription", "returned", "rejoin", "failover")
"""Why rebalances are asked for."""
REQUESTS: Final = ("ping", "stop", "start")


class RebalanceTally:
    """Completed rebalances of one group, under one coordinator."""

    __slots__ = ("by_reason", "durations")

    def __init__(self) -> None:
        self.by_reason = dict.fromkeys(REASONS, 0)
        self.durations = Timing(REBALANCE_S)

    def completed(self, reason: str, seconds: float) -> None:
        self.by_reason[reason] = self.by_reason.get(reason, 0) + 1
        self.durations.observe(seconds)


class GroupSnapshot(NamedTuple):
    """One group as it stands at a scrape."""

    group_id: str
    state: str
    generation: int
    members: int
    offsets: Sequence[tuple[TopicPartition, int, int | None]]
    """Committed offset, and the lag at the last look-up, when it was another offset; None: it is unknown."""
    detection_s: float
    """Within which the death of any member is known (A4.09)."""
    rebalances: RebalanceTally


GroupSnapshots = Callable[[], Sequence[GroupSnapshot]]
"""Called on the event loop at each scrape."""


class GroupMetrics:
    """Of all shards that one broker coordinates."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"tidelog_coordinator_{name}", text, labels, registry=registry)

        self._epoch = Gauge(
            "tidelog_coordinator_epoch", "Coordinator epoch of each shard served here.", ["shard"], registry=registry
        )
        self._shards = Gauge("tidelog_coordinator_shards", "Shards that this broker coordinates.", registry=registry)
        self._unreadable = Gauge(
            "tidelog_coordinator_unreadable_topics",
            "Topics whose znodes cannot be read; their groups go on with what was read last.",
            registry=registry,
        )
        self._elections = counter("elections_total", "Times that this broker became coordinator of a shard.")
        self._take_over = Histogram(
            "tidelog_coordinator_take_over_seconds",
            "From winning a shard until its groups are served.",
            buckets=REBALANCE_S,
            registry=registry,
        )
        self._failed = counter("rebalance_attempts_failed_total", "Attempts that failed.", ["reason"])
        self._stopped = counter("rebalance_members_stopped_total", "Members that were stopped for a rebalance.")
        self._alarms = counter("rebalance_alarms_total", "Failed attempts beyond the maximum (A16.07).")
        self._pings = Histogram(
            "tidelog_coordinator_ping_seconds", "From a ping to its answer.", buckets=PING_S, registry=registry
        )
        self._commits = counter("offset_commits_total", "Offsets of groups that were given to the store.")
        self._expired = counter("watcher_expirations_total", "Requests without an answer in time.", ["request"])
        self._refused = counter("refused_total", "Messages and commits fenced or refused.", ["what", "code"])
        self._bugs = counter("task_failures_total", "Tasks of a term that failed.", ["task"])
        self._served: set[int] = set()
        # From the start: of a counter that appears with its first event, Prometheus sees no increase.
        for family, labels in ((self._failed, REASONS), (self._expired, REQUESTS)):
            for label in labels:
                family.labels(label)

    def elected(self, shard: int, epoch: int, took_s: float) -> None:
        self._served.add(shard)
        self._shards.set(len(self._served))
        self._epoch.labels(str(shard)).set(epoch)
        self._elections.inc()
        self._take_over.observe(took_s)

    def deposed(self, shard: int) -> None:
        """Or never served: its term ended while it still read."""
        if shard in self._served:
            self._served.discard(shard)
            self._epoch.remove(str(shard))
        self._shards.set(len(self._served))

    def unreadable(self, topics: int) -> None:
        self._unreadable.set(topics)

    def rebalanced(self, reason: str, *, failed: bool, stopped: int) -> None:
        """`reason` is one of REASONS; completed ones are told by their groups."""
        if failed:
            self._failed.labels(reason).inc()
        self._stopped.inc(stopped)

    def alarmed(self) -> None:
        self._alarms.inc()

    def ping_answered(self, seconds: float) -> None:
        self._pings.observe(seconds)

    def committing(self, offsets: int) -> None:
        self._commits.inc(offsets)

    def expired(self, request: str) -> None:
        """`request`: ping, stop or start."""
        self._expired.labels(request).inc()

    def refused(self, what: str, code: ErrorCode) -> None:
        self._refused.labels(what, code.name).inc()

    def failed(self, task: str) -> None:
        self._bugs.labels(task).inc()

    def watch_groups(self, snapshots: GroupSnapshots, groups_max: int, partitions_max: int) -> None:
        """Call once, on the event loop."""
        collector = GroupCollector(snapshots, groups_max, partitions_max, asyncio.get_running_loop())
        self._registry.register(collector)


class GroupCollector(Collector):
    """Series by group and by partition are capped; what is left out is counted. Totals cover every group."""

    def __init__(
        self,
        snapshots: GroupSnapshots,
        groups_max: int,
        partitions_max: int,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`loop`: where `snapshots` must run; None: in the thread that scrapes."""
        self._ask = ask_on(loop, snapshots)
        self._groups_max = groups_max
        self._partitions_max = partitions_max

    def describe(self) -> Iterable[Metric]:
        return self._families([])

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._ask())

    def _families(self, snapshots: Sequence[GroupSnapshot]) -> Iterator[Metric]:
        groups = GaugeMetricFamily("tidelog_coordinator_groups", "Groups coordinated here.", labels=["state"])
        found = Tally(each.state for each in snapshots)
        for state in sorted({*STATES, *found}):
            groups.add_metric([state], found[state])
        yield groups
        yield GaugeMetricFamily(
            "tidelog_coordinator_members", "Members of all groups.", value=sum(each.members for each in snapshots)
        )
        yield GaugeMetricFamily(
            "tidelog_coordinator_detection_seconds",
            "The longest that the death of a member can stay unknown (A4.09).",
            value=max((each.detection_s for each in snapshots), default=0.0),
        )
        shown = sorted(snapshots)[: self._groups_max]
        partitions = [(group.group_id, *each) for group in shown for each in group.offsets]
        kept = partitions[: self._partitions_max]
        yield GaugeMetricFamily(
            "tidelog_coordinator_groups_left_out",
            "Groups without series of their own (metrics_groups_max).",
            value=len(snapshots) - len(shown),
        )
        yield GaugeMetricFamily(
            "tidelog_coordinator_partitions_left_out",
            "Committed offsets of shown groups without series of their own (metrics_partitions_max).",
            value=len(partitions) - len(kept),
        )
        yield from _by_group(shown)
        yield from _by_partition(kept)


def _by_group(groups: Sequence[GroupSnapshot]) -> Iterator[Metric]:
    members = GaugeMetricFamily("tidelog_group_members", "Members of the group.", labels=["group"])
    generation = GaugeMetricFamily("tidelog_group_generation", "Its generation.", labels=["group"])
    state = GaugeMetricFamily(
        "tidelog_group_state", "1 at the state it is in, and no other.", labels=["group", "state"]
    )
    rebalances = CounterMetricFamily(
        "tidelog_coordinator_rebalances", "Rebalances completed.", labels=["group", "reason"]
    )
    durations = HistogramMetricFamily(
        "tidelog_coordinator_rebalance_duration_seconds",
        "From the request until every member has started.",
        labels=["group"],
    )
    for each in groups:
        members.add_metric([each.group_id], each.members)
        generation.add_metric([each.group_id], each.generation)
        state.add_metric([each.group_id, each.state], 1)
        for reason, count in each.rebalances.by_reason.items():
            rebalances.add_metric([each.group_id, reason], count)
        timing = each.rebalances.durations
        durations.add_metric([each.group_id], timing.buckets(), timing.seconds)
    yield from (members, generation, state, rebalances, durations)


def _by_partition(offsets: Sequence[tuple[str, TopicPartition, int, int | None]]) -> Iterator[Metric]:
    labels = ["group", "topic", "partition"]
    committed = GaugeMetricFamily("tidelog_group_committed_offset", "The next record to process.", labels=labels)
    lag = GaugeMetricFamily(
        "tidelog_group_lag_records",
        "High watermark minus committed offset, both of the last look-up (group_lag_interval_ms).",
        labels=labels,
    )
    for group_id, (topic, partition), offset, records in offsets:
        where = [group_id, topic, str(partition)]
        committed.add_metric(where, offset)
        if records is not None:
            lag.add_metric(where, records)
    yield committed
    yield lag
