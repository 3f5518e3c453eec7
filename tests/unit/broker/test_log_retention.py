"""Retention and deletion of records over several replicas: the leader decides where a log starts, the others follow."""

import asyncio
import errno
import random

import pytest

from helpers.batches import batch, placed
from helpers.broker import BrokerBench
from helpers.compacted import compact, keyed
from helpers.replication import FakeLeader, Node, World, broker_world, until
from helpers.requirements import requirement
from tidelog.broker.delete_records import DeleteRecordsHandler
from tidelog.broker.retention import Retention
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.testing.disk import Crash
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

WALL_MS = 1_600_000_000_000
"""Where the simulated calendar begins."""
TWO_A_SEGMENT = 200
ALONE = TopicConfig(min_insync_replicas=1)
EVENTS = TopicPartition("events", 0)


def start(node: Node) -> int:
    return node.part().log.log_start_offset


def bases(node: Node) -> list[int]:
    return [segment.base_offset for segment in node.part().log.segments]


def retention(node: Node) -> Retention:
    return Retention(node.clock, node.disk, node.manager, 1.0)


async def led(world: World, config: TopicConfig, records: int, at_ms: int = WALL_MS) -> Node:
    """Broker 1 leads, and every broker holds and has committed so many records."""
    world.told(1, 3, config=config)
    one = world.nodes[1]
    for _ in range(records):
        one.append(batch(b"r" * 20, timestamp=at_ms))
    await until(lambda: all(node.high_watermark == records for node in world.nodes.values()), "the high watermark")
    return one


async def test_retention_by_size_moves_the_start_of_every_replica() -> None:
    async with broker_world() as (world, one, two):
        keep = 300
        await led(world, TopicConfig(segment_bytes=TWO_A_SEGMENT, retention_bytes=keep), 10)
        assert len(bases(one)) == 5
        await retention(one).check_all()
        await retention(two).check_all()
        assert start(one) == 6, "four records of 88 bytes are the least that is not below 300 bytes"
        await until(lambda: start(two) == 6, "the start to travel")
        assert one.everything() == two.everything()


async def test_retention_by_time_takes_segments_and_in_the_end_the_active_one() -> None:
    async with broker_world() as (world, one, two):
        config = TopicConfig(segment_bytes=TWO_A_SEGMENT, retention_ms=60_000)
        await led(world, config, 4)
        one.append(batch(b"r" * 20, timestamp=WALL_MS + 30_000))
        await until(lambda: two.high_watermark == 5)
        keeper = retention(one)
        await asyncio.sleep(61)
        await keeper.check_all()
        assert (start(one), bases(one)) == (4, [0, 2, 4])
        await asyncio.sleep(30)
        await keeper.check_all()
        assert (start(one), one.end, bases(one)[-1]) == (5, 5, 5)
        one.append()
        await until(lambda: two.high_watermark == 6)
        assert start(two) == 5 and two.everything() == one.everything()


@requirement("A disk error takes one partition of one broker offline")
async def test_a_segment_that_retention_cannot_read() -> None:
    """Retention reads each log at its first look after a start, also one that does not lead."""
    async with broker_world(1) as (world, one):
        await led(world, ALONE, 2)
        world.told(1, 3, topics=("other",), config=ALONE)
        one.append(topic="other")
        one.disk.fail("pread", errno.EIO, path="events-0")
        await retention(one).check_all()
        assert one.part().offline is not None and "read failed" in str(one.part().log.failure)
        assert one.part("other").offline is None


@requirement("A jump of the wall clock changes nothing but timestamps")
async def test_a_jump_of_the_clock_deletes_nothing_that_is_young() -> None:
    async with broker_world(1) as (world, one):
        await led(world, TopicConfig(segment_bytes=TWO_A_SEGMENT, retention_ms=60_000), 4)
        keeper = retention(one)
        await asyncio.sleep(10)
        one.sim_clock.wall_offset_ms = 3_600_000
        await keeper.check_all()
        assert start(one) == 0
        await asyncio.sleep(60)
        await keeper.check_all()
        assert start(one) == 4, "it is old by any clock now"


async def test_nothing_above_the_high_watermark_goes() -> None:
    async with broker_world(1) as (world, one):
        world.told(1, 3, isr=(1, 2), config=TopicConfig(segment_bytes=TWO_A_SEGMENT, retention_bytes=0, retention_ms=0))
        for _ in range(4):
            one.append(batch(b"r" * 20, timestamp=1))
        await retention(one).check_all()
        assert (start(one), one.high_watermark) == (0, 0)


async def test_a_topic_that_keeps_for_ever_keeps() -> None:
    async with broker_world(1) as (world, one):
        await led(world, TopicConfig(segment_bytes=TWO_A_SEGMENT), 6, at_ms=1)
        await retention(one).check_all()
        assert start(one) == 0


async def test_an_old_segment_is_closed_however_small_it_is() -> None:
    async with broker_world() as (world, one, two):
        await led(world, TopicConfig(segment_ms=60_000), 3)
        keepers = [retention(node) for node in (one, two)]
        for seconds, expected in ((0, [0]), (59, [0]), (2, [0, 3]), (120, [0, 3])):
            await asyncio.sleep(seconds)
            for keeper in keepers:
                await keeper.check_all()
            assert bases(one) == bases(two) == expected, "an empty segment is not closed again"


async def test_records_of_long_ago_do_not_close_a_segment_at_every_look() -> None:
    async with broker_world(1) as (world, one):
        await led(world, TopicConfig(segment_ms=60_000), 1, at_ms=1)
        keeper = retention(one)
        for _ in range(5):
            await keeper.check_all()
            one.append(batch(b"old", timestamp=1))
        assert bases(one) == [0, 1], "once, since nobody knows when this process was not there"


async def test_a_lost_index_is_read_beside_the_event_loop() -> None:
    async with broker_world(1) as (world, one):
        one.lay((1, 6))
        world.told(1, 3, config=TopicConfig(segment_bytes=TWO_A_SEGMENT, retention_ms=1_000))
        log = one.part().log
        log.roll()
        one.append(batch(b"new", timestamp=WALL_MS))
        log.segments[0]._index = None
        await retention(one).check_all()
        assert start(one) == 6 and log.segments[0].knows_index


@pytest.mark.parametrize("change", ["compacted", "truncated", "anew"])
async def test_a_segment_that_goes_while_an_older_one_is_read_takes_no_partition_offline(change: str) -> None:
    async with broker_world(1) as (world, one):
        config = TopicConfig(segment_bytes=1, retention_ms=1_000, cleanup_policy="compact,delete")
        world.told(1, 3, config=config)
        for number in range(4):
            one.append(keyed((b"k", b"%d" % number), timestamp=WALL_MS))
        log = one.part().log
        log.flush()
        await asyncio.sleep(10)
        for segment in log.segments:
            segment._index = None
            segment.drop_index_file()
        one.disk.slow("pread", 1.0)
        looking = asyncio.ensure_future(retention(one).check_all())
        await asyncio.sleep(0.5)
        assert not looking.done()
        one.disk.mend()
        if change == "compacted":
            compact(log, one.disk)
        elif change == "truncated":
            log.truncate_to(1)
        else:
            log.reset_to(0)
        await looking
        assert (one.part().offline, log.failure) == (None, None)


async def test_a_changed_limit_counts_at_the_next_look_without_a_restart() -> None:
    async with broker_world() as (world, one, _two):
        await led(world, TopicConfig(segment_bytes=TWO_A_SEGMENT), 10)
        keeper = retention(one)
        await keeper.check_all()
        assert start(one) == 0
        world.told(1, 3, config=TopicConfig(segment_bytes=10_000, retention_bytes=300))
        await keeper.check_all()
        assert start(one) == 6
        for _ in range(10):
            one.append(batch(b"r" * 20, timestamp=WALL_MS))
        assert bases(one)[-1] == 8, "segments are larger, too"


# -- followers -------------------------------------------------------------------------------------------------------


async def test_a_follower_that_is_below_the_start_begins_anew_there() -> None:
    async with broker_world() as (world, one, two):
        two.lay((1, 2), by=1)
        one.lay((1, 2), by=1)
        world.told(1, 3, isr=(1,), only=[1], config=ALONE)
        for _ in range(8):
            one.append()
        assert one.part().move_log_start(5)
        world.told(1, 3, isr=(1,), only=[2])
        await until(lambda: two.end == 10 and two.high_watermark == 10, "the records after the start")
        assert start(two) == 5 and two.everything() == one.everything()
        await until(lambda: one.proposals.proposals, "the request to admit it to the ISR")


async def test_a_start_that_moves_while_a_follower_catches_up_sends_it_there() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, isr=(1,), only=[1], config=ALONE)
        for _ in range(6):
            one.append()
        world.told(1, 3, isr=(1,), only=[2])
        await until(lambda: one.part().sinks, "the follower's position")
        assert one.part().move_log_start(6)
        one.append()
        await until(lambda: two.end == 7 and start(two) == 6)
        assert two.everything()[-10:] == one.everything()[-10:]


async def test_a_start_that_is_told_ahead_of_the_records_is_taken_over_as_far_as_they_go() -> None:
    async with broker_world(2) as (world, two):
        leader = FakeLeader(world)
        await leader.start()
        world.told(1, 3, only=[2])
        await until(leader.positions, "the follower's position")
        await leader.send(records=placed(batch(b"one", b"two"), 0, 3), high_watermark=2)
        (position,) = (await leader.send(offset=2, high_watermark=5, log_start_offset=5)).partitions
        assert (start(two), position.log_start_offset, two.high_watermark) == (2, 2, 2)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT])
async def test_an_old_segment_that_cannot_be_set_aside(error: int) -> None:
    async with broker_world() as (world, one, two):
        await led(world, TopicConfig(segment_bytes=TWO_A_SEGMENT), 0)
        for end in range(1, 9):
            one.append(batch(b"r" * 20))
            await until(lambda end=end: two.high_watermark == end)
        two.part().log.flush()
        one.part().move_log_start(4)
        await until(lambda: start(two) == 4)
        two.disk.fail("rename", error, path=f"{0:020d}.log")
        for _ in range(2):
            await two.manager.checkpoint()
        assert (two.part().offline is None) is (error == errno.ENOENT), "one that is gone needs no deletion"
        one.part().move_log_start(6)
        one.append()
        await one.clock.sleep(1.0)  # and no task has failed


async def test_a_log_that_fails_under_a_follower_ends_no_task() -> None:
    async with broker_world() as (world, one, two):
        await led(world, ALONE, 4)
        two.part().log.fence("its disk has failed")
        one.part().move_log_start(2)
        await until(lambda: two.part().offline is not None)


async def test_the_start_stays_after_a_change_of_leader() -> None:
    async with broker_world() as (world, one, two):
        await led(world, TopicConfig(), 8)
        one.part().move_log_start(5)
        await until(lambda: start(two) == 5)
        world.told(2, 4)
        two.append()
        await until(lambda: one.high_watermark == 9)
        assert (start(one), start(two)) == (5, 5)


async def test_a_new_leader_that_had_not_heard_of_the_start_serves_an_empty_follower_from_there() -> None:
    """What lies before was committed and deleted: to count it as held is no loss."""

    async with broker_world() as (world, one, two):
        two.lay((1, 8), by=1)
        world.told(2, 3, only=[2], isr=(2,))
        log = one.logs.create(EVENTS, two.host.topic_id)
        log.reset_to(5)
        world.told(2, 3, only=[1], isr=(2,))
        await until(lambda: one.end == 8)
        assert (start(one), start(two)) == (5, 0)


@requirement("An unclean election needs the consent of the topic")
async def test_a_follower_that_starts_beyond_an_unclean_leader_begins_with_it() -> None:
    async with broker_world() as (world, one, two):
        one.lay((1, 8))
        two.lay((1, 3), by=1)
        one.logs.logs[EVENTS].move_log_start(6)
        world.told(2, 4, isr=(2,))
        two.append()
        await until(lambda: one.end == 4)
        assert one.everything()[-10:] == two.everything()[-10:] and start(one) == 3


# -- DeleteRecords ---------------------------------------------------------------------------------------------------


async def delete(node: Node, *parts: tuple[str, int, int], timeout_ms: int = 1_000) -> list[m.DeleteRecordsResult]:
    request = m.DeleteRecordsRequest(
        partitions=tuple(m.DeleteRecordsPartition(topic=t, partition=p, offset=o) for t, p, o in parts),
        timeout_ms=timeout_ms,
    )
    return list((await DeleteRecordsHandler(node.manager, 1_000)(request)).partitions)


async def test_deletion_answers_when_every_live_replica_has_followed() -> None:
    async with broker_world() as (world, one, two):
        await led(world, TopicConfig(), 8)
        (result,) = await delete(one, ("events", 0, 5))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 5)
        assert (start(one), start(two)) == (5, 5)
        (result,) = await delete(one, ("events", 0, 2))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 5), "it was done before"
        (result,) = await delete(one, ("events", 0, -1))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 8)


@pytest.mark.parametrize("loss", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_an_answered_deletion_outlives_the_leader(loss: Crash) -> None:
    async with broker_world() as (world, one, _two):
        await led(world, TopicConfig(), 8)
        (result,) = await delete(one, ("events", 0, 5))
        assert result.error_code is ErrorCode.NONE
        one.disk.crash(loss, random.Random(1))
        again = BrokerBench(one.disk)
        again.told(leader_epoch=4, config=ALONE)
        assert (again.host.log.log_start_offset, again.host.log.log_end_offset) == (5, 8)


async def test_deletions_of_one_turn_share_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_world(1) as (world, one):
        topics = [f"t{number}" for number in range(20)]
        world.told(1, 3, topics=topics, config=ALONE)
        for topic in topics:
            one.append(topic=topic)
        written: list[str] = []
        begin = one.logs.begin_checkpoint
        monkeypatch.setattr(one.logs, "begin_checkpoint", lambda marks: (written.append("checkpoint"), begin(marks))[1])
        await asyncio.gather(*(delete(one, (topic, 0, 1)) for topic in topics))
        assert {one.logs.durable_start(one.part(topic).log) for topic in topics} == {1}
        assert len(written) <= 3
        await delete(one, *((topic, 0, 1) for topic in topics))
        assert len(written) <= 3, "it was done before"


async def test_a_deletion_whose_checkpoint_fails_says_so() -> None:
    async with broker_world(1) as (world, one):
        await led(world, ALONE, 8)
        one.disk.fail("append", errno.EIO, path="checkpoint.next")
        (result,) = await delete(one, ("events", 0, 5))
        assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        (result,) = await delete(one, ("events", 0, 5))
        assert result.error_code is ErrorCode.NONE


async def test_deletion_waits_for_who_lives_and_for_nobody_else() -> None:
    async with broker_world() as (world, one, _two):
        await led(world, TopicConfig(), 8)
        world.network.isolate("broker-2")
        asked = asyncio.ensure_future(delete(one, ("events", 0, 5), timeout_ms=2_000))
        await asyncio.sleep(0.5)
        assert not asked.done() and start(one) == 5
        one.manager.live_changed({1: 101})
        (result,) = await asked
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 5)
        one.manager.live_changed({1: 101, 2: 201})
        (result,) = await delete(one, ("events", 0, 6), timeout_ms=500)
        assert result.error_code is ErrorCode.REQUEST_TIMED_OUT and start(one) == 6
        assert "not every live replica has followed" in result.error_message


async def test_bad_deletions_delete_nothing() -> None:
    async with broker_world() as (world, one, two):
        await led(world, TopicConfig(), 8)
        for parts, expected in (
            ([("events", 0, 9)], [(ErrorCode.OFFSET_OUT_OF_RANGE, "offset: 9")]),
            ([("events", 0, -2)], [(ErrorCode.OFFSET_OUT_OF_RANGE, "offset: -2")]),
            ([("nothing", 0, 1)], [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing-0")]),
            ([("a/b", 0, 1)], [(ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b")]),
            (
                [("events", 0, 3), ("events", 7, 1)],
                [
                    (ErrorCode.OPERATION_NOT_ATTEMPTED, "nothing was deleted"),
                    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "7"),
                ],
            ),
            ([("events", 0, 3), ("events", 0, 4)], [(ErrorCode.INVALID_REQUEST, "twice")] * 2),
        ):
            results = await delete(one, *parts)
            assert [r.error_code for r in results] == [code for code, _ in expected], parts
            assert all(words in r.error_message for r, (_, words) in zip(results, expected, strict=True)), results
        (result,) = await delete(one, ("events", 0, 3), timeout_ms=-1)
        assert result.error_code is ErrorCode.INVALID_REQUEST and "timeout_ms" in result.error_message
        (result,) = await delete(two, ("events", 0, 3))
        assert result.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (start(one), start(two)) == (0, 0)


async def test_who_loses_the_lead_says_so_to_who_waits() -> None:
    async with broker_world() as (world, one, _two):
        await led(world, TopicConfig(), 8)
        world.network.isolate("broker-2")
        asked = asyncio.ensure_future(delete(one, ("events", 0, 5)))
        await asyncio.sleep(0.1)
        world.told(2, 4, only=[1])
        (result,) = await asked
        assert result.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- settings that change while produces wait ------------------------------------------------------------------------


async def test_a_raised_min_isr_ends_what_waits_and_refuses_what_comes() -> None:
    async with broker_world(1, 2, 3) as (world, one, _two, _three):
        world.told(1, 3, isr=(1, 2), only=[1], config=TopicConfig(min_insync_replicas=2))
        asked = asyncio.ensure_future(one.send(batch(b"waits for broker 2")))
        await asyncio.sleep(0.1)
        world.told(1, 3, isr=(1, 2), only=[1], config=TopicConfig(min_insync_replicas=3))
        assert (await asked).error_code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await one.send(batch(b"late"))).error_code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_flush_none_lets_go_what_waited_for_a_sync() -> None:
    async with broker_world(1) as (world, one):
        world.told(1, 3, config=TopicConfig(flush="sync", min_insync_replicas=1))
        one.append()
        assert one.high_watermark == 0
        world.told(1, 3, config=TopicConfig(min_insync_replicas=1))
        assert one.high_watermark == 1
