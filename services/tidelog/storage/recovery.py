"""What a log's files still hold after a stop that was not clean, and whether what is missing may be missing.

A torn tail is what a crash leaves and is cut, as is all from the first bad batch on that was not synced before a loss of
power. A bad batch anywhere else is damage: it is named, and nothing is cut, served or replicated until somebody decides.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from crc32c import crc32c

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.disk import Disk, DiskFile
from tidelog.storage.epoch_cache import EpochCache, EpochStart
from tidelog.storage.offset_index import SparseIndex
from tidelog.storage.segment import Segment
from tidelog.wire.batch import (
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    read_header,
    whole_batch,
)

_CHUNK_BYTES: Final = 1024 * 1024
_MAGIC_AT: Final = 16
_OFFSETS_AHEAD_MAX: Final = 2**31
_FIELDS: Final = Struct(">qiibIhiqq")
"""A batch from its base offset to its largest timestamp."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the broker knows about a log before it reads it."""

    clean: bool
    """The clean-shutdown marker was there: everything was flushed, nothing needs to be read."""
    power_lost: bool
    """Unsynced bytes may be missing: not a clean stop, and another boot of the kernel."""
    recovery_point: int = 0
    """Everything below was synced."""
    high_watermark: int = 0
    """As last recorded: everything below was committed."""
    log_start: int = 0
    """The first offset that is kept; the first segment begins there or before."""
    start_is_known: bool = True
    """If not, the checkpoint of starts is lost, and the log begins where its first segment does."""
    start_is_durable: bool = True
    """If not, what lies before stays: a crash may bring an earlier start back, which a log without its front belies."""
    end_offset: int = 0
    """Everything below had been written by this very process, which may have told others of it."""
    dropped_to: int = 0
    """See `PartitionLog`."""
    marked: bool = True
    """Batches that a leader has changed say so: see `ProducerHistory`."""
    discards: bool = False
    """True if no in-sync set names this copy: then what cannot be read is fetched again. Otherwise an error may pass."""
    epochs_complete: bool = True
    """Whether the epoch journal can be trusted below the recovery point; if not, the log is read from its start."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a log behind which nothing can be trusted."""

    path: str
    position: int
    offset: int
    """The valid records end here."""
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: damaged at byte {self.position}, valid up to offset {self.offset}: {self.reason}. "
            "Where another replica leads, this one discards the rest and fetches it again; a sole copy needs an operator "
            "(`tidelog log dump` shows what is there, `tidelog brokers discard-damage` what goes when it is cut)"
        )


class RottenError(TidelogError):
    """CORRUPT_MESSAGE: a batch that was whole once. The log goes on until somebody condemns it."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage), ErrorCode.CORRUPT_MESSAGE)
        self.damage = damage


@dataclass(slots=True)
class Scan:
    """One segment, read from its start or from a batch that is known: how far it is valid, and what it says."""

    end_position: int
    end_offset: int
    index: SparseIndex
    epoch_min: int = 0
    """No batch may have an older epoch."""
    epochs: list[EpochStart] = field(default_factory=list)
    bad: str | None = None
    """Why the batch at `end_position` is none; None when the file ends there."""

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1].leader_epoch if self.epochs else self.epoch_min


class BatchWindow:
    """A file read in large pieces, of which each batch lies whole in one."""

    def __init__(self, file: DiskFile, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._data = b""
        self._at = 0

    def batch_at(self, position: int) -> tuple[bytes, int]:
        """Data, and where in it the batch at `position` begins; shorter than the batch only if the file is."""
        self._hold(position, HEADER_BYTES)
        if len(self._data) - (position - self._at) >= HEADER_BYTES:
            self._hold(position, read_header(self._data, position - self._at).size_bytes)
        return self._data, position - self._at

    def _hold(self, position: int, need: int) -> None:
        need = min(need, self._size_bytes - position)
        if position < self._at or position + need > self._at + len(self._data):
            want = min(max(need, _CHUNK_BYTES), self._size_bytes - position)
            self._data, self._at = self._file.pread(want, position), position


def scan_on(scan: Scan, file: DiskFile, size_bytes: int) -> None:
    """Checks every batch from where `scan` ends: header, CRC, and what the CRC does not cover (offsets without a gap, epochs that
    never fall)."""
    window = BatchWindow(file, size_bytes)
    while scan.end_position < size_bytes:
        data, at = window.batch_at(scan.end_position)
        if _scan_whole(scan, data, at):
            continue
        try:
            header = whole_batch(data, at)
        except TidelogError as error:
            scan.bad = error.message
        else:
            scan.bad = _continuity_fault(header, scan.end_offset, scan.latest_epoch)
            assert scan.bad is not None, header
        return


def _scan_whole(scan: Scan, data: bytes, at: int) -> int:
    """Takes the batches that lie whole in `data` from `at` on; returns how many bytes they have.

    A log may have millions: this is `whole_batch` and `_continuity_fault` without the words.
    """
    begun, view, size_bytes = at, memoryview(data), len(data)
    offset, latest, index, ahead = scan.end_offset, scan.latest_epoch, scan.index, scan.end_position - at
    while at + HEADER_BYTES <= size_bytes:
        base_offset, length, epoch, magic, crc, _, delta, _, timestamp = _FIELDS.unpack_from(data, at)
        end = at + PREFIX_BYTES + length
        if magic != MAGIC or end > size_bytes or length < HEADER_BYTES - PREFIX_BYTES or delta < 0:
            break
        if base_offset != offset or epoch < latest or crc32c(view[at + CRC_FROM : end]) != crc:
            break
        if epoch > latest or not scan.epochs:
            scan.epochs.append(EpochStart(epoch, offset))
            latest = epoch
        index.note(offset, ahead + at, timestamp)
        offset += delta + 1
        at = end
    scan.end_position, scan.end_offset = ahead + at, offset
    return at - begun


def _continuity_fault(header: BatchHeader, next_offset: int, latest_epoch: int) -> str | None:
    if header.base_offset != next_offset:
        return f"base_offset: {header.base_offset} where {next_offset} is next"
    if header.leader_epoch < latest_epoch:
        return f"partition_leader_epoch: {header.leader_epoch} after {latest_epoch}"
    return None


def valid_batch_after(file: DiskFile, size_bytes: int, position: int, offset: int) -> int | None:
    """Position of a whole batch behind a bad one at `position`, whose records come at or after `offset`; None if none.

    Looks at every byte: a bad length must not hide what follows.
    """
    at = position + 1
    while at + HEADER_BYTES <= size_bytes:
        chunk = file.pread(_CHUNK_BYTES, at)
        found = chunk.find(MAGIC, _MAGIC_AT)
        while found >= 0 and found - _MAGIC_AT + HEADER_BYTES <= len(chunk):
            start = found - _MAGIC_AT
            if _may_be_batch(read_header(chunk, start), offset, size_bytes - at - start):
                size = read_header(chunk, start).size_bytes
                try:
                    whole_batch(file.pread(size, at + start))
                    return at + start
                except TidelogError:
                    pass  # looked like one
            found = chunk.find(MAGIC, found + 1)
        at += max(1, len(chunk) - HEADER_BYTES + 1)
    return None


def _may_be_batch(header: BatchHeader, offset: int, left_bytes: int) -> bool:
    return (
        offset <= header.base_offset < offset + _OFFSETS_AHEAD_MAX
        and HEADER_BYTES <= header.size_bytes <= left_bytes
        and header.last_offset_delta >= 0
    )


def end_behind(disk: Disk, untrusted: Sequence[tuple[str, int, int]], offset: int) -> int:
    """End of the last whole batch in what cannot be trusted; `offset` when there is none.

    `untrusted`: files from the damage on, each with the position from which it counts and its size. Reads at most all of it.
    """
    for path, position, size_bytes in reversed(untrusted):
        file = disk.open(path, read_only=True)
        try:
            window, end = BatchWindow(file, size_bytes), offset
            at = valid_batch_after(file, size_bytes, position - 1, offset)
            while at is not None and at < size_bytes:
                try:
                    header = whole_batch(*window.batch_at(at))
                except TidelogError:
                    at = valid_batch_after(file, size_bytes, at, end)
                else:
                    end, at = max(end, header.end_offset), at + header.size_bytes
        finally:
            file.close()
        if end > offset:
            return end
    return offset


def why_damaged(offset: int, opening: Opening, *, valid_follows: bool, later_segments: bool) -> str | None:
    """Whether records that are missing or bad from `offset` on are damage; None when a crash explains them.

    After a loss of power whatever was not synced may be gone, and the broker's registration says so (`intact_since`). File
    systems write back in any order, so an earlier batch may be missing and a later one whole. While the kernel lived only
    the last write can be torn.
    """
    if offset < opening.log_start:
        return f"records up to offset {opening.log_start} had been deleted, so they had been there"
    if offset < opening.recovery_point:
        return f"records up to offset {opening.recovery_point} had been synced"
    if offset < opening.end_offset:
        return f"records up to offset {opening.end_offset} had been written"
    if opening.power_lost:
        return None
    if valid_follows:
        return "valid batches follow"
    if offset < opening.high_watermark:
        return f"records up to offset {opening.high_watermark} had been committed"
    return "later segments follow" if later_segments else None


@dataclass(slots=True)
class Recovered:
    """The valid part of a log, and what to do about the rest."""

    end_offset: int
    scanned_from: int
    epoch_before: int | None = None
    """The epoch of the batch that ends where the scan began; None where that was the start of a segment."""
    epochs: list[EpochStart] = field(default_factory=list)
    keep: int = 0
    """How many segments hold valid batches or may be written; those behind are to be removed."""
    cut_at: int | None = None
    """Where the last kept segment is to be cut."""
    damage: Damage | None = None


def recover(segments: Sequence[Segment], opening: Opening, folder: str, interval_bytes: int) -> Recovered:
    """Reads `segments` (ascending, attached) from the recovery point on; brings their indexes up to date.

    After a loss of power, or if no index tells where the recovery point is, it begins with the segment that holds it. Cuts and
    removes nothing.
    """
    if segments and segments[0].base_offset > opening.log_start:
        return _front_missing(segments, opening, folder)
    point = opening.recovery_point if opening.epochs_complete else 0
    first = max((i for i, s in enumerate(segments) if s.base_offset <= point), default=0)
    first = min(first, hollow(segments, default=first))
    start = segments[first].base_offset if segments else opening.log_start
    out = Recovered(end_offset=start, scanned_from=start)
    for at in range(first, len(segments)):
        segment, later = segments[at], segments[at + 1 :]
        epoch_min = out.epochs[-1].leader_epoch if out.epochs else 0
        scan = Scan(0, segment.base_offset, SparseIndex(interval_bytes), epoch_min)
        if at == first and not opening.power_lost and (known := _known_up_to(segment, point)) is not None:
            scan = known
            out.scanned_from, out.epoch_before = scan.end_offset, scan.epoch_min
        try:
            scan_on(scan, segment.file(), segment.size_bytes)
        except OSError as error:
            if not opening.discards or error.errno != errno.EIO:
                raise
            out.cut_at = scan.end_position
            out.damage = Damage(segment.path, scan.end_position, scan.end_offset, f"it cannot be read: {error}")
        segment.rebuilt(scan.index)
        out.epochs += [e for e in scan.epochs if not out.epochs or e.leader_epoch > out.epochs[-1].leader_epoch]
        out.end_offset, out.keep = scan.end_offset, at + 1
        if out.damage is not None:
            return out
        bad = scan.bad
        if bad is None and later and later[0].base_offset != scan.end_offset:
            bad = f"the next segment begins at offset {later[0].base_offset}"
        if bad is not None:
            _judge(out, segment, scan, bad, any(s.size_bytes for s in later), opening)
            return out
    if short := why_damaged(out.end_offset, opening, valid_follows=False, later_segments=False):
        path, position = (segments[-1].path, segments[-1].size_bytes) if segments else (folder, 0)
        out.damage = Damage(path, position, out.end_offset, f"the log ends here, but {short}")
    return out


def _known_up_to(segment: Segment, point: int) -> Scan | None:
    """A scan that has come to the recovery point, by an index that was saved since; the batch before it must be whole."""
    try:
        if point <= segment.base_offset or (known := segment.known_up_to(point)) is None:
            return None
        position, header, index = known
        whole_batch(segment.read(position - header.size_bytes, position))
    except (OSError, TidelogError):
        return None  # a scan from the start finds out
    return Scan(position, point, index, header.leader_epoch)


def history_reaches(history: EpochCache, first: int, found: Recovered) -> bool:
    """Answers whether the journal tells the epochs below what was read, from `first` on."""
    entries = history.entries
    if not entries or entries[0].start_offset > first:
        return False
    if found.epoch_before is not None:
        return history.epoch_at(found.scanned_from - 1) == found.epoch_before
    return not found.epochs or history.epoch_at(found.scanned_from) == found.epochs[0].leader_epoch


def hollow(segments: Sequence[Segment], default: int) -> int:
    """The first segment without a byte that another one follows: a log goes on to the next one only when one is full."""
    return next((i for i, segment in enumerate(segments[:-1]) if not segment.size_bytes), default)


def _front_missing(segments: Sequence[Segment], opening: Opening, folder: str) -> Recovered:
    """Names are kept or lost one by one: a later segment may be there without the first."""
    start = opening.log_start
    out = Recovered(end_offset=start, scanned_from=start)
    why = why_damaged(start, opening, valid_follows=False, later_segments=any(s.size_bytes for s in segments))
    if why is not None:
        first = segments[0].base_offset
        out.damage = Damage(folder, 0, start, f"the first segment begins at offset {first}, the log at {start}; {why}")
    return out


def _judge(out: Recovered, segment: Segment, scan: Scan, bad: str, later_segments: bool, opening: Opening) -> None:
    follows = valid_batch_after(segment.file(), segment.size_bytes, scan.end_position, scan.end_offset) is not None
    why = why_damaged(scan.end_offset, opening, valid_follows=follows, later_segments=later_segments)
    out.cut_at = scan.end_position
    if why is not None:
        out.damage = Damage(segment.path, scan.end_position, scan.end_offset, f"{bad}; {why}")
