"""Calls of a client that are cancelled at any of their suspensions: the client goes on, and no record is lost or skipped."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from helpers.whole_cluster import Bed, whole_cluster
from tidelog.ids import TopicPartition
from tidelog.testing.cancelling import Cancelled

SUSPENSIONS_MAX = 8


async def cancelled(call: Coroutine[Any, Any, Any], at: int) -> tuple[bool, Any]:
    """True if the call got to its `at`-th suspension, and its result, if it returned."""
    cancelling: Cancelled[Any] = Cancelled(call, at)

    async def run() -> Any:
        return await cancelling

    (found,) = await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
    if isinstance(found, BaseException):
        assert isinstance(found, asyncio.CancelledError) and cancelling.reached, found
        return True, None
    return cancelling.reached, found


async def test_a_cancelled_send_or_flush_loses_no_other_record() -> None:
    async with whole_cluster() as bed:
        topic, sent = await bed.topic(), []
        async with bed.producer(linger_ms=5, max_block_ms=5000) as producer:
            for at in range(1, SUSPENSIONS_MAX + 1):
                first, last = b"first %d" % at, b"last %d" % at
                acks = [await producer.send(topic, first)]
                in_send, ack = await cancelled(producer.send(topic, b"cancelled %d" % at), at)
                in_flush, _ = await cancelled(producer.flush(), at)
                acks.append(await producer.send(topic, last))
                await producer.flush()
                assert all(each.done() and each.exception() is None for each in acks)
                sent += [first, *([b"cancelled %d" % at] if ack is not None else []), last]
                if not in_send and not in_flush:
                    break
        stored = await bed.values(topic)
        assert [value for value in stored if value in sent] == sent, "in order, each once"
        assert len(set(stored)) == len(stored)
        bed.check()


@pytest.mark.parametrize("group", [None, "readers"])
async def test_a_cancelled_poll_skips_no_record(group: str | None) -> None:
    async with whole_cluster() as bed:
        topic = await bed.topic()
        tp, values = TopicPartition(topic, 0), [b"%d" % number for number in range(200)]
        async with bed.producer() as producer:
            for value in values:
                await producer.send(topic, value)
        options: dict[str, Any] = {} if group is None else {"group": group, "topics": [topic]}
        async with bed.consumer(max_wait_ms=10, partition_bytes=300, **options) as consumer:
            if group is None:
                await consumer.assign([tp])
            read: list[Any] = []
            at = 0
            while len(read) < len(values):
                at = at % SUSPENSIONS_MAX + 1
                _, records = await cancelled(consumer.poll(max_records=7), at)
                read += [record.value for record in records or ()]
                if group is not None:
                    await cancelled(consumer.commit(), at)
            assert read == values
            if group is not None:
                await consumer.commit()
                found = (await consumer.committed([tp]))[tp]
                assert found is not None and found.offset == len(values)
        bed.check()


STOPS: dict[str, Callable[[Bed, str], Any]] = {
    "producer": lambda bed, _: bed.producer(),
    "consumer": lambda bed, _: bed.consumer(),
    "member": lambda bed, topic: bed.consumer(group="g", topics=[topic]),
}


@pytest.mark.parametrize("kind", STOPS)
async def test_a_cancelled_stop_can_be_repeated(kind: str) -> None:
    async with whole_cluster() as bed:
        topic = await bed.topic()
        for at in range(1, SUSPENSIONS_MAX + 1):
            client = STOPS[kind](bed, topic)
            await client.start()
            ack = await client.send(topic, b"%d" % at) if kind == "producer" else None
            reached, _ = await cancelled(client.stop(), at)
            async with asyncio.timeout(60.0):
                await client.stop()
            assert ack is None or ack.done()
            if not reached:
                break
        bed.check()


async def test_cancelled_requests_of_an_administrator_can_be_repeated() -> None:
    async with whole_cluster() as bed:
        for at in range(1, SUSPENSIONS_MAX + 1):
            topic = await bed.topic()
            calls = [
                lambda topic=topic: bed.admin.alter_configs(topic, {"retention.ms": "1000000"}),
                lambda topic=topic: bed.admin.describe_topic(topic),
                lambda topic=topic: bed.admin.logs.delete_records({TopicPartition(topic, 0): 0}),
                lambda: bed.admin.groups.listing(),
            ]
            reached = [(await cancelled(call(), at))[0] for call in calls]
            for call in calls:
                await call()
            if not any(reached):
                break
        bed.check()
