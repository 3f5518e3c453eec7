"""This broker's znode: registering, the broker epoch, the lease, and again after every lost session."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from tidelog.broker.former_self import Presence, address_of, look
from tidelog.errors import ErrorCode
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Check, Create, Meta, Op, SessionClosed, SessionState, SetData, Stat
from tidelog.ports.net import Net
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import SILENT, Recorder
from tidelog.runtime.election_event import resign
from tidelog.runtime.lease import LeaseKeeper
from tidelog.runtime.tasks import MustEnd
from tidelog.runtime.zk_patterns import ensure_path, find, parent, register
from tidelog.wire import messages as m
from tidelog.wire.znodes import (
    NO_VERSION,
    BadZnode,
    BrokerRegistration,
    StoredDirectories,
    broker_directories_path,
    broker_path,
    decode_broker,
    decode_directories,
    encode_broker,
    encode_directories,
)

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
        net: Net,
        clock: Clock,
        rand: Rand,
        spawn: Spawn,
        on_registered: Callable[[int], None],
        with_it: Callable[[], Awaitable[list[Op]]],
        recorder: Recorder = SILENT,
    ) -> None:
        """`with_it` is asked for what else the multi that registers writes."""
        self._describe = describe
        self._session_id = 0
        """The session of its last registration."""
        self._meta = meta
        self._net = net
        self._clock = clock
        self._rand = rand
        self._spawn = spawn
        self._on_registered = on_registered
        self._with_it = with_it
        self._recorder = recorder
        self._wanted = asyncio.Event()
        self._keeper: LeaseKeeper | None = None
        self._stopped = False
        self.broker_epoch = -1
        meta.on_session(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST and not self._stopped:
            broker_id = self._describe().broker_id
            self._recorder.record(broker_id, m.SessionLost(path=broker_path(broker_id)))
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
            stat = await register(self._meta, path, payload, self._is_dead, self._beside)
            self._session_id = stat.ephemeral_owner
            if self._describe().intact_since == registration.intact_since:
                break
            # The disk lost something meanwhile: the controller may elect us on a promise that does not hold. Another epoch
            # makes what it writes about this one worthless (reliability 3.6); the same znode with other words would not.
            _log.warning("this data directory has lost something while it was registered; this broker registers anew")
            await resign(self._meta, path, self._recorder)
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
            self._record(registration.broker_id, path, stat)
            self._on_registered(self.broker_epoch)
        self._spawn("lease", self._keep(self._keeper))

    def _record(self, broker_id: int, path: str, stat: Stat) -> None:
        change = m.ZnodeChange(path=path, version_before=NO_VERSION, version=stat.version)
        written = m.StoreWritten(changes=(change,), more=0, result="written", purpose="broker registration")
        cause = self._recorder.record(broker_id, written)
        self._recorder.record(broker_id, m.BrokerRegistered(broker_id=broker_id), cause)

    async def _beside(self) -> list[Op]:
        return [*await self._record_directory(), *await self._with_it()]

    async def _record_directory(self) -> list[Op]:
        """Tells controllers of a data directory that is not the one of the last life, in the multi that registers."""
        mine = self._describe()
        path = broker_directories_path(mine.broker_id)
        await ensure_path(self._meta, parent(path))
        found = await find(self._meta, path)
        if found is None:
            return [Create(path, encode_directories(StoredDirectories(mine.directory_id)))]
        data, stat = found
        try:
            stored = decode_directories(mine.broker_id, data)
        except BadZnode as error:
            _log.error("it is not recorded which data directory this broker has: %s; delete this znode", error)
            return []
        if stored.present == mine.directory_id:
            return [Check(path, stat.version)]
        _log.warning(
            "broker %d had data directory %s before, and has %s now: its replicas count as empty until others fill them, and "
            "an only copy leads when an operator lets it",
            mine.broker_id,
            stored.present,
            mine.directory_id,
        )
        return [SetData(path, encode_directories(stored.replaced(mine.directory_id, stat.mzxid)), stat.version)]

    async def _is_dead(self, data: bytes, stat: Stat) -> bool:
        """Decides that the holder of this broker's znode is a former self that need not be waited for (KAFKA-7165).

        MustEnd if it runs. The data directory proves nothing: it may be a copy. A process that is silent may be paused; it is
        waited for as long as its session lasts.
        """
        if stat.ephemeral_owner == self._session_id:
            return True
        mine = self._describe()
        try:
            holder = decode_broker(mine.broker_id, data)
        except BadZnode as error:
            _log.info("cannot read an earlier registration: %s", error)
            return False
        if self._meta.session_id == self._session_id and stat.czxid > self.broker_epoch:
            # An older znode is no sign of another process: ZooKeeper came back with data from before this registration.
            raise self._duplicate("has taken the registration of this one", holder, stat)
        presence = await look(self._net, holder, stat.czxid)
        if presence is Presence.RUNS:
            raise self._duplicate("runs already", holder, stat)
        return presence is Presence.GONE and holder.directory_id == mine.directory_id

    @staticmethod
    def _duplicate(what: str, other: BrokerRegistration, stat: Stat) -> MustEnd:
        return MustEnd(
            f"another process with broker id {other.broker_id} {what}: it is registered at {address_of(other)} with broker "
            f"epoch {stat.czxid}, session {stat.ephemeral_owner:#x} and data directory id {other.directory_id or 'unknown'}; "
            "this process ends. Give it another broker id, or stop the other process first",
            ErrorCode.INVALID_CONFIG,
        )

    async def _keep(self, keeper: LeaseKeeper) -> None:
        try:
            await keeper.run()
        except SessionClosed:
            return  # on purpose, while a beat was under way
        if keeper is self._keeper and not self._stopped:
            self._wanted.set()  # somebody took the znode away, or the session went with it
