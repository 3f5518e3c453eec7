"""Row 25 on real processes: a bounce is one that the session of before outlives, as ZooKeeper says and no clock of the test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from helpers.cluster import running_cluster
from helpers.requirements import requirement
from helpers.scene import Scene, under_load
from tidelog.chaos.faults.base import Bed, InForce, On
from tidelog.chaos.faults.processes import Bounce
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER
from tidelog.cluster.local import LocalCluster
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.tasks import Supervisor
from tidelog.wire.znodes import broker_path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SETTINGS = {BROKER: {"zookeeper_session_timeout_ms": "15000"}}
"""A machine under load starts no broker in six seconds."""


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("bounce") / "cluster", zookeepers=3, settings=SETTINGS) as running:
        yield running


@asynccontextmanager
async def playing(cluster: LocalCluster, directory: Path) -> AsyncIterator[tuple[Scene, Bed]]:
    async with under_load(cluster, directory) as scene, Admin(scene.servers) as admin:
        with InForce() as in_force:
            bed = Bed(cluster, On.LOCAL, admin, scene.topic, SystemClock(), Random(1), Supervisor("faults"), in_force)
            yield scene, bed
            await scene.mended()
            await scene.full()


@requirement("A fast bounce is detected by the broker epoch")
async def test_a_broker_that_is_back_before_its_session_is_over_has_bounced(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with playing(cluster, tmp_path) as (scene, bed):
        former, life = cluster.sessions(), scene.stored.broker_epoch(1)
        assert {broker_path(number) for number in range(3)} <= former.holders.keys()
        assert set(former.holders.values()) <= former.alive
        bounced = await Bounce().inject(bed, ["broker-1"])
        assert bounced.effect.startswith("killed and back: broker-1 after ")
        assert scene.stored.broker_epoch(1) > life
        now = cluster.sessions()
        assert now.holders[broker_path(1)] != former.holders[broker_path(1)]
        assert [now.holders[broker_path(n)] for n in (0, 2)] == [former.holders[broker_path(n)] for n in (0, 2)]
