"""One call or stream in the simulated network: a pipe each way, and an end at either side.

A pipe keeps order, as a TCP connection does: a message that is lost breaks it, and over a cut link everything waits until
the link heals or the connection is given up.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tidelog.errors import TransportError
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import Origin, carries_cause, take_cause, with_cause

WINDOW: Final = 64
"""Messages that a writer may be ahead of the reader."""

_OUTSIDE: Final = contextvars.Context()
"""What happens in the network belongs to no process, so it goes on while one is stopped."""


@dataclass(slots=True)
class Faults:
    """Of one direction between two nodes; `loss` and `duplicate` are probabilities for each message."""

    delay_s: tuple[float, float] = (0.0001, 0.002)
    tail: int = 1
    """1 draws delays evenly; the higher, the more messages are quick and the fewer very late, so those are overtaken."""
    loss: float = 0.0
    duplicate: float = 0.0
    """Of a unary request: the server sees it twice."""


@dataclass(eq=False, slots=True)
class Link:
    """From one node to another."""

    source: str
    target: str
    faults: Faults
    is_cut: bool = False
    refuses: bool = False
    """No new connection of the source comes about: the target's host resets it."""
    changes: int = 0
    """Counts cuts, refusals and heals, so that a timer can tell whether it is still the same one."""
    waiting: "dict[Pipe, None]" = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


Trace = Callable[[Link, str, str], None]
"""Called with link, path and message when something arrives."""


class Pipe:
    def __init__(self, link: Link, path: str, rand: Rand, broken: Callable[[], None], trace: Trace) -> None:
        """`broken` is called when a message of this pipe is lost."""
        self._path = path
        self.link = link
        self._rand = rand
        self._broken = broken
        self._trace = trace
        self._last_arrival = 0.0
        self._stalled: deque[tuple[str, Callable[[], None]]] = deque()
        self._closed = False

    def send(self, what: str, deliver: Callable[[], None]) -> None:
        """`deliver` runs when it arrives, after everything that was sent before it."""
        loop = asyncio.get_running_loop()
        low, high = self.link.faults.delay_s
        arrival = loop.time() + low + (high - low) * self._rand.random() ** self.link.faults.tail
        self._last_arrival = arrival = max(arrival, self._last_arrival + 1e-9)
        if self.link.faults.loss and self._rand.random() < self.link.faults.loss:
            what, deliver = f"lost {what}", self._broken
        loop.call_at(arrival, self._arrive, what, deliver, context=_OUTSIDE)

    def close(self) -> None:
        """Drops what has not arrived."""
        self._closed = True
        self._stalled.clear()
        self.link.waiting.pop(self, None)

    def flow(self) -> None:
        """The link has healed."""
        self.link.waiting.pop(self, None)
        while self._stalled and not self._closed and not self.link.is_cut:
            self._deliver(*self._stalled.popleft())

    def _arrive(self, what: str, deliver: Callable[[], None]) -> None:
        if self._closed:
            return
        if self.link.is_cut or self._stalled:
            self._stalled.append((what, deliver))
            self.link.waiting[self] = None
        else:
            self._deliver(what, deliver)

    def _deliver(self, what: str, deliver: Callable[[], None]) -> None:
        self._trace(self.link, self._path, what)
        deliver()


class Owner(Protocol):
    """Who keeps the list of exchanges in progress."""

    def forget(self, exchange: "Exchange") -> None: ...


class Exchange:
    """A call or a stream from its first byte to its end."""

    def __init__(self, owner: Owner, path: str, there: Link, back: Link, rand: Rand, trace: Trace) -> None:
        self.path = path
        self.nodes = (there.source, there.target)
        self.links = (there, back)
        self.client = End(self, "client")
        self.server = End(self, "server")
        self.over = False
        self.cause: Origin | None = None
        """The event that led to a call, and once it is answered, to the answer."""
        self.task: asyncio.Task[Any] | None = None
        """The handler, once it has started."""
        self._owner = owner
        self._pipes = {
            "client": Pipe(there, path, rand, self.break_off, trace),
            "server": Pipe(back, path, rand, self.break_off, trace),
        }

    def send(self, side: str, what: str, deliver: Callable[[], None]) -> None:
        if not self.over:
            self._pipes[side].send(what, deliver)

    def finish(self, failure: TransportError | None = None, answer: Any = None) -> None:
        """The handler has ended: the client hears it after everything that was written. `answer` is a unary call's."""
        if answer is not None:
            self.send("server", type(answer).__name__, lambda: self.client.receive(answer))
        self.server.end(failure or TransportError("CANCELLED", "the stream has ended"))
        self.send("server", failure.status if failure else "end", lambda: self._ended(failure))

    def reset(self, side: str, failure: TransportError) -> None:
        """`side` gives up at once; the other hears it when it arrives."""
        mine, other = (self.client, self.server) if side == "client" else (self.server, self.client)
        mine.end(failure)
        self.send(side, f"reset {failure.status}", lambda: self._broken(other, failure))

    def break_off(self) -> None:
        """The connection is gone, and both ends see it."""
        failure = TransportError("UNAVAILABLE", "connection lost")
        self.client.end(failure)
        self._broken(self.server, failure)

    def _ended(self, failure: TransportError | None) -> None:
        self.client.end(failure)
        self._close()

    def _broken(self, end: "End", failure: TransportError) -> None:
        end.end(failure)
        if end is self.server and self.task is not None:
            self.task.cancel()
        self._close()

    def _close(self) -> None:
        self.over = True
        for pipe in self._pipes.values():
            pipe.close()
        self._owner.forget(self)


class End:
    """`ports.net.Stream`: one side of an exchange."""

    def __init__(self, exchange: Exchange, side: str) -> None:
        self._exchange = exchange
        self._side = side
        self._inbox: deque[Any] = deque()
        self._ahead = 0
        self._ended = False
        self._failure: TransportError | None = None
        self._waiting: list[asyncio.Future[None]] = []
        """For a change; an Event would do, but this is where most of a run's tasks wait."""

    async def read(self) -> Any:
        while not self._inbox:
            if self._failure is not None:
                raise TransportError(self._failure.status, self._failure.detail)
            if self._ended:
                return None
            await self._change()
        message = self._inbox.popleft()
        if carries_cause(type(message)):
            take_cause(message)
        self._other._read_by_peer()
        return message

    async def write(self, message: Any) -> None:
        while self._ahead >= WINDOW and not self._ended:
            await self._change()
        if self._ended:
            failure = self._failure or TransportError("CANCELLED", "the stream has ended")
            raise TransportError(failure.status, failure.detail)
        self._ahead += 1
        other = self._other
        if carries_cause(type(message)):
            message = with_cause(message)
        self._exchange.send(self._side, type(message).__name__, lambda: other.receive(message))

    def cancel(self) -> None:
        if not self._ended:
            self._give_up()
            if self._side == "server" and self._exchange.task is not None:
                self._exchange.task.cancel()

    def end(self, failure: TransportError | None) -> None:
        """Nothing more comes, and nothing more can be written. A failure drops what was not read."""
        if self._ended:
            return
        self._ended, self._failure = True, failure
        if failure is not None and failure.status in ("UNAVAILABLE", "CANCELLED"):
            self._inbox.clear()
        self._wake()

    def receive(self, message: Any) -> None:
        if not self._ended:
            self._inbox.append(message)
            self._wake()

    @property
    def _other(self) -> "End":
        return self._exchange.server if self._side == "client" else self._exchange.client

    async def _change(self) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(changed)
        try:
            await changed
        except asyncio.CancelledError:
            self._give_up()
            raise

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)

    def _give_up(self) -> None:
        if not self._ended:
            self._exchange.reset(self._side, TransportError("CANCELLED", f"the {self._side} broke the stream"))

    def _read_by_peer(self) -> None:
        self._ahead -= 1
        self._wake()
