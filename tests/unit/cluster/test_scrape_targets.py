"""Targets of Prometheus as files: added, taken away, and cleared of those that nothing serves."""

import json
import socket
from pathlib import Path

import pytest

from helpers.fake_prometheus import PrometheusContainer
from tidelog.cluster.api import ClusterError
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.scrape_targets import ScrapeTargets
from tidelog.ids import Address

HOST = "127.0.0.1"


@pytest.fixture
def targets(tmp_path: Path) -> ScrapeTargets:
    return ScrapeTargets(PrometheusContainer(tmp_path), HOST)


def files(tmp_path: Path) -> dict[str, list[str]]:
    """Addresses by file, of all the files that are there."""
    found = {}
    for path in (tmp_path / "targets").iterdir():
        (group,) = json.loads(path.read_text())
        found[path.name] = group["targets"]
    return found


def test_a_target_is_a_file_of_its_job(targets: ScrapeTargets, tmp_path: Path) -> None:
    targets.add("chaos", Address(HOST, 1001))
    targets.add("chaos", Address(HOST, 1001))
    targets.add("broker", Address("broker-4", 9101))
    assert files(tmp_path) == {
        "chaos-127.0.0.1:1001.json": ["127.0.0.1:1001"],
        "broker-broker-4:9101.json": ["broker-4:9101"],
    }
    targets.remove("chaos", Address(HOST, 1001))
    targets.remove("chaos", Address(HOST, 1001))
    assert files(tmp_path) == {"broker-broker-4:9101.json": ["broker-4:9101"]}


def test_targets_that_nothing_serves_are_removed(targets: ScrapeTargets, tmp_path: Path) -> None:
    targets.remove_unserved("chaos")  # there are none
    with socket.create_server((HOST, 0)) as server:
        served, free = server.getsockname()[1], free_ports(1)[0]
        for port in (served, free):
            targets.add("chaos", Address(HOST, port))
        targets.add("broker", Address(HOST, free))
        targets.remove_unserved("chaos")
    assert sorted(files(tmp_path)) == sorted([f"chaos-{HOST}:{served}.json", f"broker-{HOST}:{free}.json"])


def test_a_target_that_cannot_be_written_is_an_error(targets: ScrapeTargets, tmp_path: Path) -> None:
    (tmp_path / "targets").write_text("no directory")
    with pytest.raises(ClusterError, match=r"targets of tidelog-prometheus-1: .*mkdir"):
        targets.add("chaos", Address(HOST, 1001))
