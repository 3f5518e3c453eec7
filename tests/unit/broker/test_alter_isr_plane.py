"""The AlterIsr client: one request at a time, the newest proposal of each partition, and none is ever dropped."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from helpers.replication import until
from helpers.requirements import requirement
from tidelog.broker.control_plane.alter_isr import NO_ANSWER, REQUEST_BYTES, AlterIsrControlPlane, AlterIsrSettings
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.replica.effects import ProposeIsr
from tidelog.replica.isr import Member
from tidelog.runtime.retry import ALTER_ISR, ALTER_ISR_UNAUTHORIZED
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimProcess
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire.codec import encode

TOPIC_ID = bytes(16)
TIMEOUT_S = 3.0
P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)
ROUND_TRIP_S = 0.001
WIDE = frozenset(Member(2**31 - i, 2**62) for i in range(1, 4))


def proposal(partition_epoch: int, *brokers: int) -> ProposeIsr:
    return ProposeIsr(4, partition_epoch, frozenset(Member(i, i * 100 + 1) for i in brokers or (1, 2)))


def granted(request: m.AlterIsrRequest, code: ErrorCode = ErrorCode.NONE) -> m.AlterIsrResponse:
    """The same answer for every partition."""
    return m.AlterIsrResponse(
        topics=tuple(
            m.AlterIsrTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    m.AlterIsrPartitionResult(
                        partition_id=part.partition_id, error_code=code, leader_and_isr=part.leader_and_isr
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


@dataclass
class Controller:
    """Plays the link to the controller: `answers` are used up from the front, then everything is granted."""

    answers: list[Any] = field(default_factory=list)
    requests: list[m.AlterIsrRequest] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    under_way: int = 0
    under_way_max: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    looked: int = 0

    def look_again(self) -> None:
        self.looked += 1

    async def call(self, _: Any, request: m.AlterIsrRequest, timeout_s: float) -> m.AlterIsrResponse:
        assert timeout_s == TIMEOUT_S
        self.requests.append(request)
        self.sent_at.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            await asyncio.sleep(ROUND_TRIP_S)
            await self.may_answer.wait()
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else granted
        if isinstance(answer, Exception):
            raise answer
        response: m.AlterIsrResponse = answer(request) if callable(answer) else answer
        return response

    def asked(self) -> list[dict[int, int]]:
        """Of every request: partition -> partition epoch."""
        return [
            {p.partition_id: p.leader_and_isr.current_zk_version for t in r.topics for p in t.partitions}
            for r in self.requests
        ]


@dataclass
class Replicas:
    """Plays the replica manager, which may propose anew while it hears an answer."""

    answered: list[tuple[TopicPartition, ProposeIsr, ErrorCode, m.LeaderAndIsr | None]] = field(default_factory=list)
    on_answer: Callable[[TopicPartition, ProposeIsr, ErrorCode], None] = lambda tp, asked, code: None

    def isr_answered(self, tp: TopicPartition, topic_id: bytes, asked: ProposeIsr, code: ErrorCode, state: Any) -> None:
        assert topic_id == TOPIC_ID
        self.answered.append((tp, asked, code, state))
        self.on_answer(tp, asked, code)


class PlaneBench:
    def __init__(self, linger_s: float = 0.1) -> None:
        self.counted: list[str] = []
        self.controller, self.replicas = Controller(), Replicas()
        self.controller.may_answer.set()
        self.broker_epoch, self.controller_epoch = 101, 5
        self.plane = AlterIsrControlPlane(
            AlterIsrSettings(broker_id=1, timeout_s=TIMEOUT_S, expand_linger_s=linger_s),
            lambda: self.broker_epoch,
            lambda: self.controller_epoch,
            self.controller,  # type: ignore[arg-type]
            self.replicas,  # type: ignore[arg-type]
            SimClock(),
            seeded(1, "plane"),
            self.counted.append,
        )

    def propose(self, tp: TopicPartition, asked: ProposeIsr) -> None:
        self.plane.propose_isr(tp, TOPIC_ID, asked)

    async def settled(self) -> None:
        await asyncio.sleep(30.0)


@asynccontextmanager
async def running_plane(linger_s: float = 0.1) -> AsyncIterator[PlaneBench]:
    bench = PlaneBench(linger_s)
    process = SimProcess("plane")
    process.start("AlterIsr", bench.plane.run())
    yield bench
    assert not process.supervisor.failures
    assert bench.controller.under_way_max <= 1


@pytest.fixture
async def bench() -> AsyncIterator[PlaneBench]:
    async with running_plane() as running:
        yield running


@requirement("AlterIsr carries the wanted state of each partition")
@requirement("A leader changes the ISR only on the version that it was told")
@requirement("The controller is the only writer of leader and ISR")
async def test_a_proposal_reaches_the_controller_as_it_is_and_its_answer_comes_back(bench: PlaneBench) -> None:
    bench.propose(P0, proposal(7, 2, 1))
    await bench.settled()
    (request,) = bench.controller.requests
    (topic,) = request.topics
    (part,) = topic.partitions
    assert (request.broker_id, request.broker_epoch, topic.topic, topic.topic_id) == (1, 101, "events", TOPIC_ID)
    assert part.leader_and_isr == m.LeaderAndIsr(
        leader=1,
        leader_epoch=4,
        current_zk_version=7,
        isr=(m.IsrMember(broker_id=1, broker_epoch=101), m.IsrMember(broker_id=2, broker_epoch=201)),
    )
    assert bench.replicas.answered == [(P0, proposal(7, 1, 2), ErrorCode.NONE, part.leader_and_isr)]


@requirement("One AlterIsr carries the changes of many partitions")
@requirement("A rolling restart batches ISR changes and drops no replica")
async def test_f05_4_one_request_is_under_way_and_what_comes_meanwhile_goes_together(bench: PlaneBench) -> None:
    bench.controller.may_answer.clear()
    bench.propose(P0, proposal(7))
    await asyncio.sleep(0.1)
    for i in range(50):
        bench.propose(TopicPartition("events", i), proposal(8))
        bench.propose(TopicPartition("other", i), proposal(9))
    await asyncio.sleep(1.0)
    assert len(bench.controller.requests) == 1
    bench.controller.may_answer.set()
    await bench.settled()
    assert [sum(len(t.partitions) for t in r.topics) for r in bench.controller.requests] == [1, 100]
    assert len(bench.replicas.answered) == 101


async def test_the_newest_proposal_of_a_partition_wins_also_over_a_failed_one(bench: PlaneBench) -> None:
    bench.controller.answers = [TransportError("UNAVAILABLE", "gone")]
    bench.controller.may_answer.clear()
    bench.propose(P0, proposal(7))
    bench.propose(P1, proposal(70))
    await asyncio.sleep(0.1)
    bench.propose(P0, proposal(8))
    bench.propose(P0, proposal(9))
    bench.controller.may_answer.set()
    await bench.settled()
    assert bench.controller.asked() == [{0: 7, 1: 70}, {0: 9, 1: 70}]
    assert [asked.partition_epoch for _, asked, _, _ in bench.replicas.answered] == [9, 70]


FAILURES = {
    "no answer": TransportError("DEADLINE_EXCEEDED", "3 s"),
    "no controller known": TidelogError("none", ErrorCode.NOT_CONTROLLER),
    "not controller": m.AlterIsrResponse(error_code=ErrorCode.NOT_CONTROLLER),
    "stale broker epoch": m.AlterIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
    "another controller's": m.AlterIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH),
    "overtaken by a later one": m.AlterIsrResponse(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "a code of a later version": m.AlterIsrResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
}


@requirement("The high watermark waits for the largest ISR that may be in force")
@requirement("A leader cut from the controllers keeps its ISR change pending")
@requirement("A partition has one pending ISR change, and it is resolved")
@requirement("AlterIsr carries the wanted state of each partition")
@requirement("An AlterIsr during a controller failover reaches the successor")
@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_mut_8_what_has_no_answer_is_sent_again_after_a_pause_and_never_rolled_back(
    bench: PlaneBench, failure: Any
) -> None:
    bench.controller.answers = [failure] * 8
    bench.propose(P0, proposal(7))
    await asyncio.sleep(0.01)
    # A new life, registered meanwhile, and a new controller: requests name them, and none the number of another.
    bench.broker_epoch, bench.controller_epoch = 102, 6
    await bench.settled()
    assert bench.controller.asked() == [{0: 7}] * 9
    assert [r.broker_epoch for r in bench.controller.requests] == [101] + [102] * 8
    assert [r.controller_epoch for r in bench.controller.requests] == [5] + [6] * 8
    assert [r.sequence for r in bench.controller.requests] == list(range(1, 10))
    pauses = [b - a for a, b in zip(bench.controller.sent_at, bench.controller.sent_at[1:], strict=False)]
    assert min(pauses) >= ALTER_ISR.first_pause_s / 2
    assert pauses[-1] >= ALTER_ISR.ceiling_s / 2 > pauses[0]
    assert [code for _, _, code, _ in bench.replicas.answered] == [ErrorCode.NONE]


async def test_r_31_without_permission_an_operator_is_called_and_not_flooded(
    bench: PlaneBench, caplog: pytest.LogCaptureFixture
) -> None:
    refused = m.AlterIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    bench.controller.answers = [refused] * 3
    bench.propose(P0, proposal(7))
    await asyncio.sleep(300.0)
    assert bench.controller.asked() == [{0: 7}] * 4
    pauses = [b - a for a, b in zip(bench.controller.sent_at, bench.controller.sent_at[1:], strict=False)]
    assert min(pauses) >= ALTER_ISR_UNAUTHORIZED.first_pause_s / 2 > ALTER_ISR.ceiling_s
    assert bench.counted == ["CLUSTER_AUTHORIZATION_FAILED"] * 3 + ["NONE"]
    alarms = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(alarms) == 3 and "until an operator permits it" in alarms[0].getMessage()
    assert [code for _, _, code, _ in bench.replicas.answered] == [ErrorCode.NONE]


@requirement("An AlterIsr during a controller failover reaches the successor")
async def test_r_41_who_is_no_controller_makes_us_look_for_the_one(bench: PlaneBench) -> None:
    bench.controller.answers = [m.AlterIsrResponse(error_code=ErrorCode.NOT_CONTROLLER), FAILURES["no answer"]]
    bench.propose(P0, proposal(7))
    await bench.settled()
    assert bench.controller.looked == 1
    assert bench.counted == ["NOT_CONTROLLER", NO_ANSWER, "NONE"]


@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
async def test_r_42_a_change_without_sense_is_a_bug_and_said_so(
    bench: PlaneBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.controller.answers = [lambda request: granted(request, ErrorCode.INVALID_REQUEST)]
    bench.propose(P0, proposal(7))
    await bench.settled()
    assert [code for _, _, code, _ in bench.replicas.answered] == [ErrorCode.INVALID_REQUEST]
    assert ["events-0" in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [True]


def waiting(partition_epoch: int) -> ProposeIsr:
    return replace(proposal(partition_epoch), may_wait=True)


CATCH_UP = 200


async def catch_up(linger_s: float) -> int:
    """A broker has returned: one partition after the other comes into sync, 2 ms apart. How many requests it takes."""

    async with running_plane(linger_s) as bench:
        came_at = []
        for number in range(CATCH_UP):
            came_at.append(asyncio.get_running_loop().time())
            bench.propose(TopicPartition("events", number), waiting(7))
            await asyncio.sleep(0.002)
        await bench.settled()
        for sent_at, request in zip(bench.controller.sent_at, bench.controller.asked(), strict=True):
            for number in request:
                assert sent_at - came_at[number] <= linger_s + 0.01, "an expansion waited for too long"
        assert len(bench.replicas.answered) == CATCH_UP
        return len(bench.controller.requests)


@requirement("A rolling restart batches ISR changes and drops no replica")
@requirement("One AlterIsr carries the changes of many partitions")
@requirement("ISR expansions wait briefly to share one request")
async def test_open_19_a_rolling_catch_up_takes_few_requests() -> None:
    with_linger, without = await catch_up(0.1), await catch_up(0.0)
    assert with_linger <= CATCH_UP * 0.002 / 0.1 + 2
    assert without > CATCH_UP / 2


async def test_open_19_a_shrink_never_waits_and_takes_the_waiting_ones_along(bench: PlaneBench) -> None:
    bench.propose(P0, waiting(7))
    await asyncio.sleep(0.01)
    assert bench.controller.requests == []
    bench.propose(P1, proposal(70))
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    assert bench.controller.asked() == [{0: 7, 1: 70}]


async def test_open_19_what_has_failed_does_not_wait_once_more() -> None:
    async with running_plane(linger_s=5.0) as bench:
        bench.controller.answers = [FAILURES["no answer"]]
        bench.propose(P0, waiting(7))
        await bench.settled()
        first, second = bench.controller.sent_at
        assert second - first <= ALTER_ISR.first_pause_s + ROUND_TRIP_S


@requirement("One AlterIsr carries the changes of many partitions")
async def test_what_is_too_much_for_one_request_goes_with_the_next_one(bench: PlaneBench) -> None:
    name = "n" * 249
    for number in range(20_000):
        bench.propose(TopicPartition(f"{name[5:]}{number:05}", 2**30), ProposeIsr(2**30, 2**30, WIDE))
    await bench.settled()
    sizes = [len(encode(request)) for request in bench.controller.requests]
    assert len(sizes) > 4 and max(sizes) <= REQUEST_BYTES == 1 << 20
    assert len(bench.replicas.answered) == 20_000
    pauses = [b - a for a, b in zip(bench.controller.sent_at, bench.controller.sent_at[1:], strict=False)]
    assert max(pauses) <= 2 * ROUND_TRIP_S


async def test_after_a_success_the_pauses_begin_small_again(bench: PlaneBench) -> None:
    bench.controller.answers = [FAILURES["no answer"]] * 8
    bench.propose(P0, proposal(7))
    await bench.settled()
    bench.controller.answers = [FAILURES["no answer"]]
    bench.propose(P0, proposal(8))
    await bench.settled()
    assert bench.controller.sent_at[-1] - bench.controller.sent_at[-2] <= ALTER_ISR.first_pause_s + ROUND_TRIP_S


async def test_a_partition_that_the_answer_leaves_out_is_in_doubt(bench: PlaneBench) -> None:
    bench.controller.answers = [m.AlterIsrResponse()]
    bench.propose(P0, proposal(7))
    await until(lambda: bench.replicas.answered)
    assert bench.replicas.answered == [(P0, proposal(7), ErrorCode.UNKNOWN_SERVER_ERROR, None)]


async def test_a_refusal_of_one_partition_is_told_to_that_partition_alone(bench: PlaneBench) -> None:
    def refuse_one(request: m.AlterIsrRequest) -> m.AlterIsrResponse:
        ((topic,), refused) = granted(request).topics, ErrorCode.INELIGIBLE_REPLICA
        first, second = topic.partitions
        bad = m.AlterIsrPartitionResult(
            partition_id=second.partition_id, error_code=refused, leader_and_isr=second.leader_and_isr
        )
        return m.AlterIsrResponse(topics=(m.AlterIsrTopicResult(topic=topic.topic, partitions=(bad, first)),))

    bench.controller.answers = [refuse_one]
    bench.propose(P0, proposal(7))
    bench.propose(P1, proposal(8))
    await bench.settled()
    assert {tp: code for tp, _, code, _ in bench.replicas.answered} == {
        P0: ErrorCode.NONE,
        P1: ErrorCode.INELIGIBLE_REPLICA,
    }
    assert len(bench.controller.requests) == 1


@requirement("FENCED_LEADER_EPOCH means that a newer leader exists")
async def test_a_fenced_proposal_is_not_sent_again(bench: PlaneBench) -> None:
    bench.controller.answers = [lambda request: granted(request, ErrorCode.FENCED_LEADER_EPOCH)]
    bench.propose(P0, proposal(7))
    await bench.settled()
    assert bench.controller.asked() == [{0: 7}]
    assert [code for _, _, code, _ in bench.replicas.answered] == [ErrorCode.FENCED_LEADER_EPOCH]


@requirement("An AlterIsr answer settles only its own proposal")
async def test_a_proposal_made_while_the_answer_is_heard_goes_out_at_once(bench: PlaneBench) -> None:
    def next_one(tp: TopicPartition, asked: ProposeIsr, code: ErrorCode) -> None:
        if asked.partition_epoch < 12:
            bench.propose(tp, proposal(asked.partition_epoch + 1))

    bench.replicas.on_answer = next_one
    bench.propose(P0, proposal(7))
    await bench.settled()
    assert bench.controller.asked() == [{0: i} for i in range(7, 13)]
    assert bench.controller.sent_at[-1] <= 6 * ROUND_TRIP_S


@requirement("A leader cut from the controllers keeps its ISR change pending")
async def test_the_same_proposal_again_is_no_busy_loop(bench: PlaneBench) -> None:
    """A controller that is behind answers NOT_CONTROLLER for the partition, whose machine asks the same again."""

    def again(tp: TopicPartition, asked: ProposeIsr, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            bench.propose(tp, asked)

    bench.replicas.on_answer = again
    bench.controller.answers = [lambda r: granted(r, ErrorCode.NOT_CONTROLLER)] * 8
    bench.propose(P0, proposal(7))
    await asyncio.sleep(0.5)
    assert len(bench.controller.requests) <= 8
    await bench.settled()
    assert bench.controller.asked() == [{0: 7}] * 9
    assert bench.replicas.answered[-1][2] is ErrorCode.NONE
