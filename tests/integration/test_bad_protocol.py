"""Bad protocol to real brokers: garbage, unknown methods, calls by the wrong door, old controllers, floods"""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from helpers.requirements import requirement
from helpers.wire import INT32_MAX, INT64_MAX, INTERNAL, TIMEOUT_S, Bed
from tidelog.errors import ErrorCode, TransportError
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = pytest.mark.integration

E = ErrorCode


async def raw(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call()
    return caught.value.code(), caught.value.details() or ""


def raw_channel(channel: GrpcChannel) -> Any:
    """Bytes instead of messages, over the same connection."""
    return channel._channel


UNARY = [
    method
    for name, method in vars(s).items()
    if name.isupper() and isinstance(method, s.Unary) and "ControllerService" not in method.path
]


@pytest.mark.parametrize("garbage", [b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\x80" * 12, b"\x22\x05ab"])
async def test_garbage_instead_of_a_message(bed: Bed, garbage: bytes) -> None:
    async with bed.unharmed(listener=INTERNAL) as channel:
        for method in UNARY:
            code, detail = await raw(
                lambda path=method.path: raw_channel(channel).unary_unary(path)(garbage, timeout=TIMEOUT_S)
            )
            assert code is grpc.StatusCode.INVALID_ARGUMENT, (method.path, code, detail)
            assert f"INVALID_REQUEST: not a {method.request.__name__}" in detail
        for stream in (s.REPLICA_SERVICE_REPLICA_FETCH, s.BROKER_CONTROL_LIVENESS):
            call = raw_channel(channel).stream_stream(stream.path)()
            await call.write(garbage)
            code, detail = await raw(call.read)
            assert code is grpc.StatusCode.INVALID_ARGUMENT, (stream.path, code, detail)
            assert f"INVALID_REQUEST: not a {stream.request.__name__}" in detail


async def test_fields_that_nobody_knows_are_dropped(bed: Bed) -> None:
    """A newer client may send them: tag 1000, a varint and bytes."""
    from tidelog.wire.codec import decode, encode

    async with bed.unharmed() as channel:
        data = encode(bed.fetch()) + b"\xc0\x3e\x07" + b"\xc2\x3e\x03abc"
        answer = await raw_channel(channel).unary_unary(s.REPLICA_SERVICE_FETCH.path)(data, timeout=TIMEOUT_S)
        assert [r.error_code for r in decode(m.FetchResponse, answer).results] == [E.NONE]


async def test_an_unknown_method_is_unimplemented(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        for path in ("/tidelog.v1.ReplicaService/Nope", "/tidelog.v9.ReplicaService/Produce", "/x/y", "nothing"):
            code, _ = await raw(lambda path=path: raw_channel(channel).unary_unary(path)(b"", timeout=TIMEOUT_S))
            assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_what_only_servers_may_call_is_not_there_for_clients(bed: Bed) -> None:
    """Reliability D9: whoever reaches the EXTERNAL listener must not be able to make itself controller or replica."""
    who: dict[str, Any] = dict(
        controller_id=9, controller_epoch=INT32_MAX, broker_epoch=INT64_MAX, sequence=INT64_MAX, full=True
    )
    told = m.LeaderAndIsrRequest(**who, leader_throttle=0, follower_throttle=0)
    stop = m.StopReplicaRequest(controller_id=9, controller_epoch=INT32_MAX, broker_epoch=INT64_MAX, sequence=INT64_MAX)
    update = m.UpdateMetadataRequest(**who, leader_throttle=0, follower_throttle=0)
    isr = m.AlterIsrRequest(broker_id=bed.follower, broker_epoch=1, controller_epoch=INT32_MAX, sequence=INT64_MAX)

    async with bed.unharmed() as channel:
        for method, request in (
            (s.BROKER_CONTROL_LEADER_AND_ISR, told),
            (s.BROKER_CONTROL_STOP_REPLICA, stop),
            (s.BROKER_CONTROL_UPDATE_METADATA, update),
            (s.CONTROLLER_SERVICE_ALTER_ISR, isr),
        ):
            with pytest.raises(TransportError, match="UNIMPLEMENTED"):
                await channel.call(method, request, TIMEOUT_S)
        for stream in (s.REPLICA_SERVICE_REPLICA_FETCH, s.BROKER_CONTROL_LIVENESS):
            with pytest.raises(TransportError, match="UNIMPLEMENTED"):
                await channel.open(stream).read()


async def test_commands_of_an_old_controller_and_for_another_life_change_nothing(bed: Bed) -> None:
    """HOLE-07, HOLE-11: the epochs of both sides are judged before anything else."""

    async def broker_epoch(channel: GrpcChannel) -> int:
        cluster = await channel.call(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), TIMEOUT_S)
        return next(b.broker.broker_epoch for b in cluster.brokers if b.broker.broker_id == bed.leader)

    async with bed.unharmed(listener=INTERNAL) as channel:
        life = await broker_epoch(channel)
        state = m.PartitionState(
            topic=bed.topic,
            topic_id=bed.topic_id,
            partition=0,
            controller_epoch=0,
            leader=bed.follower,
            leader_epoch=bed.epoch + 100,
            partition_epoch=INT32_MAX,
            replicas=(bed.follower,),
        )
        gone = m.StopReplicaPartition(
            topic=bed.topic, topic_id=bed.topic_id, partition=0, leader_epoch=-2, delete_partition=True
        )
        for controller_epoch, epoch, code in (
            (0, life, E.STALE_CONTROLLER_EPOCH),
            (-1, life, E.STALE_CONTROLLER_EPOCH),
            (INT32_MAX, life - 1, E.STALE_BROKER_EPOCH),
            (INT32_MAX, -1, E.STALE_BROKER_EPOCH),
            (INT32_MAX, INT64_MAX, E.STALE_BROKER_EPOCH),
        ):
            who: dict[str, Any] = dict(
                controller_id=9, controller_epoch=controller_epoch, broker_epoch=epoch, sequence=INT64_MAX
            )
            full: dict[str, Any] = dict(**who, full=True, leader_throttle=0, follower_throttle=0)
            told = m.LeaderAndIsrRequest(**full, partition_states=(state,))
            assert (await channel.call(s.BROKER_CONTROL_LEADER_AND_ISR, told, TIMEOUT_S)).error_code is code
            stop = m.StopReplicaRequest(**who, partitions=(gone,))
            assert (await channel.call(s.BROKER_CONTROL_STOP_REPLICA, stop, TIMEOUT_S)).error_code is code
            news = m.UpdateMetadataRequest(**full, deleted_topics=(bed.topic,))
            assert (await channel.call(s.BROKER_CONTROL_UPDATE_METADATA, news, TIMEOUT_S)).error_code is code


@pytest.mark.parametrize("replica", [99, INT32_MAX])
async def test_a_position_of_an_unknown_replica_gets_no_records(bed: Bed, replica: int) -> None:
    position = m.ReplicaPosition(
        topic=bed.topic,
        topic_id=bed.topic_id,
        partition=0,
        leader_epoch=bed.epoch,
        offset=0,
        last_fetched_epoch=-1,
        log_start_offset=0,
    )

    async with bed.unharmed(listener=INTERNAL) as channel:
        stream = channel.open(s.REPLICA_SERVICE_REPLICA_FETCH)
        await stream.write(
            m.ReplicaFetchRequest(replica_id=replica, broker_epoch=1, acked_chunk=0, partitions=(position,))
        )
        answer = await stream.read()
        assert answer is not None
        assert [(p.error_code, p.records) for p in answer.partitions] == [(E.UNKNOWN_TOPIC_OR_PARTITION, b"")]
        stream.cancel()


async def test_a_replica_id_below_zero_ends_the_stream(bed: Bed) -> None:
    async with bed.unharmed(listener=INTERNAL) as channel:
        stream = channel.open(s.REPLICA_SERVICE_REPLICA_FETCH)
        await stream.write(m.ReplicaFetchRequest(replica_id=-1, broker_epoch=1, acked_chunk=0))
        with pytest.raises(TransportError, match=r"INVALID_ARGUMENT.*INVALID_REQUEST: replica_id is -1"):
            await stream.read()


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_a_request_over_the_size_limit_is_refused_before_it_is_read(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        for size in ((4 << 20) + (64 << 10) + 1, 30 << 20):
            with pytest.raises(TransportError, match=r"RESOURCE_EXHAUSTED.*larger than max"):
                await channel.call(s.REPLICA_SERVICE_PRODUCE, bed.produce(records=bytes(size)), TIMEOUT_S)


async def test_huge_call_metadata_is_refused(bed: Bed) -> None:
    async with bed.unharmed(keeps_connection=False) as channel:
        call = raw_channel(channel).unary_unary(s.ADMIN_SERVICE_DESCRIBE_CLUSTER.path)
        code, _ = await raw(lambda: call(b"", timeout=TIMEOUT_S, metadata=[("x-big", "x" * (1 << 20))]))
        assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 4096,
        random.Random(3).randbytes(65536),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["http1", "zeros", "random", "half-open"],
)
async def test_what_is_no_grpc_at_all_disturbs_nobody(bed: Bed, sent: bytes) -> None:
    async with bed.unharmed() as channel:
        with socket.create_connection(bed.address(bed.leader), timeout=5.0) as connection:
            try:
                connection.sendall(sent)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server has seen enough
            assert await bed.end(channel) >= 0


async def test_a_storm_of_cancelled_calls_leaves_nothing_behind(bed: Bed) -> None:
    """Rapid reset (reliability 7.2, protocol): 2,000 long polls that nobody waits for."""

    async with bed.unharmed() as channel:
        from tidelog.wire.codec import encode

        end = await bed.end(channel)
        data = encode(bed.fetch(offset=end, max_wait_ms=60_000))
        method = raw_channel(channel).unary_unary(s.REPLICA_SERVICE_FETCH.path)
        for _ in range(10):
            calls = [method(data, timeout=60) for _ in range(200)]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
