"""Timestamps of producers: how far they may be from the leader's clock, and what they do not rule."""

import asyncio
import logging

import pytest

from helpers.batches import batch, headers
from helpers.broker import BrokerBench
from helpers.compacted import compact, keyed, read_all
from helpers.logs import contents
from helpers.replication import Node, World, broker_world, until
from tidelog.broker.retention import Retention
from tidelog.client.records import decode_batch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.pipeline.decode import PlacedBatch, decode_batches
from tidelog.testing.clock import ManualClock
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import HEADER_BYTES, Codec, numbered

WALL_MS = 1_600_000_000_000
"""Start of the simulated calendar."""
HOUR_MS = 3_600_000
LARGEST = 2**63 - 1
TP = TopicPartition("events", 0)
ALONE = TopicConfig(min_insync_replicas=1)
ANY_TIME = TopicConfig(min_insync_replicas=1, message_timestamp_after_max_ms=LARGEST)
APPENDED = TopicConfig(min_insync_replicas=1, message_timestamp_type="LogAppendTime")


def led(config: TopicConfig) -> BrokerBench:
    bench = BrokerBench(clock=ManualClock(0.0))
    bench.told(config=config)
    return bench


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [
        (
            WALL_MS + HOUR_MS + 1,
            "is more than message.timestamp.after.max.ms=3600000 after the leader's clock 1600000000000",
        ),
        (LARGEST, "max_timestamp: 9223372036854775807 is more than message.timestamp.after.max.ms=3600000"),
        (WALL_MS - 1001, "is more than message.timestamp.before.max.ms=1000 before the leader's clock 1600000000000"),
        (0, "max_timestamp: 0 is more than message.timestamp.before.max.ms=1000"),
    ],
)
async def test_a_batch_too_far_from_the_clock_is_refused(timestamp: int, words: str) -> None:
    bench = led(TopicConfig(min_insync_replicas=1, message_timestamp_before_max_ms=1000))
    result = await bench.send(batch(b"late", timestamp=timestamp))
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert words in result.error_message
    assert bench.host.log.log_end_offset == 0


@pytest.mark.parametrize("timestamp", [-1, WALL_MS - 1000, WALL_MS, WALL_MS + HOUR_MS])
async def test_the_limits_themselves_are_allowed(timestamp: int) -> None:
    bench = led(TopicConfig(min_insync_replicas=1, message_timestamp_before_max_ms=1000))
    assert (await bench.send(batch(b"in time", timestamp=timestamp))).error_code is ErrorCode.NONE


async def test_a_repetition_is_not_refused_by_a_limit_of_today() -> None:
    bench = led(ANY_TIME)
    sent = numbered(batch(b"late", timestamp=LARGEST), 7, 0, 0)
    assert (await bench.send(sent)).error_code is ErrorCode.NONE
    bench.told(config=ALONE, partition_epoch=8)
    assert (await bench.send(sent)).error_code is ErrorCode.NONE
    assert bench.host.log.log_end_offset == 1


@pytest.mark.parametrize("compression_type", ["producer", "zstd"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_the_leader_stamps_a_batch_with_its_time(codec: Codec, compression_type: str) -> None:
    bench = led(
        TopicConfig(min_insync_replicas=1, message_timestamp_type="LogAppendTime", compression_type=compression_type)
    )
    sent = batch(b"one" * 100, b"two", codec=codec, timestamp=LARGEST - 1, step_ms=1)
    assert (await bench.send(sent)).error_code is ErrorCode.NONE
    stored = contents(bench.host.log)
    (header,) = headers(stored)
    assert header.is_append_time and header.max_timestamp == WALL_MS
    assert header.base_timestamp == headers(sent)[0].base_timestamp
    if compression_type == "producer":
        assert stored[HEADER_BYTES:] == sent[HEADER_BYTES:], "no record is touched"
    records = list(decode_batch(TP, stored, header))
    assert [(r.value, r.timestamp_ms, r.timestamp_type) for r in records] == [
        (b"one" * 100, WALL_MS, 1),
        (b"two", WALL_MS, 1),
    ]
    (columns,) = decode_batches(TP, stored, [PlacedBatch(header, 0)], with_headers=False)
    assert columns.timestamps_ms.tolist() == [WALL_MS] * 2 and columns.timestamp_types.tolist() == [1, 1]
    found = bench.host.find_time(WALL_MS)
    assert found is not None and (found.offset, found.timestamp) == (0, WALL_MS)
    assert bench.host.find_time(WALL_MS + 1) is None


async def test_a_stamped_batch_is_told_from_another_one() -> None:
    world: World
    first: Node
    second: Node
    async with broker_world() as (world, first, second):
        world.told(1, 3, config=APPENDED)
        own, foreign = (numbered(batch(value), 7, 0, 0) for value in (b"own", b"foreign"))
        assert (await first.send(foreign, acks=1)).base_offset == 0
        assert (await first.send(own, acks=1)).error_code is ErrorCode.INVALID_RECORD
        await until(lambda: second.high_watermark == 1)
        world.told(2, 4, isr=(2,), only=(2,), config=APPENDED)
        assert (await second.send(own)).error_code is ErrorCode.INVALID_RECORD
        again = await second.send(foreign)
        assert (again.error_code, again.base_offset, second.end) == (ErrorCode.NONE, 0, 1)


async def test_compaction_keeps_the_time_of_the_append() -> None:
    bench = led(TopicConfig(min_insync_replicas=1, message_timestamp_type="LogAppendTime", segment_bytes=100))
    for number in range(4):
        sent = keyed((b"a", b"%d" % number), (b"b%d" % number, None if number == 2 else b"v"), timestamp=5)
        assert (await bench.send(sent)).error_code is ErrorCode.NONE
    bench.host.log.flush()
    compact(bench.host.log, bench.disk, now_ms=WALL_MS + 1)
    kept = read_all(bench.host.log)
    assert [each.offset for each in kept] == [1, 3, 4, 5, 6, 7]
    assert {each.timestamp_ms for each in kept} == {WALL_MS}
    assert {header.max_timestamp for header in headers(contents(bench.host.log)) if header.record_count} == {WALL_MS}


async def test_a_time_ahead_of_the_clock_keeps_no_segment(caplog: pytest.LogCaptureFixture) -> None:
    one: Node
    async with broker_world(1) as (world, one):
        config = TopicConfig(
            min_insync_replicas=1, segment_bytes=200, retention_ms=60_000, message_timestamp_after_max_ms=LARGEST
        )
        world.told(1, 3, config=config)
        for number in range(8):
            one.append(batch(b"r" * 20, timestamp=WALL_MS * 1000 if number == 3 else WALL_MS))
        counts: list[int] = []
        keeper = Retention(one.clock, one.disk, one.manager, 1.0, counts.append)

        def start() -> int:
            return one.part().log.log_start_offset

        await asyncio.sleep(50)
        with caplog.at_level(logging.WARNING):
            await keeper.check_all()
            await keeper.check_all()
        assert (start(), counts) == (0, [1, 1]), "its segment was written less than a minute ago"
        (warning,) = [each for each in caplog.messages if "ahead of the clock" in each]
        assert "events-0: a record of the segment at 2 has timestamp 1600000000000000" in warning
        await asyncio.sleep(20)
        await keeper.check_all()
        assert start() == 8
