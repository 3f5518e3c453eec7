"""ProduceStream, both ends: order in, order of decision out, and what a break leaves behind."""

import asyncio
from typing import Any

import pytest

from helpers.aio import eventually
from helpers.batches import batch
from helpers.broker import BrokerBench
from helpers.requirements import requirement
from tidelog.broker.produce import Answer, Examined
from tidelog.broker.produce_session import UNANSWERED_MAX, ProduceStreams
from tidelog.client.produce_link import ProduceLink
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address
from tidelog.ports.net import KnownCaller, Route
from tidelog.runtime.clock import SystemClock
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_PRODUCE_STREAM
from unit.broker.test_produce import follower_at, values

CALLER = KnownCaller("test")


def request(*records: bytes, acks: int = -1, timeout_ms: int = 1000) -> m.ProduceRequest:
    part = m.ProducePartition(topic="events", partition=0, leader_epoch=-1, records=batch(*records))
    return m.ProduceRequest(client_id="test", acks=acks, timeout_ms=timeout_ms, partitions=(part,))


class Wire:
    """A stream whose other end is the test."""

    def __init__(self, *requests: m.ProduceRequest) -> None:
        self.requests: asyncio.Queue[m.ProduceRequest | TransportError | None] = asyncio.Queue()
        for each in requests:
            self.requests.put_nowait(each)
        self.read_count = 0
        self.messages: list[m.ProduceAnswers] = []
        self.writes_begun = 0
        self.taken = asyncio.Event()
        self.taken.set()

    async def read(self) -> m.ProduceRequest | None:
        found = await self.requests.get()
        self.read_count += 1
        if isinstance(found, TransportError):
            raise found
        return found

    async def write(self, message: m.ProduceAnswers) -> None:
        self.writes_begun += 1
        await self.taken.wait()
        self.messages.append(message)

    def cancel(self) -> None:
        self.requests.put_nowait(TransportError("CANCELLED", "broken"))

    def numbers(self) -> list[list[int]]:
        return [[answer.number for answer in message.answers] for message in self.messages]


def streams(bench: BrokerBench, counted: list[ErrorCode] | None = None) -> ProduceStreams:
    def count(_api: str, response: m.ProduceResponse, _seconds: float) -> None:
        if counted is not None:
            counted.extend(result.error_code for result in response.results)

    return ProduceStreams(bench.produce.examine, bench.produce.submit, bench.clock, count)


def replicated_bench() -> BrokerBench:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    return bench


@requirement("A produce request is appended in order and queued until commit")
async def test_requests_are_appended_in_order_and_answered_as_they_are_decided() -> None:
    bench, counted = replicated_bench(), list[ErrorCode]()
    wire = Wire(request(b"a"), request(b"b", b"c", acks=1), request(b"d"), request(b"e", acks=7))
    serving = asyncio.create_task(streams(bench, counted).serve(wire, CALLER))
    await eventually(lambda: wire.numbers() == [[2], [4]], "what needs no follower, as it is decided")
    assert bench.host.log.log_end_offset == 4
    bench.host.step(follower_at(4))
    await eventually(lambda: wire.numbers() == [[2], [4], [1, 3]], "what was committed together, in one message")
    by_number = {a.number: a.response.results[0] for message in wire.messages for a in message.answers}
    assert [by_number[n].base_offset for n in (1, 2, 3)] == [0, 1, 3]
    assert by_number[4].error_code is ErrorCode.INVALID_REQUIRED_ACKS
    assert values(bench) == [b"a", b"b", b"c", b"d"], "in the order of arrival"
    assert counted == [ErrorCode.NONE, ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.NONE, ErrorCode.NONE]
    wire.requests.put_nowait(None)
    await serving


@requirement("A produce request is appended in order and queued until commit")
async def test_each_answer_names_the_offset_of_its_own_records() -> None:
    bench = replicated_bench()
    sent = [[b"%d of %d" % (number, stream) for number in range(5)] for stream in range(3)]
    wires = [Wire(*[request(value, acks=1) for value in each]) for each in sent]
    tasks = [asyncio.create_task(streams(bench).serve(wire, CALLER)) for wire in wires]
    for wire in wires:
        wire.requests.put_nowait(None)
    await asyncio.gather(*tasks)
    stored = values(bench)
    for wire, each in zip(wires, sent, strict=True):
        results = [answer.response.results[0] for message in wire.messages for answer in message.answers]
        assert [stored[result.base_offset] for result in results] == each
    assert len(stored) == 15


async def test_a_producer_that_ends_the_stream_gets_what_it_waits_for_first() -> None:
    bench = replicated_bench()
    wire = Wire(request(b"a"))
    wire.requests.put_nowait(None)
    wire.taken.clear()
    serving = asyncio.create_task(streams(bench).serve(wire, CALLER))
    await eventually(lambda: bench.produce.waiting == 1)
    bench.host.step(follower_at(1))
    await asyncio.sleep(0.01)
    assert not serving.done()  # the answer is not written yet
    wire.taken.set()
    await serving
    assert wire.numbers() == [[1]]


async def test_an_end_that_arrives_during_a_write_does_not_cut_the_answer_off() -> None:
    wire = Wire(request(b"a", acks=1))
    wire.taken.clear()
    serving = asyncio.create_task(streams(replicated_bench()).serve(wire, CALLER))
    await eventually(lambda: wire.writes_begun == 1)
    wire.requests.put_nowait(None)
    await eventually(lambda: wire.read_count == 2)
    await asyncio.sleep(0.01)
    wire.taken.set()
    await serving
    assert wire.numbers() == [[1]]


async def test_a_broken_stream_leaves_nothing_parked_and_the_record_in_the_log() -> None:
    bench = replicated_bench()
    wire = Wire(request(b"a"), request(b"b"))
    serving = asyncio.create_task(streams(bench).serve(wire, CALLER))
    await eventually(lambda: bench.produce.waiting == 2)
    wire.cancel()
    await serving
    assert bench.produce.waiting == 0
    assert bench.host.log.log_end_offset == 2
    bench.host.step(follower_at(2))  # settles what nobody waits for any more
    assert wire.messages == []


async def test_one_stream_cannot_park_without_end() -> None:
    answers: list[Answer] = []

    class Forever:
        def give_up(self) -> None: ...

    def submit(_request: m.ProduceRequest, answer: Answer, _examined: Examined | None) -> Forever:
        answers.append(answer)
        return Forever()

    wire = Wire(*[request(b"x")] * (UNANSWERED_MAX + 5))
    serving = asyncio.create_task(
        ProduceStreams(lambda *_: None, submit, SystemClock(), lambda *_: None).serve(wire, CALLER)
    )
    await eventually(lambda: wire.read_count == UNANSWERED_MAX)
    await asyncio.sleep(0.01)
    assert wire.read_count == UNANSWERED_MAX
    for answer in answers:
        answer(m.ProduceResponse())
    await eventually(lambda: wire.read_count == UNANSWERED_MAX + 5)
    wire.cancel()
    await serving


class Server:
    """ProduceStream on a simulated network; `silent` requests are never answered."""

    def __init__(self) -> None:
        self.network = SimNetwork(seeded(1, "net"))
        self.silent: set[str] = set()
        self.seen: list[str] = []
        self.streams = 0

    async def serve(self, stream: Any, _: Any) -> None:
        self.streams += 1
        number = 0
        while (asked := await stream.read()) is not None:
            number += 1
            self.seen.append(asked.client_id)
            if asked.client_id == "break":
                return
            if asked.client_id not in self.silent:
                answer = m.ProduceAnswer(number=number, response=m.ProduceResponse())
                await stream.write(m.ProduceAnswers(answers=(answer,)))

    async def link(self) -> ProduceLink:
        server = await self.network.node("server").serve(
            Address("server", 1), [Route(REPLICA_SERVICE_PRODUCE_STREAM, self.serve)]
        )
        return ProduceLink(self.network.node("client").channel(server.address, purpose="produce"))


def named(name: str) -> m.ProduceRequest:
    return m.ProduceRequest(client_id=name, acks=-1, timeout_ms=1000)


@pytest.mark.parametrize("seed", range(3))
async def test_a_break_fails_every_call_and_the_next_one_opens_another_stream(seed: int) -> None:
    server = Server()
    server.silent = {"waits"}
    link = await server.link()
    waits = asyncio.create_task(link.call(named("waits"), 60.0))
    await asyncio.sleep(0.1)  # of virtual time: tasks begin in an order that the seed chooses
    assert await link.call(named("first"), 60.0) == m.ProduceResponse()
    with pytest.raises(TransportError):
        await link.call(named("break"), 60.0)
    with pytest.raises(TransportError):
        await waits
    assert await link.call(named("again"), 60.0) == m.ProduceResponse()
    assert (server.streams, server.seen) == (2, ["waits", "first", "break", "again"])
    await link.close()


@pytest.mark.parametrize("seed", range(3))
async def test_a_call_that_gives_up_leaves_the_stream_to_the_others(seed: int) -> None:
    server = Server()
    server.silent = {"lost"}
    link = await server.link()
    with pytest.raises(TransportError) as late:
        await link.call(named("lost"), 0.5)
    assert late.value.status == "DEADLINE_EXCEEDED"
    assert await link.call(named("next"), 60.0) == m.ProduceResponse()
    assert server.streams == 1
    closing = asyncio.create_task(link.call(named("lost"), 60.0))
    await asyncio.sleep(0.1)
    await link.close()
    with pytest.raises(TransportError):
        await closing
