"""Whether this process may join the cluster that is there (`tidelog.release`)."""

import logging
from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.meta import Meta, NoNode, OutcomeUnknown, SessionExpired
from tidelog.release import RELEASE, Release, obstacle
from tidelog.runtime.zk_patterns import find
from tidelog.wire import znodes

_log = logging.getLogger(__name__)

LOOK_AGAIN: Final = (OutcomeUnknown, SessionExpired)


async def check_release(meta: Meta, name: str, mine: Release = RELEASE) -> None:
    """UNSUPPORTED_VERSION if somebody is registered beside whom `mine` does not work. `name` ("broker 3") is this process, whose
    own former registration may still be there. Waits for a store that is away."""
    while True:
        try:
            found = await _registered(meta)
            break
        except LOOK_AGAIN as error:
            _log.info("reading who is registered: %r; reading again", error)
    if problem := obstacle(mine, [(who, release) for who, release in found if who != name]):
        raise TidelogError(problem, ErrorCode.UNSUPPORTED_VERSION)


async def _registered(meta: Meta) -> list[tuple[str, Release]]:
    """A registration that cannot be read is nobody's: the controller takes no notice of it either."""
    found: list[tuple[str, Release]] = []
    try:
        names = await meta.children(znodes.BROKER_IDS)
    except NoNode:
        names = []
    ids = [broker_id for each in names if (broker_id := znodes.broker_id_of(each)) is not None]
    nodes = await meta.get_many([znodes.broker_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is not None:
            try:
                found.append((f"broker {broker_id}", znodes.decode_broker(broker_id, node[0]).release))
            except znodes.BadZnode as error:
                _log.warning("left out: %s", error)
    active = await find(meta, znodes.CONTROLLER)
    if active is not None:
        try:
            registration = znodes.decode_controller(active[0])
            found.append((f"controller {registration.controller_id}", registration.release))
        except znodes.BadZnode as error:
            _log.warning("left out: %s", error)
    return found
