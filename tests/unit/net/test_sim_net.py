"""The faults of the simulated network: each does what it says, at both ends, and the same again for the same seed."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from helpers.aio import now
from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.ports.net import CallContext, Channel, Net, Probe, Route
from tidelog.runtime.tasks import Supervisor
from tidelog.testing import loop as sim
from tidelog.testing.loop import SimProcess
from tidelog.testing.net import SimNetwork
from tidelog.testing.net_exchange import Faults
from tidelog.testing.rand import seeded
from unit.net.worlds import ECHO, STREAM, answer, ask, ping, pong

AT = Address("server", 9092)


class World:
    """A client, and a server that echoes; both are processes."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.network = SimNetwork(seeded(seed, "net"), **options)
        self.trace: list[str] = []
        self.network.trace = self.trace.append
        self.client = SimProcess("client")
        self.net: Net = self.network.node("client", self.client)
        self.handled: list[str] = []
        self.ended: list[str] = []

    async def start(self) -> Channel:
        self.server = SimProcess("server")
        await self.network.node("server", self.server).serve(AT, [Route(ECHO, self.echo), Route(STREAM, self.stream)])
        return self.net.channel(AT, purpose="test")

    async def echo(self, request: Any, _context: CallContext) -> Any:
        self.handled.append(request.group_id)
        return answer(request.group_id)

    async def stream(self, stream: Any, _context: CallContext) -> None:
        try:
            while (message := await stream.read()) is not None:
                await stream.write(pong(message.controller_id))
        finally:
            self.ended.append("stream")


@pytest.fixture
def world() -> World:
    return World()


async def fails(awaitable: Awaitable[Any], status: str) -> None:
    with pytest.raises(TransportError) as caught:
        await awaitable
    assert caught.value.status == status, caught.value


async def load(world: World) -> None:
    """Calls and a stream under every fault; for the comparison of runs."""
    channel = await world.start()
    world.network.link("client", "server").faults.loss = 0.05
    world.network.link("server", "client").faults.loss = 0.05
    world.network.link("client", "server").faults.duplicate = 0.2
    group = Supervisor()

    async def caller(number: int) -> None:
        stream = channel.open(STREAM)
        for turn in range(20):
            try:
                await channel.call(ECHO, ask(f"{number}/{turn}"), 1.0)
                await stream.write(ping(turn))
                await stream.read()
            except TransportError:
                stream = channel.open(STREAM)

    for number in range(5):
        group.start(f"caller {number}", caller(number))
    await asyncio.sleep(0.02)
    world.network.cut("server", "client")
    await asyncio.sleep(0.5)
    world.network.heal_all()
    world.network.pause("server")
    await asyncio.sleep(0.5)
    world.network.resume("server")
    await asyncio.sleep(0.01)
    world.network.kill("server")
    await group.wait()


def test_equal_seeds_give_equal_traces_and_others_differ() -> None:
    def trace(seed: int) -> str:
        world = World(seed)
        sim.run(load(world), seed)
        return "\n".join(world.trace)

    traces = [trace(seed) for seed in (1, 2, 3, 1)]
    assert traces[0] == traces[3] and len(traces[0].split("\n")) > 100
    assert len(set(traces)) == 3
    assert "lost" in traces[0] and "cut" in traces[0] and "kill" in traces[0]


@pytest.mark.parametrize("seed", range(3))
async def test_calls_overtake_each_other_and_a_stream_keeps_its_order(seed: int) -> None:
    world = World(seed)
    channel = await world.start()
    sent = [str(n) for n in range(20)]
    await asyncio.gather(*(channel.call(ECHO, ask(text), 1.0) for text in sent))
    assert world.handled != sent and sorted(world.handled) == sorted(sent)
    stream = channel.open(STREAM)
    for number in range(20):
        await stream.write(ping(number))
    assert [(await stream.read()) for _ in range(20)] == [pong(number) for number in range(20)]
    stream.cancel()


async def test_an_answer_that_is_cut_off_leaves_the_outcome_unknown(world: World) -> None:
    channel = await world.start()
    world.network.cut("server", "client")
    await fails(channel.call(ECHO, ask("one"), 1.0), "DEADLINE_EXCEEDED")
    assert world.handled == ["one"], "the server acted on it"
    world.network.heal("server", "client")
    world.network.cut("client", "server")
    await fails(channel.call(ECHO, ask("two"), 1.0), "DEADLINE_EXCEEDED")
    assert world.handled == ["one"], "the server never saw it"


async def test_a_short_cut_only_delays(world: World) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    assert await stream.read() == pong(1)
    world.network.cut("client", "server")
    await stream.write(ping(2))
    await stream.write(ping(3))
    await asyncio.sleep(3.0)
    world.network.heal("client", "server")
    assert [await stream.read(), await stream.read()] == [pong(2), pong(3)]
    assert now() == pytest.approx(3.0, abs=0.1)
    stream.cancel()


@pytest.mark.parametrize("direction", [("client", "server"), ("server", "client")])
async def test_a_lasting_cut_one_way_breaks_streams_at_both_ends(world: World, direction: tuple[str, str]) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await stream.read()
    world.network.cut(*direction)
    await fails(stream.read(), "UNAVAILABLE")
    assert now() == pytest.approx(4.0, abs=0.1), "the keepalive"
    await asyncio.sleep(0)
    assert world.ended == ["stream"]
    again = channel.open(STREAM)
    await fails(again.read(), "UNAVAILABLE")
    assert now() == pytest.approx(6.0, abs=0.1), "the connect timeout"
    world.network.heal_all()
    assert await channel.call(ECHO, ask("healed"), 1.0) == answer("healed")


async def test_an_isolated_node_hears_nobody_until_it_is_healed(world: World) -> None:
    channel = await world.start()
    world.network.isolate("server")
    await fails(channel.call(ECHO, ask(), 1.0), "DEADLINE_EXCEEDED")
    assert await world.net.probe(AT, 0.5) is Probe.SILENT
    world.network.heal_all()
    assert await channel.call(ECHO, ask("x"), 1.0) == answer("x")


async def test_a_kill_resets_connections_and_a_restart_serves_again(world: World) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await stream.read()
    before = now()
    world.network.kill("server")
    await fails(stream.read(), "UNAVAILABLE")
    await fails(channel.call(ECHO, ask("x"), 1.0), "UNAVAILABLE")
    assert now() - before < 0.1 and world.ended == [], "a killed process runs no finally"
    assert await world.net.probe(AT, 1.0) is Probe.REFUSED
    assert await world.net.probe(Address("nowhere", 1), 1.0) is Probe.GONE
    channel = await world.start()
    assert await channel.call(ECHO, ask("again"), 1.0) == answer("again")


async def test_a_host_that_resets_connections_looks_dead_and_lives_on(world: World) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await stream.read()
    world.network.refuse("client", "server")
    await fails(stream.read(), "UNAVAILABLE")
    await asyncio.sleep(0)
    assert world.ended == ["stream"], "the server lives, and sees it too"
    await fails(channel.call(ECHO, ask("refused"), 1.0), "UNAVAILABLE")
    assert await world.net.probe(AT, 1.0) is Probe.REFUSED and world.handled == []
    world.network.heal_all()
    assert await world.net.probe(AT, 1.0) is Probe.OPEN
    assert await channel.call(ECHO, ask("accepted"), 1.0) == answer("accepted")


async def test_in_containers_a_killed_host_is_gone() -> None:
    world = World(dead_hosts_are_gone=True)
    await world.start()
    assert await world.net.probe(AT, 1.0) is Probe.OPEN
    world.network.kill("server")
    assert await world.net.probe(AT, 1.0) is Probe.GONE


async def test_a_killed_caller_ends_its_handlers(world: World) -> None:
    channel = await world.start()

    async def caller() -> None:
        stream = channel.open(STREAM)
        await stream.write(ping(1))
        await stream.read()
        await stream.read()

    world.client.start("caller", caller())
    await asyncio.sleep(0.1)
    assert world.ended == []
    world.network.kill("client")
    await asyncio.sleep(0.1)
    assert world.ended == ["stream"]


async def test_a_short_pause_only_delays_and_a_long_one_breaks_connections(world: World) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await stream.read()
    world.network.pause("server")
    await stream.write(ping(2))
    await asyncio.sleep(3.0)
    assert await world.net.probe(AT, 1.0) is Probe.OPEN, "the kernel of a stopped process accepts"
    world.network.resume("server")
    assert await stream.read() == pong(2)
    world.network.pause("server")
    start = now()
    await fails(stream.read(), "UNAVAILABLE")
    assert now() - start == pytest.approx(4.0, abs=0.1)
    await fails(channel.call(ECHO, ask("while paused"), 1.0), "DEADLINE_EXCEEDED")
    await fails(channel.call(ECHO, ask("while paused"), 9.0), "UNAVAILABLE")
    assert world.ended == []
    world.network.resume("server")
    await asyncio.sleep(0.1)
    assert world.ended == ["stream"] and world.handled == []


async def test_a_paused_caller_finds_its_answer_or_its_deadline_late(world: World) -> None:
    channel = await world.start()
    found: list[Any] = []

    async def caller() -> None:
        found.append(await channel.call(ECHO, ask("x"), 5.0))
        found.append(now())

    world.client.start("caller", caller())
    await asyncio.sleep(0)
    world.network.pause("client")
    await asyncio.sleep(3.0)
    assert found == []
    world.network.resume("client")
    await asyncio.sleep(0.01)
    assert found == [answer("x"), pytest.approx(3.0, abs=0.05)]


async def test_a_duplicated_request_is_handled_twice_and_answered_once(world: World) -> None:
    channel = await world.start()
    world.network.link("client", "server").faults.duplicate = 1.0
    assert await channel.call(ECHO, ask("twice"), 1.0) == answer("twice")
    await asyncio.sleep(0.1)
    assert world.handled == ["twice", "twice"]


async def test_a_lost_message_breaks_its_connection(world: World) -> None:
    channel = await world.start()
    stream = channel.open(STREAM)
    await stream.write(ping(1))
    await stream.read()
    world.network.link("server", "client").faults.loss = 1.0
    await stream.write(ping(2))
    await fails(stream.read(), "UNAVAILABLE")
    await fails(channel.call(ECHO, ask("x"), 1.0), "UNAVAILABLE")
    assert world.handled == ["x"] and world.ended == ["stream"]


async def test_delays_are_those_of_the_link() -> None:
    world = World(faults=Faults(delay_s=(0.25, 0.25)))
    channel = await world.start()
    world.network.link("client", "server").faults.delay_s = (1.0, 1.0)
    await channel.call(ECHO, ask("x"), 5.0)
    assert now() == pytest.approx(1.25)
    await fails(channel.call(ECHO, ask("y"), 1.1), "DEADLINE_EXCEEDED")
