"""An unclean election takes a replica whose disk was emptied: what the others cut for it is set aside, and can be read."""

import logging

import pytest

from helpers.batches import batch
from helpers.brokers import Brokers, brokers
from tidelog.broker import stray_keeper
from tidelog.client.records import decode_batch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.storage.dump import dump_segment
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.store_past import ANOTHER_PAST_FILE
from tidelog.storage.strays import Stray
from tidelog.testing.disk import SimDisk

TP = TopicPartition("events", 0)
KEPT_S = 30.0
RECORDS = [b"%d" % number for number in range(100)]


async def emptied(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """The disk of broker 1 is a new one, and the others, whose copies hold 100 records, are down. It leads now."""
    monkeypatch.setattr(stray_keeper, "KEPT_S", KEPT_S)
    monkeypatch.setattr(stray_keeper, "CHECK_S", KEPT_S / 10)
    cluster = await brokers(3)
    await cluster.create("events", min_insync_replicas="1")
    for record in RECORDS:
        await cluster.append("events", 0, batch(record))
    await cluster.wait(3.0)  # the followers have heard of the high watermark, and have written it down
    cluster.kill(*cluster.ids)
    cluster.node(1).disk = SimDisk()
    cluster.launch(1)
    for _ in range(60):
        await cluster.wait(0.5)
        (result,) = await cluster.admin.elect_leaders([TP], unclean=True)
        if result.error_code is ErrorCode.NONE:
            break
    await cluster.until(lambda: cluster.leader("events") == 1, "broker 1 leads")
    await cluster.settle()
    assert cluster.end("events") == 0
    return cluster


def strays(cluster: Brokers, broker: int) -> list[Stray]:
    process = cluster.node(broker).broker
    assert process is not None and process.manager is not None
    return list(process.manager.strays)


def records_in(disk: SimDisk, folder: str) -> dict[int, bytes | None]:
    """Records by offset, as `tidelog log dump` reads them."""
    found = {}
    for name, _ in disk.list_dir(folder):
        path = f"{folder}/{name}"
        for line in dump_segment(disk, path) if name.endswith(LOG_SUFFIX) else ():
            assert line.header is not None and line.problem is None, line
            data = disk.read(path)[line.position : line.position + line.header.size_bytes]
            found.update({record.offset: record.value for record in decode_batch(TP, data, line.header)})
    return found


async def test_records_that_an_unclean_election_cuts_can_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await emptied(monkeypatch)
    await cluster.append("events", 0, batch(b"new"))
    caplog.clear()
    await cluster.restart(2, 3)
    assert cluster.values("events") == [b"new"]
    for broker in (2, 3):
        (stray,) = strays(cluster, broker)
        assert records_in(cluster.node(broker).disk, stray.folder) == dict(enumerate(RECORDS))
        assert cluster.node(broker).registry.get_sample_value("tidelog_log_stray_partitions") == 1
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "set aside" in r.getMessage()]
    assert sum("100 records from offset 0 on" in line and line.endswith("-stray") for line in told) == 2, told
    found = await cluster.admin.logs.describe_log_dirs([2])
    assert [(each.topic, each.folder) for each in found[2].strays] == [("events", strays(cluster, 2)[0].folder)]
    cluster.kill(2)
    await cluster.restart(2)
    (stray,) = strays(cluster, 2)
    assert records_in(cluster.node(2).disk, stray.folder) == dict(enumerate(RECORDS)), "a restart keeps them"
    await cluster.wait(KEPT_S + 2 * KEPT_S / 10)
    assert not strays(cluster, 2) and not strays(cluster, 3), "their day is over"
    assert cluster.values("events") == [b"new"] and cluster.host("events", broker=2).offline is None


async def test_a_leader_that_has_deleted_its_start_cuts_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await emptied(monkeypatch)
    for number in range(200):
        await cluster.append("events", 0, batch(b"new %d" % number))
    await cluster.delete_records("events", 0, 150)
    await cluster.restart(2, 3)
    (stray,) = strays(cluster, 2)
    assert records_in(cluster.node(2).disk, stray.folder) == dict(enumerate(RECORDS))
    assert cluster.host("events", broker=2).log.log_start_offset == 150


async def test_a_follower_below_the_start_sets_nothing_aside() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    await cluster.append("events", 0, batch(b"first"))
    await cluster.wait(3.0)
    cluster.kill(3)
    await cluster.until(lambda: 3 not in {member for member, _ in cluster.states[TP].isr}, "broker 3 is out")
    for number in range(10):
        await cluster.append("events", 0, batch(b"%d" % number))
    await cluster.delete_records("events", 0, 5)
    await cluster.restart(3)
    assert cluster.host("events", broker=3).log.log_start_offset == 5 and not strays(cluster, 3)


async def test_an_older_zookeeper_keeps_them_until_the_topic_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await emptied(monkeypatch)
    await cluster.restart(2, 3)
    process = cluster.node(2).broker
    assert process is not None and process.manager is not None and process.manager.strays
    process.manager._logs.past.note("ZooKeeper is behind")
    await cluster.wait(3 * KEPT_S)
    assert strays(cluster, 2) and not strays(cluster, 3)
    assert cluster.node(2).disk.kind(f"/data/{ANOTHER_PAST_FILE}") is not None
    await cluster.delete("events")
    await cluster.until(lambda: not strays(cluster, 2), "the deletion of a topic by its user takes all of it")
