"""The Compose adapter of `Cluster` on containers that only sleep: what it does to them and what it says of them."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.cluster.api import ClusterError, Direction, State
from tidelog.cluster.compose import ComposeCluster
from tidelog.cluster.free_ports import free_ports
from tidelog.ids import Address

pytestmark = pytest.mark.compose

IMAGE = os.environ.get("TIDELOG_BASE", "debian:trixie-slim")
SERVICE = """\
  {name}:
    image: {image}
    command: [sleep, infinity]
    init: true
    stop_grace_period: 2s
    networks: {{{networks}}}
    ports: [{ports}]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    root: Path = tmp_path_factory.mktemp("compose")
    port = free_ports(1)[0]
    services = [
        SERVICE.format(name="zookeeper-1", image=IMAGE, networks="zk-net: ", ports=""),
        SERVICE.format(
            name="broker-1",
            image=IMAGE,
            networks="zk-net: , cluster-net: {aliases: [one.cluster]}",
            ports=f'"127.0.0.1:{port}:19092"',
        ),
        SERVICE.format(name="broker-2", image=IMAGE, networks="zk-net: , cluster-net: ", ports=""),
        SERVICE.format(name="prometheus", image=IMAGE, networks="cluster-net: ", ports=""),
        SERVICE.format(name="zookeeper-exporter", image=IMAGE, networks="zk-net: ", ports=""),
    ]
    text = "services:\n" + "".join(services) + "networks:\n  zk-net:\n  cluster-net:\n"
    (root / "docker-compose.yml").write_text(text)
    made = ComposeCluster(root, project=f"adapter-{uuid.uuid4().hex[:8]}")
    made.up(60.0)
    yield made
    made.down(volumes=True)
    made.close()


def states(cluster: ComposeCluster) -> dict[str, State]:
    return {row.name: row.state for row in cluster.status()}


def test_only_processes_of_the_cluster_are_listed(cluster: ComposeCluster) -> None:
    assert cluster.names() == ["zookeeper-1", "broker-1", "broker-2"]
    assert cluster.names("broker") == ["broker-1", "broker-2"]
    (address,) = cluster.endpoints("broker").values()
    assert isinstance(address, Address) and address.host == "127.0.0.1"


def test_kill_is_seen_and_so_is_the_start(cluster: ComposeCluster) -> None:
    before = cluster.endpoints("broker")
    cluster.kill("broker-1")
    assert states(cluster)["broker-1"] is State.STOPPED
    assert cluster.endpoints("broker") == before
    with pytest.raises(ClusterError, match="does not run"):
        cluster.kill("broker-1")
    cluster.start("broker-1")
    assert states(cluster)["broker-1"] is State.RUNNING


def test_pause_freezes_and_resume_thaws(cluster: ComposeCluster) -> None:
    cluster.pause("broker-2")
    assert states(cluster)["broker-2"] is State.PAUSED
    with pytest.raises(ClusterError, match="broker-2 is paused, not running"):
        cluster.stop("broker-2")
    cluster.resume("broker-2")
    assert states(cluster)["broker-2"] is State.RUNNING


def reaches(cluster: ComposeCluster, name: str, host: str) -> bool:
    command = ["docker", "compose", "-p", cluster.project, "exec", "-T", name, "getent", "hosts", host]
    return subprocess.run(command, cwd=cluster.root, capture_output=True, check=False).returncode == 0


def test_isolation_cuts_the_named_links_and_heal_brings_names_back(cluster: ComposeCluster) -> None:
    assert reaches(cluster, "broker-2", "one.cluster")
    cluster.isolate("broker-1", peers=["broker-2"])
    assert not reaches(cluster, "broker-2", "one.cluster")
    assert reaches(cluster, "broker-1", "zookeeper-1")
    cluster.isolate("broker-1")
    assert not reaches(cluster, "broker-1", "zookeeper-1")
    cluster.heal()
    assert reaches(cluster, "broker-2", "one.cluster")
    assert reaches(cluster, "broker-1", "zookeeper-1")


def test_what_compose_cannot_cut_is_refused(cluster: ComposeCluster) -> None:
    with pytest.raises(ClusterError, match="one way"):
        cluster.isolate("broker-1", direction=Direction.INBOUND)
    with pytest.raises(ClusterError, match="broker-3"):
        cluster.isolate("broker-1", peers=["broker-3"])


def test_an_unknown_name_is_answered_with_the_known_ones(cluster: ComposeCluster) -> None:
    with pytest.raises(ClusterError, match=r"no process broker-9.*broker-1"):
        cluster.kill("broker-9")


def test_a_project_without_containers_is_named(cluster: ComposeCluster) -> None:
    nobody = ComposeCluster(cluster.root, project="adapter-nobody")
    with pytest.raises(ClusterError, match="adapter-nobody has no containers"):
        nobody.status()
    nobody.close()
