"""Who stands for which shard, and when: pure rules and the picture of live brokers that they need."""

import logging
from collections.abc import Callable, Collection
from hashlib import sha256
from typing import Final
from zlib import crc32

from tidelog.ids import BrokerId
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Meta, SessionClosed
from tidelog.runtime import zk_patterns
from tidelog.wire import messages as m
from tidelog.wire import znodes

log = logging.getLogger(__name__)

RECONCILE_S: Final = 30.0
"""Registrations are read again at least this often, whatever the watch says (HOLE-41)."""


def shard_of(group_id: str, shards: int) -> int:
    return crc32(group_id.encode()) % shards


def rank(shard: int, broker_id: int, live: Collection[int]) -> int:
    """The place of a broker in the order in which live ones may take a shard (rendezvous hashing): each shard has an order of
    its own, so they spread, and a broker that goes moves no shard but its own."""

    def weight(each: int) -> bytes:
        # A CRC is linear: it would put two brokers into the same order for most shards.
        return sha256(b"%d/%d" % (shard, each)).digest()

    mine = weight(broker_id)
    return sum(weight(each) > mine for each in live if each != broker_id)


class LiveBrokers:
    """What /brokers/ids says, and since when."""

    def __init__(self, meta: Meta, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._found: dict[int, tuple[int, float, znodes.BrokerRegistration]] = {}
        """Broker id -> czxid, since when, registration."""
        self._listeners: dict[Callable[[], None], None] = {}

    @property
    def ids(self) -> Collection[int]:
        return self._found.keys()

    def live_for(self, broker_id: int) -> float:
        """Seconds in its present life, as far as this process has seen; 0 for one that is not registered."""
        found = self._found.get(broker_id)
        return 0.0 if found is None else self._clock.now() - found[1]

    def life_of(self, broker_id: int) -> int:
        """Its broker epoch; -1 for one that is not registered."""
        found = self._found.get(broker_id)
        return -1 if found is None else found[0]

    def infos(self, listener: str) -> tuple[m.BrokerInfo, ...]:
        """With the addresses of one door."""
        return tuple(
            m.BrokerInfo(id=broker_id, host=each.host, port=each.port, rack=registration.rack)
            for broker_id, (_, _, registration) in sorted(self._found.items())
            for each in registration.listeners
            if each.name == listener
        )

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after each change, until `forget`."""
        self._listeners[listener] = None

    def forget(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    async def run(self) -> None:
        """Until cancelled, or the session is closed: the process is ending."""
        try:
            await self._follow()
        except SessionClosed:
            return

    async def _follow(self) -> None:
        async for nodes in zk_patterns.watch_children(self._meta, znodes.BROKER_IDS, reconcile_s=RECONCILE_S):
            now, found = self._clock.now(), {}
            for name, (data, stat) in nodes.items():
                broker_id = znodes.broker_id_of(name)
                registration = None if broker_id is None else _decoded(broker_id, data)
                if broker_id is None or registration is None:
                    continue
                known = self._found.get(broker_id)
                since = known[1] if known is not None and known[0] == stat.czxid else now
                found[int(broker_id)] = stat.czxid, since, registration
            self._found = found
            for listener in list(self._listeners):
                listener()


def _decoded(broker_id: BrokerId, data: bytes) -> znodes.BrokerRegistration | None:
    try:
        return znodes.decode_broker(broker_id, data)
    except znodes.BadZnode as error:
        log.error("registration of broker %d is not understood: %s", broker_id, error)
        return None
