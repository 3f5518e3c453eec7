"""Chaos runs as targets of a real Prometheus: each is scraped while it lasts."""

import shutil
from pathlib import Path

import pytest
import yaml

from helpers.fake_prometheus import PrometheusContainer
from helpers.prometheus import DEPLOYED, prometheus_server
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.scrape_targets import ScrapeTargets
from tidelog.cluster.wait import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="it reads files of this machine"),
]
WITHIN_S = 30.0


def test_two_runs_at_once_are_scraped_while_they_last(tmp_path: Path) -> None:
    (deployed,) = (
        pattern
        for scrape in yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())["scrape_configs"]
        if scrape["job_name"] == "chaos"
        for found in scrape["file_sd_configs"]
        for pattern in found["files"]
    )
    files = {"chaos": deployed.replace("/var/lib/prometheus-data", str(tmp_path))}
    targets = ScrapeTargets(PrometheusContainer(tmp_path), "127.0.0.1")
    (tmp_path / "targets").mkdir()
    first, second = ChaosMetrics(), ChaosMetrics()
    first.began("kill", ["broker-1"])
    second.began("pause", ["broker-2"])
    with prometheus_server(tmp_path, {}, files) as server:

        def shown(faults: int) -> None:
            count = "count(tidelog_chaos_fault_active) or vector(0)"
            until(lambda: server.newest(count) == [faults], f"{faults} faults", timeout_s=WITHIN_S)

        with first.served(lambda: targets, pytest.fail):
            with second.served(lambda: targets, pytest.fail):
                shown(2)
                assert set(server.targets().values()) == {"up"}
            shown(1)
        shown(0)
        until(lambda: server.targets() == {}, "no targets", timeout_s=WITHIN_S)  # it takes up to 5 s to see a file go
