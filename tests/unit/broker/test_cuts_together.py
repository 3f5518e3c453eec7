"""Cuts of many logs in one turn: each checkpoint is written once, and the event loop waits for no device."""

import errno
from collections.abc import AsyncIterator

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench
from helpers.logs import contents
from helpers.replication import broker_world, until
from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import validate_produce

TOPICS = tuple(f"t{number}" for number in range(20))
WAITS = ("sync", "sync_dir")
MARKS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


@pytest.fixture
async def bench() -> AsyncIterator[BrokerBench]:
    """A follower of twenty partitions, with four flushed records in two segments each."""
    bench, config = BrokerBench(clock=SimClock()), TopicConfig(segment_bytes=200)
    for topic in TOPICS:
        told = bench.told(leader=2, leader_epoch=3, isr=(1, 2), replicas=(1, 2), topic=topic, config=config)
        assert told is ErrorCode.NONE
        log = bench.manager.host(topic, 0).log
        for _ in range(4):
            log.append_as_leader(validate_produce(batch(b"v" * 20), batch_bytes_max=1 << 20), 3)
        log.flush()
        assert len(log.segments) == 2
    for _ in range(2):
        bench.logs.checkpoint({host.tp: 4 for host in bench.manager})
    yield bench


def slow(bench: BrokerBench) -> None:
    for op in WAITS:
        bench.disk.slow(op, 1.0)


def written(bench: BrokerBench, since: int) -> list[str]:
    """Checkpoints that were replaced."""
    renamed = [
        op.path.removesuffix(".next").removesuffix(".tmp") for op in bench.disk.trace[since:] if op.name == "rename"
    ]
    return [path.rpartition("/")[2] for path in renamed]


async def cut_all(bench: BrokerBench, offset: int, *, anew: bool) -> None:
    hosts = list(bench.manager)
    async with bench.manager.cuts.cutting(dict.fromkeys(hosts, 0 if anew else offset)):
        for host in hosts:
            if anew:
                host.log.reset_to(offset)
            else:
                host.log.truncate_to(offset)


def append_all(bench: BrokerBench) -> None:
    for host in bench.manager:
        host.log.append_as_leader(validate_produce(batch(b"new"), batch_bytes_max=1 << 20), 5)


@pytest.mark.parametrize(("offset", "anew"), [(3, False), (1, False), (9, True)])
@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_many_cuts_share_their_checkpoints(bench: BrokerBench, offset: int, anew: bool, crash: Crash) -> None:
    slow(bench)
    before = len(bench.disk.trace)
    await cut_all(bench, offset, anew=anew)
    append_all(bench)
    assert bench.disk.stalled_s == 0.0
    assert not any(host.log.unsettled for host in bench.manager)
    names = written(bench, before)
    assert len(names) <= 6 and max(map(names.count, MARKS)) <= 2
    for host in bench.manager:
        await flushed(bench, host)
    bench.disk.mend()
    bench.disk.crash(crash)
    again = BrokerBench(bench.disk, clock=SimClock())
    for log in again.logs.logs.values():
        assert (log.failure, log.log_end_offset) == (None, offset + 1)
        assert contents(log)


async def flushed(bench: BrokerBench, host: PartitionHost) -> None:
    flush = host.log.begin_flush()
    host.log.end_flush(flush, await bench.disk.in_background(flush.outcome))


async def test_a_cut_above_all_marks_writes_no_checkpoint(bench: BrokerBench) -> None:
    append_all(bench)
    slow(bench)
    before = len(bench.disk.trace)
    await cut_all(bench, 4, anew=False)
    assert written(bench, before) == [] and bench.disk.stalled_s == 0.0


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_no_checkpoint_moves_marks_of_a_cut_under_way(bench: BrokerBench, crash: Crash, anew: bool) -> None:
    hosts = list(bench.manager)
    async with bench.manager.cuts.cutting(dict.fromkeys(hosts, 0 if anew else 1)):
        bench.logs.checkpoint(bench.manager.high_watermarks())
        for host in hosts:
            if anew:
                host.log.reset_to(9)
            else:
                host.log.truncate_to(1)
        bench.logs.checkpoint(dict.fromkeys(bench.manager.high_watermarks(), 9))
        bench.disk.crash(crash)
        logs = BrokerBench(bench.disk, clock=SimClock()).logs.logs
        assert {log.failure for log in logs.values()} == {None}
        for host in hosts:
            host.offline = TidelogError("dead", ErrorCode.KAFKA_STORAGE_ERROR)


async def test_marks_of_a_cut_that_was_given_up_rise_again(bench: BrokerBench) -> None:
    hosts = list(bench.manager)
    async with bench.manager.cuts.cutting(dict.fromkeys(hosts, 1)):
        pass
    bench.logs.checkpoint({host.tp: 4 for host in hosts})
    bench.disk.crash(Crash.PROCESS)
    logs = BrokerBench(bench.disk, clock=SimClock()).logs.logs
    assert {log.recorded_high_watermark for log in logs.values()} == {4}
    assert {log.recovery_point for log in logs.values()} == {4}


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_a_cut_whose_checkpoint_fails_waits_by_itself(bench: BrokerBench, crash: Crash) -> None:
    bench.disk.fail("rename", errno.EIO, path=MARKS[1])
    await cut_all(bench, 1, anew=False)
    append_all(bench)
    bench.disk.crash(crash)
    logs = BrokerBench(bench.disk, clock=SimClock()).logs.logs
    assert {log.failure for log in logs.values()} == {None}


async def test_a_folder_that_cannot_be_synced_takes_one_log_alone(bench: BrokerBench) -> None:
    bench.disk.fail("sync_dir", errno.EIO, path="t7-0")
    await cut_all(bench, 1, anew=False)
    assert [host.tp.topic for host in bench.manager if host.offline is not None] == ["t7"]
    assert not any(host.log.unsettled for host in bench.manager if host.offline is None)


async def test_a_chunk_of_many_partitions_is_cut_together() -> None:
    """A follower hears from its leader that none of its logs has what the leader has."""
    async with broker_world(1, 2) as (world, one, two):
        for node, epochs in ((one, (1, 3)), (two, (1, 2))):
            for topic in TOPICS:
                log = node.logs.create(TopicPartition(topic, 0), TOPIC_ID)
                for number in range(4):
                    records = batch(b"of %d" % epochs[number // 2])
                    log.append_as_leader(validate_produce(records, batch_bytes_max=1 << 20), epochs[number // 2])
                log.flush()
        two.logs.checkpoint(dict.fromkeys(two.logs.logs, 2))
        two.disk.slow("sync", 0.01)
        two.disk.slow("sync_dir", 0.01)
        before = len(two.disk.trace)
        world.told(1, 4, topics=TOPICS)
        await until(lambda: all(two.everything(topic) == one.everything(topic) for topic in TOPICS), limit_s=30.0)
        assert max(map(written(two, before).count, MARKS)) <= 2
        assert two.disk.stalled_s == 0.0
