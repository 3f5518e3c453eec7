"""A broker that returns with less than it had, on real processes.

The test runs under a load with acks=all and ends with what every fault promises (`helpers.scene`). SIGKILL leaves the page
cache alone; the test takes away by hand what a power loss may take, from the files of a dead broker.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import running_cluster
from helpers.requirements import requirement
from helpers.scene import POLL_S, WITHIN_S, Scene, under_load
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, CONTROLLER, State, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import NO_LEADER
from tidelog.runtime.os_disk import OsDisk
from tidelog.storage.checkpoint import LogKey, OffsetCheckpoint, read_lines, write_lines
from tidelog.storage.data_dir import LIFE_FILE
from tidelog.storage.log_marks import HIGH_WATERMARKS_FILE
from tidelog.wire.batch import HEADER_BYTES, iter_batches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SETTINGS = {
    CONTROLLER: {"zookeeper_session_timeout_ms": "15000", "suspect_hold_ms": "500"},
    BROKER: {"zookeeper_session_timeout_ms": "2000", "high_watermark_checkpoint_interval_ms": "1000"},
}
"""A controller may be stopped for as long as a broker's session lasts, and is still the controller afterwards."""


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("restarts") / "cluster", settings=SETTINGS) as running:
        yield running


def kill_all(cluster: LocalCluster) -> None:
    for name in cluster.names(BROKER):
        cluster.kill(name)
    assert {row.state for row in cluster.status() if row.kind == BROKER} == {State.STOPPED}


async def all_die(scene: Scene) -> int:
    """Every broker is dead, and the ISR names all of them but for one at most, which a controller may have suspected before
    it saw that no session is left. Returns the first of the others."""
    for name in scene.cluster.names(CONTROLLER):
        await scene.do(scene.cluster.pause, name)
    await scene.do(kill_all, scene.cluster)
    await scene.until("the end of every broker's session", lambda: not scene.stored.brokers())
    for name in scene.cluster.names(CONTROLLER):
        await scene.do(scene.cluster.resume, name)
    state = await scene.reached("a partition without a leader", lambda state: state.leader == NO_LEADER)
    assert len(state.isr) >= 2
    return min(state.isr)


def checkpointed(scene: Scene, broker: int) -> int:
    """The high watermark of the load's partition 0 that the broker's disk remembers."""
    file = OffsetCheckpoint(OsDisk(), f"{scene.cluster.data_dir(broker_name(broker))}/{HIGH_WATERMARKS_FILE}")
    return file.get(LogKey(scene.topic, 0, scene.stored.topic_id(scene.topic)))


@requirement("A torn log tail is cut back to the last valid batch")
@requirement("A leader that loses power returns outside the ISR")
async def test_a_log_that_a_power_loss_has_cut_is_no_leader_while_a_whole_copy_may_return(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Much of what was acknowledged was never synced: the log ends below what its broker knows to be committed. It cuts the
    torn batch, says so, and waits for another member of the ISR, from which it fetches what it has lost."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        await scene.until("checkpoints", lambda: all(checkpointed(scene, broker) > 100 for broker in range(3)))
        torn = await all_die(scene)
        isr, file = scene.state().isr, active_segment(scene, torn)
        records = file.read_bytes()
        kept = next(at for at, header in iter_batches(records) if header.base_offset >= 50)
        with file.open("r+b") as log:
            log.truncate(kept + TORN_BYTES)
        forget_boot(cluster, broker_name(torn))
        await scene.do(cluster.start, broker_name(torn))
        await vetoed(scene, torn)
        assert scene.state().leader == NO_LEADER and scene.state().isr == isr
        assert f"{TORN_BYTES} bytes of a torn tail cut" in cluster.logs(broker_name(torn))
        assert file.read_bytes() == records[:kept]
        acked = acknowledged(scene, records)
        await scene.mended()
        await scene.full()
        assert scene.state().leader != torn
        assert file.read_bytes().startswith(acked), "it has all of it again"


async def vetoed(scene: Scene, broker: int) -> None:
    """Returns when the controller holds the load's partition back from the member that is there."""
    async with Admin(str(scene.cluster.endpoints()[broker_name(broker)])) as admin, asyncio.timeout(WITHIN_S):
        while not (await admin.describe_topic(scene.topic)).partitions[0].vetoed:  # noqa: ASYNC110 - what is waited for is no event of ours
            await asyncio.sleep(POLL_S)


TORN_BYTES = HEADER_BYTES + 9


def active_segment(scene: Scene, broker: int) -> Path:
    """Of that broker's copy of the load."""
    (file,) = (scene.cluster.data_dir(broker_name(broker)) / f"{scene.topic}-0").glob("*.log")
    return file


def acknowledged(scene: Scene, records: bytes) -> bytes:
    """The load's batches in `records` that every member of the ISR has. What lies behind them may have been on its way to the
    followers when its leader died; who leads next writes another batch there."""
    end = scene.load.acked_end(0)
    return records[: max(at + header.size_bytes for at, header in iter_batches(records) if header.end_offset <= end)]


def forget_boot(cluster: LocalCluster, name: str) -> None:
    """The dead broker's directory was last written under another boot of the machine, and not closed: a loss of power."""
    disk, path = OsDisk(), f"{cluster.data_dir(name)}/{LIFE_FILE}"
    lines = read_lines(disk, path).lines
    others = [line for line in lines if not line.startswith("boot ")]
    assert len(others) == len(lines) - 1
    write_lines(disk, path, ["boot another", *others])
