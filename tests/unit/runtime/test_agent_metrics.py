"""What an agent shows at a scrape."""

import asyncio
import threading

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidelog.runtime.agent_metrics import AgentMetrics, AgentSnapshot

DOCUMENTED = """
    tidelog_agent_records tidelog_agent_handler_duration_seconds tidelog_agent_handler_errors tidelog_agent_dropped_records
    tidelog_agent_generation tidelog_agent_since_ping_seconds tidelog_agent_stops tidelog_agent_starts tidelog_agent_losses
    tidelog_agent_state tidelog_agent_owned_partitions tidelog_agent_lag_records
    tidelog_build_info process_cpu_seconds
"""
NOW = AgentSnapshot("stable", 7, {"t": 3}, {"t": 12}, 0.5, stops=2, starts=3, losses=1)


def test_every_family_is_registered_under_its_name() -> None:
    registry = CollectorRegistry()
    AgentMetrics(registry).watch(lambda: NOW, ("stable", "joining"), None)
    names = {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert set(DOCUMENTED.split()) - names == set()


def test_the_membership_is_what_the_snapshot_says() -> None:
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry)
    metrics.watch(lambda: NOW, ("joining", "stable"), None)
    metrics.handled("t", 5, 0.1)
    metrics.failed("retry")
    metrics.dropped(4)
    shown = {
        ("generation", ()): 7,
        ("since_ping_seconds", ()): 0.5,
        ("stops_total", ()): 2,
        ("starts_total", ()): 3,
        ("losses_total", ()): 1,
        ("state", (("state", "stable"),)): 1,
        ("state", (("state", "joining"),)): 0,
        ("owned_partitions", (("topic", "t"),)): 3,
        ("lag_records", (("topic", "t"),)): 12,
        ("records_total", (("topic", "t"),)): 5,
        ("handler_errors_total", (("action", "retry"),)): 1,
        ("dropped_records_total", ()): 4,
        ("handler_duration_seconds_count", ()): 1,
    }
    for (name, labels), value in shown.items():
        assert registry.get_sample_value(f"tidelog_agent_{name}", dict(labels)) == value, name


async def test_a_scrape_asks_on_the_event_loop() -> None:
    asked_on: list[int] = []

    def snapshot() -> AgentSnapshot:
        asked_on.append(threading.get_ident())
        return NOW

    registry = CollectorRegistry()
    AgentMetrics(registry).watch(snapshot, (), asyncio.get_running_loop())
    await asyncio.to_thread(generate_latest, registry)

    assert asked_on == [threading.get_ident()]
