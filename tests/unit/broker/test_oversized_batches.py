"""A batch that a follower or a reader cannot take holds up its own partition alone (KAFKA-2338)."""

import asyncio
import logging
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from helpers.batches import batch, sized_batch
from helpers.broker import TOPIC_ID, BrokerBench
from helpers.replication import FLUSH_S, Node, World, broker_world, until
from tidelog.broker import leader_fetcher
from tidelog.errors import ErrorCode
from tidelog.ports.net import KnownCaller
from tidelog.sizes import PART_BYTES, SLACK_BYTES
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.codec import encode

TAKES_BYTES = 400_000


async def flushes() -> None:
    """Some flushes of high watermarks, which is when a leader looks again."""
    await asyncio.sleep(5 * FLUSH_S)


async def with_an_oversized_batch(world: World, one: Node, two: Node) -> None:
    """Broker 2 takes 400,000 bytes. `large` holds a larger batch behind its first record, `small` is to live on."""
    one.manager.carriage.set_live({1: 0, 2: TAKES_BYTES})
    world.told(1, 3, topics=("large", "small"))
    await until(lambda: one.taps)
    one.append(topic="large")
    await until(lambda: two.part("large").log.log_end_offset == 1)
    one.append(sized_batch(600_000), "large")
    one.append(topic="small")
    await until(lambda: two.part("small").log.log_end_offset == 1)


async def test_only_its_partition_waits_behind_an_oversized_batch(caplog: pytest.LogCaptureFixture) -> None:
    async with broker_world() as (world, one, two):
        await with_an_oversized_batch(world, one, two)
        for end in range(2, 12):
            one.append(topic="large")
            one.append(topic="small")
            await until(lambda end=end: two.part("small").log.log_end_offset == end)
        await flushes()
        assert two.part("large").log.log_end_offset == 1
        assert one.sessions.held_back == 1
        assert max(len(encode(chunk)) for chunk in one.chunks) <= TAKES_BYTES + SLACK_BYTES
        warned = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert warned == [
            "large-0 is not replicated to broker 2: the batch at offset 1 takes 600000 bytes, fetch_max_bytes allows 400000"
        ], "once, whatever is appended behind it"


async def test_a_partition_goes_on_when_the_large_batch_is_deleted() -> None:
    async with broker_world() as (world, one, two):
        await with_an_oversized_batch(world, one, two)
        one.append(topic="large")
        world.told(1, 4, isr=(1,), topics=("large",), config=TopicConfig(min_insync_replicas=1))
        await until(lambda: one.part("large").replica.high_watermark == 3)
        await flushes()
        assert two.part("large").log.log_end_offset == 1
        one.part("large").move_log_start(1)
        await until(lambda: two.part("large").log.log_start_offset == 1)
        await flushes()
        assert two.part("large").log.log_end_offset == 1
        one.part("large").move_log_start(2)
        await until(lambda: two.part("large").log.log_end_offset == 3)
        assert two.part("large").log.log_start_offset == 2
        assert one.sessions.held_back == 0


async def test_a_partition_goes_on_when_its_follower_takes_more() -> None:
    async with broker_world() as (world, one, two):
        await with_an_oversized_batch(world, one, two)
        one.manager.carriage.set_live({1: 0, 2: 600_000})
        await until(lambda: two.part("large").log.log_end_offset == 2)
        assert one.sessions.held_back == 0


async def test_news_and_copies_share_a_message_only_if_both_fit() -> None:
    async with broker_world() as (world, one, two):
        one.manager.carriage.set_live({1: 0, 2: TAKES_BYTES})
        world.told(1, 3, topics=("news",))
        world.told(1, 3, isr=(1,), topics=("copy",), adding=(2,))
        await until(lambda: one.taps)
        for _ in range(3):
            one.append(sized_batch(TAKES_BYTES), "news")
            one.append(sized_batch(TAKES_BYTES), "copy")
        await until(lambda: two.part("news").log.log_end_offset == two.part("copy").log.log_end_offset == 3)
        assert max(len(encode(chunk)) for chunk in one.chunks) <= TAKES_BYTES + SLACK_BYTES


async def test_a_follower_of_many_partitions_states_them_in_parts() -> None:
    """A larger request than a leader's request_max_bytes would be refused with the stream, again and again."""
    position = m.ReplicaPosition(
        topic="t" * 249,
        topic_id=TOPIC_ID,
        partition=2**31 - 1,
        leader_epoch=2**31 - 1,
        offset=2**63 - 1,
        last_fetched_epoch=2**31 - 1,
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        log_start_offset=2**63 - 1,
    )
    stream = AsyncMock()
    async with broker_world(2) as (_, two):
        positions = [replace(position, partition=number) for number in range(10_000)]
        await leader_fetcher.LeaderLink(1, two.links)._write(stream, positions, acked_chunk=7)
    written = [call.args[0] for call in stream.write.await_args_list]
    assert [each for request in written for each in request.partitions] == positions
    assert len(written) > 1 and max(len(encode(request)) for request in written) <= PART_BYTES
    assert [request.acked_chunk for request in written] == [0] * (len(written) - 1) + [7], "when all has been said"


async def test_a_reader_gets_an_error_for_a_batch_too_large_to_send() -> None:
    bench = BrokerBench()
    for topic in ("events", "other"):
        bench.told(topic=topic)
    assert (await bench.send(batch(b"small"))).base_offset == 0
    assert (await bench.send(sized_batch(700_000))).base_offset == 1
    assert (await bench.send(batch(b"small"), topic="other")).base_offset == 0
    bench.fetch._max_bytes = 600_000  # lowered, and the broker started again
    parts = tuple(
        m.FetchPartition(
            topic=topic, partition=0, leader_epoch=-1, offset=offset, last_fetched_epoch=-1, max_bytes=1 << 20
        )
        for topic, offset in (("events", 1), ("other", 0))
    )
    request = m.FetchRequest(client_id="t", max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, partitions=parts)
    refused, served = (await bench.fetch.fetch(request, KnownCaller("test"))).results
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused.error_message == (
        "the batch at offset 1 of events-0 takes 700000 bytes, fetch_max_bytes of this broker is 600000"
    )
    assert served.records
    bench.fetch._max_bytes = 700_000
    assert len((await bench.get(1, max_bytes=1000)).records) == 700_000, "the first batch comes whatever its size"


async def test_an_answer_has_room_for_the_numbers_of_its_partitions() -> None:
    bench = BrokerBench()
    topics = ["t" * 240 + str(number) for number in range(400)]
    for topic in topics:
        bench.told(topic=topic)
        await bench.send(sized_batch(5_000), topic=topic)
    parts = tuple(
        m.FetchPartition(topic=topic, partition=0, leader_epoch=-1, offset=0, last_fetched_epoch=-1, max_bytes=5_000)
        for topic in topics
    )
    bench.fetch._max_bytes = 1_000_000
    request = m.FetchRequest(client_id="t", max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, partitions=parts)
    answer = await bench.fetch.fetch(request, KnownCaller("test"))
    assert len(encode(answer)) <= 1_000_000 + SLACK_BYTES
    assert sum(bool(result.records) for result in answer.results) > 100
