"""Faults on real processes that end no session: a leader without controllers, intervals, and ZooKeeper's absence."""

from pathlib import Path

import pytest

from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import Scene, state_of, under_load
from tidelog.cluster.api import CONTROLLER, State
from tidelog.cluster.local import LocalCluster
from tidelog.storage.log_marks import HIGH_WATERMARKS_FILE, RECOVERY_POINTS_FILE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S = 15.0
"""Longer than any fault below but for the last, which stops its clock: whatever happens has another reason than its end."""
LAG_S = 4.0
"""Longer than a busy machine holds up a follower that nothing is to happen to."""
NEVER = "3600000"
OFTEN = "100"
ALONE = ((0, 1, 2),)
"""One partition, led by broker 0."""
SESSION = {"zookeeper_session_timeout_ms": str(int(SESSION_S * 1000))}
SETTINGS = {
    "controller": SESSION,
    "broker": SESSION
    | {
        "replica_lag_time_max_ms": str(int(LAG_S * 1000)),
        "high_watermark_checkpoint_interval_ms": NEVER,
        "log_flush_interval_ms": NEVER,
    },
    "broker-1": {"high_watermark_checkpoint_interval_ms": OFTEN},
    "broker-2": {"log_flush_interval_ms": OFTEN},
}


@requirement("Fencing holds when any single link is cut")
@requirement("A leader cut from the controllers keeps its ISR change pending")
async def test_a_leader_cut_from_the_controllers_serves_on_and_its_isr_waits(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A follower falls behind meanwhile: what it lacks is not acknowledged until the controller has heard of it, which it is
    told again and again."""

    def pending_s() -> float:
        return metric(cluster, "broker-0", "tidelog_isr_change_pending_seconds")

    def asked(**labels: str) -> float:
        return metric(cluster, "broker-0", "tidelog_alter_isr_requests_total", **labels)

    async with under_load(cluster, tmp_path, assignment=ALONE) as scene:
        before, asked_before, unanswered = scene.state(), asked(), asked(error="NO_ANSWER")
        await scene.do(cluster.isolate, "broker-0", cluster.names(CONTROLLER))
        await scene.more_acks()
        await scene.do(cluster.pause, "broker-1")
        await scene.until("a change that waits", lambda: pending_s() > 0.5)
        acked = scene.acked
        await scene.until("the end of its call", lambda: asked(error="NO_ANSWER") > unanswered)
        waited_s = pending_s()
        await scene.until("that it waits on", lambda: pending_s() > waited_s + 1.0)
        assert scene.acked == acked
        assert asked() - asked_before < 10, "no busy loop"
        assert scene.state() == before and len(cluster.proxy.cuts()) == 4
        for controller in cluster.names(CONTROLLER):
            await scene.do(cluster.proxy.reset, "broker-0", controller)  # what it has asked so far is lost
        await scene.do(cluster.heal)
        without = await scene.reached("an ISR without it", lambda state: state.isr == {0, 2})
        assert (without.leader, without.leader_epoch) == (0, 0)
        await scene.more_acks()
        assert state_of(cluster, "broker-1") is State.PAUSED
        await scene.do(cluster.resume, "broker-1")
        await scene.full()


@requirement("Checkpoints and flushes come at configured intervals")
async def test_checkpoints_and_flushes_come_at_the_intervals_that_are_set(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Broker 1 checkpoints often, broker 2 flushes often, broker 0 does neither; a checkpoint tells how far a log is flushed."""

    def syncs(name: str) -> float:
        return metric(cluster, name, "tidelog_log_flush_duration_seconds_count")

    def checkpointed(scene: Scene, name: str, marks: str = HIGH_WATERMARKS_FILE) -> int:
        file = cluster.data_dir(name) / marks
        lines = file.read_text().splitlines() if file.exists() else []
        return max((int(line.split()[-1]) for line in lines if scene.topic in line), default=0)

    async with under_load(cluster, tmp_path, assignment=ALONE) as scene:
        idle = syncs("broker-0")
        for _ in range(2):
            seen, synced = checkpointed(scene, "broker-1"), syncs("broker-2")
            await scene.until("a newer checkpoint", lambda seen=seen: checkpointed(scene, "broker-1") > seen)
            await scene.until("another flush", lambda synced=synced: syncs("broker-2") > synced)
        assert checkpointed(scene, "broker-1", RECOVERY_POINTS_FILE) == 0
        assert (checkpointed(scene, "broker-0"), checkpointed(scene, "broker-2")) == (0, 0)
        assert syncs("broker-0") == idle


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_leaders_serve_without_zookeeper_and_nobody_is_elected_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Killed for longer than a session: what it has stored of sessions outlives it, and their time counts from when it is up, so
    none of them ends where processes come back to it meanwhile."""

    async with under_load(cluster, tmp_path) as scene:
        before, members = scene.states(), scene.stored.brokers()
        await scene.do(cluster.kill, "zookeeper-1")
        await scene.acks_for(SESSION_S + 1.0, within_s=SESSION_S)
        assert state_of(cluster, "zookeeper-1") is State.STOPPED
        await scene.do(cluster.start, "zookeeper-1")
        await scene.until("a controller", lambda: scene.stored.controller() is not None)
        await scene.more_acks()
        epochs = [(state.leader, state.leader_epoch) for state in before]
        assert [(state.leader, state.leader_epoch) for state in scene.states()] == epochs
        assert scene.stored.brokers() == members
        assert max(map(scene.longest_stall_s, (0, 1, 2))) < SESSION_S
        # ISRs change again.
        await scene.do(cluster.kill, "broker-1")
        await scene.reached("an ISR without it", lambda state: state.isr == {0, 2})
        await scene.do(cluster.start, "broker-1")
