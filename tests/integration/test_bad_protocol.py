"""Bad protocol to real brokers: calls by the wrong door, positions of unknown replicas, floods"""

import asyncio
import random
import socket
from typing import Any

import grpc
import pytest
from grpc import aio

from helpers.wide import wide
from helpers.wire import INT32_MAX, INT64_MAX, INTERNAL, TIMEOUT_S, Bed
from tidelog.errors import ErrorCode, TransportError
from tidelog.ports.net import Unary
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = pytest.mark.integration

E = ErrorCode


def raw_channel(channel: GrpcChannel) -> Any:
    """Bytes instead of messages, over the same connection."""
    return channel._channel


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


async def test_requests_of_two_million_empty_items_are_refused_whole(bed: Bed) -> None:
    """Also by a broker that would forward them, on a stream, and of items inside one item."""

    async with bed.unharmed(listener=INTERNAL) as channel:
        for method, path in (
            (s.REPLICA_SERVICE_FETCH, "partitions"),
            (s.REPLICA_SERVICE_PRODUCE_STREAM, "partitions"),
            (s.REPLICA_SERVICE_REPLICA_FETCH, "partitions"),
            (s.COORDINATOR_SERVICE_SESSION, "ping.offset_info"),
            (s.ADMIN_SERVICE_CREATE_TOPICS, "topics"),
            (s.ADMIN_SERVICE_ELECT_LEADERS, "topics.partitions"),
            (s.BROKER_CONTROL_LEADER_AND_ISR, "partition_states"),
        ):
            data = wide(method.request, path, 2 << 20)
            with pytest.raises(aio.AioRpcError) as caught:
                if isinstance(method, Unary):
                    await raw_channel(channel).unary_unary(method.path)(data, timeout=TIMEOUT_S)
                else:
                    call = raw_channel(channel).stream_stream(method.path)(timeout=TIMEOUT_S)
                    await call.write(data)
                    await call.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, (method, caught.value)
            assert f"INVALID_REQUEST: {path} holds " in (caught.value.details() or ""), caught.value


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
