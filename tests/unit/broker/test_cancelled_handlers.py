"""Handlers whose caller goes away at any of their suspensions: the cluster stays whole, and the same work succeeds after it."""

import contextlib
from typing import Any

import pytest

from helpers.batches import batch
from helpers.whole_cluster import Bed, whole_cluster
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.net import Bidi, Unary
from tidelog.testing.cancelling import CancelledHandler
from tidelog.wire import messages as m
from tidelog.wire import services as s

SUSPENSIONS_MAX = {"unary": 50, "stream": 5}
"""Number of suspensions of one handler that are tried. A stream has no end; no other handler has so many."""
LATE_S = (0.0, 0.02)
"""A cancellation that is heard of at once, and one that comes before an answer and is heard of after it."""
METHODS: dict[str, Unary[Any, Any] | Bidi[Any, Any]] = {
    each.path.rpartition("/")[2]: each for each in vars(s).values() if isinstance(each, Unary | Bidi)
}
OPERATED = (
    "AddBrokers",
    "AllocateProducerIds",
    "AlterIsr",
    "AlterPartitionReassignments",
    "ControlledShutdown",
    "DescribeBrokerConfigs",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeGroups",
    "DescribeLogDirs",
    "DiscardDamage",
    "DrainBrokers",
    "ElectLeaders",
    "ListGroups",
    "ListPartitionReassignments",
    "Liveness",
    "OffsetForLeaderEpoch",
    "ReleaseVeto",
    "ReplicaEnds",
    "ReplicaFetch",
    "StopReplica",
    "WatchProtocol",
)
"""Methods that the work of an operator uses; that of clients uses the others."""
REPEATED = ("CreateTopics", "CreatePartitions", "DeleteTopics", "DrainBrokers")
"""Requests whose repetition is refused, as what they ask for is done already."""


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"Produce"}))
async def test_a_cancelled_handler_leaves_the_cluster_whole(method: str) -> None:
    suspensions = SUSPENSIONS_MAX["stream" if isinstance(METHODS[method], Bidi) else "unary"]
    async with whole_cluster() as bed:
        work = bed.operate if method in OPERATED else bed.work
        for at in range(1, suspensions + 1):
            handler = bed.cluster.network.on_call = CancelledHandler(method, at, LATE_S[at % 2])
            with contextlib.suppress(*([TidelogError] if method in REPEATED else [])):
                await work()
            assert handler.called, "the work is for this method"
            bed.check()
            if not handler.reached:
                break
        bed.cluster.network.on_call = None
        await work()
        assert isinstance(METHODS[method], Bidi) or not handler.reached, "its last suspension was tried"


@pytest.mark.parametrize("late_s", LATE_S)
async def test_a_cancelled_produce_request_loses_no_record(late_s: float) -> None:
    async with whole_cluster() as bed:
        topic, values = await bed.topic(), []
        for at in range(1, SUSPENSIONS_MAX["unary"] + 1):
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
