"""An operator cuts the last copy of a log where its damage begins: what goes is told first, and the controller may know."""

import errno
from dataclasses import replace

import pytest

from helpers.batches import batch, offsets
from helpers.broker import BrokerBench
from helpers.logs import contents
from tidelog.broker.discard_damage import DiscardDamageHandler
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire import messages as m
from unit.broker.test_revival import ALONE, EVENTS, tell, told

A = batch(b"a" * 20)
SIZE = len(A)
TWO_SEGMENTS = replace(ALONE, segment_bytes=4 * SIZE)
REGISTERED = 9


async def damaged() -> SimDisk:
    """Disk of a killed broker: six batches in two segments, the second batch with a flipped bit, and half of one behind."""
    disk = SimDisk()
    bench = BrokerBench(disk)
    bench.told(config=TWO_SEGMENTS)
    for _ in range(6):
        assert (await bench.send(A)).error_code is ErrorCode.NONE
    disk.crash(Crash.PROCESS)
    disk.flip_bit(f"/data/events-0/{0:020d}.log", SIZE + 70)
    last = f"/data/events-0/{4:020d}.log"
    disk.overwrite(last, disk.read(last) + A[: SIZE // 2])
    return disk


def started(disk: SimDisk) -> tuple[BrokerBench, DiscardDamageHandler]:
    """The broker after that, registered, and told that it is the only one with a copy."""
    bench = BrokerBench(disk)
    bench.logs.registered(REGISTERED)
    assert tell(bench, told(leader=1, isr=(1,), offline=())) is ErrorCode.KAFKA_STORAGE_ERROR
    return bench, DiscardDamageHandler(bench.manager, disk)


async def ask(handler: DiscardDamageHandler, *tps: TopicPartition, execute: bool = False) -> tuple[m.DamagedLog, ...]:
    topics = tuple(m.TopicPartitions(topic=tp.topic, partitions=(tp.partition,)) for tp in tps)
    return (await handler.handle(m.DiscardDamageRequest(broker_id=1, topics=topics, execute=execute))).logs


async def test_what_goes_is_told_and_nothing_is_changed() -> None:
    disk = await damaged()
    bench, handler = started(disk)
    before = disk.image()
    (log,) = await ask(handler)
    assert (log.topic, log.partition, log.error_code, log.leader) == ("events", 0, ErrorCode.NONE, 1)
    assert (log.offset, log.end_offset, log.size_bytes) == (1, 6, 5 * SIZE + SIZE // 2)
    assert f"damaged at byte {SIZE}: crc" in log.reason
    assert disk.image() == before and bench.host.offline is not None


async def test_a_last_copy_is_cut_at_its_damage_and_leads_again() -> None:
    disk = await damaged()
    bench, handler = started(disk)
    reports: list[int] = []
    bench.manager.on_failed = lambda: reports.append(len(bench.manager.failed()))
    (log,) = await ask(handler, EVENTS, execute=True)
    assert (log.error_code, log.offset, log.end_offset) == (ErrorCode.NONE, 1, 6)
    assert reports == [0], "the controller hears that it works"
    assert bench.logs.intact_since == REGISTERED, "it knows of the loss since this broker has registered"
    assert bench.told(leader_epoch=5, config=ALONE) is ErrorCode.NONE
    assert (await bench.send(A)).base_offset == 1
    assert offsets(contents(bench.host.log)) == [0, 1]
    assert bench.said(m.LogTruncated) == ["events-0: truncates its log from 6 to 1 (it is damaged from there on)"]
    (stray,) = bench.manager.strays
    assert (stray.cut_at, stray.size_bytes) == (1, log.size_bytes), "what is left of it can be looked at for a day"
    disk.crash(Crash.PROCESS)
    log_again = BrokerBench(disk).logs.logs[EVENTS]
    assert (log_again.failure, log_again.log_end_offset) == (None, 2)


@pytest.mark.parametrize(
    ("leader", "message"), [(2, "broker 2 leads events-0"), (None, "no controller has named the leader of events-0")]
)
async def test_a_copy_that_is_not_the_operators_to_cut(leader: int | None, message: str) -> None:
    disk = await damaged()
    bench, handler = started(disk)
    if leader is None:
        bench.host.told_offline = None
    else:
        tell(bench, told(leader=leader, isr=(leader,)))
    before = disk.image()
    (log,) = await ask(handler, EVENTS, execute=True)
    assert log.error_code is ErrorCode.INVALID_REQUEST and message in log.error_message
    assert disk.image() == before


async def test_a_loss_that_the_controller_cannot_know_of_is_not_cut() -> None:
    """It may still count this life of the broker among those in sync."""
    bench, handler = started(await damaged())
    bench.logs.data_lost(bench.host.log.key, "found later")
    (log,) = await ask(handler, EVENTS, execute=True)
    assert log.error_code is ErrorCode.INVALID_REQUEST and "restart it first" in log.error_message
    assert bench.host.log.damage is not None


async def test_a_log_that_is_whole_and_one_that_is_not_there() -> None:
    bench = BrokerBench()
    bench.told(config=ALONE)
    handler = DiscardDamageHandler(bench.manager, bench.disk)
    whole, missing = await ask(handler, EVENTS, EVENTS._replace(partition=7), execute=True)
    assert (whole.error_code, whole.error_message) == (ErrorCode.INVALID_REQUEST, "the log of events-0 is not damaged")
    assert missing.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await ask(handler) == ()
    with pytest.raises(TidelogError, match=r"topics.topic has 250 characters, at most 249"):
        await ask(handler, EVENTS, EVENTS._replace(topic="x" * 250))


async def test_a_disk_that_fails_during_the_cut_leaves_it_offline() -> None:
    disk = await damaged()
    bench, handler = started(disk)
    disk.fail("rename", errno.EIO, path=".log")
    (log,) = await ask(handler, EVENTS, execute=True)
    assert log.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.host.offline is not None
