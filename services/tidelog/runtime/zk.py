"""The metadata store over kazoo: the one module that imports it (reliability 6.3, FIND-8).

kazoo keeps its threads and the event loop keeps its own: a request goes over by being appended to kazoo's queue, and
everything that kazoo has to say comes back through one inbox that wakes the loop once per burst (performance 4.15). No
blocking kazoo call and no `client.retry` is used. The subclasses below reach into kazoo where its public interface would
lose something that matters; each says what, and tests/integration/test_zookeeper_*.py hold it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionMovedError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as jute
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.retry import KazooRetry

from tidelog.ports.meta import (
    BadVersion,
    MetaError,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OutcomeUnknown,
    SessionExpired,
    Stat,
)
from tidelog.runtime import zk_jute
from tidelog.runtime.loop_watch import PERIOD_S
from tidelog.runtime.meta_session import (
    Children,
    Exists,
    Get,
    GetMany,
    MetaSession,
    Multi,
    Observe,
    Spawn,
    Sync,
    Ticket,
    WatchKey,
)

log = logging.getLogger(__name__)

kazoo_log = logging.getLogger(f"{__name__}.kazoo")
"""kazoo reports every attempt to connect; `MetaSession` says the same once in a while and in our words."""
kazoo_log.setLevel(logging.ERROR)

CLOSE_LIMIT_S: Final = 3.0
"""How long `close` waits for the server: one that does not answer must not keep a process from ending."""

RETRY_MIN_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
RETRY_SHARE: Final = 0.1
"""Of the session: how long a server may be back before it is tried again."""
SERVERS_MIN: Final = 3
"""One attempt has the session's time divided by the number of servers, or by this if they are fewer. A server that is still
starting takes a connection and never answers it: by kazoo's count the only one of its kind costs the whole session."""

ERRORS: Final[dict[int | None, type[MetaError]]] = {
    NoNodeError.code: NoNode,
    NodeExistsError.code: NodeExists,
    BadVersionError.code: BadVersion,
    NotEmptyError.code: NotEmpty,
    SessionExpiredError.code: SessionExpired,
    ConnectionLoss.code: OutcomeUnknown,
    SessionMovedError.code: OutcomeUnknown,
}

ROLLED_BACK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
"""What the server puts in a failed multi for the operations before and behind the one that failed."""


class ConnectionThreadEnded(Exception):
    """kazoo's connection thread is dead: no request will ever be answered again, so the process has to end."""


def to_stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def to_error(error: BaseException, path: str) -> MetaError:
    """Of a whole request. What is not an answer of the server's says nothing about the outcome."""
    if not isinstance(error, KazooException):
        return OutcomeUnknown(path, repr(error))
    kind = ERRORS.get(getattr(error, "code", None), MetaError)
    return kind(path, "" if kind is not MetaError else repr(error))


class MultiRequest:
    """A multi as kazoo's queue takes it, with `create2`, which answers with a Stat, and with errors as numbers.

    kazoo's own answers with exceptions in a list, mixed with those of operations that only shared the fate of the one
    that failed, and looks error numbers up in a table: an unknown one ends its thread (kazoo #720).
    """

    type = zk_jute.MULTI
    deserialize = staticmethod(zk_jute.decode_multi)

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self._ops = ops

    def serialize(self) -> bytes:
        return zk_jute.encode_multi(self._ops)


class ReadsRequest:
    """Many reads in one request, which kazoo does not have."""

    type = zk_jute.MULTI_READ
    deserialize = staticmethod(zk_jute.decode_reads)

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        return zk_jute.encode_reads(self._paths)


def multi_answer(ops: tuple[Op, ...], results: list[zk_jute.Result]) -> list[Stat | None] | MetaError:
    """The Stats, or the error of the operation that failed first."""
    failed = [(i, result) for i, result in enumerate(results) if isinstance(result, int)]
    if not failed:
        return [result for result in results if not isinstance(result, int)]
    real = [(i, e) for i, e in failed if e not in (ROLLED_BACK, RUNTIME_INCONSISTENCY)]
    index, error = (real or failed)[0]
    return _number_to_error(error, ops[index].path, index)


def reads_answer(
    paths: tuple[str, ...], found: list[tuple[bytes, Stat] | int]
) -> list[tuple[bytes, Stat] | None] | MetaError:
    """None where nothing is; any other error is the whole answer."""
    answers: list[tuple[bytes, Stat] | None] = []
    for path, each in zip(paths, found, strict=True):
        if not isinstance(each, int):
            answers.append(each)
        elif each == NoNodeError.code:
            answers.append(None)
        else:
            return _number_to_error(each, path, None)
    return answers


def _number_to_error(error: int, path: str, index: int | None) -> MetaError:
    kind = ERRORS.get(error, MetaError)
    return kind(path, "" if kind is not MetaError else f"ZooKeeper error {error}", index)


@dataclass(frozen=True, slots=True)
class Reply:
    """Stands where kazoo expects its AsyncResult: the answer goes to the inbox, not through another thread."""

    ticket: Ticket
    post: Callable[[Any], None]

    def set(self, value: Any = None) -> None:
        self.post((self.ticket, value, None))

    def set_exception(self, error: BaseException) -> None:
        self.post((self.ticket, None, error))


@dataclass(frozen=True, slots=True)
class Watcher:
    """kazoo keeps watchers in a set: equal ones are one, so that reading again and again leaks nothing."""

    key: WatchKey
    owner: "ZkMeta"

    def __call__(self, _event: Any) -> None:
        self.owner._post(self.key)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    def __init__(self, attempt_limit_s: float) -> None:
        super().__init__()
        self.attempt_limit_s = attempt_limit_s

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """kazoo would give one silent server the whole session timeout, and with it the session."""
        return super().create_connection(*args, timeout=min(timeout, self.attempt_limit_s), **kwargs)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection thread, with a fence, the negotiated timeout, and a wake-up that cannot block the waker."""

    _xid: int

    def __init__(self, client: KazooClient, owner: "ZkMeta") -> None:
        super().__init__(client, client._conn_retry.copy(), logger=kazoo_log)
        self._owner = owner
        self._awake = False
        self.negotiated_s = 0.0

    def _send_ping(self, connect_timeout: float) -> None:
        """Pings go on without the event loop, and so would the session of a process that does nothing any more. They wait for
        the loop once it has not turned for half the session's time; the server then ends the session."""
        while self._owner.stalled_s() > self.negotiated_s / 2 and not self.client._stopped.is_set():
            self.handler.sleep_func(PERIOD_S)
        super()._send_ping(connect_timeout)

    def wake(self) -> None:
        """From any thread. kazoo sends one byte a request down a socket pair that holds 278 of them, and then blocks."""
        if not self._awake:
            self._awake = True
            self._write_sock.send(b"\0")

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        finally:
            self._owner._post("ended")

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        connects = isinstance(request, jute.Connect)
        answer = super()._invoke(min(timeout, self.handler.attempt_limit_s) if connects else timeout, request, xid)
        if connects:
            # kazoo tells nobody what the server made of the timeout that it was asked for (reliability 6.2).
            self.negotiated_s = answer[0].time_out / 1000.0
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Sends all that is queued; kazoo sends one request a turn of its loop."""
        self._read_sock.recv(4096)
        # Before the queue is looked at: a request appended later finds the flag down and wakes again.
        self._awake = False
        client = self.client
        while client._queue:
            request, reply = client._queue[0]
            if isinstance(reply, Reply) and reply.ticket.session_id != client._session_id:
                # The fence: what was asked in one session is never executed in another (reliability 6.3).
                client._queue.popleft()
                reply.set_exception(SessionExpiredError())
                continue
            self._xid = (self._xid % 2147483647) + 1
            self._submit(request, connect_timeout, self._xid)
            client._queue.popleft()
            client._pending.append((request, reply, self._xid))


class ZkMeta(MetaSession):
    """`Meta` over a ZooKeeper ensemble. `hosts` is `host:port[,host:port...]`.

    A dead connection thread raises ConnectionThreadEnded in the task given to `spawn`, for the supervisor to end the
    process. The session timeout is in seconds, as asked for; `session_timeout_s` is what the server granted.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float,
        spawn: Spawn,
        request_timeout_s: float = 15.0,
        observe: Observe | None = None,
        stalled_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`stalled_s` as of LoopWatch."""
        self.stalled_s = stalled_s
        super().__init__(hosts, request_timeout_s=request_timeout_s, observe=observe)
        if "/" in hosts:
            raise ValueError(f"{hosts!r}: a path behind the servers (chroot) is not supported")
        handler = Handler(attempt_limit_s=session_timeout_s / max(SERVERS_MIN, hosts.count(",") + 1))
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            handler=handler,
            logger=kazoo_log,
            # For ever: after a finite number of attempts kazoo's client is closed for good (kazoo #600). Soon again: a server
            # that comes back counts the session's time from when it is up, and a busy one is slow to answer.
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RETRY_MIN_S,
                max_delay=max(RETRY_MIN_S, min(RETRY_MAX_S, session_timeout_s * RETRY_SHARE)),
                sleep_func=handler.sleep_func,
            ),
        )
        self._connection = self._client._connection = Connection(self._client, self)
        self._spawn = spawn
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: deque[Any] = deque()
        self._woken = False
        self._thread_ended = asyncio.Event()

    def _open(self) -> None:
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        self._spawn("zookeeper connection thread", self._watch_thread())

    async def _shut(self) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            # Blocks until the server has confirmed the end of the session: a thread of its own, which may be left behind.
            try:
                self._client.stop()
                self._client.close()
                loop.call_soon_threadsafe(stopped.set)
            except (WriterNotClosedException, RuntimeError) as error:
                log.debug("left behind while closing: %r", error)  # the server is silent, or the loop has ended

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await stopped.wait()
        except TimeoutError:
            log.warning("ZooKeeper at %s did not confirm the end of session %#x", self._where, self.session_id)

    def _transmit(self, ticket: Ticket) -> None:
        reply = Reply(ticket, self._post)
        if self._client._live.is_set():
            self._client._queue.append((self._to_kazoo(ticket), reply))
            self._connection.wake()
        else:
            self._interrupted(ticket)

    def _to_kazoo(self, ticket: Ticket) -> Any:
        request = ticket.request
        if isinstance(request, Multi):
            return MultiRequest(request.ops)
        if isinstance(request, GetMany):
            return ReadsRequest(request.paths)
        if isinstance(request, Sync):
            return jute.Sync(request.path)
        watcher = Watcher(WatchKey(request.path, isinstance(request, Children)), self) if request.watch else None
        kinds = {Get: jute.GetData, Exists: jute.Exists, Children: jute.GetChildren}
        return kinds[type(request)](request.path, watcher)

    # -- from kazoo's threads ----------------------------------------------------------------------------------------

    def _on_kazoo_state(self, state: str) -> None:
        self._post((state, self._client._session_id or 0, self._connection.negotiated_s))

    def _post(self, item: Any) -> None:
        """From any thread: one wake-up of the loop for a burst of items."""
        self._inbox.append(item)
        if not self._woken:
            self._woken = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: the process is ending and nobody waits for this.
                log.debug("dropped %r: the event loop is closed", item)

    # -- on the event loop -------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._woken = False
        while self._inbox:
            match self._inbox.popleft():
                case WatchKey() as key:
                    self._fired(key)
                case Ticket() as ticket, value, error:
                    self._on_reply(ticket, value, error)
                case KazooState.CONNECTED, session_id, timeout_s:
                    self._connected(session_id, timeout_s)
                case KazooState.SUSPENDED, _, _:
                    self._suspended()
                case KazooState.LOST, _, _:
                    self._expired()
                case "ended":
                    self._thread_ended.set()

    def _on_reply(self, ticket: Ticket, value: Any, error: BaseException | None) -> None:
        if isinstance(error, ConnectionLoss | ConnectionClosedError):
            self._interrupted(ticket)
        elif error is not None:
            self._refused(ticket, to_error(error, ticket.request.path))
        elif isinstance(ticket.request, Multi | GetMany):
            request = ticket.request
            answer = (
                multi_answer(request.ops, value) if isinstance(request, Multi) else reads_answer(request.paths, value)
            )
            if isinstance(answer, MetaError):
                self._refused(ticket, answer)
            else:
                self._answered(ticket, answer)
        elif isinstance(ticket.request, Get):
            self._answered(ticket, (value[0], to_stat(value[1])))
        elif isinstance(ticket.request, Exists):
            self._answered(ticket, None if value is None else to_stat(value))
        else:
            self._answered(ticket, value)

    async def _watch_thread(self) -> None:
        await self._thread_ended.wait()
        if not self._closed:
            raise ConnectionThreadEnded(f"the connection thread to ZooKeeper at {self._where} ended")
