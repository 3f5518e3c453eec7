"""The broker's side of a controlled shutdown: the tail first, then the question, and an end to both (F-12, row 8)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.batches import batch
from helpers.broker import BrokerBench, member
from helpers.requirements import requirement
from tidelog.broker.hand_over import TAIL_LIMIT_S, HandOver
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.replica import events as ev
from tidelog.testing.clock import SimClock
from tidelog.wire import messages as m

Answer = m.ControlledShutdownResponse | Exception
DONE = m.ControlledShutdownResponse()
ONE_LEFT = m.ControlledShutdownResponse(partitions_remaining=(m.RemainingPartition(topic="events", partition=0),))


def refused(code: ErrorCode) -> m.ControlledShutdownResponse:
    return m.ControlledShutdownResponse(error_code=code)


class Link:
    """Answers in order, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[m.ControlledShutdownRequest, float]] = []
        self.on_call: Callable[[], None] = lambda: None

    async def call(self, method: Any, request: m.ControlledShutdownRequest, timeout_s: float) -> Any:
        self.asked.append((request, timeout_s))
        self.on_call()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def hand_over(bench: BrokerBench, link: Link, epoch: int = 101) -> HandOver:
    return HandOver(1, lambda: epoch, link, bench.manager, bench.clock, limit_s=10.0, backoff_s=1.0)  # type: ignore[arg-type]


def fetched(bench: BrokerBench, offset: int, replica: int = 2) -> None:
    """Broker `replica` states that it holds everything below `offset`."""
    found = bench.host.log.end_offset_for(3)
    life = member(replica).broker_epoch
    bench.host.step(ev.FollowerPosition(replica, life, 3, offset, 3 if offset else -1, *found, bench.clock.now()))


@requirement("A terminated leader hands over before it exits")
async def test_nothing_is_appended_from_then_on_and_the_tail_reaches_the_isr_before_the_question() -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    bench.told(isr=(1, 2), replicas=(1, 2))
    assert (await bench.send(batch(b"a"), acks=1)).error_code is ErrorCode.NONE
    ends: list[int] = []

    async def replicate() -> None:
        await bench.clock.sleep(0.5)
        assert not link.asked
        refusal = await bench.send(batch(b"late"), acks=1)
        assert refusal.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal.error_message == "this leader hands over, another follows"
        assert (await bench.send(batch(b"late"))).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        fetched(bench, 1)

    link.on_call = lambda: ends.append(bench.host.replica.high_watermark)
    beside = asyncio.ensure_future(replicate())
    assert await hand_over(bench, link).run() is True
    await beside
    assert link.asked[0][0] == m.ControlledShutdownRequest(broker_id=1, broker_epoch=101)
    assert ends == [1] and bench.host.log.log_end_offset == 1


@requirement("A terminated leader hands over before it exits")
async def test_an_acks_all_that_waits_for_the_tail_is_answered_and_not_left_in_doubt() -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    bench.told(isr=(1, 2), replicas=(1, 2))
    sent = asyncio.ensure_future(bench.send(batch(b"a"), timeout_ms=5000))
    await bench.clock.sleep(0.1)
    leaving = asyncio.ensure_future(hand_over(bench, link).run())
    await bench.clock.sleep(0.1)
    fetched(bench, 1)
    assert (await sent).error_code is ErrorCode.NONE
    assert await leaving is True


async def test_a_follower_that_does_not_fetch_does_not_keep_the_broker() -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    bench.told(isr=(1, 2), replicas=(1, 2))
    await bench.send(batch(b"a"), acks=1)
    began_at = bench.clock.now()
    assert await hand_over(bench, link).run() is True
    assert TAIL_LIMIT_S <= bench.clock.now() - began_at < TAIL_LIMIT_S + 0.1


@requirement("A terminated leader hands over before it exits")
async def test_who_joins_a_leader_that_leaves_must_have_all_of_its_log() -> None:
    """The controller elects it at once: below min ISR the high watermark says nothing about what acks=1 promised."""

    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    bench.told(isr=(1,), replicas=(1, 2))
    for value in (b"a", b"b"):
        await bench.send(batch(value), acks=1)
    await hand_over(bench, link).run()
    assert bench.host.replica.high_watermark == 0
    fetched(bench, 1)
    assert bench.plane.proposals == []
    fetched(bench, 2)
    (proposal,) = [each for _, each in bench.plane.proposals]
    assert {each.broker_id for each in proposal.isr} == {1, 2}


async def test_what_it_is_made_leader_of_while_it_leaves_takes_no_records_either() -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    bench.told()
    await hand_over(bench, link).run()
    bench.told(topic="new", topic_id=b"n" * 16)
    bench.told(leader_epoch=4, partition_epoch=8)
    for topic in ("new", "events"):
        assert (await bench.send(batch(b"a"), topic=topic)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@requirement("A controlled shutdown moves leaders before the process exits")
@pytest.mark.parametrize(
    ("answers", "took_s"),
    [
        ([ONE_LEFT, ONE_LEFT, DONE], 2.0),
        ([TransportError("UNAVAILABLE", "gone"), DONE], 0.1),
        ([TidelogError("no controller is active", ErrorCode.NOT_CONTROLLER), DONE], 0.1),
        ([refused(ErrorCode.NOT_CONTROLLER), refused(ErrorCode.NOT_CONTROLLER), DONE], 0.2),
    ],
)
async def test_f12_1_it_asks_again_until_nothing_remains(answers: list[Answer], took_s: float) -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(*answers)
    began_at = bench.clock.now()
    assert await hand_over(bench, link).run() is True
    assert bench.clock.now() - began_at == pytest.approx(took_s)
    assert len(link.asked) == len(answers)


@pytest.mark.parametrize("answer", [ONE_LEFT, TransportError("UNAVAILABLE", "gone"), refused(ErrorCode.NOT_CONTROLLER)])
async def test_f12_1_it_gives_up_in_time(answer: Answer) -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(answer)
    began_at = bench.clock.now()
    assert await hand_over(bench, link).run() is False
    assert bench.clock.now() - began_at == pytest.approx(10.0)
    assert all(timeout_s <= 10.0 for _, timeout_s in link.asked)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_a_refusal_that_asking_again_cannot_change_ends_it(code: ErrorCode) -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(refused(code))
    assert await hand_over(bench, link).run() is False
    assert len(link.asked) == 1


async def test_who_has_never_registered_asks_nobody() -> None:
    bench, link = BrokerBench(clock=SimClock()), Link(DONE)
    assert await hand_over(bench, link, epoch=-1).run() is True
    assert link.asked == []
