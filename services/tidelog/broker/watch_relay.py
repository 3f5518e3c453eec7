"""Hands on the protocol events of the active controller: clients know the addresses of brokers only."""

from dataclasses import replace

from tidelog.broker.controller_link import ControllerLink
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.net import Net
from tidelog.watch.service import Watching
from tidelog.wire import messages as m
from tidelog.wire.services import WATCH_SERVICE_WATCH_PROTOCOL


class WatchRelay:
    def __init__(self, link: ControllerLink, net: Net) -> None:
        self._link = link
        self._net = net

    async def __call__(self, stream: Watching, request: m.WatchRequest) -> None:
        """Ends when the controller does, also if another is elected. NOT_CONTROLLER while none is known."""
        address = self._link.address
        if address is None:
            raise TidelogError("no controller is active at the moment", ErrorCode.NOT_CONTROLLER)
        channel = self._net.channel(address, purpose="watch")
        try:
            source = channel.open(WATCH_SERVICE_WATCH_PROTOCOL)
            await source.write(replace(request, process=""))
            while (response := await source.read()) is not None:
                await stream.write(response)
        finally:
            await channel.close()
