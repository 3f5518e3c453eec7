"""Topics over their life, on real processes: they grow under load, go while a broker is away, and are read by time."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator

import pytest

from helpers.cluster import unique_topic
from helpers.command_line import tidelog
from helpers.requirements import requirement
from helpers.wire import TIMEOUT_S, creation, rows
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import State, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

pytestmark = pytest.mark.integration

READY_S = 60.0


@pytest.fixture
def whole(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Given back with every process running."""
    yield shared_cluster
    for row in shared_cluster.status():
        if row.state is State.PAUSED:
            shared_cluster.resume(row.name)
        elif row.state is State.STOPPED:
            shared_cluster.start(row.name)
    wait_ready(shared_cluster, READY_S)


async def send(servers: str, topic: str, *values: bytes) -> None:
    async with Producer(servers, acks=-1) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


async def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    async with Consumer(servers) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        got: list[bytes | None] = []
        while len(got) < count:
            records = await consumer.poll(timeout_s=20.0)
            assert records, f"only {len(got)} of {count} records came"
            got += [record.value for record in records]
        return got + [record.value for record in await consumer.poll(timeout_s=0.3)]


def replica(cluster: LocalCluster, broker: int, topic: str) -> tuple[list[str], bytes]:
    """Topic ids and record bytes that a broker has on its disk for partition 0, in its folder or in what is left of one."""
    data_dir = cluster.data_dir(f"broker-{broker}")
    folders = [f for f in data_dir.iterdir() if f.name.startswith(f"{topic}-0")]
    ids, records = [], b""
    for folder in sorted(folders):
        with contextlib.suppress(FileNotFoundError):  # it is being removed while we look
            ids += [f.stem for f in folder.glob("*.topic")]
            records += b"".join(f.read_bytes() for f in sorted(folder.glob("*.log")))
    return ids, records


async def in_sync(servers: str, topic: str) -> None:
    async with AdminClient(servers) as admin:
        await admin.wait_until_led(topic, in_sync=True, timeout_s=READY_S)


async def deleted_and_made_again(cluster: LocalCluster, topic: str) -> bytes:
    """The new topic's id.

    The session of the broker that is away has not ended yet, so it is given a replica of the new topic too. Only one broker is
    asked: a client that takes all in turn waits for the one that stands still, up to 2 s each time, and the session may end
    meanwhile.
    """
    channel = GrpcNet().channel(cluster.endpoints()["broker-0"], purpose="test")
    try:
        deletion = m.DeleteTopicsRequest(names=(topic,), timeout_ms=1000)
        (deleted,) = (await channel.call(s.ADMIN_SERVICE_DELETE_TOPICS, deletion, TIMEOUT_S)).topics
        creating = creation(topic, **rows((0, (2, 0, 1))))
        (created,) = (await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, creating, TIMEOUT_S)).topics
    finally:
        await channel.close()
    assert (deleted.error_code, created.error_code) == (ErrorCode.NONE, ErrorCode.NONE), (deleted, created)
    return created.topic_id


@requirement("A broker away while its topic is recreated serves no old record")
@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_a_broker_that_is_away_while_a_topic_is_deleted_and_made_again(whole: LocalCluster, fault: str) -> None:
    topic, servers = unique_topic("l24"), bootstrap_servers(whole)

    async with AdminClient(servers) as admin:
        old_id = (await admin.create_topic(topic, assignment=[[0, 1, 2]])).topic_id
    await in_sync(servers, topic)
    await send(servers, topic, *[b"old-%d" % i for i in range(20)])
    if fault == "kill":
        whole.kill("broker-2")
    else:
        whole.pause("broker-2")
    new_id = await deleted_and_made_again(whole, topic)
    await send(servers, topic, *[b"new-%d" % i for i in range(5)])
    ids, records = replica(whole, 2, topic)
    assert ids == [old_id.hex()] and b"new-" not in records
    if fault == "kill":
        whole.start("broker-2")
    else:
        whole.resume("broker-2")
    await asyncio.to_thread(wait_ready, whole, READY_S)
    await in_sync(servers, topic)
    until(lambda: replica(whole, 2, topic)[0] == [new_id.hex()], "the old replica to be removed", timeout_s=READY_S)
    _, records = replica(whole, 2, topic)
    assert records == replica(whole, 0, topic)[1] and b"old-" not in records
    # And it serves what it holds: the first of the assignment leads when the present leader dies.
    whole.kill("broker-0")
    try:
        assert await read(servers, topic, 5) == [b"new-%d" % i for i in range(5)]
    finally:
        whole.start("broker-0")
    await asyncio.to_thread(wait_ready, whole, READY_S)
    await in_sync(servers, topic)
    tidelog(servers, "topics", "delete", topic)


@requirement("A controller killed in mid-change leaves it complete or absent")
async def test_a_broker_that_is_down_during_a_deletion_removes_its_replica(whole: LocalCluster) -> None:
    gone, kept, servers = unique_topic("gone"), unique_topic("kept"), bootstrap_servers(whole)
    for topic in (gone, kept):
        tidelog(servers, "topics", "create", topic, "--partitions", "1", "--replication-factor", "3")
        await send(servers, topic, b"before")
    until(lambda: b"before" in replica(whole, 1, kept)[1], "the records on broker 1", timeout_s=READY_S)
    whole.kill("broker-1")
    tidelog(servers, "topics", "delete", gone)
    assert "does not exist" in tidelog(servers, "topics", "describe", gone, exit_code=1)
    assert replica(whole, 1, gone)[0]
    whole.start("broker-1")
    await asyncio.to_thread(wait_ready, whole, READY_S)
    until(lambda: replica(whole, 1, gone) == ([], b""), "the replica to be removed", timeout_s=READY_S)
    assert await read(servers, kept, 1) == [b"before"]
    assert b"before" in replica(whole, 1, kept)[1]
    tidelog(servers, "topics", "delete", kept)


async def test_partitions_are_added_under_load_and_nothing_is_lost(shared_servers: str) -> None:
    topic, servers = unique_topic("grow"), shared_servers

    sent: list[tuple[int, int, bytes]] = []
    async with (
        AdminClient(servers) as admin,
        Producer(servers, metadata_max_age_ms=300, linger_ms=2) as producer,
        Consumer(servers, metadata_max_age_ms=300) as consumer,
    ):
        await admin.create_topic(topic, 2, 3)
        await admin.wait_until_led(topic, in_sync=True)
        await consumer.assign_topics(topic)
        enough, progress = asyncio.Event(), asyncio.Event()

        async def load() -> None:
            number = 0
            while not enough.is_set():
                acks = []
                for _ in range(50):
                    value = b"%d" % number
                    acks.append((value, await producer.send(topic, value, key=value if number % 2 else None)))
                    number += 1
                for value, ack in acks:
                    found = await ack
                    sent.append((found.partition, found.offset, value))
                progress.set()

        async def until_sent(condition: Callable[[], bool]) -> None:
            while not condition():
                progress.clear()
                await progress.wait()

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(load())
            for total in (3, 6):
                goal = len(sent) + 500
                await until_sent(lambda goal=goal: len(sent) >= goal)  # type: ignore[misc]
                await admin.create_partitions(topic, total)
            await until_sent(lambda: len({partition for partition, *_ in sent}) == 6)
            enough.set()
        got: list[tuple[int, int, bytes | None]] = []
        async with asyncio.timeout(60):
            while len(got) < len(sent):
                got += [(r.partition, r.offset, r.value) for r in await consumer.poll(timeout_s=5.0)]
        assert sorted(got, key=lambda x: x[:2]) == sorted(sent)
        described = await admin.wait_until_led(topic, in_sync=True)
        assert [len(p.isr) for p in described.partitions] == [3] * 6
        # As if all six had been made at once: each broker leads two of them.
        assert sorted(p.replicas[0] for p in described.partitions) == [0, 0, 1, 1, 2, 2]
        with pytest.raises(TidelogError) as caught:
            await admin.create_partitions(topic, 6)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        await admin.delete_topic(topic)


async def test_offsets_by_time_at_the_command_line(shared_servers: str) -> None:
    topic, servers = unique_topic("times"), shared_servers
    tidelog(servers, "topics", "create", topic, "--partitions", "1")
    times = [1_000, 3_000, 2_000, 2_500, 5_000, 2**62, 4_000]

    async with Producer(servers, linger_ms=20) as producer:
        acks = [await producer.send(topic, b"%d" % at, timestamp_ms=at) for at in times[:3]]
        await asyncio.gather(*acks)
        for at in times[3:]:
            await (await producer.send(topic, b"%d" % at, timestamp_ms=at))

    def at(time: str) -> str:
        return tidelog(servers, "topics", "offsets", "--topic", topic, "--time", time)

    assert at("earliest") == f"{topic}:0:0\n"
    assert at("latest") == f"{topic}:0:7\n"
    assert at("max-timestamp") == f"{topic}:0:5\n"
    assert at("1001") == f"{topic}:0:1\n"
    assert at("3001") == f"{topic}:0:4\n"
    assert at(str(2**62 + 1)) == f"{topic}:0:\n"
    lines = tidelog(servers, "consume", topic, "--offset", "@3001", "--max-messages", "3")
    assert lines.split() == ["5000", str(2**62), "4000"]
    grown = tidelog(servers, "topics", "alter", "--topic", topic, "--partitions", "3")
    assert grown == "Adding partitions succeeded!\n"
    (described,) = json.loads(tidelog(servers, "topics", "describe", topic, "--format", "json"))
    assert described["partitionCount"] == 3
    assert "total_count 3 is not from 4" in tidelog(servers, "topics", "alter", topic, "--partitions", "3", exit_code=1)
    tidelog(servers, "topics", "delete", topic)
