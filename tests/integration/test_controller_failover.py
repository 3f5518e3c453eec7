"""Controllers that die or are cut off in the middle of their work, on real processes: L20, L21, L23, L28, L29 and row 18.

Every story runs under a load with acks=all and ends with what every fault promises (`helpers.scene`).
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import WITHIN_S, Scene, state_of, under_load
from tidelog.client.admin import AdminClient
from tidelog.cluster.api import BROKER, CONTROLLER, State, Traffic, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire import znodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIMIT_S = 200.0
SESSION_MS = 6_000
LAG_MS = 3_000
"""Both longer than a busy machine holds up a process that nothing is to happen to; and a leader that wants another ISR says so
while a controller that is cut off is still in office."""
MANY = 120
"""Partitions of one operation: enough that a SIGKILL falls between its first write and its last."""
K03_S = 20.0
"""What the documents budget for the state writes of a failover."""
STEP = "tidelog_controller_broker_failover_step_seconds"
STEPS = ("detect", "decide", "write", "notify")
SETTINGS = {
    CONTROLLER: {
        "zookeeper_session_timeout_ms": str(SESSION_MS),
        "multi_max_operations": "2",
        "suspect_hold_ms": "500",
    },
    BROKER: {"zookeeper_session_timeout_ms": str(SESSION_MS), "replica_lag_time_max_ms": str(LAG_MS)},
}


def patient(cluster: LocalCluster) -> AdminClient:
    return AdminClient(bootstrap_servers(cluster), request_timeout_ms=int(WITHIN_S * 1000))


async def many(admin: AdminClient) -> str:
    """A topic of MANY partitions, each with all three replicas."""
    topic = unique_topic("many")
    await admin.create_topic(topic, MANY, 3)
    await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
    return topic


def write_slowly(cluster: LocalCluster, controller: str) -> None:
    """Its writes take seconds, until it is killed: with few under way at once, a link with this delay carries few in a second.
    At its own pace the last of MANY writes may come before a busy machine lets us see the first."""
    cluster.proxy.shape(controller, "zookeeper-1", Traffic(delay_s=0.3))


async def kill_at(scene: Scene, controller: str, progress: Callable[[], bool]) -> None:
    """SIGKILL as soon as there is some progress."""
    (pid,) = (row.pid for row in scene.cluster.status() if row.name == controller)
    assert pid is not None

    def watch() -> None:
        deadline = time.monotonic() + WITHIN_S
        while not progress():
            assert time.monotonic() < deadline, "there is no progress"
        os.kill(pid, signal.SIGKILL)

    await scene.do(watch)
    await scene.until(f"the end of {controller}", lambda: state_of(scene.cluster, controller) is State.STOPPED)
    await scene.do(scene.cluster.proxy.refuse, controller)
    await scene.do(scene.cluster.proxy.heal, controller, "zookeeper-1")


def leader_and_isrs(cluster: LocalCluster, broker: str) -> float:
    """How many the broker has answered."""
    return metric(cluster, broker, "tidelog_requests_total", api="LeaderAndIsr")


def pending_s(cluster: LocalCluster, broker: str) -> float:
    """For how long an ISR change of this leader has waited for its answer."""
    return metric(cluster, broker, "tidelog_isr_change_pending_seconds")


def changed(before: list[int], after: list[int]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


@requirement("Each step of a failover of many partitions is measured")
async def test_two_of_three_brokers_die_at_once_and_every_partition_is_led_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """One is a suspect at once, the other is missed when its session ends; each step of both failovers is measured (K03)."""

    async with under_load(cluster, tmp_path) as scene, patient(cluster) as admin:
        topic, active = await many(admin), scene.active
        seconds = {step: metric(cluster, active, f"{STEP}_sum", step=step) for step in STEPS}
        counts = {step: metric(cluster, active, f"{STEP}_count", step=step) for step in STEPS}
        await asyncio.gather(*(scene.do(cluster.kill, name) for name in ("broker-0", "broker-1")))

        def led_by_the_last() -> bool:
            states = [scene.stored.state(topic, partition) for partition in range(MANY)]
            return all((state.leader, set(state.isr)) == (2, {2}) for state in states)

        def measured() -> bool:
            return all(metric(cluster, active, f"{STEP}_count", step=step) >= counts[step] + 2 for step in STEPS)

        await scene.until("every partition led by broker-2", led_by_the_last)
        await scene.until("two failovers measured to their last step", measured)
        for step in STEPS:
            assert 0 < metric(cluster, active, f"{STEP}_sum", step=step) - seconds[step] < K03_S, step
        for name in ("broker-0", "broker-1"):
            await scene.do(cluster.start, name)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        await admin.delete_topic(topic)


@requirement("A new controller sends every decision again")
async def test_a_controller_dies_and_its_successor_says_everything_again_to_brokers_that_know_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    brokers = cluster.names(BROKER)

    def truncations() -> list[float]:
        return [metric(cluster, name, "tidelog_replica_truncations_total") for name in brokers]

    async with under_load(cluster, tmp_path) as scene:
        before, epoch, active, cut = scene.states(), scene.stored.controller_epoch(), scene.active, truncations()
        told = [leader_and_isrs(cluster, name) for name in brokers]

        def told_again() -> bool:
            return all(leader_and_isrs(cluster, name) > old for name, old in zip(brokers, told, strict=True))

        await scene.do(cluster.kill, active)
        await scene.succeeded(active)
        await scene.until("LeaderAndIsr at every broker", told_again)
        assert scene.stored.controller_epoch() > epoch
        # Known decisions are no news: nobody is elected, no ISR changes, no log is cut.
        await scene.more_acks()
        assert scene.states() == before
        assert truncations() == cut
    assert scene.load.longest_stall_s < SESSION_MS / 1000  # nobody who writes has to wait for a controller


@requirement("A decision stored but not published is not lost")
async def test_a_controller_dies_between_the_write_and_the_publication(cluster: LocalCluster, tmp_path: Path) -> None:
    """It is cut from the brokers, so that what it has decided is in ZooKeeper and nowhere else when it dies."""

    async with under_load(cluster, tmp_path) as scene:
        active, survivors = scene.active, ("broker-1", "broker-2")
        assert scene.leader == "broker-0"
        for name in cluster.names(BROKER):
            cluster.proxy.cut(active, name)
        told = [leader_and_isrs(cluster, name) for name in survivors]
        await scene.do(cluster.kill, "broker-0")
        decided = await scene.reached("the decision in ZooKeeper", lambda state: state.leader in (1, 2))
        await scene.do(cluster.kill, active)
        for name in survivors:
            cluster.proxy.reset(active, name)  # with what was on its way
        assert [leader_and_isrs(cluster, name) for name in survivors] == told
        await scene.do(cluster.heal)
        await scene.succeeded(active)
        await scene.more_acks()
        after = scene.state()
        assert (broker_name(after.leader), after.leader_epoch) == (scene.leader, decided.leader_epoch)
        assert after.leader == decided.leader
        await scene.mended()


@requirement("An AlterIsr during a controller failover reaches the successor")
async def test_an_isr_change_that_meets_a_controller_failover_is_granted_by_the_next_one(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A follower lags for its own reasons; the controller has lost ZooKeeper, and with it the right to write or to answer."""

    def answered() -> tuple[float, float]:
        """AlterIsr requests of the leader: all, and those that a controller has judged."""
        name = "tidelog_alter_isr_requests_total"
        return metric(cluster, "broker-0", name), metric(cluster, "broker-0", name, error="NONE")

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        before, active, (asked, granted) = scene.state(), scene.active, answered()
        await scene.do(cluster.isolate, active, ["zookeeper-1"])
        cluster.proxy.cut("broker-0", "broker-2")
        await scene.until("the leader's wish", lambda: pending_s(cluster, "broker-0") > 0)
        assert 2 in scene.state().isr
        await scene.succeeded(active)
        after = await scene.reached("an ISR without it", lambda state: 2 not in state.isr)
        assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
        assert after.controller_epoch > before.controller_epoch

        def granted_at_last() -> bool:
            asked_now, granted_now = answered()
            return asked_now - asked > granted_now - granted > 0

        await scene.until("an answer that was none, and one that was", granted_at_last)
        await scene.more_acks()
        await scene.do(cluster.heal)


@requirement("An AlterIsr that meets a controller change waits for its result")
async def test_an_alter_isr_that_meets_a_change_of_the_controllers_waits_for_its_news(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The leader does not hear the controller, which has taken a dead follower out of the ISR. The leader's own change, of
    both followers, is of an older version and must be refused; what it is told in the end counts."""

    def refusals() -> float:
        return metric(cluster, "broker-0", "tidelog_isr_update_failures_total")

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        version, refused = scene.state().version, refusals()
        active = scene.active
        cluster.proxy.cut(active, "broker-0")
        for name in ("broker-1", "broker-2"):  # at once, so that they lag together
            cluster.proxy.cut("broker-0", name)
        await scene.do(cluster.kill, "broker-1")
        await scene.reached("the controller's own change", lambda state: state.isr == {0, 2})
        await scene.until("the leader's own change", lambda: pending_s(cluster, "broker-0") > 0)
        cluster.proxy.heal(active, "broker-0")
        await scene.until("its refusal", lambda: refusals() > refused)
        # Nothing was rolled back: what the controller said first is in force, and the other change follows from it.
        after = await scene.reached("an ISR of broker-0", lambda state: state.isr == {0})
        assert after.leader == 0 and after.version > version + 1
        await scene.mended()


@requirement("A controller killed in mid-change leaves it complete or absent")
async def test_a_controller_dies_in_the_middle_of_a_creation_and_a_deletion(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The topic whose creation had begun is completed, the one whose deletion had begun is gone without a trace."""

    async with under_load(cluster, tmp_path) as scene, patient(cluster) as admin:
        topic, active = unique_topic("many"), scene.active
        path = znodes.partitions_path(topic)
        write_slowly(cluster, active)
        creation = asyncio.create_task(admin.create_topic(topic, MANY, 3))
        await kill_at(scene, active, lambda: bool(scene.stored.names(path)))
        assert 0 < len(scene.stored.names(path)) < MANY, "the creation was not in the middle"
        successor = await scene.succeeded(active)
        with suppress(TidelogError):
            await creation  # nobody could say what became of it
        found = await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        assert len(found.partitions) == len(scene.stored.names(path)) == MANY
        await scene.mended()

        write_slowly(cluster, successor)
        deletion = asyncio.create_task(admin.delete_topic(topic))
        await kill_at(scene, successor, lambda: len(scene.stored.names(path)) < MANY)
        assert scene.stored.names(path), "the deletion was not in the middle"
        await scene.succeeded(successor)
        with suppress(TidelogError):
            await deletion
        parents = (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DELETE_TOPICS)
        await scene.until("no znode", lambda: not any(topic in scene.stored.names(parent) for parent in parents))
        with pytest.raises(TidelogError) as caught:
            await admin.describe_topic(topic)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        data = [cluster.data_dir(name) for name in cluster.names(BROKER)]
        await scene.until("no replica", lambda: not any(any(each.glob(f"{topic}-*")) for each in data))
        await scene.mended()


@requirement("A controller killed in mid-change leaves it complete or absent")
async def test_a_controller_dies_in_the_middle_of_an_election_and_of_a_batch_of_isr_changes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with under_load(cluster, tmp_path) as scene, patient(cluster) as admin:
        topic, active = await many(admin), scene.active

        def leaders() -> set[int]:
            return {scene.stored.state(topic, partition).leader for partition in range(MANY)}

        before = scene.stored.versions(topic, MANY)
        write_slowly(cluster, active)
        await scene.do(cluster.kill, "broker-2")
        await kill_at(scene, active, lambda: scene.stored.versions(topic, 3) != before[:3])
        assert 0 < changed(before, scene.stored.versions(topic, MANY)) < MANY, "the election was not in the middle"
        successor = await scene.succeeded(active)
        await scene.until("the rest of the election", lambda: leaders() == {0, 1})
        before = scene.stored.versions(topic, MANY)
        await scene.do(cluster.start, active)

        # The follower that comes back joins every ISR: a batch, of which each leader has its part.
        write_slowly(cluster, successor)
        await scene.do(cluster.start, "broker-2")
        await kill_at(scene, successor, lambda: scene.stored.versions(topic, 3) != before[:3])
        assert 0 < changed(before, scene.stored.versions(topic, MANY)) < MANY, "the batch was not in the middle"
        await scene.succeeded(successor)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        await scene.mended()
        await admin.delete_topic(topic)
