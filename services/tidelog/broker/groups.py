"""The coordinators of groups as a broker builds them, and what it measures of them."""

from collections.abc import Mapping

from tidelog.broker.metadata_cache import MetadataCache
from tidelog.config import BrokerSettings
from tidelog.coordinator.group import Group
from tidelog.coordinator.model import DRIFT, DRIFT_MIN_S, GroupLimits
from tidelog.coordinator.shards import Coordinators, CoordinatorSettings
from tidelog.coordinator.term import Term
from tidelog.ids import TopicPartition
from tidelog.ports.bundle import Ports
from tidelog.ports.meta import Meta
from tidelog.runtime.group_metrics import GroupMetrics, GroupSnapshot


def coordinators(
    settings: BrokerSettings, ports: Ports, meta: Meta, metadata: MetadataCache, metrics: GroupMetrics
) -> Coordinators:
    return Coordinators(
        CoordinatorSettings(
            broker_id=settings.broker_id,
            shards=1 if settings.coordinator_mode == "single" else settings.coordinator_shards,
            election_delay_s=settings.coordinator_election_delay_ms / 1000,
            limits=limits(settings),
            lag_interval_s=settings.group_lag_interval_ms / 1000,
            lag_partitions_max=settings.metrics_partitions_max,
        ),
        meta,
        ports.clock,
        ports.net,
        ports.rand,
        metadata.leader_of,
        metadata.address_of,
        metrics,
        ports.recorder,
    )


def limits(settings: BrokerSettings) -> GroupLimits:
    return GroupLimits(
        handlers=settings.coordinator_rebalance_handlers,
        session_min_s=settings.group_min_session_timeout_ms / 1000,
        session_max_s=settings.group_max_session_timeout_ms / 1000,
        failed_pings_max=settings.group_failed_pings_max,
        commit_interval_s=settings.offset_commit_interval_ms / 1000,
        rebalance_retries_max=settings.rebalance_retries_max,
        backoff_s=settings.rebalance_backoff_ms / 1000,
        backoff_max_s=settings.rebalance_backoff_max_ms / 1000,
        join_delay_s=settings.group_join_delay_ms / 1000,
        join_delay_max_s=settings.group_join_delay_max_ms / 1000,
        initial_delay_s=settings.group_initial_rebalance_delay_ms / 1000,
        incremental=settings.group_rebalance == "incremental",
        members_max=settings.group_max_size,
        partitions_max=settings.group_max_partitions,
        default_assignor=settings.group_assignor,
        retention_s=settings.offsets_retention_minutes * 60,
    )


def group_snapshots(found: Coordinators, failed_pings_max: int) -> list[GroupSnapshot]:
    """Of the groups that this broker may speak for now."""
    return [
        _snapshot(term, group, found.lags.get(group.group_id, {}), failed_pings_max)
        for term in found.terms.values()
        if term.acting
        for group in term.machine.groups.values()
    ]


def _snapshot(term: Term, group: Group, lags: Mapping[TopicPartition, int], failed_pings_max: int) -> GroupSnapshot:
    longest_s = max((member.session_s for member in group.members.values()), default=0.0)
    return GroupSnapshot(
        group_id=group.group_id,
        state=group.state,
        generation=group.generation,
        members=len(group.members),
        offsets=[(tp, committed.offset, lags.get(tp)) for tp, committed in sorted(group.offsets.items())],
        detection_s=detection_s(longest_s, failed_pings_max) if group.members else 0.0,
        rebalances=term.rebalances[group.group_id],
    )


def detection_s(session_s: float, failed_pings_max: int) -> float:
    """Pings overlap, one every third of a session: the first that fails is at most a third away, so many more must fail, and
    the last has two thirds for its answer; and never before the member's lease is out (A4.09, design section 5)."""
    return max((failed_pings_max + 3) / 3 * session_s, session_s * (1 + DRIFT) + DRIFT_MIN_S)
