"""The records of a load, one by one, and the name that the history gives to each of them.

A record that is altered on its way comes back under a name that was never sent. A value that a load makes itself begins with its
name (`producer-1-17`) and holds a checksum over all that the record is: key, headers, time, and its own length. A record of a
user's file or an order event keeps its key and value as they are and carries its number in a header; its name is that number and
a digest of key, value and headers.
"""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from tidelog.client.records import Header
from tidelog.ports.rand import Rand

PADDING: Final = b"."
CHECK: Final = struct.Struct(">Q")
SEQUENCE_HEADER: Final = "seq"
SEQUENCE: Final = struct.Struct(">q")
NAME_MAX: Final = 200
"""Bytes of a value that no load has sent, for its name."""

EVENTS: Final = ("created", "paid", "packed", "shipped", "delivered", "cancelled")
CUSTOMERS: Final = 5_000
SKUS: Final = 800
SKEW: Final = 3.0
"""The 1 % of customers with the lowest numbers place a fifth of the orders: u ** 3 is below 0.01 for u below 0.215."""

LINE_MAX_BYTES: Final = 1_048_588
"""The default of max.message.bytes. The producer refuses a line that a batch's overhead takes beyond it."""
LINES_TOGETHER: Final = 100
"""Lines have no key: so many in a row go to one partition, then it is the next one's turn."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to send."""

    name: str
    key: bytes | None
    value: bytes
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    """None: when it is sent."""
    turn: int | None = None
    """Partition `turn` modulo their number takes the record. None: its key says which, or the producer chooses."""
    refused: bool = False
    """The record is too large to be tried."""


class Source(Protocol):
    """Records in the order in which they are sent."""

    def __iter__(self) -> Iterator[Outgoing]: ...

    @property
    def part(self) -> float:
        """The share of a source that ends which was taken, from 0 to 1."""
        ...


class Numbers:
    """Values `<prefix><n>` without end; with `keys` keys that take turns, else with none."""

    part = 0.0

    def __init__(self, prefix: str = "", keys: int | None = None) -> None:
        self._prefix = prefix
        self._keys = keys

    def __iter__(self) -> Iterator[Outgoing]:
        for n in count():
            name = f"{self._prefix}{n}"
            yield Outgoing(name, None if self._keys is None else str(n % self._keys).encode(), name.encode())


class Checked:
    """The same with checksums, padded to `value_bytes`."""

    part = 0.0

    def __init__(self, prefix: str, keys: int | None, value_bytes: int, now_ms: Callable[[], int]) -> None:
        self._numbers = Numbers(prefix, keys)
        self._value_bytes = value_bytes
        self._now_ms = now_ms

    def __iter__(self) -> Iterator[Outgoing]:
        for each in self._numbers:
            now_ms = self._now_ms()
            value = checked(each.name, self._value_bytes, each.key, (), now_ms)
            yield Outgoing(each.name, each.key, value, timestamp_ms=now_ms)


class Orders:
    """`total` order events; the same `rand` gives the same ones. The key is the customer."""

    def __init__(self, total: int, rand: Rand, started_ms: int) -> None:
        self._total = total
        self._rand = rand
        self._at_ms = started_ms
        self._taken = 0

    @property
    def part(self) -> float:
        return self._taken / self._total

    def __iter__(self) -> Iterator[Outgoing]:
        for n in range(self._total):
            self._taken = n + 1
            customer, event = self._event(n)
            yield numbered(n, customer.encode(), json.dumps(event, separators=(",", ":")).encode())

    def _event(self, n: int) -> tuple[str, dict[str, object]]:
        rand = self._rand
        customer = f"customer-{int(rand.random() ** SKEW * CUSTOMERS):05d}"
        quantity = 1 + rand.randrange(5)
        price = 199 + rand.randrange(20_000)
        self._at_ms += rand.randrange(20)
        return customer, {
            "order": f"{n + 1:09d}",
            "customer": customer,
            "event": EVENTS[rand.randrange(len(EVENTS))],
            "sku": f"sku-{rand.randrange(SKUS):04d}",
            "quantity": quantity,
            "total_cents": quantity * price,
            "at_ms": self._at_ms,
        }


class Lines:
    """The lines of a file without their newlines, whatever bytes they hold. A line over `limit_bytes` is never held in memory."""

    def __init__(self, path: Path, limit_bytes: int = LINE_MAX_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._size = path.stat().st_size
        self._read = 0

    @property
    def part(self) -> float:
        return self._read / self._size if self._size else 1.0

    def __iter__(self) -> Iterator[Outgoing]:
        with self._path.open("rb") as file:
            for n, line in enumerate(self._lines(file)):
                turn = n // LINES_TOGETHER
                if line is None:
                    yield Outgoing(f"{n}:too long", None, b"", turn=turn, refused=True)
                else:
                    yield numbered(n, None, line, turn)

    def _lines(self, file: BinaryIO) -> Iterator[bytes | None]:
        """None stands for a line over the limit."""
        while line := file.readline(self._limit_bytes + 1):
            self._read += len(line)
            if line.endswith(b"\n"):
                yield line[:-1]
            elif len(line) <= self._limit_bytes:
                yield line  # the last one, which has no newline
            else:
                while more := file.readline(self._limit_bytes):
                    self._read += len(more)
                    if more.endswith(b"\n"):
                        break
                yield None


def numbered(n: int, key: bytes | None, value: bytes, turn: int | None = None) -> Outgoing:
    """A record that carries its number in a header."""
    headers = ((SEQUENCE_HEADER, SEQUENCE.pack(n)),)
    return Outgoing(name_of(key, value, headers, 0), key, value, headers, turn=turn)


def checked(name: str, size: int, key: bytes | None, headers: Sequence[Header], timestamp_ms: int) -> bytes:
    """A value of `size` bytes, or as many as it needs: the name, the time, a checksum, and padding."""
    size = max(size, len(name) + 1 + SEQUENCE.size + CHECK.size)
    head = f"{name} ".encode() + SEQUENCE.pack(timestamp_ms)
    return (head + CHECK.pack(digest(key, head + CHECK.pack(size), headers))).ljust(size, PADDING)


def name_of(key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp_ms: int | None) -> str:
    """The name of a record that was read; whatever no load has sent gets a name that no load gives. `timestamp_ms` None: the
    broker has set it (message.timestamp.type=LogAppendTime)."""
    numbers = [found for name, found in headers if name == SEQUENCE_HEADER]
    if len(numbers) == 1 and numbers[0] is not None and len(numbers[0]) == SEQUENCE.size:
        (number,) = SEQUENCE.unpack(numbers[0])
        return f"{number}:{digest(key, value, headers):016x}"
    head, _, rest = (value or b"").partition(b" ")
    text = head[:NAME_MAX].decode("ascii", "backslashreplace")
    if value is not None and len(rest) >= SEQUENCE.size:
        (sent_ms,) = SEQUENCE.unpack_from(rest)
        if timestamp_ms in (None, sent_ms) and value == checked(text, len(value), key, headers, sent_ms):
            return text
    return f"?{text}:{digest(key, value, headers):016x}"


def digest(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """64 bits over a record; null and empty differ, and so do ("ab", "c") and ("a", "bc")."""
    parts = [key, value, *(part for name, found in headers for part in (name.encode(), found))]
    sizes = (-1 if part is None else len(part) for part in parts)
    data = [*(size.to_bytes(5, "little", signed=True) for size in sizes), *(part or b"" for part in parts)]
    return int.from_bytes(blake2b(b"".join(data), digest_size=8).digest(), "little")
