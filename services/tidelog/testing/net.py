"""Calls and streams between simulated processes, and the faults of their network (reliability 4.1, 4.2).

A `SimNetwork` is the world; each process has a `SimNet`, which is its `ports.net.Net`. Messages are delayed at random, so calls
overtake each other while a stream keeps its order. A cut link holds back what is on its way; what is not healed within
the keepalive breaks at both ends. So a request may be acted on while its answer is lost: the outcome is unknown.

Names are resolved as gRPC resolves them: a channel looks the IP address of a host up when it connects, and again only when
nothing accepts there. If hosts have swapped their addresses meanwhile, it reaches the wrong one (KIP-1242).
"""

import asyncio
import contextvars
import errno
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.errors import TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Bidi, CallContext, KnownCaller, Probe, Route, Stream, Unary
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import CAUSE
from tidelog.runtime.rpc_options import MISROUTED, as_transport_error
from tidelog.runtime.tasks import HandlerBug, Supervisor, contained
from tidelog.testing.loop import SimProcess
from tidelog.testing.net_exchange import End, Exchange, Faults, Link

Req = TypeVar("Req")
Res = TypeVar("Res")

_WILDCARDS = ("0.0.0.0", "::", "")
_FIRST_PORT = 20_000


class SimNetwork:
    """All nodes and the links between them. Methods that name a node take the name of a `SimNet`."""

    def __init__(
        self,
        rand: Rand,
        *,
        faults: Faults | None = None,
        keepalive_s: float = 4.0,
        connect_timeout_s: float = 2.0,
        dead_hosts_are_gone: bool = False,
    ) -> None:
        """`faults` is what each link begins with. `dead_hosts_are_gone`: as in containers, where a kill ends the host too."""
        self.rand = rand
        self.nodes: dict[str, SimNet] = {}
        self.trace: Callable[[str], None] | None = None
        """Called with one line for each arrival and each fault."""
        self.deliveries = 0
        """Messages that have arrived."""
        self.on_answer: Callable[[str, str, Any, Any], None] | None = None
        """Called with node, path, request and answer when a unary handler answers, before the answer leaves."""
        self.on_call: Callable[[str, Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None = None
        """Called with the path and the coroutine of each call of a handler; returns what runs in its place."""
        self.listening: dict[Address, SimServer] = {}
        self.dead_hosts_are_gone = dead_hosts_are_gone
        self.link_faults = faults or Faults()
        """The faults of links that have none of their own."""
        self._keepalive_s = keepalive_s
        self._connect_timeout_s = connect_timeout_s
        self._links: dict[tuple[str, str], Link] = {}
        self._exchanges: dict[Exchange, None] = {}
        self._owners: dict[Address, str] = {}
        self._ips: dict[str, str] = {}
        self._next_port = _FIRST_PORT

    def node(
        self, name: str, process: SimProcess | None = None, on_bug: Callable[[str], None] = lambda path: None
    ) -> "SimNet":
        """The network of a process that starts; one of the same name that was there before has ended."""
        self.nodes[name] = SimNet(self, name, process, on_bug)
        return self.nodes[name]

    # Faults.

    def link(self, source: str, target: str) -> Link:
        """Its `faults` may be changed at any time."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(source, target, replace(self.link_faults))
        return found

    def disturbed(self) -> list[Link]:
        """Returns the links that are cut, or that differ from the others."""
        return [link for link in self._links.values() if link.is_cut or link.faults != self.link_faults]

    def cut(self, source: str, target: str) -> bool:
        """Keeps what `source` sends from reaching `target`. Returns False if the link was cut already."""
        link = self.link(source, target)
        if link.is_cut:
            return False
        self.say(f"cut {link}")
        link.is_cut = True
        link.changes += 1
        asyncio.get_running_loop().call_later(
            self._keepalive_s, self._give_up, link, link.changes, context=contextvars.Context()
        )
        return True

    def refuse(self, source: str, target: str) -> None:
        """A rule of `target`'s host resets what `source` has connected to it and whatever it tries anew: to a probe its port
        is closed, though the process lives."""
        link = self.link(source, target)
        self.say(f"refuse {link}")
        link.refuses = True
        link.changes += 1
        for exchange in list(self._exchanges):
            if exchange.links[0] is link:
                exchange.break_off()

    def heal(self, source: str, target: str) -> bool:
        """Returns whether the link was cut, or refused connections."""
        link = self.link(source, target)
        if not (link.is_cut or link.refuses):
            return False
        if link.refuses:
            self.say(f"accept {link}")
            link.refuses = False
            link.changes += 1
        if link.is_cut:
            self.say(f"heal {link}")
            link.is_cut = False
            link.changes += 1
            for pipe in list(link.waiting):
                pipe.flow()
        return True

    def disturb(self, faults: Faults) -> None:
        """From now on every link, also one that is yet to come, has these."""
        self.link_faults = faults
        for link in self._links.values():
            link.faults = replace(faults)

    def reset(self, name: str) -> bool:
        """Every connection of a node breaks, and both ends see it; nothing keeps them from connecting again.

        Returns whether there were any.
        """
        broken = [exchange for exchange in self._exchanges if name in exchange.nodes]
        for exchange in broken:
            exchange.break_off()
        return bool(broken)

    def swap(self, hosts: Sequence[str]) -> None:
        """Gives each host the IP address of the one before it."""
        ips = [self.ip(host) for host in hosts]
        self._ips.update(zip(hosts, (ips[-1], *ips[:-1]), strict=True))
        self.say(f"swap {' '.join(hosts)}")

    def ip(self, host: str) -> str:
        """Returns the answer of the name server. The first address of a host is its name."""
        return self._ips.get(host, host)

    def host_at(self, ip: str) -> str:
        return next((host for host, its in self._ips.items() if its == ip), ip)

    def isolate(self, name: str) -> None:
        """Cuts every link of a node, both ways."""
        for other in self.nodes:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def heal_all(self) -> list[tuple[str, str]]:
        """Returns the links that were cut, or refused connections."""
        return [ends for ends in list(self._links) if self.heal(*ends)]

    def kill(self, name: str) -> None:
        """SIGKILL: its servers are gone, its peers see their connections reset."""
        node = self.nodes[name]
        self.say(f"kill {name}")
        node.alive = False
        if node.process is not None:
            node.process.kill()
        for address in [a for a, server in self.listening.items() if server.node is node]:
            del self.listening[address]
        reset = TransportError("UNAVAILABLE", "connection reset")
        for exchange in list(self._exchanges):
            if name in exchange.nodes:
                exchange.reset("client" if exchange.nodes[0] == name else "server", reset)

    def pause(self, name: str) -> None:
        """SIGSTOP: nothing of it runs; its peers give up its connections after the keepalive."""
        node = self.nodes[name]
        assert node.process is not None, "only a process can be stopped"
        self.say(f"pause {name}")
        node.process.pause()
        node.pauses += 1
        asyncio.get_running_loop().call_later(
            self._keepalive_s, self._give_up_paused, node, node.pauses, context=contextvars.Context()
        )

    def resume(self, name: str) -> None:
        node = self.nodes[name]
        assert node.process is not None, "only a process can be stopped"
        self.say(f"resume {name}")
        node.process.resume()

    # What nodes need of it.

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace(f"{asyncio.get_running_loop().time():.6f} {line}")

    def _delivered(self, link: Link, path: str, what: str) -> None:
        self.deliveries += 1
        if self.trace is not None:
            self.say(f"{link} {path} {what}")

    def owner(self, address: Address) -> str | None:
        """Name of the node that is, or was last, reached at `address`."""
        return self._owners.get(address) or (address.host if address.host in self.nodes else None)

    def listen(self, server: "SimServer", listen: Address) -> Address:
        """OSError if somebody listens there already."""
        host, port = listen
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        address = Address(server.node.name if host in _WILDCARDS else host, port)
        if address in self.listening:
            raise OSError(errno.EADDRINUSE, f"cannot listen at {address}: Address already in use")
        self.listening[address] = server
        self._owners[address] = server.node.name
        return Address(host, port)

    def exchange(self, client: "SimNet", address: Address, path: str) -> Exchange:
        target = self.owner(address) or client.name
        there, back = self.link(client.name, target), self.link(target, client.name)
        found = Exchange(self, path, there, back, self.rand, self._delivered)
        self._exchanges[found] = None
        if there.is_cut or back.is_cut or self._paused(target):
            asyncio.get_running_loop().call_later(
                self._connect_timeout_s, self._give_up_connecting, found, context=contextvars.Context()
            )
        return found

    def forget(self, exchange: Exchange) -> None:
        self._exchanges.pop(exchange, None)

    def _paused(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.process is not None and node.process.paused

    def _give_up(self, link: Link, changes: int) -> None:
        if link.is_cut and link.changes == changes:
            for exchange in list(self._exchanges):
                if link in exchange.links:
                    exchange.break_off()

    def _give_up_paused(self, node: "SimNet", pauses: int) -> None:
        if self._paused(node.name) and node.pauses == pauses:
            for exchange in list(self._exchanges):
                if node.name in exchange.nodes:
                    exchange.break_off()

    def _give_up_connecting(self, exchange: Exchange) -> None:
        cut = any(link.is_cut for link in exchange.links)
        if not exchange.over and (cut or self._paused(exchange.nodes[1])):
            exchange.break_off()


class SimNet:
    """`ports.net.Net` of one simulated process."""

    def __init__(
        self, network: SimNetwork, name: str, process: SimProcess | None, on_bug: Callable[[str], None]
    ) -> None:
        self.network = network
        self.name = name
        self.process = process
        self.alive = True
        self.pauses = 0
        self.on_bug = on_bug

    async def serve(self, listen: Address, routes: Sequence[Route], advertised: Address | None = None) -> "SimServer":
        return SimServer(self, listen, routes, advertised)

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> "SimChannel":
        return SimChannel(self, address, to_anyone)

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        network = self.network
        owner = network.owner(address)
        if owner is None:
            return Probe.GONE
        links = (network.link(self.name, owner), network.link(owner, self.name))
        delay = sum(low + (high - low) * network.rand.random() for low, high in (link.faults.delay_s for link in links))
        cut = any(link.is_cut for link in links)
        await asyncio.sleep(timeout_s if cut else min(delay, timeout_s))
        if cut or delay > timeout_s:
            return Probe.SILENT
        if address in network.listening and not links[0].refuses:
            return Probe.OPEN
        return Probe.GONE if network.dead_hosts_are_gone and not network.nodes[owner].alive else Probe.REFUSED


class SimServer:
    """`ports.net.Server`."""

    def __init__(
        self, node: SimNet, listen: Address, routes: Sequence[Route], advertised: Address | None = None
    ) -> None:
        self.node = node
        self.advertised = advertised
        self.serving = False
        """What a health check would say."""
        self._routes = {route.method.path: route for route in routes}
        self._tasks = Supervisor("handlers")
        self._stopping = False
        self._address = node.network.listen(self, listen)

    @property
    def address(self) -> Address:
        return self._address

    def set_serving(self, serving: bool) -> None:
        self.serving = serving

    def route(self, method: Unary[Any, Any] | Bidi[Any, Any]) -> Route | None:
        return self._routes.get(method.path)

    async def stop(self, grace_s: float) -> None:
        listening = self.node.network.listening
        for address in [a for a, server in listening.items() if server is self]:
            del listening[address]
        try:
            async with asyncio.timeout(grace_s):
                await self._tasks.wait()
        except TimeoutError:
            self._stopping = True
            await self._tasks.stop()

    def accept(self, exchange: Exchange, client: str, request: Any, deadline: float | None) -> None:
        """Starts the handler of an exchange that has arrived."""
        route = self._routes.get(exchange.path)
        if route is None:
            exchange.finish(TransportError("UNIMPLEMENTED", f"no method {exchange.path}"))
            return
        loop = asyncio.get_running_loop()
        remaining = None if deadline is None else max(deadline - loop.time(), 0.0)
        task = self._tasks.start(
            exchange.path,
            self._answer(exchange, route, request, KnownCaller(f"ipv4:{self.node.network.ip(client)}:0", remaining)),
            context=self.node.process.context if self.node.process is not None else None,
        )
        exchange.task = task
        if deadline is not None:
            timer = loop.call_at(deadline, task.cancel, context=contextvars.Context())
            task.add_done_callback(lambda _: timer.cancel())

    async def _answer(self, exchange: Exchange, route: Route, request: Any, context: CallContext) -> None:
        is_bidi = isinstance(route.method, Bidi)
        handler: Any = route.handler
        CAUSE.set(exchange.cause)
        try:
            call = handler(exchange.server if is_bidi else request, context)
            if self.node.network.on_call is not None:
                call = self.node.network.on_call(exchange.path, call)
            result = await contained(exchange.path, call, self.node.on_bug)
        except asyncio.CancelledError:
            # Its caller knows already, unless it was this side that ended it.
            if self._stopping:
                exchange.finish(TransportError("UNAVAILABLE", "the server stops"))
            raise
        except (TidelogError, TransportError, HandlerBug) as error:
            exchange.finish(as_transport_error(error))
        else:
            on_answer = self.node.network.on_answer
            if on_answer is not None and not is_bidi:
                on_answer(self.node.name, exchange.path, request, result)
            exchange.cause = CAUSE.get()
            exchange.finish(answer=None if is_bidi else result)


class SimChannel:
    """`ports.net.Channel`."""

    def __init__(self, node: SimNet, address: Address, to_anyone: bool = False) -> None:
        self.address = address
        self._node = node
        self._to_anyone = to_anyone
        self._ip: str | None = None
        """The IP address of the host, while it is connected."""
        self._open: dict[Exchange, None] = {}
        self._closed = False

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        assert isinstance(request, method.request), f"{method.path} takes {method.request.__name__}"
        deadline = asyncio.get_running_loop().time() + timeout_s
        there = self._node.network.link(self._node.name, self._node.network.owner(self._reached) or self._node.name)
        if there.faults.duplicate and self._node.network.rand.random() < there.faults.duplicate:
            self._start(method, request, deadline)
        exchange = self._start(method, request, deadline)
        cause = exchange.cause = CAUSE.get()
        try:
            async with asyncio.timeout(timeout_s):
                answer: Any = await exchange.client.read()
        except TimeoutError:
            raise TransportError("DEADLINE_EXCEEDED", f"no answer within {timeout_s} s") from None
        if not isinstance(answer, method.response):
            raise TransportError("INTERNAL", f"{method.path} was not answered with a {method.response.__name__}")
        if cause is not None:
            CAUSE.set(exchange.cause)
        return answer

    def open(self, method: Bidi[Req, Res]) -> Stream[Res, Req]:
        found: End = self._start(method, None, None).client
        return found

    async def close(self) -> None:
        self._closed = True
        for exchange in list(self._open):
            exchange.reset("client", TransportError("CANCELLED", "the channel was closed"))

    def _start(self, method: Unary[Any, Any] | Bidi[Any, Any], request: Any, deadline: float | None) -> Exchange:
        if self._closed:
            raise TransportError("CANCELLED", "the channel is closed")
        network = self._node.network
        if self._ip is None:
            self._ip = network.ip(self.address.host)
        reached = self._reached
        exchange = network.exchange(self._node, reached, method.path)
        for old in [e for e in self._open if e.over]:
            del self._open[old]
        self._open[exchange] = None
        exchange.send("client", "open", lambda: self._arrived(exchange, reached, request, deadline))
        return exchange

    @property
    def _reached(self) -> Address:
        """The address of the host that has the IP address by now."""
        if self._ip is None:
            return self.address
        return Address(self._node.network.host_at(self._ip), self.address.port)

    def _arrived(self, exchange: Exchange, reached: Address, request: Any, deadline: float | None) -> None:
        server = self._node.network.listening.get(reached)
        if server is None or exchange.links[0].refuses:
            self._ip = None
            exchange.finish(TransportError("UNAVAILABLE", f"connection refused by {self.address}"))
        elif not self._to_anyone and server.advertised not in (None, self.address):
            self._ip = None
            exchange.finish(TransportError("UNAVAILABLE", f"{MISROUTED}: this is {server.advertised}"))
        else:
            server.accept(exchange, self._node.name, request, deadline)
