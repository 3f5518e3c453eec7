"""Bad requests to real brokers: an error code, words that name field and limit, nothing appended, and life goes on.

The list is that of reliability 7.2 (names, numbers; batches and protocol have files of their own); `Bed.unharmed` is its oracle.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from helpers.bad_names import BAD_NAMES, ODD_NAMES
from helpers.batches import batch
from helpers.cluster import unique_topic
from helpers.requirements import requirement
from helpers.wire import INT32_MAX, INT64_MAX, TIMEOUT_S, Bed, creation, rows, said
from tidelog.errors import ErrorCode
from tidelog.names import INTERNAL_TOPICS
from tidelog.runtime.rpc_net import GrpcNet
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


async def test_the_names_of_internal_topics_are_neither_created_nor_deleted(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        for name in sorted(INTERNAL_TOPICS):
            (created,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, creation(name), TIMEOUT_S)).topics
            said(created, E.INVALID_TOPIC_EXCEPTION, "topic name", name, "internal topic")
            delete = m.DeleteTopicsRequest(names=(name,), timeout_ms=0)
            (deleted,) = (await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, delete, TIMEOUT_S)).topics
            said(deleted, E.INVALID_TOPIC_EXCEPTION, "topic name", name, "internal topic")


# --- creation -------------------------------------------------------------------------------------------------------


def setting(key: str, value: str) -> dict[str, Any]:
    return {"configs": (m.ConfigEntry(key=key, value=value),)}


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"num_partitions": 0}, E.INVALID_PARTITIONS, ("num_partitions 0", "1 to 10000")),
        ({"num_partitions": -2}, E.INVALID_PARTITIONS, ("num_partitions -2", "1 to 10000")),
        ({"num_partitions": 10_001}, E.INVALID_PARTITIONS, ("num_partitions 10001", "1 to 10000")),
        ({"num_partitions": 2**31 - 1}, E.INVALID_PARTITIONS, ("num_partitions 2147483647", "1 to 10000")),
        ({"replication_factor": 0}, E.INVALID_REPLICATION_FACTOR, ("replication_factor 0", "1 to 3")),
        ({"replication_factor": -2}, E.INVALID_REPLICATION_FACTOR, ("replication_factor -2", "1 to 3")),
        ({"replication_factor": 4}, E.INVALID_REPLICATION_FACTOR, ("replication_factor 4", "1 to 3")),
        (rows((0, (0, 0, 1))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "twice", "[0, 0, 1]")),
        (rows((0, (0, 7))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "brokers [7]")),
        (rows((0, (-1,))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "brokers [-1]")),
        (rows((0, ())), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "no replica")),
        (rows((0, (0,)), (2, (1,))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "from 0 on")),
        (rows((0, (0,)), (0, (1,))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "once")),
        (rows((-1, (0,))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "from 0 on")),
        (rows((0, (0, 1)), (1, (2,))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "partition 1 has 1 replicas")),
        ({**rows((0, (0,))), "num_partitions": 1}, E.INVALID_REQUEST, ("num_partitions", "must be -1")),
        (rows(*((i, (0,)) for i in range(10_001))), E.INVALID_PARTITIONS, ("assignments", "10000")),
        (setting("min.insync.replica", "1"), E.INVALID_CONFIG, ("did you mean 'min.insync.replicas'?",)),
        (setting("", ""), E.INVALID_CONFIG, ("unknown topic setting ''",)),
        (setting("min.insync.replicas", "0"), E.INVALID_CONFIG, ("min.insync.replicas='0'", "from 1 to")),
        (setting("min.insync.replicas", "٣"), E.INVALID_CONFIG, ("whole number from 1 to",)),
        (setting("max.message.bytes", "1e6"), E.INVALID_CONFIG, ("max.message.bytes='1e6'", "whole number from 128")),
        (setting("max.message.bytes", str(2**31)), E.INVALID_CONFIG, ("max.message.bytes", "to 2147483647")),
        (setting("retention.ms", "-2"), E.INVALID_CONFIG, ("retention.ms='-2'", "from -1 to")),
        (setting("flush", "always"), E.INVALID_CONFIG, ("flush='always'", "none, sync")),
        (setting("unclean.leader.election.enable", "yes"), E.INVALID_CONFIG, ("'yes'", "false")),
        (
            {"configs": (m.ConfigEntry(key="flush", value="none"), m.ConfigEntry(key="flush", value="sync"))},
            E.INVALID_CONFIG,
            ("more than once",),
        ),
    ],
)
async def test_a_topic_that_cannot_be_is_not_created(
    bed: Bed, fields: dict[str, Any], code: ErrorCode, words: tuple[str, ...]
) -> None:
    topic = unique_topic()

    async with bed.unharmed() as channel:
        (created,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, creation(topic, **fields), TIMEOUT_S)).topics
        said(created, code, *words)
        found = await channel.call(s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(topic,)), TIMEOUT_S)
        assert [t.error_code for t in found.topics] == [E.UNKNOWN_TOPIC_OR_PARTITION]


def growth(name: str, total: int, *assigned: tuple[int, tuple[int, ...]]) -> m.CreatePartitionsRequest:
    new = m.NewPartitions(name=name, total_count=total, **rows(*assigned))
    return m.CreatePartitionsRequest(topics=(new,), timeout_ms=0)


@pytest.mark.parametrize(
    ("total", "assigned", "code", "words"),
    [
        (0, (), E.INVALID_PARTITIONS, ("total_count 0", "from 2", "10000")),
        (1, (), E.INVALID_PARTITIONS, ("total_count 1", "from 2", "10000")),
        (-1, (), E.INVALID_PARTITIONS, ("total_count -1",)),
        (10_001, (), E.INVALID_PARTITIONS, ("total_count 10001", "10000")),
        (INT32_MAX, (), E.INVALID_PARTITIONS, ("total_count 2147483647", "10000")),
        (2, ((1, (0, 0, 1)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "twice", "[0, 0, 1]")),
        (2, ((1, (0, 1, 7)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "brokers [7]")),
        (2, ((1, (0, 1, -1)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "brokers [-1]")),
        (2, ((1, ()),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "no replica")),
        (2, ((1, (0,)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "partition 1 has 1 replicas")),
        (2, ((0, (0, 1, 2)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "1 to 1")),
        (2, ((1, (0, 1, 2)), (1, (0, 1, 2))), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "once")),
        (3, ((1, (0, 1, 2)),), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "1 to 2")),
        (2, tuple((p, (0, 1, 2)) for p in range(10_001)), E.INVALID_REPLICA_ASSIGNMENT, ("assignments", "1 to 1")),
    ],
)
async def test_a_topic_does_not_grow_by_what_cannot_be(
    bed: Bed, total: int, assigned: tuple[tuple[int, tuple[int, ...]], ...], code: ErrorCode, words: tuple[str, ...]
) -> None:
    async with bed.unharmed() as channel:
        request = growth(bed.topic, total, *assigned)
        (grown,) = (await channel.call(s.ADMIN_SERVICE_CREATE_PARTITIONS, request, TIMEOUT_S)).topics
        said(grown, code, *words)
        found = await channel.call(
            s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(bed.topic,)), TIMEOUT_S
        )
        assert [len(t.partitions) for t in found.topics] == [1]


async def test_a_growth_of_nothing_and_of_a_topic_twice(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        nobody = growth(unique_topic(), 2)
        (grown,) = (await channel.call(s.ADMIN_SERVICE_CREATE_PARTITIONS, nobody, TIMEOUT_S)).topics
        said(grown, E.UNKNOWN_TOPIC_OR_PARTITION, "no topic")
        (new,) = growth(bed.topic, 2).topics
        for topics, timeout_ms, words in (
            ((new, new), 0, ("more than once",)),
            ((new,) * 1001, 0, ("1001 topics", "1000")),
            ((new,), -1, ("timeout_ms -1",)),
        ):
            request = m.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms)
            answer = await channel.call(s.ADMIN_SERVICE_CREATE_PARTITIONS, request, TIMEOUT_S)
            for grown in answer.topics:
                said(grown, E.INVALID_REQUEST, *words)
        empty = await channel.call(
            s.ADMIN_SERVICE_CREATE_PARTITIONS, m.CreatePartitionsRequest(timeout_ms=0), TIMEOUT_S
        )
        assert empty.topics == ()


async def test_a_min_isr_above_the_replication_factor_is_capped_by_it(bed: Bed) -> None:
    """HOLE-23: such a topic is accepted and can be written."""
    topic = unique_topic()

    async with bed.unharmed() as channel:
        request = creation(topic, **rows((0, (bed.leader,))), **setting("min.insync.replicas", "3"))
        (created,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, request, TIMEOUT_S)).topics
        assert created.error_code is E.NONE, created
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(topic=topic), TIMEOUT_S)).results
                if sent.error_code is not E.UNKNOWN_TOPIC_OR_PARTITION:
                    break
                await asyncio.sleep(0.05)
        assert sent.error_code is E.NONE, sent


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
        for gone in (await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, many, TIMEOUT_S)).topics:
            said(gone, E.INVALID_REQUEST, "1001 topics", "1000")
        late = m.CreateTopicsRequest(topics=(new,), timeout_ms=-1)
        (result,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, late, TIMEOUT_S)).topics
        said(result, E.INVALID_REQUEST, "timeout_ms -1")
        # A name asked for a hundred thousand times is answered once: the answer stays as small as the question.
        again = await channel.call(
            s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(bed.topic,) * 100_000), TIMEOUT_S
        )
        assert [t.name for t in again.topics] == [bed.topic]
        known = await channel.call(
            s.COORDINATOR_SERVICE_CLUSTER_METADATA,
            m.ClusterMetadataRequest(topics=(bed.topic,) * 100_000),
            TIMEOUT_S,
        )
        assert [t.topic for t in known.topics] == [bed.topic]
        lost = tuple(f"n{i}" for i in range(100_000))
        unknown = await channel.call(s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=lost), TIMEOUT_S)
        assert {t.error_code for t in unknown.topics} == {E.UNKNOWN_TOPIC_OR_PARTITION}


# --- produce --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "nowhere"}, E.UNKNOWN_TOPIC_OR_PARTITION, ("nowhere-0",)),
        ({"partition": -1}, E.UNKNOWN_TOPIC_OR_PARTITION, ("partition",)),
        ({"partition": 1}, E.UNKNOWN_TOPIC_OR_PARTITION, ("partition",)),
        ({"partition": INT32_MAX}, E.UNKNOWN_TOPIC_OR_PARTITION, ("2147483647",)),
        ({"topic_id": b"\xff" * 16}, E.UNKNOWN_TOPIC_ID, ("topic_id",)),
        ({"acks": -2}, E.INVALID_REQUIRED_ACKS, ("acks is -2", "0, 1 and -1")),
        ({"acks": 2}, E.INVALID_REQUIRED_ACKS, ("acks is 2", "0, 1 and -1")),
        ({"acks": 127}, E.INVALID_REQUIRED_ACKS, ("acks is 127", "0, 1 and -1")),
        ({"timeout_ms": -1}, E.INVALID_REQUEST, ("timeout_ms is -1", "3600000")),
        ({"timeout_ms": INT32_MAX}, E.INVALID_REQUEST, ("timeout_ms is 2147483647", "3600000")),
        ({"leader_epoch": -2}, E.FENCED_LEADER_EPOCH, ("leader_epoch -2",)),
        ({"leader_epoch": INT32_MAX}, E.UNKNOWN_LEADER_EPOCH, ("leader_epoch 2147483647",)),
    ],
)
@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_wrong_number_in_a_produce_request(
    bed: Bed, fields: dict[str, Any], code: ErrorCode, words: tuple[str, ...], acks: int
) -> None:
    async with bed.unharmed() as channel:
        request = bed.produce(**{"acks": acks, **fields})
        (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, request, TIMEOUT_S)).results
        said(sent, code, *words)
        assert sent.base_offset == -1


async def test_one_bad_partition_does_not_spoil_the_request_of_the_others(bed: Bed) -> None:
    good, other = bed.produce().partitions[0], bed.produce(topic="nowhere").partitions[0]
    odd = bed.produce(topic="a/b", records=b"").partitions[0]

    async with bed.unharmed() as channel:
        end = await bed.end(channel)
        sent = await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(other, odd), TIMEOUT_S)
        assert [r.error_code for r in sent.results] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION]
        assert await bed.end(channel) == end
    async with bed.unharmed() as channel:
        sent = await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(good, good), TIMEOUT_S)
        for result in sent.results:
            said(result, E.INVALID_REQUEST, "partitions names one partition twice")
        many = tuple(bed.produce(partition=p).partitions[0] for p in range(10_001))
        sent = await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(*many), TIMEOUT_S)
        assert len(sent.results) == 10_001
        for result in sent.results:
            said(result, E.INVALID_REQUEST, "partitions holds 10001", "10000")
        nothing = await channel.call(
            s.REPLICA_SERVICE_PRODUCE, m.ProduceRequest(acks=-1, timeout_ms=0, partitions=()), TIMEOUT_S
        )
        assert nothing.results == ()


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


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "nowhere"}, E.UNKNOWN_TOPIC_OR_PARTITION, ("nowhere-0",)),
        ({"partition": -1}, E.UNKNOWN_TOPIC_OR_PARTITION, ("partition",)),
        ({"partition": INT32_MAX}, E.UNKNOWN_TOPIC_OR_PARTITION, ("2147483647",)),
        ({"topic_id": b"\xff" * 16}, E.UNKNOWN_TOPIC_ID, ("topic_id",)),
        ({"offset": -1}, E.OFFSET_OUT_OF_RANGE, ("offset -1", "outside 0..")),
        ({"offset": -2}, E.OFFSET_OUT_OF_RANGE, ("offset -2", "outside 0..")),
        ({"offset": INT64_MAX}, E.OFFSET_OUT_OF_RANGE, ("offset 9223372036854775807", "outside 0..")),
        ({"leader_epoch": -2}, E.FENCED_LEADER_EPOCH, ("leader_epoch -2",)),
        ({"leader_epoch": INT32_MAX}, E.UNKNOWN_LEADER_EPOCH, ("leader_epoch 2147483647",)),
        ({"last_fetched_epoch": -2}, E.INVALID_REQUEST, ("last_fetched_epoch is -2", "-1 (none)")),
        ({"max_bytes": 0}, E.INVALID_REQUEST, ("max_bytes is 0", "at least 1")),
        ({"max_bytes": -1}, E.INVALID_REQUEST, ("max_bytes is -1", "at least 1")),
        ({"part_max_bytes": 0}, E.INVALID_REQUEST, ("max_bytes is 0", "at least 1")),
        ({"part_max_bytes": -1}, E.INVALID_REQUEST, ("max_bytes is -1", "at least 1")),
        ({"min_bytes": -1}, E.INVALID_REQUEST, ("min_bytes is -1", "negative")),
        ({"max_wait_ms": -1}, E.INVALID_REQUEST, ("max_wait_ms is -1", "300000")),
        ({"max_wait_ms": INT32_MAX}, E.INVALID_REQUEST, ("max_wait_ms is 2147483647", "300000")),
    ],
)
async def test_a_wrong_number_in_a_fetch_request(
    bed: Bed, fields: dict[str, Any], code: ErrorCode, words: tuple[str, ...]
) -> None:
    async with bed.unharmed() as channel:
        # Whoever would wait half a minute for data hears of his mistake at once.
        request = bed.fetch(**{"max_wait_ms": 30_000, "min_bytes": 1 << 20, **fields})
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, request, 10.0)).results
        said(got, code, *words)
        assert got.records == b""


async def test_huge_numbers_in_a_fetch_request_that_are_no_fault(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        request = bed.fetch(max_bytes=INT32_MAX, part_max_bytes=INT32_MAX, min_bytes=INT32_MAX)
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, request, TIMEOUT_S)).results
        assert got.error_code is E.NONE
        newer = bed.fetch(offset=1, last_fetched_epoch=INT32_MAX)
        (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, newer, TIMEOUT_S)).results
        # No history says so here: the reader must begin anew, and gets nothing.
        said(got, E.OFFSET_OUT_OF_RANGE, "last_fetched_epoch 2147483647")
        assert got.records == b""


async def test_epochs_next_to_the_right_one(bed: Bed) -> None:
    """-1 claims none, the present one is right, and the next one is still to come."""

    async with bed.unharmed() as channel:
        for claimed, code in ((-1, E.NONE), (bed.epoch, E.NONE), (bed.epoch + 1, E.UNKNOWN_LEADER_EPOCH)):
            request = bed.fetch(leader_epoch=claimed)
            (got,) = (await channel.call(s.REPLICA_SERVICE_FETCH, request, TIMEOUT_S)).results
            assert got.error_code is code
        late = bed.produce(leader_epoch=bed.epoch + 1)
        (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, late, TIMEOUT_S)).results
        said(sent, E.UNKNOWN_LEADER_EPOCH, f"leader_epoch {bed.epoch + 1}")


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


async def test_a_produce_that_may_wait_for_nothing_is_appended_and_in_doubt(bed: Bed) -> None:
    """timeout_ms 0 with acks=all: whoever must wait for a follower is told that it took too long, not that it failed."""

    async with AsyncExitStack() as stack:
        channel = GrpcNet().channel(bed.address(bed.leader), purpose="test")
        stack.push_async_callback(channel.close)
        end = await bed.end(channel)
        (sent,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(timeout_ms=0), TIMEOUT_S)).results
        assert sent.error_code in (E.NONE, E.REQUEST_TIMED_OUT), sent
        async with asyncio.timeout(TIMEOUT_S):
            while await bed.end(channel) == end:  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.01)
    async with bed.unharmed():
        pass


async def test_too_many_partitions_and_one_twice(bed: Bed) -> None:
    (part,) = bed.fetch().partitions
    many = range(10_001)

    async with bed.unharmed() as channel:
        for result in (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(part, part), TIMEOUT_S)).results:
            said(result, E.INVALID_REQUEST, "partitions names one partition twice")
        parts = [bed.fetch(partition=p).partitions[0] for p in many]
        for result in (await channel.call(s.REPLICA_SERVICE_FETCH, bed.fetch(*parts), TIMEOUT_S)).results:
            said(result, E.INVALID_REQUEST, "partitions holds 10001", "10000")
        times = m.ListOffsetsRequest(
            partitions=tuple(
                m.ListOffsetsPartition(topic=bed.topic, partition=p, leader_epoch=-1, timestamp=-1) for p in many
            )
        )
        for found in (await channel.call(s.REPLICA_SERVICE_LIST_OFFSETS, times, TIMEOUT_S)).results:
            said(found, E.INVALID_REQUEST, "partitions holds 10001", "10000")
        epochs = m.OffsetForLeaderEpochRequest(
            partitions=tuple(
                m.EpochPartition(topic=bed.topic, partition=p, current_leader_epoch=-1, leader_epoch=0) for p in many
            )
        )
        ends = await channel.call(s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, epochs, TIMEOUT_S)
        assert {r.error_code for r in ends.results} == {E.INVALID_REQUEST}


async def test_wrong_times_and_epochs(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        for timestamp in (-4, -(2**63)):
            part = m.ListOffsetsPartition(topic=bed.topic, partition=0, leader_epoch=-1, timestamp=timestamp)
            request = m.ListOffsetsRequest(partitions=(part,))
            (found,) = (await channel.call(s.REPLICA_SERVICE_LIST_OFFSETS, request, TIMEOUT_S)).results
            said(found, E.INVALID_REQUEST, f"timestamp is {timestamp}", "-3 (largest)")
        late = m.ListOffsetsPartition(topic=bed.topic, partition=0, leader_epoch=-1, timestamp=INT64_MAX)
        stale = replace(late, timestamp=-1, topic_id=b"\xff" * 16)
        fenced = replace(late, leader_epoch=-2)
        request = m.ListOffsetsRequest(partitions=(late, stale, fenced))
        none, foreign, old = (await channel.call(s.REPLICA_SERVICE_LIST_OFFSETS, request, TIMEOUT_S)).results
        assert (none.error_code, none.offset, none.timestamp, none.leader_epoch) == (E.NONE, -1, -1, -1)
        said(foreign, E.UNKNOWN_TOPIC_ID, "topic_id")
        said(old, E.FENCED_LEADER_EPOCH, "leader_epoch -2")
        asked = m.EpochPartition(
            topic=bed.topic, partition=0, current_leader_epoch=-1, leader_epoch=0, topic_id=b"\xff" * 16
        )
        ends = await channel.call(
            s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, m.OffsetForLeaderEpochRequest(partitions=(asked,)), TIMEOUT_S
        )
        said(ends.results[0], E.UNKNOWN_TOPIC_ID, "topic_id")
        for epoch in (-1, -2, -(2**31), INT32_MAX):
            asked = m.EpochPartition(topic=bed.topic, partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            (end,) = (
                await channel.call(
                    s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH,
                    m.OffsetForLeaderEpochRequest(partitions=(asked,)),
                    TIMEOUT_S,
                )
            ).results
            assert (end.error_code, end.leader_epoch, end.end_offset) == (E.NONE, -1, -1)  # undefined
