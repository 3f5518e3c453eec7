"""ZooKeeper in memory: one store, many sessions, and the faults that the real one has (reliability 4.2, 6.1).

* Writes are linear. With more than one server reads may be stale until `sync`, as from a lagging follower.
* The server alone expires a session, a session timeout after it last heard from the client (on whole ticks).
* A connection that breaks leaves the requests on their way applied or not: `Rand` decides how many of them arrived.
* Watches fire once and are lost with the connection, which the client fires as "read again".
* `pause` stops a client as SIGSTOP does: nothing is delivered to it, and its session may expire without its notice.

Everything happens in timers of the running event loop, in an order that `Rand` and the loop's clock determine.
"""

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.ports.meta import Check, MetaError, Op, SessionExpired
from tidelog.ports.rand import Rand
from tidelog.runtime.meta_session import (
    Children,
    Exists,
    Get,
    GetMany,
    MetaSession,
    Multi,
    Observe,
    Request,
    Sync,
    Ticket,
    WatchKey,
)
from tidelog.testing.meta_tree import Change, Znode, ZnodeTree

RECONNECT_S = 0.1
"""A client tries again at random within this time."""


@dataclass(eq=False, slots=True)
class Session:
    """As the server sees it."""

    session_id: int
    timeout_s: float
    heard_at: float
    expiry: asyncio.TimerHandle | None = None
    connection: "Connection | None" = None

    def disarm(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


@dataclass(frozen=True, slots=True)
class Copy:
    """The store at one time, as a backup or the disk of a server keeps it."""

    nodes: Mapping[str, Znode]
    zxid: int
    sessions: Mapping[int, float]
    """Timeouts in seconds."""


@dataclass(eq=False, slots=True)
class Server:
    """One member of the ensemble: what it has applied, what it has yet to, and the watches set through it."""

    tree: ZnodeTree = field(default_factory=ZnodeTree)
    applied: int = 0
    behind: deque[tuple[int, list[Change]]] = field(default_factory=deque)
    watches: dict[WatchKey, dict["Connection", None]] = field(default_factory=dict)

    def apply_next(self) -> None:
        if not self.behind:
            return
        zxid, changes = self.behind.popleft()
        self.applied = zxid
        for path, node in changes:
            for key in self.tree.put(path, node):
                for connection in self.watches.pop(key, ()):
                    connection.deliver_watch(key)

    def catch_up(self) -> None:
        while self.behind:
            self.apply_next()

    def read(self, request: Request) -> Any:
        match request:
            case Get():
                node = self.tree.get(request.path)
                return node.data, node.stat
            case GetMany(paths):
                nodes = [self.tree.find(path) for path in paths]
                return [None if node is None else (node.data, node.stat) for node in nodes]
            case Exists():
                found = self.tree.find(request.path)
                return None if found is None else found.stat
            case Children():
                return self.tree.children(request.path)
            case Sync():
                self.catch_up()
                return None
            case Multi():
                raise AssertionError("a write goes through the store")


class SimZooKeeper:
    """The store. `latency_s` is one way; a follower applies a write at most `lag_s` late."""

    def __init__(
        self, rand: Rand, *, servers: int = 1, latency_s: float = 0.0005, lag_s: float = 0.0, tick_s: float = 0.5
    ) -> None:
        self.rand = rand
        self.running = True
        self._latency_s = latency_s
        self._lag_s = lag_s
        self._tick_s = tick_s
        self._leader = ZnodeTree()
        self._zxid = 0
        self._servers = [Server() for _ in range(servers)]
        self._damaged: dict[str, Znode] = {}
        """Znodes that were written over by mistake, as they were before; until the cluster writes there or they are repaired."""
        self._sessions: dict[int, Session] = {}
        self._session_ids = 0x1000
        self._clients: list[SimMeta] = []
        self.deliveries = 0
        """Requests that reached a server, and answers and watches that reached a client."""
        self.on_commit: Callable[[Sequence[Change]], None] | None = None
        """Called with every change that is made, in the order of the writes."""
        self.writer = 0
        """Session of the write whose changes are being reported; 0: nobody's."""
        self.on_expired: Callable[[int], None] | None = None
        """Called with a session that has ended because its time was up, not because a test wanted it."""
        self.on_unanswered: Callable[[SimMeta, tuple[Op, ...], bool], None] | None = None
        """Called with a write whose answer is lost: the client, what it wrote, and whether the server applied it."""

    def client(
        self, *, session_timeout_s: float = 6.0, request_timeout_s: float = 15.0, observe: Observe | None = None
    ) -> "SimMeta":
        """A new client; `await client.start()` opens its session."""
        client = SimMeta(self, session_timeout_s, request_timeout_s, observe)
        self._clients.append(client)
        return client

    def dump(self) -> dict[str, Znode]:
        """Returns what is committed, by path: for invariants and assertions. A damaged znode is as it was before."""
        return {**self._leader.dump(), **self._damaged}

    def find(self, path: str) -> Znode | None:
        """Returns what is committed at `path`, in the same way."""
        return self._damaged.get(path) or self._leader.find(path)

    def below(self, path: str) -> list[str]:
        """Names of the committed children; none if there is no such znode."""
        return [] if self._leader.find(path) is None else self._leader.children(path)

    @property
    def live_sessions(self) -> list[int]:
        return list(self._sessions)

    def expire(self, session_id: int) -> None:
        """A fault ends a session, now."""
        self.end(session_id)

    def end(self, session_id: int) -> None:
        """It was closed, or its time is up."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.disarm()
        self._zxid += 1
        changes: list[Change] = [(path, None) for path in self._leader.owned_by(session_id)]
        for path, node in changes:
            self._leader.put(path, node)
        self._publish(changes)
        if session.connection is not None:
            session.connection.lose()

    def remove(self, path: str) -> None:
        """An operator deletes a znode that has no children."""
        if self._leader.find(path) is not None:
            self._zxid += 1
            self._leader.put(path, None)
            self._publish([(path, None)])

    def damage(self, path: str, data: bytes) -> None:
        """An operator's script, or a foreign program, writes over what is there."""
        before = self._leader.get(path)
        self._write_over(path, data)
        self._damaged.setdefault(path, before)

    def repair(self, path: str, data: bytes) -> None:
        """`data` takes the place of the damage, if that is still there."""
        if self._damaged.pop(path, None) is not None:
            self._write_over(path, data)

    @property
    def damaged(self) -> list[str]:
        """Paths of znodes that were written over and are not repaired."""
        return list(self._damaged)

    def _write_over(self, path: str, data: bytes) -> None:
        self._zxid += 1
        before = self._leader.get(path).stat
        change = path, Znode(data, replace(before, version=before.version + 1, mzxid=self._zxid))
        self._leader.put(*change)
        self._spread([change])

    def stop(self) -> None:
        """The whole ensemble is down; nobody's session expires meanwhile."""
        self.running = False
        for session in self._sessions.values():
            if session.connection is not None:
                session.connection.lose()
            session.disarm()

    def start(self) -> None:
        """It is back, and every session has its whole timeout again."""
        self.running = True
        for session in self._sessions.values():
            self._arm(session, asyncio.get_running_loop().time())
        for client in self._clients:
            client.knock()

    @property
    def zxid(self) -> int:
        """The last transaction."""
        return self._zxid

    def copy(self) -> Copy:
        return Copy(self.dump(), self._zxid, {each.session_id: each.timeout_s for each in self._sessions.values()})

    def return_to(self, copy: Copy, *, zxid: int = 0) -> None:
        """The servers, which are down, will come up with an older copy: the sessions of its time live, later ones are unknown.

        They go on behind the copy's last transaction, as a single server does, or at `zxid`, as an ensemble does that has
        elected a leader.
        """
        now = asyncio.get_running_loop().time()
        self._sessions = {each: Session(each, timeout_s, now) for each, timeout_s in copy.sessions.items()}
        self._leader, self._zxid = ZnodeTree(copy.nodes), max(copy.zxid, zxid)
        self._servers = [Server(ZnodeTree(copy.nodes), self._zxid) for _ in self._servers]

    # -- for Connection and SimMeta ----------------------------------------------------------------------------------

    def latency(self) -> float:
        return self._latency_s * (0.5 + self.rand.random())

    def is_behind(self, zxid: int) -> bool:
        """A client that has seen `zxid` is refused: its server would show it an older state."""
        return self._zxid < zxid

    def connect(self, client: "SimMeta", session_id: int, last_zxid: int) -> "Connection | None":
        """Opens `session_id` again, or a new session for 0. None: the session is over."""
        now = asyncio.get_running_loop().time()
        if session_id == 0:
            self._session_ids += 1
            session_id = self._session_ids
            self._sessions[session_id] = Session(session_id, client.asked_timeout_s, now)
        session = self._sessions.get(session_id)
        if session is None:
            return None
        session.disarm()
        if session.connection is not None:
            session.connection.close()
        server = self._servers[self.rand.randrange(len(self._servers))]
        while server.applied < last_zxid and server.behind:
            server.apply_next()  # a server that is behind the client refuses it; it would try the next one
        session.heard_at = now
        session.connection = Connection(self, client, session, server)
        return session.connection

    def silent(self, session: Session) -> None:
        """Nothing will be heard from this client for now: its last ping was up to a third of the timeout ago."""
        now = asyncio.get_running_loop().time()
        last_ping = now - self.rand.random() * session.timeout_s / 3
        if session.session_id in self._sessions and session.expiry is None:
            self._arm(session, max(session.heard_at, last_ping))

    def heard(self, session: Session) -> None:
        """The client is back on the same connection."""
        session.heard_at = asyncio.get_running_loop().time()
        session.disarm()

    def write(self, ops: tuple[Op, ...], session_id: int, server: Server) -> Any:
        if session_id not in self._sessions:
            raise SessionExpired(ops[0].path)
        self._zxid += 1
        stats, changes = self._leader.execute(ops, self._zxid, session_id)
        self.writer = session_id
        self._publish(changes)
        self.writer = 0
        server.catch_up()  # a write is answered when the client's own server has it
        return stats

    # -- inside ------------------------------------------------------------------------------------------------------

    def _arm(self, session: Session, heard_at: float) -> None:
        session.disarm()
        session.heard_at = heard_at
        at = math.ceil((heard_at + session.timeout_s) / self._tick_s) * self._tick_s
        if self.running:
            session.expiry = asyncio.get_running_loop().call_at(at, self._time_is_up, session.session_id)

    def _time_is_up(self, session_id: int) -> None:
        self.end(session_id)
        if self.on_expired is not None:
            self.on_expired(session_id)

    def _publish(self, changes: list[Change]) -> None:
        for path, _ in changes:
            self._damaged.pop(path, None)
        if self.on_commit is not None:
            self.on_commit(changes)
        self._spread(changes)

    def _spread(self, changes: list[Change]) -> None:
        loop = asyncio.get_running_loop()
        for server in self._servers:
            server.behind.append((self._zxid, changes))
            if self._lag_s == 0:
                server.catch_up()
            else:
                # Each timer applies the oldest, so the order holds whatever the delays are.
                loop.call_later(self._lag_s * self.rand.random(), server.apply_next)


class Connection:
    """One TCP connection: first in, first out both ways, until it breaks."""

    def __init__(self, store: SimZooKeeper, client: "SimMeta", session: Session, server: Server) -> None:
        self._store = store
        self._client = client
        self.session = session
        self.server = server
        self.open = True
        self._up: deque[Ticket] = deque()
        self._down: deque[Callable[[], None]] = deque()

    def send(self, ticket: Ticket) -> None:
        self._up.append(ticket)
        if self.open:
            asyncio.get_running_loop().call_later(self._store.latency(), self._arrive)

    def deliver_watch(self, key: WatchKey) -> None:
        self._deliver(lambda: self._client.on_watch(key))

    def break_off(self, lost: int | None = None) -> None:
        """Of what is on its way to the server the last `lost` requests (None: as chance will have it) never arrive."""
        if self.open:
            lost = self._store.rand.randrange(len(self._up) + 1) if lost is None else lost
            arrived = len(self._up) - lost
            for number, ticket in enumerate(list(self._up)):
                if number < arrived:
                    self._serve(ticket)
                if isinstance(ticket.request, Multi) and self._store.on_unanswered is not None:
                    self._store.on_unanswered(self._client, ticket.request.ops, number < arrived)
        self.close()
        self._store.silent(self.session)

    def close(self) -> None:
        """Nothing passes any more, in either direction."""
        self.open = False
        self._up.clear()
        for watchers in self.server.watches.values():
            watchers.pop(self, None)
        if self.session.connection is self:
            self.session.connection = None

    def lose(self) -> None:
        """The server closes it; a client that runs notices at once."""
        self.break_off()
        self._client.on_lost(self)

    def _arrive(self) -> None:
        if self.open and self._up:
            self._store.deliveries += 1
            answer = self._serve(self._up.popleft())
            self._deliver(answer)

    def _serve(self, ticket: Ticket) -> Callable[[], None]:
        self.session.heard_at = asyncio.get_running_loop().time()
        client, request = self._client, ticket.request
        try:
            if ticket.session_id != self.session.session_id:
                raise SessionExpired(request.path)
            if isinstance(request, Multi):
                result = self._store.write(request.ops, ticket.session_id, self.server)
            else:
                result = self.server.read(request)
        except MetaError as error:
            refusal = error
            return lambda: client.on_answer(self, lambda: client._refused(ticket, refusal))
        if not isinstance(request, Multi | Sync | GetMany) and request.watch:
            key = WatchKey(request.path, isinstance(request, Children))
            self.server.watches.setdefault(key, {})[self] = None
        return lambda: client.on_answer(self, lambda: client._answered(ticket, result))

    def _deliver(self, message: Callable[[], None]) -> None:
        self._down.append(message)
        asyncio.get_running_loop().call_later(self._store.latency(), self._deliver_next)

    def _deliver_next(self) -> None:
        message = self._down.popleft()
        if self.open:
            self._store.deliveries += 1
            self._client.receive(message)


class SimMeta(MetaSession):
    """One client of the simulated store, and the faults that can befall it."""

    def __init__(
        self, store: SimZooKeeper, session_timeout_s: float, request_timeout_s: float, observe: Observe | None
    ) -> None:
        super().__init__("the simulated store", request_timeout_s=request_timeout_s, observe=observe)
        self.asked_timeout_s = session_timeout_s
        self._store = store
        self._connection: Connection | None = None
        self._last_zxid = 0
        self._link_up = True
        self._paused = False
        self._dead = False
        self._knocking = False
        self._mailbox: deque[Callable[[], None]] = deque()
        self._lose_next: bool | None = None
        self._lost_multi: Callable[[], None] | None = None

    # -- faults ------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """The connection breaks, both sides notice, and the client connects again by itself."""
        if self._connection is not None:
            connection = self._connection
            connection.break_off()
            self.on_lost(connection)

    def cut(self) -> None:
        """A black hole: nothing passes and nobody is told. The client notices after 1/3 to 2/3 of its timeout."""
        self._link_up = False
        if self._connection is not None:
            connection = self._connection
            connection.break_off()
            after = self.session_timeout_s * (1 + self._store.rand.random()) / 3
            asyncio.get_running_loop().call_later(after, self.on_lost, connection)

    @property
    def is_cut(self) -> bool:
        return not self._link_up

    def heal(self) -> None:
        self._link_up = True
        if self._connection is not None and not self._connection.open:
            self.on_lost(self._connection)
        self.knock()

    def pause(self) -> None:
        """The process stops, as under SIGSTOP."""
        self._paused = True
        if self._connection is not None and self._connection.open:
            self._store.silent(self._connection.session)

    def resume(self) -> None:
        """It runs again, and first learns what had arrived in the meantime."""
        self._paused = False
        if self._connection is not None and self._connection.open:
            self._store.heard(self._connection.session)
        loop = asyncio.get_running_loop()
        for _ in range(len(self._mailbox)):
            loop.call_soon(self._take_mail)
        self.knock()

    def kill(self) -> None:
        """The process is gone; its session and its ephemerals live on until the server expires them."""
        self._dead = True
        if self._connection is not None:
            self._connection.break_off()

    def lose_next_answer(self, *, applied: bool) -> None:
        """The next write's connection breaks before its answer; `applied` says on which side of the server."""
        self._lose_next = applied

    def lose_next_multi(self, *, applied: bool, then: Callable[[], None]) -> None:
        """As above, but waits for a write that checks another znode and changes something; then calls `then`."""
        self._lose_next, self._lost_multi = applied, then

    # -- transport ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.knock()

    async def _shut(self) -> None:
        self._dead = True
        if self._connection is not None and self._connection.open and self._store.running:
            self._connection.close()
            self._store.end(self.session_id)

    def _transmit(self, ticket: Ticket) -> None:
        if self._connection is None:
            self._interrupted(ticket)
            return
        if self._lose_next is not None and self._is_awaited(ticket):
            applied, self._lose_next = self._lose_next, None
            then, self._lost_multi = self._lost_multi, None
            connection = self._connection
            connection.send(ticket)
            connection.break_off(lost=0 if applied else 1)
            asyncio.get_running_loop().call_soon(self.on_lost, connection)
            if then is not None:
                asyncio.get_running_loop().call_soon(then, context=contextvars.Context())
            return
        if self._paused:
            self._mailbox.append(lambda: self._transmit(ticket))
        else:
            self._connection.send(ticket)

    def _is_awaited(self, ticket: Ticket) -> bool:
        if self._lost_multi is None:
            return ticket.is_write
        ops = ticket.request.ops if isinstance(ticket.request, Multi) else ()
        return len(ops) > 1 and isinstance(ops[0], Check)

    # -- from the network --------------------------------------------------------------------------------------------

    def receive(self, message: Callable[[], None]) -> None:
        if self._dead:
            return
        if self._paused or self._mailbox:
            self._mailbox.append(message)
            if not self._paused:
                asyncio.get_running_loop().call_soon(self._take_mail)
        else:
            message()

    def _take_mail(self) -> None:
        if self._mailbox and not self._paused:
            self._mailbox.popleft()()

    def on_answer(self, connection: Connection, report: Callable[[], None]) -> None:
        if connection is self._connection:
            self._last_zxid = max(self._last_zxid, connection.server.applied)
            report()

    def on_watch(self, key: WatchKey) -> None:
        self._fired(key)

    def on_lost(self, connection: Connection) -> None:
        """This end learns that the connection is gone."""
        self.receive(lambda: self._lost(connection))

    def _lost(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._suspended()
        self.knock()

    def knock(self) -> None:
        """Tries to connect, soon, if anything is worth trying; at most one attempt is under way."""
        if not self._knocking and not self._dead and self._connection is None:
            self._knocking = True
            asyncio.get_running_loop().call_later(self._store.rand.random() * RECONNECT_S, self._enter)

    def _enter(self) -> None:
        self._knocking = False
        able = self._link_up and self._store.running and not self._paused and not self._dead
        if not able or self._connection is not None:
            return  # heal, start and resume knock again
        if self._store.is_behind(self._last_zxid):
            self.knock()
            return
        connection = self._store.connect(self, self._session_id, self._last_zxid)
        if connection is None:
            self._last_zxid = 0
            self._expired()
            self.knock()
            return
        self._connection = connection
        self._connected(connection.session.session_id, connection.session.timeout_s)
