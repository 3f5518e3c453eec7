"""The cluster as containers: it serves, it is watched, and it runs with no rights that it does not need."""

import json
import time
import urllib.request
from ipaddress import IPv4Address
from typing import Any

import pytest

from helpers.compose import PROJECT, ComposeProject
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.api import ClusterError
from tidelog.cluster.wait import until

BROKERS = ["broker-1", "broker-2", "broker-3"]
SERVICES = [
    *(f"zookeeper-{n}" for n in (1, 2, 3)),
    *(f"controller-{n}" for n in (1, 2)),
    *BROKERS,
    *(f"agent-{n}" for n in (1, 2, 3)),
    "traffic",
    "zookeeper-exporter",
    "prometheus",
    "watch",
]


@pytest.mark.smoke
def test_every_container_is_healthy(project: ComposeProject) -> None:
    assert sorted({*project.containers()} - {"grafana"}) == sorted(SERVICES), "Grafana runs where it can be pulled"
    for name in SERVICES:
        project.wait_health(name)  # other tests may have just brought it back


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_rights(project: ComposeProject, service: str) -> None:
    project.assert_without_rights(service)


@pytest.mark.smoke
def test_m06_every_prometheus_target_is_up(project: ComposeProject) -> None:
    def down() -> list[str]:
        targets = active(project)
        assert len(targets) == 11
        return [f"{target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]

    until(lambda: not down(), "every target up", timeout_s=15, interval_s=0.5)


@pytest.mark.smoke
@pytest.mark.parametrize("service", ["broker-1", "controller-2", "agent-3", "traffic", "zookeeper-exporter"])
def test_the_command_line_finds_the_cluster_in_every_container(project: ComposeProject, service: str) -> None:
    assert project.run_in(service, "tidelog", "topics", "list") == (0, "events\n")


@pytest.mark.smoke
def test_a_watch_sees_agents_through_brokers(project: ComposeProject) -> None:
    def watched() -> set[str]:
        code, said = project.run_in(
            "traffic", "tidelog", "watch", "--kind", "member", "--last", "100", "--format", "json"
        )
        assert code == 0, said
        return {json.loads(line)["process"] for line in said.splitlines() if line.startswith("{")}

    until(lambda: watched() == {"agent-1", "agent-2", "agent-3"}, "events of all agents", timeout_s=30)


@pytest.mark.smoke
def test_the_page_shows_the_brokers(project: ComposeProject) -> None:
    until(lambda: shown(project) == dict.fromkeys(BROKERS, "up"), "the page shows them", timeout_s=30)


def shown(project: ComposeProject) -> dict[str, str]:
    """States of the brokers as the page has them."""
    url = f"http://127.0.0.1:{project.settings['WATCH_PORT']}/stream"
    with urllib.request.urlopen(url, timeout=20) as stream:
        for line in stream:
            if line.startswith(b"data: ") and "picture" in (found := json.loads(line[6:])):
                processes = found["picture"]["processes"]
                return {each["name"]: each["state"] for each in processes if each["kind"] == "broker"}
    return {}


def test_a_dead_leader_makes_nothing_unhealthy_and_no_brokers_do(project: ComposeProject) -> None:
    others = sorted({*SERVICES} - {*BROKERS})
    workers = ["agent-1", "agent-2", "agent-3", "traffic"]
    before = {name: address(project, name) for name in BROKERS}
    lowest, *_, highest = sorted(BROKERS, key=before.__getitem__)
    project.faults.kill("broker-1")
    try:
        with pytest.raises(ClusterError):
            until(lambda: any(project.health(name) != "healthy" for name in others), "one is unwell", timeout_s=45)
        for name in ("broker-2", "broker-3"):
            project.faults.kill(name)
        until(lambda: all(project.health(name) == "unhealthy" for name in workers), "workers unwell", timeout_s=60)
        code, said = project.run_in("traffic", "works")
        assert code != 0 and "no record was acknowledged for 30 s" in said
        project.faults.start(highest)  # the engine gives it the lowest address that is free
        assert address(project, highest) == before[lowest]
    finally:
        for name in BROKERS:
            if project.container(name).status != "running":
                project.faults.start(name)
    back = time.time()
    until(lambda: last_acknowledgement(project) > back, "clients that find all brokers", timeout_s=20, interval_s=0.5)
    until(lambda: shown(project) == dict.fromkeys(BROKERS, "up"), "the page shows them again", timeout_s=20)
    for name in SERVICES:
        project.wait_health(name)


def address(project: ComposeProject, service: str) -> IPv4Address:
    """The one at which clients and brokers find it."""
    return IPv4Address(
        project.container(service).attrs["NetworkSettings"]["Networks"][f"{PROJECT}_cluster-net"]["IPAddress"]
    )


def last_acknowledgement(project: ComposeProject) -> float:
    """Seconds since 1970, of the partition that has waited longest."""
    query = "min(tidelog_e2e_last_ack_timestamp_seconds)"
    (found,) = project.prometheus("/api/v1/query", query=query)["result"]
    return float(found["value"][1])


def test_a_chaos_run_is_scraped_while_it_lasts(project: ComposeProject) -> None:
    def health() -> list[str]:
        return [target["health"] for target in active(project) if target["labels"]["job"] == "chaos"]

    with ChaosMetrics().served(project.faults.scrape_targets, pytest.fail):
        until(lambda: health() == ["up"], "the run as a target", timeout_s=30, interval_s=0.5)
    until(lambda: health() == [], "no run as a target", timeout_s=30, interval_s=0.5)


def active(project: ComposeProject) -> list[dict[str, Any]]:
    return list(project.prometheus("/api/v1/targets", state="active")["activeTargets"])


def test_zookeeper_is_healthy_only_in_a_quorum(project: ComposeProject) -> None:
    assert project.run_in("zookeeper-1", "serves")[0] == 0
    for name in ("zookeeper-2", "zookeeper-3"):
        project.faults.kill(name)
    try:
        until(lambda: project.run_in("zookeeper-1", "serves")[0] != 0, "zookeeper-1 not serving", timeout_s=30)
    finally:
        for name in ("zookeeper-2", "zookeeper-3"):
            project.faults.start(name)
    for name in SERVICES:
        project.wait_health(name)
