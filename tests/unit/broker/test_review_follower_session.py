"""What a follower's stream must not carry from one leader epoch into the next, and when it must not fall silent."""

import asyncio

from helpers.batches import batch, placed
from helpers.replication import FakeFollower, FakeLeader, broker_world, until
from helpers.requirements import requirement
from tidelog.topic_config import TopicConfig


@requirement("Every replica fetch carries the current leader epoch")
async def test_a_position_of_an_earlier_epoch_is_sent_nothing_in_a_later_one() -> None:
    """The same broker leads epochs 3 and 5. What this follower held in epoch 3 it may have cut and replaced in epoch 4;
    records or a high watermark of epoch 5 at that offset would be taken for a continuation."""

    async with broker_world(1, 2, 3) as (world, one, *_):
        alone = TopicConfig(min_insync_replicas=1)
        world.told(1, 3, isr=(1,), only=[1], config=alone)
        one.append()
        follower = FakeFollower(world)
        await follower.state(0)
        await follower.read()
        await follower.state(1, last_epoch=3, acked=1)
        await asyncio.sleep(0.5)
        world.told(1, 5, isr=(1,), only=[1], config=alone)
        sent = len(one.chunks)
        one.append()
        await asyncio.sleep(1.0)
        assert one.chunks[sent:] == []
        await follower.state(1, last_epoch=3, leader_epoch=5)
        part = (await follower.read()).partitions[0]
        assert (part.leader_epoch, part.offset, bool(part.records)) == (5, 1, True)


async def test_a_position_that_was_stated_twice_keeps_no_other_partition_waiting() -> None:
    """A new epoch of the same leader: the position goes out by itself and with the answer to a chunk of before. When the
    second has been overtaken there is nothing to read for it, and no event would ever wake the stream for the others."""

    async with broker_world(1, 2, 3) as (world, one, *_):
        world.told(1, 3, only=[1], topics=("events", "orders"))
        follower = FakeFollower(world)
        await follower.state(0)
        await follower.state(0, topic="orders")
        await asyncio.sleep(0.5)
        await follower.write((await follower.read()).chunk)  # high watermarks
        one.append()
        chunk = await follower.read()
        await follower.state(0)
        await asyncio.sleep(0.1)
        one.append(topic="orders")
        await follower.state(1, last_epoch=3, acked=chunk.chunk)
        parts = (await follower.read(limit_s=1.0)).partitions
        assert [part.topic for part in parts if part.records] == ["orders"]


@requirement("A topic id separates topics that share a name")
async def test_a_late_chunk_of_a_deleted_topic_is_none_of_its_successor() -> None:
    """Deleted, created again and followed again on the same stream, before what the leader sent for the old topic was read:
    name, leader epoch and offset all fit."""

    async with broker_world(1, 2) as (world, _, two):
        leader = FakeLeader(world, broker_id=9)
        await leader.start()
        world.told(9, 3, only=[2])
        await until(lambda: leader.streams, "the stream")
        successor = b"\x07" * 16
        world.told(9, 3, only=[2], topic_id=successor)
        await leader.send(records=placed(batch(b"of the old topic"), 0, 3), high_watermark=1)
        assert (two.end, two.high_watermark) == (0, 0)
        await leader.send(records=placed(batch(b"of the new topic"), 0, 3), topic_id=successor)
        assert two.end == 1
