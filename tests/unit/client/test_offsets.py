"""Offsets by time: the leader names the batch, the client finds the record in it."""

from dataclasses import replace
from typing import Any

import pytest

from helpers.batches import patched
from helpers.brokers import Brokers, brokers
from helpers.requirements import requirement
from tidelog.client.consumer import Consumer
from tidelog.client.offsets import MAX_TIMESTAMP
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.batch import Codec

T0 = TopicPartition("t", 0)


async def fill(cluster: Brokers, *batches: tuple[int, ...], codec: Codec = Codec.NONE) -> None:
    """One batch for each tuple of timestamps."""
    for times in batches:
        await cluster.append("t", 0, encode_batch((Record(None, b"v", (), at) for at in times), codec))


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_record_inside_its_batch_is_found(codec: Codec) -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, (100, 300, 200), (150, 250), (900, 400), codec=codec)
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:

        async def at(timestamp: int) -> tuple[int, int]:
            found = (await c.offsets_for_times({T0: timestamp}))[T0]
            return found.offset, found.timestamp_ms

        assert await at(0) == (0, 100)
        assert await at(101) == (1, 300)
        assert await at(300) == (1, 300)
        assert await at(301) == (5, 900)
        assert await at(901) == (-1, -1)
        assert await at(2**63 - 1) == (-1, -1)
        assert await at(MAX_TIMESTAMP) == (5, 900)


async def test_a_header_that_lies_costs_accuracy_and_nothing_else() -> None:
    cluster = await brokers()
    await cluster.create("t", message_timestamp_after_max_ms=str(2**63 - 1))
    await fill(cluster, (100,))
    lying = encode_batch(Record(None, b"v", (), at) for at in (200, 300))
    await cluster.append("t", 0, patched(lying, 35, ">q", 2**63 - 1))
    await fill(cluster, (500,))
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        found = await c.offsets_for_times({T0: 400})
        # No record of that batch is so late; the next one is.
        assert found[T0] == (3, 500, 0)
        assert (await c.offsets_for_times({T0: 600}))[T0] == (-1, -1, -1)
        assert (await c.offsets_for_times({T0: MAX_TIMESTAMP}))[T0] == (3, 500, 0)


CUT = ((1000, 1001, 1002, 9000, 1004, 1005, 1006, 1007, 1008, 1009), (2000, 2001))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("wanted", "offset", "timestamp"),
    [
        (1002, 5, 1005),
        (1007, 7, 1007),
        (1500, 10, 2000),
        (2001, 11, 2001),
        (8000, -1, -1),
        (MAX_TIMESTAMP, 11, 2001),
    ],
)
async def test_a_deleted_record_is_never_found(codec: Codec, wanted: int, offset: int, timestamp: int) -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, *CUT, codec=codec)
    await cluster.admin.logs.delete_records({T0: 5})
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        found = (await c.offsets_for_times({T0: wanted}))[T0]
        assert (found.offset, found.timestamp_ms) == (offset, timestamp)


async def test_what_is_left_of_a_cut_batch_may_be_the_newest() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, (9000, 100, 5000, 200), (300,), (4000,))
    await cluster.admin.logs.delete_records({T0: 1})
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        assert (await c.offsets_for_times({T0: MAX_TIMESTAMP}))[T0] == (2, 5000, 0)


async def test_a_leader_that_cannot_go_on_names_what_is_kept() -> None:
    """Release 0.2.0 does not know where a search begins."""
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, *CUT)
    await cluster.admin.logs.delete_records({T0: 5})

    async def without(call: Call) -> Any:
        asks = tuple(replace(ask, search_start=None) for ask in call.request.partitions)
        call.request = m.ListOffsetsRequest(partitions=asks)
        return await call.serve()

    for _ in range(2):
        cluster.once("ListOffsets", without)
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        assert (await c.offsets_for_times({T0: 8000}))[T0] == (5, 9000, 0)


async def test_a_damaged_batch_is_named_by_its_first_offset() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, (100, 200), (300, 400))
    batch = cluster.batches("t")[1]
    cluster.damage(batch, batch[:-1] + bytes([batch[-1] ^ 1]))
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        assert (await c.offsets_for_times({T0: 350}))[T0] == (2, 400, 0)


@requirement("A new leader reports no end offset below its epoch start")
async def test_offsets_that_are_not_available_yet_are_waited_for() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, (100, 200))

    async def not_yet(call: Call) -> m.ListOffsetsResponse:
        (ask,) = call.request.partitions
        return m.ListOffsetsResponse(
            results=(
                m.ListOffsetsResult(
                    topic=ask.topic,
                    partition=ask.partition,
                    error_code=ErrorCode.OFFSET_NOT_AVAILABLE,
                    timestamp=-1,
                    offset=-1,
                    leader_epoch=-1,
                ),
            )
        )

    for _ in range(3):
        cluster.once("ListOffsets", not_yet)
    async with Consumer(cluster.bootstrap, ports=cluster.ports) as c:
        assert await c.end_offsets([T0]) == {T0: 2}
    assert len(cluster.of("ListOffsets")) == 4
