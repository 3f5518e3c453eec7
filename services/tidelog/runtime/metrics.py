"""What a process tells Prometheus: one small class a group of families, each registered where the caller says.

Names are those of Kafka's own metrics in Prometheus form (ecosystem 2.5): base units, `_total` for counters, no label that
grows without bound. Hot paths do no label lookup in the library: children are kept in dicts here. What is derived from the
partitions of a broker is not kept up to date at all but asked for at scrape time (`PartitionCollector`).
"""

import asyncio
import platform
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.ports.meta import SessionState
from tidelog.release import VERSION
from tidelog.runtime import loop_watch
from tidelog.runtime.group_metrics import GroupMetrics
from tidelog.runtime.loop_watch import LoopWatch
from tidelog.runtime.partition_metrics import PartitionCollector, PartitionSnapshots, StallCollector, Stalls
from tidelog.runtime.tallies import Tallies, Tally, Timing, Timings

FAST_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Calls, queue waits, flushes: 0.2 ms is a round trip on loopback, 10 s the longest request that is not parked."""

SLOW_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Elections and failovers: from a refused connect to a session timeout and more."""

LATE_KEPT_S: Final = 5.0

ELECTIONS: Final = (
    *(
        "new",
        "suspected",
        "broker_down",
        "broker_up",
        "preferred",
        "unclean",
        "released",
        "shutdown",
        "disk",
        "reassigned",
        "elected",
    ),
)
"""Why leaders are elected. `elected`: by a controller that took over."""

ISR_SHRINKS: Final = ("leader", "broker gone", "shutdown", "disk", "reassignment", "unclean election")
ISR_EXPANSIONS: Final = ("leader", "unclean election")
"""Causes of ISR changes. `leader`: the partition's leader has asked for it."""

BROKER_FAILOVER_STEPS: Final = ("detect", "decide", "write", "notify")
TAKE_OVER_STEPS: Final = ("read", "decide", "notify")

OTHER: Final = "__other__"
"""Topic label of everything beyond the cap."""


class Phase(StrEnum):
    """Where the time of a request goes. The gRPC library hides its own queues, so there is no queue and no send phase."""

    LOCAL = "local"
    """Until this process had done its part: checked and appended, or read."""
    REMOTE = "remote"
    """Waiting for others: followers of acks=all, new records of a long poll."""
    TOTAL = "total"


class BrokerState(StrEnum):
    """Of a registered broker, as the active controller sees it."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    """Its stream to the controller broke and nothing listens there: it leads nothing."""
    SHUTTING_DOWN = "shutting_down"


@cache
def _build() -> dict[str, str]:
    """Read once from the packages' own files."""
    return {"version": VERSION, "python": platform.python_version(), "grpcio": version("grpcio")}


class ProcessMetrics:
    """Build, interpreter, operating-system process, event loop and supervised tasks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        build = Info("tidelog_build", "What is running.", registry=registry)
        build.info(_build())
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._lag = Gauge(
            "tidelog_event_loop_lag_seconds",
            f"By how much the event loop was late to answer, at worst in the last {LATE_KEPT_S:g} s.",
            registry=registry,
        )
        self._lag.set_function(self._worst_lag)
        self._late = deque([(monotonic(), 0.0)])
        """When the loop turned, and how late."""
        self._slow = Counter(
            "tidelog_event_loop_slow_steps",
            f"Steps of the event loop that took longer than {loop_watch.SLOW_S * 1000:g} ms. The log names each.",
            registry=registry,
        )
        self._failures = Counter(
            "tidelog_task_failures_total", "Supervised tasks that ended with an error.", ["task"], registry=registry
        )

        self._responses = Gauge(
            "tidelog_responses_in_flight_bytes",
            "Memory that responses take which have not been read yet; at most responses_max_bytes.",
            registry=registry,
        )

    def watch_responses(self, held: Callable[[], int]) -> None:
        self._responses.set_function(held)

    def task_failed(self, name: str) -> None:
        """`name` as given to the supervisor, cut at the first digit or colon so that it stays one of a few."""
        kind = name.partition(":")[0].rstrip("-_ 0123456789") or "task"
        self._failures.labels(kind).inc()

    def loop_was_late(self, seconds: float) -> None:
        now = monotonic()
        self._late.append((now, seconds))
        while self._late[0][0] < now - LATE_KEPT_S:
            self._late.popleft()

    def _worst_lag(self) -> float:
        """The same for whoever asks: scrapes that a paused process left without an answer are answered when it goes on, to
        nobody, and would take the peak with them."""
        return max(late for _, late in self._late.copy())

    def loop_watch(self) -> LoopWatch:
        """The watch of this process's event loop; its `run` is for the supervisor."""
        return LoopWatch(self.loop_was_late, lambda _: self._slow.inc())


class ZkMetrics:
    """The session of this process with ZooKeeper."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state = Gauge("tidelog_zk_session_state", "1 at the state of the session.", ["state"], registry=registry)
        self._expirations = Counter(
            "tidelog_zk_session_expirations_total", "Sessions that the server gave up.", registry=registry
        )
        self._requests = Histogram(
            "tidelog_zk_request_duration_seconds", "Until the answer.", ["op"], buckets=FAST_S, registry=registry
        )
        for state in SessionState:
            self._state.labels(state.value).set(0)

    def session(self, state: SessionState) -> None:
        """Called at every change of state; LOST counts as an expiration."""
        if state is SessionState.LOST:
            self._expirations.inc()
        for each in SessionState:
            self._state.labels(each.value).set(each is state)

    def request(self, op: str, seconds: float) -> None:
        """`op`: get, get_many, exists, children, multi, sync."""
        self._requests.labels(op).observe(seconds)


class RequestMetrics:
    """Requests that this process served, and those it has parked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Tallies("tidelog_requests", "Requests answered.", ["api", "code"], registry)
        self._time = Timings("tidelog_request_duration_seconds", "By phase.", ["api", "phase"], FAST_S, registry)
        self._parked = Gauge("tidelog_purgatory_size", "Requests parked.", ["op"], registry=registry)
        self._expired = Counter(
            "tidelog_purgatory_expirations_total", "Parked requests that ran out of time.", ["op"], registry=registry
        )
        self._denied = Counter(
            "tidelog_requests_denied_total", "Requests that the authorizer refused.", ["api"], registry=registry
        )
        self._counts: dict[tuple[str, ErrorCode], Tally] = {}
        self._times: dict[tuple[str, Phase], Timing] = {}

    def answered(self, api: str, code: ErrorCode, total_s: float) -> None:
        """`api` is the method's name. A request over many partitions counts once, with its first error."""
        count = self._counts.get((api, code))
        if count is None:
            count = self._counts[api, code] = self._count.labels(api, code.name)
        count.value += 1
        self.spent(api, Phase.TOTAL, total_s)

    def spent(self, api: str, phase: Phase, seconds: float) -> None:
        self.timing(api, phase).observe(seconds)

    def timing(self, api: str, phase: Phase) -> Timing:
        """To be kept by who observes often."""
        child = self._times.get((api, phase))
        if child is None:
            child = self._times[api, phase] = self._time.labels(api, phase)
        return child

    def denied(self, api: str) -> None:
        """Wholly, or some of its topics."""
        self._denied.labels(api).inc()

    def watch_parked(self, op: str, size: Callable[[], int]) -> None:
        """`size` is called at each scrape, on another thread: let it be a len()."""
        self._parked.labels(op).set_function(lambda: float(size()))
        self._expired.labels(op)

    def parked_expired(self, op: str) -> None:
        self._expired.labels(op).inc()


class TopicMetrics:
    """Traffic by topic, at most `topics_max` of them by name."""

    def __init__(self, registry: CollectorRegistry, topics_max: int = 1000) -> None:
        self._records_in = Tallies("tidelog_records_in", "Records appended.", ["topic"], registry)
        self._bytes_in = Tallies("tidelog_bytes_in", "Bytes appended.", ["topic"], registry)
        self._bytes_out = Tallies("tidelog_bytes_out", "Bytes sent to readers.", ["topic"], registry)
        self._rejected = Counter(
            "tidelog_produce_rejected_total", "Partitions of produce requests refused.", ["reason"], registry=registry
        )
        self._topics_max = topics_max
        self._children: dict[str, tuple[Tally, Tally, Tally]] = {}

    def produced(self, topic: str, records: int, size_bytes: int) -> None:
        records_in, bytes_in, _ = self._of(topic)
        records_in.value += records
        bytes_in.value += size_bytes

    def fetched(self, topic: str, size_bytes: int) -> None:
        self._of(topic)[2].value += size_bytes

    def rejected(self, code: ErrorCode) -> None:
        self._rejected.labels(code.name).inc()

    def deleted(self, topic: str) -> None:
        if self._children.pop(topic, None) is not None:
            for family in (self._records_in, self._bytes_in, self._bytes_out):
                family.remove(topic)

    def _of(self, topic: str) -> tuple[Tally, Tally, Tally]:
        found = self._children.get(topic)
        if found is None:
            label = topic if len(self._children) < self._topics_max else OTHER
            found = self._records_in.labels(label), self._bytes_in.labels(label), self._bytes_out.labels(label)
            if label is not OTHER:
                self._children[topic] = found
        return found


class ReplicationMetrics:
    """ISR changes and replication of one broker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.isr_shrinks = Counter("tidelog_isr_shrinks_total", "ISR shrinks committed, as leader.", registry=registry)
        self.isr_expands = Counter(
            "tidelog_isr_expands_total", "ISR expansions committed, as leader.", registry=registry
        )
        self.isr_update_failures = Counter(
            "tidelog_isr_update_failures_total", "AlterIsr proposals that were refused.", registry=registry
        )
        self.isr_change_pending = Gauge(
            "tidelog_isr_change_pending_seconds",
            "How long the oldest ISR change that has no answer yet has waited for it, as leader.",
            registry=registry,
        )
        self.unverified_repetitions = Counter(
            "tidelog_unverified_repetitions_total",
            "Batches of idempotent producers answered as repetitions by their sequences alone: the CRC of what is stored, as "
            "it was sent, is not known.",
            registry=registry,
        )
        self._held_back = Gauge(
            "tidelog_replica_held_back_partitions",
            "Led partitions that a follower does not get, since their next batch is larger than it takes.",
            registry=registry,
        )
        self._alter_isr = Counter(
            "tidelog_alter_isr_requests_total",
            "AlterIsr requests by the error of the whole answer; NO_ANSWER: the call broke.",
            ["error"],
            registry=registry,
        )
        self._truncations = Counter(
            "tidelog_replica_truncations_total", "Times that a log was cut to the leader's history.", registry=registry
        )
        self._truncated = Counter(
            "tidelog_replica_truncated_records_total", "Records cut off by truncations.", registry=registry
        )
        self._steps = Histogram(
            "tidelog_replica_failover_step_seconds",
            "Steps of a change of leader on a broker, one partition each: connect, truncate.",
            ["step"],
            buckets=FAST_S,
            registry=registry,
        )
        self._connect, self._truncate = self._steps.labels("connect"), self._steps.labels("truncate")
        size = Tallies("tidelog_replication_bytes", "Batches replicated.", ["direction"], registry)
        self._bytes_in, self._bytes_out = size.labels("in"), size.labels("out")
        copied = Tallies(
            "tidelog_reassignment_bytes",
            "Of them, those of copies that a reassignment brings and that are not in the ISR yet.",
            ["direction"],
            registry,
        )
        self._copied_in, self._copied_out = copied.labels("in"), copied.labels("out")

    def watch_held_back(self, count: Callable[[], int]) -> None:
        self._held_back.set_function(lambda: float(count()))

    def alter_isr_answered(self, error: str) -> None:
        self._alter_isr.labels(error).inc()

    def truncated(self, records: int, took_s: float) -> None:
        """B1.05, the last step: what a follower cuts off before it fetches; `took_s` is the device's part."""
        self._truncations.inc()
        self._truncated.inc(records)
        self._truncate.observe(took_s)

    def isr_connected(self, took_s: float) -> None:
        """B1.05, the last but one: from the leader's new epoch until every follower of its ISR has stated its position."""
        self._connect.observe(took_s)

    def received(self, size_bytes: int, moves: bool) -> None:
        """`moves`: of a copy that a reassignment brings to this broker (Kafka's ReassignmentBytesInPerSec)."""
        self._bytes_in.value += size_bytes
        if moves:
            self._copied_in.value += size_bytes

    def sent(self, size_bytes: int, moves: bool) -> None:
        """`moves`: to a follower that a reassignment brings (Kafka's ReassignmentBytesOutPerSec)."""
        self._bytes_out.value += size_bytes
        if moves:
            self._copied_out.value += size_bytes


class LogMetrics:
    """The files of one broker; sizes come from `PartitionCollector`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._flush = Histogram(
            "tidelog_log_flush_duration_seconds", "Of one fsync.", buckets=FAST_S, registry=registry
        )
        self._recovery = Gauge(
            "tidelog_log_recovery_duration_seconds", "What opening the logs took at the last start.", registry=registry
        )
        self._free = Gauge(
            "tidelog_data_dir_free_bytes", "Left on the file system of the data directory.", registry=registry
        )
        self._size = Gauge(
            "tidelog_data_dir_size_bytes", "Of the file system of the data directory.", registry=registry
        )
        self._strays = Gauge(
            "tidelog_log_stray_partitions",
            "Logs that the controller does not list, and parts of logs that were cut below the high watermark, all set aside.",
            registry=registry,
        )
        self._another_past = Gauge(
            "tidelog_log_another_past",
            "1: ZooKeeper is behind what this broker has seen, so that nothing set aside is deleted.",
            registry=registry,
        )

        self._ahead = Gauge(
            "tidelog_log_segments_ahead_of_clock",
            "Segments with a timestamp more than an hour ahead of the clock, at the last check of retention.",
            registry=registry,
        )

    def ahead(self, segments: int) -> None:
        self._ahead.set(segments)

    def flushed(self, seconds: float) -> None:
        self._flush.observe(seconds)

    def recovered(self, seconds: float) -> None:
        self._recovery.set(seconds)

    def watch_strays(self, strays: Callable[[], int], another_past: Callable[[], bool]) -> None:
        """Called at each scrape, on another thread."""
        self._strays.set_function(strays)
        self._another_past.set_function(another_past)

    def watch_space(self, free_bytes: Callable[[], int], total_bytes: Callable[[], int]) -> None:
        """Called at each scrape, on another thread."""
        self._free.set_function(free_bytes)
        self._size.set_function(total_bytes)


class CleanerMetrics:
    """Compaction and scrub of one broker's logs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read = Counter("tidelog_log_cleaner_read_bytes", "By finished compactions.", registry=registry)
        self._removed = Counter(
            "tidelog_log_cleaner_removed_records", "Records that compaction has removed.", registry=registry
        )
        self._broken_off = Counter(
            "tidelog_log_cleaner_broken_off", "Compactions that were not finished; the log says why.", registry=registry
        )
        self._seconds = Histogram(
            "tidelog_log_cleaner_duration_seconds", "Of one finished compaction of one log.", registry=registry
        )
        self._dirty_ratio = Gauge(
            "tidelog_log_cleaner_max_dirty_ratio", "Of the log with most to compact.", registry=registry
        )

        self._scrubbed = Counter("tidelog_log_scrub_read_bytes", "Closed segments read again.", registry=registry)
        self._rotten_found = Counter(
            "tidelog_log_corrupt_batches_found", "Batches that were whole once.", registry=registry
        )
        self._rotten = Gauge(
            "tidelog_log_corrupt_batches", "Of them, those in logs that have no other copy in sync.", registry=registry
        )

    def scrubbed(self, read_bytes: int) -> None:
        self._scrubbed.inc(read_bytes)

    def rotten_found(self) -> None:
        self._rotten_found.inc()

    def rotten(self, count: int) -> None:
        self._rotten.set(count)

    def cleaned(self, read_bytes: int, removed_records: int, seconds: float) -> None:
        self._read.inc(read_bytes)
        self._removed.inc(removed_records)
        self._seconds.observe(seconds)

    def broken_off(self) -> None:
        self._broken_off.inc()

    def dirty_ratio(self, ratio: float) -> None:
        self._dirty_ratio.set(ratio)


class BrokerMetrics:
    """Everything that a broker measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.process = ProcessMetrics(registry)
        self.zk = ZkMetrics(registry)
        self.requests = RequestMetrics(registry)
        self.topics = TopicMetrics(registry)
        self.replication = ReplicationMetrics(registry)
        self.log = LogMetrics(registry)
        self.cleaner = CleanerMetrics(registry)
        self.groups = GroupMetrics(registry)

    def watch_partitions(
        self,
        snapshots: PartitionSnapshots,
        stalls: Stalls,
        partitions_max: int,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Call once, on the thread of `loop`, where both will run; None is the loop that runs now, if one does."""
        if loop is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                pass  # no loop at all: a test that scrapes by itself
        self._registry.register(PartitionCollector(snapshots, partitions_max, loop))
        self._registry.register(StallCollector(stalls, partitions_max, loop))


class ControllerMetrics:
    """Everything that a controller measures. A standby shows 0 for what only the active one knows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"tidelog_controller_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"tidelog_controller_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
            return Histogram(f"tidelog_controller_{name}", text, labels, buckets=buckets, registry=registry)

        self.process = ProcessMetrics(registry)
        self.zk = ZkMetrics(registry)
        self.requests = RequestMetrics(registry)
        self._active = gauge("active", "1 at the controller that acts.")
        self._epoch = gauge("epoch", "Controller epoch; 0 while standing by.")
        self._brokers = gauge("brokers", "Registered brokers.", ["state"])
        self._broker_state = gauge(
            "broker_state", "1 at the state of each registered broker, and no other.", ["broker", "state"]
        )
        self._shown: Mapping[BrokerId, BrokerState] = {}
        self._topics = gauge("topics", "Topics.")
        self._partitions = gauge("partitions", "Partitions.")
        self._reassigning = gauge("reassigning_partitions", "Partitions whose replicas are being moved.")
        self._offline = gauge("offline_partitions", "Partitions without a leader.")
        self._under_replicated = gauge(
            "under_replicated_partitions", "Partitions with fewer replicas in sync than assigned."
        )
        self._under_min_isr = gauge(
            "under_min_isr_partitions", "Partitions with an ISR below min ISR or no leader: acks=all is refused."
        )
        self._at_min_isr = gauge(
            "at_min_isr_partitions", "Partitions with an ISR of exactly min ISR: one more loss stops acks=all."
        )
        self._vetoed = gauge("vetoed_partitions", "Of those: held back until an operator or another member decides.")
        self._imbalance = gauge("preferred_leader_imbalance", "Partitions not led by their preferred leader.")
        self._elections = counter("leader_elections_total", "Leaders elected.", ["reason"])
        self._unclean = counter("unclean_leader_elections_total", "Leaders elected from outside the ISR.")
        self._isr_shrinks = counter("isr_shrinks_total", "Partitions whose ISR has lost members.", ["cause"])
        self._isr_expansions = counter("isr_expansions_total", "Partitions whose ISR has gained members.", ["cause"])
        self._election_time = histogram(
            "leader_election_duration_seconds", "From the trigger until the decisions were written.", SLOW_S
        )
        self._steps = histogram(
            "broker_failover_step_seconds",
            "Steps of a broker's failover: detect, decide, write, notify.",
            FAST_S,
            ["step"],
        )
        self._failovers = counter("failovers_total", "Times that this process became the active controller.")
        self._failover_time = histogram("failover_duration_seconds", "From winning until acting.", SLOW_S)
        self._take_over_steps = histogram(
            "failover_step_seconds", "Steps of taking over: read, decide, notify.", SLOW_S, ["step"]
        )
        # From the start: of a counter that appears with its first event, Prometheus sees no increase.
        for family, labels in (
            (self._elections, ELECTIONS),
            (self._isr_shrinks, ISR_SHRINKS),
            (self._isr_expansions, ISR_EXPANSIONS),
            (self._steps, BROKER_FAILOVER_STEPS),
            (self._take_over_steps, TAKE_OVER_STEPS),
        ):
            for label in labels:
                family.labels(label)
        self._queue = gauge("event_queue_size", "Events that wait.")
        self._queue_wait = histogram("event_queue_wait_seconds", "From arrival until its turn.", FAST_S)
        self._processing = histogram("event_processing_seconds", "Of one event.", FAST_S, ["event"])
        self.standing_by()

    def became_active(self, controller_epoch: int, took_s: float) -> None:
        self._active.set(1)
        self._epoch.set(controller_epoch)
        self._failovers.inc()
        self._failover_time.observe(took_s)

    def standing_by(self) -> None:
        self._active.set(0)
        self._epoch.set(0)
        self.vetoed(0)
        self.cluster(
            alive=0,
            suspected=0,
            shutting_down=0,
            topics=0,
            partitions=0,
            reassigning=0,
            offline=0,
            under_replicated=0,
            under_min_isr=0,
            at_min_isr=0,
            not_preferred=0,
        )
        self.broker_states({})

    def cluster(
        self,
        *,
        alive: int,
        suspected: int,
        shutting_down: int,
        topics: int,
        partitions: int,
        reassigning: int,
        offline: int,
        under_replicated: int,
        under_min_isr: int,
        at_min_isr: int,
        not_preferred: int,
    ) -> None:
        """The active controller's picture, after each change. `alive` leaves out the suspected and those that leave."""
        self._brokers.labels("alive").set(alive)
        self._brokers.labels("suspected").set(suspected)
        self._brokers.labels("shutting_down").set(shutting_down)
        self._topics.set(topics)
        self._partitions.set(partitions)
        self._reassigning.set(reassigning)
        self._offline.set(offline)
        self._under_replicated.set(under_replicated)
        self._under_min_isr.set(under_min_isr)
        self._at_min_isr.set(at_min_isr)
        self._imbalance.set(not_preferred)

    def broker_states(self, brokers: Mapping[BrokerId, BrokerState]) -> None:
        if brokers == self._shown:
            return
        for broker_id, state in self._shown.items():
            if brokers.get(broker_id) is not state:
                self._broker_state.remove(str(broker_id), state)
        for broker_id, state in brokers.items():
            self._broker_state.labels(str(broker_id), state).set(1)
        self._shown = dict(brokers)

    def vetoed(self, partitions: int) -> None:
        """Without a leader because the ISR member that is back may have lost records."""
        self._vetoed.set(partitions)

    def elected(self, reason: str, leaders: int, took_s: float, *, unclean: int = 0) -> None:
        """One round of elections; `reason` is one of ELECTIONS, or another of a few."""
        self._elections.labels(reason).inc(leaders)
        self._unclean.inc(unclean)
        self._election_time.observe(took_s)

    def isrs_changed(self, shrinks: Mapping[str, int], expansions: Mapping[str, int]) -> None:
        """Partitions by cause."""
        for family, counts in ((self._isr_shrinks, shrinks), (self._isr_expansions, expansions)):
            for cause, partitions in counts.items():
                family.labels(cause).inc(partitions)

    def failover_step(self, step: str, seconds: float) -> None:
        """B1.05: detect (the stream broke), decide (the event's turn), write (all confirmed), notify (all brokers answered).

        What follows, the brokers measure: `ReplicationMetrics`.
        """
        self._steps.labels(step).observe(seconds)

    def take_over_step(self, step: str, seconds: float) -> None:
        """read (from winning until the snapshot is here), decide, notify (every broker has answered everything)."""
        self._take_over_steps.labels(step).observe(seconds)

    def watch_queue(self, size: Callable[[], int]) -> None:
        """`size` is called at each scrape, on another thread: let it be a len()."""
        self._queue.set_function(lambda: float(size()))

    def handled(self, event: str, waited_s: float, took_s: float) -> None:
        """`event` is the name of the event's class."""
        self._queue_wait.observe(waited_s)
        self._processing.labels(event).observe(took_s)
