"""A budget for responses that are under way. What a slow reader has not taken stays in memory, for as long as it likes."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.sizes import CONNECTION_RESPONSES_BYTES, RESPONSES_BYTES, SLACK_BYTES

log = logging.getLogger(__name__)

COPIES: Final = 2
"""A message is kept until it has been sent, and gRPC's copy of it too."""
CALL_BYTES: Final = 8 << 10
"""A call takes so much beside its response."""
LEAST_BYTES: Final = (1 << 20) + SLACK_BYTES
"""A response waits until it can have so much: a batch of the default size fits."""
_LEAST_COST: Final = COPIES * LEAST_BYTES + CALL_BYTES
AHEAD: Final = 4
"""Fetches of one connection may hold one in so many bytes of its part. A reader gains nothing from records that are read long
before it takes them, and the rest stays for responses whose size is given."""
FITTED: Final = 4
"""So many responses to fetches have room at once on one connection, by default 2 MiB each. It takes about 4 ms of the event loop
to read and to send one."""
SLOW_S: Final = 10.0
"""A connection that has not taken a response for so long is closed if others wait for the room."""

Release = Callable[[], None]


_Waiting = OrderedDict[asyncio.Event, None]
"""One for each that waits for room, in that order."""


class _Connection:
    __slots__ = ("bytes", "since", "waiting")

    def __init__(self) -> None:
        self.bytes = 0
        self.since: OrderedDict[object, float] = OrderedDict()
        """Time at which each response was held, in that order."""
        self.waiting: _Waiting = OrderedDict()
        """For room of this connection."""


class ResponseBudget:
    """Counts what responses hold, of the process and of each connection. A connection is a peer as gRPC names it."""

    def __init__(
        self,
        now: Callable[[], float],
        cut: Callable[[str], bool],
        bytes_max: int = RESPONSES_BYTES,
        connection_bytes_max: int = CONNECTION_RESPONSES_BYTES,
    ) -> None:
        """`cut` closes the connection of a peer; False if there is none."""
        self._now = now
        self._cut = cut
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._ahead_bytes_max = max(connection_bytes_max // AHEAD, _LEAST_COST)
        self._connections: dict[str, _Connection] = {}
        self._waiting: _Waiting = OrderedDict()
        """For room of the process."""
        self.bytes = 0

    def room(self, peer: str, most: int) -> int:
        """Returns the bytes that a response may have, at most `most`; 0 if it has to wait for room.

        A connection never holds more than what the process has left, so that several slow ones leave something for others.
        """
        held = self._connections[peer].bytes if peer in self._connections else 0
        left = min(
            self._ahead_bytes_max - held,
            (self._bytes_max - self.bytes - held) // 2,
            max(self._ahead_bytes_max // FITTED, _LEAST_COST),
        )
        found = min(most, (left - CALL_BYTES) // COPIES)
        return found if found >= min(most, LEAST_BYTES) else 0

    async def wait(self, peer: str) -> None:
        """Returns when there may be more room. A response that is never read is given up meanwhile."""
        held = self._connections.get(peer)
        if held is None or self._ahead_bytes_max - held.bytes >= _LEAST_COST:
            self._cut_slowest()  # it is not this connection that is full
            waiting = self._waiting
        else:
            waiting = held.waiting
        freed = asyncio.Event()
        waiting[freed] = None
        try:
            async with asyncio.timeout(1.0):
                await freed.wait()
        except TimeoutError:
            pass
        finally:
            waiting.pop(freed, None)

    def hold(self, peer: str, size_bytes: int, *, part: bool = False) -> Release:
        """Counts a response until `Release` is called. THROTTLING_QUOTA_EXCEEDED, and it is not to be sent, if neither the
        connection nor the process has room for it beside others.

        `part`: it is a message of a stream, of which there is one at a time. Only its own connection can lack room.
        """
        cost = COPIES * size_bytes + (0 if part else CALL_BYTES)
        held = self._connections.get(peer)
        if held is not None and held.bytes + cost > self._connection_bytes_max:
            raise _refusal(
                "this connection has", held.bytes, "connection_responses_max_bytes", self._connection_bytes_max
            )
        if self.bytes and self.bytes + cost > self._bytes_max and not part:
            self._cut_slowest()
            raise _refusal("this process has", self.bytes, "responses_max_bytes", self._bytes_max)
        if held is None:
            held = self._connections[peer] = _Connection()
        held.bytes += cost
        self.bytes += cost
        token = object()
        held.since[token] = self._now()
        return partial(self._release, peer, held, token, cost)

    def _release(self, peer: str, held: _Connection, token: object, cost: int) -> None:
        if held.since.pop(token, None) is None:
            return
        held.bytes -= cost
        self.bytes -= cost
        _wake(held.waiting, cost)
        _wake(self._waiting, cost)
        if not held.since:
            self._connections.pop(peer, None)
            _wake(held.waiting, self._connection_bytes_max)

    def _cut_slowest(self) -> None:
        """Closes the connection that holds the most, of those that have not taken a response for SLOW_S."""
        late = self._now() - SLOW_S
        slow = [
            (each.bytes, peer) for peer, each in self._connections.items() if next(iter(each.since.values())) <= late
        ]
        if not slow:
            return
        size_bytes, peer = max(slow)
        self._connections[peer].since = OrderedDict.fromkeys(self._connections[peer].since, self._now())
        if self._cut(peer):
            log.warning(
                "the connection of %s is closed: it holds %d bytes of responses that it has not read for %d s, and others wait",
                peer,
                size_bytes,
                SLOW_S,
            )


def _wake(waiting: _Waiting, freed_bytes: int) -> None:
    """Wakes as many as may find room, and at least one. Readers that do not read may have hundreds that wait, and every response
    to others frees a little: to wake them all each time would be most of what the process does."""
    for _ in range(min(1 + freed_bytes // _LEAST_COST, len(waiting))):
        freed, _ = waiting.popitem(last=False)
        freed.set()


def _refusal(whose: str, held: int, setting: str, most: int) -> TidelogError:
    return TidelogError(
        f"{whose} responses of {held} bytes under way, {setting} is {most}: read them before asking for more",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
