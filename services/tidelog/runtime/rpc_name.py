"""The name that a cluster gives to itself, asked of any of its brokers."""

from collections.abc import Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import grpc

from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.runtime.rpc_options import Limits, channel_options, target
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.messages import ClusterMetadataRequest
from tidelog.wire.services import COORDINATOR_SERVICE_CLUSTER_METADATA


def cluster_name(brokers: Sequence[Address], timeout_s: float) -> str | None:
    """The name that the first broker with one tells; None: nothing answers, or it has no name.

    A broker knows it without a controller. The call blocks, so that a program can make it outside and inside a coroutine.
    """
    method = COORDINATOR_SERVICE_CLUSTER_METADATA
    request = encoder(method.request)(ClusterMetadataRequest())
    answers: SimpleQueue[Any] = SimpleQueue()
    with ExitStack() as channels:
        for broker in brokers:
            options = channel_options(Limits(), "name")
            channel = channels.enter_context(grpc.insecure_channel(target(broker), options=options))
            channel.unary_unary(method.path).future(request, timeout=timeout_s).add_done_callback(answers.put)
        for _ in brokers:
            answer = answers.get()
            if answer.code() is grpc.StatusCode.OK and (name := _name_in(answer.result())):
                return name
    return None


def _name_in(answer: bytes) -> str:
    """Whatever listens there may answer anything."""
    try:
        return decoder(COORDINATOR_SERVICE_CLUSTER_METADATA.response)(answer).cluster_name
    except TidelogError:
        return ""
