"""What a run sends: generated order events, or the lines of a file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from tidelog.ports.rand import Rand

EVENTS: Final = ("created", "paid", "packed", "shipped", "delivered", "cancelled")
CUSTOMERS: Final = 5_000
SKUS: Final = 800
SKEW: Final = 3.0
"""The 1 % of customers with the lowest numbers place a fifth of the orders: u ** 3 is below 0.01 for u below 0.215."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send, and how far the source has been read."""

    key: bytes | None
    value: bytes
    done: int
    """In the unit of the source's total: records or bytes."""
    too_long_bytes: int = 0
    """Not 0: the line is longer than the limit; `value` is empty and it must be counted as refused."""


def order_events(count: int, rand: Rand, started_ms: int) -> Iterator[Outgoing]:
    """`count` events; the same `rand` gives the same ones. Key is the customer."""
    at_ms = started_ms
    for number in range(1, count + 1):
        customer = f"customer-{int(rand.random() ** SKEW * CUSTOMERS):05d}"
        quantity = 1 + rand.randrange(5)
        price = 199 + rand.randrange(20_000)
        at_ms += rand.randrange(20)
        event = {
            "order": f"{number:09d}",
            "customer": customer,
            "event": EVENTS[rand.randrange(len(EVENTS))],
            "sku": f"sku-{rand.randrange(SKUS):04d}",
            "quantity": quantity,
            "total_cents": quantity * price,
            "at_ms": at_ms,
        }
        yield Outgoing(customer.encode(), json.dumps(event, separators=(",", ":")).encode(), number)


def lines(file: BinaryIO, limit_bytes: int) -> Iterator[Outgoing]:
    """Every line without its newline, whatever bytes it holds; a line over the limit is never held in memory."""
    done = 0
    while line := file.readline(limit_bytes + 1):
        done += len(line)
        if line.endswith(b"\n"):
            yield Outgoing(None, line[:-1], done)
        elif len(line) <= limit_bytes:
            yield Outgoing(None, line, done)  # the last one, which has no newline
        else:
            length = len(line)
            while (more := file.readline(limit_bytes)) and not more.endswith(b"\n"):
                length += len(more)
            length += len(more.removesuffix(b"\n"))
            done += length - len(line) + more.endswith(b"\n")
            yield Outgoing(None, b"", done, too_long_bytes=length)
