"""What a session to the metadata store means to its user, whatever carries the requests.

`MetaSession` implements the `Meta` port over a transport that a subclass provides: kazoo in `runtime.zk`, the in-memory
server in `tidelog.testing.meta`. So both have one meaning of session, deadline, watch and unknown outcome.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.ports.meta import (
    MULTI_LIMIT_BYTES,
    MetaError,
    Op,
    OutcomeUnknown,
    SessionClosed,
    SessionExpired,
    SessionState,
    Stat,
    TooLarge,
    WatchCallback,
    size_bytes,
)

log = logging.getLogger(__name__)

READS_AT_ONCE: Final = 100
"""Znodes that one request of a get_many reads."""
READS_IN_FLIGHT: Final = 4
"""Requests of one get_many. More gain nothing, and would delay the lease's write behind them."""

SAY_AGAIN_S: Final = 5.0
"""How often a wait for a store that is not there is mentioned in the log."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]
"""How a background loop gets an owner: the supervisor's `start(name, coroutine)`."""

Observe = Callable[[str, float], None]
"""Metrics: called with the operation (get, get_many, exists, children, sync, multi) and its seconds, answered or not."""


@dataclass(frozen=True, slots=True)
class Get:
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetMany:
    paths: tuple[str, ...]

    @property
    def path(self) -> str:
        """For messages."""
        return self.paths[0]


@dataclass(frozen=True, slots=True)
class Exists:
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    path: str


@dataclass(frozen=True, slots=True)
class Multi:
    ops: tuple[Op, ...]

    @property
    def path(self) -> str:
        return self.ops[0].path


Request = Get | GetMany | Exists | Children | Sync | Multi


@dataclass(frozen=True, slots=True)
class WatchKey:
    """What a watch is on. ZooKeeper keeps one watch for `get` and `exists`, and another for `children`."""

    path: str
    children: bool


@dataclass(eq=False, slots=True)
class Ticket:
    """One request on its way. `session_id` is the session in which it was made; 0: it waits for the next one."""

    request: Request
    session_id: int
    future: asyncio.Future[Any] = field(repr=False)
    callback: WatchCallback | None = field(default=None, repr=False)

    @property
    def is_write(self) -> bool:
        return isinstance(self.request, Multi)


class MetaSession(ABC):
    """The `Meta` port over `_open`, `_shut` and `_transmit`.

    The transport reports on the event loop, in the order in which things happened: `_connected`, `_suspended`,
    `_expired`, and for each transmitted ticket one of `_answered`, `_refused`, `_interrupted`.
    """

    def __init__(self, where: str, *, request_timeout_s: float, observe: Observe | None) -> None:
        self._where = where
        self._request_timeout_s = request_timeout_s
        self._observe = observe
        self._state = SessionState.LOST
        self._session_id = 0
        self._session_timeout_s = 0.0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches: dict[WatchKey, dict[WatchCallback, None]] = {}
        # Dicts as ordered sets.
        self._held: dict[Ticket, None] = {}
        self._sent: dict[Ticket, None] = {}
        self._first_session: asyncio.Event = asyncio.Event()
        self._closed = False

    # -- transport ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> None:
        """Begins to connect, and again after every break, for ever."""

    @abstractmethod
    async def _shut(self) -> None:
        """Ends the session at the server and frees what the transport holds."""

    @abstractmethod
    def _transmit(self, ticket: Ticket) -> None:
        """Sends it in `ticket.session_id`, or refuses it with SessionExpired if that session is over by then."""

    # -- the port ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._open()
        waited = 0.0
        while True:
            try:
                async with asyncio.timeout(SAY_AGAIN_S):
                    await self._first_session.wait()
                return
            except TimeoutError:
                waited += SAY_AGAIN_S
                log.warning("waiting for the metadata store at %s: no session for %.0f s", self._where, waited)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._shut()
        for ticket in [*self._sent, *self._held]:
            self._refused(ticket, SessionClosed(ticket.request.path))
        self._state, self._session_id = SessionState.LOST, 0

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    @property
    def state(self) -> SessionState:
        return self._state

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._listeners.append(callback)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._ask("get", Get(path, watch is not None), watch)
        return found

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        found: Stat | None = await self._ask("exists", Exists(path, watch is not None), watch)
        return found

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        names: list[str] = await self._ask("children", Children(path, watch is not None), watch)
        return sorted(names)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        window: deque[Ticket] = deque()
        try:
            for begin in range(0, len(paths), READS_AT_ONCE):
                if len(window) == READS_IN_FLIGHT:
                    found += await self._answer("get_many", window.popleft())
                window.append(self._submit(GetMany(tuple(paths[begin : begin + READS_AT_ONCE]))))
            while window:
                found += await self._answer("get_many", window.popleft())
        finally:
            for ticket in window:
                self._forget(ticket)
        return found

    async def sync(self, path: str) -> None:
        await self._ask("sync", Sync(path))

    async def multi(self, ops: Sequence[Op]) -> list[Stat | None]:
        if not ops:
            return []
        size = size_bytes(ops)
        if size > MULTI_LIMIT_BYTES:
            raise TooLarge(ops[0].path, f"{len(ops)} operations take {size} of {MULTI_LIMIT_BYTES} bytes: split them")
        stats: list[Stat | None] = await self._ask("multi", Multi(tuple(ops)))
        return stats

    # -- requests ----------------------------------------------------------------------------------------------------

    def _submit(self, request: Request, callback: WatchCallback | None = None) -> Ticket:
        ticket = Ticket(request, self._session_id, asyncio.get_running_loop().create_future(), callback)
        if self._closed:
            raise SessionClosed(request.path)
        if ticket.session_id == 0 and ticket.is_write:
            raise SessionExpired(request.path, "there is no session")
        if self._state is SessionState.CONNECTED:
            self._send(ticket)
        else:
            self._held[ticket] = None
        return ticket

    def _send(self, ticket: Ticket) -> None:
        self._sent[ticket] = None
        self._transmit(ticket)

    def _forget(self, ticket: Ticket) -> None:
        """Nobody waits for it any more; a write that was sent may still be applied."""
        self._held.pop(ticket, None)
        self._sent.pop(ticket, None)
        if not ticket.future.cancel() and not ticket.future.cancelled():
            ticket.future.exception()  # seen, or the loop complains that nobody looked

    async def _ask(self, name: str, request: Request, callback: WatchCallback | None = None) -> Any:
        return await self._answer(name, self._submit(request, callback))

    async def _answer(self, name: str, ticket: Ticket) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await ticket.future
        except TimeoutError:
            detail = f"no answer within {self._request_timeout_s} s"
            raise OutcomeUnknown(ticket.request.path, detail) from None
        finally:
            self._forget(ticket)
            if self._observe is not None:
                self._observe(name, loop.time() - began)

    # -- what the transport reports ----------------------------------------------------------------------------------

    def _connected(self, session_id: int, timeout_s: float) -> None:
        self._session_id, self._session_timeout_s = session_id, timeout_s
        self._publish(SessionState.CONNECTED)
        self._first_session.set()
        held, self._held = self._held, {}
        for ticket in held:
            if ticket.session_id not in (0, session_id):
                # A read whose session ended while it was on its way back to be repeated.
                self._refused(ticket, SessionExpired(ticket.request.path))
                continue
            ticket.session_id = session_id
            self._send(ticket)

    def _suspended(self) -> None:
        """The connection is down: what was sent has no answer to come."""
        self._publish(SessionState.SUSPENDED)
        for ticket in list(self._sent):
            self._interrupted(ticket)
        self._fire(list(self._watches))

    def _expired(self) -> None:
        self._session_id = 0
        self._publish(SessionState.LOST)
        for ticket in [*self._sent, *self._held]:
            if ticket.session_id != 0:  # a read made while there was no session waits for the next one
                unknown = ticket.is_write and ticket in self._sent
                self._held.pop(ticket, None)
                self._refused(
                    ticket, (OutcomeUnknown if unknown else SessionExpired)(ticket.request.path, "session expired")
                )
        self._fire(list(self._watches))

    def _answered(self, ticket: Ticket, result: Any) -> None:
        self._sent.pop(ticket, None)
        if ticket.future.done():
            return
        if ticket.callback is not None:
            key = WatchKey(ticket.request.path, isinstance(ticket.request, Children))
            self._watches.setdefault(key, {})[ticket.callback] = None
        ticket.future.set_result(result)

    def _refused(self, ticket: Ticket, error: MetaError) -> None:
        self._sent.pop(ticket, None)
        if ticket.future.done():
            return
        ticket.future.set_exception(error)

    def _interrupted(self, ticket: Ticket) -> None:
        """No answer will come. A read waits for the connection to come back; a write may have been applied."""
        if ticket not in self._sent:
            return
        del self._sent[ticket]
        if ticket.future.done():
            return  # its caller has given up, and has not yet run to say so
        if ticket.is_write:
            ticket.future.set_exception(OutcomeUnknown(ticket.request.path, "connection lost"))
        else:
            self._held[ticket] = None

    def _fired(self, key: WatchKey) -> None:
        self._fire([key])

    # -- inside ------------------------------------------------------------------------------------------------------

    def _publish(self, state: SessionState) -> None:
        self._state = state
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            # Not from here: one that raises must not keep the others and the requests behind it from their news.
            loop.call_soon(listener, state)

    def _fire(self, keys: Sequence[WatchKey]) -> None:
        loop = asyncio.get_running_loop()
        for key in keys:
            for callback in self._watches.pop(key, ()):
                loop.call_soon(callback)
