"""Inside the processes: where the time of a request goes, logs and disks, the event loop."""

from typing import Final

from dashboards.panels import RATE, Panel, or_none, quantile
from dashboards.proof import Fault, Proof, under_load
from dashboards.rules import request_quantile

ERRORS: Final = f'sum by (api, code) (rate(tidelog_requests_total{{code!="NONE"}}{RATE}))'
FAILED: Final = f"sum by (instance, task) (increase(tidelog_task_failures_total{RATE}))"
FAILED_OF_COORDINATOR: Final = f"sum by (instance, task) (increase(tidelog_coordinator_task_failures_total{RATE}))"
REQUESTS: Final = (
    Panel(
        "Requests",
        {f"sum by (api) (rate(tidelog_requests_total{RATE}))": "{{api}}"},
        "Requests that brokers and controllers answered.",
        (
            under_load("last{api=Produce} > 1, last{api=Fetch} > 1"),
            Proof(Fault.KILL_LEADER, during="max{api=ClusterMetadata} > 0"),
        ),
        unit="reqps",
    ),
    Panel(
        "Errors",
        {or_none(ERRORS, "code", "broker"): "{{api}} {{code}}"},
        "Requests, by the first error in their response.",
        (
            under_load("max == 0"),
            Proof(
                Fault.LOSE_TWO, during="max{code=NOT_ENOUGH_REPLICAS} > 0", after="last{code=NOT_ENOUGH_REPLICAS} == 0"
            ),
        ),
        unit="reqps",
    ),
    Panel(
        "Denied",
        {or_none(f"sum by (api) (rate(tidelog_requests_denied_total{RATE}))", "api", "broker"): "{{api}}"},
        "Requests that the authorizer denied, in whole or for some of their topics.",
        (under_load("series >= 1, max == 0"),),
        unit="reqps",
    ),
    Panel(
        "Parked requests",
        {"sum by (op) (tidelog_purgatory_size)": "{{op}}"},
        "Requests with acks=all that wait for followers, and fetches that wait for records.",
        (
            under_load("series >= 2, max < 200"),
            Proof(Fault.PAUSE_FOLLOWER, during="max{op=Produce} > 0", after="last{op=Produce} < 20"),
        ),
    ),
    Panel(
        "Parked too long",
        {f"sum by (op) (increase(tidelog_purgatory_expirations_total{RATE}))": "{{op}}"},
        "Requests that ran out of time. A produce request is then answered with REQUEST_TIMED_OUT, a fetch with the records "
        "that there are.",
        (under_load("series >= 2, max{op=Produce} == 0"), Proof(Fault.KILL_LEADER, after="max{op=Produce} == 0")),
    ),
    Panel(
        "Produce latency",
        {
            request_quantile(0.5, 'api="Produce",phase="total"'): "p50",
            request_quantile(0.99, 'api="Produce",phase="total"'): "p99",
            request_quantile(1, 'api="Produce",phase="total"'): "slowest",
        },
        "Time at the leader from a request to its response.",
        (
            under_load("last > 0, last < 5"),
            Proof(Fault.PAUSE_FOLLOWER, "max <= 1", "max > 1", of="slowest"),
        ),
        unit="s",
    ),
    Panel(
        "Fetch, local phase, p99",
        {quantile(0.99, "tidelog_request_duration_seconds", 'api="Fetch",phase="local"', "instance"): "{{instance}}"},
        "Time to read, without the wait for new records.",
        (under_load("series == 3, last > 0, last < 2"), Proof(Fault.KILL_LEADER, during="fewest <= 2")),
        unit="s",
    ),
    Panel(
        "Steps of a change of leader, p99",
        {quantile(0.99, "tidelog_replica_failover_step_seconds", by="step"): "{{step}}"},
        "On brokers, for one partition each. connect: until every follower in the ISR has stated its position. truncate: "
        "time in which a follower truncates its log before it fetches.",
        (Proof(Fault.KILL_LEADER, "series == 0", "max{step=connect} > 0, max{step=connect} < 10"),),
        unit="s",
    ),
    Panel(
        "Replicas and leaders",
        {"tidelog_broker_partitions": "{{instance}} replicas", "tidelog_broker_leaders": "{{instance}} leaders"},
        "On each broker.",
        (
            under_load("min >= 1, fewest == 3, changes == 0"),
            Proof(Fault.KILL_LEADER, during="fewest <= 2"),
            Proof(Fault.KILL_LEADER, during="rise >= 1", of="{{instance}} leaders"),
        ),
    ),
)

LOGS: Final = (
    Panel(
        "Log size",
        {"sum by (instance) (tidelog_log_size_bytes)": "{{instance}}"},
        "Size of the segments of all replicas.",
        (under_load("series == 3, rise > 1000, drop == 0"),),
        unit="bytes",
    ),
    Panel(
        "Segments",
        {"sum by (instance) (tidelog_log_segments)": "{{instance}}"},
        "Segments of all replicas. One segment of each replica is written to.",
        (
            under_load("series == 3, min >= 6"),
            Proof(Fault.KILL_LEADER, during="fewest <= 2", after="fewest == 3, min >= 6"),
        ),
    ),
    Panel(
        "Records kept",
        {
            "max by (topic) (sum by (instance, topic) (tidelog_partition_log_end_offset - tidelog_partition_log_start_offset))": (
                "{{topic}}"
            )
        },
        "On the broker that has the most of them.",
        (under_load("rise{topic=events} > 100, drop == 0"),),
    ),
    Panel(
        "Log flush, p99",
        {quantile(0.99, "tidelog_log_flush_duration_seconds", by="instance"): "{{instance}}"},
        "Time of one fsync: with flush=sync, at every roll of a segment, and in the background.",
        (under_load("series == 3, last > 0, last < 10"),),
        unit="s",
    ),
    Panel(
        "Log recovery",
        {"tidelog_log_recovery_duration_seconds": "{{instance}}"},
        "Time to open the logs at the last start.",
        (
            under_load("series == 3, min > 0, max < 30, changes == 0"),
            Proof(Fault.KILL_LEADER, during="changes >= 1, fewest <= 2"),
        ),
        unit="s",
    ),
    Panel(
        "Free space",
        {"tidelog_data_dir_free_bytes": "{{instance}}"},
        "Free space on the file system of each data directory. When it runs out, replicas of the broker go offline and other "
        "brokers take over.",
        (under_load("series == 3, min > 1000000"), Proof(Fault.KILL_LEADER, during="fewest <= 2", after="fewest == 3")),
        unit="bytes",
    ),
)


def _upkeep(title: str, counter: str, what: str, *proofs: Proof, unit: str = "short") -> Panel:
    """The work of each broker in a second on the upkeep of its logs."""
    return Panel(title, {f"sum by (instance) (rate({counter}{RATE}))": "{{instance}}"}, what, proofs, unit=unit)


def _compacts(during: str) -> tuple[Proof, Proof]:
    """Something happens while there is something to compact."""
    idle = "series == 3, max == 0"
    return under_load(idle), Proof(Fault.COMPACT, idle, during, idle)


UPKEEP: Final = (
    Panel(
        "Copies of moves",
        {f"sum by (instance, direction) (rate(tidelog_reassignment_bytes_total{RATE}))": "{{instance}} {{direction}}"},
        "Bytes that reassignments copy to replicas that are not yet in the ISR. A throttle limits each side.",
        (
            under_load("series == 6, max == 0"),
            Proof(
                Fault.MOVE,
                "max == 0",
                "max{direction=out} > 50000, max{direction=in} > 50000",
                "series == 6, max == 0",
            ),
        ),
        unit="Bps",
    ),
    _upkeep(
        "Compaction",
        "tidelog_log_cleaner_read_bytes_total",
        "Bytes that finished compactions have read, in topics with cleanup.policy=compact.",
        *_compacts("max > 1000"),
        unit="Bps",
    ),
    _upkeep(
        "Records removed by compaction",
        "tidelog_log_cleaner_removed_records_total",
        "Records per second. The newest record of each key stays.",
        *_compacts("max > 10"),
    ),
    Panel(
        "Left to compact",
        {"tidelog_log_cleaner_max_dirty_ratio": "{{instance}}"},
        "For the log with the most to compact: the share that no compaction has seen. It is compacted when it exceeds "
        "min.cleanable.dirty.ratio. A broker that stays far above that ratio does not keep up.",
        (under_load("series == 3, max == 0"), Proof(Fault.COMPACT, "max == 0", "max > 0.5", "series == 3, max == 0")),
        unit="percentunit",
    ),
    _upkeep(
        "Scrub",
        "tidelog_log_scrub_read_bytes_total",
        "Bytes that are read again to find corrupt batches: closed segments, and what is flushed of the last one.",
        under_load("series == 3, min > 1000"),
        unit="Bps",
    ),
    Panel(
        "Compactions broken off, corrupt batches",
        {
            f"sum by (instance) (increase(tidelog_log_cleaner_broken_off_total{RATE}))": "{{instance}} broken off",
            f"sum by (instance) (increase(tidelog_log_corrupt_batches_found_total{RATE}))": "{{instance}} corrupt",
        },
        "A log whose compaction was broken off is left alone for a minute. A copy with a corrupt batch is fetched again "
        "while another replica is in sync. The broker's log names both.",
        (
            under_load("series == 3, max == 0"),
            Proof(Fault.COMPACT, "max == 0", "max > 0", "series == 3, max == 0", of="{{instance}} corrupt"),
        ),
    ),
)

PROCESS: Final = (
    Panel(
        "CPU",
        {f"rate(process_cpu_seconds_total{RATE})": "{{job}} {{instance}}"},
        "Share of one core.",
        (
            under_load("series >= 9, max{job=broker} > 0.005, max < 2.5"),
            Proof(Fault.PAUSE_FOLLOWER, during="min{job=broker} < 0.5"),
        ),
        unit="percentunit",
    ),
    Panel(
        "Memory",
        {"process_resident_memory_bytes": "{{job}} {{instance}}"},
        "Resident memory.",
        (under_load("series >= 9, min > 10000000, max < 2000000000"),),
        unit="bytes",
    ),
    Panel(
        "Open files",
        {"process_open_fds": "{{job}} {{instance}}"},
        "Open files and sockets.",
        (
            under_load("series >= 9, min > 5, max < 500"),
            Proof(Fault.LOSE_TWO, during="fewest <= 7", after="fewest == 9, max < 500"),
        ),
    ),
    Panel(
        "Event loop lag",
        {"tidelog_event_loop_lag_seconds": "{{job}} {{instance}}"},
        "The longest delay of a timer in the last 5 s. Past a third of the session timeout, the session is in danger.",
        (under_load("series == 9, max < 2"), Proof(Fault.PAUSE_FOLLOWER, "max < 2", "max{job=broker} > 2", "last < 2")),
        unit="s",
    ),
    Panel(
        "Slow steps of the event loop",
        {f"increase(tidelog_event_loop_slow_steps_total{RATE})": "{{job}} {{instance}}"},
        "Steps that took longer than 100 ms, in which the process did nothing else. Its log names the functions. A stop of the "
        "whole process is no step.",
        (under_load("series >= 9, min >= 0"),),
    ),
    Panel(
        "Responses in flight",
        {"tidelog_responses_in_flight_bytes": "{{job}} {{instance}}"},
        "Memory that responses take which their readers have not read yet; at most responses_max_bytes.",
        (under_load("series >= 9, min >= 0, max < 269000000"),),
        unit="bytes",
    ),
    Panel(
        "Failed tasks",
        {
            or_none(FAILED, "task", "broker"): "{{instance}} {{task}}",
            or_none(FAILED_OF_COORDINATOR, "task", "broker"): "{{instance}} coordinator {{task}}",
        },
        "Each one is a bug. The log of the process has the stack trace.",
        (
            under_load("series >= 1, max == 0"),
            *(
                Proof(f, during="max == 0")
                for f in (Fault.KILL_LEADER, Fault.PAUSE_FOLLOWER, Fault.KILL_ZOOKEEPER, Fault.LOSE_TWO)
            ),
        ),
    ),
    Panel(
        "Uptime",
        {"time() - process_start_time_seconds": "{{job}} {{instance}}"},
        "A fall to zero is a restart.",
        (
            under_load("series >= 9, min > 0, drop == 0"),
            Proof(Fault.KILL_LEADER, during="drop{job=broker} > 5, drop{job=controller} == 0"),
        ),
        unit="s",
    ),
    Panel(
        "Versions",
        {"count by (version, python) (tidelog_build_info)": "{{version}}, Python {{python}}"},
        "Processes of each version. There are two versions during a rolling upgrade.",
        (under_load("series == 1, max == 9"), Proof(Fault.KILL_LEADER, during="min <= 8", after="last == 9")),
    ),
    Panel(
        "Series left out",
        {
            "sum(tidelog_metrics_partitions_left_out)": "partitions",
            "sum(tidelog_coordinator_groups_left_out)": "groups",
            "sum(tidelog_coordinator_partitions_left_out)": "committed offsets",
        },
        "Partitions and groups without series of their own (metrics_partitions_max, metrics_groups_max). Panels by partition "
        "or group do not show them; totals include them.",
        (under_load("series == 1, max == 0"),),
    ),
)
