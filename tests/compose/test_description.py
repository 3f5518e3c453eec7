"""docker-compose.yml as Compose reads it: what must hold for every service, before any of them runs."""

import re
from typing import Any

import pytest
from testcontainers.compose import DockerCompose

from helpers.images import image
from helpers.scripts import ROOT
from tidelog.sizes import RESPONSES_BYTES
from tidelog.storage.tail import TAIL_BYTES_MAX

SPARK = {"spark-master", "spark-worker-1", "spark-worker-2", "spark-history"}
GROWN = (4, 5)
"""Brokers that `make grow` starts, gives their share and has Prometheus scrape."""
SCRAPED_BY_EXPORTER = {"zookeeper-1", "zookeeper-2", "zookeeper-3"}


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    """Without an override file, which there may be, and with every profile."""
    files, profiles = ["docker-compose.yml"], ["spark", "grow"]
    return DockerCompose(
        ROOT, compose_file_name=files, profiles=profiles, env_file=str(ROOT / ".env.example")
    ).get_config()


def processes(description: dict[str, Any]) -> dict[str, Any]:
    """The services that do something: not those that build an image and end."""
    return {name: each for name, each in description["services"].items() if not name.endswith("-image")}


@pytest.mark.smoke
def test_the_cluster_has_its_processes(description: dict[str, Any]) -> None:
    assert description["name"] == "tidelog"
    kinds = [re.sub(r"-\d$", "", name) for name in sorted(processes(description))]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "agent": 3,
        "broker": 5,
        "controller": 2,
        "grafana": 1,
        "pipeline": 1,
        "prometheus": 1,
        "spark-history": 1,
        "spark-master": 1,
        "spark-worker": 2,
        "traffic": 1,
        "watch": 1,
        "zookeeper": 3,
        "zookeeper-exporter": 1,
    }


@pytest.mark.smoke
def test_every_service_is_confined(description: dict[str, Any]) -> None:
    for name, service in description["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True, name
        assert not service.get("privileges"), name
        assert service.get("network_mode") == ("none" if name.endswith("-image") else None), name
        assert service["logging"]["options"] == {"max-file": "3", "max-size": "10m"}, name


@pytest.mark.smoke
def test_no_service_can_take_the_whole_machine(description: dict[str, Any]) -> None:
    """An engine refuses more cores than the machine has."""
    for name, service in description["services"].items():
        assert service["cpus"] == 1, name
        assert 256 <= int(service["mem_limit"]) / 2**20 <= 2048, name


@pytest.mark.smoke
def test_servers_have_memory_for_what_slow_readers_hold(description: dict[str, Any]) -> None:
    for name, service in description["services"].items():
        beside = {"broker": TAIL_BYTES_MAX + (400 << 20), "controller": 200 << 20}.get(name.partition("-")[0])
        if beside is not None and not name.endswith("-image"):
            assert int(service["mem_limit"]) >= RESPONSES_BYTES + beside, name


@pytest.mark.smoke
def test_the_engine_restarts_nothing_so_a_killed_container_stays_dead(description: dict[str, Any]) -> None:
    assert {service["restart"] for service in description["services"].values()} == {"no"}


@pytest.mark.smoke
def test_ports_are_published_on_this_machine_alone_and_none_of_zookeeper(description: dict[str, Any]) -> None:
    published = {
        name: [(port["host_ip"], port["published"]) for port in service.get("ports", [])]
        for name, service in description["services"].items()
    }
    assert {name: ports for name, ports in published.items() if ports} == {
        "broker-1": [("127.0.0.1", "19092")],
        "broker-2": [("127.0.0.1", "29092")],
        "broker-3": [("127.0.0.1", "39092")],
        "broker-4": [("127.0.0.1", "49092")],
        "broker-5": [("127.0.0.1", "59092")],
        "grafana": [("127.0.0.1", "3000")],
        "prometheus": [("127.0.0.1", "9090")],
        "watch": [("127.0.0.1", "8089")],
        "spark-history": [("127.0.0.1", "18080")],
        "spark-master": [("127.0.0.1", "8080")],
    }


@pytest.mark.smoke
def test_brokers_tell_clients_the_address_that_is_published(description: dict[str, Any]) -> None:
    for n in (1, 2, 3, *GROWN):
        broker = description["services"][f"broker-{n}"]
        advertised = broker["environment"]["TIDELOG_ADVERTISED_LISTENERS"].split(",")
        (port,) = broker["ports"]
        assert advertised == [f"INTERNAL://broker-{n}.cluster:9092", f"EXTERNAL://127.0.0.1:{port['published']}"]
        assert f"broker-{n}.cluster" in broker["networks"]["cluster-net"]["aliases"]
        assert broker["environment"]["TIDELOG_LISTENERS"].endswith(f":{port['target']}")


@pytest.mark.smoke
def test_agents_are_members_of_one_group_with_a_name_each(description: dict[str, Any]) -> None:
    for n in (1, 2, 3):
        environment = description["services"][f"agent-{n}"]["environment"]
        assert environment["TIDELOG_AGENT_ID"] == f"agent-{n}"
        assert (environment["TIDELOG_GROUP_ID"], environment["TIDELOG_TOPICS"]) == ("agents", "events")


@pytest.mark.smoke
def test_agents_traffic_and_spark_reach_brokers_alone(description: dict[str, Any]) -> None:
    advertised = [
        description["services"][f"broker-{n}"]["environment"]["TIDELOG_ADVERTISED_LISTENERS"] for n in (1, 2, 3)
    ]
    internal = [text.split(",")[0].removeprefix("INTERNAL://") for text in advertised]
    for name in ("agent-1", "agent-2", "agent-3", "traffic", "pipeline", *SPARK):
        assert set(description["services"][name]["networks"]) == {"cluster-net"}, name
    for name, service in processes(description).items():
        if service["image"].startswith(("tidelog/tidelog:", "tidelog/spark:")):
            assert service["environment"]["TIDELOG_BOOTSTRAP_SERVERS"].split(",") == internal, name


@pytest.mark.smoke
def test_m06_prometheus_scrapes_every_container_of_ours(description: dict[str, Any]) -> None:
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    targets = set(re.findall(r'"([\w-]+):\d+"', text)) | set(re.findall(r'names: \["([\w-]+)"\]', text))
    scraped = (targets - {"localhost"}) | SCRAPED_BY_EXPORTER | {"prometheus"}
    scraped |= {f"broker-{n}" for n in GROWN}
    assert scraped == set(processes(description)) - {"grafana", "watch"} - SPARK, "the page has no metrics"


@pytest.mark.smoke
def test_only_grafana_needs_docker_hub(description: dict[str, Any]) -> None:
    built = {service["image"] for service in description["services"].values() if "build" in service}
    pulled = {name for name, service in description["services"].items() if service["image"] not in built}
    assert pulled == {"grafana"}
    assert "profiles" not in description["services"]["grafana"], "a bare `docker compose up` has it"


@pytest.mark.smoke
def test_a_service_alone_builds_its_image_and_no_two_do(description: dict[str, Any]) -> None:
    """An engine with the containerd store builds in parallel and refuses the second export of a tag."""
    built = [service["image"] for service in description["services"].values() if "build" in service]
    assert sorted(built) == sorted(set(built))
    for name, service in processes(description).items():
        if "build" not in service and name != "grafana":
            (builder,) = service["depends_on"]
            assert service["depends_on"][builder]["condition"] == "service_completed_successfully", name
            assert description["services"][builder]["image"] == service["image"], name


@pytest.mark.smoke
def test_every_process_has_a_health_check(description: dict[str, Any]) -> None:
    with_own = {name for name, service in processes(description).items() if "healthcheck" in service}
    # ZooKeeper's and Prometheus's checks are in their images.
    assert set(processes(description)) - with_own == {"prometheus", *SCRAPED_BY_EXPORTER}


@pytest.mark.smoke
def test_brokers_for_growth_come_when_they_are_asked_for(description: dict[str, Any]) -> None:
    asked = {name for name, service in description["services"].items() if service.get("profiles") == ["grow"]}
    assert asked == {f"broker-{n}" for n in GROWN}


@pytest.mark.smoke
def test_spark_comes_when_it_is_asked_for(description: dict[str, Any]) -> None:
    asked = {name for name, service in description["services"].items() if service.get("profiles") == ["spark"]}
    assert asked == {*SPARK, "pipeline", "spark-image"}
    images = {service["image"] for name, service in description["services"].items() if name in asked}
    assert images == {image("spark")}


@pytest.mark.smoke
def test_every_small_disk_outlives_the_process_that_has_it() -> None:
    files = ["docker-compose.yml", "deploy/chaos/small-disks.yml"]
    services = DockerCompose(ROOT, compose_file_name=files, env_file=str(ROOT / ".env.example")).get_config()[
        "services"
    ]
    with_disks = {
        volume["source"]
        for name, service in services.items()
        if name.startswith(("broker-", "zookeeper-"))
        for volume in service.get("volumes", [])
    }
    assert len(with_disks) == 6
    assert {volume["source"] for volume in services["disks"]["volumes"]} == with_disks
