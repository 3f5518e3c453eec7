"""Fetch at its door: only what is committed, whole batches, long polls, every refusal with its code."""

import asyncio
from typing import Any

import pytest

from helpers.batches import batch, offsets, patched
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.replica import events as ev
from tidelog.storage.log_context import LogConfig
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

ONE = batch(b"a", b"b")


def follower_at(offset: int) -> ev.FollowerPosition:
    return ev.FollowerPosition(2, member(2).broker_epoch, 3, offset, 3, 3, 1 << 40, 1.0)


async def led(*sizes: int) -> BrokerBench:
    bench = BrokerBench()
    bench.told()
    for size in sizes:
        assert (await bench.send(batch(*[b"v"] * size))).error_code is ErrorCode.NONE
    return bench


@requirement("A leader and a follower killed together lose no committed record")
@requirement("Consumers read from the leader up to the high watermark")
async def test_only_what_is_committed_is_shown() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(ONE, acks=1)
    assert (await bench.get(0)).records == b""
    assert (await bench.get(0)).high_watermark == 0
    bench.host.step(follower_at(2))
    assert offsets((await bench.get(0)).records) == [0]


async def test_f03_11_between_high_watermark_and_end_is_empty_and_beyond_is_out_of_range() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(ONE, acks=1)
    assert (await bench.get(1)).error_code is ErrorCode.NONE
    assert (await bench.get(2)).error_code is ErrorCode.NONE
    beyond = await bench.get(3)
    assert beyond.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "offset 3 is outside 0..2" in beyond.error_message


async def test_a_long_poll_ends_with_the_first_commit() -> None:
    bench = await led()
    reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000))
    await asyncio.sleep(0.01)
    assert not reading.done()
    assert bench.fetch.waiting == 1
    await bench.send(ONE)
    assert offsets((await reading).records) == [0]
    assert bench.fetch.waiting == 0
    assert not bench.host.readers


async def test_a_long_poll_ends_empty_when_its_time_is_up() -> None:
    bench = await led()
    result = await bench.get(0, max_wait_ms=20)
    assert (result.error_code, result.records) == (ErrorCode.NONE, b"")


async def test_a_long_poll_on_a_deposed_leader_is_told_at_once() -> None:
    bench = await led()
    reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000))
    await asyncio.sleep(0.01)
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    result = await reading
    assert result.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.leader_id, result.leader_epoch) == (2, 4)


@requirement("Consumers read from the leader up to the high watermark")
async def test_a_follower_refuses_the_read_and_names_the_leader() -> None:
    bench = await led(2)
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    refused = await bench.get(0)
    assert (refused.error_code, refused.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert (refused.leader_id, refused.leader_epoch) == (2, 4)


async def test_min_bytes_waits_for_more() -> None:
    bench = await led(1)
    size = len((await bench.get(0)).records)
    reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000, min_bytes=size + 1))
    await asyncio.sleep(0.01)
    assert not reading.done()
    await bench.send(ONE)
    assert offsets((await reading).records) == [0, 1]


async def test_whole_batches_from_the_one_that_holds_the_offset() -> None:
    bench = await led(3, 3, 3)
    assert offsets((await bench.get(4)).records) == [3, 6]
    # The first batch comes although it is larger than asked for.
    assert offsets((await bench.get(4, partition_max_bytes=1)).records) == [3]
    huge = 2**31 - 1
    assert offsets((await bench.get(0, max_bytes=huge, partition_max_bytes=huge, min_bytes=huge)).records) == [0, 3, 6]


async def test_kip_320_a_reader_whose_epoch_ended_earlier_is_told_where() -> None:
    bench = await led(2)
    bench.told(leader_epoch=5, partition_epoch=8)
    await bench.send(ONE)
    result = await bench.get(4, last_fetched_epoch=3)
    assert (result.diverging_epoch, result.diverging_end_offset, result.records) == (3, 2, b"")
    assert (await bench.get(2, last_fetched_epoch=3)).records


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE, "offset -1"),
        ({"offset": -(2**63)}, ErrorCode.OFFSET_OUT_OF_RANGE, "outside"),
        ({"offset": 2**63 - 1}, ErrorCode.OFFSET_OUT_OF_RANGE, "outside"),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST, "max_wait_ms is -1"),
        ({"max_wait_ms": 300_001}, ErrorCode.INVALID_REQUEST, "300000"),
        ({"max_wait_ms": 2**31 - 1}, ErrorCode.INVALID_REQUEST, "max_wait_ms is 2147483647"),
        ({"min_bytes": -1}, ErrorCode.INVALID_REQUEST, "min_bytes"),
        ({"max_bytes": 0}, ErrorCode.INVALID_REQUEST, "max_bytes is 0"),
        ({"max_bytes": -1}, ErrorCode.INVALID_REQUEST, "max_bytes is -1"),
        ({"partition_max_bytes": 0}, ErrorCode.INVALID_REQUEST, "max_bytes is 0"),
        ({"partition_max_bytes": -5}, ErrorCode.INVALID_REQUEST, "max_bytes is -5"),
        ({"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH, "leader_epoch 2"),
        ({"leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH, "leader_epoch 9"),
        ({"leader_epoch": -2}, ErrorCode.FENCED_LEADER_EPOCH, "leader_epoch -2"),
        ({"leader_epoch": 2**31 - 1}, ErrorCode.UNKNOWN_LEADER_EPOCH, "leader_epoch 2147483647"),
        ({"last_fetched_epoch": -2}, ErrorCode.INVALID_REQUEST, "last_fetched_epoch is -2"),
        ({"topic_id": b"\xff" * 16}, ErrorCode.UNKNOWN_TOPIC_ID, "topic_id"),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "events--1"),
        ({"partition": 2**31 - 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "events-2147483647"),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere-0"),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "events-1"),
    ],
)
async def test_bad_fields_are_named_and_the_next_request_works(
    fields: dict[str, int], code: ErrorCode, named: str
) -> None:
    bench = await led(1)
    began = asyncio.get_running_loop().time()
    result = await bench.get(**({"offset": 0, "max_wait_ms": 30_000, "min_bytes": 1 << 20} | fields))  # type: ignore[arg-type]
    assert asyncio.get_running_loop().time() - began < 1.0, "it is not kept waiting"
    assert (result.error_code, result.records) == (code, b"")
    assert named in result.error_message
    assert (await bench.get(0)).records


async def ask(bench: BrokerBench, timestamp: int, **fields: Any) -> m.ListOffsetsResult:
    part = m.ListOffsetsPartition(
        **{"topic": "events", "partition": 0, "leader_epoch": -1, "timestamp": timestamp, **fields}
    )
    return (await bench.fetch.list_offsets(m.ListOffsetsRequest(partitions=(part,)))).results[0]


async def found(bench: BrokerBench, timestamp: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch)"""
    result = await ask(bench, timestamp)
    assert result.error_code is ErrorCode.NONE, result
    return result.offset, result.timestamp, result.leader_epoch


async def test_list_offsets_earliest_latest_largest_and_by_time() -> None:
    bench = BrokerBench()
    bench.told()
    assert await found(bench, -3) == (-1, -1, -1)
    await bench.send(batch(b"a", b"b", timestamp=500, step_ms=100))
    await bench.send(batch(b"c", timestamp=900))
    bench.told(leader_epoch=5, partition_epoch=8)
    await bench.send(batch(b"d", timestamp=700))
    assert await found(bench, -2) == (0, -1, 3)
    assert await found(bench, -1) == (4, -1, 5)
    assert await found(bench, -3) == (2, 900, 3)
    assert await found(bench, 0) == (0, 600, 3)
    assert await found(bench, 600) == (0, 600, 3)
    assert await found(bench, 601) == (2, 900, 3)
    assert await found(bench, 901) == (-1, -1, -1)
    assert await found(bench, 2**63 - 1) == (-1, -1, -1)
    for timestamp in (-4, -(2**63)):
        refused = await ask(bench, timestamp)
        assert refused.error_code is ErrorCode.INVALID_REQUEST
        assert f"timestamp is {timestamp}" in refused.error_message and "-3 (largest)" in refused.error_message
    assert (await ask(bench, -1, leader_epoch=-2)).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(bench, -1, topic_id=bytes(16))).error_code is ErrorCode.UNKNOWN_TOPIC_ID
    assert (await ask(bench, -1, leader_epoch=3)).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(bench, -1, leader_epoch=6)).error_code is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_look_up_by_time_goes_on_behind_a_batch() -> None:
    bench = BrokerBench(config=LogConfig(segment_bytes=100))
    bench.told()
    for timestamp in (900, 300, 700, 700, 500):
        await bench.send(batch(b"a", b"b", timestamp=timestamp))

    async def behind(timestamp: int, offset: int) -> tuple[int, int]:
        result = await ask(bench, timestamp, search_start=m.SearchStart(offset=offset))
        return result.offset, result.timestamp

    assert await behind(-3, 0) == (0, 900)
    assert await behind(-3, 1) == (1, 900), "the batch that holds the offset counts"
    assert await behind(-3, 2) == (4, 700)
    assert await behind(-3, 5) == (5, 700)
    assert await behind(-3, 8) == (8, 500)
    assert await behind(-3, 10) == await behind(0, 10) == (-1, -1)
    assert await behind(600, 2) == (4, 700)
    assert await behind(600, 8) == (-1, -1)
    assert await behind(0, -5) == (0, 900)


async def test_a_poisoned_timestamp_is_one_more_answer_and_breaks_nothing() -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(message_timestamp_after_max_ms=2**63 - 1))
    await bench.send(batch(b"a", timestamp=500))
    await bench.send(patched(batch(b"b", timestamp=600), 35, ">q", 2**63 - 1))
    await bench.send(batch(b"c", timestamp=700))
    refused = await bench.send(patched(batch(b"b"), 27, ">qq", -7, -7))
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert await found(bench, 450) == (0, 500, 3)
    assert await found(bench, 550) == (1, 2**63 - 1, 3)
    assert await found(bench, -3) == (1, 2**63 - 1, 3)
    assert await found(bench, -1) == (3, -1, 3)


async def test_what_is_not_committed_is_not_listed() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(batch(b"a", timestamp=500), acks=1)
    await bench.send(batch(b"b", timestamp=900), acks=1)
    bench.host.step(follower_at(1))
    assert await found(bench, -1) == (1, -1, 3)
    assert await found(bench, -3) == (0, 500, 3)
    assert await found(bench, 501) == (-1, -1, -1)
    bench.host.step(follower_at(2))
    assert await found(bench, 501) == (1, 900, 3)


async def test_what_a_replica_holds_itself_is_told_by_leader_and_follower_and_by_none_that_failed() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(ONE, acks=1)
    mine = await ask(bench, -1, own=True)
    assert (mine.offset, mine.leader_epoch, await found(bench, -1)) == (2, 3, (0, -1, 3))
    assert mine.own_log is not None and mine.own_log.isr_size == 2
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    assert (await ask(bench, -1)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for timestamp, offset in ((-1, 2), (-2, 0)):
        mine = await ask(bench, timestamp, own=True, leader_epoch=3)  # whatever epoch the asker knows
        assert (mine.error_code, mine.offset, mine.leader_epoch) == (ErrorCode.NONE, offset, 4)
    assert mine.own_log is None, "of the earliest nothing more is told"
    mine = await ask(bench, -1, own=True)
    assert (
        mine.own_log
        == m.OwnLog(log_start=0, high_watermark=0, epochs=(m.OwnEpoch(leader_epoch=3, start=0),), isr_size=0)
        and (await ask(bench, -1, own=False)).own_log is None
    )
    for timestamp in (-4, -3, 0):
        assert (await ask(bench, timestamp, own=True)).error_code is ErrorCode.INVALID_REQUEST
    assert (await ask(bench, -1, own=True, topic_id=bytes(16))).error_code is ErrorCode.UNKNOWN_TOPIC_ID
    bench.host.take_offline(TidelogError("no disk", ErrorCode.KAFKA_STORAGE_ERROR))
    assert (await ask(bench, -1, own=True)).error_code is ErrorCode.KAFKA_STORAGE_ERROR


@requirement("A new leader reports no end offset below its epoch start")
async def test_kip_207_offsets_are_not_available_until_the_high_watermark_reaches_the_epochs_start() -> None:
    """The leader before may have shown offsets that this one holds and cannot yet call committed."""

    bench = BrokerBench()
    bench.told(leader_epoch=3, isr=(1, 2), replicas=(1, 2))
    await bench.send(batch(b"a", timestamp=500), acks=1)
    bench.host.step(follower_at(1))
    await bench.send(batch(b"b", timestamp=900), acks=1)
    bench.told(leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    assert (bench.host.replica.high_watermark, bench.host.log.log_end_offset) == (1, 2)
    for timestamp in (-1, 501):
        refused = await ask(bench, timestamp)
        assert refused.error_code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert "high watermark 1" in refused.error_message and "start 2" in refused.error_message
    # What is committed for sure is answered.
    assert await found(bench, -2) == (0, -1, 3)
    assert await found(bench, 500) == (0, 500, 3)
    assert await found(bench, -3) == (0, 500, 3)
    bench.host.step(ev.FollowerPosition(2, member(2).broker_epoch, 4, 2, 3, 3, 2, 1.0))
    assert await found(bench, -1) == (2, -1, 4)
    assert await found(bench, 501) == (1, 900, 3)


OTHER_ID = b"\x07" * 16


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("again", [True, False])
async def test_a_long_poll_does_not_see_the_next_topic_of_the_name(named: bool, again: bool) -> None:
    """Deleted and created again in one wait, with more records than the reader has read: none of them are shown."""

    bench = await led(2)
    topic_id = TOPIC_ID if named else b""
    reading = asyncio.ensure_future(bench.get(2, max_wait_ms=10_000, topic_id=topic_id))
    await asyncio.sleep(0.01)
    assert bench.fetch.waiting == 1
    assert bench.manager.stop(TopicPartition("events", 0), TOPIC_ID, -2, delete=True) is ErrorCode.NONE
    if again:
        assert bench.told(leader_epoch=0, partition_epoch=0, topic_id=OTHER_ID) is ErrorCode.NONE
        assert (await bench.send(batch(*[b"new"] * 5))).error_code is ErrorCode.NONE
    result = await reading
    assert result.records == b""
    assert result.error_code is (ErrorCode.UNKNOWN_TOPIC_ID if again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@requirement("A topic id separates topics that share a name")
async def test_whoever_still_holds_the_old_id_is_told_so() -> None:
    bench = await led(2)
    bench.told(leader_epoch=0, partition_epoch=0, topic_id=OTHER_ID)
    await bench.send(ONE)
    got = await bench.get(0, topic_id=TOPIC_ID)
    sent = await bench.send(ONE, topic_id=TOPIC_ID)
    assert (got.error_code, got.records, sent.error_code) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        b"",
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    assert bench.host.log.log_end_offset == 2


async def test_kip_320_a_history_that_this_log_never_had_is_out_of_range() -> None:
    bench = await led(2)
    for epoch in (4, 2**31 - 1):
        refused = await bench.get(1, last_fetched_epoch=epoch)
        assert (refused.error_code, refused.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
        assert f"last_fetched_epoch {epoch} is not in the history" in refused.error_message


async def epoch_end(bench: BrokerBench, epoch: int, current: int = -1) -> m.EpochEndOffset:
    part = m.EpochPartition(topic="events", partition=0, current_leader_epoch=current, leader_epoch=epoch)
    return (await bench.fetch.offset_for_leader_epoch(m.OffsetForLeaderEpochRequest(partitions=(part,)))).results[0]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-(2**31), (-1, -1)),
        (-1, (-1, -1)),
        # Older than all: where the oldest known one begins (KAFKA-7415), under the asked number (F15.2).
        (0, (0, 0)),
        (2, (2, 0)),
        (3, (3, 2)),
        # Never known here: the largest below it.
        (4, (3, 2)),
        (6, (6, 5)),
        (7, (6, 5)),
        # Nothing written in it, and yet it is known from its first moment on (HOLE-06).
        (9, (9, 5)),
        # Newer than all: undefined.
        (10, (-1, -1)),
        (2**31 - 1, (-1, -1)),
    ],
)
async def test_f15_2_offset_for_leader_epoch(epoch: int, answer: tuple[int, int]) -> None:
    bench = await led(2)
    bench.told(leader_epoch=6, partition_epoch=8)
    await bench.send(batch(b"x", b"y", b"z"))
    bench.told(leader_epoch=9, partition_epoch=9)
    result = await epoch_end(bench, epoch)
    assert (result.error_code, (result.leader_epoch, result.end_offset)) == (ErrorCode.NONE, answer)


@requirement("Every replica fetch carries the current leader epoch")
async def test_offset_for_leader_epoch_is_fenced() -> None:
    bench = await led(2)
    for current, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        refused = await epoch_end(bench, 3, current)
        assert (refused.error_code, refused.leader_epoch, refused.end_offset) == (code, -1, -1)
        assert f"leader_epoch {current}" in refused.error_message
    foreign = m.EpochPartition(
        topic="events", partition=0, current_leader_epoch=-1, leader_epoch=0, topic_id=b"\xff" * 16
    )
    answer = await bench.fetch.offset_for_leader_epoch(m.OffsetForLeaderEpochRequest(partitions=(foreign,)))
    assert answer.results[0].error_code is ErrorCode.UNKNOWN_TOPIC_ID
    assert (await epoch_end(bench, 3, 3)).end_offset == 2
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    assert (await epoch_end(bench, 3)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
