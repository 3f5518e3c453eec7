"""Every method of proto/, asked for what no client of ours would ask: none holds up its process, takes much memory or appends.

A method that is new is asked too. No time is measured: what counts is how many functions a step of the event loop calls.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from helpers import hostile
from helpers.hostile import METHODS, Caller, Method, Request, StepCounter
from helpers.memory import PeakMemory
from helpers.whole_cluster import Bed, whole_cluster
from tidelog.ids import TopicPartition
from tidelog.ports.net import Bidi
from tidelog.testing.net import SimServer
from tidelog.wire import limits

NAMES = [each.path.rpartition("/")[2] for each in METHODS]
VALUES = [b"before", b"the hostile ones"]
VICTIM = "victim"
"""The topic that requests are about. They may delete it."""


class Edge:
    """A cluster that strangers ask for one method."""

    def __init__(self, bed: Bed, kept: str, method: Method, counter: StepCounter) -> None:
        self.bed = bed
        self.kept = kept
        self.method = method
        self.counter = counter

    def servers(self) -> list[SimServer]:
        """Every listener that serves the method."""
        listening = self.bed.cluster.network.listening.values()
        return [server for server in listening if server.route(self.method) is not None]

    def some_servers(self) -> list[SimServer]:
        """A listener of the leader of the victim, and those of the controllers."""
        leader = self.bed.cluster.nodes[f"broker-{self.bed.cluster.leader(TopicPartition(VICTIM, 0))}"]
        some = {leader.address, *(node.address for node in self.bed.cluster.controllers)}
        return [server for server in self.servers() if server.address in some]

    async def measure(self, server: SimServer) -> None:
        """The largest requests that are taken set what a step may call."""
        self.counter.limit, self.counter.most = hostile.BASELINE_CALLS, hostile.FLOOR_CALLS
        for request in hostile.at_limits(self.method.request):
            memory = PeakMemory()
            await hostile.send(server, self.method, [request.data])
            told = f"{self.method.path} at {server.address}: {request[:2]}"
            assert self.counter.held is None, f"{told}: {self.counter.held} holds the loop"
            assert memory.growth_bytes < hostile.LARGEST_GROWTH_BYTES, f"{told}: takes {memory.growth_bytes >> 20} MiB"
        self.counter.limit = hostile.TIMES * self.counter.most

    async def ask(self, server: SimServer, *requests: Request) -> Caller:
        told = f"{self.method.path} at {server.address}: {[each[:2] for each in requests[-3:]]}"
        memory = PeakMemory()
        caller = await hostile.send(server, self.method, [each.data for each in requests])
        assert self.counter.held is None, f"{told}: {self.counter.held} holds the loop"
        assert memory.growth_bytes < hostile.GROWTH_BYTES, f"{told}: takes {memory.growth_bytes >> 20} MiB"
        assert self.bed.cluster.world.bugs == [], told
        _, reason = caller.refusal or ("", "")
        assert len(reason.encode()) < hostile.REASON_BYTES, f"{told}: {reason[:200]} and {len(reason)} characters"
        assert max(caller.answers, default=0) < hostile.SMALL_BYTES, f"{told}: answers {caller.answers}"
        return caller

    async def ask_too_much(self, server: SimServer) -> None:
        """Each is refused by a count, before anything is made of it."""
        for request in hostile.full_lists(self.method.request):
            caller = await self.ask(server, request)
            assert caller.answers == [] and caller.refusal is not None, f"{request[:2]} is not refused"
            status, reason = caller.refusal
            most = limits.LIMITS[self.method.request][request.field]
            assert status == "INVALID_ARGUMENT", request[:2]
            assert reason.startswith(f"INVALID_REQUEST: {request.field} holds ") and f"at most {most} " in reason

    async def ask_each(self, server: SimServer, requests: Sequence[Request]) -> None:
        for request in requests:
            await self.ask(server, request)
        if isinstance(self.method, Bidi):
            await self.ask(server)
            await self.ask(server, *requests)


@asynccontextmanager
async def edge_of(method: Method) -> AsyncIterator[Edge]:
    """Afterwards nothing was appended, no process has ended, and ordinary work is done."""
    async with whole_cluster(external=True) as bed:
        topic, victim = await bed.topic(), TopicPartition(VICTIM, 0)
        await bed.admin.create_topic(
            VICTIM, assignment=[[0, 1, 2]]
        )  # 0 is what numbers are where they are at no extreme
        await bed.admin.wait_until_led(VICTIM, in_sync=True, timeout_s=60.0)
        for name in (topic, VICTIM):
            await produce(bed, name, VALUES[0])
        end = bed.cluster.end(victim)
        with StepCounter() as counter:
            yield Edge(bed, topic, method, counter)
        assert await bed.values(topic) == VALUES[:1] and bed.cluster.end(victim) <= end, "nothing was appended"
        await produce(bed, topic, VALUES[1])
        assert await bed.values(topic) == VALUES
        bed.check()


async def produce(bed: Bed, topic: str, value: bytes) -> None:
    async with bed.producer() as producer:
        await (await producer.send(topic, value, partition=0))


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
async def test_hostile_requests_are_small_work(method: Method) -> None:
    async with edge_of(method) as edge:
        kind = method.request
        assert edge.servers(), "a process serves it"
        await edge.measure(edge.some_servers()[0])
        for server in edge.servers():
            await edge.ask_each(server, [hostile.empty(kind)])
        some = edge.some_servers()
        for server in some:
            await edge.ask_each(server, list(hostile.extremes(kind, hostile.LEAST)))
            await edge.ask_each(server, list(hostile.extremes(kind, hostile.about(VICTIM))))
            await edge.ask_each(server, list(hostile.long_names(kind)))
        await edge.ask_each(some[0], list(hostile.garbage()))
        await edge.ask_too_much(some[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS, ids=NAMES)
async def test_every_listener_bears_hostile_requests(method: Method) -> None:
    async with edge_of(method) as edge:
        kind = method.request
        await edge.measure(edge.some_servers()[0])
        for server in edge.servers():
            for fill in (hostile.LEAST, hostile.about(VICTIM), hostile.about(edge.kept + "x")):
                await edge.ask_each(server, list(hostile.extremes(kind, fill)))
            await edge.ask_each(server, list(hostile.long_names(kind)))
            await edge.ask_each(server, list(hostile.garbage()))
            await edge.ask_too_much(server)
