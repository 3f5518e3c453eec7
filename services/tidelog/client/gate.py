"""The network of one client, which opens no channel once the client is closed: a late call fails instead of opening one anew."""

from collections.abc import Sequence

from tidelog.client.errors import ClientClosed
from tidelog.ids import Address
from tidelog.ports.net import Channel, Net, Probe, Route, Server


class Gate:
    """`ports.net.Net`."""

    def __init__(self, net: Net, client: str) -> None:
        self._net = net
        self._client = client
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def check(self) -> None:
        """ClientClosed after `close`."""
        if self._closed:
            raise ClientClosed(self._client)

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> Channel:
        self.check()
        return self._net.channel(address, purpose=purpose, to_anyone=to_anyone)

    async def serve(self, listen: Address, routes: Sequence[Route], advertised: Address | None = None) -> Server:
        return await self._net.serve(listen, routes, advertised)

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        return await self._net.probe(address, timeout_s)
