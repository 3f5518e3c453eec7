"""The cluster of `helpers.brokers` for tests of synchronous code: over sockets, or in a loop that runs only when it is asked."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from helpers.brokers import Brokers, unstarted
from tidelog.ids import Address
from tidelog.ports.net import Bidi, CallContext, Channel, Net, Route, Stream, Unary
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.testing.loop import SimLoop
from tidelog.wire import services as s

FORWARDED_S: Final = 60.0


async def serve_over_grpc(count: int = 3, **options: Any) -> Brokers:
    """A cluster whose clients reach it over sockets of this machine; on a real loop, and until that ends.

    Each broker has a listener more. A real server takes what clients send there and passes it on, through the interceptor.
    """
    cluster = Brokers(count, controlled_shutdown_enable=False, **options)
    net = cluster.ports.net
    for broker in cluster.ids:
        node, routes = cluster.node(broker), Forwarder(net)
        server = await GrpcNet().serve(Address("127.0.0.1", 0), routes.all())
        cluster.servers.append(server)
        routes.address = cluster.addresses[broker] = server.address
        node.settings = {**node.settings, "listeners": {"INTERNAL": node.address, "EXTERNAL": server.address}}
    return await cluster.start()


class Forwarder:
    """Passes calls and streams on to `address`."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self.address: Address | None = None

    def all(self) -> list[Route]:
        methods = [method for name, method in vars(s).items() if isinstance(method, Unary | Bidi) and name.isupper()]
        return [Route(method, self._handler(method)) for method in methods]

    def _handler(self, method: Any) -> Any:
        return partial(self._call if isinstance(method, Unary) else self._stream, method)

    def _channel(self) -> Channel:
        assert self.address is not None
        return self._net.channel(self.address, purpose="forwarded")

    async def _call(self, method: Any, request: Any, _: CallContext) -> Any:
        return await self._channel().call(method, request, FORWARDED_S)

    async def _stream(self, method: Any, outer: Stream[Any, Any], _: CallContext) -> None:
        inner = self._channel().open(method)

        async def up() -> None:
            while (message := await outer.read()) is not None:
                await inner.write(message)

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(up())
            try:
                while (message := await inner.read()) is not None:
                    await outer.write(message)
            finally:
                writing.cancel()
                inner.cancel()


class Driven:
    """Brokers for tests without a loop of their own: `call` runs what they are asked in the loop in which they live."""

    def __init__(self, brokers: Brokers, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.brokers = brokers
        self._call = call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.brokers, name)
        return partial(self._ask, found) if inspect.ismethod(found) else found

    def begin(self) -> None:
        """Starts the cluster unless it has started."""
        if not self.brokers.started:
            self._call(self.brokers.start())

    def _ask(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.begin()

        async def ask() -> Any:
            answer = method(*args, **options)
            return await answer if inspect.isawaitable(answer) else answer

        return self._call(ask())


class DrivenRunner:
    """`asyncio.Runner` on a loop that goes on afterwards."""

    def __init__(self, loop: SimLoop, cluster: Driven) -> None:
        self._loop = loop
        self._cluster = cluster

    def __enter__(self) -> "DrivenRunner":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_loop(self) -> SimLoop:
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._cluster.begin()
        return self._loop.run_until_complete(coroutine)


@contextmanager
def driven_brokers(count: int = 3, **options: Any) -> Iterator[tuple[Driven, DrivenRunner]]:
    """A cluster for tests without a loop of their own, and what runs coroutines in its loop.

    The cluster starts when it is first asked for something.
    """
    loop = SimLoop()
    try:
        cluster = Driven(loop.run_until_complete(unstarted(count, **options)), loop.run_until_complete)
        yield cluster, DrivenRunner(loop, cluster)
    finally:
        loop.finish()
