"""A closed segment whose index is lost: readers wait for another one, and the event loop does not."""

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from helpers.batches import batch, headers
from helpers.broker import TOPIC_ID, BrokerBench
from helpers.logs import lead
from helpers.replication import EVENTS, broker_world, until
from tidelog.errors import ErrorCode
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.clock import SimClock
from tidelog.topic_config import TopicConfig

ALONE = TopicConfig(min_insync_replicas=1)
RECORDS = 1_000
READS_MAX = 4
"""Reads of a file on the event loop to find and to send some batches."""


def fill(log: PartitionLog, epoch: int) -> None:
    """One closed segment of so many batches that its headers lie in many pages; nothing is left in memory."""
    for _ in range(RECORDS):
        lead(log, batch(b"v" * 20), epoch)
    log.flush()
    log.roll()
    log._tail.clear()
    log.segments[0].forget_index()
    log.segments[0].drop_index_file()


@pytest.fixture
async def bench() -> AsyncIterator[BrokerBench]:
    bench = BrokerBench(clock=SimClock())
    bench.told(config=ALONE)
    fill(bench.host.log, 3)
    bench.host.replica.high_watermark = bench.host.replica.log_end_offset = RECORDS
    yield bench


async def test_a_reader_waits_beside_the_event_loop(bench: BrokerBench) -> None:
    bench.disk.slow("pread", 1.0)
    fetches = [asyncio.ensure_future(bench.get(offset, max_wait_ms=200_000)) for offset in (0, 500)]
    await asyncio.sleep(5.0)
    assert not any(fetch.done() for fetch in fetches) and bench.host.reads_index and bench.disk.stalled_s == 0.0
    results = await asyncio.gather(*fetches)
    assert [headers(result.records)[0].base_offset for result in results] == [0, 500]
    assert bench.disk.stalled_s <= len(results) * READS_MAX
    assert not bench.host.reads_index


async def test_a_reader_that_does_not_wait_finds_nothing_yet(bench: BrokerBench) -> None:
    result = await bench.get(0)
    assert (result.error_code, result.records, result.high_watermark) == (ErrorCode.NONE, b"", RECORDS)
    await asyncio.sleep(1.0)
    assert headers((await bench.get(0)).records)[0].base_offset == 0


async def test_an_index_in_its_file_is_waited_for_by_no_reader(bench: BrokerBench) -> None:
    bench.host.log.segments[0].save_index()
    bench.host.log.segments[0].forget_index()
    assert headers((await bench.get(700)).records)[0].base_offset == 700


async def test_a_segment_that_cannot_be_read_takes_the_copy_offline(bench: BrokerBench) -> None:
    bench.disk.fail("pread", errno.EIO, path=bench.host.log.segments[0].path)
    result = await bench.get(0, max_wait_ms=10_000)
    assert result.error_code is not ErrorCode.NONE and bench.host.log.failure is not None
    assert bench.host.offline is not None and not bench.host.reads_index


async def test_followers_get_what_the_index_was_lost_of() -> None:
    async with broker_world(1, 2) as (world, one, two):
        fill(one.logs.create(EVENTS, TOPIC_ID), 1)
        one.disk.slow("pread", 1.0)
        world.told(1, 3)
        await until(lambda: one.host.reads_index, limit_s=10.0)
        assert one.disk.stalled_s == 0.0
        await until(lambda: two.end == RECORDS, limit_s=200.0)
        assert one.everything() == two.everything()
