"""Notices a ZooKeeper that came back from an older copy: a broker's last write, or its newest controller, is unknown to it.

Transaction ids alone do not tell: those of an ensemble begin with its leader's epoch, so that a restored one that elects a
leader can begin above all that this broker has seen. Hence a witness: a znode that this broker writes when it registers and
from time to time. A store in which the last of these writes is missing has lost what was written before it, too.
"""

import logging
from typing import Final

from tidelog.ports.clock import Clock
from tidelog.ports.meta import Create, Meta, MetaError, Op, SessionClosed, SetData
from tidelog.runtime.zk_patterns import ensure_path, find, parent
from tidelog.storage.store_past import StorePast
from tidelog.wire.znodes import broker_witness_path

_log = logging.getLogger(__name__)

WITNESS_S: Final = 60.0
"""A copy that is older than this lacks a write."""


class PastGuard:
    def __init__(self, broker_id: int, past: StorePast, meta: Meta, clock: Clock) -> None:
        self._path = broker_witness_path(broker_id)
        self._past = past
        self._meta = meta
        self._clock = clock
        if past.problem is not None:
            self._tell(f"it is not known how far it had come: {past.problem}")

    async def witness(self) -> list[Op]:
        """The write that the next multi of this broker is to contain. Before it, the last one is looked for."""
        await ensure_path(self._meta, parent(self._path))
        await self._meta.sync(self._path)  # a server that lags behind is no older copy
        found = await find(self._meta, self._path)
        last = 0 if found is None else found[1].mzxid
        if last < self._past.zxid:
            self._tell(
                f"the last write of {self._path} that it knows is transaction {last:#x}, this broker's was {self._past.zxid:#x}"
            )
        return [Create(self._path)] if found is None else [SetData(self._path, b"", found[1].version)]

    def registered(self, zxid: int) -> None:
        """The transaction that registers has been committed, with the write of `witness`.

        It is kept at once: a broker that dies before its first checkpoint must know of it.
        """
        self._witnessed(zxid)
        try:
            self._past.save()
        except OSError as error:
            _log.warning("%s cannot be written now: %s", self._past.path, error)

    def _witnessed(self, zxid: int) -> None:
        self._past.zxid = max(self._past.zxid, zxid)

    def ordered(self, controller_epoch: int) -> None:
        """A controller of this epoch has given its first order, as far as this process knows. It is obeyed all the same."""
        if controller_epoch < self._past.controller_epoch:
            self._tell(
                f"a controller of epoch {controller_epoch} gives orders, a former one had epoch {self._past.controller_epoch}"
            )
        self._past.controller_epoch = max(self._past.controller_epoch, controller_epoch)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(WITNESS_S)
            try:
                stat, *_ = await self._meta.multi(await self.witness())
            except SessionClosed:
                return
            except MetaError as error:
                _log.info("%s is not written now: %s", self._path, error)
                continue
            assert stat is not None
            self._witnessed(stat.mzxid)

    def _tell(self, seen: str) -> None:
        _log.error(
            "ZooKeeper is behind what this broker has seen: %s. It seems to be an older copy, which may not know topics that "
            "are still wanted: from now on nothing that is set aside in this data directory is deleted. Bring back the topics "
            "that are missing or give them up, then remove %s",
            seen,
            self._past.note_path,
        )
        try:
            self._past.note(f"ZooKeeper is behind: {seen}")
        except OSError as error:
            _log.error("%s cannot be written, so this is told again: %s", self._past.note_path, error)
