"""A log's producer table in a file, so that a start need not read the whole log: `<offset>.snapshot`.

It is a cache, as an index is: it is not synced and needs no rename, since a checksum tells a torn one, and one that is
missing, torn or of other records is passed over, for the log tells everything again. It is tied to the log by the batch
before its offset: a loss of power can bring back a snapshot of records that were cut off, and to believe that one would
acknowledge batches that are not there.

Release 0.2.0 knew no CRCs. What it has written is read, and it passes over what is written here.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import encode_lines, read_lines
from tidelog.storage.producer_state import REMEMBERED, ProducerFacts, SeenBatch
from tidelog.storage.segment import parse_segment_name
from tidelog.wire.batch import NO_CRC

SNAPSHOT_SUFFIX: Final = ".snapshot"
KEPT: Final = 3
"""Of one log. A cut below all of them reads the log from its start, which is rare enough."""


class LastBatch(NamedTuple):
    """The batch that ends where a snapshot was taken; epoch and offset alone name a prefix of the log, unless it was cut."""

    end_offset: int
    leader_epoch: int
    crc: int


class Snapshot(NamedTuple):
    after: LastBatch
    producers: list[ProducerFacts]
    rewritten: bool
    """See `ProducerTable`."""


class ProducerSnapshots:
    """The snapshots in one log's folder, by offset."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._offsets: list[int] = []

    def attach(self, names: Iterable[str]) -> None:
        """Takes over what is in the folder."""
        for name in names:
            offset = parse_segment_name(name, SNAPSHOT_SUFFIX)
            if offset is not None:
                self._offsets.append(offset)
        self._offsets.sort()

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def save(self, after: LastBatch, producers: Iterable[ProducerFacts], rewritten: bool) -> None:
        """Saves none where the disk refuses it: it is a cache, and a full disk must not keep a segment from being closed."""
        data = encode_lines([" ".join(map(str, (*after, int(rewritten)))), *map(_line, producers)])
        try:
            file = self._disk.open(self._path(after.end_offset), create=True)
            try:
                file.append([data])
            finally:
                file.close()
        except OSError:
            return
        self._offsets.append(after.end_offset)
        while len(self._offsets) > KEPT:
            self.drop(self._offsets[0])

    def read(self, offset: int) -> Snapshot | None:
        """None when it is none. The file then goes, so that a better one can take its place."""
        try:
            lines = read_lines(self._disk, self._path(offset)).lines
            end_offset, leader_epoch, crc, *rewritten = map(int, lines[0].split(" "))
            if end_offset == offset:
                after = LastBatch(end_offset, leader_epoch, crc)
                return Snapshot(after, [_facts(line) for line in lines[1:]], any(rewritten))
        except (OSError, TidelogError, ValueError, IndexError):
            pass
        self.drop(offset)
        return None

    def drop(self, offset: int) -> None:
        self._offsets.remove(offset)
        try:
            self._disk.remove(self._path(offset))
        except OSError:
            pass  # a file that stays is a cache of what is in the log

    def drop_above(self, offset: int) -> None:
        """Those of records that are no longer in the log."""
        while self._offsets and self._offsets[-1] > offset:
            self.drop(self._offsets[-1])

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}{SNAPSHOT_SUFFIX}"


def _line(facts: ProducerFacts) -> str:
    batches = " ".join(f"{b.base_sequence},{b.last_sequence},{b.base_offset},{b.crc}" for b in facts.batches)
    return f"{facts.producer_id} {facts.epoch} {facts.run} {batches}"


def _facts(line: str) -> ProducerFacts:
    producer_id, epoch, run, *batches = line.split(" ")
    if not 0 < len(batches) <= REMEMBERED:
        raise ValueError(f"{line!r} names {len(batches)} batches")
    return ProducerFacts(int(producer_id), int(epoch), int(run), tuple(_seen(each) for each in batches))


def _seen(text: str) -> SeenBatch:
    numbers = [int(number) for number in text.split(",")]
    base_sequence, last_sequence, base_offset, crc = numbers if len(numbers) > 3 else [*numbers, NO_CRC]
    return SeenBatch(base_sequence, last_sequence, base_offset, crc)
