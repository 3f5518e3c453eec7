"""Compaction, scrub, and what becomes of a log that has rotted, inside one broker in virtual time (issue 7, row 32)."""

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from helpers.batches import batch
from helpers.broker import BrokerBench, member
from helpers.compacted import NOW_MS, keyed, read_all
from helpers.logs import follow
from helpers.requirements import requirement
from tidelog.broker.cleaner import CleanerSettings, LogCleaner
from tidelog.broker.control_plane.port import Decision
from tidelog.broker.rot import RottenLogs
from tidelog.broker.scrubber import Scrubber, ScrubSettings
from tidelog.errors import ErrorCode
from tidelog.replica import events as ev
from tidelog.runtime.metrics import CleanerMetrics
from tidelog.storage.cleanable import cleanable
from tidelog.storage.compaction import Source
from tidelog.storage.log_context import LogConfig
from tidelog.testing.clock import SimClock
from tidelog.testing.worker import SimWorker
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

COMPACTED = TopicConfig(min_insync_replicas=1, cleanup_policy="compact", segment_bytes=200)
KEPT = TopicConfig(min_insync_replicas=1, segment_bytes=200)
ALONE = TopicConfig(min_insync_replicas=1)


class Bed:
    """A broker that leads events-0, with what `Broker._maintain` spawns."""

    def __init__(self) -> None:
        self.clock = SimClock(wall_offset_ms=NOW_MS - 1_600_000_000_000)
        self.bench = bench = BrokerBench(clock=self.clock, config=LogConfig(index_interval_bytes=100))
        self.registry = CollectorRegistry()
        self.all_in_sync = True
        metrics = CleanerMetrics(self.registry)
        worker = SimWorker(bench.disk)
        self.rotten = RottenLogs(bench.clock, metrics, bench.logs.data_lost)
        bench.manager.on_rotten = self.rotten.found
        settings = CleanerSettings(1.0, 1_000, 1 << 20, 100, float("inf"))
        self.cleaner = LogCleaner(
            *(settings, worker, bench.clock, bench.disk, bench.manager),
            *(bench.logs.marks.cleaner_offsets, metrics, self.rotten.found),
            all_in_sync=lambda tp: self.all_in_sync,
        )
        self.scrubber = Scrubber(
            ScrubSettings(20.0, 1e6), worker, bench.clock, bench.manager, metrics, self.rotten.found
        )

    def value(self, name: str) -> float:
        found = self.registry.get_sample_value(name)
        assert found is not None, name
        return found

    async def send(self, key: bytes | None, value: bytes | None) -> m.ProduceResult:
        return await self.bench.send(keyed((key, value)))

    async def fill(self, count: int) -> None:
        """As many records of two keys, in closed segments that are durable."""
        for number in range(count):
            assert (await self.send(b"k%d" % (number % 2), b"%d" % number)).error_code is ErrorCode.NONE
        assert (await self.bench.send(keyed((b"end", b"x" * 300)))).error_code is ErrorCode.NONE
        self.bench.host.log.flush()

    def rot(self, segment: int = 1) -> None:
        self.bench.host.log._tail.clear()  # memory does not rot
        path = self.bench.host.log.segments[segment].path
        self.bench.disk.flip_bit(path, 65)


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    bed = Bed()
    jobs = [bed.cleaner.run(), bed.scrubber.run(), bed.rotten.run(), bed.bench.reviver.run(1)]
    tasks = [asyncio.create_task(job) for job in jobs]
    yield bed
    for task in tasks:
        assert not task.done(), task
        task.cancel()


async def test_a_log_is_compacted_when_enough_of_it_is_dirty_and_goes_on_from_there(bed: Bed) -> None:
    bed.bench.told(config=COMPACTED)
    await bed.fill(20)
    log = bed.bench.host.log
    await bed.send(b"last", b"x")
    await asyncio.sleep(5.0)
    assert [(r.offset, r.key) for r in read_all(log)] == [(18, b"k0"), (19, b"k1"), (20, b"end"), (21, b"last")]
    assert bed.bench.logs.marks.cleaner_offsets.get(log.key) == 21
    assert bed.value("tidelog_log_cleaner_removed_records_total") == 18
    names = [entry.name for entry in bed.bench.disk.list_dir(log.folder)]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    read = bed.value("tidelog_log_cleaner_read_bytes_total")
    await asyncio.sleep(60.0)
    assert bed.value("tidelog_log_cleaner_read_bytes_total") == read, "clean: nothing to do"


async def test_a_tombstone_waits_for_a_replica_that_is_away(bed: Bed) -> None:
    """It may hold what the tombstone deletes, and would never hear of it."""

    bed.all_in_sync = False
    bed.bench.told(config=replace(COMPACTED, delete_retention_ms=1_000))
    await bed.send(b"gone", b"value")
    await bed.send(b"gone", None)
    await bed.fill(20)
    await bed.send(b"last", b"x")
    await asyncio.sleep(100.0)
    read = bed.value("tidelog_log_cleaner_read_bytes_total")
    assert [r.value for r in read_all(bed.bench.host.log) if r.key == b"gone"] == [None]
    await asyncio.sleep(100.0)
    assert bed.value("tidelog_log_cleaner_read_bytes_total") == read, "nothing is tried over and over"
    bed.all_in_sync = True
    await asyncio.sleep(10.0)
    assert [r for r in read_all(bed.bench.host.log) if r.key == b"gone"] == []


async def test_that_tombstones_are_dropped_is_on_disk_before_they_are_gone(bed: Bed) -> None:
    bed.bench.disk.fail("rename", errno.EIO, path="dropped-tombstone")
    bed.bench.told(config=replace(COMPACTED, delete_retention_ms=1_000))
    await bed.send(b"gone", b"value")
    await bed.send(b"gone", None)
    await bed.fill(20)
    await bed.send(b"last", b"x")
    log = bed.bench.host.log
    seen = set()
    for _ in range(400):
        await asyncio.sleep(0.5)
        left = [r.value for r in read_all(log) if r.key == b"gone"]
        seen.add((left == [], log.dropped_to))
        assert left or log.dropped_to == 2
    assert seen == {(False, 0), (True, 2)}, "a pass was broken off, and the next one was not"


async def test_nothing_above_the_high_watermark_is_compacted(bed: Bed) -> None:
    bed.bench.told(config=COMPACTED, isr=(1, 2), replicas=(1, 2))
    for number in range(20):
        await bed.bench.send(keyed((b"k", b"%d" % number)), acks=1)
    bed.bench.host.log.flush()
    await asyncio.sleep(60.0)
    bed.bench.host.log._tail.clear()
    assert len(read_all(bed.bench.host.log)) == 20


async def test_a_topic_that_is_not_compacted_is_left_alone(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(20)
    await asyncio.sleep(60.0)
    assert len(read_all(bed.bench.host.log)) == 21
    assert bed.value("tidelog_log_scrub_read_bytes_total") > 0


@pytest.mark.parametrize("codec", [0, 1])
async def test_a_leader_of_a_compacted_topic_takes_no_record_without_a_key(bed: Bed, codec: int) -> None:
    bed.bench.told(config=COMPACTED)
    refused = await bed.bench.send(keyed((b"a", b"1"), (None, b"2"), codec=codec))
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert "record 1" in refused.error_message and "cleanup.policy" in refused.error_message
    assert bed.bench.host.log.log_end_offset == 0
    assert (await bed.bench.send(keyed((b"a", None), (b"", b"2"), codec=codec))).error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("error", "is_noticed"),
    [(errno.EIO, True), (errno.ENOENT, True), (errno.EMFILE, False)],
    ids=["EIO", "ENOENT", "EMFILE"],
)
async def test_a_segment_that_cannot_be_read_takes_its_copy_out(bed: Bed, error: int, is_noticed: bool) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.bench.told(config=KEPT, leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    path = bed.bench.host.log.segments[1].path
    if error == errno.ENOENT:
        bed.bench.disk.remove(path)
    else:
        bed.bench.disk.fail("open", error, path=path, times=99)
    await asyncio.sleep(25.0)
    assert (bed.bench.host.offline is not None) is is_noticed
    assert bed.value("tidelog_log_corrupt_batches_found_total") == is_noticed


async def test_a_segment_that_can_be_read_again_is_whole(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.bench.disk.fail("open", errno.EIO, path=bed.bench.host.log.segments[1].path)
    await asyncio.sleep(25.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 0


@requirement("A flipped bit is never served or replicated")
async def test_a_rotten_segment_of_a_follower_takes_its_copy_out(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.bench.told(config=KEPT, leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    bed.rot()
    await asyncio.sleep(25.0)
    host = bed.bench.host
    assert host.offline is not None and host.offline.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [failed.topic for failed in bed.bench.manager.failed()] == ["events"]
    assert bed.bench.logs.intact_since is None
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 1
    bad = host.log.damage
    assert bad is not None
    # The controller knows, and nobody counts it: what is behind goes, though it had been synced, and is fetched again.
    tell_offline(bed.bench)
    await asyncio.sleep(10.0)
    assert bed.bench.host.offline is None
    assert bed.bench.host.log.log_end_offset == bad.offset < 12
    assert bed.bench.fetchers.following


@requirement("A flipped bit is never served or replicated")
async def test_rot_in_the_active_segment_of_a_follower(bed: Bed) -> None:
    """It may stay the active one for a week, in a copy that serves no reads."""
    bed.bench.told(config=ALONE)
    for number in range(5):
        await bed.send(b"k", b"%d" % number)
    log = bed.bench.host.log
    log.flush()
    await bed.send(b"k", b"not flushed")
    assert len(log.segments) == 1
    bed.bench.told(config=ALONE, leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    await asyncio.sleep(25.0)
    assert bed.bench.host.offline is None, "what is appended meanwhile, or was not flushed, is not looked at"
    bed.rot(segment=0)
    await asyncio.sleep(25.0)
    assert bed.bench.host.offline is not None and log.damage is not None
    assert (log.damage.offset, bed.value("tidelog_log_corrupt_batches_found_total")) == (0, 1)


async def test_a_scrub_reads_no_more_than_is_flushed(bed: Bed) -> None:
    bed.bench.told(config=ALONE)
    await bed.send(b"k", b"1")
    log = bed.bench.host.log
    log.flush()
    size = log.size_bytes
    await bed.send(b"k", b"2")
    bed.bench.disk.flip_bit(log.segments[0].path, size + 65)  # as a torn write that is still under way
    await asyncio.sleep(25.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 0
    assert bed.value("tidelog_log_scrub_read_bytes_total") >= size


async def test_a_scrub_leaves_out_what_is_compacted_meanwhile(bed: Bed) -> None:
    """A segment that takes the place of another has its name, and fewer bytes."""
    bed.bench.told(config=COMPACTED)
    await bed.fill(20)
    bed.scrubber._settings = ScrubSettings(20.0, 400.0)
    scrubbed = asyncio.create_task(bed.scrubber.scrub_all())
    await asyncio.sleep(0.1)
    assert bed.value("tidelog_log_cleaner_removed_records_total") == 0
    await scrubbed
    assert bed.value("tidelog_log_cleaner_removed_records_total") == 18
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 0 and bed.bench.host.offline is None


async def test_a_scrub_leaves_out_what_lies_below_the_start(bed: Bed) -> None:
    """It is not served, and a copy that is opened again does not read it: the copy would be condemned again and again."""
    bed.bench.told(config=KEPT)
    await bed.fill(40)
    log = bed.bench.host.log
    log.move_log_start(log.segments[1].base_offset)
    bed.rot(segment=0)
    await bed.scrubber.scrub_all()
    assert log.keeps_below_start and bed.value("tidelog_log_corrupt_batches_found_total") == 0
    bed.rot(segment=1)
    await bed.scrubber.scrub_all()
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 1, "the first segment that is served is read"


async def test_a_cut_ends_the_scrub_of_a_segment(bed: Bed) -> None:
    bed.bench.told(config=ALONE)
    for number in range(40):
        await bed.send(b"k", b"%d" % number)
    log = bed.bench.host.log
    log.flush()
    bed.rot(segment=0)
    bed.bench.disk.slow("open", 5.0, path=log.segments[0].path)
    await asyncio.sleep(2.0)
    log.truncate_to(0)
    await asyncio.sleep(10.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 0


def tell_offline(bench: BrokerBench) -> None:
    state = m.PartitionState(
        topic="events", topic_id=bytes(range(16)), partition=0, controller_epoch=1, leader=2, leader_epoch=4,
        isr=(member(2),), partition_epoch=9, replicas=(1, 2), offline_replicas=(1,),
    )  # fmt: skip
    bench.manager.become([Decision(state, KEPT)], {i: member(i).broker_epoch for i in (1, 2)})


@requirement("A flipped bit is never served or replicated")
async def test_a_leader_with_a_rotten_segment_goes_when_another_has_its_tail(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.bench.told(config=KEPT, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    bed.rot()
    await asyncio.sleep(2.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 1
    host = bed.bench.host
    assert host.offline is None, "the other one has not said yet that it has all"
    position = ev.FollowerPosition(
        replica=2, broker_epoch=member(2).broker_epoch, leader_epoch=4, offset=13, last_epoch=3, found_epoch=3,
        found_end=13, at=bed.bench.clock.now(), log_start=0, own_start=0,
    )  # fmt: skip
    host.step(position)
    await asyncio.sleep(0.1)
    assert host.offline is not None
    assert bed.bench.manager.failed()


@requirement("A flipped bit is never served or replicated")
async def test_a_leader_with_a_rotten_segment_waits_for_its_tail_only_so_long(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.bench.told(config=KEPT, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    bed.rot(segment=2)
    bed.rot(segment=1)
    lower = bed.bench.host.log.segments[1].base_offset
    await asyncio.sleep(4.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 2
    assert bed.bench.host.offline is None
    await asyncio.sleep(4.0)
    assert bed.bench.host.offline is not None
    damage = bed.bench.host.log.damage
    assert damage is not None and damage.offset == lower, "all from the first bad batch on is fetched again"


@requirement("A flipped bit is never served or replicated")
async def test_the_only_copy_stays_readable_but_for_the_rotten_batch(bed: Bed) -> None:
    bed.bench.told(config=KEPT)
    await bed.fill(12)
    bed.rot()
    bad = bed.bench.host.log.segments[1].base_offset
    await asyncio.sleep(25.0)
    assert bed.bench.host.offline is None
    assert (await bed.bench.get(bad)).error_code is ErrorCode.CORRUPT_MESSAGE
    for offset in (0, bad + 2):
        got = await bed.bench.get(offset)
        assert got.error_code is ErrorCode.NONE and got.records
    assert (await bed.send(b"k", b"more")).error_code is ErrorCode.NONE
    assert bed.value("tidelog_log_corrupt_batches") == 1
    assert bed.bench.logs.intact_since is None
    await asyncio.sleep(100.0)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 1, "found again, and told once"


@requirement("A flipped bit is never served or replicated")
async def test_compaction_gives_no_rotten_batch_a_new_checksum(bed: Bed) -> None:
    bed.bench.told(config=replace(COMPACTED, min_cleanable_dirty_ratio=1.0))
    await bed.fill(12)
    bed.rot()
    bed.bench.told(config=COMPACTED, partition_epoch=8)
    await asyncio.sleep(30.0)
    bad = bed.bench.host.log.segments[1].base_offset
    assert (await bed.bench.get(bad)).error_code is ErrorCode.CORRUPT_MESSAGE
    assert bed.value("tidelog_log_cleaner_broken_off_total") >= 1
    assert bed.value("tidelog_log_cleaner_read_bytes_total") == 0


async def test_a_plan_for_a_log_that_has_begun_anew_since_finds_no_damage_in_it(bed: Bed) -> None:
    bed.bench.told(config=replace(COMPACTED, min_cleanable_dirty_ratio=1.0))
    await bed.fill(12)
    host, log = bed.bench.host, bed.bench.host.log
    plan = await bed.cleaner.plan(host)
    assert plan is not None
    log.reset_to(0)
    follow(log, keyed((b"new", b"x")), 3)
    await bed.cleaner.clean(host, plan)
    assert bed.value("tidelog_log_corrupt_batches_found_total") == 0
    assert (log.failure, host.offline, bed.bench.logs.notes) == (None, None, [])


async def test_a_time_ahead_of_the_clock_keeps_nothing_from_compaction() -> None:
    bed = Bed()
    bed.clock.wall_offset_ms = 0
    config = replace(COMPACTED, min_compaction_lag_ms=60_000, message_timestamp_after_max_ms=2**63 - 1)
    bed.bench.told(config=config)
    await bed.fill(6)
    assert bed.bench.host.log.segments[0].index.max_timestamp > bed.bench.clock.wall_ms()
    assert await bed.cleaner.plan(bed.bench.host) is None, "it was written less than a minute ago"
    await asyncio.sleep(61)
    assert await bed.cleaner.plan(bed.bench.host) is not None


SOURCES = (Source(0, 10, 100), Source(10, 20, 100), Source(20, 30, 100))


def plan(first_dirty: int, stamps: tuple[int, ...], horizon: int | None = None, **config: float) -> tuple[int, bool]:
    """How many sources, and whether it is due; (0, False): nothing to do."""
    found = cleanable(SOURCES, stamps, first_dirty, replace(TopicConfig(), **config), 1_000.0, horizon)  # type: ignore[arg-type]
    return (0, False) if found is None else (len(found.sources), found.due)


def test_when_a_log_is_worth_a_compaction() -> None:
    assert plan(0, (1, 2, 3)) == (3, True)
    assert plan(20, (3,)) == (3, False), "a third is dirty"
    assert plan(20, (3,), min_cleanable_dirty_ratio=0.3) == (3, True)
    assert plan(30, ()) == (0, False)
    assert plan(30, (), horizon=1_000) == (3, True), "a tombstone may go"
    assert plan(30, (), horizon=1_001) == (0, False)
    assert plan(0, (1, 990, 3), min_compaction_lag_ms=20) == (1, True), "nothing behind a young record"
    assert plan(0, (990, 2, 3), min_compaction_lag_ms=20) == (0, False)
    assert plan(20, (3,), max_compaction_lag_ms=900) == (3, True), "old enough in any case"
    assert plan(99, ()) == (0, False)


async def test_a_batch_that_nobody_may_judge_condemns_its_copy() -> None:
    bench = BrokerBench()
    bench.told(config=KEPT)
    await bench.send(batch(b"a"))
    bench.host.log._tail.clear()
    bench.disk.flip_bit(bench.host.log.segments[0].path, 65)
    assert (await bench.get(0)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.host.offline is not None
