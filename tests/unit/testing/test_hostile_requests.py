"""Every method of proto/, asked for what no client of ours would ask: none holds up its process, takes much memory or appends.

A method that is new is asked too. No time is measured: what counts is how many functions a step of the event loop calls.
"""

from collections.abc import Iterator
from typing import Any

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
DECODE_CALLS = 1_000


class Edge:
    """A cluster that is asked by strangers."""

    def __init__(self, bed: Bed, topic: str, method: Method, counter: StepCounter) -> None:
        self.bed = bed
        self.tp = TopicPartition(topic, 0)
        self.method = method
        self.counter = counter

    def servers(self) -> Iterator[SimServer]:
        """Each listener that serves the method: those of the broker that leads the partition, and of each controller."""
        leader = f"broker-{self.bed.cluster.leader(self.tp)}"
        for server in list(self.bed.cluster.network.listening.values()):
            if server.route(self.method) is not None and server.node.name in (leader, "controller-1", "controller-2"):
                yield server

    async def ask(self, server: SimServer, request: Request | None) -> Caller:
        """None is a stream that is opened, and no more."""
        told = f"{self.method.path} at {server.address}: {request[:2] if request else 'nothing is sent'}"
        memory = PeakMemory()
        caller = await hostile.send(server, self.method, [] if request is None else [request.data])
        assert self.counter.held is None, f"{told}: {self.counter.held} holds the loop"
        assert memory.growth_bytes < hostile.GROWTH_BYTES, f"{told}: takes {memory.growth_bytes >> 20} MiB"
        assert self.bed.cluster.world.bugs == [], told
        _, reason = caller.refusal or ("", "")
        assert len(reason.encode()) < hostile.REASON_BYTES, f"{told}: {reason[:200]} and {len(reason)} characters"
        assert max(caller.answers, default=0) < hostile.SMALL_BYTES, f"{told}: answers {caller.answers}"
        return caller


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
async def test_hostile_requests_are_small_work(method: Method) -> None:
    async with whole_cluster(external=True) as bed:
        topic = await bed.topic()
        await produce(bed, topic, VALUES[0])
        with StepCounter() as counter:
            edge = Edge(bed, topic, method, counter)
            servers = list(edge.servers())
            assert servers, "no process serves it"
            for server in servers:
                await ask_all(edge, server)
        assert await bed.values(topic) == VALUES[:1], "nothing was appended"
        await produce(bed, topic, VALUES[1])
        assert await bed.values(topic) == VALUES
        bed.check()


async def ask_all(edge: Edge, server: SimServer) -> None:
    kind, counter = edge.method.request, edge.counter
    counter.limit, counter.most = hostile.BASELINE_CALLS, hostile.FLOOR_CALLS
    for request in hostile.at_limits(kind):
        await hostile.send(server, edge.method, [request.data])
    counter.limit = hostile.TIMES * counter.most
    if isinstance(edge.method, Bidi):
        await edge.ask(server, None)
    for request in (hostile.empty(kind), *hostile.extremes(kind)):
        await edge.ask(server, request)
    for request in hostile.full_lists(kind):
        caller = await edge.ask(server, request)
        assert caller.answers == [] and caller.refusal is not None, f"{request[:2]} is not refused"
        status, reason = caller.refusal
        most = limits.LIMITS[kind][request.field]
        assert status == "INVALID_ARGUMENT" and request.field in reason and f"at most {most} " in reason, reason


async def produce(bed: Bed, topic: str, value: Any) -> None:
    async with bed.producer() as producer:
        await (await producer.send(topic, value, partition=0))
