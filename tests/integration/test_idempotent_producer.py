"""HOLE-28 with real processes: what was appended and not answered, retry storms, and producer ids of several brokers."""

import asyncio

import pytest

from helpers.batches import batch
from helpers.cluster import MakeCluster, unique_topic
from helpers.requirements import requirement
from helpers.wire import INT32_MAX, INT64_MAX, TIMEOUT_S, Bed
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import State, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.batch import numbered

pytestmark = pytest.mark.integration


async def everything(servers: str, topic: str) -> list[bytes | None]:
    tp = TopicPartition(topic, 0)
    async with Consumer(servers) as consumer:
        end = (await consumer.end_offsets([tp]))[tp]
        await consumer.assign([tp])
        records: list[bytes | None] = []
        while await consumer.position(tp) < end:
            records += [record.value for record in await consumer.poll(timeout_s=5.0)]
        return records


async def sent(bed: Bed, leader: int, records: bytes, acks: int = -1) -> m.ProduceResult:
    channel = GrpcNet().channel(bed.address(leader), purpose="test")
    try:
        request = bed.produce(records=records, acks=acks)
        return (await channel.call(s.REPLICA_SERVICE_PRODUCE, request, TIMEOUT_S)).results[0]
    finally:
        await channel.close()


async def identity(bed: Bed, broker: int, producer_id: int = -1, epoch: int = -1) -> m.InitProducerIdResponse:
    channel = GrpcNet().channel(bed.address(broker), purpose="test")
    try:
        request = m.InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        return await channel.call(s.REPLICA_SERVICE_INIT_PRODUCER_ID, request, TIMEOUT_S)
    finally:
        await channel.close()


@requirement("A leader crash after the append keeps all copies or none")
@requirement("A leader killed between append and ack stores all or nothing")
@pytest.mark.timeout(240)
async def test_a_leader_killed_after_the_append_leaves_all_or_nothing_and_no_duplicate(
    make_cluster: MakeCluster,
) -> None:
    cluster = await asyncio.to_thread(make_cluster)
    servers = bootstrap_servers(cluster)

    bed = await Bed.make(cluster)
    producer_id = (await identity(bed, bed.leader)).producer_id
    expected: list[bytes] = []
    async with AdminClient(servers) as admin:
        for acks in (1, -1):  # answered after the append by the leader alone; by all of them
            found = await admin.wait_until_led(bed.topic, in_sync=True, timeout_s=60.0)
            leader = found.partitions[0].leader
            values = [b"%d-%d" % (acks, n) for n in range(2)]
            records = numbered(batch(*values), producer_id, 0, len(expected))
            first = await sent(bed, leader, records, acks=acks)  # from here on its answer counts as lost
            assert (first.error_code, first.base_offset) == (ErrorCode.NONE, len(expected))
            await asyncio.to_thread(cluster.kill, broker_name(leader))
            now = leader
            while now in (leader, -1):
                now = (await admin.describe_topic(bed.topic)).partitions[0].leader
                await asyncio.sleep(0.05)
            again = await sent(bed, now, records)
            while again.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                again = await sent(bed, now, records)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, len(expected)), again
            expected += values
            assert await everything(servers, bed.topic) == expected
            await asyncio.to_thread(cluster.start, broker_name(leader))
        await admin.wait_until_led(bed.topic, in_sync=True, timeout_s=60.0)
        # The one that had been killed last leads again, and has rebuilt what it knew from its log.
        repeated = numbered(batch(b"1-0", b"1-1"), producer_id, 0, 0)
        leader = (await admin.describe_topic(bed.topic)).partitions[0].leader
        assert (await sent(bed, leader, repeated)).base_offset == 0
    assert await everything(servers, bed.topic) == expected


@requirement("Retries across leader changes keep records unique and in order")
@pytest.mark.timeout(180)
async def test_a_storm_of_retries_is_stored_once_and_in_order(
    shared_cluster: LocalCluster, shared_servers: str
) -> None:
    topic = unique_topic("storm")
    count = 3_000

    try:
        async with AdminClient(shared_servers) as admin:
            await admin.create_topic(topic, 1, 3)
            leader = broker_name((await admin.wait_until_led(topic, in_sync=True)).partitions[0].leader)
        async with Producer(shared_servers, batch_bytes=2_000, request_timeout_ms=300) as producer:
            acks = []
            for number in range(count):
                acks.append(await producer.send(topic, b"%d" % number))
                if number == count // 3:
                    await acks[0]
                    await asyncio.to_thread(shared_cluster.pause, leader)
                if number == 2 * count // 3:
                    # Long enough for several retries of everything, all of which it finds when it wakes up.
                    await asyncio.sleep(4.0)
                    await asyncio.to_thread(shared_cluster.resume, leader)
            await asyncio.gather(*acks)
        # Its session may have ended all the same, and those who come next find three brokers.
        async with AdminClient(shared_servers) as admin:
            await admin.wait_until_led(topic, in_sync=True, timeout_s=60.0)
        assert await everything(shared_servers, topic) == [b"%d" % number for number in range(count)]
    finally:
        for row in shared_cluster.status():
            if row.state is State.PAUSED:
                shared_cluster.resume(row.name)


@requirement("A producer batch that is sent again is stored once")
async def test_brokers_give_different_ids_and_the_next_epoch_of_any(bed: Bed) -> None:
    given = [await identity(bed, broker) for broker in (0, 1, 2, 0, 1, 2)]
    assert {each.error_code for each in given} == {ErrorCode.NONE}
    assert len({each.producer_id for each in given}) == 6
    next_epoch = await identity(bed, 1, given[0].producer_id, 0)
    assert (next_epoch.producer_id, next_epoch.producer_epoch) == (given[0].producer_id, 1)
    renewed = await identity(bed, 1, given[0].producer_id, 2**15 - 1)
    assert renewed.producer_id not in {each.producer_id for each in given} and renewed.producer_epoch == 0


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    ("producer_id", "epoch"),
    [(-2, -1), (-1, 0), (0, -1), (5, 2**15), (5, INT32_MAX), (5, -(2**31)), (-(2**63), 0), (INT64_MAX, -1)],
)
async def test_half_an_identity_is_refused(bed: Bed, producer_id: int, epoch: int) -> None:
    async with bed.unharmed() as channel:
        request = m.InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        answer = await channel.call(s.REPLICA_SERVICE_INIT_PRODUCER_ID, request, TIMEOUT_S)
        assert answer.error_code is ErrorCode.INVALID_REQUEST
        assert str(producer_id if producer_id < 0 else epoch) in answer.error_message


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (3, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 9, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (4, INT32_MAX, ErrorCode.UNKNOWN_PRODUCER_ID),
        (5, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (-1, 0, ErrorCode.INVALID_RECORD),
        (4, -1, ErrorCode.INVALID_RECORD),
    ],
)
async def test_bad_sequences_are_refused(bed: Bed, epoch: int, sequence: int, code: ErrorCode) -> None:
    producer_id = (await identity(bed, bed.leader)).producer_id
    assert (await sent(bed, bed.leader, numbered(batch(b"v"), producer_id, 4, 0))).error_code is ErrorCode.NONE
    async with bed.unharmed() as channel:
        request = bed.produce(records=numbered(batch(b"v"), producer_id, epoch, sequence))
        (result,) = (await channel.call(s.REPLICA_SERVICE_PRODUCE, request, TIMEOUT_S)).results
        assert result.error_code is code, result
        assert "producer" in result.error_message or "sequence" in result.error_message
