"""Rows of the fault matrix on real processes whose faults end sessions: kills, and pauses and cuts that last longer."""

import asyncio
from pathlib import Path

import pytest

from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import is_acked, log_bytes, produce, state_of, under_load, unread_bytes
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import State, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S = 6.0
"""Longer than a busy machine holds up a process that nothing is to happen to."""
ELECTION_S = 10.0
"""Until clients have found the new leader; the target is under 2 s on a machine that does nothing else."""
QUICK = {"zookeeper_session_timeout_ms": str(int(SESSION_S * 1000))}
SETTINGS = {"broker": QUICK | {"replica_lag_time_max_ms": "4000"}, "controller": QUICK}


def is_standby(cluster: LocalCluster, name: str) -> bool:
    return metric(cluster, name, "tidelog_controller_active") == 0


@requirement("A killed follower stalls writes briefly and rejoins the ISR")
async def test_a_follower_that_is_killed_holds_nobody_up_and_comes_back(cluster: LocalCluster, tmp_path: Path) -> None:
    async with under_load(cluster, tmp_path) as scene:
        before = scene.state()
        await scene.do(cluster.kill, "broker-1")
        assert state_of(cluster, "broker-1") is State.STOPPED
        without = await scene.reached("an ISR without it", lambda state: state.isr == {0, 2})
        assert (without.leader, without.leader_epoch) == (before.leader, before.leader_epoch) == (0, 0)
        await scene.more_acks()
        behind = log_bytes(cluster, 1, scene.topic, 0)
        await scene.do(cluster.start, "broker-1")
        await scene.full()
        assert len(behind) < len(log_bytes(cluster, 1, scene.topic, 0))
    assert scene.longest_stall_s(0) < SESSION_S, "nobody waited for its session to end"


@requirement("A partition stays available on its last live replica")
@requirement("A leader and a follower killed together lose no committed record")
async def test_a_leader_and_a_follower_are_killed_together_and_nothing_is_acknowledged_by_one_copy(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Where min ISR is 2, acks=all is refused and what is committed can be read; where it is 1, the last replica goes on."""

    async with (
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)], min_isr=1) as one,
        under_load(cluster, tmp_path, assignment=[(0, 1, 2)], min_isr=2) as two,
    ):
        await asyncio.gather(*(two.do(cluster.kill, name) for name in ("broker-0", "broker-1")))
        for scene in (one, two):
            await scene.reached("the last one leads", lambda state: (state.leader, state.isr) == (2, {2}))
        await one.more_acks()
        acked = two.acked
        for number in range(3):
            refused = await produce(two, "broker-2", b"refused %d" % number)
            assert refused is not None and refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
        await one.more_acks()
        assert two.acked == acked > 0
        tp = TopicPartition(two.topic, 0)
        committed = metric(cluster, "broker-2", "tidelog_partition_high_watermark", topic=two.topic)
        async with Consumer(two.servers) as consumer:
            await consumer.assign([tp])
            consumer.seek(tp, 0)
            while await consumer.position(tp) < committed:
                assert await consumer.poll(timeout_s=10.0), "what is committed can be read"
        for name in ("broker-0", "broker-1"):
            await two.do(cluster.start, name)


@requirement("A leader killed before the append costs one retry")
async def test_a_leader_that_is_killed_before_the_append_costs_a_retry_and_no_second_copy(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """What it had received and not read dies with it (D3, case 1)."""

    async with (
        under_load(cluster, tmp_path) as scene,
        Producer(scene.servers, request_timeout_ms=2_000) as producer,
    ):
        before = await producer.send(scene.topic, b"before the kill", partition=0)
        await before
        await scene.do(cluster.pause, "broker-0")
        values = [b"l14 %d" % number for number in range(20)]
        acks = [await producer.send(scene.topic, value, partition=0) for value in values]
        await scene.until("what nobody reads", lambda: unread_bytes(cluster.endpoints()["broker-0"]) > 0)
        await scene.do(cluster.kill, "broker-0")
        assert b"before the kill" in log_bytes(cluster, 0, scene.topic, 0)
        assert b"l14" not in log_bytes(cluster, 0, scene.topic, 0)
        offsets = [metadata.offset for metadata in await asyncio.gather(*acks)]
        assert offsets == sorted(offsets)
        await scene.do(cluster.start, "broker-0")
    for broker in (0, 1, 2):
        stored = log_bytes(cluster, broker, scene.topic, 0)
        assert [stored.count(value) for value in values[10:]] == [1] * 10  # "l14 1" is in "l14 10" as well


@requirement("A crash of the whole cluster loses at most unflushed records")
@requirement("Killing every broker at once loses no written record")
async def test_everything_is_killed_at_once_and_what_was_acknowledged_is_there_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Brokers, controllers and ZooKeeper: the page cache outlives them, and the members of the ISR lead again."""

    async with under_load(cluster, tmp_path) as scene:
        names = cluster.names()
        await asyncio.gather(*(scene.do(cluster.kill, name) for name in names))
        assert {row.state for row in cluster.status()} == {State.STOPPED}
        for name in names:
            await scene.do(cluster.start, name)


@requirement("A deposed leader that wakes up commits nothing")
@requirement("A leader paused beyond its session commits nothing when it wakes")
async def test_a_leader_that_slept_beyond_its_session_acknowledges_nothing_when_it_wakes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with under_load(cluster, tmp_path) as scene:
        address = cluster.endpoints()["broker-0"]
        await scene.do(cluster.pause, "broker-0")
        next_state = await scene.reached("another leader", lambda state: state.leader == 1)
        assert next_state.leader_epoch == 1 and 0 not in scene.stored.brokers()
        await scene.more_acks()
        # These wait in its socket: it reads them as it wakes, before anybody has told it of the other leader.
        early = [asyncio.create_task(produce(scene, "broker-0", b"zombie %d" % n)) for n in range(8)]
        await scene.until("what it does not read yet", lambda: unread_bytes(address) > 0)
        assert state_of(cluster, "broker-0") is State.PAUSED
        await scene.do(cluster.resume, "broker-0")
        answers = list(await asyncio.gather(*early))
        while 0 not in scene.state().isr:
            answers.append(await produce(scene, "broker-0", b"zombie %d" % len(answers)))
        refused = [answer for answer in answers if answer is not None]
        assert refused and not any(is_acked(answer) for answer in answers), answers
        assert scene.state().leader_epoch == next_state.leader_epoch
    for broker in (0, 1, 2):
        assert b"zombie" not in log_bytes(cluster, broker, scene.topic, 0)
    assert scene.longest_stall_s(0) < SESSION_S + ELECTION_S


@requirement("An isolated broker truncates its own tail when it rejoins")
async def test_an_isolated_leader_commits_nothing_and_its_tail_is_cut_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Its clients reach it still: what it acknowledges alone, with acks=1, is what that promises."""

    async with under_load(cluster, tmp_path) as scene:
        cut_before = metric(cluster, "broker-0", "tidelog_replica_truncated_records_total")
        await scene.do(cluster.isolate, "broker-0")
        peers = [name for name in cluster.names() if name != "broker-0"]
        assert cluster.proxy.cuts() == sorted(
            pair for peer in peers for pair in (("broker-0", peer), (peer, "broker-0"))
        )
        assert is_acked(await produce(scene, "broker-0", b"one copy", acks=1))
        assert b"one copy" in log_bytes(cluster, 0, scene.topic, 0)
        alone = [asyncio.create_task(produce(scene, "broker-0", b"alone %d" % n)) for n in range(3)]
        next_state = await scene.reached("another leader", lambda state: state.leader == 1)
        assert next_state.leader_epoch == 1 and 0 not in scene.stored.brokers()
        await scene.more_acks()
        assert not any(is_acked(answer) for answer in await asyncio.gather(*alone))
        await scene.do(cluster.heal)
        await scene.full()
        assert metric(cluster, "broker-0", "tidelog_replica_truncated_records_total") > cut_before
    for broker in (0, 1, 2):
        stored = log_bytes(cluster, broker, scene.topic, 0)
        assert b"one copy" not in stored and b"alone" not in stored
    assert scene.longest_stall_s(0) < SESSION_S + ELECTION_S


@requirement("A controller isolated beyond its session changes nothing on return")
@pytest.mark.parametrize("fault", ["pause", "isolate"])
async def test_a_controller_that_was_away_beyond_its_session_changes_nothing_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path, fault: str
) -> None:
    """A leader dies meanwhile: the new controller replaces it, and the old one finds that news when it wakes."""

    async with under_load(cluster, tmp_path) as scene:
        epoch, old = scene.stored.controller_epoch(), scene.stored.controller()
        away = f"controller-{old}"
        await scene.do(cluster.pause if fault == "pause" else cluster.isolate, away)
        await scene.do(cluster.kill, "broker-0")
        elected = await scene.reached("another leader", lambda state: (state.leader, state.isr) == (1, {1, 2}))
        assert elected.leader_epoch == 1
        assert scene.stored.controller_epoch() == epoch + 1 and scene.stored.controller() not in (old, None)
        await scene.more_acks()
        assert cluster.proxy.cuts() if fault == "isolate" else state_of(cluster, away) is State.PAUSED
        await scene.do(*((cluster.resume, away) if fault == "pause" else (cluster.heal,)))
        await scene.until("the old one standing by", lambda: is_standby(cluster, away))
        await scene.do(cluster.start, "broker-0")
        await scene.full()
        # One election, by the new controller, and nothing by the old one.
        assert (scene.state().leader_epoch, scene.state().controller_epoch) == (1, epoch + 1)
        assert scene.stored.controller_epoch() == epoch + 1
    assert scene.longest_stall_s(1) < SESSION_S + ELECTION_S, "who leads, serves without a controller"


@requirement("A controller and a leader killed together are both replaced")
async def test_the_controller_and_a_leader_are_killed_together(cluster: LocalCluster, tmp_path: Path) -> None:
    async with under_load(cluster, tmp_path) as scene:
        epoch, active = scene.stored.controller_epoch(), f"controller-{scene.stored.controller()}"
        await asyncio.gather(*(scene.do(cluster.kill, name) for name in (active, "broker-0")))
        assert {state_of(cluster, name) for name in (active, "broker-0")} == {State.STOPPED}
        elected = await scene.reached("another leader", lambda state: (state.leader, state.isr) == (1, {1, 2}))
        assert elected.leader_epoch == 1 and scene.stored.controller_epoch() == epoch + 1
        await scene.more_acks()
        for name in (active, "broker-0"):
            await scene.do(cluster.start, name)
    assert scene.longest_stall_s(0) < 2 * SESSION_S + ELECTION_S
    assert scene.longest_stall_s(1) < SESSION_S + ELECTION_S


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_zookeeper_is_paused_beyond_every_session_and_service_resumes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """It may end every session as it wakes: then all register again, and nothing is lost either way."""

    async with under_load(cluster, tmp_path) as scene:
        await scene.do(cluster.pause, "zookeeper-1")
        await scene.acks_for(SESSION_S + 1.0, within_s=SESSION_S)
        assert state_of(cluster, "zookeeper-1") is State.PAUSED
        await scene.do(cluster.resume, "zookeeper-1")
        # What it ends, it ends within a session: before that its brokers and full ISRs are those of before the pause.
        await scene.acks_for(SESSION_S + 1.0)
        await scene.until("every broker", lambda: scene.stored.brokers() == {0, 1, 2})
        await scene.full()
        led = scene.state()
        await scene.do(cluster.kill, broker_name(led.leader))
        await scene.reached("another leader", lambda state: state.leader not in (led.leader, NO_LEADER))
        await scene.do(cluster.start, broker_name(led.leader))
