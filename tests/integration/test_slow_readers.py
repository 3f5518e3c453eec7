"""Readers of real brokers that ask for everything and read nothing: memory stays within its limit, and others are served."""

from contextlib import AsyncExitStack

import psutil
import pytest

from helpers.batches import sized_batch
from helpers.requirements import requirement
from helpers.slow_reader import SlowReader
from helpers.wire import TIMEOUT_S, Bed
from tidelog.cluster.api import broker_name
from tidelog.errors import ErrorCode
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.sizes import RESPONSES_BYTES
from tidelog.wire import services as s
from tidelog.wire.codec import encode

pytestmark = pytest.mark.integration

BATCHES, BATCH_BYTES = 60, 1_000_000
READERS, ASKED = 8, 40


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_readers_that_do_not_read_take_a_limited_memory(bed: Bed) -> None:
    process = psutil.Process(bed.pids()[broker_name(bed.leader)])
    filler = GrpcNet().channel(bed.address(bed.leader), purpose="test")
    for _ in range(BATCHES):
        request = bed.produce(records=sized_batch(BATCH_BYTES))
        (sent,) = (await filler.call(s.REPLICA_SERVICE_PRODUCE, request, TIMEOUT_S)).results
        assert sent.error_code is ErrorCode.NONE, sent
    await filler.close()
    async with bed.unharmed() as channel, AsyncExitStack() as stack:
        before = process.memory_info().rss
        greedy = bed.fetch(max_bytes=50 << 20, part_max_bytes=50 << 20)
        for _ in range(READERS):
            reader = await stack.enter_async_context(SlowReader.connected(bed.address(bed.leader)))
            for _ in range(ASKED):
                reader.ask(s.REPLICA_SERVICE_FETCH.path, encode(greedy))
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(), TIMEOUT_S)).results
        assert got.error_code is ErrorCode.NONE and got.records, got
        grown = process.memory_info().rss - before
        assert grown < RESPONSES_BYTES + (100 << 20), f"the broker grew by {grown >> 20} MiB"
