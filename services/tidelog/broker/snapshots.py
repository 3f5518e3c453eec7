"""The partitions of this broker as metrics want them, taken at scrape time."""

from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.partition_metrics import FollowerSnapshot, PartitionSnapshot


def partition_snapshots(manager: ReplicaManager, broker_id: int, clock: Clock) -> list[PartitionSnapshot]:
    now = clock.now()
    return [_snapshot(host, BrokerId(broker_id), now) for host in manager]


def longest_stalls(manager: ReplicaManager, clock: Clock) -> list[tuple[TopicPartition, float]]:
    """The longest stall of each partition that is led here, since the last call."""
    now = clock.now()
    led = ((host.tp, host.replica.leading) for host in manager)
    return [(tp, leading.stall.take_longest_s(now)) for tp, leading in led if leading is not None]


def _snapshot(host: PartitionHost, broker_id: BrokerId, now: float) -> PartitionSnapshot:
    replica, log = host.replica, host.log
    leading = replica.leading
    replicas = leading.factor if leading is not None else len(host.assigned)
    end = log.log_end_offset
    return PartitionSnapshot(
        topic_partition=host.tp,
        broker_id=broker_id,
        leader=BrokerId(replica.leader),
        leader_epoch=replica.leader_epoch,
        replicas=replicas,
        isr_size=len(leading.isr.committed.isr) if leading is not None else host.isr_size,
        min_isr=min(host.config.min_insync_replicas, replicas),
        log_start_offset=log.log_start_offset,
        high_watermark=replica.high_watermark,
        log_end_offset=end,
        size_bytes=log.size_bytes,
        segments=len(log.segments),
        offline=host.offline is not None,
        behind_leader_records=max(0, host.leader_high_watermark - end) if leading is None else 0,
        followers=()
        if leading is None
        else tuple(
            FollowerSnapshot(BrokerId(follower), end - progress.offset, leading.lag_s(progress.offset, end, now))
            for follower, progress in sorted(leading.progress.items())
        ),
        isr=() if leading is None else [BrokerId(member.broker_id) for member in sorted(leading.isr.committed.isr)],
    )
