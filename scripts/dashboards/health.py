"""Is the cluster well: what any board begins with, and the time lines that show what happened."""

from itertools import combinations
from typing import Final

from dashboards.panels import (
    GREEN,
    GROUP,
    ORANGE,
    RANGE,
    RATE,
    RED,
    TOPIC,
    Kind,
    Panel,
    alarm_above,
    at_least,
    exactly,
    health,
    states,
    warn_above,
)
from dashboards.proof import Fault, Proof, under_load
from dashboards.rules import of_active

REMEMBERED: Final = "15m"
"""A time line goes on for so long to show a process or group that no series tells of any more."""
BROKERS_ALIVE: Final = health(
    "Brokers alive",
    of_active('tidelog_controller_brokers{state="alive"}'),
    "Brokers that are alive, as the active controller sees them.",
    at_least(1),
    Proof(Fault.KILL_LEADER, "min == 3", "min <= 2", "last == 3"),
    Proof(Fault.KILL_BROKERS, "min == 3", "min == 0", "last == 3"),
)
ACTIVE_CONTROLLERS: Final = health(
    "Active controllers",
    "sum(tidelog_controller_active)",
    "Exactly one, except during a failover.",
    exactly(1),
    Proof(Fault.KILL_CONTROLLER, "min == 1, max == 1", "min == 0, max == 1", "min == 1, max == 1"),
)
OFFLINE_PARTITIONS: Final = health(
    "Without leader",
    of_active("tidelog_controller_offline_partitions"),
    "Partitions without a leader: they take no writes.",
    alarm_above(1),
    Proof(Fault.KILL_LEADER, "max == 0", "max >= 1", "last == 0"),
    Proof(Fault.KILL_BROKERS, "max == 0", "max == 8", "last == 0"),
    Proof(Fault.KILL_CONTROLLER, "max == 0", "fewest == 0, max == 0", "last == 0"),
)
UNDER_REPLICATED: Final = health(
    "Under replicated",
    of_active("tidelog_controller_under_replicated_partitions"),
    "Partitions with fewer replicas in sync than assigned. A partition without a leader has none in sync.",
    warn_above(1),
    Proof(Fault.KILL_LEADER, "max == 0", "max >= 6", "last == 0"),
    Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max >= 2", "last == 0"),
    Proof(Fault.KILL_BROKERS, "max == 0", "max == 8", "last == 0"),
)
UNDER_MIN_ISR: Final = health(
    "Under min ISR",
    of_active("tidelog_controller_under_min_isr_partitions"),
    "Partitions that refuse acks=all, including those without a leader.",
    alarm_above(1),
    Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max == 0", "max == 0"),
    Proof(Fault.LOSE_TWO, "max == 0", "max >= 6", "last == 0"),
    Proof(Fault.KILL_BROKERS, "max == 0", "max == 8", "last == 0"),
)
AT_MIN_ISR: Final = health(
    "At min ISR",
    of_active("tidelog_controller_at_min_isr_partitions"),
    "Partitions that refuse acks=all after one more loss. A partition with one replica always counts.",
    warn_above(1),
    Proof(Fault.KILL_LEADER, "max == 1", "max >= 6", "last == 1"),
)
OFFLINE_REPLICAS: Final = health(
    "Offline replicas",
    "sum(tidelog_broker_offline_replicas)",
    "Replicas whose disk failed, or which are damaged. Another replica serves the partition, or none does.",
    alarm_above(1),
    under_load("series == 1, max == 0"),
    Proof(Fault.DISK_ERROR, "max == 0", "max == 1", "last == 0"),
)
UNCLEAN: Final = health(
    "Unclean elections",
    f"sum(increase(tidelog_controller_unclean_leader_elections_total{RANGE}))",
    "Leaders elected from outside the ISR in the time shown. Acknowledged records may be lost.",
    alarm_above(0.5),
    Proof(Fault.LOSE_TWO, "max == 0", "max > 0"),
)
TRUNCATED: Final = health(
    "Records truncated",
    f"sum(increase(tidelog_replica_truncated_records_total{RANGE}))",
    "Records cut from followers' logs in the time shown. Except after an unclean election, none of them was acknowledged "
    "with acks=all.",
    warn_above(0.5),
    under_load("max == 0"),  # followers of a dead leader may or may not have what it alone had
)
LOST: Final = health(
    "Acked, but lost",
    f"sum(increase(tidelog_e2e_lost_total{RANGE}))",
    "Records of the traffic process, in the time shown, that were acknowledged with acks=all and cannot be read.",
    alarm_above(0.5),
    under_load("series == 1, max == 0"),
    *(Proof(fault, after="series == 1, max == 0") for fault in (Fault.KILL_LEADER, Fault.LOSE_TWO)),
)
ZK_SESSIONS: Final = health(
    "ZooKeeper sessions",
    'sum(tidelog_zk_session_state{state="connected"})',
    "Connected sessions of all brokers and controllers.",
    at_least(1),
    Proof(Fault.KILL_ZOOKEEPER, "min == 5", "min < 5", "last == 5"),
)
ALERTS_FIRING: Final = health(
    "Alerts firing",
    'count(ALERTS{alertstate="firing"}) or vector(0)',
    "The description of each alert says what to do.",
    alarm_above(1),
    under_load("max == 0"),
    # EventLoopBlocked fires, which does not wait for its condition to last.
    Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max >= 1", "max == 0"),
    Proof(Fault.RESTART, "max == 0", "max == 0", "max == 0"),
)
ACTIVE_FAULTS: Final = health(
    "Faults injected now",
    "sum(tidelog_chaos_fault_active) or vector(0)",
    "Faults that a chaos run injects.",
    warn_above(1),
    Proof(Fault.KILL_LEADER, "max == 0", "max == 1", "last == 0"),
)

TARGETS: Final = 'up{job!="chaos"}'
PROCESSES: Final = Panel(
    "Processes",
    {TARGETS: "{{job}} {{instance}}"},
    "Up: the process answers a scrape. A process whose event loop hangs does not.",
    (
        under_load("min == 1"),
        Proof(Fault.KILL_LEADER, "min == 1", "min{job=broker} == 0", "last == 1"),
        Proof(Fault.PAUSE_FOLLOWER, "min == 1", "min{job=broker} == 0", "last == 1"),
        Proof(Fault.KILL_AGENTS, "min == 1", "min{job=agent} == 0", "last == 1"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=at_least(1),
    names={0: "down", 1: "up"},
)
BROKER_STATE: Final = states(
    "tidelog_controller_broker_state", "broker", {"alive": 1, "suspected": 2, "shutting_down": 3}
)
BROKER_STATES: Final = Panel(
    "Brokers",
    {
        f"{BROKER_STATE} or 0 * max by (broker) (last_over_time(tidelog_controller_broker_state[{REMEMBERED}])) "
        "and on () tidelog_controller_active == 1": "broker {{broker}}"
    },
    "Brokers as the active controller sees them. Suspected: its stream broke and nothing listens on its port, so it leads no "
    "partition. Gone: it has no session, but had one in the last quarter of an hour. A gap: no controller is active.",
    (
        Proof(
            Fault.KILL_LEADER,
            "fewest == 3, max == 1, min == 1",
            "max == 2, min == 0",
            "fewest == 3, max == 1, min == 1",
        ),
        Proof(Fault.KILL_BROKERS, during="min == 0, fewest == 3", after="min == 1"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, RED), (1, GREEN), (2, RED), (3, ORANGE)),
    names={0: "gone", 1: "alive", 2: "suspected", 3: "shutting down"},
)
CONTROLLERS: Final = Panel(
    "Active controller",
    {"tidelog_controller_active": "{{instance}}"},
    "The controller that is active.",
    (
        Proof(Fault.KILL_CONTROLLER, "max == 1, changes == 0", "rise == 1, fewest <= 1", "changes == 0, fewest == 2"),
        Proof(Fault.KILL_LEADER, during="changes == 0"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, "gray"), (1, GREEN)),
    names={0: "standby", 1: "active"},
)
LEADERS: Final = Panel(
    "Leader by partition",
    {
        f"max by (topic, partition) (tidelog_partition_leader{{{TOPIC}}}) "
        f"or (0 * max by (topic, partition) (tidelog_partition_leader_epoch{{{TOPIC}}}) - 1 "
        f"and on () {of_active('tidelog_controller_offline_partitions')} > 0)": "{{topic}}-{{partition}}"
    },
    "Broker id, reported only by the leader. None: only followers report the partition, and the controller counts partitions "
    "without a leader. A gap: nothing is known.",
    (
        Proof(
            Fault.KILL_LEADER,
            "changes == 0, fewest{topic=events} == 6, fewest{topic=single} == 1",
            "changes{topic=events} >= 1, fewest{topic=single} == 0",
            "changes == 0, fewest{topic=events} == 6, fewest{topic=single} == 1",
        ),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, RED), (0, "gray"), (1, "blue"), (2, "purple"), (3, "yellow"), (4, ORANGE), (5, GREEN)),
    names={-1: "none"},
)
IDS: Final = range(6)
"""Brokers of the containers and of local clusters: an ISR with others is shown as a number."""
ISRS: Final = {
    sum(1 << each for each in members): " ".join(map(str, members))
    for size in range(1, 4)
    for members in combinations(IDS, size)
}
MEMBERS: Final = Panel(
    "In-sync replicas by partition",
    {
        f"sum by (topic, partition) (2 ^ max by (topic, partition, broker) (tidelog_partition_isr_member{{{TOPIC}}}))": (
            "{{topic}}-{{partition}}"
        )
    },
    "The ids of the brokers in each ISR, reported by the leader. A gap: no broker leads the partition, or the leader does "
    "not answer.",
    (
        Proof(
            Fault.KILL_LEADER,
            "changes == 0, max{topic=events} == 7",
            "drop{topic=events} >= 1",
            "last{topic=events} == 7",
        ),
        Proof(Fault.PAUSE_FOLLOWER, "min{topic=events} == 7", "min{topic=events} < 7", "last{topic=events} == 7"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, RED),),
    names=ISRS,
    shades={mask: (RED, ORANGE, GREEN)[len(text.split()) - 1] for mask, text in ISRS.items()},
)
ISR_SIZES: Final = Panel(
    "ISR size by partition",
    {f"max by (topic, partition) (tidelog_partition_isr_size{{{TOPIC}}})": "{{topic}}-{{partition}}"},
    "Reported by the leader.",
    (
        Proof(Fault.KILL_LEADER, "min{topic=events} == 3", "min{topic=events} == 2", "last{topic=events} == 3"),
        Proof(Fault.PAUSE_FOLLOWER, "min{topic=events} == 3", "min{topic=events} == 2", "last{topic=events} == 3"),
        Proof(Fault.LOSE_TWO, "min{topic=events} == 3", "min{topic=events} == 1", "last{topic=events} == 3"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, RED), (2, ORANGE), (3, GREEN)),
)
GROUP_STATES: Final = {"Empty": 0, "PreparingRebalance": 1, "CompletingRebalance": 2, "Stable": 3}
GROUP_STATE: Final = Panel(
    "Group state",
    {
        f"{states('tidelog_group_state', 'group', GROUP_STATES, GROUP)} "
        f"or 0 * max by (group) (last_over_time(tidelog_group_state{{{GROUP}}}[{REMEMBERED}])) + 4": "{{group}}"
    },
    "Unknown: no coordinator reports the group, but one did in the last quarter of an hour.",
    (
        Proof(Fault.KILL_AGENTS, "min == 3, fewest == 1", "min == 0", "last == 3"),
        Proof(Fault.KILL_LEADER, "min == 3, max == 3", "max == 4, fewest == 1", "last == 3"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, "gray"), (1, ORANGE), (2, "yellow"), (3, GREEN), (4, RED)),
    names={**{code: text for text, code in GROUP_STATES.items()}, 4: "unknown"},
)
FAULTS: Final = Panel(
    "Faults",
    {"max by (fault, target) (tidelog_chaos_fault_active)": "{{fault}} {{target}}"},
    "Faults of a chaos run. Nothing is shown before the first fault and after the run.",
    (
        under_load("series == 0"),
        Proof(Fault.KILL_LEADER, during="max == 1", after="last == 0"),
        Proof(Fault.PAUSE_FOLLOWER, during="max{fault=pause} == 1", after="last == 0"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, "transparent"), (1, RED)),
    names={0: "healed", 1: "active"},
)
ALERTS: Final = Panel(
    "Alerts",
    {'max by (alertname) (ALERTS{alertstate="pending"} or 2 * ALERTS{alertstate="firing"})': "{{alertname}}"},
    "Pending: the condition of the alert holds, but has not held for long enough yet.",
    (
        under_load("series{alertname=OfflinePartitions} == 0, series{alertname=UnderReplicatedPartitions} == 0"),
        Proof(
            Fault.KILL_LEADER,
            "series{alertname=OfflinePartitions} == 0",
            "max{alertname=OfflinePartitions} >= 1, max{alertname=UnderReplicatedPartitions} >= 1",
        ),
        Proof(Fault.PAUSE_FOLLOWER, during="max{alertname=EventLoopBlocked} == 2"),
    ),
    Kind.TIMELINE,
    width=12,
    colors=((None, ORANGE), (2, RED)),
    names={1: "pending", 2: "firing"},
)

LOAD: Final = (
    Panel(
        "Records in",
        {f"sum by (topic) (rate(tidelog_records_in_total{{{TOPIC}}}{RATE}))": "{{topic}}"},
        "Records per second appended by leaders.",
        (under_load("last{topic=events} > 50"), Proof(Fault.LOSE_TWO, during="min{topic=events} < 1")),
    ),
    Panel(
        "Bytes in and out",
        {
            f"sum(rate(tidelog_bytes_in_total{{{TOPIC}}}{RATE}))": "in",
            f"sum(rate(tidelog_bytes_out_total{{{TOPIC}}}{RATE}))": "out",
        },
        "Bytes from producers and to readers, without replication.",
        (under_load("last > 1000"), Proof(Fault.LOSE_TWO, during="min < 500", of="in")),
        unit="Bps",
    ),
    Panel(
        "Produce and fetch requests",
        {f'sum by (api) (rate(tidelog_requests_total{{api=~"Produce|Fetch"}}{RATE}))': "{{api}}"},
        "Requests that brokers answered.",
        (under_load("series == 2, last{api=Fetch} > 1"),),
        unit="reqps",
    ),
)

CLUSTER: Final = (
    BROKERS_ALIVE,
    ACTIVE_CONTROLLERS,
    OFFLINE_PARTITIONS,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    OFFLINE_REPLICAS,
    ZK_SESSIONS,
)
DATA: Final = (UNCLEAN, TRUNCATED, LOST, ALERTS_FIRING)
