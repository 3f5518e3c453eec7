"""Batches that the producer's caller has encoded, and that the topic finds too large."""

import asyncio

import pytest

from helpers.brokers import brokers
from tidelog.client.errors import DeliveryError
from tidelog.client.records import Record, encode_batch
from tidelog.wire.batch import numbered, read_header
from unit.client.clients import producer


def encoded(first: int, count: int, size: int = 20) -> bytes:
    return encode_batch(Record(None, b"%0*d" % (size, i), (), 5) for i in range(first, first + count))


async def test_an_encoded_batch_that_the_topic_finds_too_large_is_split_where_its_sender_says() -> None:
    cluster = await brokers()
    await cluster.create("t", max_message_bytes="300")
    asked: list[tuple[int, int]] = []

    def odd_end(first: int, fits: int) -> int:
        asked.append((first, fits))
        return first + fits - (first + fits + 1) % 2

    async with producer(cluster, enable_idempotence=False) as p:
        mine = [numbered(encoded(*part), 77, 3, part[0]) for part in ((0, 17), (17, 4))]
        acks = [await p.produce_encoded("t", 0, batch, odd_end) for batch in mine]
        assert [a.offset for a in await asyncio.gather(*acks)] == [0, 17]
        assert p._parts == {}
    assert cluster.values("t") == [b"%020d" % i for i in range(21)]
    heads = [read_header(batch) for batch in cluster.batches("t")]
    assert {(head.producer_id, head.producer_epoch) for head in heads} == {(77, 3)}
    assert [(head.base_sequence, head.record_count) for head in heads] == [(0, 7), (7, 4), (11, 6), (17, 4)]
    assert asked == [(0, 8), (7, 5)]


@pytest.mark.parametrize("idempotent", [False, True])
async def test_an_encoded_batch_is_acknowledged_when_all_its_parts_are(idempotent: bool) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, enable_idempotence=idempotent) as p:
        await (await p.produce_encoded("t", 0, encoded(0, 1)))
        await cluster.admin.alter_configs("t", {"max.message.bytes": "150"})
        acks = [await p.produce_encoded("t", 0, encoded(n, 16), lambda first, fits: first + fits) for n in (1, 17)]
        await p.flush()
        assert [a.result().offset for a in acks] == [1, 17] and all(a.done() for a in acks)
        large = encode_batch([Record(None, b"%0*d" % (n, n), (), 5) for n in (20, 120)])
        with pytest.raises(DeliveryError, match=r"max\.message\.bytes is 150") as caught:
            await (await p.produce_encoded("t", 0, large, lambda first, fits: first + fits))
        assert not caught.value.outcome_known
        await p.flush()
        assert p._parts == {}
        with pytest.raises(DeliveryError, match=r"max\.message\.bytes is 150 .*; it was not written"):
            await (await p.produce_encoded("t", 0, encoded(40, 16)))
    assert cluster.values("t")[:34] == [b"%020d" % i for i in (*range(33), 20)]
