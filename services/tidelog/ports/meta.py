"""The metadata store, as a port: the ZooKeeper subset that the protocol needs.

What is promised and what is not is ZooKeeper's (reliability 6.1): writes are linear, reads may be stale until `sync`,
a lost connection leaves an outcome unknown, expiry is decided by the server alone, a watch fires once and means no more
than "read again" (HOLE-41).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1

MULTI_LIMIT_BYTES = 512 * 1024
"""Of one multi; the server drops the connection of a client that sends 1 MiB (reliability 6.3). Callers split."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Of a znode: `czxid` tells two lives of one path apart, `version` counts its sets."""

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Op = Create | SetData | Delete | Check


def size_bytes(ops: Sequence[Op]) -> int:
    """What `ops` take in one multi, as ZooKeeper's jute encodes them (never less)."""
    per_op = 9 + 4 + 4 + 4 + 31  # multi header, path length, data length, version or flags, the open ACL of a create
    size = per_op * len(ops)
    for op in ops:
        size += len(op.path) if op.path.isascii() else len(op.path.encode())
        if isinstance(op, Create | SetData):
            size += len(op.data)
    return size


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is down; the session may or may not live on."""
    LOST = "lost"
    """The session has expired: its ephemerals are gone. A new session follows by itself."""


class MetaError(Exception):
    """What the store answered, or that it did not. `path` is the operation that failed."""

    def __init__(self, path: str = "", detail: str = "", index: int | None = None) -> None:
        super().__init__(f"{path} {detail}".strip())
        self.path = path
        self.index = index
        """Of the first failed operation in a multi."""


class NoNode(MetaError): ...


class NodeExists(MetaError): ...


class BadVersion(MetaError): ...


class NotEmpty(MetaError): ...


class TooLarge(MetaError):
    """Refused here, before the server would only drop the connection (reliability 6.3)."""


class OutcomeUnknown(MetaError):
    """Connection loss or no answer in time: a write may or may not have been applied."""


class SessionExpired(MetaError):
    """The session this request belonged to is over; it was not applied."""


class SessionClosed(MetaError):
    """`close` was called: there is nothing to wait for and nothing to try again."""


WatchCallback = Callable[[], None]
"""Called once, on the event loop, when the watched thing may have changed or the connection broke: read again."""


class Meta(Protocol):
    """One session to the store. All methods are for the event loop's thread; none blocks it.

    A request belongs to the session in which it was made and is never executed in a later one: it fails with
    SessionExpired if its session ends before it was sent. While the connection is down it waits for the same session to
    come back. While there is no session at all a read waits for the next one and a write fails at once, so that a writer
    looks again before it writes under a new name. Reads interrupted by a lost connection are repeated; a write is not.
    """

    async def start(self) -> None:
        """Returns when connected; waits for ever for a store that is not there yet, and says so in the log."""
        ...

    async def close(self) -> None:
        """Ends the session in order, so that its ephemerals go at once."""
        ...

    @property
    def session_id(self) -> int:
        """0 while there is no session."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """As negotiated with the server, not as asked for."""
        ...

    @property
    def state(self) -> SessionState: ...

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        """Called on the event loop at every change of state, in order."""
        ...

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]: ...

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None: ...

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Names, sorted."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Pipelined reads, in the order asked; None where there is no such node."""
        ...

    async def sync(self, path: str) -> None:
        """Later reads see every write that was acknowledged to anybody before this call."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[Stat | None]:
        """All or nothing. Raises the first operation's real error; returns a Create's or a SetData's new Stat in its place.

        A single operation goes through here too: there is one write path. OutcomeUnknown is never retried here.
        """
        ...
