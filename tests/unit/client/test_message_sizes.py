"""Messages that the transport refuses because of their size: a final answer for the records or the partition concerned."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers
from tidelog.client.consumer import Consumer
from tidelog.client.errors import DeliveryError
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire.codec import encode
from unit.client.clients import producer

LIMIT = 10_000


def limited(cluster: Brokers, method: str, whose: str, message_of: Callable[[Call], Any]) -> None:
    """gRPC refuses messages over LIMIT, in its own words."""

    async def check(call: Call) -> Any:
        if call.method != method:
            return NotImplemented
        size = len(encode(message_of(call)))
        if size > LIMIT:
            raise TransportError("RESOURCE_EXHAUSTED", f"{whose} message larger than max ({size} vs. {LIMIT})")
        return NotImplemented

    cluster.faults.append(check)


async def receiving(*topics: str) -> Brokers:
    cluster = await brokers(1)
    for topic in topics:
        await cluster.create(topic)
    limited(cluster, "Produce", "SERVER: Received", lambda call: call.request)
    return cluster


async def test_a_record_that_was_not_received_was_not_written() -> None:
    cluster = await receiving("t", "u")
    async with producer(cluster) as p:
        large, small = await p.send("t", bytes(2 * LIMIT)), await p.send("u", b"small")
        with pytest.raises(DeliveryError, match=f"the broker takes {LIMIT}") as caught:
            await large
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert caught.value.outcome_known
        await small
        await (await p.send("t", b"the next one"))
    assert cluster.values("t") == [b"the next one"]


async def test_a_batch_that_was_not_received_is_sent_in_parts() -> None:
    cluster = await receiving("t")
    values = [bytes([n]) * 1000 for n in range(40)]
    async with producer(cluster, linger_ms=10) as p:
        acks = [await p.send("t", value) for value in values]
        await asyncio.gather(*acks)
    assert cluster.values("t") == values


async def test_a_request_that_was_not_received_is_sent_in_parts() -> None:
    topics = [f"t{n}" for n in range(12)]
    cluster = await receiving(*topics)
    async with producer(cluster, linger_ms=10) as p:
        for _ in range(3):
            tries = len(cluster.of("Produce"))
            await asyncio.gather(*[await p.send(topic, bytes(3000)) for topic in topics])
    assert [cluster.values(topic) for topic in topics] == [[bytes(3000)] * 3] * 12
    later = cluster.of("Produce")[tries:]
    assert max(len(encode(call.request)) for call in later) <= LIMIT, "the size is remembered"


async def test_other_requests_of_the_stream_are_sent_again() -> None:
    """They end with the stream, and nothing is wrong with them."""
    cluster = await receiving("t", "u")
    async with producer(cluster, enable_idempotence=False, acks=1) as p:
        await (await p.send("u", b"first"))
        cluster.once("Produce", _late)
        waits = await p.send("u", b"waits")
        await asyncio.sleep(0)
        large = await p.send("t", bytes(2 * LIMIT))
        with pytest.raises(DeliveryError):
            await large
        await waits
    assert cluster.values("u") == [b"first", b"waits"]


async def _late(call: Call) -> Any:
    await asyncio.sleep(3600)


async def answering(*topics: str) -> Brokers:
    """Each topic holds a small batch, and `large` one that cannot be fetched behind it."""
    cluster = await brokers(1)
    for topic in topics:
        await cluster.create(topic)
        await cluster.append(topic, 0, encode_batch([Record(None, b"small", (), 1)]))
    await cluster.append("large", 0, encode_batch([Record(None, bytes(2 * LIMIT), (), 1)]))

    async def check(call: Call) -> Any:
        if call.method != "Fetch":
            return NotImplemented
        answer = await call.serve()
        size = len(encode(answer))
        if size > LIMIT:
            raise TransportError("RESOURCE_EXHAUSTED", f"CLIENT: Received message larger than max ({size} vs. {LIMIT})")
        return answer

    cluster.faults.append(check)
    return cluster


async def test_a_batch_too_large_to_fetch_fails_its_partition_alone() -> None:
    cluster = await answering("large", "other", "third")
    async with Consumer(cluster.bootstrap, ports=cluster.ports, max_wait_ms=10) as consumer:
        await consumer.assign([TopicPartition(topic, 0) for topic in ("large", "other", "third")])
        found: list[tuple[str, int]] = []
        while len(found) < 3:
            found += [(r.topic, r.offset) for r in await consumer.poll(1.0)]
        assert sorted(found) == [("large", 0), ("other", 0), ("third", 0)]
        with pytest.raises(TidelogError, match="large-0: the batch at offset 1 is too large to be fetched") as caught:
            await consumer.poll(1.0)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await cluster.append("large", 0, encode_batch([Record(None, b"behind", (), 1)]))
        consumer.seek(TopicPartition("large", 0), 2)
        assert [r.value for r in await consumer.poll(1.0)] == [b"behind"], "a seek goes past it"


async def test_records_around_one_that_is_too_large_are_written_once() -> None:
    cluster = await receiving("t")
    async with producer(cluster, batch_bytes=500) as p:
        await (await p.send("t", b"first"))
        cluster.lose_answer("Produce")
        before, large, after = [await p.send("t", value) for value in (b"before", bytes(2 * LIMIT), b"after")]
        with pytest.raises(DeliveryError) as caught:
            await large
        assert caught.value.outcome_known
        await before
        await after
    assert cluster.values("t") == [b"first", b"before", b"after"]
