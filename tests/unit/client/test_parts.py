"""Requests that name more than a server takes at once: every sender cuts them, and nothing is lost or asked for twice."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from helpers.brokers import Brokers, brokers
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.offsets import EARLIEST
from tidelog.client.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.wire import limits
from tidelog.wire import messages as m

SENDERS = ("client", "coordinator", "pipeline", "broker", "cli", "traffic", "agent", "chaos")
CUTTERS = frozenset({"parts", "parts_by", "parts_or_all"})
SENT_WHOLE = {
    ("client/membership.py", "CommitOffsetsRequest"): "a member owns at most group_max_partitions",
    ("client/reassignments.py", "AddBrokersRequest"): "one plan, stored whole or not at all",
    ("client/reassignments.py", "DrainBrokersRequest"): "one plan, stored whole or not at all",
    ("client/reassignments.py", "AlterPartitionReassignmentsRequest"): "one plan, stored whole or not at all",
    ("client/group_admin.py", "ListGroupsRequest"): "there are five states",
    ("cli/commands/watch.py", "WatchRequest"): "a few names that a person gives",
    ("chaos/protocol_log.py", "WatchRequest"): "at most two topics",
    ("coordinator/service.py", "DeleteGroupsRequest"): "a part of a request that came in; it is not sent",
    ("broker/admin_service.py", "DescribeTopicsRequest"): "the names of a request that came in, which may hold fewer",
    ("broker/leader_fetcher.py", "ReplicaFetchRequest"): "what a server tells another is bounded by bytes",
    ("broker/control_plane/alter_isr.py", "AlterIsrRequest"): "cut by bytes",
}
MESSAGES = {kind.__name__: kind for kind in limits.LIMITS}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def names_many(kind: type[Any], call: ast.Call) -> bool:
    """True unless this request names a fixed number of items."""
    top = {path for path in limits.LIMITS[kind] if "." not in path}
    given = [word.value for word in call.keywords if word.arg in top]
    return any(not isinstance(value, ast.Tuple) for value in given)


def uncut() -> set[tuple[str, str]]:
    """Modules, and requests with a list that they make without cutting it."""
    found = set()
    root = Path(tidelog.__file__).parent
    for folder in SENDERS:
        for path in sorted((root / folder).rglob("*.py")):
            made = list(calls(ast.parse(path.read_text())))
            cut = {
                argument.attr
                for name, call in made
                if name in CUTTERS
                for argument in call.args[:1]
                if isinstance(argument, ast.Attribute)
            }
            for name, call in made:
                if name in MESSAGES and name not in cut and names_many(MESSAGES[name], call):
                    found.add((path.relative_to(root).as_posix(), name))
    return found


def test_every_sender_of_a_list_cuts_it() -> None:
    assert uncut() == set(SENT_WHOLE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes four items in a list."""
    few = {kind: dict.fromkeys(found, 4) for kind, found in limits.LIMITS.items()}
    monkeypatch.setattr(limits, "LIMITS", few)
    monkeypatch.setattr(limits, "_CUT_LISTS", {})


def sizes(cluster: Brokers, method: str, field: str) -> list[int]:
    return sorted(len(getattr(call.request, field)) for call in cluster.of(method))


def named(cluster: Brokers, method: str, field: str = "partitions") -> Counter[TopicPartition]:
    return Counter(
        TopicPartition(each.topic, each.partition)
        for call in cluster.of(method)
        for each in getattr(call.request, field)
    )


ALL = [TopicPartition("t", partition) for partition in range(10)]


@pytest.mark.usefixtures("small")
async def test_offsets_of_many_partitions() -> None:
    cluster = await brokers(1)
    await cluster.create("t", 10)
    async with Admin(cluster.bootstrap, ports=cluster.ports) as admin:
        assert set(await admin.list_offsets(dict.fromkeys(ALL, EARLIEST))) == set(ALL)
    assert sizes(cluster, "ListOffsets", "partitions") == [2, 4, 4]
    assert named(cluster, "ListOffsets") == Counter(ALL)


@pytest.mark.usefixtures("small")
async def test_a_consumer_and_a_producer_of_many_partitions() -> None:
    cluster = await brokers(1)
    await cluster.create("t", 10)
    async with Producer(cluster.bootstrap, ports=cluster.ports, linger_ms=10) as producer:
        for tp in ALL:
            await producer.send(tp.topic, b"v", partition=tp.partition)
        await producer.flush()
    assert max(sizes(cluster, "Produce", "partitions")) <= 4
    assert named(cluster, "Produce") == Counter(ALL)
    read = set()
    async with Consumer(cluster.bootstrap, ports=cluster.ports, auto_offset_reset="earliest") as consumer:
        await consumer.assign(ALL)
        while len(read) < len(ALL):
            read |= {(each.topic, each.partition) for each in await consumer.poll()}
    assert max(sizes(cluster, "Fetch", "partitions")) <= 4
    assert max(sizes(cluster, "ListOffsets", "partitions")) <= 4


@pytest.mark.usefixtures("small")
async def test_topics_that_are_created_described_and_deleted() -> None:
    cluster = await brokers(1)
    names = [f"t{number}" for number in range(10)]
    async with Admin(cluster.bootstrap, ports=cluster.ports) as admin:
        new = [m.NewTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        assert [each.name for each in await admin.create_topics(new)] == names
        assert [each.name for each in await admin.describe_topics(names)] == names
        await admin.elect_leaders([TopicPartition(name, 0) for name in names])
        assert [each.name for each in await admin.delete_topics(names)] == names
    for method, field in (
        ("CreateTopics", "topics"),
        ("DescribeTopics", "names"),
        ("ElectLeaders", "topics"),
        ("DeleteTopics", "names"),
    ):
        assert sizes(cluster, method, field) == [2, 4, 4], method


@pytest.mark.usefixtures("small")
async def test_metadata_of_many_topics() -> None:
    cluster = await brokers(1)
    names = [f"t{number}" for number in range(10)]
    for name in names:
        await cluster.create(name)
    async with Admin(cluster.bootstrap, ports=cluster.ports) as admin:
        found = await admin.list_offsets({TopicPartition(name, 0): EARLIEST for name in names})
        assert len(found) == 10
    assert max(sizes(cluster, "ClusterMetadata", "topics")) == 4


def test_inner_lists_count_together_in_a_part(small: None) -> None:
    topics = [m.TopicPartitions(topic=f"t{number}", partitions=(0, 1, 2)[: number % 4]) for number in range(8)]
    cut = list(limits.parts(m.ElectLeadersRequest, topics))
    assert [topic for part in cut for topic in part] == topics
    assert [sum(len(topic.partitions) for topic in part) for part in cut] == [3, 4, 2, 3]
    large = m.TopicPartitions(topic="large", partitions=tuple(range(9)))
    assert list(limits.parts(m.ElectLeadersRequest, [topics[1], large, topics[1]])) == [
        (topics[1],),
        (large,),
        (topics[1],),
    ]
