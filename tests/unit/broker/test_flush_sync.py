"""flush=sync: a record counts, here and on a follower, when it would survive a loss of power, and nothing else waits for it."""

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from helpers.aio import now
from helpers.batches import batch
from helpers.broker import STALL_LIMIT_S, BrokerBench, member
from helpers.logs import contents
from helpers.replication import EVENTS, broker_world, until
from helpers.requirements import requirement
from tidelog.config import BrokerSettings
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.replica import events as ev
from tidelog.replica.partition import Role
from tidelog.storage.log_context import LogConfig
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash, SimDisk
from tidelog.topic_config import TopicConfig

SYNC = TopicConfig(min_insync_replicas=1, flush="sync")
PLAIN = TopicConfig(min_insync_replicas=1)


def syncs(disk: SimDisk, path: str = "events-0/") -> int:
    return sum(op.name == "sync" and path in op.path for op in disk.trace)


@pytest.fixture
async def bench() -> AsyncIterator[BrokerBench]:
    """A broker that leads events-0 by itself, with flush=sync."""
    bench = BrokerBench(clock=SimClock())
    bench.told(config=SYNC)
    yield bench


@requirement("A stalled log sync moves leadership to another replica")
@requirement("A last ISR member that lost power is not elected automatically")
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_leader_counts_itself_when_the_sync_has_ended(bench: BrokerBench, acks: int) -> None:
    bench.disk.slow("sync", 2.0, path="events-0/")
    began = now()
    sending = asyncio.create_task(bench.send(batch(b"x"), acks=acks, timeout_ms=5_000))
    await asyncio.sleep(1.0)
    assert bench.host.replica.high_watermark == 0 and not sending.done()
    assert (await bench.get(0)).records == b"", "nobody may see it yet"
    assert (await sending).error_code is ErrorCode.NONE
    assert now() - began == pytest.approx(2.0)
    assert bench.host.replica.high_watermark == bench.host.log.recovery_point == 1

    assert bench.disk.stalled_s == 0.0


@requirement("A last ISR member that lost power is not elected automatically")
async def test_acks_0_waits_for_nothing(bench: BrokerBench) -> None:
    bench.disk.slow("sync", 2.0, path="events-0/")
    began = now()
    assert (await bench.send(batch(b"x"), acks=0)).error_code is ErrorCode.NONE
    assert now() == began


async def test_what_comes_in_one_turn_of_the_loop_or_during_a_sync_shares_the_next_one(bench: BrokerBench) -> None:
    bench.disk.slow("sync", 1.0, path="events-0/")
    first = [asyncio.create_task(bench.send(batch(b"x"), acks=1, timeout_ms=9_000)) for _ in range(20)]
    await asyncio.sleep(0.5)
    assert syncs(bench.disk) == 1
    second = [asyncio.create_task(bench.send(batch(b"y"), acks=1, timeout_ms=9_000)) for _ in range(20)]
    assert {(await each).error_code for each in (*first, *second)} == {ErrorCode.NONE}
    assert syncs(bench.disk) == 2
    assert now() == pytest.approx(2.0)


@requirement("Durability can be traded for write latency")
async def test_a_record_that_was_acknowledged_survives_a_loss_of_power(bench: BrokerBench) -> None:
    await _send_some(bench, 5)
    bench.disk.crash(Crash.DROP_UNSYNCED)
    again = BrokerBench(bench.disk)
    assert again.logs.logs[EVENTS].log_end_offset == 5


async def _send_some(bench: BrokerBench, count: int) -> None:
    for _ in range(count):
        assert (await bench.send(batch(b"x"), acks=1)).error_code is ErrorCode.NONE


# --- failures -------------------------------------------------------------------------------------------------------


@requirement("A disk error takes one partition of one broker offline")
async def test_a_failed_sync_is_never_tried_again(bench: BrokerBench) -> None:
    told: list[str] = []
    bench.manager.on_failed = lambda: told.append("failed")
    bench.logs.registered(7)
    await _send_some(bench, 2)
    bench.disk.fail("sync", errno.EIO, path="events-0/")
    result = await bench.send(batch(b"lost"), acks=1)
    assert result.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "unknown: it was written, and may be gone"
    assert bench.host.offline is not None and "sync failed" in bench.host.offline.message
    assert bench.host.replica.role is Role.NONE
    assert told == ["failed"] and [f.error_code for f in bench.manager.failed()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    before = syncs(bench.disk)
    assert (await bench.send(batch(b"y"), acks=1)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(60.0)
    assert syncs(bench.disk) == before
    assert bench.logs.intact_since is None, "this directory has lost something"


@requirement("A stalled log sync moves leadership to another replica")
async def test_a_stuck_sync_holds_up_nobody_else_and_ends_in_another_leader(bench: BrokerBench) -> None:
    failed = asyncio.Event()
    bench.manager.on_failed = failed.set
    bench.told(topic="other", config=SYNC)
    bench.told(topic="plain", config=PLAIN)
    ticks = asyncio.create_task(bench.manager.run_ticks())
    bench.disk.slow("sync", 30.0, path="events-0/")
    stuck = asyncio.create_task(bench.send(batch(b"x"), acks=-1, timeout_ms=60_000))
    began = now()
    while not failed.is_set():
        for topic in ("other", "plain"):
            assert (await bench.send(batch(b"y"), topic=topic)).error_code is ErrorCode.NONE
        await asyncio.sleep(0.25)
    assert STALL_LIMIT_S < now() - began <= STALL_LIMIT_S + 1.0
    assert [f.topic for f in bench.manager.failed()] == ["events"]
    assert (await stuck).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "log_flush_stall_limit_ms" in str(bench.host.offline)
    ticks.cancel()
    await bench.flusher.drain(60.0)

    assert bench.disk.stalled_s == 0.0


@requirement("A stalled log sync moves leadership to another replica")
async def test_a_stuck_sync_that_no_record_waits_for_costs_no_leader(bench: BrokerBench) -> None:
    bench.told(topic="plain", config=PLAIN)
    assert (await bench.send(batch(b"x"), topic="plain")).error_code is ErrorCode.NONE
    bench.disk.slow("sync", 30.0, path="plain-0/")
    flushing = asyncio.create_task(bench.flusher.run(bench.manager, 0.5))
    ticks = asyncio.create_task(bench.manager.run_ticks())
    await asyncio.sleep(STALL_LIMIT_S + 5.0)
    assert (await bench.send(batch(b"y"), topic="plain")).error_code is ErrorCode.NONE
    assert not bench.manager.failed()
    flushing.cancel()
    ticks.cancel()
    await bench.flusher.drain(60.0)

    assert bench.disk.stalled_s == 0.0


@requirement("A leader paused within its session drops no follower")
async def test_a_pause_of_our_own_is_no_stall_of_the_device(bench: BrokerBench) -> None:
    bench.disk.slow("sync", 8.0, path="events-0/")
    sending = asyncio.create_task(bench.send(batch(b"x"), acks=1, timeout_ms=60_000))
    await asyncio.sleep(1.0)
    bench.flusher.resumed(now() + 30.0)  # what a clock says that went on while we stood still
    bench.flusher.check_stalls(now() + 30.0)
    assert (await sending).error_code is ErrorCode.NONE


@requirement("The replica of a deleted topic is stopped and deleted")
async def test_a_partition_that_is_deleted_during_its_sync_does_not_count_as_failed(bench: BrokerBench) -> None:
    bench.disk.slow("sync", 2.0, path="events-0/")
    sending = asyncio.create_task(bench.send(batch(b"x"), acks=1))
    await asyncio.sleep(0.5)
    assert bench.manager.stop(EVENTS, b"", -2, True) is ErrorCode.NONE
    assert (await sending).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await bench.flusher.drain(10.0)
    assert bench.manager.failed() == () and len(bench.manager) == 0


async def test_a_sync_that_is_given_up_leaves_no_clean_stop_behind(bench: BrokerBench) -> None:
    """Its failure would be told to nobody: the kernel says it once (reliability 8.1)."""

    bench.disk.slow("sync", 60.0, path="events-0/")
    sending = asyncio.create_task(bench.send(batch(b"x"), acks=1))
    await asyncio.sleep(0.5)
    await bench.flusher.drain(1.0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([sending])
    assert not bench.logs.close(bench.manager.high_watermarks(), 7)


# --- followers ------------------------------------------------------------------------------------------------------


@requirement("The next fetch position of a follower is its acknowledgement")
@requirement("A last ISR member that lost power is not elected automatically")
async def test_a_follower_is_counted_when_its_own_sync_has_ended() -> None:
    async with broker_world() as (world, leader, follower):
        world.told(1, 3, config=SYNC)
        follower.disk.slow("sync", 3.0, path="events-0/")
        began = now()
        leader.append()
        await until(lambda: follower.end == 1)
        assert now() - began < 1.0
        await asyncio.sleep(2.0)
        assert leader.high_watermark == 0, "the follower holds it in memory only"
        leader.append()
        leader.append()
        await until(lambda: leader.high_watermark == 3, limit_s=10.0)
        assert now() - began == pytest.approx(6.0, abs=0.5), "two syncs: what came meanwhile went with the second"
        assert follower.host.log.recovery_point == 3
        await until(lambda: follower.high_watermark == 3)
        assert contents(follower.host.log) == contents(leader.host.log)


@requirement("The next fetch position of a follower is its acknowledgement")
async def test_else_a_follower_is_counted_before_its_sync_has_ended() -> None:
    async with broker_world() as (world, leader, follower):
        world.told(1, 3, config=PLAIN)
        follower.disk.slow("sync", 30.0, path="events-0/")
        leader.append()
        await until(lambda: leader.high_watermark == 1, limit_s=1.0)
        assert (follower.end, follower.host.log.recovery_point) == (1, 0)


@requirement("A stalled log sync moves leadership to another replica")
async def test_a_follower_with_a_slow_disk_keeps_no_other_partition_waiting() -> None:
    async with broker_world() as (world, leader, follower):
        world.told(1, 3, config=SYNC, topics=("events", "other"))
        follower.disk.slow("sync", 30.0, path="events-0/")
        leader.append()
        for end in range(1, 20):
            leader.append(topic="other")
            await until(lambda end=end: leader.part("other").replica.high_watermark == end, limit_s=1.0)
        assert leader.high_watermark == 0
        sent = sum(len(part.records) > 0 and part.topic == "events" for c in leader.chunks for part in c.partitions)
        leader.append()
        await asyncio.sleep(1.0)
        assert (
            sent
            == 1
            == sum(len(part.records) > 0 and part.topic == "events" for c in leader.chunks for part in c.partitions)
        ), "nothing is sent twice while the position is waited for"
        assert follower.disk.stalled_s == 0.0


@requirement("ISR and catch-up replicas make up the assigned replicas")
async def test_an_idle_follower_outside_the_isr_still_learns_the_high_watermark() -> None:
    async with broker_world() as (world, leader, follower):
        world.told(1, 3, isr=(1,), config=SYNC)
        follower.disk.slow("sync", 2.0, path="events-0/")
        leader.append()
        await until(lambda: leader.high_watermark == 1 and follower.end == 1, limit_s=5.0)
        await until(lambda: follower.high_watermark == 1, limit_s=5.0)


async def test_a_follower_that_comes_to_lead_counts_its_tail_when_it_is_synced() -> None:
    async with broker_world() as (world, leader, follower):
        world.told(1, 3, config=SYNC)
        follower.disk.slow("sync", 3.0, path="events-0/")
        leader.append()
        await until(lambda: follower.end == 1)
        world.told(2, 4, isr=(2,), only=(2,), config=SYNC)
        await asyncio.sleep(1.0)
        assert follower.high_watermark == 0
        await until(lambda: follower.high_watermark == 1, limit_s=5.0)


async def test_a_replica_states_no_position_that_a_killed_process_left_unsynced() -> None:
    async with broker_world() as (world, leader, follower):
        leader.lay((2, 3))
        follower.lay((2, 3), by=1)
        follower.disk.slow("sync", 2.0, path="events-0/")
        world.told(1, 3, config=SYNC)
        await asyncio.sleep(1.0)
        assert leader.host.replica.leading is not None and not leader.host.replica.leading.progress
        await until(lambda: leader.high_watermark == 3, limit_s=5.0)
        assert follower.host.log.recovery_point == 3


# --- recovery points ------------------------------------------------------------------------------------------------


@requirement("A replica knows its log end, high watermark and flushed offset")
async def test_the_recovery_point_is_above_or_below_the_high_watermark() -> None:
    bench = BrokerBench(clock=SimClock())
    bench.told(isr=(1, 2), replicas=(1, 2), config=PLAIN)
    await bench.send(batch(b"x"), acks=1)
    bench.host.log.flush()
    assert (bench.host.replica.high_watermark, bench.host.log.recovery_point) == (0, 1)
    await bench.send(batch(b"y"), acks=1)
    bench.host.step(ev.FollowerPosition(2, member(2).broker_epoch, 3, 2, 3, 3, 1 << 40, 1.0))
    assert (bench.host.replica.high_watermark, bench.host.log.recovery_point) == (2, 1)


@requirement("Logs are synced to disk at intervals")
async def test_kafka_10101_background_syncs_move_the_recovery_points_of_all_logs(bench: BrokerBench) -> None:
    for topic in ("plain", "other", "idle"):
        bench.told(topic=topic, config=PLAIN)
    for topic in ("plain", "other"):
        await bench.send(batch(b"a", b"b"), topic=topic, acks=1)
    logs = [bench.logs.logs[TopicPartition(topic, 0)] for topic in ("plain", "other")]
    assert BrokerSettings.log_flush_interval_ms == 60_000
    running = asyncio.create_task(bench.flusher.run(bench.manager, 60.0))
    await asyncio.sleep(59.0)
    assert [(log.recovery_point, log.log_end_offset) for log in logs] == [(0, 2)] * 2
    await asyncio.sleep(2.0)
    assert [(log.recovery_point, log.log_end_offset) for log in logs] == [(2, 2)] * 2
    before = syncs(bench.disk, "")
    await asyncio.sleep(600.0)
    assert syncs(bench.disk, "") == before, "what is flushed is left alone"
    assert syncs(bench.disk, "idle-0/") == 0
    running.cancel()

    assert bench.disk.stalled_s == 0.0


async def test_after_a_kill_only_the_segments_behind_the_recovery_point_are_read() -> None:
    disk = SimDisk()
    config = LogConfig(segment_bytes=300, index_interval_bytes=100)

    def opened() -> BrokerBench:
        return BrokerBench(disk, clock=SimClock(), config=config)

    bench = opened()
    bench.told(config=replace(PLAIN, segment_bytes=300))
    for _ in range(12):
        await bench.send(batch(b"x" * 40), acks=1)
    await bench.flusher.flush_all(bench.manager)
    bench.logs.checkpoint({})
    for _ in range(2):
        await bench.send(batch(b"y" * 40), acks=1)
    first, last = bench.host.log.segments[0].path, bench.host.log.segments[-1].path
    assert first != last
    disk.crash(Crash.PROCESS)
    reads: list[str] = []
    disk.on_read = reads.append
    log = opened().logs.logs[EVENTS]
    assert (log.log_end_offset, log.recovery_point) == (14, 12)
    assert last in reads and first not in reads
