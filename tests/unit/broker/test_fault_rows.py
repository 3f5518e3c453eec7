"""Rows of the fault matrix on a simulated cluster, where the row says what must not change."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from helpers.batches import batch
from helpers.requirements import requirement
from helpers.whole_cluster import Bed, whole_cluster
from tidelog.client.consumer import Consumer
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Producer
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.invariants import StoredView
from tidelog.testing.net_exchange import Faults
from tidelog.testing.sim_node import SimNode, Timing
from tidelog.testing.views import stored_states
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.znodes import broker_path

SESSION_S, LAG_S, ELECTION_S = 6.0, 2.0, 2.0
TIMING = replace(
    Timing.drawn(1), session_ms=6_000, lag_ms=2_000, request_ms=3_000, keepalive_s=60.0, rebalance_ms=300_000
)
HOUR_MS = 3_600_000
NONE = ErrorCode.NONE


def states(bed: Bed) -> Mapping[TopicPartition, StoredView]:
    return stored_states(bed.cluster.zookeeper.dump())


def led(bed: Bed, tp: TopicPartition) -> SimNode:
    return bed.cluster.nodes[f"broker-{bed.cluster.leader(tp)}"]


def follower_of(bed: Bed, tp: TopicPartition) -> SimNode:
    return next(node for node in bed.cluster.brokers if node is not led(bed, tp))


def epochs(bed: Bed) -> list[int]:
    """Broker epochs: a broker that registers anew has another one."""
    tree = bed.cluster.zookeeper.dump()
    return [tree[broker_path(node.number)].stat.czxid for node in bed.cluster.brokers]


async def converged(bed: Bed) -> None:
    async with asyncio.timeout(60.0):
        while not bed.cluster.converged(frozenset()):
            await bed.ports.clock.sleep(0.1)


async def produced(bed: Bed, node: SimNode, tp: TopicPartition, acks: int, value: bytes = b"v") -> ErrorCode | None:
    """The answer of this broker to one record, whether it leads or not; None when there was none."""
    part = m.ProducePartition(topic=tp.topic, partition=0, leader_epoch=-1, records=batch(value))
    channel = bed.ports.net.channel(node.address, purpose="test")
    request = m.ProduceRequest(acks=acks, timeout_ms=2_000, partitions=(part,))
    try:
        answer = await channel.call(s.REPLICA_SERVICE_PRODUCE, request, 10.0)
    except TransportError:
        return None
    finally:
        await channel.close()
    code: ErrorCode = answer.results[0].error_code
    return code


@asynccontextmanager
async def reading(bed: Bed, topic: str, **options: Any) -> AsyncIterator[tuple[Consumer, list[bytes | None]]]:
    """A member of a group that has everything, and what it has read; it polls until the end."""
    found: list[bytes | None] = []
    async with bed.consumer(group=topic, topics=[topic], max_wait_ms=100, **options) as consumer:

        async def poll() -> None:
            while True:
                found.extend([record.value for record in await consumer.poll(timeout_s=0.2)])

        while not consumer.assignment:
            await consumer.poll(timeout_s=0.2)
        polling = asyncio.create_task(poll())
        yield consumer, found
        polling.cancel()
        await asyncio.wait([polling])


@requirement("Killing every broker at once loses no written record")
async def test_all_are_killed_and_two_suffice_to_go_on() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        tp, values = TopicPartition(await bed.topic(), 0), [b"%d" % number for number in range(20)]
        async with bed.producer() as producer:
            for value in values:
                await (await producer.send(tp.topic, value))
        for node in bed.cluster.brokers:
            node.kill()
        await bed.ports.clock.sleep(2 * SESSION_S)
        members = {broker for broker, _ in states(bed)[tp].isr}
        first, second, third = sorted(bed.cluster.brokers, key=lambda node: node.number not in members)
        first.start()
        await bed.ports.clock.sleep(SESSION_S)
        assert led(bed, tp) is first
        assert await produced(bed, first, tp, -1) is ErrorCode.NOT_ENOUGH_REPLICAS
        second.start()
        await bed.ports.clock.sleep(SESSION_S)
        assert await produced(bed, first, tp, -1, b"after") is NONE
        third.start()
        await converged(bed)
        assert await bed.values(tp.topic) == [*values, b"after"]


@requirement("A leader paused within its session drops no follower")
async def test_a_pause_within_the_session_changes_no_state() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        tp = TopicPartition(await bed.topic(), 0)
        before, leader = states(bed)[tp], led(bed, tp)
        async with bed.producer() as producer:
            sent = [await producer.send(tp.topic, b"%d" % number) for number in range(50)]
            await bed.ports.clock.sleep(0.001)
            leader.pause()
            await bed.ports.clock.sleep(2 * LAG_S)
            assert not all(each.done() for each in sent), "they are on their way"
            leader.resume()
            await asyncio.gather(*sent)
            await bed.ports.clock.sleep(2 * LAG_S)
        assert states(bed)[tp] == before
        assert await bed.values(tp.topic) == [b"%d" % number for number in range(50)]


@requirement("A leader paused beyond its session commits nothing when it wakes")
async def test_a_leader_that_slept_beyond_its_session_truncates() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        tp, network = TopicPartition(await bed.topic(), 0), bed.cluster.network
        leader, began = led(bed, tp), bed.ports.clock.now()
        assert await produced(bed, leader, tp, -1, b"kept") is NONE
        for node in bed.cluster.brokers:
            if node is not leader:
                network.cut(node.name, leader.name)
                network.cut(leader.name, node.name)
        assert await produced(bed, leader, tp, 1, b"one copy") is NONE
        leader.pause()
        early = asyncio.create_task(produced(bed, leader, tp, -1, b"early"))
        while bed.cluster.leader(tp) == leader.number:
            await bed.ports.clock.sleep(0.1)
        assert bed.ports.clock.now() - began < SESSION_S + ELECTION_S
        await bed.ports.clock.sleep(0.5)
        assert await produced(bed, led(bed, tp), tp, -1, b"new") is NONE
        network.heal_all()
        leader.resume()
        assert await early is not NONE
        await converged(bed)
        assert led(bed, tp) is not leader
        assert await bed.values(tp.topic) == [b"kept", b"new"]


@requirement("A follower paused beyond the lag limit rejoins after catch-up")
async def test_writes_stand_still_for_a_lag_limit_and_it_returns() -> None:
    async with whole_cluster(timing=replace(TIMING, session_ms=60_000)) as bed:
        tp = TopicPartition(await bed.topic(), 0)
        before, follower = states(bed)[tp], follower_of(bed, tp)
        async with bed.producer() as producer:
            await (await producer.send(tp.topic, b"before"))
            follower.pause()
            began = bed.ports.clock.now()
            await (await producer.send(tp.topic, b"meanwhile"))
            assert LAG_S - 0.2 < bed.ports.clock.now() - began < LAG_S + 1.5
            assert follower.number not in {broker for broker, _ in states(bed)[tp].isr}
            follower.resume()
            await converged(bed)
        assert states(bed)[tp].isr == before.isr and states(bed)[tp].leader_epoch == before.leader_epoch
        assert await bed.values(tp.topic) == [b"before", b"meanwhile"]


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@pytest.mark.parametrize("setting", ["serve", "refuse"])
async def test_a_leader_cut_from_zookeeper_commits_until_replaced(setting: str) -> None:
    async with whole_cluster(timing=TIMING, acks_without_lease=setting) as bed:
        tp = TopicPartition(await bed.topic(), 0)
        leader, began = led(bed, tp), bed.ports.clock.now()
        leader.cut_zookeeper()
        assert [await produced(bed, leader, tp, acks) for acks in (1, -1)] == [NONE, NONE]
        await bed.ports.clock.sleep(SESSION_S * 2 / 3 + 0.1)
        alone = NONE if setting == "serve" else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [await produced(bed, leader, tp, acks) for acks in (1, -1)] == [alone, NONE]
        while bed.cluster.leader(tp) == leader.number:
            await bed.ports.clock.sleep(0.1)
        assert bed.ports.clock.now() - began < SESSION_S + ELECTION_S
        await bed.ports.clock.sleep(0.5)
        (host,) = [host for host in leader.hosts() if host.tp == tp]
        committed = host.replica.high_watermark
        assert await produced(bed, leader, tp, -1) is not NONE
        assert host.replica.high_watermark == committed
        assert await produced(bed, led(bed, tp), tp, -1) is NONE
        leader.heal_zookeeper()
        await converged(bed)


@requirement("Leaders keep serving while ZooKeeper has no quorum")
@pytest.mark.parametrize("setting", ["serve", "refuse"])
async def test_leaders_serve_without_zookeeper(setting: str) -> None:
    async with whole_cluster(timing=TIMING, acks_without_lease=setting) as bed:
        tp = TopicPartition(await bed.topic(), 0)
        before, registered, leader = states(bed), epochs(bed), led(bed, tp)
        for outage_s in (SESSION_S / 3, 10 * SESSION_S):
            bed.cluster.zookeeper.stop()
            await bed.ports.clock.sleep(outage_s)
            short = outage_s < SESSION_S
            alone = NONE if setting == "serve" or short else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert [await produced(bed, leader, tp, acks) for acks in (1, -1)] == [alone, NONE]
            bed.cluster.zookeeper.start()
            await bed.ports.clock.sleep(3 * SESSION_S)
            assert (states(bed), epochs(bed)) == (before, registered)


@requirement("A rolling restart of all brokers causes no rebalance")
async def test_a_rolling_restart_rebalances_no_group() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        topic = await bed.topic(partitions=3)
        values = [b"%d" % number for number in range(30)]
        async with reading(bed, topic, session_timeout_ms=60_000) as (consumer, found), bed.producer() as producer:
            generation = consumer.stats.generation
            for node, tenth in zip(bed.cluster.brokers, (values[:10], values[10:20], values[20:]), strict=True):
                node.terminate()
                for value in tenth:
                    await (await producer.send(topic, value))
                while not node.dead:
                    await bed.ports.clock.sleep(0.1)
                node.start()
                await converged(bed)
            await bed.ports.clock.sleep(2 * SESSION_S)
            assert (consumer.stats.generation, consumer.stats.membership.losses) == (generation, 0)
            assert sorted(map(bytes, filter(None, found)), key=int) == values


@requirement("A fast bounce is detected by the broker epoch")
async def test_a_fast_bounce_leaves_the_isr_first() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        tp = TopicPartition(await bed.topic(), 0)
        before, registered, leader = states(bed)[tp], epochs(bed), led(bed, tp)
        assert await produced(bed, leader, tp, -1) is NONE
        leader.kill()
        leader.start()
        async with asyncio.timeout(SESSION_S + ELECTION_S):
            while (after := states(bed)[tp]) == before:
                await bed.ports.clock.sleep(0.01)
        assert (after.leader_epoch, len(after.isr)) == (before.leader_epoch + 1, 2)
        assert leader.number not in {after.leader, *(broker for broker, _ in after.isr)}
        await converged(bed)
        assert led(bed, tp) is not leader and epochs(bed)[leader.number] > registered[leader.number]
        assert await bed.values(tp.topic) == [b"v"]


@requirement("Packet loss and slow links delay records and lose none")
async def test_slow_links_delay_records_and_elect_no_leader() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        topic = await bed.topic()
        before, registered = states(bed), epochs(bed)
        bed.cluster.network.disturb(Faults(delay_s=(0.05, 0.15), duplicate=0.1))
        values = [b"%d" % number for number in range(40)]
        async with bed.producer() as producer:
            for value in values:
                began = bed.ports.clock.now()
                await (await producer.send(topic, value))
                assert bed.ports.clock.now() - began > 0.1
                for node in bed.cluster.brokers:
                    for meta in node.sessions:
                        meta.drop()
        await bed.ports.clock.sleep(2 * SESSION_S)
        assert (states(bed), epochs(bed)) == (before, registered)
        assert await bed.values(topic) == values


@requirement("Connection resets never duplicate a record of an idempotent producer")
async def test_resets_duplicate_nothing_and_leave_no_stream() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        topic = await bed.topic()
        await bed.ports.clock.sleep(SESSION_S)
        leader = led(bed, TopicPartition(topic, 0))
        (host,) = [host for host in leader.hosts() if host.tp.topic == topic]
        network, values = bed.cluster.network, [b"%d" % number for number in range(300)]
        open_before = len(network._exchanges)
        async with bed.producer() as producer:
            sent, resets = [], 0
            for number, value in enumerate(values):
                sent.append(await producer.send(topic, value))
                if number % 20 == 0:
                    while host.log.log_end_offset <= number:
                        await bed.ports.clock.sleep(0.0005)
                    resets += network.reset(leader.name)  # it is appended, and the answer is lost
                await bed.ports.clock.sleep(0.02)
            await asyncio.gather(*sent)
            assert resets > 10
        assert await bed.values(topic) == values
        await converged(bed)
        await bed.ports.clock.sleep(SESSION_S)
        assert len(network._exchanges) <= open_before


@requirement("A flipped bit is never served or replicated")
async def test_rot_of_a_leader_does_not_spread() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        tp, values = TopicPartition(await bed.topic(), 0), [b"%d" % number for number in range(20)]
        async with bed.producer() as producer:
            for value in values:
                await (await producer.send(tp.topic, value))
        leader, empty = led(bed, tp), follower_of(bed, tp)
        (host,) = [host for host in leader.hosts() if host.tp == tp]
        host.log._tail.clear()
        leader.disk.flip_bit(host.log.segments[0].path, 65)
        empty.kill()
        empty.replace_disk()
        empty.start()
        async with asyncio.timeout(60.0):
            while led(bed, tp) is leader:
                await bed.ports.clock.sleep(0.1)
        await converged(bed)
        assert await bed.values(tp.topic) == values
        assert len(set(bed.cluster.logs(tp).values())) == 1


@requirement("A jump of the wall clock changes nothing but timestamps")
async def test_a_wall_clock_that_jumps_changes_no_state() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        topic = await bed.topic()
        values = [b"%d" % number for number in range(60)]
        async with reading(bed, topic) as (consumer, found), bed.producer() as producer:
            before, registered, generation = states(bed), epochs(bed), consumer.stats.generation
            bed.cluster.network.disturb(Faults(delay_s=(0.1, 0.3)))  # so that followers lack something at most times
            for number, value in enumerate(values):
                for node in bed.cluster.nodes.values():
                    node.clock.wall_offset_ms = (HOUR_MS, 0, -HOUR_MS)[number % 3]
                await (await producer.send(topic, value))
            await bed.ports.clock.sleep(1.0)
            assert (states(bed), epochs(bed)) == (before, registered)
            assert (consumer.stats.generation, consumer.stats.membership.losses) == (generation, 0)
            assert found == values
        assert await bed.values(topic) == values


@requirement("Clients cut from all brokers get unknown outcomes")
async def test_a_record_in_flight_has_an_unknown_outcome() -> None:
    async with whole_cluster(timing=TIMING) as bed:
        topic, network = await bed.topic(), bed.cluster.network
        names = [node.name for node in bed.cluster.brokers]
        ports = bed.cluster.client_ports("writer")
        async with Producer(bed.cluster.bootstrap, ports=ports, delivery_timeout_ms=30_000) as producer:
            acked = [b"%d" % number for number in range(10)]
            for value in acked:
                await (await producer.send(topic, value))
            for name in names:
                network.cut(name, "writer")  # what it has sent still arrives
            doubtful = await producer.send(topic, b"doubtful")
            await bed.ports.clock.sleep(0.5)
            for name in names:
                network.cut("writer", name)
            await bed.ports.clock.sleep(60.0)
            with pytest.raises(DeliveryError) as lost:
                await doubtful
            assert not lost.value.outcome_known
            network.heal_all()
            await (await producer.send(topic, b"after"))
        assert [value for value in await bed.values(topic) if value != b"doubtful"] == [*acked, b"after"]
