"""What a chaos run tells Prometheus of its faults."""

import shutil
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from helpers.fake_prometheus import PrometheusContainer
from tidelog.chaos.clusters import LocalClusters
from tidelog.chaos.metrics import JOB, ChaosMetrics
from tidelog.cluster.api import ClusterError
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.scrape_targets import ScrapeTargets
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


def names(tmp_path: Path) -> list[str]:
    folder = tmp_path / "targets"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_each_of_two_runs_is_a_target_until_it_ends(tmp_path: Path) -> None:
    targets = ScrapeTargets(PrometheusContainer(tmp_path), "127.0.0.1")
    metrics, said = ChaosMetrics(), list[str]()
    metrics.began("kill", ["broker-1"])
    with metrics.served(lambda: targets, said.append):
        (first,) = names(tmp_path)
        address = first.removeprefix("chaos-").removesuffix(".json")
        with urlopen(f"http://{address}/metrics", timeout=10) as page:
            assert b'tidelog_chaos_fault_active{fault="kill",target="broker-1"} 1.0' in page.read()
        with pytest.raises(KeyboardInterrupt), ChaosMetrics().served(lambda: targets, said.append):
            assert len(names(tmp_path)) == 2
            raise KeyboardInterrupt
        assert names(tmp_path) == [first]
    assert names(tmp_path) == [] and said == []
    with pytest.raises(URLError):
        urlopen(f"http://{address}/metrics", timeout=10)


def test_a_killed_run_is_no_target_once_another_one_runs(tmp_path: Path) -> None:
    targets = ScrapeTargets(PrometheusContainer(tmp_path), "127.0.0.1")
    left = Address("127.0.0.1", free_ports(1)[0])
    targets.add(JOB, left)
    with ChaosMetrics().served(lambda: targets, pytest.fail):
        assert len(names(tmp_path)) == 1 and f"chaos-{left}.json" not in names(tmp_path)


def test_a_run_goes_on_without_prometheus(tmp_path: Path) -> None:
    said = list[str]()

    def no_prometheus() -> ScrapeTargets:
        raise ClusterError("prometheus does not run")

    with ChaosMetrics().served(no_prometheus, said.append):
        assert said == ["dashboards do not show the faults of this run: prometheus does not run"]
    targets = ScrapeTargets(PrometheusContainer(tmp_path), "127.0.0.1")
    with ChaosMetrics().served(lambda: targets, said.append):
        shutil.rmtree(tmp_path / "targets")
        (tmp_path / "targets").write_text("it is gone meanwhile")
    assert len(said) == 2 and "until the next one" in said[1]


def test_nothing_is_served_where_there_is_no_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChaosMetrics, "serve", pytest.fail)
    with LocalClusters() as clusters, ChaosMetrics().served(clusters.scrape_targets, pytest.fail):
        pass
