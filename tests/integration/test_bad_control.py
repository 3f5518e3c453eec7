"""Bad requests to a broker: an unknown error code at the inner door, slow and idle peers."""

import socket
import struct
from contextlib import ExitStack

import psutil
import pytest

from helpers.requirements import requirement
from helpers.wire import INTERNAL, Bed
from tidelog.cluster.api import broker_name
from tidelog.errors import ErrorCode
from tidelog.ids import Address
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


def _varints(*fields: tuple[int, int]) -> bytes:
    out = bytearray()
    for number, value in fields:
        out.append(number << 3)
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


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
