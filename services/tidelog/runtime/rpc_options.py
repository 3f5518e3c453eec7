"""The options of every gRPC channel and server, each with its reason, and the status of every error.

grpc's own defaults suit other systems. Nothing here imports grpc: the simulated network answers with the same statuses.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.runtime.tasks import HandlerBug
from tidelog.sizes import (
    CONNECTION_RESPONSES_BYTES,
    FETCH_MAX_BYTES,
    REQUEST_MAX_BYTES,
    RESPONSES_BYTES,
    SLACK_BYTES,
)

ChannelOptions = list[tuple[str, int | str]]

_KEEPALIVE: Final[ChannelOptions] = [
    # A half-open connection is found in 4 s: before a ZooKeeper session of 6 s has ended.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # the one that counts in 1.75; it is a minute by default
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

_FRAMES: Final[ChannelOptions] = [
    # A chunk of replication is up to 1 MiB: by default HTTP/2 cuts it into 64 frames, each with its own price at both ends.
    ("grpc.http2.max_frame_size", 1 << 20),
]

_MAX_METADATA_BYTES: Final = 16 << 10

CONNECTIONS: Final = 1_000_000
"""Most connections that a listener may be told to accept: gRPC ends the process if it is told of many more."""

CONNECTS_WITHIN_S: Final = 2.0

MEANT_FOR: Final = "tidelog-to"
"""The key of the metadata that names the address a call is meant for, as the server advertises it."""
MISROUTED: Final = "MISROUTED"
"""The detail of the status begins with it when a call has reached another server."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest message that is received; a larger one is RESOURCE_EXHAUSTED, and the connection lives on."""

    request_bytes: int = REQUEST_MAX_BYTES
    answer_bytes: int = FETCH_MAX_BYTES
    responses_bytes: int = RESPONSES_BYTES
    connection_responses_bytes: int = CONNECTION_RESPONSES_BYTES
    """Responses that are under way may hold so much, in all and on one connection."""
    connections: int = CONNECTIONS
    """Most connections that a listener accepts. A further one is closed at once."""

    @property
    def sent_bytes(self) -> int:
        """The largest message that a server sends."""
        return _whole(self.answer_bytes)


def _whole(records_bytes: int) -> int:
    """The size of a message with so many bytes of records; gRPC takes no larger number than an int32."""
    return min(records_bytes + SLACK_BYTES, 2**31 - 1)


def server_options(limits: Limits) -> ChannelOptions:
    return [
        *_KEEPALIVE,
        *_FRAMES,
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", _whole(limits.request_bytes)),
        ("grpc.max_send_message_length", limits.sent_bytes),
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.max_concurrent_streams", 10_000),
        # Idle connections must not take the descriptors that logs need. One that sends nothing is closed after 10 s; gRPC's
        # default is two minutes.
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", 10_000),
        # With it a second process listens at the same port, unnoticed, and gets every other connection.
        ("grpc.so_reuseport", 0),
        # From 1.83 on a burst of a few thousand parked calls is cancelled without these (performance 0.2).
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ]


def channel_options(limits: Limits, purpose: str) -> ChannelOptions:
    return [
        *_KEEPALIVE,
        *_FRAMES,
        ("grpc.max_receive_message_length", limits.sent_bytes),
        ("grpc.max_send_message_length", -1),  # the receiver knows its limit
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.primary_user_agent", f"tidelog-{purpose}"),
        # One connection a channel: a 1 MiB chunk on one must not delay LeaderAndIsr on the other (performance 4.16).
        ("grpc.use_local_subchannel_pool", 1),
        # A failover has to be over within a second, so a peer that is back must be found in a part of it.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.min_reconnect_backoff_ms", int(CONNECTS_WITHIN_S * 1000)),  # of one attempt, in spite of its name
        # A container that comes back has another address; the default asks the name server twice a minute.
        ("grpc.dns_min_time_between_resolutions_ms", 500),
        # Who retries knows what a lost answer means; a hidden layer below does not (HOLE-21).
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]


_STATUS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "INTERNAL",
    ErrorCode.CORRUPT_MESSAGE: "INVALID_ARGUMENT",
    ErrorCode.INVALID_REQUEST: "INVALID_ARGUMENT",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "INVALID_ARGUMENT",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "NOT_FOUND",
    ErrorCode.UNKNOWN_TOPIC_ID: "NOT_FOUND",
    ErrorCode.TOPIC_ALREADY_EXISTS: "ALREADY_EXISTS",
    ErrorCode.MESSAGE_TOO_LARGE: "RESOURCE_EXHAUSTED",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "PERMISSION_DENIED",
    ErrorCode.REQUEST_TIMED_OUT: "DEADLINE_EXCEEDED",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "UNAVAILABLE",
    ErrorCode.LEADER_NOT_AVAILABLE: "UNAVAILABLE",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "UNAVAILABLE",  # nothing was done, and there may be room later
    ErrorCode.NOT_CONTROLLER: "UNAVAILABLE",  # of a broker that knows of none yet: nothing was done, others may know
}


_REFUSALS: Final = frozenset({"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"})
"""Statuses of a call that a handler forwarded: the request, or the answer to it, was too large, and will be again."""


def status_of(code: ErrorCode) -> str:
    """The gRPC status of a TidelogError that has no place in the method's answer; its text begins with the code's name."""
    return _STATUS.get(code, "FAILED_PRECONDITION")


def as_transport_error(error: TidelogError | TransportError | HandlerBug) -> TransportError:
    """How a handler's exception reaches the caller."""
    match error:
        case TidelogError():
            return TransportError(status_of(error.code), f"{error.code.name}: {error.message}")
        case TransportError(status=status) if status in _REFUSALS:
            return error
        case TransportError():  # of a call that the handler made: the outcome is as unknown to its caller
            return TransportError("UNAVAILABLE", str(error))
        case _:
            return TransportError("INTERNAL", str(error))


def target(address: Address) -> str:
    return f"[{address.host}]:{address.port}" if ":" in address.host else str(address)


def broken(error: BaseException) -> BaseException:
    """The error to raise for an exception of grpc.aio, which says CancelledError also where no task was cancelled."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        return error
    return TransportError("CANCELLED", str(error) or "the call was cancelled")
