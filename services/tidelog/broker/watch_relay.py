"""Hands on the protocol events of the active controller and of members of groups: clients know the addresses of brokers only."""

from dataclasses import replace

from tidelog.broker.controller_link import ControllerLink
from tidelog.coordinator.service import CoordinatorService
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import Address
from tidelog.ports.net import Net
from tidelog.watch.service import Watching
from tidelog.wire import messages as m
from tidelog.wire.services import WATCH_SERVICE_WATCH_PROTOCOL


class WatchRelay:
    def __init__(self, link: ControllerLink, groups: CoordinatorService | None, net: Net) -> None:
        """`groups` is None in a broker that coordinates none."""
        self._link = link
        self._groups = groups
        self._net = net

    async def __call__(self, stream: Watching, request: m.WatchRequest) -> None:
        """Ends when the other process does, also if another controller is elected. NOT_CONTROLLER while none is known,
        NOT_COORDINATOR if another broker coordinates the group, UNKNOWN_MEMBER_ID without such a member."""
        address = self._controller() if request.member is None else self._member(request.member)
        # A member advertises no address. What answers instead of one that has gone is another member, which says its name.
        channel = self._net.channel(address, purpose="watch", to_anyone=request.member is not None)
        try:
            source = channel.open(WATCH_SERVICE_WATCH_PROTOCOL)
            await source.write(replace(request, process="", member=None))
            while (response := await source.read()) is not None:
                await stream.write(response)
        finally:
            await channel.close()

    def _controller(self) -> Address:
        address = self._link.address
        if address is None:
            raise TidelogError("no controller is active at the moment", ErrorCode.NOT_CONTROLLER)
        return address

    def _member(self, member: m.WatchedMember) -> Address:
        if self._groups is None:
            raise TidelogError("this broker coordinates no groups", ErrorCode.NOT_COORDINATOR)
        return self._groups.watch_address(member.group_id, member.consumer_id)
