"""A TCP proxy whose links can be cut one way or both, without privileges.

A link is (source, target address): every process dials its own proxy port for each address of each other process, so the
proxy knows who speaks to whom. A cut holds bytes back and lets them go when it is healed, as a network does that loses
packets for a while; a connection that is opened across a cut is accepted and then hears nothing. What a network cannot
be asked to do, a proxy can: end connections with a reset, and refuse new ones while the target does not run.
"""

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.cluster.api import CLIENT, Traffic, Way
from tidelog.cluster.free_ports import free_ports
from tidelog.ids import Address
from tidelog.runtime.clock import SystemClock

CLOCK: Final = SystemClock()
CHUNK_BYTES: Final = 64 * 1024
CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
LOOKS_FOR_S: Final = 0.1
"""How long a link is watched for bytes that pass it."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with zero seconds: closing sends RST and drops what is unsent."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Link:
    source: str
    target: str
    upstream: Address
    listen: Address
    server: asyncio.Server | None = None
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    """Both ends of every connection."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it begins or ends to listen: two faults may hit one target at a time."""


class _Gate:
    """What `sender` sends to `receiver` passes here.

    Each chunk that was read waits its delay before the next is read: a slow link carries no more than a chunk for each
    delay, as TCP does with such a window.
    """

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.traffic = Traffic()
        self.carried = 0
        """Bytes, so far."""
        self.waited_s: float | None = None
        """By the newest of them."""
        self.heal()

    def heal(self) -> None:
        self.is_open.set()
        self.traffic = Traffic()

    async def let_pass(self, size: int = 0) -> None:
        shape, began_at = self.traffic, CLOCK.now()
        delay_s = shape.delay_s and random.uniform(shape.delay_s - shape.jitter_s, shape.delay_s + shape.jitter_s)
        await CLOCK.sleep(max(delay_s, 0.0) + size / shape.bytes_per_s)
        await self.is_open.wait()
        self.carried += size
        if size and shape is self.traffic:
            self.waited_s = CLOCK.now() - began_at


class _Gates:
    """By (sender, receiver). Open unless cut, and wide unless throttled."""

    def __init__(self) -> None:
        self._gates: dict[tuple[str, str], _Gate] = {}

    def of(self, sender: str, receiver: str) -> _Gate:
        return self._gates.setdefault((sender, receiver), _Gate())

    def heal_all(self) -> None:
        for gate in self._gates.values():
            gate.heal()

    def cut(self) -> list[tuple[str, str]]:
        return sorted(pair for pair, gate in self._gates.items() if not gate.is_open.is_set())


class Proxy:
    """Runs an event loop in a thread of its own; every method is for other threads and returns when it took effect."""

    def __init__(self) -> None:
        self._links: list[_Link] = []
        self._gates = _Gates()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)), name="proxy", daemon=True)
        self._thread.start()
        if not started.wait(CALL_TIMEOUT_S):
            raise RuntimeError("the proxy's thread did not start")

    def stop(self) -> None:
        """Resets every connection and ends the thread. Harmless when it does not run."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(CALL_TIMEOUT_S)
        self._thread = None

    def add_link(self, source: str, target: str, upstream: Address, listen_port: int) -> Address:
        """Where `source` has to dial in order to reach `upstream`, which belongs to `target`."""
        link = _Link(source, target, upstream, Address("127.0.0.1", listen_port))
        self._run(self._listen(link))
        return link.listen

    def has_link(self, one: str, other: str) -> bool:
        """Whoever of the two dials."""
        return any({link.source, link.target} == {one, other} for link in self._links)

    def cut(self, sender: str, receiver: str) -> None:
        """What `sender` sends to `receiver` no longer arrives, on connections that either of them opened."""
        self._call(lambda: self._gates.of(sender, receiver).is_open.clear())

    def join(self, sender: str, receiver: str) -> None:
        """Ends `cut`."""
        self._call(lambda: self._gates.of(sender, receiver).is_open.set())

    def shape(self, sender: str, receiver: str, traffic: Traffic) -> None:
        """What `sender` sends to `receiver` arrives so, on each connection, until it is healed or shaped again."""

        def apply() -> None:
            gate = self._gates.of(sender, receiver)
            gate.traffic, gate.waited_s = traffic, None

        self._call(apply)

    def passing(self, ways: Collection[Way]) -> list[Way]:
        """By looking for a moment: on which of them bytes may pass, or do."""
        before = self._carried(ways)
        time.sleep(LOOKS_FOR_S)
        after, cut = self._carried(ways), self.cuts()
        return [way for way in ways if way not in cut or after[way] > before[way]]

    def waited_s(self, sender: str, receiver: str) -> float | None:
        """How long the newest bytes were kept back since the way was shaped; None if none have passed."""
        return self._call(lambda: self._gates.of(sender, receiver).waited_s)

    def heal(self, sender: str, receiver: str) -> None:
        self._call(lambda: self._gates.of(sender, receiver).heal())

    def heal_all(self) -> None:
        self._call(self._gates.heal_all)

    def cuts(self) -> list[tuple[str, str]]:
        """(sender, receiver) of every cut that is in force."""
        return self._call(self._gates.cut)

    def reset(self, one: str, other: str) -> int:
        """Ends every connection between the two with a reset, whoever opened it; returns how many ends it closed."""
        return self._call(lambda: self._reset({one}, {other}))

    def refuse(self, target: str) -> None:
        """Resets every connection to `target` and refuses new ones: what a host does whose process has died."""
        self._run(self._refuse(target))

    def accept(self, target: str) -> None:
        """Ends `refuse`."""
        self._run(self._accept(target))

    def _carried(self, ways: Collection[Way]) -> dict[Way, int]:
        return self._call(lambda: {way: self._gates.of(*way).carried for way in ways})

    # On the proxy's loop from here.

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        started.set()
        await self._stopping.wait()
        for link in self._links:
            await _stop_listening(link)
        self._reset()

    async def _listen(self, link: _Link) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._serve(link, reader, writer)
            except asyncio.CancelledError:
                # CPython 3.11 prints a traceback of a served connection that ends cancelled, as all do when the loop ends.
                if self._stopping is None or not self._stopping.is_set():
                    raise

        link.server = await asyncio.start_server(serve, link.listen.host, link.listen.port, limit=CHUNK_BYTES)
        if link not in self._links:
            self._links.append(link)

    async def _refuse(self, target: str) -> None:
        for link in self._links:
            if link.target == target:
                await _stop_listening(link)
        self._reset(targets={target})

    async def _accept(self, target: str) -> None:
        for link in self._links:
            if link.target == target:
                async with link.turn:
                    if link.server is None:
                        await self._listen(link)

    def _reset(self, sources: Collection[str] | None = None, targets: Collection[str] | None = None) -> int:
        """With both given: between the two, either way round. None means any."""
        closed = 0
        for link in self._links:
            forwards = (sources is None or link.source in sources) and (targets is None or link.target in targets)
            backwards = (
                sources is not None and targets is not None and link.source in targets and link.target in sources
            )
            if forwards or backwards:
                for writer in tuple(link.connections):
                    _abort(writer)
                    closed += 1
        return closed

    async def _serve(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from accept to the end of both directions."""
        outbound = self._gates.of(link.source, link.target)
        inbound = self._gates.of(link.target, link.source)
        link.connections.add(writer)
        far_writer: asyncio.StreamWriter | None = None
        try:
            if link.server is None:
                raise ConnectionRefusedError  # accepted as the link stopped listening
            await outbound.let_pass()  # a handshake needs both ways
            await inbound.let_pass()
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                far_reader, far_writer = await asyncio.open_connection(*link.upstream, limit=CHUNK_BYTES)
            link.connections.add(far_writer)
            # When one direction breaks, the other ends with its connection: below both are closed.
            await asyncio.gather(_pump(reader, far_writer, outbound), _pump(far_reader, writer, inbound))
        except (OSError, TimeoutError):
            _abort(writer)
            if far_writer is not None:
                _abort(far_writer)
        finally:
            link.connections.discard(writer)
            writer.close()
            if far_writer is not None:
                link.connections.discard(far_writer)
                far_writer.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise RuntimeError("the proxy does not run")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_S)

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._run(call())


def link_clients(proxy: Proxy, brokers: Mapping[str, Address]) -> Mapping[Address, Address]:
    """A link of `client` to each; what a client has to dial instead of each broker's address."""
    ports = free_ports(len(brokers))
    return {
        address: proxy.add_link(CLIENT, name, address, port)
        for (name, address), port in zip(brokers.items(), ports, strict=True)
    }


async def _stop_listening(link: _Link) -> None:
    """Not by `Server.close` alone: in CPython 3.11 that loses, unclosed, a connection which is being accepted."""
    async with link.turn:
        if link.server is None:
            return
        loop = asyncio.get_running_loop()
        for sock in link.server.sockets:
            loop.remove_reader(sock.fileno())
        await CLOCK.sleep(0)  # those accepted so far get their transports
        link.server.close()
        link.server = None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: _Gate) -> None:
    """Carries one direction until its end. News of the end, too, passes only through an open gate."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            await gate.let_pass(len(data))
            writer.write(data)
            await writer.drain()
    except OSError:
        await gate.let_pass()
        raise
    await gate.let_pass()
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
