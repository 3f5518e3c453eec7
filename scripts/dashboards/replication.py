"""What replication does under faults, and what clients notice of it."""

from typing import Final

from dashboards import groups, health, rules
from dashboards.panels import RANGE, RATE, TOPIC, Panel, or_none, peak, quantile
from dashboards.proof import Fault, Proof, under_load
from dashboards.rules import request_quantile

SHRINKS: Final = f"sum by (cause) (increase(tidelog_controller_isr_shrinks_total{RATE})) > 0"
EXPANSIONS: Final = f"sum by (cause) (increase(tidelog_controller_isr_expansions_total{RATE})) > 0"
ISR_CHANGES: Final = Panel(
    "ISR shrinks and expansions",
    {
        or_none(SHRINKS, "cause", "controller"): "shrinks, {{cause}}",
        or_none(EXPANSIONS, "cause", "controller"): "expansions, {{cause}}",
    },
    "Partitions whose ISR the controller changed, by cause. leader: the leader asked for the change.",
    (
        under_load("series == 1, max == 0"),
        Proof(Fault.KILL_LEADER, "max == 0", "max{cause=broker gone} > 0", "max == 0", of="shrinks, {{cause}}"),
        Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max{cause=leader} > 0", "max == 0"),
    ),
    bars=True,
)
LEADING: Final = "and on (instance, topic, partition) tidelog_partition_leader"
LOWEST: Final = f"min_over_time(tidelog_partition_high_watermark{{{TOPIC}}}{RANGE} @ end())"
HIGH_WATERMARKS: Final = Panel(
    "High watermark",
    {
        f"max by (topic, partition) (tidelog_partition_high_watermark{{{TOPIC}}} {LEADING}) "
        f"- min by (topic, partition) ({LOWEST})": "{{topic}}-{{partition}}"
    },
    "First offset that is not committed, reported by the leader, minus its lowest value in the time shown, so that all "
    "partitions begin at 0. A flat line is a stall, or a partition without load. In a gap no broker leads.",
    (
        under_load("series == 8, rise{topic=events} > 10"),
        Proof(Fault.KILL_LEADER, during="rise{topic=events} > 10, fewest{topic=single} == 0", after="series == 8"),
    ),
    legend=False,
)
STALLS: Final = Panel(
    "Longest stall of a high watermark",
    {
        f"max by (topic, partition) ({peak(f'tidelog_partition_high_watermark_stall_seconds{{{TOPIC}}}')})": (
            "{{topic}}-{{partition}}"
        )
    },
    "The longest time that records of each partition waited to be committed since the previous scrape, reported by the "
    "leader.",
    (
        under_load("series{topic=events} == 6, max < 1"),
        Proof(Fault.PAUSE_FOLLOWER, "max{topic=events} < 1", "max{topic=events} > 1", "last{topic=events} < 1"),
    ),
    unit="s",
    legend=False,
)
ACK_GAPS: Final = Panel(
    "Longest gap between acknowledgements",
    {f"max by (partition) ({peak('tidelog_e2e_longest_ack_gap_seconds')})": "partition {{partition}}"},
    "The longest time that producers of the traffic process waited on each partition since the previous scrape.",
    (
        under_load("series == 6, max < 4"),
        Proof(Fault.KILL_LEADER, "max < 4", "max > 0.05", "last < 4"),  # its death alone takes so long to be noticed
        Proof(Fault.LOSE_TWO, "max < 4", "max > 8", "last < 4"),
    ),
    unit="s",
    legend=False,
)
STORY: Final = (
    health.BROKERS_ALIVE,
    health.OFFLINE_PARTITIONS,
    health.UNDER_REPLICATED,
    health.LOST,
    health.LEADERS,
    health.MEMBERS,
    ISR_CHANGES,
    ACK_GAPS,
    HIGH_WATERMARKS,
    STALLS,
    groups.REBALANCES,
    groups.LAG,
)

REPLICATION: Final = (
    Panel(
        "Log end above high watermark",
        {f"{rules.NOT_COMMITTED.name}{{{TOPIC}}}": "{{topic}}-{{partition}}"},
        "Records appended by the leader and not yet committed. The number grows while a member of the ISR does not answer.",
        (
            under_load("series == 8"),
            Proof(Fault.PAUSE_FOLLOWER, during="max{topic=events} > 0", after="last < 100"),
        ),
        legend=False,
    ),
    Panel(
        "Follower lag, records",
        {f"max by (follower) ({rules.FOLLOWER_RECORDS.name}{{{TOPIC}}})": "broker {{follower}}"},
        "Lag of the worst partition of each follower.",
        (Proof(Fault.PAUSE_FOLLOWER, "fewest == 3, max < 50", "max > 0", "last < 50"),),
    ),
    Panel(
        "Follower lag, seconds",
        {f"max by (follower) ({rules.FOLLOWER_SECONDS.name}{{{TOPIC}}})": "broker {{follower}}"},
        "Time since the first append that the follower has not acknowledged. Past replica.lag.time.max the follower leaves "
        "the ISR.",
        (Proof(Fault.PAUSE_FOLLOWER, "max < 1", "max > 2", "last < 1"),),
        unit="s",
    ),
    Panel(
        "Replication",
        {f"sum by (instance, direction) (rate(tidelog_replication_bytes_total{RATE}))": "{{instance}} {{direction}}"},
        "Bytes of batches sent to followers and received from leaders.",
        (under_load("series == 6, last > 500"), Proof(Fault.LOSE_TWO, during="min < 10", after="max > 500")),
        unit="Bps",
    ),
    Panel(
        "ISR changes that leaders asked for",
        {
            f"sum(increase(tidelog_isr_shrinks_total{RATE}))": "shrinks",
            f"sum(increase(tidelog_isr_expands_total{RATE}))": "expansions",
            f"sum(increase(tidelog_isr_update_failures_total{RATE}))": "refused",
        },
        "Changes that were committed, and proposals that the controller refused. The controller shrinks the ISRs of a broker "
        "that is gone by itself.",
        (
            under_load("max == 0"),
            Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max > 0", "last == 0", of="shrinks"),
            Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max > 0", "last == 0", of="expansions"),
        ),
    ),
    Panel(
        "Truncated records",
        {f"sum by (instance) (increase(tidelog_replica_truncated_records_total{RATE}))": "{{instance}}"},
        "Records cut by followers whose history diverged from the leader's.",
        (under_load("max == 0"),),
    ),
    Panel(
        "Leader epoch",
        {f"max by (topic, partition) (tidelog_partition_leader_epoch{{{TOPIC}}})": "{{topic}}-{{partition}}"},
        "Each step is an election.",
        (
            Proof(Fault.KILL_LEADER, "changes == 0", "rise{topic=events} >= 1, drop == 0", "changes == 0"),
            Proof(Fault.KILL_CONTROLLER, during="changes == 0"),
        ),
        legend=False,
    ),
    Panel(
        "Follower behind the high watermark",
        {"tidelog_replica_fetcher_max_lag_records": "{{instance}}"},
        "Lag of the replica on each broker that is farthest behind, as the follower sees it.",
        (
            under_load("fewest == 3, max < 200"),
            Proof(Fault.KILL_LEADER, during="fewest <= 2", after="fewest == 3, last < 200"),
        ),
    ),
    Panel(
        "ISR changes without an answer",
        {"tidelog_isr_change_pending_seconds": "{{instance}}"},
        "The longest time that a change proposed by this broker as leader has waited. While no controller answers, no ISR "
        "shrinks.",
        (under_load("fewest == 3, max == 0"), Proof(Fault.KILL_LEADER, during="fewest <= 2", after="last == 0")),
        unit="s",
    ),
    Panel(
        "Replicas behind a batch that is too large",
        {"tidelog_replica_held_back_partitions": "{{instance}}"},
        "Replicas of partitions led by this broker whose next batch is above fetch_max_bytes of the leader or the follower. They "
        "get nothing until one of them is raised or the batch is deleted.",
        (under_load("fewest == 3, max == 0"),),
    ),
)

LAST_ACK: Final = "tidelog_e2e_last_ack_timestamp_seconds"
AVAILABILITY: Final = (
    Panel(
        "Acknowledged records",
        {
            f"sum(rate(tidelog_e2e_acked_total{RATE}))": "acknowledged",
            f"sum(rate(tidelog_e2e_failed_total{RATE}))": "failed",
            f'sum(rate(tidelog_e2e_not_sent_total{RATE})) or 0 * count(up{{job="traffic"}} == 1)': "not sent",
        },
        "Records of the traffic process per second, with acks=all.",
        (
            under_load("last > 50", of="acknowledged"),
            under_load("max == 0", of="failed"),
            under_load("max == 0", of="not sent"),
            Proof(Fault.LOSE_TWO, "min > 50", "min < 1", "last > 50", of="acknowledged"),
            Proof(Fault.KILL_CONTROLLER, "min > 50", "min > 20", "last > 50", of="acknowledged"),
        ),
    ),
    Panel(
        "Time since an acknowledgement",
        # A record that is acknowledged while the scrape is answered is newer than its time.
        {f"max by (partition) (clamp_min(timestamp({LAST_ACK}) - {LAST_ACK}, 0))": "partition {{partition}}"},
        "For each partition of the traffic process, at its last scrape.",
        (
            under_load("fewest == 6, min >= 0, max < 4"),
            Proof(Fault.LOSE_TWO, "max < 4", "max > 8", "last < 4"),
            Proof(Fault.KILL_CONTROLLER, during="max < 4"),
        ),
        unit="s",
        legend=False,
    ),
    Panel(
        "Time to recover",
        {
            f"sum by (fault) (increase(tidelog_chaos_time_to_recover_seconds_sum{RANGE})) / "
            f"sum by (fault) (increase(tidelog_chaos_time_to_recover_seconds_count{RANGE}))": "{{fault}}"
        },
        "For a chaos run: time from the end of a fault until every partition has a leader and a full ISR again, as the mean "
        "over the time shown.",
        (Proof(Fault.KILL_LEADER, after="last{fault=kill} > 0, last{fault=kill} < 60"),),
        unit="s",
    ),
    Panel(
        "Produce latency of clients",
        {quantile(q, "tidelog_e2e_produce_seconds"): f"p{q * 100:g}" for q in (0.5, 0.99)},
        "Time from a send to its acknowledgement, including retries.",
        (under_load("last > 0, last < 5"), Proof(Fault.PAUSE_FOLLOWER, "last < 1", "max > 1", of="p99")),
        unit="s",
    ),
    Panel(
        "Produce latency by phase",
        {
            request_quantile(0.99, 'api="Produce"', "phase"): "{{phase}}, p99",
            request_quantile(1, 'api="Produce"', "phase"): "{{phase}}, slowest",
        },
        "Time of one request at the leader. local: checking and appending. remote: waiting for followers.",
        (
            under_load("series == 3, last > 0, last{phase=local} < 2"),
            Proof(
                Fault.PAUSE_FOLLOWER,
                "max{phase=remote} <= 1",
                "max{phase=remote} > 1, max{phase=local} <= 1",
                of="{{phase}}, slowest",
            ),
        ),
        unit="s",
    ),
    Panel(
        "Produce refused",
        {or_none(f"sum by (reason) (rate(tidelog_produce_rejected_total{RATE}))", "reason", "broker"): "{{reason}}"},
        "Partitions of produce requests that were refused. Nothing was appended, except for "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
        (under_load("max == 0"), Proof(Fault.LOSE_TWO, "max == 0", "max{reason=NOT_ENOUGH_REPLICAS} > 0", "last == 0")),
        unit="reqps",
    ),
)

ROUND_TRIP: Final = Panel(
    "Round trip",
    {quantile(q, "tidelog_e2e_roundtrip_seconds"): name for q, name in ((0.5, "p50"), (0.99, "p99"), (1, "slowest"))},
    "Time from a send until the record was read back. A quick failover delays too few records to show in p99.",
    (under_load("last > 0, last < 5"), Proof(Fault.KILL_LEADER, during="max > 0.05", of="slowest")),
    unit="s",
)
CORRECTNESS: Final = (
    Panel(
        "Sent and read back",
        {
            f"sum(rate(tidelog_e2e_produced_total{RATE}))": "sent",
            f"sum(rate(tidelog_e2e_received_total{RATE}))": "read back",
        },
        "Records per second of the traffic process.",
        (under_load("last > 50"), Proof(Fault.LOSE_TWO, "min > 50", "min < 1", "last > 50", of="read back")),
    ),
    Panel(
        "Anomalies",
        {
            f"sum(increase(tidelog_e2e_{name}_total{RATE}))": name.replace("_", " ")
            for name in ("lost", "duplicated", "out_of_order")
        },
        "Anomalies in what the traffic process reads back. Its producer is idempotent, so each anomaly is a bug or the "
        "result of an unclean election.",
        (
            under_load("series == 1, max == 0"),
            *(
                Proof(fault, during="series == 1, max == 0", after="series == 1, max == 0")
                for fault in (Fault.KILL_LEADER, Fault.PAUSE_FOLLOWER, Fault.KILL_CONTROLLER, Fault.LOSE_TWO)
            ),
        ),
    ),
    ROUND_TRIP,
)
