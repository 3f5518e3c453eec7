"""The budget of responses: what they hold, when one has to wait, and which connection is given up."""

import asyncio

import pytest

from helpers.requirements import requirement
from tidelog.errors import ThrottlingQuotaExceededError
from tidelog.runtime.responses import CALL_BYTES, COPIES, LEAST_BYTES, SLOW_S, ResponseBudget

LEAST_COST = COPIES * LEAST_BYTES + CALL_BYTES

MIB = 1 << 20
ALL, EACH = 64 * MIB, 16 * MIB
FETCHES = EACH // 4
"""Part of a connection for responses that are fitted to the room there is."""


class Bench:
    def __init__(self, times: int = 1) -> None:
        self.now = 100.0
        self.cuts: list[str] = []
        self.budget = ResponseBudget(lambda: self.now, self._cut, times * ALL, times * EACH)

    def _cut(self, peer: str) -> bool:
        self.cuts.append(peer)
        return True


def test_a_response_counts_until_it_is_released() -> None:
    budget = Bench(times=4).budget
    release = budget.hold("a", MIB)
    assert budget.bytes == COPIES * MIB + CALL_BYTES
    part = budget.hold("a", MIB, part=True)
    assert budget.bytes == 2 * COPIES * MIB + CALL_BYTES
    for _ in range(2):
        release()
        part()
    assert budget.bytes == 0 and budget.room("a", ALL) == (FETCHES - CALL_BYTES) // COPIES


def test_one_connection_takes_no_more_than_its_share() -> None:
    budget = Bench().budget
    while room := budget.room("slow", 3 * MIB):
        budget.hold("slow", room)
    assert FETCHES - LEAST_COST <= budget.bytes <= FETCHES
    assert budget.room("other", MIB) == MIB
    budget.hold("slow", (EACH - FETCHES - CALL_BYTES) // COPIES)  # what cannot be made smaller has the rest


@requirement("A broker at its limits refuses requests and loses nothing")
def test_many_slow_connections_never_pass_the_limit() -> None:
    budget = Bench().budget
    for number in range(100):
        while room := budget.room(f"slow {number}", ALL):
            budget.hold(f"slow {number}", room)
        if number < 4:
            assert budget.room("other", MIB) == MIB
    assert ALL - 4 * LEAST_COST <= budget.bytes <= ALL
    assert budget.room("other", 1_000) == 1_000


def test_a_small_response_needs_room_for_itself_alone() -> None:
    budget = Bench().budget
    budget.hold("a", (FETCHES - 2 * CALL_BYTES) // COPIES - 1_000)
    assert (budget.room("a", 1_000), budget.room("a", 10_000)) == (1_000, 0)


@requirement("A broker at its limits refuses requests and loses nothing")
def test_what_has_no_room_is_refused_and_names_the_limit() -> None:
    bench = Bench()
    bench.budget.hold("a", 7 * MIB)
    with pytest.raises(ThrottlingQuotaExceededError, match=f"connection_responses_max_bytes is {EACH}: read them"):
        bench.budget.hold("a", 3 * MIB)
    with pytest.raises(ThrottlingQuotaExceededError, match="this connection has responses of"):
        bench.budget.hold("a", 3 * MIB, part=True)
    bench.budget.hold("b", 20 * MIB)  # the only one of its connection may be larger
    with pytest.raises(ThrottlingQuotaExceededError, match=f"this process has .* responses_max_bytes is {ALL}"):
        bench.budget.hold("c", 20 * MIB)
    bench.budget.hold("c", 20 * MIB, part=True)  # other readers do not hold up a stream


def test_a_response_larger_than_all_goes_alone() -> None:
    bench = Bench()
    release = bench.budget.hold("a", ALL)
    with pytest.raises(ThrottlingQuotaExceededError):
        bench.budget.hold("b", 1)
    release()
    bench.budget.hold("b", 1)


async def test_a_wait_ends_when_room_is_freed() -> None:
    bench = Bench()
    release = bench.budget.hold("a", EACH // COPIES)
    waiting = asyncio.ensure_future(bench.budget.wait("a"))
    await asyncio.sleep(0)
    release()
    await asyncio.sleep(0.01)
    assert waiting.done() and bench.budget.room("a", MIB) == MIB


async def test_a_small_response_wakes_no_crowd() -> None:
    bench = Bench()
    for number in range(4):
        bench.budget.hold(f"slow {number}", EACH // COPIES - CALL_BYTES)
    waiting = [asyncio.ensure_future(bench.budget.wait("slow 0")) for _ in range(100)]
    waiting += [asyncio.ensure_future(bench.budget.wait("another")) for _ in range(100)]
    await asyncio.sleep(0)
    bench.budget.hold("fast", 100, part=True)()
    await asyncio.sleep(0.01)
    assert sum(each.done() for each in waiting) == 1, "of those that wait for room of the process"
    for each in waiting:
        each.cancel()


async def test_a_large_response_wakes_as_many_as_may_find_room() -> None:
    bench = Bench()
    release = bench.budget.hold("a", EACH // COPIES)
    waiting = [asyncio.ensure_future(bench.budget.wait("a")) for _ in range(100)]
    others = [asyncio.ensure_future(bench.budget.wait("b")) for _ in range(100)]
    await asyncio.sleep(0)
    release()
    await asyncio.sleep(0.01)
    assert all(each.done() for each in waiting[: EACH // LEAST_COST])
    assert [each.done() for each in others].index(False) == 1 + EACH // LEAST_COST
    for each in (*waiting, *others):
        each.cancel()


def test_the_slowest_connection_is_closed_for_the_others() -> None:
    bench = Bench()
    bench.budget.hold("small and slow", MIB)
    bench.budget.hold("slow", 7 * MIB)
    bench.budget.hold("slow", 10)
    bench.now += SLOW_S
    bench.budget.hold("fast", 15 * MIB)
    for expected in (["slow"], ["slow", "small and slow"], ["slow", "small and slow"]):
        with pytest.raises(ThrottlingQuotaExceededError):
            bench.budget.hold("other", 10 * MIB)
        assert bench.cuts == expected
    bench.now += SLOW_S
    with pytest.raises(ThrottlingQuotaExceededError):
        bench.budget.hold("other", 10 * MIB)
    assert bench.cuts[2:] == ["fast"], "the one that holds the most"


async def test_a_connection_that_is_full_closes_no_other() -> None:
    bench = Bench()
    bench.budget.hold("other", MIB)
    bench.budget.hold("full", EACH // COPIES)
    bench.now += SLOW_S
    waiting = asyncio.ensure_future(bench.budget.wait("full"))
    await asyncio.sleep(0)
    assert not bench.cuts
    waiting.cancel()
    for number in range(8):
        bench.budget.hold(f"slow {number}", 2 * MIB)
    asking = asyncio.ensure_future(bench.budget.wait("none"))
    await asyncio.sleep(0)
    assert bench.cuts == ["full"]
    asking.cancel()
