"""What a chaos run tells Prometheus of its faults."""

from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.free_ports import free_ports
from tidelog.ids import Address


def test_a_fault_is_active_from_its_effect_until_it_is_healed() -> None:
    registry = CollectorRegistry()
    metrics = ChaosMetrics(registry)

    def active(fault: str, target: str) -> float | None:
        return registry.get_sample_value("tidelog_chaos_fault_active", {"fault": fault, "target": target})

    metrics.began("kill", ["broker-1"])
    metrics.began("pause", ["broker-2", "broker-3"])
    assert (active("kill", "broker-1"), active("pause", "broker-2,broker-3")) == (1, 1)
    metrics.ended("kill", ["broker-1"])
    metrics.ended("kill", ["broker-1"])
    assert (active("kill", "broker-1"), active("pause", "broker-2,broker-3")) == (0, 1)
    metrics.began("kill", ["broker-1"])
    assert active("kill", "broker-1") == 1
    assert registry.get_sample_value("tidelog_chaos_faults_total", {"fault": "kill"}) == 2


def test_the_time_to_recover_is_told_by_fault() -> None:
    registry = CollectorRegistry()
    metrics = ChaosMetrics(registry)
    metrics.began("kill", ["broker-1"])
    family = "tidelog_chaos_time_to_recover_seconds"
    assert (
        registry.get_sample_value(f"{family}_count", {"fault": "kill"}) == 0
    )  # no gap in a graph before the first one
    metrics.recovered("kill", 3.5)
    assert registry.get_sample_value(f"{family}_sum", {"fault": "kill"}) == 3.5
    assert registry.get_sample_value(f"{family}_bucket", {"fault": "kill", "le": "2.5"}) == 0
    assert registry.get_sample_value(f"{family}_bucket", {"fault": "kill", "le": "5.0"}) == 1


def test_it_is_scraped_until_the_run_ends() -> None:
    metrics, said = ChaosMetrics(), list[str]()
    metrics.began("kill", ["broker-1"])
    listen = Address("127.0.0.1", free_ports(1)[0])
    with metrics.served(listen, said.append):
        with urlopen(f"http://{listen}/metrics", timeout=10) as page:
            assert b'tidelog_chaos_fault_active{fault="kill",target="broker-1"} 1.0' in page.read()
        with metrics.served(listen, said.append):  # another run: it goes on without
            assert [f"cannot serve metrics at {listen}" in text and "in use" in text for text in said] == [True]
    with pytest.raises(URLError):
        urlopen(f"http://{listen}/metrics", timeout=10)
    with metrics.served(listen, said.append):
        assert len(said) == 1, "the port is free again"
