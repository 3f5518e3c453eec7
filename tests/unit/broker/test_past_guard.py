"""A ZooKeeper from an older copy is noticed, and nothing that is set aside is deleted until an operator has decided."""

import errno
import logging

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench
from helpers.brokers import Brokers, brokers
from tidelog.broker import stray_keeper
from tidelog.broker.past_guard import WITNESS_S, PastGuard
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode
from tidelog.ids import DELETED_TOPIC_EPOCH, NO_LEADER, TopicPartition
from tidelog.ports.meta import Create
from tidelog.storage.checkpoint import encode_lines, replace_file
from tidelog.storage.reserve import Reserve
from tidelog.storage.store_past import ANOTHER_PAST_FILE, SEEN_FILE, StorePast
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import Copy, SimMeta, SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire.batch import validate_produce

NOTE = f"/data/{ANOTHER_PAST_FILE}"
EPOCH_OF_AN_ENSEMBLE = 1 << 32
"""Distance of the transaction ids of two leaders of an ensemble."""


def read_past(disk: SimDisk) -> StorePast:
    return StorePast(disk, "/data", Reserve(disk, "/data", 0))


def checkpoint(disk: SimDisk, past: StorePast) -> None:
    content = past.next_file()
    if content is not None:
        replace_file(disk, past.path, content())
        past.installed()


class Life:
    """One process of broker 1 that writes its witness."""

    def __init__(self, store: SimZooKeeper, disk: SimDisk) -> None:
        if disk.kind("/data") is None:
            disk.make_dir("/data")
        self.disk = disk
        self.meta: SimMeta = store.client()
        self.past = read_past(disk)
        self.guard = PastGuard(1, self.past, self.meta, SimClock())

    async def register(self, controller_epoch: int = 1) -> "Life":
        await self.meta.start()
        _, stat = await self.meta.multi([Create("/registration", ephemeral=True), *await self.guard.witness()])
        assert stat is not None
        self.guard.registered(stat.mzxid)
        self.guard.ordered(controller_epoch)
        return self

    async def stop(self) -> None:
        checkpoint(self.disk, self.past)
        await self.meta.close()


async def other_writes(store: SimZooKeeper, count: int) -> None:
    meta = store.client()
    await meta.start()
    for number in range(count):
        await meta.multi([Create(f"/other-{number}")])
    await meta.close()


def return_to(store: SimZooKeeper, copy: Copy, zxid: int) -> None:
    store.stop()
    store.return_to(copy, zxid=zxid)
    store.start()


async def test_a_registration_is_kept_before_the_first_checkpoint() -> None:
    store, disk = SimZooKeeper(seeded(1, "zookeeper")), SimDisk()
    await (await Life(store, disk).register()).stop()
    copy = store.copy()
    life = await Life(store, disk).register()
    life.meta.kill()
    return_to(store, copy, zxid=EPOCH_OF_AN_ENSEMBLE)
    life = await Life(store, disk).register()
    assert "/brokers/witnesses/1" in life.past.another
    await life.stop()


@pytest.mark.parametrize("elects", [False, True], ids=["single server", "ensemble"])
async def test_a_store_without_the_last_write_is_told_once(elects: bool, caplog: pytest.LogCaptureFixture) -> None:
    store, disk = SimZooKeeper(seeded(1, "zookeeper")), SimDisk()
    await (await Life(store, disk).register()).stop()
    copy = store.copy()
    await other_writes(store, 3)
    life = await Life(store, disk).register()
    assert life.past.another == ""
    await life.stop()
    return_to(store, copy, zxid=EPOCH_OF_AN_ENSEMBLE if elects else 0)
    life = await Life(store, disk).register()
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert "nothing that is set aside in this data directory is deleted" in line and f"then remove {NOTE}" in line
    assert "/brokers/witnesses/1" in life.past.another and disk.kind(NOTE) is not None
    await life.stop()
    life = await Life(store, disk).register()
    assert "\n" not in life.past.another and len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    await life.stop()
    disk.remove(NOTE)
    assert (await Life(store, disk).register()).past.another == ""


async def test_an_older_controller_epoch_is_another_past(caplog: pytest.LogCaptureFixture) -> None:
    store, disk = SimZooKeeper(seeded(1, "zookeeper")), SimDisk()
    life = await Life(store, disk).register(controller_epoch=7)
    life.guard.ordered(9)
    assert life.past.another == ""
    await life.stop()
    life = await Life(store, disk).register(controller_epoch=9)
    assert life.past.another == ""
    await life.stop()
    life = await Life(store, disk).register(controller_epoch=8)
    assert "epoch 8 gives orders, a former one had epoch 9" in life.past.another
    assert life.past.controller_epoch == 8, "the next one is judged by this store"


async def test_a_write_of_unknown_outcome_is_no_other_past() -> None:
    store, disk = SimZooKeeper(seeded(1, "zookeeper")), SimDisk()
    life = await Life(store, disk).register()
    checkpoint(disk, life.past)
    await life.meta.multi(await life.guard.witness())  # and the process ends before it knows
    await life.meta.close()
    assert (await Life(store, disk).register()).past.another == ""


async def test_a_server_that_lags_is_no_older_copy() -> None:
    store, disk = SimZooKeeper(seeded(1, "zookeeper"), servers=3, lag_s=5.0), SimDisk()
    for _ in range(10):
        life = await Life(store, disk).register()
        assert life.past.another == ""
        await life.stop()


async def test_the_witness_is_written_from_time_to_time() -> None:
    store, disk, clock = SimZooKeeper(seeded(1, "zookeeper")), SimDisk(), SimClock()
    life, process = await Life(store, disk).register(), SimProcess("broker")
    process.start("witness", life.guard.run())
    before = life.past.zxid
    await clock.sleep(WITNESS_S + 1)
    assert life.past.zxid > before
    life.meta.cut()
    await clock.sleep(2 * WITNESS_S)
    life.meta.heal()
    before = life.past.zxid
    await clock.sleep(2 * WITNESS_S)
    assert life.past.zxid > before, "a store that was away ends nothing"
    await life.meta.close()
    await clock.sleep(2 * WITNESS_S)
    assert not process.supervisor.failures


@pytest.mark.parametrize("content", [b"", b"zxid 1", b"1\n0\n"], ids=["empty", "no checksum", "cut short"])
def test_a_damaged_checkpoint_is_another_past(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    disk.make_dir("/data")
    disk.open(f"/data/{SEEN_FILE}", create=True).append([content])
    life = Life(SimZooKeeper(seeded(1, "zookeeper")), disk)
    assert SEEN_FILE in life.past.another and "it is not known how far it had come" in caplog.text
    checkpoint(disk, life.past)
    disk.remove(NOTE)
    assert Life(SimZooKeeper(seeded(1, "zookeeper")), disk).past.another == "", "it is told once"


def test_a_checkpoint_that_cannot_be_read_is_another_past() -> None:
    disk = SimDisk()
    disk.make_dir("/data")
    disk.fail("read", errno.EIO, path=SEEN_FILE)
    disk.open(f"/data/{SEEN_FILE}", create=True).append([encode_lines(["zxid 1", "controller_epoch 1"])])
    assert "cannot be read" in Life(SimZooKeeper(seeded(1, "zookeeper")), disk).past.another


def test_what_cannot_be_noted_holds_and_is_told_again() -> None:
    disk = SimDisk()
    disk.make_dir("/data")
    past = read_past(disk)
    past.zxid, past.controller_epoch = 9, 4
    checkpoint(disk, past)
    life = Life(SimZooKeeper(seeded(1, "zookeeper")), disk)
    disk.fail("rename", errno.EIO, path=ANOTHER_PAST_FILE)
    life.guard.ordered(3)
    assert "epoch 3" in life.past.another and disk.kind(NOTE) is None and life.past.controller_epoch == 4
    life.guard.ordered(3)
    assert disk.kind(NOTE) is not None and life.past.controller_epoch == 3


# -- in a cluster --------------------------------------------------------------------------------------------------------

KEPT_S = 30.0


async def restored_cluster(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """All processes have stopped, the store has come back without topic `new`, and all run again."""
    monkeypatch.setattr(stray_keeper, "KEPT_S", KEPT_S)
    monkeypatch.setattr(stray_keeper, "CHECK_S", KEPT_S / 10)
    cluster = await brokers(2)
    await cluster.create("old")
    copy = cluster.world.zookeeper.copy()
    await cluster.wait(WITNESS_S)  # the copy is older than that
    await cluster.create("new")
    await cluster.append("old", 0, batch(b"kept"))
    await cluster.append("new", 0, batch(*(b"%d" % number for number in range(100))))
    await cluster.wait(5.0)
    stop_all(cluster)
    return_to(cluster.world.zookeeper, copy, zxid=EPOCH_OF_AN_ENSEMBLE)
    await start_all(cluster)
    return cluster


def stop_all(cluster: Brokers) -> None:
    for node in cluster.world.nodes.values():
        node.kill()


async def start_all(cluster: Brokers) -> None:
    for node in cluster.world.nodes.values():
        node.start()
    await cluster.settle()


def manager(cluster: Brokers, broker: int) -> ReplicaManager:
    process = cluster.node(broker).broker
    assert process is not None and process.manager is not None
    return process.manager


def strays(cluster: Brokers) -> dict[int, list[str]]:
    """Topics of the logs that each broker has set aside."""
    return {b: [stray.key.topic for stray in manager(cluster, b).strays] for b in cluster.ids}


async def test_after_a_restore_nothing_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await restored_cluster(monkeypatch)
    assert cluster.values("old") == [b"kept"]
    for _ in range(3):
        await cluster.wait(3 * KEPT_S)
        assert strays(cluster) == {1: ["new"], 2: ["new"]}
        stop_all(cluster)
        await start_all(cluster)
    await cluster.create("later")
    await cluster.append("later", 0, batch(b"work goes on"))
    for broker in cluster.ids:
        assert cluster.node(broker).registry.get_sample_value("tidelog_log_another_past") == 1
        cluster.node(broker).disk.remove(NOTE)
    await cluster.wait(KEPT_S - 1)
    assert strays(cluster) == {1: ["new"], 2: ["new"]}, "their day begins when the operator has decided"
    await cluster.wait(KEPT_S)
    assert strays(cluster) == {1: [], 2: []}


async def test_an_order_to_delete_a_topic_acts_all_the_same() -> None:
    bench = BrokerBench(clock=SimClock())
    bench.told()
    bench.host.append(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), -1, acks=1)
    bench.logs.past.note("ZooKeeper is behind")
    bench.manager.set_strays_aside(frozenset())
    (stray,) = bench.manager.strays
    tp = TopicPartition("events", 0)
    assert bench.manager.stop(tp, TOPIC_ID, DELETED_TOPIC_EPOCH, True) is ErrorCode.NONE
    assert not bench.manager.strays and bench.disk.kind(stray.folder) is None


async def test_a_replica_that_moved_away_does_not_lead_empty() -> None:
    """It is back before the others, so the copy's in-sync set shrinks to it; and the records are still where they were."""
    cluster, tp = await brokers(3), TopicPartition("moved", 0)
    await cluster.place("moved", (1, 2))
    await cluster.append("moved", 0, batch(b"first"), batch(b"second"))
    copy = cluster.world.zookeeper.copy()
    await cluster.wait(2 * WITNESS_S)  # every broker has written its witness since
    await cluster.move("moved", 0, (2, 3))
    stop_all(cluster)
    return_to(cluster.world.zookeeper, copy, zxid=EPOCH_OF_AN_ENSEMBLE)
    for name, node in cluster.world.nodes.items():
        if name not in ("broker-2", "broker-3"):
            node.start()
    await cluster.until(lambda: cluster.node(1).hosts(), "broker 1 has an order")
    cluster.launch(2, 3)
    await cluster.wait(10.0)
    assert not cluster.host("moved", broker=1).is_leader and cluster.host("moved", broker=2).log.log_end_offset == 2
    cluster.kill(1)
    await cluster.until(lambda: cluster.states[tp].leader == NO_LEADER, "the controller knows that broker 1 is gone")
    (elected,) = await cluster.admin.elect_leaders([tp], unclean=True)
    assert elected.error_code is ErrorCode.NONE
    await cluster.restart(1)
    assert cluster.leader("moved") == 2 and cluster.values("moved") == [b"first", b"second"]
    await cluster.until(lambda: len(cluster.states[tp].isr) == 2, "broker 1 has fetched the records again")
    assert strays(cluster)[1] == strays(cluster)[2] == []


async def test_in_an_older_copy_a_log_without_history_counts_as_failed() -> None:
    bench = BrokerBench(clock=SimClock())
    bench.logs.past.note("ZooKeeper is behind")
    assert bench.told(leader=2, isr=(1, 2), replicas=(1, 2)) is ErrorCode.NONE
    assert [each.topic for each in bench.manager.failed()] == ["events"]
    assert bench.told(leader_epoch=4, isr=(1, 2), replicas=(1, 2)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.told(topic="outside", leader=2, isr=(2,), replicas=(1, 2)) is ErrorCode.NONE
    assert bench.told(topic="first", partition_epoch=0, leader_epoch=0) is ErrorCode.NONE
    assert [each.topic for each in bench.manager.failed()] == ["events"]
