"""InitProducerId: no id twice, one allocation at a time, the next block before the last one is used up (HOLE-28)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.broker.producer_ids import PRODUCER_EPOCH_MAX, ProducerIds
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ports.net import KnownCaller
from tidelog.testing.clock import SimClock
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m


class Controller:
    """Plays the link: `answers` first, then blocks of `length`; each answer takes 10 ms."""

    def __init__(self, clock: SimClock, answers: list[Any] | None = None, length: int = 20) -> None:
        self._clock = clock
        self._answers = answers or []
        self._length = length
        self.next_id = 0
        self.requests: list[m.AllocateProducerIdsRequest] = []
        self.at_once = 0

    async def call(self, _method: object, request: m.AllocateProducerIdsRequest, _timeout_s: float) -> Any:
        self.requests.append(request)
        self.at_once += 1
        assert self.at_once == 1, "one allocation at a time"
        await self._clock.sleep(0.01)
        self.at_once -= 1
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorCode):
            return m.AllocateProducerIdsResponse(error_code=answer, producer_id_start=-1, producer_id_len=0)
        if answer is not None:
            return answer
        start, self.next_id = self.next_id, self.next_id + self._length
        return m.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=self._length)


Ask = Callable[..., Awaitable[m.InitProducerIdResponse]]


@asynccontextmanager
async def answering(*answers: Any) -> AsyncIterator[tuple[Controller, Ask]]:
    """A controller that gives these answers first, and a call to the ids of broker 1."""
    clock = SimClock()
    controller = Controller(clock, list(answers))
    ids = ProducerIds(1, lambda: 11, controller, clock, seeded(1), timeout_s=2.0)  # type: ignore[arg-type]
    task = asyncio.ensure_future(ids.run())

    async def ask(producer_id: int = -1, epoch: int = -1, limit_s: float | None = None) -> m.InitProducerIdResponse:
        request = m.InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        return await ids.init_producer_id(request, KnownCaller("test", limit_s))

    try:
        yield controller, ask
    finally:
        task.cancel()


@requirement("A producer batch that is sent again is stored once")
async def test_ids_are_never_given_twice() -> None:
    async with answering() as (controller, ask):
        answers = await asyncio.gather(*(ask() for _ in range(95)))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        assert sorted(answer.producer_id for answer in answers) == list(range(95))
        assert {answer.producer_epoch for answer in answers} == {0}
        assert controller.requests[0] == m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=11)


@requirement("A producer batch that is sent again is stored once")
async def test_the_next_block_is_there_before_the_last_id_is_given() -> None:
    async with answering() as (controller, ask):
        assert controller.requests == [], "nobody has asked"
        for _ in range(17):
            await ask()
        await asyncio.sleep(1)
        assert len(controller.requests) == 1
        await ask()
        await asyncio.sleep(1)
        assert len(controller.requests) == 2


@requirement("A producer batch that is sent again is stored once")
async def test_who_holds_an_id_gets_its_next_epoch() -> None:
    async with answering() as (controller, ask):
        for _ in range(2):
            answer = await ask(7, 3)
            assert (answer.producer_id, answer.producer_epoch) == (7, 4)
        answer = await ask(7, PRODUCER_EPOCH_MAX - 1)
        assert (answer.producer_id, answer.producer_epoch) == (7, PRODUCER_EPOCH_MAX)
        assert controller.requests == []
        answer = await ask(7, PRODUCER_EPOCH_MAX)
        assert (answer.producer_id, answer.producer_epoch) == (0, 0), "after the last epoch comes a new id"


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    ("producer_id", "epoch", "field"),
    [
        (-1, 0, "producer_id"),
        (-2, -1, "producer_id"),
        (-(2**63), 5, "producer_id"),
        (5, -1, "producer_epoch"),
        (5, 2**15, "producer_epoch"),
        (5, -(2**31), "producer_epoch"),
        (5, 2**31 - 1, "producer_epoch"),
        (2**63 - 1, -1, "producer_epoch"),
    ],
)
async def test_half_an_identity_is_refused(producer_id: int, epoch: int, field: str) -> None:
    async with answering() as (_controller, ask):
        answer = await ask(producer_id, epoch)
        assert answer.error_code is ErrorCode.INVALID_REQUEST
        assert field in answer.error_message and (answer.producer_id, answer.producer_epoch) == (-1, -1)
        assert (await ask()).error_code is ErrorCode.NONE


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        TidelogError("no controller", ErrorCode.NOT_CONTROLLER),
        TransportError("UNAVAILABLE"),
        m.AllocateProducerIdsResponse(producer_id_start=-5, producer_id_len=3),
        m.AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=0),
    ],
)
async def test_an_allocation_is_asked_for_until_it_is_granted(failure: Any) -> None:
    async with answering(failure, failure) as (controller, ask):
        assert (await ask()).producer_id == 0
        assert len(controller.requests) == 3


async def test_without_a_controller_the_caller_is_told_in_time() -> None:
    async with answering(*[TransportError("UNAVAILABLE")] * 5) as (_controller, ask):
        answer = await ask(limit_s=0.5)
        assert answer.error_code is ErrorCode.REQUEST_TIMED_OUT
        assert (await ask()).producer_id == 0
