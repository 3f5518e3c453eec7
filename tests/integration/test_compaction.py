"""Compaction and scrub on real processes: what readers, followers and files show of them while leaders die (issue 7, row 32)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.command_line import tidelog
from helpers.metrics import metric
from helpers.requirements import requirement
from helpers.scene import log_bytes, under_load
from helpers.stored import Stored, stored_by
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.client.producer import Producer
from tidelog.client.records import ConsumerRecord
from tidelog.cluster.api import BROKER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

WITHIN_S = 90.0
SETTINGS = {
    BROKER: {
        "log_cleaner_backoff_ms": "200",
        "log_scrub_interval_ms": "1000",
        "log_retention_check_interval_ms": "300",
        "high_watermark_checkpoint_interval_ms": "300",
        "log_flush_interval_ms": "300",
    }
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "500",
}
BROKERS = [broker_name(each) for each in range(3)]
DELETED = [b"deleted-%d" % number for number in range(5)]
KEYS = [b"key-%d" % number for number in range(20)]


async def eventually(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, f"{WITHIN_S:g} s without: {what}"
        await asyncio.sleep(0.1)


async def until(what: str, holds: Callable[[], bool]) -> None:
    await eventually(what, lambda: asyncio.to_thread(holds))


@dataclass
class Story:
    """A compacted topic, and what was acknowledged in it."""

    cluster: LocalCluster
    tp: TopicPartition
    stored: Stored
    acked: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    newest: dict[bytes, int] = field(default_factory=dict)
    """Of each key, the offset of its last record."""
    killed: dict[int, int] = field(default_factory=dict)
    """Brokers, and the life that each of them lost last."""
    number: int = 0

    @property
    def servers(self) -> str:
        return bootstrap_servers(self.cluster)

    async def send(self, producer: Producer, *records: tuple[bytes, bytes | None]) -> None:
        acks = [(record, await producer.send(self.tp.topic, record[1], record[0], partition=0)) for record in records]
        for record, ack in acks:
            offset = (await ack).offset
            assert offset not in self.acked
            self.acked[offset] = record
            self.newest[record[0]] = max(offset, self.newest.get(record[0], -1))

    async def load(self, stop: asyncio.Event) -> None:
        """Updates of few keys, until it is told to stop."""
        async with Producer(self.servers, acks=-1, linger_ms=2) as producer:
            while not stop.is_set():
                await asyncio.sleep(0.005)
                first = self.number
                self.number += len(KEYS)
                await self.send(producer, *((key, b"%0100d" % (first + i)) for i, key in enumerate(KEYS)))

    def removed(self) -> dict[str, float]:
        """Records that each broker's compaction has removed."""
        return {name: metric(self.cluster, name, "tidelog_log_cleaner_removed_records_total") for name in BROKERS}

    def holds_deleted(self, broker: int) -> bool:
        """Whether its files have a record of a deleted key."""
        stored = log_bytes(self.cluster, broker, self.tp.topic, self.tp.partition)
        return any(key in stored for key in DELETED)

    async def contents(self) -> dict[int, ConsumerRecord]:
        """What a reader from the earliest offset gets, by offset: up to the end, and while records come, up to where it has
        seen every key. Of a key that was written again meanwhile, compaction may have taken what stood before it."""
        expected = {key: offset for key, offset in self.newest.items() if self.acked[offset][1] is not None}
        async with Admin(self.servers) as admin, Consumer(self.servers) as consumer:
            assert (await admin.list_offsets({self.tp: EARLIEST}))[self.tp].offset == 0, "compaction moves no start"
            await consumer.assign([self.tp])
            consumer.seek(self.tp, 0)
            found: dict[int, ConsumerRecord] = {}
            last: dict[bytes | None, int] = {}
            end, read_to = (await admin.list_offsets({self.tp: LATEST}))[self.tp].offset, -1
            async with asyncio.timeout(WITHIN_S):
                while read_to < end and any(last.get(key, -1) < offset for key, offset in expected.items()):
                    while await consumer.position(self.tp) < end:
                        for record in await consumer.poll(timeout_s=1.0):
                            assert not found or record.offset > max(found)
                            found[record.offset] = record
                            last[record.key] = record.offset
                    read_to, end = end, (await admin.list_offsets({self.tp: LATEST}))[self.tp].offset
            return found

    async def too_much(self, *, gone: bool) -> str:
        """What a compacted topic would not hold, for a reader of a traceback; AssertionError where no compaction may ever
        bring it. `gone`: tombstones are past delete.retention.ms."""
        acked, newest = dict(self.acked), dict(self.newest)
        found = await self.contents()
        for offset, record in found.items():
            if offset in acked:
                assert (record.key, record.value) == acked[offset], "an offset goes on naming the same record"
        for key, offset in newest.items():
            if acked[offset][1] is None:
                assert all(record.key != key or record.value is None for at, record in found.items() if at > offset)
            else:
                assert any(record.key == key and at >= offset for at, record in found.items()), "the newest stays"
        left = [offset for offset, record in found.items() if record.key in DELETED]
        if len(found) >= len(acked) / 2 or (gone and left):
            return f"{len(found)} of {len(acked)} records, those of deleted keys at {left}"
        return ""

    async def compacted(self) -> None:
        told: list[str] = []

        async def nothing_too_much() -> bool:
            told.append(await self.too_much(gone=True))
            return not told[-1]

        try:
            await eventually("the newest records alone", nothing_too_much)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told[-1]}") from error

    async def in_sync(self) -> None:
        """As ZooKeeper has it: every broker is, and who was killed is so in a later life."""

        async def so() -> bool:
            lives = self.stored.lives(self.tp.topic)
            return len(lives) == len(BROKERS) and all(lives[broker] > life for broker, life in self.killed.items())

        await eventually("every broker in sync", so)

    async def kill_leader(self) -> str:
        """Another leads when this returns."""
        leader = self.stored.state(self.tp.topic, 0).leader
        self.killed[leader] = self.stored.lives(self.tp.topic)[leader]
        await asyncio.to_thread(self.cluster.kill, broker_name(leader))

        async def another() -> bool:
            return self.stored.state(self.tp.topic, 0).leader not in (leader, -1)

        await eventually("another leader", another)
        return broker_name(leader)


async def grown(story: Story, count: int) -> None:
    goal = len(story.acked) + count
    await until(f"{count} acks more", lambda: len(story.acked) >= goal)


async def compacted_at_last(story: Story, admin: Admin) -> None:
    """Whoever leads, and has fetched it compacted or compacted it by itself, serves the same newest records."""
    await admin.alter_configs(story.tp.topic, {"min.insync.replicas": "1"})  # so that the last one is read to the end
    await story.in_sync()
    killed: list[str] = []
    await story.compacted()
    # A tombstone goes only while every replica is in sync, so from each of them before one is killed.
    await until("no deleted key in any replica", lambda: not any(map(story.holds_deleted, range(len(BROKERS)))))
    for _ in BROKERS[1:]:
        killed.append(await story.kill_leader())
        await story.compacted()
    for name in killed:
        await asyncio.to_thread(story.cluster.start, name)
    await story.in_sync()
    end = (await admin.list_offsets({story.tp: LATEST}))[story.tp].offset
    assert end == max(story.acked) + 1


async def compacted_under_load(story: Story) -> None:
    async with Admin(story.servers) as admin, Producer(story.servers, acks=-1) as producer:
        await story.send(producer, *((key, b"to be deleted") for key in DELETED))
        stop = asyncio.Event()
        task = asyncio.create_task(story.load(stop))
        await grown(story, 2_000)
        await until("compaction on every broker", lambda: all(story.removed().values()))
        killed = await story.kill_leader()
        await grown(story, 1_000)
        await asyncio.to_thread(story.cluster.start, killed)
        # It is not in sync yet, and holds what these delete.
        await story.send(producer, *((key, None) for key in DELETED))
        await story.too_much(gone=False)
        await story.in_sync()
        killed = await story.kill_leader()
        await grown(story, 1_000)
        await asyncio.to_thread(story.cluster.start, killed)
        await story.in_sync()
        stop.set()
        await task
        await compacted_at_last(story, admin)


async def test_a_topic_is_compacted_while_records_come_and_leaders_die(cluster: LocalCluster) -> None:
    servers, topic = bootstrap_servers(cluster), unique_topic("compact")
    settings = [word for key, value in COMPACTED.items() for word in ("--config", f"{key}={value}")]
    tidelog(servers, "topics", "create", topic, "--partitions", "1", *settings)
    with stored_by(cluster) as stored:
        story = Story(cluster, TopicPartition(topic, 0), stored)
        await compacted_under_load(story)
    for broker in range(len(BROKERS)):
        assert len(log_bytes(cluster, broker, topic, 0)) < 60 * len(story.acked), broker
    tidelog(servers, "topics", "delete", topic)


@requirement("A flipped bit is never served or replicated")
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_a_bit_that_flips_in_a_closed_segment_is_found_and_fetched_again(
    cluster: LocalCluster, tmp_path: Path, leads: bool
) -> None:
    """By the scrub: nobody reads there. `under_load` compares all replicas byte by byte in the end."""

    async with under_load(cluster, tmp_path, assignment=[(0, 1, 2) if leads else (1, 0, 2)]) as scene:
        async with Admin(scene.servers) as admin:
            await admin.alter_configs(scene.topic, {"segment.bytes": "10000"}, [])
        folder = cluster.data_dir(BROKERS[0]) / f"{scene.topic}-0"
        await scene.until("closed segments", lambda: len(list(folder.glob("*.log"))) > 3)
        # What is not synced yet is not read again.
        read = metric(cluster, BROKERS[0], "tidelog_log_scrub_read_bytes_total")
        await scene.until(
            "a round of scrub",
            lambda: metric(cluster, BROKERS[0], "tidelog_log_scrub_read_bytes_total") > read + 30_000,
        )
        segment = sorted(folder.glob("*.log"))[1]
        whole = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(len(whole) // 2)
            file.write(bytes([whole[len(whole) // 2] ^ 1]))
        await scene.until(
            "it to be found",
            lambda: metric(cluster, BROKERS[0], "tidelog_log_corrupt_batches_found_total") >= 1,
        )
        await scene.until("the whole segment again", lambda: whole in log_bytes(cluster, 0, scene.topic, 0))
        await scene.reached("an ISR of all", lambda state: state.leader >= 0 and len(state.isr) == 3)
        if leads:
            assert scene.state().leader_epoch > 0, "another has led meanwhile"
        assert "corrupt batch" in cluster.logs(BROKERS[0], 2_000) and segment.name in cluster.logs(BROKERS[0], 2_000)
