"""Fetch at its door: only what is committed, whole batches, long polls, every refusal with its code."""

import asyncio

import pytest

from helpers.aio import run
from helpers.batches import batch, offsets
from helpers.broker import BrokerBench, member
from tidelog.errors import ErrorCode
from tidelog.replica import events as ev
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


def test_hl6_08_only_what_is_committed_is_shown() -> None:
    async def story() -> None:
        bench = BrokerBench()
        bench.told(isr=(1, 2), replicas=(1, 2))
        await bench.send(ONE, acks=1)
        assert (await bench.get(0)).records == b""
        assert (await bench.get(0)).high_watermark == 0
        bench.host.step(follower_at(2))
        assert offsets((await bench.get(0)).records) == [0]

    run(story())


def test_f03_11_between_high_watermark_and_end_is_empty_and_beyond_is_out_of_range() -> None:
    async def story() -> None:
        bench = BrokerBench()
        bench.told(isr=(1, 2), replicas=(1, 2))
        await bench.send(ONE, acks=1)
        assert (await bench.get(1)).error_code is ErrorCode.NONE
        assert (await bench.get(2)).error_code is ErrorCode.NONE
        beyond = await bench.get(3)
        assert beyond.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "offset 3 is outside 0..2" in beyond.error_message

    run(story())


def test_a_long_poll_ends_with_the_first_commit() -> None:
    async def story() -> None:
        bench = await led()
        reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000))
        await asyncio.sleep(0.01)
        assert not reading.done()
        assert bench.fetch.waiting == 1
        await bench.send(ONE)
        assert offsets((await reading).records) == [0]
        assert bench.fetch.waiting == 0
        assert not bench.host.readers

    run(story())


def test_a_long_poll_ends_empty_when_its_time_is_up() -> None:
    async def story() -> None:
        bench = await led()
        result = await bench.get(0, max_wait_ms=20)
        assert (result.error_code, result.records) == (ErrorCode.NONE, b"")

    run(story())


def test_a_long_poll_on_a_deposed_leader_is_told_at_once() -> None:
    async def story() -> None:
        bench = await led()
        reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000))
        await asyncio.sleep(0.01)
        bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
        result = await reading
        assert result.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.leader_id, result.leader_epoch) == (2, 4)

    run(story())


def test_min_bytes_waits_for_more() -> None:
    async def story() -> None:
        bench = await led(1)
        size = len((await bench.get(0)).records)
        reading = asyncio.ensure_future(bench.get(0, max_wait_ms=10_000, min_bytes=size + 1))
        await asyncio.sleep(0.01)
        assert not reading.done()
        await bench.send(ONE)
        assert offsets((await reading).records) == [0, 1]

    run(story())


def test_whole_batches_from_the_one_that_holds_the_offset() -> None:
    async def story() -> None:
        bench = await led(3, 3, 3)
        assert offsets((await bench.get(4)).records) == [3, 6]
        # The first batch comes although it is larger than asked for.
        assert offsets((await bench.get(4, partition_max_bytes=1)).records) == [3]

    run(story())


def test_kip_320_a_reader_whose_epoch_ended_earlier_is_told_where() -> None:
    async def story() -> None:
        bench = await led(2)
        bench.told(leader_epoch=5, partition_epoch=8)
        await bench.send(ONE)
        result = await bench.get(4, last_fetched_epoch=3)
        assert (result.diverging_epoch, result.diverging_end_offset, result.records) == (3, 2, b"")
        assert (await bench.get(2, last_fetched_epoch=3)).records

    run(story())


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE, "offset -1"),
        ({"offset": -(2**63)}, ErrorCode.OFFSET_OUT_OF_RANGE, "outside"),
        ({"offset": 2**63 - 1}, ErrorCode.OFFSET_OUT_OF_RANGE, "outside"),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST, "max_wait_ms is -1"),
        ({"max_wait_ms": 300_001}, ErrorCode.INVALID_REQUEST, "300000"),
        ({"min_bytes": -1}, ErrorCode.INVALID_REQUEST, "min_bytes"),
        ({"max_bytes": 0}, ErrorCode.INVALID_REQUEST, "max_bytes is 0"),
        ({"partition_max_bytes": -5}, ErrorCode.INVALID_REQUEST, "max_bytes is -5"),
        ({"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH, "leader_epoch 2"),
        ({"leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH, "leader_epoch 9"),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere-0"),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "events-1"),
    ],
)
def test_bad_fields_are_named_and_the_next_request_works(fields: dict[str, int], code: ErrorCode, named: str) -> None:
    async def story() -> None:
        bench = await led(1)
        result = await bench.get(**({"offset": 0} | fields))  # type: ignore[arg-type]
        assert result.error_code is code
        assert named in result.error_message
        assert (await bench.get(0)).records

    run(story())


def test_list_offsets_earliest_latest_and_by_time() -> None:
    async def story() -> None:
        bench = await led(2, 3)

        async def ask(timestamp: int) -> m.ListOffsetsResult:
            part = m.ListOffsetsPartition(topic="events", partition=0, leader_epoch=-1, timestamp=timestamp)
            return (await bench.fetch.list_offsets(m.ListOffsetsRequest(partitions=(part,)))).results[0]

        assert (await ask(-2)).offset == 0
        assert (await ask(-1)).offset == 5
        assert (await ask(500)).offset == 0
        assert (await ask(1_000_000)).offset == -1
        assert (await ask(-3)).error_code is ErrorCode.INVALID_REQUEST

    run(story())


def test_offset_for_leader_epoch_names_the_largest_epoch_below() -> None:
    async def story() -> None:
        bench = await led(2)
        bench.told(leader_epoch=6, partition_epoch=8)

        async def ask(epoch: int, current: int = -1) -> m.EpochEndOffset:
            part = m.EpochPartition(topic="events", partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = m.OffsetForLeaderEpochRequest(partitions=(part,))
            return (await bench.fetch.offset_for_leader_epoch(request)).results[0]

        assert ((await ask(3)).leader_epoch, (await ask(3)).end_offset) == (3, 2)
        assert ((await ask(5)).leader_epoch, (await ask(5)).end_offset) == (3, 2)
        assert (await ask(6)).end_offset == 2
        assert (await ask(3, current=5)).error_code is ErrorCode.FENCED_LEADER_EPOCH

    run(story())
