"""Partitions move to another broker under load while controllers and brokers die: L26 on real processes."""

import asyncio
from pathlib import Path

import pytest

from helpers.cluster import MakeCluster, unique_topic
from helpers.requirements import requirement
from helpers.scene import SPREAD, WITHIN_S, Scene, under_load
from tidelog.client.admin import AdminClient
from tidelog.cluster.api import broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LIMIT_S = 240.0
NEW = 3
"""The broker that has nothing yet."""
TARGETS = ((3, 1, 2), (1, 2, 3), (2, 3, 1))
"""Broker 0 leaves all of them; it leads the first."""


def plan(scene: Scene) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(scene.topic, index): row for index, row in enumerate(TARGETS)}


async def moving(admin: AdminClient) -> set[TopicPartition]:
    return set(await admin.reassignments.list())


async def moved(scene: Scene, admin: AdminClient) -> None:
    """To where the plan says, and nothing is left where it was."""
    await settled(admin)
    scene.assignment = TARGETS
    topic = await admin.describe_topic(scene.topic)
    assert [p.replicas for p in topic.partitions] == list(TARGETS)
    old = scene.cluster.data_dir(broker_name(0))
    await scene.until("nothing left on broker 0", lambda: not list(old.glob(f"{scene.topic}-*")))


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    return make_cluster(brokers=(0, 1, 2, NEW))


@requirement("A reassignment survives a failure at each of its steps")
async def test_partitions_move_while_the_controller_the_target_and_the_leader_die(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with under_load(cluster, tmp_path) as scene, AdminClient(scene.servers) as admin:
        await scene.do(cluster.pause, broker_name(NEW))  # so that nothing comes to its end yet
        await admin.reassignments.alter(plan(scene))
        assert await moving(admin) == set(plan(scene))
        first = scene.active
        await scene.do(cluster.kill, first)
        await scene.succeeded(first)
        assert await moving(admin) == set(plan(scene))
        await scene.do(cluster.kill, broker_name(NEW))
        await scene.more_acks()
        await scene.do(cluster.start, broker_name(NEW))
        await scene.do(cluster.kill, broker_name(0))
        await scene.do(cluster.start, broker_name(0))
        await moved(scene, admin)
        await scene.do(cluster.start, first)


@requirement("A reassignment survives a failure at each of its steps")
async def test_a_move_is_cancelled_under_load_and_leaves_nothing_behind(cluster: LocalCluster, tmp_path: Path) -> None:
    async with under_load(cluster, tmp_path) as scene, AdminClient(scene.servers) as admin:
        await scene.do(cluster.pause, broker_name(NEW))
        await admin.reassignments.alter(plan(scene))
        await admin.reassignments.cancel(plan(scene))
        await scene.do(cluster.resume, broker_name(NEW))
        await scene.until("its end", lambda: not scene.stored.moves(scene.topic))
        assert [p.replicas for p in (await admin.describe_topic(scene.topic)).partitions] == list(SPREAD)
        there = cluster.data_dir(broker_name(NEW))
        await scene.until("nothing on the target", lambda: not list(there.glob(f"{scene.topic}-*")))
        # And the same once more, to its end: for brokers that are there, and its session may have ended in the pause.
        await scene.until("every broker", lambda: scene.stored.brokers() == {*range(3), NEW})
        await admin.reassignments.alter(plan(scene))
        await moved(scene, admin)


@requirement("Added brokers get an even share by the fewest moves")
@requirement("The controller plans the moves after a cluster has grown")
async def test_a_broker_gets_its_share_and_is_drained_again_under_load(cluster: LocalCluster, tmp_path: Path) -> None:
    """A controller dies in between, and knows of the drain when it is back."""

    async with under_load(cluster, tmp_path) as scene, AdminClient(scene.servers) as admin:
        await admin.reassignments.add_brokers([NEW])
        await settled(admin)
        scene.assignment = [p.replicas for p in (await admin.describe_topic(scene.topic)).partitions]
        held = [each for row in scene.assignment for each in row]
        assert sorted(held.count(each) for each in range(4)) == [2, 2, 2, 3]
        await scene.full()
        await admin.reassignments.drain([NEW])
        first = scene.active
        await scene.do(cluster.kill, first)
        await scene.succeeded(first)
        await settled(admin)
        scene.assignment = [p.replicas for p in (await admin.describe_topic(scene.topic)).partitions]
        assert {each for row in scene.assignment for each in row} == {0, 1, 2}
        (left,) = (await admin.describe_cluster()).draining
        assert (left.broker_id, left.replicas) == (NEW, 0)
        await admin.create_topic(unique_topic("later"), 6, 3)
        assert (await admin.describe_cluster()).draining == (left,)
        await scene.do(cluster.start, first)


async def settled(admin: AdminClient) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while await moving(admin):
        assert asyncio.get_running_loop().time() < deadline, await admin.reassignments.list()
        await asyncio.sleep(0.1)
