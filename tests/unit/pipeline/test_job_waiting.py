"""Waiting for brokers, topics and Spark's master: for what may come, as long as was said, and not without a word."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.pipeline.jobs.waiting import ASK_AGAIN_S, awaited, master_listens
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimLoop

NO_BROKER = TransportError("UNAVAILABLE", "nobody at broker-1:9092")
NO_TOPIC = TidelogError("topic 'events' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NO_MASTER = ConnectionError("no master")
NEVER = TidelogError("not allowed", ErrorCode.INVALID_TOPIC_EXCEPTION)


def asking(*answers: Exception | str) -> Callable[[], Awaitable[str]]:
    """One after the other, and the last one again and again."""
    left = list(answers)

    async def ask() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def waited(ask: Callable[[], Awaitable[str]], limit_s: float) -> tuple[str | Exception, list[str], float]:
    """What came of it, what was said, and after how many seconds."""
    said: list[str] = []

    async def story() -> tuple[str | Exception, list[str], float]:
        clock = SimClock()
        try:
            return await awaited(ask, limit_s, clock, said.append), said, clock.now()
        except (TidelogError, TransportError, ConnectionError) as error:
            return error, said, clock.now()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(story())


def test_what_is_there_is_not_waited_for() -> None:
    assert waited(asking("id"), 0.0) == ("id", [], 0.0)
    assert waited(asking("id"), 60.0) == ("id", [], 0.0)


def test_each_reason_is_told_once() -> None:
    found, said, after_s = waited(asking(NO_BROKER, NO_BROKER, NO_TOPIC, NO_TOPIC, NO_MASTER, "id"), 60.0)
    assert found == "id"
    assert said == [
        "waiting, UNAVAILABLE: nobody at broker-1:9092",
        "waiting, topic 'events' does not exist",
        "waiting, no master",
    ]
    assert after_s == 5 * ASK_AGAIN_S


def test_the_last_error_comes_when_the_time_is_over() -> None:
    assert waited(asking(NO_BROKER, NO_TOPIC), 7.0)[::2] == (NO_TOPIC, 7.0)
    assert waited(asking(NO_BROKER), 0.0) == (NO_BROKER, [], 0.0)


def test_what_can_never_work_is_not_waited_for() -> None:
    assert waited(asking(NO_BROKER, NEVER), 60.0)[::2] == (NEVER, ASK_AGAIN_S)


@pytest.mark.real_loop
async def test_one_of_several_masters_is_enough_and_none_is_an_error_that_names_them() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    open_port = server.sockets[0].getsockname()[1]
    closed = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    dead_port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    async with server:
        await master_listens(f"spark://127.0.0.1:{dead_port},127.0.0.1:{open_port}")
    dead = f"spark://127.0.0.1:{dead_port}"
    with pytest.raises(ConnectionError, match=f"no master of Spark listens at {dead} .*127.0.0.1:{dead_port}"):
        await master_listens(dead)


@pytest.mark.parametrize("master", [None, "local[*]", "yarn", "k8s://https://a:6443"])
def test_other_masters_are_sparks_own_business(master: str | None) -> None:
    asyncio.run(master_listens(master))
