"""What the driver asks: partitions by each kind of selection, positions by each kind of option, and how often."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.records import Record, encode_batch
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.pipeline.lookups import LookUps
from tidelog.pipeline.source_options import (
    EARLIEST,
    LATEST,
    Assign,
    Selection,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Timestamps,
)
from tidelog.testing.intercept import Call

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Brokers]:
    """t-0 holds offsets 2 to 6 of times 100, 300, 200, 400, t-1 nothing; u is another topic."""
    cluster = await brokers()
    await cluster.create("t", 2)
    await cluster.create("u")
    for ms in (0, 0, 100, 300, 200, 400):
        await cluster.append("t", 0, encode_batch([Record(None, b"v", [], ms)]))
    await cluster.delete_records("t", 0, 2)
    yield cluster


@asynccontextmanager
async def look_ups(cluster: Brokers, selection: Selection | None = None, **how: Any) -> AsyncIterator[LookUps]:
    settings: dict[str, Any] = {
        "retry_interval_ms": 1,
        "kafka": {"request.timeout.ms": "100"},
        **how,
    }
    options = SourceOptions(tuple(cluster.addresses.values()), selection or Subscribe(("t",)), **settings)
    async with LookUps(options, cluster.ports) as lookups:
        yield lookups


async def partitions(cluster: Brokers, selection: Selection, missing_is_none: bool = False) -> list[TopicPartition]:
    async with look_ups(cluster, selection) as lookups:
        found = await lookups.partitions(missing_is_none=missing_is_none)
    assert all(topic_id == cluster.topic_id(tp.topic) for tp, topic_id in found.items())
    return list(found)


async def test_each_kind_of_selection(cluster: Brokers) -> None:
    assert await partitions(cluster, Subscribe(("u", "t"))) == [T0, T1, U0]
    assert await partitions(cluster, Assign((U0, T1))) == [T1, U0]
    assert await partitions(cluster, SubscribePattern(re.compile("[t-v]"))) == [T0, T1, U0]
    assert await partitions(cluster, SubscribePattern(re.compile("x.*"))) == []


@pytest.mark.parametrize(
    "selection, complaint, rest",
    [
        (Subscribe(("t", "gone")), "subscribe: topic 'gone' does not exist", [T0, T1]),
        (Assign((T0, TopicPartition("gone", 0))), "assign: topic 'gone' does not exist", [T0]),
        (Assign((T0, TopicPartition("t", 2))), "assign: topic 't' has partitions 0 to 1, partition 2 does not", [T0]),
    ],
)
async def test_what_does_not_exist_is_named_at_once_or_left_out(
    cluster: Brokers, selection: Selection, complaint: str, rest: list[TopicPartition]
) -> None:
    with pytest.raises(TidelogError, match=complaint):
        await partitions(cluster, selection)
    assert len(cluster.of("DescribeTopics")) == 1
    assert await partitions(cluster, selection, missing_is_none=True) == rest


async def ends_of_query(cluster: Brokers, **how: Any) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    async with look_ups(cluster, **how) as lookups:
        beginnings, ends = await lookups.beginnings([T0, T1]), await lookups.ends([T0, T1])
        return await lookups.starts(beginnings, ends), await lookups.stops(beginnings, ends)


@pytest.mark.parametrize(
    "starting, ending, starts, stops",
    [
        (EARLIEST, LATEST, {T0: 2, T1: 0}, {T0: 6, T1: 0}),
        (LATEST, LATEST, {T0: 6, T1: 0}, {T0: 6, T1: 0}),
        ({T0: 4, T1: EARLIEST}, {T0: LATEST, T1: 9}, {T0: 4, T1: 0}, {T0: 6, T1: 9}),
        (Timestamps({T0: 101, T1: 0}), Timestamps(350), {T0: 3, T1: 0}, {T0: 5, T1: 0}),
        (Timestamps(0), Timestamps({T0: 401, T1: 0}), {T0: 2, T1: 0}, {T0: 6, T1: 0}),
    ],
)
async def test_each_way_to_say_where_a_query_starts_and_ends(
    cluster: Brokers, starting: Any, ending: Any, starts: Any, stops: Any
) -> None:
    how = {"starting": starting, "ending": ending, "strategy": "latest"}
    assert await ends_of_query(cluster, **how) == (starts, stops)


async def test_a_start_at_a_time_that_no_record_has_is_an_error_unless_told_otherwise(cluster: Brokers) -> None:
    with pytest.raises(ValueError, match=r"t-0 has no record at or after the starting timestamp 401"):
        await ends_of_query(cluster, starting=Timestamps(401))
    assert (await ends_of_query(cluster, starting=Timestamps(401), strategy="latest"))[0] == {T0: 6, T1: 0}


async def test_positions_have_to_name_every_partition(cluster: Brokers) -> None:
    for starting in ({T0: 2}, Timestamps({T0: 2})):
        with pytest.raises(ValueError, match=r"must name every partition that is read; it does not name t-1"):
            await ends_of_query(cluster, starting=starting)


def lose(cluster: Brokers, method: str, times: int) -> None:
    async def refuse(call: Call) -> Any:
        raise TransportError("UNAVAILABLE", "scripted")

    for _ in range(times):
        cluster.once(method, refuse)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_look_up_is_repeated_as_often_as_asked(
    cluster: Brokers, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.kill(*cluster.ids)
    with pytest.raises(ClusterUnreachable, match="nothing answers at b"):
        async with look_ups(cluster, num_retries=times) as lookups:
            await lookups.partitions()
    assert caplog.text.count("asking again") == times - 1


async def test_an_answer_that_is_lost_is_asked_for_again(cluster: Brokers) -> None:
    lose(cluster, "DescribeTopics", 4)
    async with look_ups(cluster) as lookups:
        assert list(await lookups.partitions()) == [T0, T1]


async def test_every_question_is_asked_anew(cluster: Brokers) -> None:
    async with look_ups(cluster) as lookups:
        counts = [len(await lookups.partitions())]
        await cluster.grow("t", 3)
        found = await lookups.partitions()
        counts += [len(found), len(await lookups.ends(found))]
    assert counts == [2, 3, 3]
