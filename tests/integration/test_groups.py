"""Consumer groups on real processes: who owns what, over joins, leaves, deaths and coordinators that go."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from helpers.aio import eventually
from helpers.cluster import unique_topic
from helpers.requirements import requirement
from helpers.scene import left_as_found
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.client.records import ConsumerRecord
from tidelog.client.sync import SyncConsumer, SyncProducer
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.ids import TopicPartition

pytestmark = pytest.mark.integration

PARTITIONS = 6
EACH = 50
LIMIT_S = 30.0
SESSION_MS = 6_000
LONG_MS = 20_000
"""A lease has two thirds of it left at least, so that half of it is soon enough on a machine with much else to do, too."""


async def make_topic(servers: str) -> str:
    topic = unique_topic()
    async with Admin(servers) as admin:
        await admin.create_topic(topic, PARTITIONS, 3)
        await admin.wait_until_led(topic, in_sync=True)
    return topic


async def send(servers: str, topic: str, first: int) -> None:
    """`EACH` records to each partition, numbered from `first`."""
    async with Producer(servers, acks=-1) as producer:
        acks = [
            await producer.send(topic, b"%d" % (first + i), partition=p) for p in range(PARTITIONS) for i in range(EACH)
        ]
        await asyncio.gather(*acks)


class Reader:
    """A member that processes whatever it is given, in a task of its own."""

    def __init__(self, servers: str, topic: str, name: str, session_timeout_ms: int = SESSION_MS) -> None:
        self.consumer = Consumer(
            servers, group=f"group-{topic}", topics=[topic], consumer_id=name, session_timeout_ms=session_timeout_ms
        )
        self.processed: list[ConsumerRecord] = []
        self._leave = asyncio.Event()

    async def run(self) -> None:
        async with self.consumer:
            while not self._leave.is_set():
                self.processed += await self.consumer.poll(timeout_s=0.2)
            await self.consumer.commit()

    def leave(self) -> None:
        self._leave.set()


def seen(*readers: Reader) -> Counter[tuple[int, bytes | None]]:
    return Counter((r.partition, r.value) for reader in readers for r in reader.processed)


def numbered(count: int) -> Counter[tuple[int, bytes | None]]:
    return Counter((p, b"%d" % i) for p in range(PARTITIONS) for i in range(count))


@requirement("A coordinator on the brokers rebalances consumer groups")
@requirement("A member fetches what it owns and may commit its offsets")
@requirement("A consumer that leaves has stored its last offsets")
@pytest.mark.smoke
async def test_two_members_share_a_topic_and_who_stays_takes_over_when_the_other_leaves(
    shared_servers: str,
) -> None:
    topic = await make_topic(shared_servers)
    a, b = (Reader(shared_servers, topic, name, LONG_MS) for name in "ab")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(a.run())
        tasks.create_task(b.run())
        await eventually(
            lambda: len(a.consumer.assignment) == len(b.consumer.assignment) == 3,
            "each owns three",
            timeout_s=LIMIT_S,
        )
        await send(shared_servers, topic, 0)
        await eventually(lambda: seen(a, b).total() >= PARTITIONS * EACH, "all records", timeout_s=LIMIT_S)
        assert a.processed and b.processed
        loop = asyncio.get_running_loop()
        began = loop.time()
        b.leave()
        await eventually(lambda: len(a.consumer.assignment) == PARTITIONS, "a owns all", timeout_s=LIMIT_S)
        assert loop.time() - began < LONG_MS / 2000, "nobody's session was waited for"
        await send(shared_servers, topic, EACH)
        await eventually(lambda: seen(a, b).total() >= 2 * PARTITIONS * EACH, "all records", timeout_s=LIMIT_S)
        a.leave()
    assert seen(a, b) == numbered(2 * EACH), "every record is processed once"


@pytest.fixture
def whole(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with left_as_found(shared_cluster) as cluster:
        yield cluster
    wait_ready(shared_cluster, 60.0)


@requirement("A killed coordinator broker costs no committed offset")
@requirement("A coordinator failover rebalances no group and skips no record")
@pytest.mark.smoke
async def test_members_go_on_with_what_they_own_when_the_coordinator_is_killed(
    whole: LocalCluster, shared_servers: str
) -> None:
    topic = await make_topic(shared_servers)
    a, b = (Reader(shared_servers, topic, name, LONG_MS) for name in "ab")
    async with asyncio.TaskGroup() as tasks, Admin(shared_servers) as admin:
        tasks.create_task(a.run())
        tasks.create_task(b.run())
        await eventually(
            lambda: len(a.consumer.assignment) == len(b.consumer.assignment) == 3,
            "each owns three",
            timeout_s=LIMIT_S,
        )
        before = await admin.groups.describe_one(f"group-{topic}")
        whole.kill(f"broker-{before.coordinator_id}")
        await send(shared_servers, topic, 0)
        await eventually(
            lambda: all(each.consumer.stats.coordinator_epoch > before.coordinator_epoch for each in (a, b)),
            "another coordinator",
            timeout_s=LIMIT_S,
        )
        await send(shared_servers, topic, EACH)
        await eventually(lambda: seen(a, b).total() >= 2 * PARTITIONS * EACH, "all records", timeout_s=LIMIT_S)
        for each in (a, b):
            assert (each.consumer.stats.generation, each.consumer.stats.membership.losses) == (before.generation, 0)
            assert each.consumer.stats.membership.stops == 0, "nobody was rebalanced"
            each.leave()
    assert seen(a, b) == numbered(2 * EACH), "every record is processed once"


def test_a_blocking_member_works_for_longer_than_its_session_and_goes_on(shared_servers: str) -> None:
    topic = asyncio.run(make_topic(shared_servers))
    with SyncProducer(shared_servers, acks=-1) as producer:
        for p in range(PARTITIONS):
            producer.send(topic, b"x", partition=p)
        producer.flush()
    with SyncConsumer(
        shared_servers, group=f"group-{topic}", topics=[topic], session_timeout_ms=SESSION_MS
    ) as consumer:
        got: list[ConsumerRecord] = []
        while len(got) < PARTITIONS:
            got += consumer.poll(timeout_s=LIMIT_S)
        generation = consumer.group_metadata.generation
        asyncio.run(asyncio.sleep(1.5 * SESSION_MS / 1000))  # the thread that polls is busy
        consumer.commit()
        assert consumer.group_metadata.generation == generation
        stored = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)])
        assert [each and each.offset for each in stored.values()] == [1] * PARTITIONS
