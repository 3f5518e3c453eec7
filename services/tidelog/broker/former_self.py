"""Looks for the process of an earlier registration at the address that it gave."""

import asyncio
from enum import Enum
from typing import Final

from tidelog.broker.metadata_cache import INTERNAL
from tidelog.errors import TransportError
from tidelog.ids import NO_EPOCH, Address
from tidelog.ports.net import Net, Probe
from tidelog.wire import messages as m
from tidelog.wire.services import BROKER_CONTROL_LIVENESS
from tidelog.wire.znodes import BrokerRegistration

ANSWER_S: Final = 1.0
"""Limit of an answer, and of a connection, in seconds."""
NO_CONTROLLER: Final = -1


class Presence(Enum):
    """State of a registered process, as seen at its address."""

    RUNS = "runs"
    """It answers as the broker in that life."""
    GONE = "gone"
    """Nothing listens there, or another broker does, or another life of this one."""
    UNKNOWN = "unknown"
    """No answer: it may be paused or cut off."""


async def look(net: Net, registered: BrokerRegistration, broker_epoch: int) -> Presence:
    """Calls the INTERNAL listener. A process that has registered nothing yet, such as this one, is another life."""
    address = address_of(registered)
    if address is None:
        return Presence.UNKNOWN
    match await net.probe(address, ANSWER_S):
        case Probe.REFUSED | Probe.GONE:
            return Presence.GONE
        case Probe.SILENT | Probe.UNRESOLVED:
            return Presence.UNKNOWN
    pong = await _ask(net, address)
    if pong is None:
        return Presence.UNKNOWN
    same = (pong.broker_id, pong.broker_epoch) == (registered.broker_id, broker_epoch)
    return Presence.RUNS if same else Presence.GONE


def address_of(registered: BrokerRegistration) -> Address | None:
    """Returns the address at which other servers reach it."""
    found = next((each for each in registered.listeners if each.name == INTERNAL), None)
    return None if found is None else Address(found.host, found.port)


async def _ask(net: Net, address: Address) -> m.LivenessPong | None:
    channel = net.channel(address, purpose="liveness")
    try:
        async with asyncio.timeout(ANSWER_S):
            stream = channel.open(BROKER_CONTROL_LIVENESS)
            try:
                await stream.write(m.LivenessPing(controller_id=NO_CONTROLLER, controller_epoch=NO_EPOCH))
                return await stream.read()
            finally:
                stream.cancel()
    except (TimeoutError, TransportError):
        return None
    finally:
        await channel.close()
