"""Families by name, the cap, and that a scrape on another thread asks the event loop."""

import asyncio
import threading
import urllib.request
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER, Address, BrokerId, TopicPartition
from tidelog.ports.meta import SessionState
from tidelog.runtime import metrics
from tidelog.runtime.metrics import (
    BrokerMetrics,
    BrokerState,
    ControllerMetrics,
    Phase,
    RequestMetrics,
    TopicMetrics,
)
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.partition_metrics import FollowerSnapshot, PartitionCollector, PartitionSnapshot

# ecosystem 2.5; partitions that are being moved are told by the controller, which knows them all. Groups, the probe and chaos
# have tests of their own.
DOCUMENTED = {
    "broker": """
        tidelog_zk_session_state tidelog_zk_session_expirations tidelog_zk_request_duration_seconds
        tidelog_broker_partitions tidelog_broker_leaders tidelog_broker_under_replicated_partitions
        tidelog_broker_under_min_isr_partitions tidelog_broker_at_min_isr_partitions tidelog_broker_offline_replicas
        tidelog_isr_shrinks tidelog_isr_expands tidelog_isr_update_failures tidelog_isr_change_pending_seconds
        tidelog_replica_held_back_partitions
        tidelog_alter_isr_requests tidelog_requests_denied tidelog_unverified_repetitions
        tidelog_log_segments_ahead_of_clock
        tidelog_partition_log_start_offset tidelog_partition_high_watermark
        tidelog_partition_high_watermark_stall_seconds tidelog_partition_log_end_offset
        tidelog_partition_leader tidelog_partition_leader_epoch tidelog_partition_isr_size tidelog_partition_replicas
        tidelog_partition_under_replicated tidelog_partition_isr_member
        tidelog_replica_lag_records tidelog_replica_lag_seconds tidelog_replica_fetcher_max_lag_records
        tidelog_replica_truncations tidelog_replica_truncated_records tidelog_replication_bytes
        tidelog_reassignment_bytes
        tidelog_replica_failover_step_seconds
        tidelog_requests tidelog_request_duration_seconds tidelog_purgatory_size tidelog_purgatory_expirations
        tidelog_records_in tidelog_bytes_in tidelog_bytes_out tidelog_produce_rejected
        tidelog_log_size_bytes tidelog_log_segments tidelog_log_flush_duration_seconds
        tidelog_log_recovery_duration_seconds tidelog_data_dir_free_bytes tidelog_data_dir_size_bytes
        tidelog_log_stray_partitions tidelog_log_another_past
        tidelog_build_info process_cpu_seconds process_resident_memory_bytes
    """,
    "controller": """
        tidelog_controller_active tidelog_controller_epoch tidelog_controller_brokers tidelog_controller_broker_state
        tidelog_controller_under_replicated_partitions tidelog_controller_under_min_isr_partitions
        tidelog_controller_at_min_isr_partitions
        tidelog_controller_offline_partitions tidelog_controller_preferred_leader_imbalance
        tidelog_controller_reassigning_partitions
        tidelog_controller_isr_shrinks tidelog_controller_isr_expansions
        tidelog_controller_leader_elections tidelog_controller_unclean_leader_elections
        tidelog_controller_leader_election_duration_seconds tidelog_controller_failovers
        tidelog_controller_broker_failover_step_seconds tidelog_controller_failover_step_seconds
        tidelog_controller_failover_duration_seconds tidelog_controller_event_queue_size
        tidelog_controller_event_queue_wait_seconds tidelog_controller_event_processing_seconds
        tidelog_zk_session_state tidelog_requests tidelog_build_info process_cpu_seconds
    """,
}


def snapshot(partition: int = 0, *, broker: int = 1, leader: int = 1, isr: int = 3) -> PartitionSnapshot:
    followers = (
        (FollowerSnapshot(BrokerId(2), 4, 0.5), FollowerSnapshot(BrokerId(3), 0, 0.0)) if leader == broker else ()
    )
    return PartitionSnapshot(
        TopicPartition("events", partition),
        broker_id=BrokerId(broker),
        leader=BrokerId(leader),
        leader_epoch=7,
        replicas=3,
        isr_size=isr,
        min_isr=2,
        log_start_offset=5,
        high_watermark=96,
        log_end_offset=100,
        size_bytes=4096,
        segments=2,
        behind_leader_records=0 if leader == broker else 11,
        followers=followers,
        isr=[BrokerId(member) for member in range(1, isr + 1)],
    )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def bucket(registry: CollectorRegistry, le: str, **labels: str) -> float | None:
    return value(registry, "tidelog_request_duration_seconds_bucket", le=le, **labels)


@pytest.mark.parametrize("process", sorted(DOCUMENTED))
def test_every_documented_family_is_registered_under_its_name(process: str) -> None:
    registry = CollectorRegistry()
    if process == "broker":
        BrokerMetrics(registry).watch_partitions(lambda: [snapshot()], lambda: [], 10)
    else:
        ControllerMetrics(registry)
    names = {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert set(DOCUMENTED[process].split()) - names == set()


def test_the_totals_of_a_broker_follow_its_partitions() -> None:
    registry = CollectorRegistry()
    replicas = [
        snapshot(0, isr=3),
        snapshot(1, isr=2),
        snapshot(2, isr=1),
        snapshot(3, leader=2),
        snapshot(4, leader=NO_LEADER),
        snapshot(5)._replace(offline=True, followers=()),
    ]
    BrokerMetrics(registry).watch_partitions(lambda: replicas, lambda: [], 10)
    expected = {
        "partitions": 6,
        "leaders": 3,
        "under_replicated_partitions": 2,
        "under_min_isr_partitions": 1,
        "at_min_isr_partitions": 1,
        "offline_replicas": 1,
    }
    assert {name: value(registry, f"tidelog_broker_{name}") for name in expected} == expected
    assert value(registry, "tidelog_replica_fetcher_max_lag_records") == 11


def test_leadership_is_told_by_the_leader_alone_and_offsets_by_every_replica() -> None:
    registry = CollectorRegistry()
    registry.register(PartitionCollector(lambda: [snapshot(0), snapshot(1, leader=2)], 10))
    led, followed = {"topic": "events", "partition": "0"}, {"topic": "events", "partition": "1"}
    assert value(registry, "tidelog_partition_leader", **led) == 1
    assert value(registry, "tidelog_partition_leader", **followed) is None
    assert value(registry, "tidelog_partition_high_watermark", **followed) == 96
    assert value(registry, "tidelog_replica_lag_records", **led, follower="2") == 4
    assert value(registry, "tidelog_replica_lag_seconds", **led, follower="2") == 0.5
    assert [value(registry, "tidelog_partition_isr_member", **led, broker=each) for each in "123"] == [1, 2, 3]
    assert value(registry, "tidelog_partition_isr_member", **followed, broker="2") is None


def test_series_by_partition_are_capped_and_what_is_left_out_is_counted() -> None:
    registry = CollectorRegistry()
    registry.register(PartitionCollector(lambda: [snapshot(p) for p in range(30)], 8))
    series = next(m for m in registry.collect() if m.name == "tidelog_partition_high_watermark").samples
    assert [s.labels["partition"] for s in series] == [str(p) for p in range(8)]
    assert value(registry, "tidelog_metrics_partitions_left_out") == 22
    assert value(registry, "tidelog_broker_partitions") == 30, "totals cover every partition"


def test_only_a_scrape_that_asks_for_stalls_takes_them() -> None:
    registry = CollectorRegistry()
    stalls = [[(TopicPartition("events", 1), 0.25), (TopicPartition("events", 0), 0.5)]]
    BrokerMetrics(registry).watch_partitions(lambda: [snapshot()], lambda: stalls.pop(), 1)
    generate_latest(registry.restricted_registry(["tidelog_partition_high_watermark"]))
    text = generate_latest(registry).decode()
    assert 'tidelog_partition_high_watermark_stall_seconds{partition="0",topic="events"} 0.5' in text
    assert 'stall_seconds{partition="1"' not in text, "capped"


@pytest.mark.real_loop
async def test_a_scrape_takes_its_snapshot_on_the_event_loop() -> None:
    threads: list[int] = []

    def snapshots() -> Sequence[PartitionSnapshot]:
        threads.append(threading.get_ident())
        return [snapshot()]

    registry = CollectorRegistry()
    registry.register(PartitionCollector(snapshots, 10, asyncio.get_running_loop()))
    server = serve_metrics(Address("127.0.0.1", 0), registry)
    try:
        url = f"http://{server.address}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
    finally:
        server.close()
    assert 'tidelog_partition_log_end_offset{partition="0",topic="events"} 100.0' in text
    assert threads == [threading.get_ident()], "the loop's thread, once a scrape"


def test_an_address_in_use_is_an_os_error() -> None:
    first = serve_metrics(Address("127.0.0.1", 0), CollectorRegistry())
    try:
        with pytest.raises(OSError):
            serve_metrics(first.address, CollectorRegistry())
    finally:
        first.close()


def test_requests_are_counted_by_code_and_timed_by_phase() -> None:
    registry = CollectorRegistry()
    requests = RequestMetrics(registry)
    parked = [1, 2]
    requests.watch_parked("produce", lambda: len(parked))
    for _ in range(2):
        requests.answered("Produce", ErrorCode.NONE, 0.003)
    requests.answered("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.001)
    requests.spent("Produce", Phase.REMOTE, 0.002)
    requests.parked_expired("produce")
    for took_s in (0.0, 0.0002, 11.0):  # a bound belongs to its own bucket
        requests.spent("Fetch", Phase.LOCAL, took_s)
    assert value(registry, "tidelog_requests_total", api="Produce", code="NONE") == 2
    assert value(registry, "tidelog_requests_total", api="Produce", code="NOT_LEADER_OR_FOLLOWER") == 1
    assert value(registry, "tidelog_request_duration_seconds_count", api="Produce", phase="total") == 3
    assert value(registry, "tidelog_request_duration_seconds_sum", api="Produce", phase="remote") == 0.002
    fetch = {le: bucket(registry, le, api="Fetch", phase="local") for le in ("0.0002", "0.0005", "10.0", "+Inf")}
    assert fetch == {"0.0002": 2, "0.0005": 2, "10.0": 2, "+Inf": 3}
    assert value(registry, "tidelog_purgatory_size", op="produce") == 2
    assert value(registry, "tidelog_purgatory_expirations_total", op="produce") == 1


def test_topics_beyond_the_cap_share_one_label_and_a_deleted_topic_leaves() -> None:
    registry = CollectorRegistry()
    topics = TopicMetrics(registry, topics_max=2)
    for name in ("a", "b", "c", "d"):
        topics.produced(name, records=10, size_bytes=100)
    assert value(registry, "tidelog_records_in_total", topic="a") == 10
    assert value(registry, "tidelog_bytes_in_total", topic="__other__") == 200
    topics.deleted("a")
    assert value(registry, "tidelog_records_in_total", topic="a") is None
    topics.produced("e", records=1, size_bytes=1)
    assert value(registry, "tidelog_records_in_total", topic="e") == 1


def test_one_state_of_the_session_is_set_and_losses_are_counted() -> None:
    registry = CollectorRegistry()
    zk = BrokerMetrics(registry).zk
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED):
        zk.session(state)
    states = {s.value: value(registry, "tidelog_zk_session_state", state=s.value) for s in SessionState}
    assert states == {"connected": 1, "suspended": 0, "lost": 0}
    assert value(registry, "tidelog_zk_session_expirations_total") == 1


def test_a_deposed_controller_shows_nothing_of_the_cluster() -> None:
    registry = CollectorRegistry()
    controller = ControllerMetrics(registry)
    controller.became_active(4, took_s=0.2)
    controller.cluster(
        alive=3,
        suspected=0,
        shutting_down=0,
        topics=1,
        partitions=12,
        reassigning=5,
        offline=2,
        under_replicated=3,
        under_min_isr=2,
        at_min_isr=1,
        not_preferred=1,
    )
    controller.elected("suspected", leaders=4, took_s=0.05, unclean=0)
    assert value(registry, "tidelog_controller_brokers", state="alive") == 3
    assert value(registry, "tidelog_controller_reassigning_partitions") == 5
    assert value(registry, "tidelog_controller_leader_elections_total", reason="suspected") == 4
    controller.standing_by()
    assert value(registry, "tidelog_controller_active") == 0
    for kind in ("offline", "under_replicated", "under_min_isr", "at_min_isr"):
        assert value(registry, f"tidelog_controller_{kind}_partitions") == 0
    assert value(registry, "tidelog_controller_reassigning_partitions") == 0
    assert value(registry, "tidelog_controller_failovers_total") == 1, "counters go on"


def test_a_broker_has_one_state_at_a_time_and_none_when_it_is_gone_or_nobody_knows() -> None:
    registry = CollectorRegistry()
    controller = ControllerMetrics(registry)

    def shown() -> dict[tuple[str, str], float]:
        (family,) = (f for f in registry.collect() if f.name == "tidelog_controller_broker_state")
        return {(s.labels["broker"], s.labels["state"]): s.value for s in family.samples}

    controller.broker_states({BrokerId(1): BrokerState.ALIVE, BrokerId(2): BrokerState.ALIVE})
    controller.broker_states({BrokerId(1): BrokerState.SUSPECTED, BrokerId(2): BrokerState.ALIVE})
    assert shown() == {("1", "suspected"): 1, ("2", "alive"): 1}
    controller.broker_states({BrokerId(2): BrokerState.SHUTTING_DOWN})
    assert shown() == {("2", "shutting_down"): 1}
    controller.standing_by()
    assert shown() == {}


def test_the_space_that_is_left_is_asked_for_at_each_scrape() -> None:
    registry = CollectorRegistry()
    free = [7]
    BrokerMetrics(registry).log.watch_space(lambda: free[0], lambda: 9)
    assert value(registry, "tidelog_data_dir_free_bytes") == 7
    assert value(registry, "tidelog_data_dir_size_bytes") == 9
    free[0] = 5
    assert value(registry, "tidelog_data_dir_free_bytes") == 5


@requirement("A broker at its limits refuses requests and loses nothing")
def test_the_worst_loop_lag_of_the_last_5_s_is_shown_to_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = (100.0, 100.0, 100.1, 102.0, 105.0, 105.1)  # however busy the machine is that asks the loop
    monkeypatch.setattr(metrics, "monotonic", iter(turns).__next__)
    registry = CollectorRegistry()
    process = BrokerMetrics(registry).process
    assert value(registry, "tidelog_event_loop_lag_seconds") == 0
    process.loop_was_late(0.3)
    for _ in range(3):
        process.loop_was_late(0.1)
    assert value(registry, "tidelog_event_loop_lag_seconds") == 0.3
    assert value(registry, "tidelog_event_loop_lag_seconds") == 0.3, "the first one may have been nobody's"
    process.loop_was_late(0.1)
    assert value(registry, "tidelog_event_loop_lag_seconds") == 0.1


def test_counters_by_reason_begin_at_zero_so_that_the_first_event_is_an_increase() -> None:
    controllers, brokers = CollectorRegistry(), CollectorRegistry()
    ControllerMetrics(controllers)
    BrokerMetrics(brokers)
    assert value(controllers, "tidelog_controller_leader_elections_total", reason="suspected") == 0
    assert value(controllers, "tidelog_controller_broker_failover_step_seconds_count", step="notify") == 0
    assert value(controllers, "tidelog_controller_failover_step_seconds_count", step="read") == 0
    assert value(controllers, "tidelog_controller_leader_elections_total", reason="reassigned") == 0
    for direction in ("in", "out"):
        assert value(brokers, "tidelog_reassignment_bytes_total", direction=direction) == 0
    assert value(brokers, "tidelog_coordinator_rebalance_attempts_failed_total", reason="failure") == 0
    assert value(brokers, "tidelog_coordinator_watcher_expirations_total", request="ping") == 0


@pytest.mark.parametrize("name", ["fetch:2", "fetch-17", "fetch"])
def test_failed_tasks_are_counted_by_kind(name: str) -> None:
    registry = CollectorRegistry()
    BrokerMetrics(registry).process.task_failed(name)
    assert value(registry, "tidelog_task_failures_total", task="fetch") == 1
