"""Where the active controller is, and calls to it. A broker learns that from /controller alone."""

import asyncio
import logging
from typing import TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import Address
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Meta, MetaError, SessionClosed, SessionState
from tidelog.ports.net import Channel, Net, Unary
from tidelog.wire.znodes import CONTROLLER, BadZnode, ControllerRegistration, decode_controller

_log = logging.getLogger(__name__)

Req = TypeVar("Req")
Res = TypeVar("Res")

RETRY_S = 0.1


class ControllerLink:
    def __init__(self, meta: Meta, net: Net, clock: Clock) -> None:
        self._meta = meta
        self._net = net
        self._clock = clock
        self._changed = asyncio.Event()
        self._registration: ControllerRegistration | None = None
        self._channel: Channel | None = None
        meta.on_session(lambda state: self._changed.set() if state is SessionState.CONNECTED else None)

    async def run(self) -> None:
        """Follows /controller until cancelled or the session is closed: set the watch, then read, never trust the event
        (HOLE-41)."""
        while True:
            self._changed.clear()
            try:
                await self._read()
            except SessionClosed:
                return  # the process is ending
            except (MetaError, BadZnode) as error:
                _log.info("cannot read who the controller is: %s", error)
                await self._clock.sleep(RETRY_S)
                continue
            await self._changed.wait()

    async def _read(self) -> None:
        found: ControllerRegistration | None = None
        if await self._meta.exists(CONTROLLER, watch=self._changed.set) is not None:
            try:
                data, _ = await self._meta.get(CONTROLLER)
            except MetaError:
                self._changed.set()  # it went away in between; the watch fires, or the next read tells
                raise
            found = decode_controller(data)
        if found == self._registration:
            return
        _log.info(
            "the active controller is %s", "unknown" if found is None else f"{found.controller_id} at {found.address}"
        )
        old, self._channel = self._channel, None
        self._registration = found
        if found is not None:
            self._channel = self._net.channel(found.address, purpose="control")
        if old is not None:
            await old.close()

    @property
    def address(self) -> Address | None:
        """The active controller's; None while none is known."""
        return None if self._registration is None else self._registration.address

    def look_again(self) -> None:
        """A process that was called is no controller: read /controller, whatever its watch has said (section R)."""
        self._changed.set()

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        """One try. NOT_CONTROLLER while none is known; TransportError: the outcome is unknown."""
        if self._channel is None:
            raise TidelogError("no controller is active at the moment", ErrorCode.NOT_CONTROLLER)
        return await self._channel.call(method, request, timeout_s)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
