"""Calls and streams between processes, as a port.

What crosses it is a message of `tidelog.wire` (a frozen dataclass), never bytes and never a generated class: the gRPC
adapter encodes, the in-memory twin passes the value. Methods are described in `tidelog.wire.services`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from tidelog.ids import Address

Req = TypeVar("Req")
Res = TypeVar("Res")
In = TypeVar("In", covariant=True)
Out = TypeVar("Out", contravariant=True)


@dataclass(frozen=True, slots=True)
class Unary(Generic[Req, Res]):
    """One request, one answer. `path` is gRPC's: /tidelog.v1.Service/Method."""

    path: str
    request: type[Req]
    response: type[Res]


@dataclass(frozen=True, slots=True)
class Bidi(Generic[Req, Res]):
    """A stream each way; `request` flows from the side that opened it."""

    path: str
    request: type[Req]
    response: type[Res]


class CallContext(Protocol):
    """What a handler knows of its caller; asked for only when it wants to know."""

    @property
    def peer(self) -> str: ...

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the caller gives up; None without a deadline."""
        ...

    def room(self, most: int) -> int:
        """Returns the bytes that the response may have now, at most `most`. It is less while this caller, or others, have
        not read theirs; 0 if it has to wait."""
        ...

    async def more_room(self) -> None:
        """Returns when there may be more room than there was."""
        ...


@dataclass(frozen=True, slots=True)
class KnownCaller:
    """A CallContext whose answers are known beforehand."""

    peer: str
    remaining_s: float | None = None

    def room(self, most: int) -> int:
        return most

    async def more_room(self) -> None: ...


class Stream(Protocol[In, Out]):
    """One end of a bidirectional stream. Reads come from one task at a time, writes from one task at a time.

    A read or a write that is cancelled breaks the stream: nobody knows whether its message was lost.
    """

    async def read(self) -> In | None:
        """The next message; None when the other side finished in order. TransportError when the stream broke."""
        ...

    async def write(self, message: Out) -> None:
        """Hands the message to the transport, waiting while its window is full. TransportError when it broke."""
        ...

    def cancel(self) -> None:
        """Breaks the stream at both ends; harmless when it has ended."""
        ...


UnaryHandler = Callable[[Any, CallContext], Awaitable[Any]]
BidiHandler = Callable[[Stream[Any, Any], CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """One served method and what answers it. A Bidi handler's return ends the stream.

    A handler is cancelled when its caller is gone (cancelled, past its deadline, connection broken) and when its server
    stops. A TidelogError that it raises reaches the caller as a TransportError with the detail "CODE: message".
    """

    method: Unary[Any, Any] | Bidi[Any, Any]
    handler: UnaryHandler | BidiHandler


class Server(Protocol):
    @property
    def address(self) -> Address:
        """Where it listens; the real port when port 0 was asked for."""
        ...

    def set_serving(self, serving: bool) -> None:
        """What the grpc health service answers for every service."""
        ...

    async def stop(self, grace_s: float) -> None: ...


class Channel(Protocol):
    """A connection to one address; it connects by itself, and again after a break."""

    async def call(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        """TransportError when no answer came: the outcome is unknown."""
        ...

    def open(self, method: Bidi[Req, Res]) -> Stream[Res, Req]: ...

    async def close(self) -> None: ...


class Probe(Enum):
    """What a plain TCP connect found."""

    OPEN = "open"
    REFUSED = "refused"
    """Refused or reset by a live host: nothing listens there. The only answer that makes a suspect in local mode."""
    GONE = "gone"
    """No route to the host or its name is gone: in containers, the container has ended."""
    SILENT = "silent"
    """No answer in time: says nothing about the process."""
    UNRESOLVED = "unresolved"
    """The name server does not say now whether the host exists: says nothing about the process."""


class Net(Protocol):
    async def serve(self, listen: Address, routes: Sequence[Route], advertised: Address | None = None) -> Server:
        """One server for one listener, so that a handler knows by which door a caller came. OSError: address in use.

        With `advertised`, calls that are meant for another address end with UNAVAILABLE, and the caller connects anew: two
        containers that come back may have each other's address, and a name that was looked up before leads to the wrong
        one (KIP-1242).
        """
        ...

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> Channel:
        """`purpose` keeps connections apart: a 1 MiB chunk on `replica` must not delay LeaderAndIsr on `control`.

        `to_anyone`: any server that answers at `address` is right, whatever it advertises, as at a bootstrap address.
        """
        ...

    async def probe(self, address: Address, timeout_s: float) -> Probe: ...
