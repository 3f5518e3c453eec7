"""A set of offsets as disjoint stretches; in a group that works well it has one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence


class Intervals:
    """`starts[i]` to `ends[i]`, exclusive, ascending, and never touching each other."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def size(self) -> int:
        """The number of offsets in the set."""
        return sum(self._ends) - sum(self._starts)

    def common(self, start: int, end: int) -> int:
        """How many offsets of `start` to `end` are in the set."""
        return sum(b - a for a, b in self.within(start, end))

    def add(self, start: int, end: int) -> None:
        if self._ends and self._ends[-1] == start:  # what follows: nearly always
            self._ends[-1] = end
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Stretches of `start` to `end` that are in the set."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        pairs = zip(self._starts[low:high], self._ends[low:high], strict=True)
        return [(max(start, a), min(end, b)) for a, b in pairs]

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Stretches of `start` to `end` that are not in the set."""
        for a, b in zip(self._starts, self._ends, strict=True):
            if a >= end:
                break
            if a > start:
                yield start, a
            start = max(start, b)
        if start < end:
            yield start, end


def runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Stretches of offsets that follow each other, in their order; the end is exclusive."""
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[start], offsets[at - 1] + 1
            start = at
