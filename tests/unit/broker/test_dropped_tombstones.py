"""Compaction drops tombstones: who has not come to one, and may hold what it deletes, begins anew (simulator, seeds 653, 2063).

Every log knows up to where it lacks tombstones, and that is on disk before they are gone.
"""

import asyncio
import errno
import random
from dataclasses import replace

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID
from helpers.compacted import NOW_MS, RULES, compact, keyed, read_all
from helpers.logs import follow
from helpers.replica import leader, life, members
from helpers.replication import EVENTS, FakeLeader, Node, World, broker_world, until
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import HEADER_BYTES, read_header, sealed, validate_produce, with_horizon

OTHER = TopicPartition("other", 0)


# --- the leader's rule ------------------------------------------------------------------------------------------------


def position(
    offset: int, dropped_to: int, own_start: int = 0, leader_epoch: int = 5, drops: int = 1
) -> ev.FollowerPosition:
    """Of broker 3, with a history like the leader's."""
    return ev.FollowerPosition(
        *(3, life(3), leader_epoch, offset, 4, 4, 1_000, 1.0),
        own_start=own_start,
        dropped_to=dropped_to,
        drops=drops,
    )


def test_who_has_not_come_to_a_dropped_tombstone_is_sent_to_the_start_and_not_counted() -> None:
    harness = leader(leo=10, hw=10, isr=members(1, 2))
    assert harness.step(position(7, dropped_to=8)) == [fx.SendLogStart(3, 7)]
    assert harness.replica.leading is not None and 3 not in harness.replica.leading.progress
    assert harness.step(position(8, dropped_to=8))[-1] == fx.SendRecords(3, 8), "it has come to all of them"


def test_a_copy_that_was_begun_from_this_log_goes_on_until_the_log_lacks_more() -> None:
    harness = leader(leo=10, hw=10, isr=members(1, 2))
    assert harness.step(position(0, dropped_to=8))[-1] == fx.SendRecords(3, 0), "it is empty"
    assert harness.step(position(5, dropped_to=8))[-1] == fx.SendRecords(3, 5)
    assert harness.step(position(6, dropped_to=8, drops=2)) == [fx.SendLogStart(3, 6)], (
        "a tombstone below the mark went"
    )
    assert harness.step(position(0, dropped_to=8, drops=2))[-1] == fx.SendRecords(3, 0)
    assert harness.step(position(8, dropped_to=8, drops=3)) == [fx.SendLogStart(3, 8)], "it may have been on its way"
    assert harness.step(position(0, dropped_to=8, drops=3))[-1] == fx.SendRecords(3, 0)
    assert harness.step(position(8, dropped_to=8, drops=3))[-1] == fx.SendRecords(3, 8)


def test_a_copy_that_was_begun_from_another_leaders_log_begins_anew() -> None:
    harness = leader(leo=10, hw=10, isr=members(1, 2))
    harness.step(position(0, dropped_to=8))
    harness.told(1, leader_epoch=6, partition_epoch=60, isr=members(1, 2))
    assert harness.step(position(5, dropped_to=8, leader_epoch=6)) == [fx.SendLogStart(3, 5)]


def test_an_empty_copy_that_begins_at_the_start_is_not_sent_there_again() -> None:
    harness = leader(leo=10, hw=10, isr=members(1, 2))
    assert harness.step(position(4, dropped_to=8, own_start=4))[-1] == fx.SendRecords(3, 4)


def test_i1_nobody_drops_what_commits_count_on() -> None:
    """An ISR member is never behind a dropped tombstone; one that seemed to be, after an unclean election, keeps what it has."""
    harness = leader(leo=10, hw=10)
    assert harness.step(position(7, dropped_to=8))[-1] == fx.SendRecords(3, 7)
    other_life = ev.FollowerPosition(*(3, life(3, 2), 5, 7, 4, 4, 1_000, 1.0), dropped_to=8)
    assert harness.step(other_life) == [fx.SendLogStart(3, 7)], "a loss of power may lie in between"


# --- both sides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dropped_to", "anew"), [(5, True), (4, True), (3, False), (0, False)])
async def test_a_follower_that_is_behind_a_dropped_tombstone_fetches_everything_again(
    dropped_to: int, anew: bool
) -> None:
    async with broker_world() as (world, one, two):
        one.lay((1, 6))
        two.lay((1, 3), by=1)
        one.logs.logs[EVENTS].record_dropped_to(dropped_to)
        before = two.logs.logs[EVENTS].cuts
        world.told(1, 3, isr=(1,))
        await until(lambda: two.end == 6, "the whole log")
        assert two.everything() == one.everything()
        assert (two.host.log.cuts > before) == anew
        assert two.host.log.dropped_to == (dropped_to if anew else 0), "it would serve others as incompletely"


async def test_what_a_leader_lacks_is_durable_before_the_first_of_its_records_is() -> None:
    async with broker_world(2) as (world, two):
        fake = FakeLeader(world)
        await fake.start()
        two.disk.fail("rename", errno.EIO, path="dropped-tombstone")
        world.told(1, 3, isr=(1,), only=(2,))
        await until(lambda: fake.streams, "a stream")
        one = Node(world, 1)
        one.lay((1, 2))
        records = one.logs.logs[EVENTS].read(0, 1 << 20, 2)
        await fake.send(records=records, dropped_to=9)
        assert (two.end, two.host.log.dropped_to) == (0, 0)
        await fake.send(records=records, dropped_to=9)
        assert (two.end, two.host.log.dropped_to) == (2, 9)


async def test_a_copy_that_is_under_way_begins_anew_when_a_pass_drops_a_tombstone_below_earlier_ones() -> None:
    """It has fetched what the tombstone deletes, and goes on behind where that was: the mark of the log tells of neither."""

    async with broker_world() as (world, one, two):
        log = one.logs.create(EVENTS, TOPIC_ID)
        tombstone = keyed((b"gone", None))
        due = sealed(with_horizon(read_header(tombstone), NOW_MS), tombstone[HEADER_BYTES:])
        for records in (keyed((b"gone", b"value")), keyed((b"other", b"x")), due, keyed((b"last", b"x"))):
            follow(log, records, 2)
            log.roll()
        log.flush()
        log.record_dropped_to(4)
        one.leader_throttle = 10
        world.told(1, 3, isr=(1,), adding=(2,))
        await until(lambda: two.end == 1, "the first batch, which is all that its quota gives")
        log._tail.clear()
        compact(log, one.disk, rules=replace(RULES, segment_bytes=1))
        assert b"gone" not in {r.key for r in read_all(log)}
        one.leader_throttle = 0
        await asyncio.sleep(1.0)
        assert two.high_watermark == 4
        assert [r.key for r in read_all(two.host.log)] == [b"other", b"last"]


# --- the file ---------------------------------------------------------------------------------------------------------


def opened(disk: SimDisk) -> tuple[LogStore, PartitionLog]:
    logs = LogStore.open(disk, "/data", cluster_id="c", broker_id=1, rand=random.Random(1))
    logs.load()
    return logs, logs.create(EVENTS, TOPIC_ID)


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
def test_the_mark_outlives_its_process_and_a_loss_of_power(crash: Crash) -> None:
    disk = SimDisk()
    logs, log = opened(disk)
    log.append_as_leader(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), 1)
    log.flush()
    logs.create(OTHER, TOPIC_ID).record_dropped_to(1)
    logs.checkpoint({})
    logs.delete(OTHER)
    checkpoint = logs.begin_checkpoint({})
    log.record_dropped_to(7)
    checkpoint.run()
    logs.end_checkpoint(checkpoint)  # which had begun before, and does not bring the old mark back
    disk.crash(crash, random.Random(1))
    assert opened(disk)[1].dropped_to == 7


def test_a_mark_that_cannot_be_written_changes_nothing() -> None:
    disk = SimDisk()
    _, log = opened(disk)
    disk.fail("rename", errno.EIO, path="dropped-tombstone")
    with pytest.raises(TidelogError, match="which tombstones are dropped") as refused:
        log.record_dropped_to(7)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR and log.dropped_to == 0
    log.record_dropped_to(7)
    assert log.dropped_to == 7


@requirement("A topic id separates topics that share a name")
def test_a_topic_of_the_same_name_begins_without_a_mark() -> None:
    disk = SimDisk()
    logs, log = opened(disk)
    log.record_dropped_to(7)
    logs.delete(EVENTS)
    assert logs.create(EVENTS, b"\xbb" * 16).dropped_to == 0


def test_a_cut_takes_the_mark_with_it_and_a_log_that_begins_anew_has_none() -> None:
    """Before the next checkpoint a crash brings the higher mark back, with which followers copy more than they must."""
    disk = SimDisk()
    logs, log = opened(disk)
    for _ in range(4):
        log.append_as_leader(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), 1)
    log.record_dropped_to(4)
    log.truncate_to(3)
    assert log.dropped_to == 3
    logs.checkpoint({})
    disk.crash(Crash.PROCESS)
    logs, log = opened(disk)
    assert log.dropped_to == 3
    log.reset_to(1)
    assert log.dropped_to == 0
    logs.checkpoint({})
    disk.crash(Crash.PROCESS)
    assert opened(disk)[1].dropped_to == 0


async def test_whoever_leads_lacks_nothing_beyond_its_own_end() -> None:
    """It was elected uncleanly in the middle of its copy: the offsets beyond will name other records."""

    async with broker_world(1) as (world, one):
        one.lay((1, 2))
        one.logs.logs[EVENTS].record_dropped_to(9)
        world.told(1, 3, isr=(1,))
        assert one.host.log.dropped_to == 2
        one.disk.crash(Crash.PROCESS)
        assert opened(one.disk)[1].dropped_to == 2


DROPPED = "/data/dropped-tombstone-checkpoint"


def lose_marks(disk: SimDisk, *, rotten: bool) -> None:
    if rotten:
        disk.flip_bit(DROPPED, 5)
    else:
        disk.remove(DROPPED)


def with_records(disk: SimDisk, count: int = 4) -> LogStore:
    """A log that lacks tombstones below offset 3, of a process that is about to die."""
    logs, log = opened(disk)
    for _ in range(count):
        log.append_as_leader(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), 1)
    log.record_dropped_to(3)
    return logs


@pytest.mark.parametrize("rotten", [True, False])
def test_without_its_file_any_tombstone_may_be_dropped(rotten: bool) -> None:
    disk = SimDisk()
    with_records(disk)
    disk.crash(Crash.PROCESS)
    lose_marks(disk, rotten=rotten)
    logs, log = opened(disk)
    assert (log.dropped_to, log.log_end_offset) == (4, 4)
    assert any("dropped-tombstone-checkpoint is lost" in note for note in logs.notes)
    disk.crash(Crash.PROCESS)
    assert opened(disk)[1].dropped_to == 4, "the next start knows it from the file"


def test_without_its_file_a_log_that_fails_to_open_lacks_any() -> None:
    disk = SimDisk()
    with_records(disk)
    disk.crash(Crash.PROCESS)
    lose_marks(disk, rotten=True)
    disk.fail("pread", errno.EIO, path=".log")
    logs = LogStore.open(disk, "/data", cluster_id="c", broker_id=1, rand=random.Random(1))
    logs.load()
    assert EVENTS in logs.failed
    log = logs.reopen(EVENTS)
    assert log is not None and log.dropped_to >= 4


def test_a_directory_from_before_compaction_lacks_no_tombstone() -> None:
    disk = SimDisk()
    logs, log = opened(disk)
    log.append_as_leader(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), 1)
    logs.checkpoint({})
    disk.crash(Crash.PROCESS)
    for file in (DROPPED, "/data/cleaner-offset-checkpoint"):
        disk.remove(file)
    assert opened(disk)[1].dropped_to == 0


async def test_a_follower_begins_anew_once_if_marks_are_lost() -> None:
    disk = SimDisk()
    world = World((2,))
    first = Node(world, 1, disk)
    first.lay((1, 6))
    first.logs.checkpoint({})
    disk.crash(Crash.PROCESS)
    lose_marks(disk, rotten=True)
    one, two = Node(World(()), 1, disk), world.nodes[2]
    one.net, world.nodes[1] = first.net, one
    two.lay((1, 3), by=1)
    await world.start()
    cuts = two.logs.logs[EVENTS].cuts
    world.told(1, 3, isr=(1,))
    await until(lambda: two.end == 6, "the whole log")
    await asyncio.sleep(5.0)
    assert two.host.log.cuts == cuts + 1
    assert two.everything() == one.everything()
    assert one.host.log.dropped_to == 6
