"""Brokers that return after SIGKILL with all, less or nothing of what they had: L25, rows 25, 26 and 33, on real processes.

Every story runs under a load with acks=all and ends with what every fault promises (`helpers.scene`). SIGKILL leaves the
page cache alone; what a power loss may take away is taken away here by hand, from the files of a dead broker.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import running_cluster
from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import POLL_S, WITHIN_S, Scene, log_bytes, under_load
from tidelog.chaos.ledger import Outcome
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.cluster.api import BROKER, CONTROLLER, State, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.runtime.os_disk import OsDisk
from tidelog.storage.checkpoint import LogKey, OffsetCheckpoint, read_lines, write_lines
from tidelog.storage.data_dir import LIFE_FILE
from tidelog.storage.log_store import HIGH_WATERMARKS_FILE
from tidelog.wire.batch import HEADER_BYTES, iter_batches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIMIT_S = 200.0
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


def log_end(records: bytes) -> int:
    return max(header.end_offset for _, header in iter_batches(records))


def high_watermark(scene: Scene, broker: int) -> int:
    """As the broker tells it when it leads; -1 while it does not."""
    labels = {"topic": scene.topic, "partition": "0"}
    try:
        if metric(scene.cluster, broker_name(broker), "tidelog_partition_isr_size", **labels) > 0:
            return int(metric(scene.cluster, broker_name(broker), "tidelog_partition_high_watermark", **labels))
    except OSError:  # it starts
        pass
    return -1


async def end_offset(servers: str, topic: str) -> int:
    tp = TopicPartition(topic, 0)
    async with Consumer(servers, request_timeout_ms=2_000) as consumer:
        return (await consumer.end_offsets([tp]))[tp]


@requirement("A restarted broker returns to its stored roles")
async def test_a_broker_returns_to_its_role_with_the_high_watermark_that_it_had_written_down(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """min(checkpoint, log end) is all that the first broker may show; what it holds beyond is shown when others confirm it."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        await scene.until("checkpoints", lambda: all(checkpointed(scene, broker) > 0 for broker in range(3)))
        await scene.more_acks()
        first = await all_die(scene)
        written_down, end = checkpointed(scene, first), log_end(log_bytes(cluster, first, scene.topic, 0))
        assert 0 < written_down < end
        await scene.do(cluster.start, broker_name(first))
        await scene.reached("the first alone", lambda state: state.leader == first and state.isr == {first})
        await scene.until("its role", lambda: high_watermark(scene, first) >= 0)
        assert high_watermark(scene, first) == written_down
        with pytest.raises(TidelogError) as refused:  # a reader must not take it for what is committed (KIP-207)
            await end_offset(str(cluster.endpoints()[broker_name(first)]), scene.topic)
        assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert log_end(log_bytes(cluster, first, scene.topic, 0)) == end, "appended under min.insync.replicas"
        await scene.mended()
        await scene.full()
        assert scene.state().leader == first
        assert await end_offset(scene.servers, scene.topic) >= end


@requirement("A fast bounce is detected by the broker epoch")
@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
@pytest.mark.parametrize("wiped", [False, True], ids=["row_25", "row_26"])
async def test_a_life_that_nobody_saw_end_is_told_by_its_epoch(
    cluster: LocalCluster, tmp_path: Path, wiped: bool
) -> None:
    """While the controllers look elsewhere, broker-0 is killed and registers anew, with its data or with an empty directory.
    All that tells its two lives apart is the broker epoch: the new one leaves every ISR before it may enter it."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2), (1, 0, 2)]) as scene:
        befores = scene.states()
        former = scene.stored.broker_epoch(0)
        for name in cluster.names(CONTROLLER):
            await scene.do(cluster.pause, name)
        await scene.do(cluster.kill, "broker-0")
        if wiped:
            shutil.rmtree(cluster.data_dir("broker-0"))
        await scene.do(cluster.start, "broker-0")
        await scene.until("another registration", lambda: scene.stored.broker_epoch(0) > former)
        assert scene.leader == "broker-0" and scene.stored.lives(scene.topic)[0] == former
        for name in cluster.names(CONTROLLER):
            await scene.do(cluster.resume, name)

        await scene.reached("another leader", lambda state: state.leader in (1, 2))
        await scene.full()
        for partition, before in enumerate(befores):
            after = scene.state(partition)
            assert after.leader != 0 and after.version >= before.version + 2, "out, then in again"
            assert scene.stored.lives(scene.topic, partition)[0] == scene.stored.broker_epoch(0) > former
        assert scene.state().leader_epoch == befores[0].leader_epoch + 1


@requirement("A torn log tail is cut back to the last valid batch")
async def test_a_torn_write_is_cut_and_fetched_again(cluster: LocalCluster, tmp_path: Path) -> None:
    """What a SIGKILL in the middle of a write leaves: one batch whose end is missing."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2)]) as scene:
        await scene.do(cluster.kill, "broker-0")
        file = active_segment(scene, 0)
        records = file.read_bytes()
        *_, last = positions(records)
        with file.open("r+b") as log:
            log.truncate(last + TORN_BYTES)
        await scene.reached("another leader", lambda state: state.leader in (1, 2))
        await scene.do(cluster.start, "broker-0")
        await scene.full()
        assert f"{TORN_BYTES} bytes of a torn tail cut" in cluster.logs("broker-0")
        assert file.read_bytes().startswith(records[:last])


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
    async with AdminClient(str(scene.cluster.endpoints()[broker_name(broker)])) as admin, asyncio.timeout(WITHIN_S):
        while not (await admin.describe_topic(scene.topic)).partitions[0].vetoed:  # noqa: ASYNC110 - what is waited for is no event of ours
            await asyncio.sleep(POLL_S)


TORN_BYTES = HEADER_BYTES + 9


def active_segment(scene: Scene, broker: int) -> Path:
    """Of that broker's copy of the load."""
    (file,) = (scene.cluster.data_dir(broker_name(broker)) / f"{scene.topic}-0").glob("*.log")
    return file


def positions(records: bytes) -> list[int]:
    """Where each batch begins."""
    return [position for position, _ in iter_batches(records)]


def acknowledged(scene: Scene, records: bytes) -> bytes:
    """The load's batches in `records` that every member of the ISR has. What lies behind them may have been on its way to the
    followers when its leader died; who leads next writes another batch there."""
    entries = scene.load.ledger.entries
    acked = entries[(entries["outcome"] == Outcome.ACKED) & (entries["partition"] == 0)]
    end = int(acked["offset"].max()) + 1
    return records[: max(at + header.size_bytes for at, header in iter_batches(records) if header.end_offset <= end)]


def forget_boot(cluster: LocalCluster, name: str) -> None:
    """The dead broker's directory was last written under another boot of the machine, and not closed: a loss of power."""
    disk, path = OsDisk(), f"{cluster.data_dir(name)}/{LIFE_FILE}"
    lines = read_lines(disk, path).lines
    others = [line for line in lines if not line.startswith("boot ")]
    assert len(others) == len(lines) - 1
    write_lines(disk, path, ["boot another", *others])
