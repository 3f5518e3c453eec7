"""A slow disk holds up the process that calls it on its event loop, and only what waits for it beside the loop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import SimNode

TAKES_S = 2.0


def a_broker() -> SimNode:
    cluster = SimCluster(0, brokers=1, controllers=1)
    cluster.start()
    return cluster.brokers[0]


async def ticks_during(node: SimNode, work: Callable[[], Awaitable[object]]) -> tuple[int, float]:
    """Returns how often the process woke up while it did the work, and how long that took."""
    assert node.process is not None
    ticks, loop = 0, asyncio.get_running_loop()
    began = loop.time()

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.1)
            ticks += 1

    ticking = node.process.start("tick", tick())
    await node.process.start("work", work())
    ticking.cancel()
    return ticks, loop.time() - began


async def test_an_append_on_the_loop_holds_up_the_process() -> None:
    node = a_broker()
    file = node.disk.open("/slow", create=True)
    node.disk.slow("append", TAKES_S, path="/slow")

    async def append() -> None:
        file.append([b"x"])
        await asyncio.sleep(0)

    ticks, took_s = await ticks_during(node, append)
    assert took_s == TAKES_S and ticks <= 1
    assert node.process is not None and not node.process.paused


async def test_a_sync_in_the_background_holds_up_nothing() -> None:
    node = a_broker()
    file = node.disk.open("/slow", create=True)
    node.disk.slow("sync", TAKES_S, path="/slow")
    ticks, took_s = await ticks_during(node, lambda: node.disk.in_background(file.sync))
    assert took_s == TAKES_S and ticks > 15


@pytest.mark.parametrize("calls", [1, 5])
async def test_calls_after_the_end_are_fast(calls: int) -> None:
    node = a_broker()
    file = node.disk.open("/slow", create=True)
    node.disk.slow_down(["append"], TAKES_S, TAKES_S)

    async def append() -> None:
        for _ in range(calls):
            file.append([b"x"])
        await asyncio.sleep(0)

    _, took_s = await ticks_during(node, append)
    assert took_s == TAKES_S


async def test_a_look_from_outside_holds_up_no_process() -> None:
    node = a_broker()
    node.disk.slow("read", TAKES_S)
    node.disk.overwrite("/slow", b"x")
    assert node.disk.read("/slow") == b"x"
    assert node.process is not None and not node.process.paused
