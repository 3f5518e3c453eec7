"""The memory of the processes of a cluster, looked at once a second, and what HOSTILE says of it."""

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.sizes import RESPONSES_BYTES

PERIOD_S: Final = 1.0
BESIDE_BYTES: Final = 100 << 20
"""Memory of a process beside the responses that are under way."""
LIMIT_BYTES: Final = RESPONSES_BYTES + BESIDE_BYTES
"""The most that a process may grow."""
_MINUTE_S: Final = 60.0


class Look(NamedTuple):
    """`hostile_s`: seconds of hostile requests so far; None while there are none."""

    hostile_s: float | None
    rss_bytes: int


class Memory(NamedTuple):
    """Memory of one process, in bytes."""

    start: int
    settled: int
    most: int
    per_minute: float
    """Growth in a minute of hostile requests, by the straight line through the samples from `settled` on."""
    grown: float
    """From `settled` to the end, by the same line."""
    end: int

    @property
    def growth(self) -> int:
        return self.most - self.start


def rss_bytes(pid: int) -> int:
    """FileNotFoundError: it has ended."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


async def watch(pids: Mapping[str, int], hostile_s: Callable[[], float | None]) -> dict[str, list[Look]]:
    """Looks until it is cancelled; then returns what it saw."""
    found: dict[str, list[Look]] = {name: [] for name in pids}
    try:
        while True:
            at = hostile_s()
            for name, pid in pids.items():
                try:
                    found[name].append(Look(at, rss_bytes(pid)))
                except (FileNotFoundError, StopIteration):
                    pass  # it has ended, which the verdict says
            await asyncio.sleep(PERIOD_S)
    except asyncio.CancelledError:
        return found


def judged(looks: Sequence[Look], settled_s: float) -> Memory:
    """`settled_s`: seconds of hostile requests after which memory is to stay as it is. The start is the last look before them."""
    first = next(n for n, look in enumerate(looks) if look.hostile_s is not None)
    later = [
        (look.hostile_s, look.rss_bytes) for look in looks if look.hostile_s is not None and look.hostile_s >= settled_s
    ]
    times, sizes = zip(*later, strict=True)
    slope = statistics.linear_regression(times, sizes).slope if len(set(times)) > 1 else 0.0
    return Memory(
        start=looks[max(0, first - 1)].rss_bytes,
        settled=sizes[0],
        most=max(look.rss_bytes for look in looks[first:]),
        per_minute=slope * _MINUTE_S,
        grown=slope * (times[-1] - times[0]),
        end=looks[-1].rss_bytes,
    )


def rows(found: Mapping[str, Memory], settled_s: float) -> list[tuple[str, ...]]:
    """A table in MiB, its head first."""
    head = ("MiB", "start", f"after {settled_s:g} s", "maximum", "limit", "a minute, then", "end")
    return [
        head,
        *(
            (
                name,
                *(_mib(each) for each in (memory.start, memory.settled, memory.most, memory.start + LIMIT_BYTES)),
                f"{memory.per_minute / (1 << 20):+.2f}",
                _mib(memory.end),
            )
            for name, memory in found.items()
        ),
    ]


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / (1 << 20):.0f}"
