"""What a follower makes of a chunk: applied, cut, refused (I15, MUT-15, HOLE-02)"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helpers.batches import batch, placed
from helpers.replication import FakeLeader, Node, World, broker_world, until
from helpers.requirements import requirement
from tidelog.broker.leader_fetcher import RETRY_S
from tidelog.errors import ErrorCode

KEEPALIVE_S = 4.0
OTHER_ID = b"\xbb" * 16


# -- what a follower makes of a chunk --------------------------------------------------------------------------------


async def following(world: World, two: Node) -> FakeLeader:
    leader = FakeLeader(world)
    await leader.start()
    world.told(1, 3, only=[2])
    await until(lambda: leader.positions(), "the follower's position")
    return leader


GOOD = placed(batch(b"one", b"two"), 0, 3)
MORE = placed(batch(b"three"), 2, 3)


@asynccontextmanager
async def follower_of_a_fake() -> AsyncIterator[tuple[FakeLeader, World, Node]]:
    async with broker_world(2) as (world, two):
        yield await following(world, two), world, two


async def test_a_corrupt_chunk_is_not_appended_and_is_asked_for_again() -> None:
    async with follower_of_a_fake() as (leader, _world, two):
        for bad in (GOOD[:-1] + b"?", GOOD[:-1], GOOD + b"x", MORE, placed(GOOD, 0, -1)):
            ack = (await leader.send(records=bad)).partitions
            assert [(p.error_code, p.offset) for p in ack] == [(ErrorCode.CORRUPT_MESSAGE, 0)]
            assert two.end == 0
            await until(lambda: leader.positions()[-1].error_code is ErrorCode.NONE, limit_s=3 * RETRY_S)
            assert leader.positions()[-1].offset == 0
        assert two.host.offline is None
        (ack_of_good,) = (await leader.send(records=GOOD)).partitions
        assert (ack_of_good.error_code, ack_of_good.offset, ack_of_good.last_fetched_epoch) == (ErrorCode.NONE, 2, 3)
        assert two.everything() == GOOD


@requirement("A follower takes over the high watermark up to its log end")
async def test_i15_a_chunk_for_another_position_or_epoch_is_not_appended() -> None:
    async with follower_of_a_fake() as (leader, _world, two):
        await leader.send(records=GOOD, high_watermark=1)
        assert (two.end, two.high_watermark) == (2, 1)
        for late in (
            {"records": GOOD},  # delivered twice
            {"records": placed(batch(b"x"), 5, 3), "offset": 5},  # a hole
            {"records": placed(batch(b"x"), 2, 2), "offset": 2, "leader_epoch": 2},  # of an earlier leader
            {"diverging_epoch": 1, "diverging_end_offset": 0, "offset": 2, "leader_epoch": 2},
            {"diverging_epoch": 1, "diverging_end_offset": 0, "offset": 1},
        ):
            (position,) = (await leader.send(**late, high_watermark=9)).partitions
            assert (position.offset, position.leader_epoch, position.error_code) == (2, 3, ErrorCode.NONE)
        # A later leader's: its decision has not reached us, and until then there is nothing to say.
        ack = await leader.send(records=placed(batch(b"x"), 2, 4), offset=2, leader_epoch=4, high_watermark=9)
        assert ack.partitions == ()
        assert (two.everything(), two.high_watermark) == (GOOD, 1)
        await leader.send(records=MORE, offset=2, high_watermark=9)
        assert (two.end, two.high_watermark) == (3, 3)


@requirement("A broker ends its old fetch before it changes its role")
async def test_i15_who_leads_or_follows_another_applies_no_chunk() -> None:
    async with follower_of_a_fake() as (leader, world, two):
        world.told(2, 4, only=[2])
        await until(lambda: leader.positions()[-1].leaving)
        assert leader.positions()[-1].leader_epoch == 4
        ack = await leader.send(records=GOOD)
        assert (ack.partitions, two.end) == ((), 0)


@requirement("A follower high watermark never exceeds the end of its log")
async def test_mut_15_the_high_watermark_of_a_diverging_chunk_is_not_taken() -> None:
    async with follower_of_a_fake() as (leader, _world, two):
        await leader.send(records=GOOD + MORE, high_watermark=0)
        (ack,) = (await leader.send(offset=3, diverging_epoch=3, diverging_end_offset=2, high_watermark=3)).partitions
        assert (ack.offset, two.end, two.high_watermark) == (2, 2, 0)


async def test_a_truncation_inside_a_batch_takes_the_whole_batch() -> None:
    async with follower_of_a_fake() as (leader, _world, two):
        await leader.send(records=GOOD + MORE)
        (ack,) = (await leader.send(offset=3, diverging_epoch=3, diverging_end_offset=1)).partitions
        assert (ack.offset, two.end) == (0, 0)
        assert two.host.replica.log_end_offset == 0


@requirement("A full disk moves leadership and heals when space returns")
@requirement("A disk error takes one partition of one broker offline")
async def test_a_follower_whose_disk_fails_says_so_and_takes_no_other_partition_with_it() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, topics=("good", "bad"))
        await until(lambda: one.taps)
        two.disk.fail("append", 5, path="bad-0")
        one.append(topic="bad")
        one.append(topic="good")
        await until(lambda: two.part("good").log.log_end_offset == 1)
        one.append(topic="good")
        await until(lambda: two.part("good").log.log_end_offset == 2)
        assert two.part("bad").offline is not None
        assert one.part("bad").replica.high_watermark == 0
        codes = {p.error_code for tap in one.taps for r in tap.requests for p in r.partitions if p.topic == "bad"}
        assert ErrorCode.KAFKA_STORAGE_ERROR in codes
