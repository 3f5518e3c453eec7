"""Handlers whose caller goes away at any of their suspensions: the cluster stays whole, and the same work succeeds after it."""

import contextlib

import pytest

from helpers.batches import batch
from helpers.whole_cluster import Bed, whole_cluster
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.cancelling import CancelledHandler
from tidelog.wire import messages as m
from tidelog.wire import services as s

SUSPENSIONS_MAX = 5
"""Number of suspensions of one handler that are tried; a stream has no end."""
LATE_S = (0.0, 0.02)
"""A cancellation that is heard of at once, and one that comes before an answer and is heard of after it."""
REPEATED = ("CreateTopics", "CreatePartitions", "DeleteTopics")
"""Requests whose repetition is refused, as what they ask for is done already."""
HANDLERS = (
    "ProduceStream",
    "Fetch",
    "ReplicaFetch",
    "InitProducerId",
    "ListOffsets",
    "DeleteRecords",
    "Session",
    "CommitOffsets",
    "FetchOffsets",
    "CreateTopics",
    "CreatePartitions",
    "IncrementalAlterConfigs",
    "DeleteTopics",
    "AlterIsr",
    "LeaderAndIsr",
    "UpdateMetadata",
)


@pytest.mark.parametrize("method", HANDLERS)
async def test_a_cancelled_handler_leaves_the_cluster_whole(method: str) -> None:
    async with whole_cluster() as bed:
        for at in range(1, SUSPENSIONS_MAX + 1):
            handler = bed.cluster.network.on_call = CancelledHandler(method, at, LATE_S[at % 2])
            with contextlib.suppress(*([TidelogError] if method in REPEATED else [])):
                await bed.work()
            bed.check()
            if not handler.reached:
                break
            await bed.work()


@pytest.mark.parametrize("late_s", LATE_S)
async def test_a_cancelled_produce_request_loses_no_record(late_s: float) -> None:
    async with whole_cluster() as bed:
        topic, values = await bed.topic(), []
        for at in range(1, SUSPENSIONS_MAX + 1):
            handler = bed.cluster.network.on_call = CancelledHandler("Produce", at, late_s)
            with contextlib.suppress(TransportError):
                await produce(bed, topic, b"cancelled")
            await produce(bed, topic, b"behind %d" % at)
            values += [b"cancelled", b"behind %d" % at]
            assert await bed.values(topic) == values, "what was appended is committed"
            bed.check()
            if not handler.reached:
                break
        assert at > 1, "it waits for its followers"


async def produce(bed: Bed, topic: str, value: bytes) -> None:
    leader = bed.cluster.leader(TopicPartition(topic, 0))
    part = m.ProducePartition(topic=topic, partition=0, leader_epoch=-1, records=batch(value))
    request = m.ProduceRequest(client_id="test", acks=-1, timeout_ms=5000, partitions=(part,))
    channel = bed.ports.net.channel(bed.cluster.nodes[f"broker-{leader}"].address, purpose="test")
    answer = await channel.call(s.REPLICA_SERVICE_PRODUCE, request, 10.0)
    assert answer.results[0].error_message == ""
