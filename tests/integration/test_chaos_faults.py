"""The faults of chaos on real processes, under a load that loses nothing: each is seen from elsewhere than the fault looks."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import pytest

from helpers.cluster import pid_of, running_cluster
from helpers.groups import on_every_broker
from helpers.requirements import requirement
from helpers.scene import Scene, log_bytes, under_load
from tidelog.chaos.faults.base import Bed, InForce, Injected, On
from tidelog.chaos.faults.registry import fault_named, make
from tidelog.chaos.targets import parse, resolve
from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, CONTROLLER, ZOOKEEPER, State, broker_id_of
from tidelog.cluster.local import LocalCluster
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.tasks import Supervisor

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SESSION = {"zookeeper_session_timeout_ms": "10000"}
"""Who is cut off from ZooKeeper is waited for; of nobody else it may end, on a machine that holds a process up for seconds."""
SETTINGS = {
    BROKER: SESSION | {"replica_lag_time_max_ms": "1500", "metadata_reserve_bytes": "32768"},
    CONTROLLER: SESSION,
}
SILENCE_S = 1.0
BALLAST_BYTES = 256 << 10


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    base = tmp_path_factory.mktemp("faults") / "cluster"
    with running_cluster(base, links_through_proxy=True, zookeepers=3, settings=SETTINGS) as running:
        yield running


@dataclass
class Play:
    """A load, and faults beside it."""

    scene: Scene
    bed: Bed
    through_proxy: Producer
    """A client whose links can be cut."""

    async def begin(self, fault: str, target: str, **texts: str) -> tuple[Injected, tuple[str, ...]]:
        names = await resolve(parse(target), self.bed)
        return await make(fault_named(fault), texts).inject(self.bed, names), names

    async def send(self) -> asyncio.Future[object]:
        ack = await self.through_proxy.send(self.scene.topic, b"through the proxy", partition=0)
        return asyncio.ensure_future(asyncio.shield(ack))

    def state_of(self, name: str) -> State:
        return next(row.state for row in self.bed.cluster.status() if row.name == name)


@asynccontextmanager
async def playing(cluster: LocalCluster, directory: Path) -> AsyncIterator[Play]:
    clock, tasks = SystemClock(), Supervisor("faults")
    ports = ClientPorts(clock, GrpcNet(link_map=cluster.client_links()), Random(1))
    async with under_load(cluster, directory) as scene, Admin(scene.servers) as admin:
        with InForce() as in_force:
            async with Producer(scene.servers, ports=ports, request_timeout_ms=2_000) as producer:
                bed = Bed(cluster, On.LOCAL, admin, scene.topic, clock, Random(1), tasks, in_force)
                try:
                    yield Play(scene, bed, producer)
                finally:
                    await tasks.stop()
                    await in_force.heal_all()
                    await scene.mended()
                    await scene.full()


@requirement("A follower paused beyond the lag limit rejoins after catch-up")
async def test_processes_die_stand_still_and_come_back(cluster: LocalCluster, tmp_path: Path) -> None:
    async with playing(cluster, tmp_path) as play:
        scene = play.scene
        before = pid_of(cluster, "broker-1")
        assert before is not None
        killed, names = await play.begin("kill", "broker-1")
        assert names == ("broker-1",) and not psutil.pid_exists(before)
        await scene.reached("an ISR without it", lambda state: 1 not in state.isr)
        await killed.heal()
        await scene.full()

        stopped, _ = await play.begin("stop", "broker-2")
        seen = stopped.observed["broker-2"]
        assert isinstance(seen, dict) and seen["exit_code"] == 0 and seen["clean"] is True
        assert (cluster.data_dir("broker-2") / ".clean-shutdown").exists()
        await stopped.heal()
        await scene.full()

        paused, _ = await play.begin("pause", "follower of 0")
        (name,) = paused.targets
        pid = pid_of(cluster, name)
        assert pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED
        await scene.reached("an ISR without it", lambda state: broker_id_of(name) not in state.isr)
        await paused.heal()
        await scene.full()

        pids = {row.name: row.pid for row in cluster.status()}
        _, (name,) = await play.begin("bounce", "standby controller", within="60s")
        assert name in cluster.names(CONTROLLER)
        assert pid_of(cluster, name) not in (None, pids[name])
        await scene.full()


@requirement("Fencing holds when any single link is cut")
@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("Clients cut from all brokers get unknown outcomes")
async def test_links_are_cut_between_any_two_sets_and_one_way(cluster: LocalCluster, tmp_path: Path) -> None:
    async with playing(cluster, tmp_path) as play:
        scene, leader = play.scene, play.scene.leader
        cut, _ = await play.begin("isolate", "leader of 0", peers="all zookeepers")
        await scene.reached("another leader", lambda state: state.leader not in (-1, broker_id_of(leader)))
        assert broker_id_of(leader) not in scene.stored.brokers()
        await cut.heal()
        await scene.full()

        # The follower's fetches no longer reach the leader, which hears of it through the controller alone.
        cut, (follower,) = await play.begin("isolate", "follower of 0", peers="leader of 0", direction="outbound")
        await scene.reached("an ISR without it", lambda state: broker_id_of(follower) not in state.isr)
        assert broker_id_of(follower) in scene.stored.brokers()
        ways = cluster.proxy.cuts()
        assert ways and cluster.passing(ways) == []
        await cut.heal()
        assert cluster.passing(ways) == ways
        await scene.full()

        await (await play.send())
        cut, names = await play.begin("isolate", "clients", peers="all brokers")
        assert names == ("client",)
        ack = await play.send()
        await asyncio.wait([ack], timeout=SILENCE_S)
        assert not ack.done()
        await scene.more_acks()  # whoever does not dial through the proxy is not cut
        await cut.heal()
        await asyncio.wait_for(ack, 30.0)


@requirement("Packet loss and slow links delay records and lose none")
@requirement("Connection resets never duplicate a record of an idempotent producer")
async def test_links_are_slow_and_connections_are_reset(cluster: LocalCluster, tmp_path: Path) -> None:
    async with playing(cluster, tmp_path) as play:
        clock = play.bed.clock
        await (await play.send())
        slow, _ = await play.begin("slow-link", "leader of 0", peers="everything and clients", delay="300ms")
        began_at = clock.now()
        await (await play.send())
        assert clock.now() - began_at >= 0.6, "a request and its answer"
        await slow.heal()
        reset, _ = await play.begin("reset", "leader of 0", peers="all brokers and clients", every="500ms")
        assert isinstance(closed := reset.observed["closed"], int) and closed >= 2
        await play.scene.more_acks()
        await reset.heal()


@requirement("The death of one ZooKeeper server expires no session")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_zookeeper_changes_its_leader_and_loses_its_quorum_and_no_session_ends(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with playing(cluster, tmp_path) as play:
        scene, epochs = play.scene, play.scene.states()
        lives = [scene.stored.broker_epoch(broker) for broker in (0, 1, 2)]
        expired = on_every_broker(cluster, "tidelog_zk_session_expirations_total")
        killed, (name,) = await play.begin("kill", "zookeeper leader")
        others = [each for each in cluster.names(ZOOKEEPER) if each != name]
        modes = {"leader", "follower"}
        await scene.until("a quorum", lambda: {cluster.zookeeper_mode(each) for each in others} == modes)
        await scene.more_acks()
        await killed.heal()
        await scene.until("its return", lambda: cluster.zookeeper_mode(name) == "follower")

        lost, names = await play.begin("lose-quorum", "majority zookeepers")
        assert len(names) == 2
        (left,) = set(cluster.names(ZOOKEEPER)) - set(names)
        assert cluster.zookeeper_mode(left) == ""
        await lost.heal()
        await scene.until(
            "a quorum", lambda: any(cluster.zookeeper_mode(each) == "leader" for each in cluster.names(ZOOKEEPER))
        )
        await scene.until("ZooKeeper", lambda: scene.stored.reachable)
        assert [scene.stored.broker_epoch(broker) for broker in (0, 1, 2)] == lives
        assert on_every_broker(cluster, "tidelog_zk_session_expirations_total") == expired, "of a coordinator too"
        assert [state.leader_epoch for state in scene.states()] == [state.leader_epoch for state in epochs]


async def test_data_are_wiped_torn_and_altered_and_come_back_from_the_others(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with playing(cluster, tmp_path) as play:
        scene = play.scene
        identity = cluster.data_dir("broker-1") / "identity"
        before = identity.read_text()
        wiped, _ = await play.begin("wipe", "broker-1")
        assert not any(cluster.data_dir("broker-1").iterdir())
        await wiped.heal()
        await scene.until("another disk", lambda: identity.exists() and identity.read_text() not in ("", before))
        await scene.full()

        torn, (name,) = await play.begin("torn-tail", "follower of 0", bytes="100")
        broker = broker_id_of(name)
        cut = log_bytes(cluster, broker, scene.topic, 0)
        await torn.heal()
        await scene.full()
        assert log_bytes(cluster, broker, scene.topic, 0).startswith(cut[:-1_000])

        checkpoint = cluster.data_dir("broker-2") / "replication-offset-checkpoint"
        await scene.until("a checkpoint", checkpoint.exists)
        flipped, _ = await play.begin("bit-flip", "broker-2", file="checkpoint")
        await flipped.heal()
        await scene.full()


@requirement("A full disk moves leadership and heals when space returns")
async def test_a_full_disk_costs_its_broker_the_partition_until_it_is_healed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with playing(cluster, tmp_path) as play:
        scene = play.scene
        async with Producer(scene.servers) as producer:
            for _ in range(BALLAST_BYTES >> 16):
                await (await producer.send(scene.topic, bytes(1 << 16), partition=0))
        full, (name,) = await play.begin("full-disk", "follower of 0")
        await scene.reached("an ISR without it", lambda state: broker_id_of(name) not in state.isr)
        await full.heal()
        await scene.full()


@requirement("A full disk moves leadership and heals when space returns")
async def test_a_full_disk_costs_zookeeper_one_server_until_it_is_healed_and_no_session_ends(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with playing(cluster, tmp_path) as play:
        scene, epochs = play.scene, play.scene.states()
        lives = [scene.stored.broker_epoch(broker) for broker in (0, 1, 2)]
        full, (name,) = await play.begin("full-disk", "zookeeper leader")
        others = [each for each in cluster.names(ZOOKEEPER) if each != name]
        modes = {"leader", "follower"}
        await scene.until("a quorum", lambda: {cluster.zookeeper_mode(each) for each in others} == modes)
        await scene.more_acks()
        assert cluster.zookeeper_mode(name) == "", "it stays out while its disk is full"
        await full.heal()
        await scene.until("its return", lambda: cluster.zookeeper_mode(name) == "follower")
        await scene.until("ZooKeeper", lambda: scene.stored.reachable)
        assert [scene.stored.broker_epoch(broker) for broker in (0, 1, 2)] == lives
        assert [state.leader_epoch for state in scene.states()] == [state.leader_epoch for state in epochs]
