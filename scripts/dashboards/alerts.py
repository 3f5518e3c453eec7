"""When somebody should look, and what to do then.

How long a condition must hold is stated beside each: longer than what heals by itself, which is a session timeout (6 s) and an
election for a lost broker or controller, replica.lag.time.max (10 s) for a follower, a catch-up after a restart, and RESTART_S
for a restart of every process at once. A condition looks back no further than its cause lasts, but where data was lost.
"""

from dataclasses import dataclass
from typing import Final

from dashboards import rules
from dashboards.health import TARGETS
from dashboards.proof import Fault, Proof, under_load
from dashboards.rules import of_active

CRITICAL: Final = "critical"
"""Data is in danger, or nobody can write."""
WARNING: Final = "warning"

RESTART_S: Final = 60
"""Every process stops and starts at once: ZooKeeper elects, sessions and leaders come back, followers catch up. That takes some
20 s, and twice as long on a busy machine."""
LAG_TIME_MAX_S: Final = 10
RECOVERY_LIMIT: Final = 12
"""Times replica.lag.time.max: so long may a follower need to fetch what it missed."""


@dataclass(frozen=True, slots=True)
class Alert:
    """`for_s`: seconds that the condition must hold without a break."""

    name: str
    query: str
    for_s: int
    severity: str
    summary: str
    what_to_do: str
    proofs: tuple[Proof, ...]


def fires(fault: Fault) -> Proof:
    """Its condition comes with the fault, and goes with it."""
    return Proof(fault, "series == 0", "series >= 1", "series == 0")


SILENT: Final = under_load("series == 0")

AVAILABILITY: Final = (
    Alert(
        "ActiveControllerCount",
        "(sum(tidelog_controller_active) or vector(0)) != 1",
        RESTART_S,
        CRITICAL,
        "{{ $value }} controllers act, not 1.",
        "Nobody elects leaders and no ISR changes until one does; what is led goes on. None: start one, or look at the alerts of "
        "ZooKeeper. Two: writes of the one with the lower controller epoch are refused; stop it.",
        (SILENT, fires(Fault.KILL_CONTROLLER)),
    ),
    Alert(
        "OfflinePartitions",
        f"{of_active('tidelog_controller_offline_partitions')} > 0",
        RESTART_S,
        CRITICAL,
        "{{ $value }} partitions have no leader.",
        "Nobody can write or read them. `tidelog topics describe --unavailable-partitions` names them and their replicas: start "
        "a broker of their last ISR. Only if none will ever come back: `tidelog elect-leaders --election-type unclean`, which "
        "may lose records.",
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.KILL_BROKERS)),
    ),
    Alert(
        "UnderMinIsrPartitions",
        # Without those that have no leader: OfflinePartitions tells of them.
        f"{of_active('tidelog_controller_under_min_isr_partitions')} - "
        f"{of_active('tidelog_controller_offline_partitions')} > 0",
        RESTART_S,
        CRITICAL,
        "{{ $value }} partitions refuse acks=all.",
        "Too few replicas are in sync. Start the brokers that are missing; if all run, look at Follower lag on *Replication and "
        "chaos*.",
        (SILENT, fires(Fault.LOSE_TWO), Proof(Fault.KILL_LEADER, during="series == 0")),
    ),
    Alert(
        "NoAcknowledgements",
        "sum(increase(tidelog_e2e_acked_total[10s])) == 0",
        RESTART_S - 10,  # without its window
        CRITICAL,
        "The traffic process gets no acknowledgement.",
        "Its producers use acks=all over every partition of its topic. Look at the other alerts first, then at *Availability* on "
        "*Replication and chaos*: errors by code say who refuses.",
        (SILENT, fires(Fault.LOSE_TWO)),
    ),
    Alert(
        "ProcessDown",
        f"{TARGETS} == 0",
        RESTART_S,
        WARNING,
        "{{ $labels.job }} {{ $labels.instance }} does not answer.",
        "It is down, paused, cut off, or its event loop hangs. Read the end of its log; start it again.",
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "CrashLoop",
        # A restart, and a fault and its repair, are no loop.
        'changes(process_start_time_seconds{job!="prometheus"}[5m]) > 2',
        0,
        WARNING,
        "{{ $labels.job }} {{ $labels.instance }} was started {{ $value }} times in 5 minutes.",
        "Something starts it again each time that it ends. Its log, from before each start, says what ends it.",
        (
            SILENT,
            Proof(Fault.RESTART, after="series == 0"),
            Proof(Fault.CRASH_LOOP, "series{job=controller} == 0", after="series{job=controller} == 1"),
        ),
    ),
)

DATA: Final = (
    Alert(
        "UncleanLeaderElection",
        "sum(increase(tidelog_controller_unclean_leader_elections_total[5m])) > 0",
        0,
        CRITICAL,
        "A leader was elected from outside the ISR.",
        "Acknowledged records may be gone: `Records truncated` on *Cluster health* counts those that were cut from other "
        "replicas. The controller's log names the partitions; unclean.leader.election.enable lets it do so, or an operator did.",
        (SILENT, Proof(Fault.LOSE_TWO, "series == 0", "series == 1")),
    ),
    Alert(
        "AcknowledgedRecordsLost",
        "sum(increase(tidelog_e2e_lost_total[5m])) > 0",
        0,
        CRITICAL,
        "{{ $value | humanize }} acknowledged records of the traffic process cannot be read.",
        "This never happens without an unclean election or a lost disk. Keep the data directories and the logs of all brokers.",
        (SILENT, Proof(Fault.KILL_LEADER, after="series == 0"), Proof(Fault.LOSE_TWO, after="series == 0")),
    ),
    Alert(
        "OfflineReplicas",
        "tidelog_broker_offline_replicas > 0",
        10,  # a disk that was full for a moment is tried again after seconds
        CRITICAL,
        "{{ $value }} replicas on {{ $labels.instance }} are offline.",
        "Their disk is full or broken, or they are damaged; its log says which. Make room or replace the disk; they come back by "
        "themselves. What they led is led elsewhere.",
        (SILENT, fires(Fault.DISK_ERROR)),
    ),
    Alert(
        "CorruptBatches",
        "tidelog_log_corrupt_batches > 0",
        30,  # where another replica is in sync the copy is given up within seconds
        CRITICAL,
        "{{ $value }} batches on {{ $labels.instance }} have rotted, and no other replica is in sync.",
        "All other records of the partition are served. Bring another replica back; its log names the file (`corrupt batch`), "
        "and `tidelog log dump` shows what is there.",
        (SILENT,),
    ),
    Alert(
        "DiskNearlyFull",
        # A disk that is small by itself, as deploy/chaos/small-disks.yml has them, is not nearly full by that.
        "tidelog_data_dir_free_bytes < 500e6 and tidelog_data_dir_free_bytes < 0.1 * tidelog_data_dir_size_bytes",
        60,
        WARNING,
        "{{ $labels.instance }} has {{ $value | humanize1024 }}B left.",
        "A broker without room gives its partitions away, one by one. Make room before that.",
        (SILENT,),
    ),
)

UNDER_REPLICATED: Final = f"{of_active('tidelog_controller_under_replicated_partitions')} > 0"
REPLICATION: Final = (
    Alert(
        "UnderReplicatedPartitions",
        UNDER_REPLICATED,
        3 * LAG_TIME_MAX_S,  # a restart and its catch-up
        WARNING,
        "{{ $value }} partitions have fewer replicas in sync than assigned.",
        "A broker is down or cannot keep up; one more loss may stop acks=all. ISR size by partition on *Replication and chaos*.",
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "RecoveryTooSlow",
        UNDER_REPLICATED,
        RECOVERY_LIMIT * LAG_TIME_MAX_S,
        CRITICAL,
        f"Partitions stay under replicated for longer than {RECOVERY_LIMIT} times replica.lag.time.max.",
        "A broker stays away, or its followers never catch up: Follower lag on *Replication and chaos* falls while one does. "
        "It does not fall: compare Replication (bytes) with Records in, and look at Log flush and CPU on *Broker internals*.",
        (SILENT, fires(Fault.KILL_LEADER)),
    ),
    Alert(
        "IsrChangesRefused",
        "sum by (instance) (increase(tidelog_isr_update_failures_total[20s])) > 3",
        RESTART_S,  # its window is shorter: a burst of them is over by then
        WARNING,
        "{{ $labels.instance }} proposes ISR changes that the controller refuses.",
        "It acts on an old leader epoch, or as a broker that was replaced; its log names the errors. A restart of it ends that.",
        (SILENT, Proof(Fault.KILL_LEADER, during="series == 0")),
    ),
    Alert(
        "IsrChangesUnanswered",
        "max by (instance) (tidelog_isr_change_pending_seconds) > 10",
        10,  # with its limit 20 s: a failover of the controller
        WARNING,
        "An ISR change of {{ $labels.instance }} has waited for {{ $value | humanizeDuration }}.",
        "No controller answers: while it waits, a dead follower holds the high watermark. See ActiveControllerCount.",
        (SILENT,),
    ),
)

STEADY: Final = "avg_over_time((max by (group) (tidelog_group_members) > bool 0)[30m:10s]) > 0.5"
"""Groups with members for most of half an hour: one that was left on purpose is not missed for ever."""
GROUPS: Final = (
    Alert(
        "GroupLag",
        f"{rules.GROUP_LAG.name} > 1000 and on (group) {STEADY}",
        60,
        WARNING,
        "Group {{ $labels.group }} is {{ $value }} records behind in {{ $labels.topic }}.",
        "Members are missing or too slow: Members, Records processed and Handler time on *Consumer groups*. Add members, up to "
        "one a partition.",
        (SILENT, fires(Fault.KILL_AGENTS)),
    ),
    Alert(
        "GroupStopped",
        f"changes({rules.COMMITTED.name}[1m]) == 0 and {rules.GROUP_LAG.name} > 0 and on (group) {STEADY}",
        60,  # with its window two minutes
        WARNING,
        "Group {{ $labels.group }} commits nothing in {{ $labels.topic }}, which has records for it.",
        "Its members are gone, or their handler hangs or fails: Group state and Handler errors on *Consumer groups*. A group "
        "whose members stay away is taken as given up in the end.",
        (SILENT,),
    ),
    Alert(
        "RebalancesFail",
        "sum(increase(tidelog_coordinator_rebalance_alarms_total[1m])) > 0",
        0,  # an attempt takes 20 s: while it goes on, each minute has one
        WARNING,
        "Rebalances fail more often in a row than rebalance_retries_max.",
        "A member answers pings, but no stop or start: the coordinator's log names it. End that process.",
        (SILENT, Proof(Fault.KILL_AGENTS, during="series == 0")),
    ),
    Alert(
        "NoMessageForTooLong",
        # A batch is no steady load, and a topic that is deleted has no counter.
        "sum by (topic) (increase(tidelog_records_in_total[10m])) == 0 "
        "and on (topic) tidelog_records_in_total and on (topic) "
        "count_over_time((sum by (topic) (increase(tidelog_records_in_total[1m])) > 0)[1h:1m] offset 10m) >= 45",
        0,
        WARNING,
        "Nothing was written to {{ $labels.topic }} for 10 minutes.",
        "In most minutes of the hour before it was: are its producers up? Errors on *Broker internals* says whether they are "
        "refused.",
        (SILENT,),
    ),
)

ZOOKEEPER: Final = (
    Alert(
        "ZooKeeperServerDown",
        "tidelog_zookeeper_up == 0",
        RESTART_S,
        WARNING,
        "ZooKeeper server {{ $labels.server }} does not answer.",
        "The others serve while they are a majority. Start it again.",
        (SILENT, fires(Fault.KILL_ZOOKEEPER)),
    ),
    Alert(
        "ZooKeeperWithoutLeader",
        # No exporter: nothing is known, and ProcessDown tells it.
        '(sum(tidelog_zookeeper_server_state{state=~"leader|standalone"}) or 0 * sum(tidelog_zookeeper_up)) != 1',
        RESTART_S,
        CRITICAL,
        "{{ $value }} ZooKeeper servers lead, not 1.",
        "Without a majority no broker is elected and no ISR changes; leaders stop acting when their sessions are in doubt. Start "
        "servers until a majority runs.",
        (SILENT, fires(Fault.KILL_ZOOKEEPER)),
    ),
    Alert(
        "ZooKeeperSessionDown",
        'max by (job, instance) (tidelog_zk_session_state{state="connected"}) == 0',
        RESTART_S,
        CRITICAL,
        "{{ $labels.job }} {{ $labels.instance }} has no ZooKeeper session.",
        "It does not act. If ZooKeeper is well (its alerts), the way to it is cut.",
        (SILENT, fires(Fault.KILL_ZOOKEEPER)),
    ),
)

PROCESSES: Final = (
    Alert(
        "EventLoopBlocked",
        "tidelog_event_loop_lag_seconds > 2",  # a third of the session timeout
        0,
        WARNING,
        "{{ $labels.job }} {{ $labels.instance }} did nothing for {{ $value | humanizeDuration }}.",
        "It was paused, or the machine is overloaded; a session is lost at three times that. CPU on *Broker internals*.",
        (SILENT, fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "TaskFailed",
        "sum by (job, instance, task) (increase(tidelog_task_failures_total[5m])) > 0",
        0,
        WARNING,
        "A task of {{ $labels.job }} {{ $labels.instance }} failed: {{ $labels.task }}.",
        "A bug: please report it with the trace in its log.",
        (SILENT, *(Proof(f, after="series == 0") for f in (Fault.KILL_LEADER, Fault.KILL_ZOOKEEPER, Fault.LOSE_TWO))),
    ),
)

GROUPS_OF_RULES: Final = {
    "availability": AVAILABILITY,
    "data": DATA,
    "replication": REPLICATION,
    "groups": GROUPS,
    "zookeeper": ZOOKEEPER,
    "processes": PROCESSES,
}
"""Name of a group of rules -> its alerts."""
ALERTS: Final = tuple(alert for alerts in GROUPS_OF_RULES.values() for alert in alerts)
