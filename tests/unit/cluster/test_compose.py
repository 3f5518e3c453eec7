"""The packet rules of containers, with an engine and namespaces that only remember: what is in force after what."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from tidelog.cluster import compose, netfilter
from tidelog.cluster.api import CLIENT, ClusterError, Direction, Sessions, State
from tidelog.cluster.compose import PROJECT_LABEL, SERVICE_LABEL, ComposeCluster
from tidelog.cluster.netfilter import Counters, Rules
from tidelog.ids import Address

NETWORKS = {
    "zookeeper-1": ["zk"],
    "controller-1": ["zk", "cluster"],
    "broker-1": ["zk", "cluster"],
    "broker-2": ["zk", "cluster"],
    "zookeeper-exporter": ["zk"],
}
NUMBERS = count(1)
FINISHED_AT = "2026-11-22T14:22:59.750000999Z"


class Container:
    def __init__(self, name: str) -> None:
        self.name = name
        self.labels = {PROJECT_LABEL: "test", SERVICE_LABEL: name}
        self.status = "exited"
        self.orders: list[str] = []
        ports = {"19092/tcp": [{"HostIp": "", "HostPort": str(20_000 + next(NUMBERS))}]} if "broker" in name else {}
        self.attrs: dict[str, Any] = {"HostConfig": {"PortBindings": ports}, "Labels": self.labels}
        self.start()

    def start(self) -> None:
        """In a namespace of its own, with other addresses than before."""
        self.orders.append("start")
        self.status = "running"
        networks = {network: {"IPAddress": f"10.0.0.{next(NUMBERS)}"} for network in NETWORKS[self.name]}
        state = {"Pid": 1_000_000 + next(NUMBERS), "StartedAt": "2026-11-22T14:23:01.25Z", "FinishedAt": FINISHED_AT}
        self.attrs |= {"State": state, "NetworkSettings": {"Networks": networks}}

    def kill(self) -> None:
        self.orders.append("kill")
        self.status = "exited"
        networks = {network: {"IPAddress": ""} for network in NETWORKS[self.name]}
        self.attrs |= {"State": {"Pid": 0}, "NetworkSettings": {"Networks": networks}}

    @property
    def pid(self) -> int:
        return int(self.attrs["State"]["Pid"])

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(each["IPAddress"] for each in self.attrs["NetworkSettings"]["Networks"].values())


class World:
    """The containers, and the rules of each namespace by the process that lives in it."""

    def __init__(self) -> None:
        self.containers = {name: Container(name) for name in NETWORKS}
        self.rules: dict[int, Rules] = {}
        self.refusals = 3

    def listed(self, *, all: bool, filters: dict[str, list[str]], sparse: bool = False) -> list[Container]:
        for container in self.containers.values():
            container.orders.append("look")
        wanted = dict(label.split("=", 1) for label in filters["label"])
        services = [name for name in self.containers if name == wanted.get(compose.SERVICE_LABEL, name)]
        return [self.containers[name] for name in services] if all else []

    def silenced(self, name: str) -> frozenset[str]:
        return self.rules.get(self.containers[name].pid, Rules()).silenced

    def set_rules(self, pid: int, rules: Rules) -> None:
        self.rules[pid] = rules

    def counters(self, pid: int) -> Counters:
        return Counters({}, self.refusals if self.rules[pid].refused else 0, 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    listed = SimpleNamespace(list=made.listed)
    monkeypatch.setattr(docker, "from_env", lambda: SimpleNamespace(containers=listed, ping=lambda: True))
    monkeypatch.setattr(netfilter, "set_rules", made.set_rules)
    monkeypatch.setattr(netfilter, "counters", made.counters)
    monkeypatch.setattr(compose, "RESETS_FOR_S", 0.0)
    return made


@pytest.fixture
def cluster(world: World) -> Iterator[ComposeCluster]:
    made = ComposeCluster(Path("/nowhere"), "test")
    yield made
    if made._proxy is not None:
        made._proxy.stop()


def test_a_receiver_drops_what_the_sender_sends_from_every_address(world: World, cluster: ComposeCluster) -> None:
    cut = cluster.isolate("broker-1", ["broker-2"])
    assert set(cut) == {("broker-1", "broker-2"), ("broker-2", "broker-1")}
    assert world.silenced("broker-1") == world.containers["broker-2"].addresses
    assert world.silenced("broker-2") == world.containers["broker-1"].addresses
    assert not world.silenced("controller-1")


@pytest.mark.parametrize("direction, dropping", [(Direction.INBOUND, "broker-1"), (Direction.OUTBOUND, "broker-2")])
def test_one_way_only_the_receiver_drops(
    world: World, cluster: ComposeCluster, direction: Direction, dropping: str
) -> None:
    cluster.isolate("broker-1", ["broker-2"], direction)
    assert [name for name in NETWORKS if world.silenced(name)] == [dropping]


def test_a_cut_ends_alone(world: World, cluster: ComposeCluster) -> None:
    cluster.isolate("broker-1", ["broker-2"])
    cluster.isolate("broker-1", ["zookeeper-1"])
    cluster.rejoin("broker-1", ["broker-2"])
    assert not world.silenced("broker-2")
    (left,) = world.silenced("broker-1")
    assert left in world.containers["zookeeper-1"].addresses
    cluster.rejoin("broker-1", ["zookeeper-1"])
    assert set(world.rules.values()) == {Rules()}


def test_a_link_that_two_cuts_share_is_cut_until_both_end(world: World, cluster: ComposeCluster) -> None:
    cluster.isolate("broker-1")
    cluster.isolate("broker-2")
    cluster.rejoin("broker-1")
    assert world.silenced("broker-1") == world.containers["broker-2"].addresses
    cluster.rejoin("broker-1")  # once more: there is nothing left of it
    assert world.silenced("broker-1")
    cluster.rejoin("broker-2")
    assert set(world.rules.values()) == {Rules()}


@pytest.mark.parametrize("restarted", ["broker-1", "broker-2"])
def test_a_cut_outlives_the_restart_of_either_end(world: World, cluster: ComposeCluster, restarted: str) -> None:
    cluster.isolate("broker-1", ["broker-2"])
    cluster.kill(restarted)
    cluster.start(restarted)
    assert world.silenced("broker-1") == world.containers["broker-2"].addresses
    assert world.silenced("broker-2") == world.containers["broker-1"].addresses


def test_a_bounce_asks_for_nothing_between_the_end_and_the_start_and_is_as_long_as_the_engine_says(
    world: World, cluster: ComposeCluster
) -> None:
    cluster.isolate("broker-1", ["broker-2"])
    container = world.containers["broker-1"]
    before, began = container.pid, len(container.orders)
    assert cluster.bounce("broker-1") == 1.5
    ordered = container.orders[began:]
    assert ordered[ordered.index("kill") + 1] == "start" and container.pid != before
    assert world.silenced("broker-1") == world.containers["broker-2"].addresses, "a cut outlives it"
    cluster.kill("broker-1")
    with pytest.raises(ClusterError, match="broker-1 does not run"):
        cluster.bounce("broker-1")


def test_who_dials_through_the_proxy_is_refused_while_a_broker_bounces(
    world: World, cluster: ComposeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.client_links()
    container, proxy = world.containers["broker-1"], cluster._clients_proxy
    monkeypatch.setattr(proxy, "refuse", lambda name: container.orders.append("refuse"))
    monkeypatch.setattr(proxy, "accept", lambda name: container.orders.append("accept"))
    cluster.bounce("broker-1")
    assert [each for each in container.orders[1:] if each != "look"] == ["kill", "refuse", "start", "accept"]


def test_zookeeper_servers_are_asked_for_sessions_where_they_are(
    world: World, cluster: ComposeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Address] = []
    told = Sessions(frozenset({1}), {})
    monkeypatch.setattr(compose, "sessions_at", lambda servers: asked.extend(servers) or told)
    assert cluster.sessions() is told
    (address,) = world.containers["zookeeper-1"].addresses
    assert asked == [Address(address, 2181)]


def test_a_reset_lasts_a_moment_and_leaves_the_cuts_that_were(world: World, cluster: ComposeCluster) -> None:
    assert cluster.reset_connections("broker-1", ["broker-2", "controller-1"]) == 3
    assert world.rules[world.containers["broker-1"].pid] == Rules()
    cluster.isolate("broker-1", ["zookeeper-1"], Direction.INBOUND)
    cluster.reset_connections("broker-1", ["broker-2"])
    (left,) = world.silenced("broker-1")
    assert left in world.containers["zookeeper-1"].addresses
    assert not world.rules[world.containers["broker-1"].pid].refused


def test_a_reset_that_fails_half_way_leaves_no_rule(
    world: World, cluster: ComposeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(pid: int) -> Counters:
        raise ClusterError("no counters")

    monkeypatch.setattr(netfilter, "counters", fails)
    with pytest.raises(ClusterError, match="no counters"):
        cluster.reset_connections("broker-1", ["broker-2"])
    assert world.rules[world.containers["broker-1"].pid] == Rules()


def test_loss_and_cuts_are_kept_apart(world: World, cluster: ComposeCluster) -> None:
    cluster.lose_packets("broker-1", 0.1)
    cluster.isolate("broker-1", ["broker-2"], Direction.INBOUND)
    assert world.rules[world.containers["broker-1"].pid].loss == 0.1
    cluster.lose_packets("broker-1", 0.0)
    assert world.rules[world.containers["broker-1"].pid].loss == 0.0
    assert world.silenced("broker-1") == world.containers["broker-2"].addresses


def test_links_of_clients_run_through_the_proxy_and_touch_no_container(world: World, cluster: ComposeCluster) -> None:
    with pytest.raises(ClusterError, match="clients have to dial as `client_links` says"):
        cluster.isolate(CLIENT, ["broker-1"])
    assert set(cluster.client_links()) == set(cluster.endpoints().values())
    cut = cluster.isolate(CLIENT, ["broker-1"])
    assert set(cut) == {(CLIENT, "broker-1"), ("broker-1", CLIENT)} and cluster.passing(cut) == []
    assert not world.rules
    cluster.rejoin(CLIENT, ["broker-1"])
    assert cluster.passing(cut) == cut


def test_a_shared_link_of_clients_is_cut_until_both_end(world: World, cluster: ComposeCluster) -> None:
    cluster.client_links()
    cut = cluster.isolate(CLIENT, ["broker-1"])
    cluster.isolate("broker-1", [CLIENT])
    cluster.rejoin(CLIENT, ["broker-1"])
    assert cluster.passing(cut) == []
    cluster.rejoin("broker-1", [CLIENT])
    assert cluster.passing(cut) == cut


def test_who_shares_no_network_has_no_link(world: World, cluster: ComposeCluster) -> None:
    with pytest.raises(ClusterError, match="zookeeper-1 shares no network with client"):
        cluster.isolate("zookeeper-1", [CLIENT])
    with pytest.raises(ClusterError, match="no process broker-9"):
        cluster.isolate("broker-1", ["broker-9"])


def test_who_has_ended_has_no_rules_to_set(world: World, cluster: ComposeCluster) -> None:
    cluster.kill("broker-2")
    assert next(row.state for row in cluster.status() if row.name == "broker-2") is State.STOPPED
    cluster.isolate("broker-1", ["broker-2"])
    assert 0 not in world.rules
    cluster.heal()
    assert 0 not in world.rules
