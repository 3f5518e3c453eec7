"""Turns at writing: so many at a time, in order, and nobody keeps one for ever."""

import asyncio

from tidelog.coordinator.turns import Turns

SECONDS = 0.1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Asker:
    """Asks for a turn, and says when it has it."""

    def __init__(self, turns: Turns, name: str, got: list[str]) -> None:
        self._turns = turns
        self._name = name
        self._got = got
        self.turn = -1
        self.task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        self.turn = await self._turns.take()
        self._got.append(self._name)


async def test_so_many_at_a_time_in_the_order_of_asking() -> None:
    turns, got = Turns(2, SECONDS), list[str]()
    askers = [Asker(turns, name, got) for name in "abcde"]
    await settle()
    assert got == ["a", "b"]
    turns.give_back(askers[1].turn)
    await settle()
    assert got == ["a", "b", "c"]
    turns.give_back(askers[0].turn)
    turns.give_back(askers[2].turn)
    late = Asker(turns, "late", got)
    await settle()
    assert got == ["a", "b", "c", "d", "e"], "who comes later does not push in"
    late.task.cancel()


async def test_a_consumer_that_does_not_read_keeps_nobody_waiting() -> None:
    turns, got = Turns(2, SECONDS), list[str]()
    askers = [Asker(turns, name, got) for name in "abcdef"]
    await asyncio.sleep(SECONDS * 0.9)
    assert got == ["a", "b"]
    await asyncio.sleep(SECONDS * 0.2)
    assert got == ["a", "b", "c", "d"]
    turns.give_back(askers[0].turn)  # it does not count any more: it makes room for nobody
    await settle()
    assert got == ["a", "b", "c", "d"]
    await asyncio.sleep(SECONDS)
    assert got == ["a", "b", "c", "d", "e", "f"]


async def test_a_turn_of_one_that_is_gone_meanwhile_is_the_next_ones() -> None:
    turns, got = Turns(1, SECONDS), list[str]()
    first, waits, gone, last = (Asker(turns, name, got) for name in ("first", "waits", "gone", "last"))
    await settle()
    waits.task.cancel()
    await settle()
    turns.give_back(first.turn)  # to the one that is cancelled before it hears of it
    gone.task.cancel()
    await settle()
    assert got == ["first", "last"] and last.turn >= 0
