"""The faults of chaos on containers: the same ones as on local processes, through the same interface."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from helpers.cluster import states, unique_topic
from helpers.compose import PROJECT, ComposeProject
from helpers.requirements import requirement
from helpers.scripts import ROOT
from tidelog.chaos.faults.base import Bed, InForce, Injected, On
from tidelog.chaos.faults.registry import fault_named, make
from tidelog.chaos.replicas import read_replicas
from tidelog.chaos.targets import parse, resolve
from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, ZOOKEEPER, State, bootstrap_servers, broker_id_of, broker_name
from tidelog.cluster.compose import ComposeCluster
from tidelog.cluster.wait import until
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.znodes import broker_path

LIMIT_S = 280.0
WITHIN_S = 60.0
SILENCE_S = 1.5
RECORD = b"x" * 500


class Play:
    def __init__(self, bed: Bed, producer: Producer) -> None:
        self.bed = bed
        self._producer = producer

    async def begin(self, fault: str, target: str, **texts: str) -> tuple[Injected, tuple[str, ...]]:
        names = await resolve(parse(target), self.bed)
        return await make(fault_named(fault), texts).inject(self.bed, names), names

    async def send(self, count: int = 1) -> asyncio.Future[Any]:
        """Through the links of clients."""
        acks = [await self._producer.send(self.bed.topic, RECORD, partition=0) for _ in range(count)]
        return asyncio.ensure_future(asyncio.gather(*acks))

    async def partition(self) -> m.PartitionDescription:
        return (await self.bed.admin.describe_topic(self.bed.topic)).partitions[0]

    async def reached(self, what: str, holds: Callable[[m.PartitionDescription], bool]) -> None:
        deadline = self.bed.clock.now() + WITHIN_S
        while not holds(found := await self.partition()):
            assert self.bed.clock.now() < deadline, f"{WITHIN_S:g} s without {what}: {found}"
            await self.bed.clock.sleep(0.2)

    async def full(self) -> None:
        await self.bed.admin.wait_until_led(self.bed.topic, in_sync=True, timeout_s=WITHIN_S)


@pytest.fixture
def cluster(project: ComposeProject) -> Iterator[ComposeCluster]:
    made = ComposeCluster(ROOT, PROJECT)
    yield made
    made.close()


@asynccontextmanager
async def playing(cluster: ComposeCluster) -> AsyncIterator[Play]:
    clock, tasks, topic = SystemClock(), Supervisor("faults"), unique_topic("faults")
    ports = ClientPorts(clock, GrpcNet(link_map=cluster.client_links()), Random(1))
    servers = bootstrap_servers(cluster)
    with InForce() as in_force:
        async with Admin(servers) as admin, Producer(servers, ports=ports, request_timeout_ms=3_000) as producer:
            await admin.create_topic(topic, 1, 3, configs={"min.insync.replicas": "2"})
            await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
            play = Play(Bed(cluster, On.COMPOSE, admin, topic, clock, Random(1), tasks, in_force), producer)
            try:
                await (await play.send())
                yield play
            finally:
                await tasks.stop()
                await in_force.heal_all()
                await play.full()
                await admin.delete_topic(topic)  # other tests look at what the containers hold from the start


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("Clients cut from all brokers get unknown outcomes")
async def test_links_are_cut_between_any_two_sets_and_one_way(cluster: ComposeCluster) -> None:
    async with playing(cluster) as play:
        led = (await play.partition()).leader
        cut, _ = await play.begin("isolate", "leader of 0", peers="all zookeepers")
        await play.reached("another leader", lambda found: found.leader not in (-1, led))
        await cut.heal()
        await play.full()

        cut, (follower,) = await play.begin("isolate", "follower of 0", peers="leader of 0", direction="outbound")
        load = await play.send(20)
        await play.reached("an ISR without it", lambda found: broker_id_of(follower) not in found.isr)
        await load
        await cut.heal()
        await play.full()

        cut, names = await play.begin("isolate", "clients", peers="all brokers")
        ack = await play.send()
        await asyncio.wait([ack], timeout=SILENCE_S)
        assert names == ("client",) and not ack.done()
        await cut.heal()
        await asyncio.wait_for(ack, WITHIN_S)


@requirement("Packet loss and slow links delay records and lose none")
@requirement("Connection resets never duplicate a record of an idempotent producer")
async def test_packets_are_lost_and_connections_reset(cluster: ComposeCluster) -> None:
    async with playing(cluster) as play:
        loss, (leader,) = await play.begin("packet-loss", "leader of 0", share="10%")
        await (await play.send(50))
        assert cluster.lost_packets(leader) > 0
        await loss.heal()
        reset, _ = await play.begin("reset", "leader of 0", peers="all brokers and clients", every="1s")
        assert isinstance(closed := reset.observed["closed"], int) and closed > 0
        await (await play.send(50))
        await reset.heal()


async def test_processes_stand_still_by_signal_and_by_freezer_die_and_bounce(cluster: ComposeCluster) -> None:
    async with playing(cluster) as play:
        for how in ("signal", "freezer"):
            paused, (leader,) = await play.begin("pause", "leader of 0", how=how)
            assert states(cluster)[leader] is State.PAUSED
            ack = await play.send()
            await asyncio.wait([ack], timeout=SILENCE_S)
            # A busy engine takes so long to stop it that its session may end meanwhile: then another answers.
            assert not ack.done() or leader != broker_name((await play.partition()).leader), (
                "who stands still answers nobody"
            )
            await paused.heal()
            await asyncio.wait_for(ack, WITHIN_S)
            await play.full()
        before = {row.name: row.pid for row in cluster.status()}
        began_at = play.bed.clock.now()
        bounced, names = await play.begin("bounce", "standby controller", within="60s")  # a busy engine is slow
        after = {row.name: row.pid for row in cluster.status()}
        assert [name for name in after if after[name] != before[name]] == list(names)
        down_s = bounced.observed[names[0]]
        assert isinstance(down_s, float) and 0 < down_s < play.bed.clock.now() - began_at
        stopped, (name,) = await play.begin("stop", "follower of 0")
        seen = stopped.observed[name]
        assert isinstance(seen, dict) and (seen["exit_code"], seen["clean"]) == (0, True)
        await stopped.heal()


@requirement("A fast bounce is detected by the broker epoch")
def test_the_ensemble_tells_whose_session_lives_before_and_after_a_bounce(cluster: ComposeCluster) -> None:
    """How fast an engine is, a busy machine decides: what is seen of a bounce must be right for a slow one too."""
    paths = {name: broker_path(broker_id_of(name)) for name in cluster.names(BROKER)}
    before = cluster.sessions()
    assert set(paths.values()) <= before.holders.keys() and set(before.holders.values()) <= before.alive
    name, bounced = next(iter(paths.items()))
    assert cluster.bounce(name) > 0

    def registered_again() -> bool:
        return cluster.sessions().holders.get(bounced) not in (None, before.holders[bounced])

    until(registered_again, "another registration", timeout_s=WITHIN_S)
    until(lambda: before.holders[bounced] not in cluster.sessions().alive, "the end of its session", timeout_s=WITHIN_S)


@requirement("The death of one ZooKeeper server expires no session")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_zookeeper_changes_its_leader_and_loses_its_quorum(cluster: ComposeCluster) -> None:
    async with playing(cluster) as play:
        epoch = (await play.partition()).leader_epoch
        killed, (first,) = await play.begin("kill", "zookeeper leader")
        others = [name for name in cluster.names(ZOOKEEPER) if name != first]
        await play.bed.until(
            lambda: {cluster.zookeeper_mode(name) for name in others} == {"leader", "follower"},
            "a quorum",
            WITHIN_S,
        )
        await (await play.send())
        await killed.heal()
        await play.bed.until(lambda: cluster.zookeeper_mode(first) == "follower", "its return", WITHIN_S)
        lost, names = await play.begin("lose-quorum", "majority zookeepers")
        assert len(names) == 2
        await (await play.send())
        await lost.heal()
        await play.bed.until(
            lambda: any(cluster.zookeeper_mode(name) == "leader" for name in cluster.names(ZOOKEEPER)),
            "a quorum",
            WITHIN_S,
        )
        assert (await play.partition()).leader_epoch == epoch


async def test_data_are_wiped_torn_and_altered_and_all_replicas_are_the_same_in_the_end(
    cluster: ComposeCluster,
) -> None:
    async with playing(cluster) as play:
        await (await play.send(100))
        wiped, (name,) = await play.begin("wipe", "follower of 0")
        assert cluster.files(name).sizes() == {}
        await wiped.heal()
        await play.full()
        torn, (name,) = await play.begin("torn-tail", "follower of 0", bytes="100")
        await torn.heal()
        await play.full()
        altered, _ = await play.begin("bit-flip", name, file="checkpoint", state="running")
        assert "a bit of byte" in altered.effect
        await (await play.send(10))
        (found,) = await read_replicas(cluster, play.bed.admin, play.bed.topic)
        below = [
            [stretch for stretch in replica.stretches if stretch.end <= found.high_watermark]
            for replica in found.replicas
        ]
        assert found.high_watermark >= 111 and below == [below[0]] * 3
