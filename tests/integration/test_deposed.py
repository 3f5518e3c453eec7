"""Who is not what he takes himself for, on real processes: L31, a follower that is dead for the controller alone, and L33, a
leader that wakes up when another one leads."""

from pathlib import Path

import pytest

from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import WITHIN_S, Scene, is_acked, log_bytes, produce, under_load
from helpers.stored import State
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, CONTROLLER
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIMIT_S = 200.0
SETTINGS = {
    CONTROLLER: {"zookeeper_session_timeout_ms": "6000", "suspect_hold_ms": "500"},
    BROKER: {"zookeeper_session_timeout_ms": "6000", "replica_lag_time_max_ms": "3000"},
}


async def alter_isr(scene: Scene, broker_epoch: int, state: State, isr: dict[int, int]) -> ErrorCode:
    """The controller's answer to broker-0, as leader in the epoch of `state`, that wants the ISR `isr` (lives by broker)."""
    wanted = m.LeaderAndIsr(
        leader=0,
        leader_epoch=state.leader_epoch,
        isr=tuple(m.IsrMember(broker_id=broker, broker_epoch=life) for broker, life in isr.items()),
        current_zk_version=scene.state().version,
    )
    topic = m.AlterIsrTopic(
        topic=scene.topic,
        topic_id=scene.stored.topic_id(scene.topic),
        partitions=(m.AlterIsrPartition(partition_id=0, leader_and_isr=wanted),),
    )
    channel = GrpcNet().channel(scene.cluster.plan[scene.active].dialled, purpose="test")
    try:
        request = m.AlterIsrRequest(
            broker_id=0,
            broker_epoch=broker_epoch,
            controller_epoch=scene.stored.controller_epoch(),
            # Above the broker's own, and so little that it is soon above ours again.
            sequence=int(metric(scene.cluster, "broker-0", "tidelog_alter_isr_requests_total")) + 5,
            topics=(topic,),
        )
        answer = await channel.call(s.CONTROLLER_SERVICE_ALTER_ISR, request, WITHIN_S)
    finally:
        await channel.close()
    if answer.error_code is not ErrorCode.NONE:
        return answer.error_code
    return answer.topics[0].partitions[0].error_code


@requirement("A follower that the controller sees as dead stays out of the ISR")
async def test_a_follower_that_is_dead_for_the_controller_and_still_fetches_stays_out(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Its link to ZooKeeper is cut, and no other."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        topic = scene.topic
        before, lives = scene.state(), scene.stored.lives(topic)
        await scene.do(cluster.isolate, "broker-2", ["zookeeper-1"])
        await scene.reached("an ISR without it", lambda state: state.isr == {0, 1})
        assert scene.stored.broker_epoch(2) == -1
        state = scene.state()
        for _ in range(3):  # for some seconds it has all that the leader has
            await scene.more_acks()
            so_far = len(log_bytes(cluster, 0, topic, 0))
            await scene.until("it still fetches", lambda: len(log_bytes(cluster, 2, topic, 0)) >= so_far)  # noqa: B023
        # Its leader asks for it: in the life that the leader has seen fetching, which is over.
        asked = await alter_isr(scene, scene.stored.broker_epoch(0), state, lives)
        assert asked is ErrorCode.INELIGIBLE_REPLICA
        assert scene.state() == state
        await scene.do(cluster.heal)
        await scene.full()
        assert scene.state().leader_epoch == before.leader_epoch
        assert scene.stored.lives(topic)[2] == scene.stored.broker_epoch(2) > lives[2]


@requirement("A deposed leader that wakes up commits nothing")
async def test_a_deposed_leader_that_wakes_up_commits_nothing_and_changes_no_isr(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """It sleeps until another one leads, and hears nothing from anybody but a client when it wakes up."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        topic = scene.topic
        before, epoch = scene.state(), scene.stored.broker_epoch(0)
        await scene.do(cluster.pause, "broker-0")
        await scene.do(cluster.isolate, "broker-0")
        await scene.reached("another leader", lambda state: state.leader in (1, 2) and 0 not in state.isr)
        await scene.do(cluster.resume, "broker-0")
        assert not is_acked(await produce(scene, "broker-0", b"zombie")), "one copy is no commit"
        assert b"zombie" in log_bytes(cluster, 0, topic, 0), "it did not take itself for the leader"
        pending = "tidelog_isr_change_pending_seconds"
        await scene.until("it wants another ISR", lambda: metric(cluster, "broker-0", pending) > 0)

        async with Producer(str(cluster.endpoints()[scene.leader])) as producer:
            await (await producer.send(topic, b"goes on"))
        state = scene.state()
        assert await alter_isr(scene, epoch, before, {0: epoch}) is ErrorCode.STALE_BROKER_EPOCH
        await scene.do(cluster.heal)
        await scene.full()
        life = scene.stored.broker_epoch(0)
        assert life > epoch and state.leader_epoch > before.leader_epoch
        assert await alter_isr(scene, life, before, {0: life}) is ErrorCode.FENCED_LEADER_EPOCH
        assert scene.state().leader == state.leader and scene.state().version > state.version
        for broker in range(3):
            assert b"zombie" not in log_bytes(cluster, broker, topic, 0)
