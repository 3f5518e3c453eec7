"""Partitions that are added to a topic: producers and consumers find them when their picture of the cluster is renewed."""

import asyncio

import pytest

from helpers.brokers import brokers, no_tasks_left
from tidelog.client.consumer import Consumer
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition


async def test_a_producer_uses_added_partitions_after_its_metadata_has_aged() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    key = next(b"%d" % i for i in range(99) if partition_for_key(b"%d" % i, 4) >= 2)
    async with (
        no_tasks_left(),
        Producer(cluster.bootstrap, ports=cluster.ports, metadata_max_age_ms=2000, linger_ms=0) as producer,
    ):
        before = await (await producer.send("t", b"v", key=key))
        assert before.partition == partition_for_key(key, 2)
        await cluster.grow("t", 4)
        await cluster.clock.sleep(3)
        after = await (await producer.send("t", b"v", key=key))
        assert after.partition == partition_for_key(key, 4)
        sticky = {(await (await producer.send("t", b"v"))).partition for _ in range(200)}
        assert sticky == {0, 1, 2, 3}


async def test_a_producer_that_is_told_a_new_partition_asks_at_once() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=1)
    async with Producer(cluster.bootstrap, ports=cluster.ports, linger_ms=0) as producer:
        await (await producer.send("t", b"v"))
        await cluster.grow("t", 2)
        assert (await (await producer.send("t", b"v", partition=1))).partition == 1


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("stopped", "said"), [(True, "is closed"), (False, "another producer")])
async def test_a_producer_that_ends_while_it_asks_for_a_new_partition_takes_no_record_for_it(
    encoded: bool, stopped: bool, said: str
) -> None:
    """Nobody would send it, and its future would never end."""

    cluster = await brokers()
    await cluster.create("t", partitions=1)
    producer = Producer(cluster.bootstrap, ports=cluster.ports)
    await producer.start()
    await (await producer.send("t", b"v"))
    batch = encode_batch([Record(None, b"v", (), 1000)])
    sent = producer.produce_encoded("t", 1, batch) if encoded else producer.send("t", b"v", partition=1)
    waits = asyncio.create_task(sent)
    await cluster.clock.sleep(0.05)
    if stopped:
        await producer.stop()
    else:
        producer._end(TidelogError("another producer has taken over", ErrorCode.INVALID_PRODUCER_EPOCH))
    await cluster.grow("t", 2)
    with pytest.raises(TidelogError, match=said):
        await waits
    await producer.stop()


async def test_a_consumer_of_whole_topics_reads_added_partitions_from_their_first_record() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=1)
    async with (
        no_tasks_left(),
        Producer(cluster.bootstrap, ports=cluster.ports, linger_ms=0) as producer,
        Consumer(
            cluster.bootstrap, ports=cluster.ports, metadata_max_age_ms=2000, auto_offset_reset="error"
        ) as consumer,
    ):
        await consumer.assign_topics("t")
        await consumer.seek_to_end()
        await cluster.grow("t", 3)
        for p in (0, 1, 2):
            await (await producer.send("t", b"%d" % p, partition=p))
        seen: dict[int, list[int]] = {}
        for _ in range(10):
            for r in await consumer.poll(timeout_s=1):
                seen.setdefault(r.partition, []).append(r.offset)
        assert seen == {0: [0], 1: [0], 2: [0]}


async def test_an_assignment_of_single_partitions_does_not_grow() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=1)
    async with Consumer(cluster.bootstrap, ports=cluster.ports, metadata_max_age_ms=1000) as consumer:
        await consumer.assign_topics("t")
        await consumer.assign([TopicPartition("t", 0)])
        await cluster.grow("t", 2)
        await consumer.poll(timeout_s=5)
        assert consumer.assignment == [TopicPartition("t", 0)]
        await consumer.assign([TopicPartition("t", 1)])
        with pytest.raises(TidelogError) as caught:
            await consumer.assign([TopicPartition("t", 2)])
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "partitions 0 to 1" in caught.value.message
