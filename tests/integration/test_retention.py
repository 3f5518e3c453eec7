"""Settings that change under load, what they delete, and what stays deleted: on real processes, seen by their clients."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from helpers.cluster import unique_topic
from helpers.command_line import tidelog
from helpers.stored import Stored, stored_by
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.errors import PositionOutOfRangeError
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.client.producer import Producer
from tidelog.cluster.api import bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

pytestmark = pytest.mark.integration

WITHIN_S = 60.0
RETENTION_BYTES, SEGMENT_BYTES = 50_000, 20_000
KEPT_BYTES = RETENTION_BYTES + 2 * SEGMENT_BYTES
"""The leader keeps less than one segment too many; the files of a follower may end elsewhere, so it keeps a part of another."""
SETTINGS = {
    "broker": {
        "log_retention_check_interval_ms": "200",
        "high_watermark_checkpoint_interval_ms": "300",
        "log_flush_interval_ms": "300",
    }
}


def file_sizes(cluster: LocalCluster, broker: int, topic: str) -> list[int]:
    """Bytes of the segments of partition 0, the oldest first; one that goes in between counts for nothing."""
    sizes = []
    for file in sorted((cluster.data_dir(broker_name(broker)) / f"{topic}-0").glob("*.log")):
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return sizes


async def in_sync(stored: Stored, topic: str, after: dict[int, int]) -> int:
    """The leader, when the ISR holds all three brokers, those that were killed in lives after those of `after`.

    From ZooKeeper: a broker that was killed stands in the ISR, and is registered, until somebody notices, and a broker
    answers from what it was told last.
    """

    async def so() -> bool:
        lives = stored.lives(topic)
        return len(lives) == 3 and all(lives[broker] > former for broker, former in after.items())

    await eventually(so, "every broker to be in sync")
    return stored.state(topic, 0).leader


async def bounds(admin: Admin, tp: TopicPartition) -> tuple[int, int]:
    return (await admin.list_offsets({tp: EARLIEST}))[tp].offset, (await admin.list_offsets({tp: LATEST}))[tp].offset


async def contents(
    servers: str, tp: TopicPartition, start: int, end: int, reset: str = "error"
) -> dict[int, bytes | None]:
    """By offset, from what a reader at `start` gets until it has seen `end`."""
    async with Consumer(servers, auto_offset_reset=reset) as consumer:
        await consumer.assign([tp])
        consumer.seek(tp, start)
        found: dict[int, bytes | None] = {}
        async with asyncio.timeout(WITHIN_S):
            while not found or max(found) < end - 1:
                found |= {record.offset: record.value for record in await consumer.poll(timeout_s=5.0)}
        return found


async def load(servers: str, tp: TopicPartition, sent: dict[int, bytes], stop: asyncio.Event) -> None:
    async with Producer(servers, acks=-1, linger_ms=2) as producer:
        number = 0
        while not stop.is_set():
            acks = []
            for _ in range(50):
                value = b"%0100d" % number
                acks.append((value, await producer.send(tp.topic, value, partition=0)))
                number += 1
            for value, ack in acks:
                sent[(await ack).offset] = value


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """`what` is for the reader of a traceback."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.1)


async def expire_under_load(cluster: LocalCluster, tp: TopicPartition, sent: dict[int, bytes]) -> int:
    """Where the log starts when retention was set while records came, and taken back."""
    servers = bootstrap_servers(cluster)
    async with Admin(servers) as admin:
        stop = asyncio.Event()
        task = asyncio.create_task(load(servers, tp, sent, stop))

        async def moved() -> bool:
            return (await bounds(admin, tp))[0] > 0

        async def grown(goal: int) -> bool:
            return len(sent) >= goal

        await eventually(lambda: grown(2_000), "two thousand records")
        assert not await moved()
        said = await asyncio.to_thread(
            tidelog, servers, "configs", "alter", "--topic", tp.topic, "--add", f"retention.bytes={RETENTION_BYTES}"
        )
        assert said == f"Completed updating config for topic {tp.topic}.\n"
        await eventually(moved, "the start to move")
        goal = len(sent) + 1_000
        await eventually(lambda: grown(goal), "the load to go on")
        stop.set()
        await task

        async def settled() -> bool:
            leader = (await admin.describe_topic(tp.topic)).partitions[0].leader
            sizes = [file_sizes(cluster, broker, tp.topic) for broker in range(3)]
            return sum(sizes[leader][1:]) < RETENTION_BYTES and all(sum(each) < KEPT_BYTES for each in sizes)

        await eventually(settled, "what is past its retention to go on every replica")
        # Nothing goes any more: what is left is all that may be read, and none of it is lost.
        await admin.alter_configs(tp.topic, {}, ["retention.bytes"])
        start, end = await bounds(admin, tp)
        assert 0 < start < end and end == max(sent) + 1
        return start


async def the_start_stays(cluster: LocalCluster, tp: TopicPartition, start: int, end: int) -> None:
    """Through the death of two brokers at once, and then of two leaders."""
    with stored_by(cluster) as stored:
        async with Admin(bootstrap_servers(cluster)) as admin:
            former = {broker: stored.broker_epoch(broker) for broker in range(2)}
            for act in (cluster.kill, cluster.start):
                for broker in former:
                    await asyncio.to_thread(act, broker_name(broker))
            for _ in range(2):
                leader = await in_sync(stored, tp.topic, former)
                assert (await bounds(admin, tp)) == (start, end), "no restart brings back what is deleted"
                former = {leader: stored.broker_epoch(leader)}
                await asyncio.to_thread(cluster.kill, broker_name(leader))

                async def another(old: int = leader) -> bool:
                    return stored.state(tp.topic, 0).leader not in (old, -1)

                await eventually(another, "another leader")
                assert (await bounds(admin, tp))[0] == start, "the start is every replica's"
                await asyncio.to_thread(cluster.start, broker_name(leader))


async def test_retention_set_on_a_live_topic_under_load(cluster: LocalCluster) -> None:
    servers, topic = bootstrap_servers(cluster), unique_topic("retention")
    tp, sent = TopicPartition(topic, 0), dict[int, bytes]()
    tidelog(servers, "topics", "create", topic, "--partitions", "1", "--config", f"segment.bytes={SEGMENT_BYTES}")
    start = await expire_under_load(cluster, tp, sent)
    end, left = max(sent) + 1, {offset: value for offset, value in sent.items() if offset >= start}
    with pytest.raises(PositionOutOfRangeError, match=f"holds offsets {start} to {end}"):
        await contents(servers, tp, 0, end)
    assert await contents(servers, tp, 0, end, reset="earliest") == left
    report = json.loads(tidelog(servers, "log-dirs", "describe", "--topic-list", topic, "--format", "json"))
    copies = [each["logDirs"][0]["partitions"][0] for each in report["brokers"]]
    assert [copy["offsetLag"] for copy in copies] == [0, 0, 0] and all(copy["size"] < KEPT_BYTES for copy in copies)
    await the_start_stays(cluster, tp, start, end)
    assert await contents(servers, tp, start, end) == left
    tidelog(servers, "topics", "delete", topic)


async def accepted(servers: str, topic: str, size: int) -> bool:
    async with Producer(servers, acks=-1, linger_ms=0) as producer:
        try:
            await (await producer.send(topic, b"x" * size))
        except TidelogError as error:
            assert error.code is ErrorCode.MESSAGE_TOO_LARGE
            return False
        return True


async def test_settings_are_described_with_their_sources_and_survive_a_controller(cluster: LocalCluster) -> None:
    servers, topic = bootstrap_servers(cluster), unique_topic("configs")
    tidelog(servers, "topics", "create", topic, "--partitions", "1", "--config", "flush=sync")
    tidelog(servers, "topics", "alter", topic, "--config", "max.message.bytes=2000", "--delete-config", "flush")

    def described(*args: str) -> dict[str, dict[str, Any]]:
        rows = json.loads(tidelog(servers, "configs", "describe", *args, "--format", "json"))
        return {row["key"]: row for row in rows}

    assert {key: row["value"] for key, row in described("--topic", topic).items()} == {"max.message.bytes": "2000"}
    everything = described("--topic", topic, "--all")
    assert everything["flush"]["source"] == "DEFAULT_CONFIG"
    assert [each["source"] for each in everything["max.message.bytes"]["synonyms"]] == [
        "DYNAMIC_TOPIC_CONFIG",
        "DEFAULT_CONFIG",
    ]
    of_broker = described("--broker", "1")
    assert of_broker["log_retention_check_interval_ms"]["value"] == "200"
    (variable, _) = of_broker["log_retention_check_interval_ms"]["synonyms"]
    assert variable["origin"] == "TIDELOG_LOG_RETENTION_CHECK_INTERVAL_MS"
    refused = tidelog(servers, "configs", "alter", "--topic", topic, "--add", "retention.ms=week", exit_code=2)
    assert "retention.ms='week' is not a whole number" in refused
    assert await accepted(servers, topic, 1_000) and not await accepted(servers, topic, 4_000)
    active = next(row.name for row in cluster.status() if row.name.startswith("controller"))
    cluster.kill(active)
    cluster.start(active)
    assert {key: row["value"] for key, row in described("--topic", topic).items()} == {"max.message.bytes": "2000"}
    tidelog(servers, "configs", "alter", "--topic", topic, "--add", "max.message.bytes=10000")
    await eventually(lambda: accepted(servers, topic, 4_000), "the new limit to reach the leader")
    tidelog(servers, "topics", "delete", topic)
