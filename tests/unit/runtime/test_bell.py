"""Bell: what rings while nobody waits is heard, once."""

import asyncio

from tidelog.runtime.bell import Bell, give_way


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_rings_before_a_wait_are_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    await bell.wait()
    waiter = asyncio.create_task(bell.wait())
    await turns()
    assert not waiter.done()
    bell.ring()
    await turns()
    assert waiter.done()


async def test_rings_before_the_waiter_runs_are_heard_once() -> None:
    bell = Bell()
    heard = 0

    async def listen() -> None:
        nonlocal heard
        while True:
            await bell.wait()
            heard += 1

    listener = asyncio.create_task(listen())
    await turns()
    bell.ring()
    bell.ring()
    await turns()
    assert heard == 1
    bell.ring()
    await turns()
    assert heard == 2
    listener.cancel()


async def test_a_ring_after_a_waiter_was_cancelled_is_kept_for_the_next() -> None:
    bell = Bell()
    waiter = asyncio.create_task(bell.wait())
    await turns()
    waiter.cancel()
    bell.ring()
    await turns()
    assert waiter.cancelled()
    await bell.wait()


async def test_who_was_woken_runs_before_who_gives_way() -> None:
    bell, ran = Bell(), list[str]()

    async def listen() -> None:
        await bell.wait()
        ran.append("woken")

    listener = asyncio.create_task(listen())
    await turns()
    bell.ring()
    await give_way()
    ran.append("gave way")
    await listener
    assert ran == ["woken", "gave way"]
