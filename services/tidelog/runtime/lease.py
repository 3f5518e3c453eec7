"""The lease of a controller or coordinator, and the notice of one's own pause (design section 3 "Lease", FIND-7).

The server counts a session's timeout from the last message that it received, and tells nobody when it is over; a client
that is paused or cut off learns it too late, or never while the cut lasts. So nobody acts by the session's state, only by
an own clock that started *before* the server's: the send time of the last write that the server confirmed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tidelog.ports.clock import Clock
from tidelog.ports.meta import BadVersion, Check, Meta, NoNode, OutcomeUnknown, SessionExpired, SetData

log = logging.getLogger(__name__)

SHARE: Final = 2 / 3
"""Of the session timeout that a lease lasts; the rest is for clocks that run at different speeds."""

BEATS: Final = 4
"""Writes in a session timeout, so that one lost answer costs no lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """How long its holder may act. `sent_at` is when the last confirmed write was sent; None: never yet."""

    session_timeout_s: float
    sent_at: float | None = None

    def acknowledged(self, sent_at: float) -> "Lease":
        """Answers may come in any order; the latest send time counts."""
        return self if self.sent_at is not None and sent_at <= self.sent_at else replace(self, sent_at=sent_at)

    @property
    def valid_until(self) -> float:
        """Exclusive."""
        return float("-inf") if self.sent_at is None else self.sent_at + SHARE * self.session_timeout_s

    def valid(self, now: float) -> bool:
        """Ask before each act that others can see, and again after every await on the way to it."""
        return now < self.valid_until


class LeaseKeeper:
    """Keeps a lease by conditional writes of `data` to the holder's own ephemeral at `path`.

    Conditional, and a write: a read may be answered by a server that has not heard of the expiry, and proves nothing.
    `session_id` owns the ephemeral, `version` is the ephemeral's. It holds nothing before its first write is confirmed,
    which `run` sends at once.
    """

    def __init__(
        self,
        meta: Meta,
        clock: Clock,
        path: str,
        data: bytes,
        *,
        session_id: int,
        version: int,
        fence: Check | None = None,
    ) -> None:
        """`fence` is checked with each write: an ephemeral that somebody deleted and another has made again begins at version
        0, and might be at this one's version."""
        self._meta = meta
        self._clock = clock
        self._path = path
        self._data = data
        self._session_id = session_id
        self._version = version
        self._fence = () if fence is None else (fence,)
        self._over = False
        self.lease = Lease(meta.session_timeout_s)

    def holds(self) -> bool:
        """Whether its holder may act at this instant."""
        return not self._over and self.lease.valid(self._clock.now())

    async def run(self) -> None:
        """Writes every quarter of the session timeout; returns when the lease can never be had again."""
        period = self.lease.session_timeout_s / BEATS
        sure = True  # of the version: no write of ours has an unknown outcome
        while not self._over:
            begun_at = self._clock.now()
            try:
                if not sure:
                    await self._read_version()
                sure = False
                await self._write()
                sure = True
            except OutcomeUnknown as error:
                log.warning("lease on %s: %s", self._path, error)
            except (SessionExpired, NoNode, BadVersion) as error:
                self._over = True
                log.warning("lease on %s is over: %r", self._path, error)
                return
            await self._clock.sleep(max(0.0, begun_at + period - self._clock.now()))

    async def _write(self) -> None:
        self._check_session()
        sent_at = self._clock.now()
        *_, stat = await self._meta.multi([*self._fence, SetData(self._path, self._data, self._version)])
        assert stat is not None
        self._version = stat.version
        self.lease = self.lease.acknowledged(sent_at)

    async def _read_version(self) -> None:
        """After a write with an unknown outcome: is the ephemeral still ours, and which version has it?"""
        self._check_session()
        await self._meta.sync(self._path)
        _, stat = await self._meta.get(self._path)
        if stat.ephemeral_owner != self._session_id:
            raise NoNode(self._path, f"now belongs to session {stat.ephemeral_owner:#x}")
        self._version = stat.version

    def _check_session(self) -> None:
        if self._meta.session_id != self._session_id:
            raise SessionExpired(self._path)


class PauseWatch:
    """Notices that this process did not run for a while (SIGSTOP, a suspended host, a starved machine).

    Whoever woke up decides on old news: it re-validates before it evicts, shrinks or elects.
    """

    def __init__(self, threshold_s: float) -> None:
        self._threshold_s = threshold_s
        self._ticked_at: float | None = None

    def tick(self, now: float) -> float | None:
        """Call it often; returns the seconds since the last call when they are more than the threshold."""
        last, self._ticked_at = self._ticked_at, now
        return now - last if last is not None and now - last > self._threshold_s else None

    async def run(self, clock: Clock, on_pause: Callable[[float], None]) -> None:
        """Ticks for ever, ten times within the threshold; `on_pause` gets the seconds."""
        while True:
            gap_s = self.tick(clock.now())
            if gap_s is not None:
                log.warning("this process did not run for %.3f s", gap_s)
                on_pause(gap_s)
            await clock.sleep(self._threshold_s / 10)
