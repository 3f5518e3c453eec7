"""What was sent and what became of it, by sequence number; and the comparison with what a reader finds.

A record's sequence number is its position in the order of `send` calls. It travels in the header `seq`, so that keys and
values stay what they are. The ledger is one file of fixed-size entries, which the tasks that read the topic back open as well.
"""

import struct
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

SEQUENCE_HEADER: Final = "seq"
SEQUENCE: Final = struct.Struct(">q")
NULL: Final = b"\x00"
GROWTH_ENTRIES: Final = 1 << 16

ENTRY: Final = np.dtype([("digest", "<u8"), ("offset", "<i8"), ("partition", "<i4"), ("outcome", "<i4")])


class Outcome(IntEnum):
    PENDING = 0
    """Sent, not answered: it may be in the log or not. What is left in this state at the end is `unknown`."""
    ACKED = 1
    REFUSED = 2
    """Certainly not in the log."""


def digest(key: bytes | None, value: bytes | None) -> int:
    """64 bits over key and value; null and empty differ, and so do ("ab", "c") and ("a", "bc")."""
    head = NULL if key is None else len(key).to_bytes(5, "little") + key
    tail = NULL if value is None else b"\x01" + value
    return int.from_bytes(blake2b(head + tail, digest_size=8).digest(), "little")


class Ledger:
    """Grows by `sent`; every other method is about a number that was sent."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._path = path
        self._mode: Any = "r+" if writable else "r"
        if writable:
            path.write_bytes(b"")
        self._count = 0
        self._entries: NDArray[Any] = np.zeros(0, ENTRY)
        if not writable:
            self._map()
            self._count = len(self._entries)

    @classmethod
    def open(cls, path: Path) -> Self:
        """To read one that is closed."""
        return cls(path, writable=False)

    def __len__(self) -> int:
        return self._count

    @property
    def entries(self) -> NDArray[Any]:
        return self._entries[: self._count]

    def sent(self, digest_of_record: int) -> int:
        """Returns the record's sequence number."""
        number = self._count
        if number == len(self._entries):
            with self._path.open("r+b") as file:
                file.truncate((number + GROWTH_ENTRIES) * ENTRY.itemsize)  # zeros: PENDING
            self._map()
        self._entries[number]["digest"] = digest_of_record
        self._count += 1
        return number

    def acked(self, number: int, partition: int, offset: int) -> None:
        self._entries[number] = (self._entries[number]["digest"], offset, partition, Outcome.ACKED)

    def refused(self, number: int) -> None:
        self._entries[number]["outcome"] = Outcome.REFUSED

    def count(self, outcome: Outcome) -> int:
        return int(np.count_nonzero(self.entries["outcome"] == outcome))

    def close(self) -> None:
        """Everything is in the file, and nothing but what was sent; what is asked from now on is answered from memory."""
        if isinstance(self._entries, np.memmap):
            self._entries.flush()
        with self._path.open("r+b") as file:
            file.truncate(self._count * ENTRY.itemsize)
        self._entries = np.fromfile(
            self._path, ENTRY
        )  # a map would keep the file open until the last view of it is gone

    def _map(self) -> None:
        if self._path.stat().st_size:  # an empty file cannot be mapped
            self._entries = np.memmap(self._path, ENTRY, self._mode)


@dataclass(frozen=True, slots=True)
class Findings:
    """What reading partitions to their end showed. Adds up."""

    read: int = 0
    lost: int = 0
    """Acked and not found."""
    duplicated: int = 0
    """Found again at a later offset."""
    out_of_order: int = 0
    """Found behind a record that was sent later."""
    altered: int = 0
    """Found with another key or value than was sent."""
    misplaced: int = 0
    """Acked with a partition and an offset at which it is not."""
    foreign: int = 0
    """Found and never sent, or refused for certain."""

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]

    @property
    def sound(self) -> bool:
        """Nothing acked is missing, changed or out of order, and nothing is there twice (HOLE-28)."""
        return not (self.lost or self.duplicated or self.out_of_order or self.altered or self.misplaced or self.foreign)


class PartitionCheck:
    """Compares one partition, fed in the order of its offsets, with the ledger."""

    def __init__(self, entries: NDArray[Any], partition: int) -> None:
        self._entries = entries
        self._partition = partition
        self._seen = np.zeros(len(entries), bool)
        self._in_place = np.zeros(len(entries), bool)
        self._last = -1
        self._sums = Findings()

    def feed(self, offsets: ArrayLike, numbers: ArrayLike, digests: ArrayLike) -> None:
        """Three columns of the same length; number -1 stands for a record that carries none."""
        at = np.asarray(offsets, np.int64)
        all_numbers = np.asarray(numbers, np.int64)
        known = (all_numbers >= 0) & (all_numbers < len(self._entries))
        number = all_numbers[known]
        entry = self._entries[number]
        again = self._again(number)
        fresh = number[~again]
        highest = np.maximum.accumulate(np.concatenate(([self._last], fresh)))
        acked = entry["outcome"] == Outcome.ACKED
        elsewhere = acked & (entry["partition"] != self._partition)
        foreign = np.count_nonzero(~known) + np.count_nonzero(entry["outcome"] == Outcome.REFUSED)
        self._sums += Findings(
            read=len(all_numbers),
            duplicated=int(np.count_nonzero(again)),
            out_of_order=int(np.count_nonzero(fresh < highest[:-1])),
            altered=int(np.count_nonzero(np.asarray(digests, np.uint64)[known] != entry["digest"])),
            foreign=int(foreign + np.count_nonzero(elsewhere)),
        )
        self._last = int(highest[-1])
        self._seen[number] = True
        self._in_place[number[acked & (entry["offset"] == at[known])]] = True

    def finish(self) -> Findings:
        mine = (self._entries["outcome"] == Outcome.ACKED) & (self._entries["partition"] == self._partition)
        lost = np.count_nonzero(mine & ~self._seen)
        misplaced = np.count_nonzero(mine & self._seen & ~self._in_place)
        return self._sums + Findings(lost=int(lost), misplaced=int(misplaced))

    def _again(self, number: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True where a number was seen in an earlier feed, or earlier in this one."""
        first = np.zeros(len(number), bool)
        first[np.unique(number, return_index=True)[1]] = True
        return np.asarray(~first | self._seen[number])
