"""This broker's znode: registering, the broker epoch, the lease, and again after every lost session."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tidelog.ports.clock import Clock
from tidelog.ports.meta import Meta, MetaError, SessionClosed, SessionState
from tidelog.ports.rand import Rand
from tidelog.runtime.lease import LeaseKeeper
from tidelog.runtime.zk_patterns import find, register, resign
from tidelog.wire.znodes import BadZnode, BrokerRegistration, broker_path, decode_broker, encode_broker

_log = logging.getLogger(__name__)

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class Registration:
    """`broker_epoch` is -1 before the first registration; after a lost session it stays the old one until the next.

    `on_registered` gets the new epoch before anybody else can know it.
    """

    def __init__(
        self,
        describe: Callable[[], BrokerRegistration],
        meta: Meta,
        clock: Clock,
        rand: Rand,
        spawn: Spawn,
        on_registered: Callable[[int], None],
    ) -> None:
        self._describe = describe
        self._previous_sessions: list[int] = []
        self._meta = meta
        self._clock = clock
        self._rand = rand
        self._spawn = spawn
        self._on_registered = on_registered
        self._wanted = asyncio.Event()
        self._keeper: LeaseKeeper | None = None
        self._stopped = False
        self.broker_epoch = -1
        meta.on_session(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST and not self._stopped:
            _log.warning("the ZooKeeper session expired; this broker registers anew")
            self._wanted.set()

    def holds_lease(self) -> bool:
        """Whether this broker can be sure that nobody has declared it dead (design section 3, Lease)."""
        return self._keeper is not None and self._keeper.holds()

    async def run(self) -> None:
        """Registers now and after every lost session, until cancelled or stopped."""
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._stopped:
                return
            try:
                await self._register()
            except SessionClosed:
                return  # on purpose, in the middle of it

    def stop(self) -> None:
        """The session is about to be closed on purpose: its end is no reason to register."""
        self._stopped = True
        self._wanted.set()

    async def _register(self) -> None:
        while True:
            # Named anew for each try, so that an unknown outcome can be told from somebody else's (reliability 6.4).
            registration = replace(self._describe(), attempt=self._rand.randbytes(8).hex())
            path, payload = broker_path(registration.broker_id), encode_broker(registration)
            await self._find_former_self(registration)
            stat = await register(self._meta, path, payload, self._previous_sessions)
            self._previous_sessions = [stat.ephemeral_owner]
            if self._describe().intact_since == registration.intact_since:
                break
            # The disk lost something meanwhile: the controller may elect us on a promise that does not hold. Another epoch
            # makes what it writes about this one worthless (reliability 3.6); the same znode with other words would not.
            _log.warning("this data directory has lost something while it was registered; this broker registers anew")
            await resign(self._meta, path)
        same_life = stat.czxid == self.broker_epoch
        self.broker_epoch = stat.czxid
        self._keeper = LeaseKeeper(
            self._meta,
            self._clock,
            path,
            payload,
            session_id=stat.ephemeral_owner,
            version=stat.version,
        )
        if not same_life:
            _log.info("registered with broker epoch %d", self.broker_epoch)
            self._on_registered(self.broker_epoch)
        self._spawn("lease", self._keep(self._keeper))

    async def _find_former_self(self, registration: BrokerRegistration) -> None:
        """A process killed a moment ago leaves its znode for up to a session timeout. If it was registered with this data
        directory, whose lock we hold, it is dead for certain and need not be waited for (HOLE-40, KAFKA-7165)."""
        try:
            found = await find(self._meta, broker_path(registration.broker_id))
            if found is not None:
                data, stat = found
                if decode_broker(registration.broker_id, data).directory_id == registration.directory_id:
                    self._previous_sessions.append(stat.ephemeral_owner)
        except (MetaError, BadZnode) as error:
            _log.info("cannot read an earlier registration: %s", error)

    async def _keep(self, keeper: LeaseKeeper) -> None:
        try:
            await keeper.run()
        except SessionClosed:
            return  # on purpose, while a beat was under way
        if keeper is self._keeper and not self._stopped:
            self._wanted.set()  # somebody took the znode away, or the session went with it
