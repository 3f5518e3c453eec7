"""What a broker shows of the groups that it coordinates: capped, and what is left out is counted."""

from prometheus_client import CollectorRegistry

from helpers.requirements import requirement
from tidelog.broker.groups import detection_s
from tidelog.ids import TopicPartition
from tidelog.runtime.group_metrics import GroupCollector, GroupMetrics, GroupSnapshot, RebalanceTally


def snapshot(name: str, offsets: int, state: str = "Stable", members: int = 2) -> GroupSnapshot:
    found = [(TopicPartition("t", n), 10 * n, 100 - 10 * n if n else None) for n in range(offsets)]
    return GroupSnapshot(name, state, 7, members, found, 6.0, RebalanceTally())


def shown(groups: list[GroupSnapshot], groups_max: int = 10, partitions_max: int = 10) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(GroupCollector(lambda: groups, groups_max, partitions_max))
    return registry


def test_a_lag_that_is_unknown_has_no_series() -> None:
    registry = shown([snapshot("g", 3)])
    of = {"group": "g", "topic": "t"}
    assert registry.get_sample_value("tidelog_group_lag_records", {**of, "partition": "2"}) == 80
    assert registry.get_sample_value("tidelog_group_lag_records", {**of, "partition": "0"}) is None
    assert registry.get_sample_value("tidelog_group_committed_offset", {**of, "partition": "2"}) == 20
    assert registry.get_sample_value("tidelog_group_generation", {"group": "g"}) == 7
    (states,) = (family.samples for family in registry.collect() if family.name == "tidelog_group_state")
    assert [(s.labels, s.value) for s in states] == [({"group": "g", "state": "Stable"}, 1)]


def test_series_are_capped_and_totals_cover_every_group() -> None:
    groups = [snapshot(f"g{n}", 3) for n in range(5)] + [snapshot("h", 0, "Empty", 0)]
    registry = shown(groups, groups_max=2, partitions_max=4)
    assert registry.get_sample_value("tidelog_coordinator_groups", {"state": "Stable"}) == 5
    assert registry.get_sample_value("tidelog_coordinator_groups", {"state": "Empty"}) == 1
    assert registry.get_sample_value("tidelog_coordinator_members") == 10
    assert registry.get_sample_value("tidelog_coordinator_groups_left_out") == 4
    assert registry.get_sample_value("tidelog_coordinator_partitions_left_out") == 2
    assert registry.get_sample_value("tidelog_group_members", {"group": "g1"}) == 2
    assert registry.get_sample_value("tidelog_group_members", {"group": "g2"}) is None


def test_rebalances_are_told_by_group_from_zero_on() -> None:
    seen, unseen = snapshot("a", 0), snapshot("b", 0)
    for seconds in (0.02, 0.3, 70.0):
        seen.rebalances.completed("failure", seconds)
    registry = shown([seen, unseen], groups_max=1)
    count, duration = "tidelog_coordinator_rebalances_total", "tidelog_coordinator_rebalance_duration_seconds"
    assert registry.get_sample_value(count, {"group": "a", "reason": "failure"}) == 3
    assert registry.get_sample_value(count, {"group": "a", "reason": "join"}) == 0
    assert registry.get_sample_value(count, {"group": "b", "reason": "join"}) is None, "capped"
    found = {le: registry.get_sample_value(f"{duration}_bucket", {"group": "a", "le": le}) for le in ("0.01", "0.5")}
    assert found == {"0.01": 0, "0.5": 2}
    assert registry.get_sample_value(f"{duration}_count", {"group": "a"}) == 3
    assert registry.get_sample_value(f"{duration}_sum", {"group": "a"}) == 70.32


def test_a_shard_that_is_lost_has_no_epoch_and_one_that_was_never_served_costs_nothing() -> None:
    registry = CollectorRegistry()
    metrics = GroupMetrics(registry)
    metrics.elected(3, 9, 0.1)
    metrics.elected(4, 2, 0.1)
    metrics.deposed(3)
    metrics.deposed(5)
    assert registry.get_sample_value("tidelog_coordinator_epoch", {"shard": "3"}) is None
    assert registry.get_sample_value("tidelog_coordinator_epoch", {"shard": "4"}) == 2
    assert registry.get_sample_value("tidelog_coordinator_shards") == 1


@requirement("The time to detect a dead member is computed and exported")
def test_the_detection_budget_is_a_session_and_more_with_each_ping_that_may_fail() -> None:
    assert detection_s(6.0, 0) == 6.0 * 1.01 + 0.02, "never before the member's own lease is out"
    assert detection_s(6.0, 3) == 12.0


@requirement("The time to detect a dead member is computed and exported")
def test_the_largest_budget_of_all_groups_is_exported_also_of_those_that_are_not_shown() -> None:
    groups = [snapshot("a", 0), snapshot("b", 0)._replace(detection_s=17.5), snapshot("c", 0)]
    assert shown(groups, groups_max=1).get_sample_value("tidelog_coordinator_detection_seconds") == 17.5
    assert shown([]).get_sample_value("tidelog_coordinator_detection_seconds") == 0
