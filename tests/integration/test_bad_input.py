"""Bad requests to real brokers: an error code, words that name field and limit, nothing appended, and life goes on.

Names and counts; unit tests have the numbers, batches and protocol have files of their own. `Bed.unharmed` is the oracle.
"""

import asyncio
from dataclasses import replace

import pytest

from helpers.bad_names import BAD_NAMES, ODD_NAMES
from helpers.batches import batch
from helpers.cluster import unique_topic
from helpers.requirements import requirement
from helpers.wire import INT32_MAX, TIMEOUT_S, Bed, creation, rows, said
from tidelog.errors import ErrorCode, TransportError
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import decode, encode

pytestmark = pytest.mark.integration

E = ErrorCode


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_topic_name_is_refused_wherever_it_comes_in(bed: Bed, name: str) -> None:
    topic, words = BAD_NAMES[name]
    bad = E.INVALID_TOPIC_EXCEPTION

    async with bed.unharmed() as channel:
        (created,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, creation(topic), TIMEOUT_S)).topics
        said(created, bad, "topic name", words)
        request = m.DeleteTopicsRequest(names=(topic,), timeout_ms=0)
        (deleted,) = (await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, request, TIMEOUT_S)).topics
        said(deleted, bad, "topic name", words)
        described = await channel.call(
            s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(topic,)), TIMEOUT_S
        )
        assert [t.error_code for t in described.topics] == [bad]
        (grown,) = (await channel.call(s.ADMIN_SERVICE_CREATE_PARTITIONS, growth(topic, 2), TIMEOUT_S)).topics
        said(grown, bad)
        metadata = await channel.call(
            s.COORDINATOR_SERVICE_CLUSTER_METADATA, m.ClusterMetadataRequest(topics=(topic,)), TIMEOUT_S
        )
        assert [t.error_code for t in metadata.topics] == [bad]
        (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(topic=topic), TIMEOUT_S)).results
        said(sent, bad, "topic name", words)
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(topic=topic), TIMEOUT_S)).results
        said(got, bad, "topic name", words)


async def test_odd_but_valid_topic_names_work(bed: Bed) -> None:
    names = [*ODD_NAMES, unique_topic()]

    async with bed.unharmed() as channel:
        new = m.CreateTopicsRequest(
            topics=tuple(t for name in names for t in creation(name, assign=bed.leader).topics), timeout_ms=0
        )
        created = await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, new, TIMEOUT_S)
        assert [(t.name, t.error_code) for t in created.topics] == [(name, E.NONE) for name in names]
        parts = [bed.produce(topic=name, records=batch(name.encode())).partitions[0] for name in names]
        async with asyncio.timeout(TIMEOUT_S):
            while True:  # the controller answers before every broker has heard of the topics
                sent = await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(*parts, acks=1), TIMEOUT_S)
                if {r.error_code for r in sent.results} <= {E.NONE}:
                    break
                assert {r.error_code for r in sent.results} <= {E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION}
                await asyncio.sleep(0.05)
        for name in names:
            (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(topic=name), TIMEOUT_S)).results
            assert name.encode() in got.records
        request = m.DeleteTopicsRequest(names=tuple(names), timeout_ms=0)
        deleted = await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, request, TIMEOUT_S)
        assert [t.error_code for t in deleted.topics] == [E.NONE] * len(names)


# --- creation -------------------------------------------------------------------------------------------------------


def growth(name: str, total: int, *assigned: tuple[int, tuple[int, ...]]) -> m.CreatePartitionsRequest:
    new = m.NewPartitions(name=name, total_count=total, **rows(*assigned))
    return m.CreatePartitionsRequest(topics=(new,), timeout_ms=0)


async def test_too_much_of_everything_is_refused_whole(bed: Bed) -> None:
    """Counts have limits, whatever is counted; one topic twice is not two (reliability 7.2)."""
    twice, names = unique_topic(), tuple(f"n{i}" for i in range(1_001))

    async with bed.unharmed() as channel:
        (new,) = creation(twice).topics
        created = await channel.call(
            s.ADMIN_SERVICE_CREATE_TOPICS, m.CreateTopicsRequest(topics=(new, new), timeout_ms=0), TIMEOUT_S
        )
        for result in created.topics:
            said(result, E.INVALID_REQUEST, twice, "more than once")
        many = m.DeleteTopicsRequest(names=names, timeout_ms=0)
        with pytest.raises(TransportError, match=r"INVALID_ARGUMENT.*names holds 1001 entries, at most 1000"):
            await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, many, TIMEOUT_S)
        late = m.CreateTopicsRequest(topics=(new,), timeout_ms=-1)
        (result,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, late, TIMEOUT_S)).topics
        said(result, E.INVALID_REQUEST, "timeout_ms -1")
        # A name asked for ten thousand times is answered once: the answer stays as small as the question.
        again = await channel.call(
            s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(bed.topic,) * 10_000), TIMEOUT_S
        )
        assert [t.name for t in again.topics] == [bed.topic]
        known = await channel.call(
            s.COORDINATOR_SERVICE_CLUSTER_METADATA,
            m.ClusterMetadataRequest(topics=(bed.topic,) * 10_000),
            TIMEOUT_S,
        )
        assert [t.topic for t in known.topics] == [bed.topic]
        lost = tuple(f"n{i}" for i in range(10_000))
        unknown = await channel.call(s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=lost), TIMEOUT_S)
        assert {t.error_code for t in unknown.topics} == {E.UNKNOWN_TOPIC_OR_PARTITION}


# --- produce --------------------------------------------------------------------------------------------------------


@requirement("Consumers read from the leader up to the high watermark")
@requirement("A broker that does not lead refuses to append")
async def test_a_follower_names_the_leader(bed: Bed) -> None:
    async with bed.unharmed(bed.follower) as channel:
        (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(), TIMEOUT_S)).results
        said(sent, E.NOT_LEADER_OR_FOLLOWER, f"leader is broker {bed.leader}")
        assert (sent.leader_id, sent.leader_epoch) == (bed.leader, bed.epoch)
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(), TIMEOUT_S)).results
        said(got, E.NOT_LEADER_OR_FOLLOWER, f"leader is broker {bed.leader}")
        assert (got.leader_id, got.leader_epoch) == (bed.leader, bed.epoch)


# --- fetch ----------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("wide", [2**32, 2**63, 2**64 - 2**32], ids=["2^32", "2^63", "-2^32"])
async def test_a_number_wider_than_its_field_is_cut_to_it_and_judged_as_what_is_left(bed: Bed, wide: int) -> None:
    """So does every reader of protobuf; of these 0 is left, and of a field that comes twice the last one counts."""
    partition, max_wait_ms, max_bytes = (bytes([number << 3]) + varint(wide) for number in (3, 2, 4))

    async with bed.unharmed() as channel:
        request = bed.fetch(max_wait_ms=60_000, min_bytes=INT32_MAX)
        inner = encode(request.partitions[0]) + partition
        data = encode(replace(request, partitions=())) + b"\x2a" + varint(len(inner)) + inner + max_wait_ms
        for raw, code in ((data, E.NONE), (data + max_bytes, E.INVALID_REQUEST)):
            answer = await channel._channel.unary_unary(s.REPLICA_SERVICE_FETCH.path)(raw, timeout=TIMEOUT_S)
            (got,) = decode(m.FetchResponse, answer).results
            assert (got.error_code, got.topic, got.partition) == (code, bed.topic, 0), got


async def test_too_many_partitions_and_one_twice(bed: Bed) -> None:
    (part,) = bed.fetch().partitions
    many = range(10_001)

    async with bed.unharmed() as channel:
        for result in (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(part, part), TIMEOUT_S)).results:
            said(result, E.INVALID_REQUEST, "partitions names one partition twice")
        parts = [bed.fetch(partition=p).partitions[0] for p in many]
        times = m.ListOffsetsRequest(
            partitions=tuple(
                m.ListOffsetsPartition(topic=bed.topic, partition=p, leader_epoch=-1, timestamp=-1) for p in many
            )
        )
        epochs = m.OffsetForLeaderEpochRequest(
            partitions=tuple(
                m.EpochPartition(topic=bed.topic, partition=p, current_leader_epoch=-1, leader_epoch=0) for p in many
            )
        )
        for method, request in (
            (s.REPLICA_SERVICE_FETCH, bed.fetch(*parts)),
            (s.REPLICA_SERVICE_LIST_OFFSETS, times),
            (s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, epochs),
        ):
            with pytest.raises(
                TransportError, match=r"INVALID_ARGUMENT.*partitions holds 10001 entries, at most 10000"
            ):
                await channel.call(method, request, TIMEOUT_S)
