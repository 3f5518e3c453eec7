"""The Compose adapter of `Cluster` on containers that only sleep: what it does to them and what it says of them."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import states
from helpers.images import image
from helpers.scripts import ROOT
from tidelog.cluster.api import ClusterError, Direction, Pause, State
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


def answers(cluster: ComposeCluster, name: str, host: str, within: str = "20") -> bool:
    """Nobody listens there: who is reached refuses, at once unless the engine is busy with something else, who is cut off says
    nothing."""
    dial = f"exec 3<>/dev/tcp/{host}/9"
    command = ["docker", "compose", "-p", cluster.project, "exec", "-T", name, "timeout", within, "bash", "-c", dial]
    done = subprocess.run(command, cwd=cluster.root, capture_output=True, check=False)
    assert done.returncode in (1, 124), done.stderr
    return done.returncode == 1


def is_silent(cluster: ComposeCluster, name: str, host: str) -> bool:
    return not answers(cluster, name, host, within="1")


def test_isolation_cuts_the_named_links_and_heal_ends_it(cluster: ComposeCluster) -> None:
    assert answers(cluster, "broker-2", "one.cluster")
    cut = cluster.isolate("broker-1", peers=["broker-2"])
    assert set(cut) == {("broker-1", "broker-2"), ("broker-2", "broker-1")}
    assert cluster.passing(cut) == []
    assert is_silent(cluster, "broker-2", "one.cluster")
    assert is_silent(cluster, "broker-1", "broker-2")
    assert answers(cluster, "broker-1", "zookeeper-1")
    cluster.isolate("broker-1")
    assert is_silent(cluster, "broker-1", "zookeeper-1")
    cluster.heal()
    assert answers(cluster, "broker-2", "one.cluster")
    assert answers(cluster, "broker-1", "zookeeper-1")
    assert cluster.passing(cut) == cut


@pytest.mark.parametrize("direction", [Direction.INBOUND, Direction.OUTBOUND])
def test_a_link_is_cut_one_way(cluster: ComposeCluster, direction: Direction) -> None:
    ways = [("broker-2", "broker-1"), ("broker-1", "broker-2")]
    (cut,) = cluster.isolate("broker-1", ["broker-2"], direction)
    assert cut == ways[direction is Direction.OUTBOUND]
    assert cluster.passing(ways) == [way for way in ways if way != cut]
    assert is_silent(cluster, "broker-2", "one.cluster"), "an answer has to come back"
    cluster.rejoin("broker-1", ["broker-2"], direction)
    assert cluster.passing(ways) == ways


def test_a_cut_outlives_a_restart_and_one_that_another_program_left_is_healed(cluster: ComposeCluster) -> None:
    cluster.isolate("broker-1", ["broker-2"])
    for name in ("broker-1", "broker-2"):
        cluster.kill(name)
        cluster.start(name)
        assert is_silent(cluster, "broker-2", "one.cluster")
    later = ComposeCluster(cluster.root, cluster.project)
    later.heal()
    later.close()
    assert answers(cluster, "broker-2", "one.cluster")
    cluster.heal()


def test_packets_are_lost_and_counted(cluster: ComposeCluster) -> None:
    cluster.lose_packets("broker-1", 1.0)
    assert is_silent(cluster, "broker-2", "one.cluster")
    assert cluster.lost_packets("broker-1") > 0
    cluster.lose_packets("broker-1", 0.0)
    assert answers(cluster, "broker-2", "one.cluster")


def test_a_signal_stops_what_runs_inside_and_is_seen(cluster: ComposeCluster) -> None:
    cluster.pause("broker-2", Pause.SIGNAL)
    assert states(cluster)["broker-2"] is State.PAUSED
    cluster.resume("broker-2")
    assert states(cluster)["broker-2"] is State.RUNNING


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[ComposeCluster]:
    """One container that only sleeps, with this package and a disk of its own, which a second one keeps."""
    subprocess.run([ROOT / "scripts/images.sh", "--quiet"], check=True)
    options = '{type: tmpfs, device: tmpfs, o: "size=8m,uid=10001,mode=700"}'
    text = "".join(
        SERVICE.format(name=name, image=image("tidelog"), networks="cluster-net: ", ports="").replace(
            "    init: true", "    init: true\n    volumes: [data:/var/lib/tidelog]"
        )
        for name in ("broker-1", "disks")
    )
    volumes = f"volumes:\n  data: {{driver_opts: {options}}}\n"
    (tmp_path / "docker-compose.yml").write_text(f"services:\n{text}networks:\n  cluster-net:\n{volumes}")
    made = ComposeCluster(tmp_path, project=f"disk-{uuid.uuid4().hex[:8]}")
    made.up(60.0)
    yield made
    made.down(volumes=True)
    made.close()


def test_a_small_disk_is_filled_to_its_last_byte_and_freed(small_disk: ComposeCluster) -> None:
    def writes() -> bool:
        command = ["docker", "compose", "-p", small_disk.project, "exec", "-T", "broker-1"]
        write = ["sh", "-c", "head -c 5000 /dev/zero >> /var/lib/tidelog/00.log"]  # more than what is left of a page
        return subprocess.run([*command, *write], cwd=small_disk.root, capture_output=True, check=False).returncode == 0

    assert writes()
    assert small_disk.fill_disk("broker-1", ".log") == "0 bytes are left on the disk of broker-1"
    assert not writes()
    small_disk.kill("broker-1")
    small_disk.free_disk("broker-1")
    assert small_disk.files("broker-1").sizes().keys() == {"00.log"}, "who was killed finds what it had"
    small_disk.start("broker-1")
    assert writes()


def test_what_has_no_link_cannot_be_cut(cluster: ComposeCluster) -> None:
    with pytest.raises(ClusterError, match="zookeeper-1 shares no network with anybody"):
        cluster.isolate("zookeeper-1", peers=["zookeeper-1"])
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
