"""Copies that a reassignment makes wait for their quota, on either side of the stream; whatever is in sync does not (KIP-73)."""

import asyncio

import pytest

from helpers.batches import sized_batch
from helpers.replication import CHUNK_BYTES, Node, World, broker_world, until
from tidelog.broker.throttle import BURST_S, Quota
from tidelog.testing.clock import SimClock

RATE = 1_000_000
SIZE = 64 << 10
BATCHES = 60
"""Several chunks: a follower learns what one takes when it is there."""


async def test_a_quota_is_exact_over_time_whatever_the_size_of_a_batch() -> None:
    quota, began = Quota(SimClock(), lambda: RATE), asyncio.get_running_loop().time()
    taken = 0
    for size in (1, 900, 5_000_000, 1, 2_000_000, 3):
        await asyncio.sleep(quota.wait_s())
        assert quota.allowance_bytes() != 0
        quota.used(size)
        taken += size
    await asyncio.sleep(quota.wait_s())
    took = asyncio.get_running_loop().time() - began
    assert taken / RATE - BURST_S <= took <= taken / RATE + 0.01


async def test_a_rate_of_zero_is_no_limit_and_another_rate_counts_at_once() -> None:
    rates = [RATE]
    quota = Quota(SimClock(), lambda: rates[0])
    quota.used(100 * RATE)
    assert quota.allowance_bytes() == 0 and quota.wait_s() > 99
    rates[0] = 100 * RATE
    await asyncio.sleep(1.01)
    assert quota.allowance_bytes() != 0
    rates[0] = 0
    assert quota.allowance_bytes() is None and quota.wait_s() == 0.0


async def test_what_was_copied_without_a_limit_is_not_held_against_a_later_one() -> None:
    rates = [0]
    quota = Quota(SimClock(), lambda: rates[0])
    quota.used(100 * RATE)
    await asyncio.sleep(1.0)
    rates[0] = RATE
    assert quota.wait_s() < 0.001


async def copied_s(world: World, one: Node, two: Node, *, isr: tuple[int, ...], adding: tuple[int, ...]) -> float:
    """How long it takes broker 2 to fetch everything that lies at broker 1."""
    world.told(1, 3, isr=(1,), only=(1,), adding=adding)
    for _ in range(BATCHES):
        one.append(sized_batch(SIZE))
    began = asyncio.get_running_loop().time()
    world.told(1, 3, isr=isr, adding=adding)
    await until(lambda: two.end == BATCHES, limit_s=60.0)
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_of_a_move_takes_as_long_as_its_rate_says(side: str) -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = RATE if side == "leader" else 0
        two.follower_throttle = RATE if side == "follower" else 0
        took = await copied_s(world, one, two, isr=(1,), adding=(2,))
        size = len(one.everything())
        # Nobody waits after the last chunk.
        assert (size - CHUNK_BYTES) / RATE - BURST_S < took < 1.1 * size / RATE, (took, size)


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_keeps_to_its_rate_while_producers_send_more_than_that(side: str) -> None:
    """It never reaches the high watermark, at which it would be let go."""

    async with broker_world() as (world, one, two):
        one.leader_throttle = RATE if side == "leader" else 0
        two.follower_throttle = RATE if side == "follower" else 0
        world.told(1, 3, isr=(1,), only=(1,), adding=(2,))
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        world.told(1, 3, isr=(1,), adding=(2,))
        for _ in range(100):
            one.append(sized_batch(SIZE))
            await asyncio.sleep(SIZE / RATE / 2)
        seconds = 100 * SIZE / RATE / 2
        assert RATE * seconds / 2 < two.end * SIZE < RATE * (seconds + BURST_S) + CHUNK_BYTES


@pytest.mark.parametrize(
    ("isr", "adding"), [((1, 2), (2,)), ((1,), ())], ids=["in the ISR", "catches up without a move"]
)
async def test_what_is_no_copy_of_a_move_waits_for_nothing(isr: tuple[int, ...], adding: tuple[int, ...]) -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = two.follower_throttle = 10
        assert await copied_s(world, one, two, isr=isr, adding=adding) < 1.0


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_that_gets_into_the_isr_waits_no_longer(side: str) -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = 10 if side == "leader" else 0
        two.follower_throttle = 10 if side == "follower" else 0
        world.told(1, 3, isr=(1,), adding=(2,))
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        await asyncio.sleep(3.0)
        assert two.end < BATCHES / 2
        # What comes later is not news that wakes it: its quota is overdrawn for hours, and nothing is appended.
        world.told(1, 3, isr=(1, 2), adding=(2,))
        await until(lambda: two.end == BATCHES, limit_s=1.0)


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_that_the_leader_waits_for_is_not_held_up_although_the_controller_has_not_agreed_yet(
    side: str,
) -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, isr=(1,), adding=(2,))
        await until(
            lambda: bool(one.proposals.proposals)
        )  # nobody answers it: the follower counts and is not in the ISR
        one.leader_throttle = 10 if side == "leader" else 0
        two.follower_throttle = 10 if side == "follower" else 0
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        await until(lambda: one.high_watermark == BATCHES, limit_s=1.0)


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_that_is_about_to_join_is_not_held_up_while_another_change_is_pending(side: str) -> None:
    """The leader waits for it as for one that is joining."""

    async with broker_world(1, 2, 3) as (world, one, two, _three):
        world.told(1, 3, isr=(1,), adding=(2, 3), only=(1, 3))
        await until(lambda: bool(one.proposals.proposals), "a proposal for broker 3, which nobody answers")
        world.told(1, 3, isr=(1,), adding=(2, 3), only=(2,))
        await until(lambda: 2 in one.host.sinks, "broker 2")
        one.leader_throttle = 10 if side == "leader" else 0
        two.follower_throttle = 10 if side == "follower" else 0
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        await until(lambda: one.high_watermark == BATCHES, limit_s=1.0)


def copied_bytes(node: Node, family: str = "reassignment") -> tuple[float | None, float | None]:
    """Sent and taken."""
    name = f"tidelog_{family}_bytes_total"
    return (
        node.registry.get_sample_value(name, {"direction": "out"}),
        node.registry.get_sample_value(name, {"direction": "in"}),
    )


@pytest.mark.parametrize("rate", [0, RATE], ids=["no throttle", "throttled"])
async def test_what_copies_of_moves_send_and_take_is_counted_on_both_sides_throttled_or_not(rate: int) -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = rate
        await copied_s(world, one, two, isr=(1,), adding=(2,))
        size = len(one.everything())
        assert (copied_bytes(one), copied_bytes(two)) == ((size, 0), (0, size))
        assert (copied_bytes(one, "replication"), copied_bytes(two, "replication")) == ((size, 0), (0, size))


@pytest.mark.parametrize(
    ("isr", "adding"), [((1, 2), (2,)), ((1,), ())], ids=["in the ISR", "catches up without a move"]
)
async def test_what_is_no_copy_of_a_move_is_not_counted_as_one(isr: tuple[int, ...], adding: tuple[int, ...]) -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, isr=isr, adding=adding)
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        await until(lambda: two.end == BATCHES)
        size = len(one.everything())
        assert (copied_bytes(one), copied_bytes(two)) == ((0, 0), (0, 0))
        assert (copied_bytes(one, "replication"), copied_bytes(two, "replication")) == ((size, 0), (0, size))


async def test_beside_a_throttled_copy_the_others_go_on() -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = two.follower_throttle = 10
        world.told(1, 3, isr=(1,), adding=(2,), topics=("moving",))
        world.told(1, 3)
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE), "moving")
            one.append(sized_batch(SIZE))
        await until(lambda: two.end == BATCHES)
        assert two.part("moving").log.log_end_offset < BATCHES / 2


async def test_two_who_share_a_rate_get_like_amounts() -> None:
    """Either of them could take all that comes into the quota between two looks. Not shuffled: a real loop wakes them in the
    same order each time."""
    world = World()
    await world.start()
    one, two, three = world.nodes.values()
    one.leader_throttle = RATE
    topics = [f"moving-{number}" for number in range(6)]
    world.told(1, 3, isr=(1,), only=(1,), adding=(2, 3), topics=topics)
    for topic in topics:
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE), topic)
    world.told(1, 3, isr=(1,), adding=(2, 3), topics=topics)

    def taken(node: Node) -> int:
        return sum(node.part(topic).log.log_end_offset for topic in topics)

    await until(lambda: taken(two) + taken(three) > 2 * BATCHES, limit_s=20.0)
    assert min(taken(two), taken(three)) > BATCHES / 2, (taken(two), taken(three))


async def test_what_producers_wait_for_goes_before_the_copies() -> None:
    async with broker_world() as (world, one, two):
        topics = [f"moving-{number}" for number in range(8)]
        world.told(1, 3, isr=(1,), adding=(2,), topics=topics)
        world.told(1, 3)
        for topic in topics:
            for _ in range(BATCHES):
                one.append(sized_batch(SIZE), topic)
        await until(lambda: len(one.chunks) > 3)
        before = len(one.chunks)
        one.append()
        await until(lambda: two.end == 1)
        assert len(one.chunks) == before + 1, "the one that was on its way, and the next"


async def test_copies_go_on_beside_a_busy_topic() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, isr=(1,), adding=(2,), topics=("moving",))
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE), "moving")
        world.told(1, 3)
        for _ in range(10 * BATCHES):
            one.append(sized_batch(SIZE))
        await until(lambda: two.part("moving").log.log_end_offset == BATCHES)
        assert two.end < 5 * BATCHES


@pytest.mark.parametrize("size", [CHUNK_BYTES + 1000, 2 * CHUNK_BYTES + 1000])
async def test_copies_go_on_beside_batches_that_fill_a_chunk(size: int) -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, isr=(1,), adding=(2,), topics=("moving",))
        for _ in range(5):
            one.append(sized_batch(size), "moving")
        world.told(1, 3)
        for _ in range(15):
            one.append(sized_batch(size))
        await until(lambda: two.part("moving").log.log_end_offset == 5)
        assert two.end < 10


async def test_a_rate_that_is_taken_away_frees_what_waits() -> None:
    async with broker_world() as (world, one, two):
        one.leader_throttle = two.follower_throttle = 10
        world.told(1, 3, isr=(1,), adding=(2,))
        for _ in range(BATCHES):
            one.append(sized_batch(SIZE))
        await asyncio.sleep(3.0)
        assert two.end < BATCHES / 2
        one.leader_throttle = two.follower_throttle = 0
        await until(lambda: two.end == BATCHES)
