"""A topic and two groups of a cluster in memory."""

from dataclasses import replace
from typing import Any

from helpers.driven_brokers import Driven
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.cli.conftest import Result

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SHARDS = 8


def with_groups(cluster: Driven) -> Driven:
    """Group `busy` of broker 2 has two members and is at 3 of 10 in t-0; `idle` of broker 3 has none.

    Topic `gone` has just been deleted: coordinators have not heard of it.
    """
    cluster.create("t", partitions=3, replicas=1)
    cluster.create("gone", replicas=1)
    cluster.append("t", 0, *(encode_batch([Record(None, b"v", (), 1000 * n)]) for n in range(10)))
    cluster.append("gone", 0, encode_batch([Record(None, b"v", (), 1000)] * 7))
    cluster.create_group("busy", {T0: 3})
    for consumer_id in ("a", "b"):
        cluster.join("busy", consumer_id, "t", polls=False)
    cluster.create_group("idle", {T0: 4, TopicPartition("gone", 0): 7})
    cluster.faults.append(_deleted)
    assert (cluster.coordinator("busy"), cluster.coordinator("idle")) == (2, 3)
    return cluster


async def _deleted(call: Call) -> Any:
    if call.method != "DescribeTopics":
        return NotImplemented
    answer: m.DescribeTopicsResponse = await call.serve()
    gone = m.TopicDescription(name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return replace(answer, topics=tuple(gone if each.name == "gone" else each for each in answer.topics))


def table(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.err
    return [line.split() for line in result.text.splitlines()]
