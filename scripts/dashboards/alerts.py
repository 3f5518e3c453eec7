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
_REFUSED_ISR_CHANGES: Final = "sum by (instance) (increase(tidelog_isr_update_failures_total[20s]))"

AVAILABILITY: Final = (
    Alert(
        "ActiveControllerCount",
        "(sum(tidelog_controller_active) or vector(0)) != 1",
        RESTART_S,
        CRITICAL,
        "{{ $value }} controllers are active, not 1.",
        "Without an active controller no leader is elected and no ISR changes, but partitions that have a leader are still "
        "served. If no controller is active, start one, or look at the ZooKeeper alerts. If two are active, stop the one "
        "with the lower controller epoch; ZooKeeper refuses its writes.",
        (SILENT, fires(Fault.KILL_CONTROLLER)),
    ),
    Alert(
        "OfflinePartitions",
        f"{of_active('tidelog_controller_offline_partitions')} > 0",
        RESTART_S,
        CRITICAL,
        "{{ $value }} partitions have no leader.",
        "These partitions can be neither written to nor read from. `tidelog topics describe --unavailable-partitions` lists "
        "them and their replicas. Start a broker that was in their last ISR. Only if none of these brokers will ever come back, "
        "run `tidelog elect-leaders --election-type unclean`, which may lose records. If the last copy is damaged, see "
        "`tidelog brokers discard-damage`.",
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.KILL_BROKERS)),
    ),
    Alert(
        "UnderMinIsrPartitions",
        # Without those that have no leader: OfflinePartitions tells of them.
        f"{of_active('tidelog_controller_under_min_isr_partitions')} - "
        f"{of_active('tidelog_controller_offline_partitions')} > 0",
        RESTART_S,
        CRITICAL,
        "{{ $value }} partitions refuse writes with acks=all.",
        'Too few replicas are in sync. Start the brokers that are down. If all brokers are running, look at the "Follower '
        'lag" panels on *Replication and chaos*.',
        (SILENT, fires(Fault.LOSE_TWO), Proof(Fault.KILL_LEADER, during="series == 0")),
    ),
    Alert(
        "NoAcknowledgements",
        "sum(increase(tidelog_e2e_acked_total[10s])) == 0",
        RESTART_S - 10,  # without its window
        CRITICAL,
        "The traffic process gets no acknowledgements.",
        "Its producers write to every partition of its topic with acks=all. Look at the other alerts first, then at the "
        '*Availability* row on *Replication and chaos*, where "Produce refused" shows why brokers refuse records.',
        (SILENT, fires(Fault.LOSE_TWO)),
    ),
    Alert(
        "ProcessDown",
        f"{TARGETS} == 0",
        RESTART_S,
        WARNING,
        "{{ $labels.job }} {{ $labels.instance }} does not answer.",
        "The process is down, paused or unreachable, or its event loop hangs. Read the end of its log, then restart it.",
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "CrashLoop",
        # A restart, and a fault and its repair, are no loop.
        'changes(process_start_time_seconds{job!="prometheus"}[5m]) > 2',
        0,
        WARNING,
        "{{ $labels.job }} {{ $labels.instance }} was started {{ $value }} times in 5 minutes.",
        "Something restarts the process each time it exits. In its log, the lines before each start say why it exited.",
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
        'Acknowledged records may be lost. "Records truncated" on *Cluster health* counts the records that other replicas '
        "have truncated. The controller's log names the partitions. Either unclean.leader.election.enable allowed the "
        "election, or an operator requested it. For a day, brokers keep the records that they cut: `tidelog log-dirs describe` "
        "shows them under `strays`.",
        (SILENT, Proof(Fault.LOSE_TWO, "series == 0", "series == 1")),
    ),
    Alert(
        "AcknowledgedRecordsLost",
        "sum(increase(tidelog_e2e_lost_total[5m])) > 0",
        0,
        CRITICAL,
        "{{ $value | humanize }} acknowledged records of the traffic process cannot be read.",
        "This never happens without an unclean election or a lost disk. Keep the data directories and the log output of all "
        "brokers.",
        (SILENT, Proof(Fault.KILL_LEADER, after="series == 0"), Proof(Fault.LOSE_TWO, after="series == 0")),
    ),
    Alert(
        "OfflineReplicas",
        "tidelog_broker_offline_replicas > 0",
        10,  # a disk that was full for a moment is tried again after seconds
        CRITICAL,
        "{{ $value }} replicas on {{ $labels.instance }} are offline.",
        "The disk that holds these replicas is full or has failed, or the replicas are damaged; the broker's log messages say "
        "which. Make room or replace the disk, and the replicas come back by themselves. Until then, other in-sync "
        "replicas lead their partitions.",
        (SILENT, fires(Fault.DISK_ERROR)),
    ),
    Alert(
        "CorruptBatches",
        "tidelog_log_corrupt_batches > 0",
        30,  # where another replica is in sync the copy is given up within seconds
        CRITICAL,
        "{{ $value }} batches on {{ $labels.instance }} are corrupt, and no other replica is in sync.",
        "The broker still serves all other records of the affected partitions. Bring another replica of each back into sync. "
        "The broker's log messages that begin with `corrupt batch` name the file, and `tidelog log dump` shows its "
        "contents. If the partition goes offline and no other replica will come back, `tidelog brokers discard-damage` shows "
        "what is lost when its log is cut, and cuts it.",
        (SILENT,),
    ),
    Alert(
        "AnotherPast",
        "tidelog_log_another_past > 0",
        0,
        CRITICAL,
        "ZooKeeper is behind what {{ $labels.instance }} has seen.",
        "ZooKeeper seems to have been restored from an older copy. It may not know topics whose logs are still on the brokers. "
        "The broker deletes none of the strays that `tidelog log-dirs describe` shows. Restore a newer copy, recover the "
        "records, or give them up. Then remove the file `another-past` from the data directory.",
        (SILENT,),
    ),
    Alert(
        "DiskNearlyFull",
        # A disk that is small by itself, as deploy/chaos/small-disks.yml has them, is not nearly full by that.
        "tidelog_data_dir_free_bytes < 500e6 and tidelog_data_dir_free_bytes < 0.1 * tidelog_data_dir_size_bytes",
        60,
        WARNING,
        "{{ $labels.instance }} has {{ $value | humanize1024 }}B of disk space left.",
        "When the disk is full, the replicas on it go offline one by one, and other brokers take over their partitions. Make "
        "room before that happens.",
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
        "{{ $value }} partitions have assigned replicas that are not in sync.",
        'A broker is down or cannot keep up. If one more broker is lost, writes with acks=all may stop. Look at "ISR size by '
        'partition" on *Replication and chaos*.',
        (SILENT, fires(Fault.KILL_LEADER), fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "RecoveryTooSlow",
        UNDER_REPLICATED,
        RECOVERY_LIMIT * LAG_TIME_MAX_S,
        CRITICAL,
        f"Partitions have been under-replicated for longer than {RECOVERY_LIMIT} times replica.lag.time.max.",
        'Either a broker is still down, or followers have not caught up. If "Follower lag, records" on *Replication and '
        'chaos* is falling, they are catching up. If it is not falling, compare "Replication" on the same board with '
        '"Records in" on *Cluster health*, and look at "Log flush, p99" and "CPU" on *Broker internals*.',
        (SILENT, fires(Fault.KILL_LEADER)),
    ),
    Alert(
        "IsrChangesRefused",
        # In two windows in a row: a leader that dies, or comes back, costs each of its partitions one refusal at once.
        f"{_REFUSED_ISR_CHANGES} > 3 and {_REFUSED_ISR_CHANGES.replace('[20s]', '[20s] offset 20s')} > 3",
        RESTART_S - 20,  # with the window before it
        WARNING,
        "{{ $labels.instance }} proposes ISR changes that the controller refuses.",
        "Either the broker acts on an old leader epoch, or a newer incarnation of it has registered; its log messages name "
        "the errors. Restart the broker.",
        (SILENT, Proof(Fault.KILL_LEADER, during="series == 0")),
    ),
    Alert(
        "IsrChangesUnanswered",
        "max by (instance) (tidelog_isr_change_pending_seconds) > 10",
        10,  # with its limit 20 s: a failover of the controller
        WARNING,
        "An ISR change proposed by {{ $labels.instance }} has been waiting for {{ $value | humanizeDuration }}.",
        "No controller answers. While the change waits, a dead follower can hold back the high watermark. See the alert "
        "ActiveControllerCount.",
        (SILENT,),
    ),
    Alert(
        "ReplicasHeldBack",
        "tidelog_replica_held_back_partitions > 0",
        0,
        WARNING,
        "{{ $value }} replicas of partitions that {{ $labels.instance }} leads wait behind a batch that is too large for them.",
        "The replicas leave the ISR, and writes with acks=all may be refused. Warnings in the broker's log name the partition, "
        "the follower and the sizes. Raise fetch_max_bytes of both brokers, or delete records up to the batch.",
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
        'Members are missing or too slow. Look at "Members", "Records processed" and "Handler time, p99" on *Consumer '
        "groups*. Add members, up to one per partition.",
        (SILENT, fires(Fault.KILL_AGENTS)),
    ),
    Alert(
        "GroupStopped",
        f"changes({rules.COMMITTED.name}[1m]) == 0 and {rules.GROUP_LAG.name} > 0 and on (group) {STEADY}",
        60,  # with its window two minutes
        WARNING,
        "Group {{ $labels.group }} commits no offsets for {{ $labels.topic }}, although there are records to read.",
        'Its members are gone, or their handler hangs or fails. Look at "Group state" and "Handler errors" on *Consumer '
        "groups*. If the members do not come back, the group eventually counts as abandoned, and the alert resolves.",
        (SILENT,),
    ),
    Alert(
        "RebalancesFail",
        "sum(increase(tidelog_coordinator_rebalance_alarms_total[1m])) > 0",
        0,  # an attempt takes 20 s: while it goes on, each minute has one
        WARNING,
        "More than rebalance_retries_max consecutive rebalance attempts have failed.",
        "A member answers pings, but does not answer stop or start requests. The coordinator's log names the group. Stop the "
        "process of that member.",
        (SILENT, Proof(Fault.KILL_AGENTS, during="series == 0")),
    ),
    Alert(
        "UnreadableTopics",
        "max(tidelog_coordinator_unreadable_topics) > 0",
        0,
        WARNING,
        "The znodes of {{ $value }} topics cannot be read.",
        "Something other than Tidelog has changed them. Groups go on with what their coordinators read last, but the next "
        "controller does not take over. The log of each coordinator's broker names the znodes. Repair them.",
        (SILENT,),
    ),
    Alert(
        "UnreadableSettings",
        "max by (path) (tidelog_controller_unreadable_znode) > 0",
        0,
        WARNING,
        "The controller cannot read {{ $labels.path }}.",
        "Something other than Tidelog has changed this znode. The controller goes on without it: brokers keep the settings of a "
        "topic as they know them, drains and throttles cannot be changed, or no new producer ids are given out. Repair the "
        "znode. The controller reads it again within seconds.",
        (SILENT,),
    ),
    Alert(
        "NoMessageForTooLong",
        # A batch is no steady load, and a topic that is deleted has no counter.
        "sum by (topic) (increase(tidelog_records_in_total[10m])) == 0 "
        "and on (topic) tidelog_records_in_total and on (topic) "
        "count_over_time((sum by (topic) (increase(tidelog_records_in_total[1m])) > 0)[1h:1m] offset 10m) >= 45",
        0,
        WARNING,
        "Nothing has been written to {{ $labels.topic }} for 10 minutes.",
        'Records arrived in most minutes of the hour before. Check that the producers of the topic are up. "Errors" on '
        "*Broker internals* shows whether their requests are refused.",
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
        "The ensemble keeps serving as long as the remaining servers form a majority. Start the server again.",
        (SILENT, fires(Fault.KILL_ZOOKEEPER)),
    ),
    Alert(
        "ZooKeeperWithoutLeader",
        # No exporter: nothing is known, and ProcessDown tells it.
        '(sum(tidelog_zookeeper_server_state{state=~"leader|standalone"}) or 0 * sum(tidelog_zookeeper_up)) != 1',
        RESTART_S,
        CRITICAL,
        "ZooKeeper has {{ $value }} leaders, not 1.",
        "Without a majority of the ZooKeeper servers, no partition leader is elected and no ISR changes. Controllers and "
        "coordinators stop acting when their leases run out. Start servers until a majority is running.",
        (SILENT, fires(Fault.KILL_ZOOKEEPER)),
    ),
    Alert(
        "ZooKeeperSessionDown",
        'max by (job, instance) (tidelog_zk_session_state{state="connected"}) == 0',
        RESTART_S,
        CRITICAL,
        "{{ $labels.job }} {{ $labels.instance }} has no ZooKeeper session.",
        "Without a session a process cannot act as controller or coordinator. If no other ZooKeeper alert fires, ZooKeeper "
        "itself is running, but this process cannot reach it.",
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
        "The process was paused, the machine is overloaded, or a step of its event loop took that long: then its log has a line "
        '"a step of the event loop took", with the functions that it was in. A process whose loop stands still for half its '
        "session timeout sends no more pings, and so loses its ZooKeeper session at the end of the timeout, by default three "
        'times the limit of this alert. Look at "CPU" and "Slow steps of the event loop" on *Broker internals*.',
        (SILENT, fires(Fault.PAUSE_FOLLOWER)),
    ),
    Alert(
        "TaskFailed",
        "sum by (job, instance, task) (increase(tidelog_task_failures_total[5m])) > 0",
        0,
        WARNING,
        "A task of {{ $labels.job }} {{ $labels.instance }} failed: {{ $labels.task }}.",
        "This is a bug. Please report it with the stack trace from the log of the process.",
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
