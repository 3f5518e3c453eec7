"""The producer's accumulator by itself."""

import asyncio
import tracemalloc

import pytest

from tidelog.client.accumulator import Accumulator
from tidelog.client.records import codec_of
from tidelog.ids import BrokerId, TopicPartition

LIFETIME_S = 20.0
TP = TopicPartition("t", 0)


def test_a_batch_expires_at_the_instant_that_next_at_names() -> None:
    # Sums and differences of floats round differently: if the two disagree, the sender spins until the clock moves on.
    for tenths in range(1, 2000):
        created_at = tenths / 10
        accumulator: Accumulator[None] = Accumulator(
            batch_bytes=1024, linger_s=0.0, buffer_bytes=4096, request_bytes=4096, codec=codec_of("none")
        )
        accumulator.append(TP, 0, None, b"v", [], None, created_at)
        accumulator.drain(created_at, lambda _: BrokerId(1), lambda _: False)
        due_at = accumulator.next_at(created_at, LIFETIME_S)
        assert due_at is not None
        assert len(list(accumulator.expire(due_at, LIFETIME_S))) == 1, created_at


@pytest.mark.parametrize(("size", "partitions"), [(1, 1), (1, 1000), (100, 1), (10_000, 1)])
async def test_the_bytes_counted_are_the_bytes_held(size: int, partitions: int) -> None:
    accumulator: Accumulator[asyncio.Future[None]] = Accumulator(
        batch_bytes=65536, linger_s=0.0, buffer_bytes=1 << 30, request_bytes=1 << 20
    )
    loop = asyncio.get_running_loop()
    tracemalloc.start()
    try:
        for i in range(1000):
            tp = TopicPartition("t", i % partitions)
            accumulator.append(tp, 1_700_000_000_000 + i, None, bytes(size), [], loop.create_future(), 0.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 < accumulator.buffered_bytes / held < 1.3
