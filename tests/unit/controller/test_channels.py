"""A broker's queue of control requests: order, repetition, merging, and nothing without the lease."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.controller.channels import BrokerChannel
from tidelog.controller.events import BrokerAnswered, FailedReplica
from tidelog.controller.merge import Request
from tidelog.controller.model import Broker
from tidelog.controller.parts import parts
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock
from tidelog.watch.ring import Ring
from tidelog.wire import messages as m
from tidelog.wire.limits import SEQUENCE_JUMP_MAX
from unit.controller.test_merge import metadata, partition, roles, stop
from unit.controller.test_parts import MANY_STATES, of_kind

Script = Callable[[Request], Any]


class FakeWire:
    """Answers each request as `script` says, after a moment."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.got: list[Request] = []
        """As they were handed over: without their sequence numbers."""
        self.sequences: list[int] = []

    async def call(self, method: Any, request: Any, timeout_s: float) -> Any:
        self.got.append(replace(request, sequence=0))
        self.sequences.append(request.sequence)
        await SimClock().sleep(0.01)
        answer = self.script(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def open(self, method: Any) -> Any:
        raise AssertionError("a channel opens no stream")

    async def close(self) -> None:
        return None


class Bench:
    def __init__(self, script: Script) -> None:
        self.wire = FakeWire(script)
        self.answers: list[BrokerAnswered] = []
        self.lease = asyncio.Event()
        self.lease.set()
        self.ring = Ring("controller-1", 1, SimClock())
        broker = Broker(BrokerId(1), 11, 11)
        self.channel = BrokerChannel(
            *(broker, self.wire, SimClock(), 1.0, self._may_act, self.answers.append), recorder=self.ring
        )
        self.tasks = Supervisor("test")

    async def _may_act(self) -> None:
        await self.lease.wait()

    def start(self) -> None:
        self.tasks.start("channel", self.channel.run())


def fine(request: Request) -> Any:
    match request:
        case m.LeaderAndIsrRequest():
            return m.LeaderAndIsrResponse()
        case m.StopReplicaRequest():
            return m.StopReplicaResponse()
        case _:
            return m.UpdateMetadataResponse()


def failing_first(times: int) -> Script:
    left = times

    def script(request: Request) -> Any:
        nonlocal left
        left -= 1
        return TransportError("UNAVAILABLE") if left >= 0 else fine(request)

    return script


@requirement("The controller decides when a broker is told")
@requirement("Decisions are delivered in order and may be applied twice")
async def test_what_waits_goes_out_once_and_in_order() -> None:
    bench = Bench(fine)
    for request in (metadata(), roles(partition("t", 0, 1)), stop(("u", 0, b"a")), roles(partition("t", 0, 2))):
        bench.channel.send(request)
    bench.start()
    await SimClock().sleep(1.0)
    assert bench.wire.got == [stop(("u", 0, b"a")), roles(partition("t", 0, 2)), metadata()]


async def test_who_waits_for_an_answer_stops_waiting_when_the_broker_is_gone() -> None:
    bench = Bench(failing_first(1_000))
    delivered: list[str] = []
    bench.channel.send(roles(partition("t", 0)), lambda: delivered.append("tried"))
    bench.start()
    await SimClock().sleep(0.1)
    bench.channel.send(roles(partition("t", 1)), lambda: delivered.append("new"))
    assert delivered == []
    bench.channel.gone()
    assert delivered == ["tried", "new"]
    bench.channel.gone()
    assert len(delivered) == 2


@requirement("Decisions are delivered in order and may be applied twice")
@requirement("Control requests are repeated in order until answered")
async def test_a_broken_call_is_repeated_and_what_follows_it_waits() -> None:
    bench = Bench(failing_first(3))
    delivered: list[str] = []
    bench.channel.send(roles(partition("t", 0)), lambda: delivered.append("roles"))
    bench.channel.send(metadata())
    bench.start()
    await SimClock().sleep(0.1)
    assert delivered == []
    await SimClock().sleep(1.0)
    assert bench.wire.got == [roles(partition("t", 0))] * 4 + [metadata()]
    assert delivered == ["roles"]


async def test_a_further_try_is_no_event() -> None:
    bench = Bench(failing_first(3))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(1.0)
    bench.channel.send(roles(partition("t", 0)))
    await SimClock().sleep(1.0)
    assert len(bench.wire.got) == 5
    assert [event.fields for event in bench.ring.events()] == [
        m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=1, full=False)
    ] * 2


async def test_a_broker_that_does_not_answer_is_tried_less_and_less_and_at_once_when_it_has_answered() -> None:
    """Each try at a dead broker is paid by those that live: with ten thousand partitions it takes milliseconds."""

    bench = Bench(failing_first(8))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(1.6)  # 50 ms, 100, 200, 400 and 800 lie between
    assert len(bench.wire.got) == 5
    await SimClock().sleep(3.5)
    assert len(bench.wire.got) == 9
    bench.wire.script = failing_first(1)
    bench.channel.send(metadata())
    await SimClock().sleep(0.1)
    assert len(bench.wire.got) == 11


@requirement("The controller decides when a broker is told")
@requirement("The controller publishes only stored and current states")
async def test_a_repeated_request_gives_way_to_the_news_that_came_meanwhile() -> None:
    bench = Bench(failing_first(1))
    bench.channel.send(roles(partition("t", 0, 1), partition("t", 1, 1)))
    bench.start()
    await SimClock().sleep(0.005)
    bench.channel.send(roles(partition("t", 0, 2)))
    await SimClock().sleep(1.0)
    assert bench.wire.got[1:] == [roles(partition("t", 0, 2), partition("t", 1, 1))]


async def test_an_error_for_the_whole_request_is_reported_and_repeated() -> None:
    codes = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]
    bench = Bench(lambda _: m.LeaderAndIsrResponse(error_code=codes.pop(0)))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(1.0)
    assert [each.code for each in bench.answers] == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]


@requirement("A full or failed disk fails over only the partitions on it")
async def test_a_failed_disk_is_reported_and_other_refusals_are_not() -> None:
    results = tuple(
        m.PartitionResult(topic="t", partition=index, error_code=code, topic_id=b"id")
        for index, code in enumerate((ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH))
    )
    bench = Bench(lambda _: m.LeaderAndIsrResponse(partitions=results))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(1.0)
    assert bench.answers == [
        BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, (FailedReplica(TopicPartition("t", 1), b"id"),))
    ]


async def test_without_the_lease_nothing_goes_out() -> None:
    bench = Bench(fine)
    bench.lease.clear()
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(5.0)
    assert bench.wire.got == []
    bench.lease.set()
    await SimClock().sleep(1.0)
    assert len(bench.wire.got) == 1


@requirement("Repeated or reordered control messages break no invariant")
async def test_every_try_has_a_number_of_its_own_that_grows() -> None:
    bench = Bench(failing_first(3))
    bench.channel.send(roles(partition("t", 0)))
    bench.channel.send(metadata())
    bench.start()
    await SimClock().sleep(1.0)
    assert bench.wire.sequences == [1, 2, 3, 4, 5]


@requirement("Decisions are delivered in order and may be applied twice")
async def test_a_large_full_list_goes_part_by_part_and_begins_again_after_a_failure() -> None:
    answers = [fine, lambda _: TransportError("UNAVAILABLE")]

    bench = Bench(lambda request: (answers.pop(0) if answers else fine)(request))
    delivered: list[str] = []
    everything = roles(*MANY_STATES[:9_000], full=True)
    bench.channel.send(everything, lambda: delivered.append("roles"))
    bench.start()
    await SimClock().sleep(0.005)
    bench.channel.send(roles(partition("t", 0)))  # comes meanwhile: it belongs to the list that goes out next
    await SimClock().sleep(2.0)
    whole, got = len(parts(everything)), of_kind(m.LeaderAndIsrRequest, bench.wire.got)
    assert whole > 2 and delivered == ["roles"]
    assert [(part.continued, part.more) for part in got] == [
        (False, True),
        (True, True),
        *((index > 0, index < whole - 1) for index in range(whole)),
    ]
    told = [state for part in got[2:] for state in part.partition_states]
    assert tuple(told) == (*MANY_STATES[:9_000], partition("t", 0))
    assert bench.wire.sequences == sorted(set(bench.wire.sequences))


async def test_numbers_of_another_sender_hold_up_no_controller() -> None:
    heard = 1_000_000

    def script(request: Request) -> Any:
        nonlocal heard
        if request.sequence < heard:
            return m.LeaderAndIsrResponse(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        heard = request.sequence
        return m.LeaderAndIsrResponse()

    bench = Bench(script)
    delivered: list[str] = []
    bench.channel.send(roles(partition("t", 0)), lambda: delivered.append("roles"))
    bench.start()
    await SimClock().sleep(1.0)
    assert delivered == ["roles"]
    assert bench.wire.sequences == [1, 2 + SEQUENCE_JUMP_MAX]


async def test_an_order_that_a_broker_cannot_take_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lambda _: TransportError("INVALID_ARGUMENT", "INVALID_REQUEST: partition is -1"))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(5.0)
    assert "broker 1 refuses LeaderAndIsr: INVALID_ARGUMENT: INVALID_REQUEST: partition is -1" in caplog.text


async def test_a_broker_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(failing_first(3))
    bench.channel.send(roles(partition("t", 0)))
    bench.start()
    await SimClock().sleep(5.0)
    assert "refuses" not in caplog.text
