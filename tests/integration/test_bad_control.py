"""Bad requests to the active controller and to a broker's inner door: replays, doubles, missing parts, slow and idle peers."""

import asyncio
import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from helpers.aio import run
from helpers.cluster import unique_topic
from helpers.requirements import requirement
from helpers.wire import INT32_MAX, INT64_MAX, INTERNAL, TIMEOUT_S, Bed
from tidelog.client.admin import AdminClient
from tidelog.cluster.api import CONTROLLER, bootstrap_servers, broker_name
from tidelog.cluster.ready import wait_ready
from tidelog.errors import ErrorCode
from tidelog.ids import Address
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import decode

pytestmark = pytest.mark.integration

E = ErrorCode
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
IDLE = 4_000
"""Connections that say nothing. Each costs this test a file, and both ends are of one machine."""


def frame(kind: int, payload: bytes = b"", stream: int = 0, flags: int = 0) -> bytes:
    """Of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


SETTINGS, GOAWAY = frame(4), frame(7, struct.pack(">II", 0, 0))


@pytest.fixture(scope="module", autouse=True)
def a_new_life_afterwards(bed: Bed) -> Iterator[None]:
    """These tests ask in the leader's name, under numbers that it will reach late: the rest of its life is not heard."""
    yield
    bed.cluster.kill(broker_name(bed.leader))
    bed.cluster.start(broker_name(bed.leader))
    wait_ready(bed.cluster, 60.0)

    async def in_sync() -> None:
        async with AdminClient(bootstrap_servers(bed.cluster)) as admin:
            await admin.wait_until_led(bed.topic, in_sync=True, timeout_s=60.0)

    run(in_sync())


async def active_controller(bed: Bed, stack: AsyncExitStack) -> GrpcChannel:
    """A channel to the one that answers as such."""
    for row in bed.cluster.status():
        if row.kind == CONTROLLER:
            (address, *_) = bed.cluster.plan[row.name].addresses.values()
            channel = GrpcNet().channel(address, purpose="test")
            stack.push_async_callback(channel.close)
            answer = await channel.call(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), TIMEOUT_S)
            if answer.error_code is E.NONE:
                return channel
    raise AssertionError("no controller is active")


@dataclass(frozen=True)
class Known:
    """What an asker knows of the cluster."""

    term: int
    lives: dict[int, int]
    """The epoch of every broker."""


SEQUENCES = itertools.count(1_000)
"""Above those of the brokers themselves, which have asked a few times."""


async def described(bed: Bed, channel: GrpcChannel) -> tuple[m.PartitionDescription, Known]:
    """Partition 0, and who is there."""
    topics = await channel.call(s.ADMIN_SERVICE_DESCRIBE_TOPICS, m.DescribeTopicsRequest(names=(bed.topic,)), TIMEOUT_S)
    cluster = await channel.call(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), TIMEOUT_S)
    lives = {b.broker.broker_id: b.broker.broker_epoch for b in cluster.brokers}
    return topics.topics[0].partitions[0], Known(cluster.controller_epoch, lives)


def alter_isr(
    bed: Bed, state: m.PartitionDescription, known: Known, isr: tuple[int, ...], **fields: Any
) -> m.AlterIsrRequest:
    """As the leader would ask, but for `fields`."""
    wanted = m.LeaderAndIsr(
        leader=bed.leader,
        leader_epoch=fields.get("leader_epoch", state.leader_epoch),
        isr=tuple(m.IsrMember(broker_id=each, broker_epoch=known.lives.get(each, 1)) for each in isr),
        current_zk_version=fields.get("version", state.partition_epoch),
    )
    part = m.AlterIsrPartition(partition_id=fields.get("partition", 0), leader_and_isr=wanted)
    topic = m.AlterIsrTopic(
        topic=fields.get("topic", bed.topic), topic_id=fields.get("topic_id", bed.topic_id), partitions=(part,)
    )
    return m.AlterIsrRequest(
        broker_id=fields.get("asker", bed.leader),
        broker_epoch=known.lives[bed.leader] + fields.get("life", 0),
        controller_epoch=fields.get("term", known.term),
        sequence=fields.get("sequence", next(SEQUENCES)),
        topics=(topic,) * fields.get("times", 1),
    )


BAD_ALTER_ISR: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "an older life": ({"life": -1}, E.STALE_BROKER_EPOCH),
    "a newer life": ({"life": 1}, E.STALE_BROKER_EPOCH),
    "nobody": ({"asker": 99}, E.STALE_BROKER_EPOCH),
    "below zero": ({"asker": -1}, E.STALE_BROKER_EPOCH),
    "an older term": ({"term": 0}, E.STALE_CONTROLLER_EPOCH),
    "term -1": ({"term": -1}, E.STALE_CONTROLLER_EPOCH),
    "term 2^31-1": ({"term": INT32_MAX}, E.NOT_CONTROLLER),
    "sequence 0": ({"sequence": 0}, E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "sequence -1": ({"sequence": -1}, E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "leader epoch -1": ({"leader_epoch": -1}, E.FENCED_LEADER_EPOCH),
    "leader epoch 2^31-1": ({"leader_epoch": INT32_MAX}, E.NOT_CONTROLLER),
    "version 2^31-1": ({"version": INT32_MAX}, E.NOT_CONTROLLER),
    "version -1": ({"version": -1}, E.INVALID_UPDATE_VERSION),
    "partition -1": ({"partition": -1}, E.UNKNOWN_TOPIC_OR_PARTITION),
    "partition 2^31-1": ({"partition": INT32_MAX}, E.UNKNOWN_TOPIC_OR_PARTITION),
    "no topic": ({"topic": "../x"}, E.UNKNOWN_TOPIC_OR_PARTITION),
    "another topic's id": ({"topic_id": bytes(16)}, E.UNKNOWN_TOPIC_ID),
    "empty": ({"isr": ()}, E.INVALID_REQUEST),
    "a stranger": ({"isr": "stranger"}, E.INVALID_REQUEST),
    "a broker twice": ({"isr": "twice"}, E.INVALID_REQUEST),
}


@requirement("An unfit sender or receiver fails AlterIsr as a whole")
@requirement("FENCED_LEADER_EPOCH means that a newer leader exists")
@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
@requirement("An ISR proposal on an outdated version is refused")
@requirement("AlterIsr reports a topic that is gone")
@pytest.mark.parametrize("what", BAD_ALTER_ISR)
async def test_a_bad_alter_isr_is_answered_and_changes_nothing(bed: Bed, what: str) -> None:
    given, code = BAD_ALTER_ISR[what]
    fields = {key: value for key, value in given.items() if key != "isr"}

    async with AsyncExitStack() as stack:
        channel = await active_controller(bed, stack)
        before, known = await described(bed, channel)
        await channel.call(s.CONTROLLER_SERVICE_ALTER_ISR, alter_isr(bed, before, known, before.isr), TIMEOUT_S)
        isr = {"stranger": (bed.leader, 77), "twice": (bed.leader, bed.leader), (): ()}.get(
            given.get("isr", "one"), (bed.leader,)
        )
        request = alter_isr(bed, before, known, isr, **fields)
        answer = await channel.call(s.CONTROLLER_SERVICE_ALTER_ISR, request, TIMEOUT_S)
        items = [part.error_code for topic in answer.topics for part in topic.partitions]
        assert (items or [answer.error_code]) == [code]
        assert (await described(bed, channel))[0] == before


@requirement("A repeated AlterIsr succeeds once its ISR is in force")
async def test_a_captured_alter_isr_can_be_replayed_also_in_parallel(bed: Bed) -> None:
    """It is judged once; under a number of its own, what asks for the same is success without a write."""

    async with AsyncExitStack() as stack:
        channel = await active_controller(bed, stack)
        before, known = await described(bed, channel)
        old = {"isr": (bed.leader,), "version": before.partition_epoch - 1}
        for fields, code in (({"isr": before.isr}, E.NONE), (old, E.INVALID_UPDATE_VERSION)):
            captured = alter_isr(bed, before, known, **fields)
            answers = await asyncio.gather(
                *(channel.call(s.CONTROLLER_SERVICE_ALTER_ISR, captured, TIMEOUT_S) for _ in range(20))
            )
            judged = [part.error_code for answer in answers for each in answer.topics for part in each.partitions]
            assert judged == [code]
            assert [answer.error_code for answer in answers].count(E.OUT_OF_ORDER_SEQUENCE_NUMBER) == 19
            again = await channel.call(
                s.CONTROLLER_SERVICE_ALTER_ISR, alter_isr(bed, before, known, **fields), TIMEOUT_S
            )
            assert again.topics[0].partitions[0].error_code is code
        assert (await described(bed, channel))[0] == before


async def test_a_message_without_its_parts_and_a_partition_named_ten_thousand_times(bed: Bed) -> None:
    """A missing message is one of zeros (proto3); each item of a request gets its own answer."""

    async with AsyncExitStack() as stack:
        channel = await active_controller(bed, stack)
        before, known = await described(bed, channel)
        name, epoch = bed.topic.encode(), known.lives[bed.leader]
        # {broker_id, broker_epoch, controller_epoch, sequence, topics {topic, partitions {}}}: no LeaderAndIsr in it.
        topic = b"\x0a" + bytes([len(name)]) + name + b"\x1a\x00"
        numbers = _varints((1, bed.leader), (2, epoch), (4, known.term), (5, next(SEQUENCES)))
        data = numbers + b"\x1a" + bytes([len(topic)]) + topic
        path = s.CONTROLLER_SERVICE_ALTER_ISR.path
        raw = await channel._channel.unary_unary(path)(data, timeout=TIMEOUT_S)
        answer = decode(m.AlterIsrResponse, raw)
        (part,) = answer.topics[0].partitions
        assert part.error_code in (E.FENCED_LEADER_EPOCH, E.INVALID_REQUEST, E.INVALID_UPDATE_VERSION)
        many = alter_isr(bed, before, known, before.isr, times=10_000)
        answer = await channel.call(s.CONTROLLER_SERVICE_ALTER_ISR, many, TIMEOUT_S)
        codes = [part.error_code for each in answer.topics for part in each.partitions]
        assert len(codes) == 10_000 and set(codes) == {E.NONE}
        assert (await described(bed, channel))[0] == before


def _varints(*fields: tuple[int, int]) -> bytes:
    out = bytearray()
    for number, value in fields:
        out.append(number << 3)
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


async def test_the_same_topic_created_twice_at_once_is_created_once(bed: Bed) -> None:
    async with bed.unharmed() as channel:
        topic = m.NewTopic(name=unique_topic("twice"), num_partitions=1, replication_factor=3)
        request = m.CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
        answers = await asyncio.gather(
            *(channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, request, TIMEOUT_S) for _ in range(10))
        )
        codes = sorted(answer.topics[0].error_code for answer in answers)
        assert codes == [E.NONE] + [E.TOPIC_ALREADY_EXISTS] * 9


async def test_an_error_code_that_nobody_knows_is_an_error(bed: Bed) -> None:
    """A wrong enum, in a follower's position: read as an unknown error, so nothing is sent."""
    part = b"\x0a" + bytes([len(bed.topic)]) + bed.topic.encode() + b"\x12\x10" + bed.topic_id
    part += _varints((4, bed.epoch)) + b"\x38\x8f\x4e"  # error_code 9999

    async with bed.unharmed(listener=INTERNAL) as channel:
        stream = channel._channel.stream_stream(s.REPLICA_SERVICE_REPLICA_FETCH.path)()
        await stream.write(_varints((1, 99), (2, 1)) + b"\x22" + bytes([len(part)]) + part)
        answer = decode(m.ReplicaFetchResponse, await stream.read())
        assert [(p.error_code, p.records) for p in answer.partitions] == [(E.UNKNOWN_TOPIC_OR_PARTITION, b"")]
        stream.cancel()


async def test_a_control_request_that_was_overtaken_in_the_network_changes_nothing(bed: Bed) -> None:
    """N08: whoever replays what the active controller sent earlier has the right epochs and an old number."""

    async with AsyncExitStack() as stack:
        controller = await active_controller(bed, stack)
        _, known = await described(bed, controller)
        cluster = await controller.call(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest(), TIMEOUT_S)
        who: dict[str, Any] = {
            "controller_id": cluster.controller_id,
            "controller_epoch": cluster.controller_epoch,
            "broker_epoch": known.lives[bed.leader],
            "leader_throttle": 0,
            "follower_throttle": 0,
        }
        async with bed.unharmed(listener=INTERNAL) as channel:
            for sequence in (0, -1, -INT64_MAX):
                told = m.LeaderAndIsrRequest(**who, sequence=sequence, full=True)  # would remove every partition
                answer = await channel.call(s.BROKER_CONTROL_LEADER_AND_ISR, told, TIMEOUT_S)
                assert answer.error_code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
                gone = m.UpdateMetadataRequest(**who, sequence=sequence, full=True)
                news = await channel.call(s.BROKER_CONTROL_UPDATE_METADATA, gone, TIMEOUT_S)
                assert news.error_code is E.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_requests_after_goaway_and_streams_that_drip_disturb_nobody(bed: Bed) -> None:
    """A peer that says good-bye and goes on, and slow-loris ones that send a byte at a time."""

    async with bed.unharmed() as channel:
        with ExitStack() as stack:
            drips = [stack.enter_context(_connected(bed.address(bed.leader))) for _ in range(50)]
            for byte in PREFACE + SETTINGS + frame(1, b"\x82" * 3, stream=1)[:-2]:
                for each in drips:
                    each.sendall(bytes([byte]))
            with _connected(bed.address(bed.leader)) as rude:
                rude.sendall(PREFACE + SETTINGS + GOAWAY)
                try:
                    for stream in range(1, 400, 2):
                        rude.sendall(frame(1, b"\x82\x87", stream=stream, flags=5))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the server has seen enough
            assert await bed.end(channel) >= 0


@requirement("A broker at its limits refuses requests and loses nothing")
async def test_thousands_of_idle_connections_cost_little_and_disturb_nobody(bed: Bed) -> None:
    pid = bed.pids()[broker_name(bed.leader)]
    process = psutil.Process(pid)
    before = process.memory_info().rss
    async with bed.unharmed() as channel:
        with ExitStack() as stack:
            for _ in range(IDLE):
                stack.enter_context(_connected(bed.address(bed.leader)))
            assert await bed.end(channel) >= 0
            assert process.memory_info().rss - before < IDLE * (64 << 10)


def _connected(address: Address) -> socket.socket:
    return socket.create_connection(tuple(address), timeout=5.0)
