"""The order of the values of a partition, as all that is known of its log tells it; Jepsen calls it the version order.

The log is fed by every poll, and by sends that must have committed and know their offset. Offsets may have gaps; each one
that is occupied gets a dense rank. Where an offset has several values the one found first stands for it, so rules that must be
exact use the first and the last rank at which a value appears.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from tidelog.chaos.checker.tables import ACKED, NOBODY, REFUSED, Tables
from tidelog.ids import NO_OFFSET

NOWHERE: Final = -1


def alone(tables: Tables) -> bytearray:
    """X3, by value: acknowledged by one replica alone, no other was known to have it, and the leader changed before the heal was
    over.

    Its offset may carry another record: the acknowledgement is no part of the log, and where a reader found the value, in this
    place or, of several attempts, in another, the poll says so.
    """
    return bytearray(
        one_copy and tables.outcome[v] == ACKED and tables.leader_changed_after(v) and not tables.was_replicated(v)
        for v, one_copy in enumerate(tables.one_copy)
    )


def must_have_committed(tables: Tables) -> bytearray:
    """By value: its operation is ok, or its outcome is unknown and something of it was read."""
    seen = {op for op, reader in zip(tables.op, tables.read_by, strict=True) if op != NOBODY and reader >= 0}
    columns = zip(tables.outcome, tables.read_by, tables.op, tables.send_id, strict=True)
    return bytearray(
        outcome == ACKED or (outcome != REFUSED and send_id != NOBODY and (reader >= 0 or op in seen))
        for outcome, reader, op, send_id in columns
    )


class VersionOrder:
    """Takes over `tables.log`, which the acknowledgements complete."""

    def __init__(self, tables: Tables) -> None:
        self.alone: Final = alone(tables)
        """One replica acknowledged it, and it may be gone unless it was read."""
        self.excused: Final = bytearray(a and reader < 0 for a, reader in zip(self.alone, tables.read_by, strict=True))
        """X3, by value: nobody has read it either, so that it may be gone."""
        self.committed: Final = must_have_committed(tables)
        self._conflicts = tables.conflicts
        self._add_acknowledged(tables)
        self.offsets: Final = sorted(tables.log)
        self.picked: Final = list(map(tables.log.__getitem__, self.offsets))
        count = len(tables.values)
        self.first: Final = array("q", [NOWHERE]) * count
        """By value: the lowest rank at which it appears."""
        self.last: Final = array("q", [NOWHERE]) * count
        self._rank()

    def _add_acknowledged(self, tables: Tables) -> None:
        for v, offset in enumerate(tables.acked_at):
            if offset == NO_OFFSET or not self.committed[v] or self.alone[v]:
                continue
            found = tables.log.setdefault(offset, v)
            if found != v:
                tables.conflicts.setdefault(offset, {found}).add(v)

    def _rank(self) -> None:
        first, last = self.first, self.last
        for rank, v in enumerate(self.picked):
            if first[v] < 0:
                first[v] = rank
            last[v] = rank
        for offset, values in self._conflicts.items():
            rank = self.rank(offset)
            for v in values:
                first[v] = rank if first[v] < 0 else min(first[v], rank)
                last[v] = max(last[v], rank)

    def rank(self, offset: int) -> int:
        """Of an offset that is occupied."""
        offsets = self.offsets
        guess = offset - offsets[0]
        if guess < len(offsets) and offsets[guess] == offset:  # no gap below it
            return guess
        return bisect_left(offsets, offset)

    def offset_of(self, v: int) -> int:
        """The lowest offset at which the value appears, or NO_OFFSET."""
        return self.offsets[self.first[v]] if self.first[v] >= 0 else NO_OFFSET

    def places(self, v: int) -> list[int]:
        """All offsets at which the value appears; slow, for values that have several."""
        single = (offset for offset, found in zip(self.offsets, self.picked, strict=True) if found == v)
        shared = (offset for offset, values in self._conflicts.items() if v in values)
        return sorted({*single, *shared})

    def conflicts(self) -> Iterator[tuple[int, list[int]]]:
        """(offset, values) of each offset that has several."""
        for offset in sorted(self._conflicts):
            yield offset, sorted(self._conflicts[offset])
