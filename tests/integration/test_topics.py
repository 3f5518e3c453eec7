"""Topics that are deleted and made again while a broker is away, on real processes."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from helpers.cluster import unique_topic
from helpers.command_line import tidelog
from helpers.requirements import requirement
from helpers.wire import TIMEOUT_S, creation, rows
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import State, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.storage.strays import STRAY_SUFFIX
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
    """Topic ids and record bytes that a broker has on its disk for partition 0, without what it has set aside."""
    data_dir = cluster.data_dir(f"broker-{broker}")
    folders = [f for f in data_dir.iterdir() if f.name.startswith(f"{topic}-0") and not f.name.endswith(STRAY_SUFFIX)]
    ids, records = [], b""
    for folder in sorted(folders):
        with contextlib.suppress(FileNotFoundError):  # it is being removed while we look
            ids += [f.stem for f in folder.glob("*.topic")]
            records += b"".join(f.read_bytes() for f in sorted(folder.glob("*.log")))
    return ids, records


def set_aside(cluster: LocalCluster, broker: int, topic: str) -> bytes:
    """Record bytes that a broker has set aside for partition 0: they are kept for a day."""
    folders = cluster.data_dir(f"broker-{broker}").glob(f"{topic}-0*{STRAY_SUFFIX}")
    return b"".join(f.read_bytes() for folder in folders for f in sorted(folder.glob("*.log")))


async def in_sync(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
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

    async with Admin(servers) as admin:
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
    until(lambda: replica(whole, 2, topic)[0] == [new_id.hex()], "the old replica to be set aside", timeout_s=READY_S)
    until(lambda: replica(whole, 0, topic)[0] == [new_id.hex()], "the old replica to be removed", timeout_s=READY_S)
    assert b"old-19" in set_aside(whole, 2, topic) and b"new-" not in set_aside(whole, 2, topic)
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


async def test_a_broker_that_is_down_during_a_deletion_sets_it_aside(whole: LocalCluster) -> None:
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
    until(lambda: replica(whole, 1, gone) == ([], b""), "the replica to be set aside", timeout_s=READY_S)
    assert b"before" in set_aside(whole, 1, gone) and not set_aside(whole, 1, kept)
    assert await read(servers, kept, 1) == [b"before"]
    assert b"before" in replica(whole, 1, kept)[1]
    tidelog(servers, "topics", "delete", kept)
