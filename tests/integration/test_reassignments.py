"""Partitions move to another broker under load while controllers and brokers die, on real processes."""

import asyncio
from pathlib import Path

import pytest

from helpers.cluster import MakeCluster
from helpers.requirements import requirement
from helpers.scene import WITHIN_S, Scene, under_load
from tidelog.client.admin import Admin
from tidelog.cluster.api import broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition
from tidelog.storage.strays import STRAY_SUFFIX

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NEW = 3
"""The broker that has nothing yet."""
TARGETS = ((3, 1, 2), (1, 2, 3), (2, 3, 1))
"""Broker 0 leaves all of them; it leads the first."""


def plan(scene: Scene) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(scene.topic, index): row for index, row in enumerate(TARGETS)}


async def moving(admin: Admin) -> set[TopicPartition]:
    return set(await admin.reassignments.list())


async def moved(scene: Scene, admin: Admin) -> None:
    """To where the plan says, and nothing is left where it was."""
    await settled(admin)
    scene.assignment = TARGETS
    topic = await admin.describe_topic(scene.topic)
    assert [p.replicas for p in topic.partitions] == list(TARGETS)
    old = scene.cluster.data_dir(broker_name(0))

    def left() -> list[Path]:
        """A broker that was down when the move ended sets its logs aside when it returns."""
        return [each for each in old.glob(f"{scene.topic}-*") if not each.name.endswith(STRAY_SUFFIX)]

    await scene.until("nothing left on broker 0", lambda: not left())


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    return make_cluster(brokers=(0, 1, 2, NEW))


@requirement("A reassignment survives a failure at each of its steps")
async def test_partitions_move_while_the_controller_the_target_and_the_leader_die(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with under_load(cluster, tmp_path) as scene, Admin(scene.servers) as admin:
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


async def settled(admin: Admin) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while await moving(admin):
        assert asyncio.get_running_loop().time() < deadline, await admin.reassignments.list()
        await asyncio.sleep(0.1)
