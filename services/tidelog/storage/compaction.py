"""Log compaction: of each key the newest record is kept, and what is removed leaves its offsets (Kafka's log cleaner).

It reads closed segments and writes new ones beside them, `<base>.log.cleaned`; `segment_swap` puts those in place. Made to
run in another process, since it decodes.

* Of every record below the first dirty offset an earlier pass has removed the older ones of its key. So one map, from the
  keys of the dirty part to their newest offsets, decides over all.
* A tombstone (no value) is kept for delete.retention.ms after the pass that has removed what it deletes, so that whoever
  reads from the beginning in less time sees it. The moment is in its batch (KIP-534), not in the age of the file, which every
  pass would make young again. It also waits until every replica has it (`drops_tombstones`): one that was away for longer,
  and still holds what it deletes, would never learn of it from a log without it. Kafka leaves that to delete.retention.ms.
  What is left is for the leader: who has not come to a tombstone that was dropped begins anew (`Cleaned.dropped_to`).
* Records without a key cannot be compacted and are dropped, as Kafka does; a leader takes none in a compacted topic.
* Of each producer that is still known the last batches stay, without records if need be, as many as a replica remembers
  one by one: whoever builds its table from this log can tell a repetition as before (HOLE-28).
* A batch whose inside cannot be read stays as it is: readers report it, the cleaner removes nothing that it does not know.
  Of the tombstones behind it none goes: it may hold what they delete.
* A batch whose CRC is wrong ends the pass: it must not get a new one.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.ids import NO_EPOCH
from tidelog.ports.disk import Buffer, Disk, DiskFile
from tidelog.storage.offset_index import SparseIndex
from tidelog.storage.producer_state import REMEMBERED
from tidelog.storage.recovery import BatchWindow, Damage, RottenError
from tidelog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_name
from tidelog.wire.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    emptied,
    fillers,
    read_header,
    sealed,
    whole_batch,
    with_horizon,
)
from tidelog.wire.compression import deflate, inflate
from tidelog.wire.record_walk import Place, moved, walk_records

CLEANED_SUFFIX: Final = ".cleaned"
STEP_BYTES: Final = 2 * 1024 * 1024
"""How much it reads before it gives a sign: what a stop waits for, and the grain of its pace."""
_WRITE_BYTES: Final = 1024 * 1024
_DIGEST_BYTES: Final = 32
_TIME_MAX: Final = 2**63 - 1


class Source(NamedTuple):
    """A closed segment as it was when the pass was planned."""

    base_offset: int
    end_offset: int
    size_bytes: int


class Progress(NamedTuple):
    read_bytes: int
    """Since the last one."""


class Cleaned(NamedTuple):
    """The file that may take the place of these segments; it is synced, its name is not."""

    base_offset: int
    end_offset: int
    size_bytes: int
    replaces: tuple[int, ...]
    """Base offsets, ascending."""
    dropped_to: int
    """Exclusive end of the tombstones that this pass has dropped so far; 0: none."""


class Finished(NamedTuple):
    first_dirty: int
    """Where the next pass begins to look for newer records; less than the end of the sources when the map was full."""
    next_horizon_ms: int | None
    """When the first of the tombstones that are left may be dropped."""
    read_bytes: int
    records_read: int
    records_kept: int
    keyless: int
    """Records dropped because they have no key."""
    unreadable: int
    """Batches kept because their inside cannot be read."""


Step = Progress | Cleaned | Damage | Finished


@dataclass(frozen=True, slots=True)
class CompactionRules:
    now_ms: int
    delete_retention_ms: int
    drops_tombstones: bool
    """Whether every replica holds all that may be cleaned, so that those past their time may go."""
    keys_max: int
    """Keys in the map: a bound on its memory, about 200 bytes each."""
    inflated_bytes_max: int
    """The most that one batch may hold when it is decompressed."""
    segment_bytes: int
    """Neighbours are made one as long as they were not larger together."""
    index_interval_bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """One pass over a log. `sources`: all that may be cleaned, without a gap, from the log's first segment on."""

    folder: str
    sources: tuple[Source, ...]
    first_dirty: int
    producers: frozenset[int]
    """Those that are not forgotten."""
    rules: CompactionRules

    def run(self, disk: Disk) -> Generator[Step, None, None]:
        """Cleaned segments in the order of their offsets, and in the end Finished; Damage instead where it meets one.

        They must be put in place in that order: a tombstone may go only where all that it deletes has gone.
        """
        job = _Pass(self, disk)
        try:
            yield from job.steps()
        except RottenError as rotten:
            yield rotten.damage
        finally:
            job.clear()


class Batch(NamedTuple):
    header: BatchHeader
    position: int
    data: memoryview
    """Of the whole batch; it lives until the next one is read."""


def batches_of(disk: Disk, folder: str, source: Source) -> Iterator[Batch]:
    """Every batch, its CRC checked, and that they follow each other."""
    path = f"{folder}/{segment_name(source.base_offset)}"
    file = disk.open(path, read_only=True)
    try:
        window = BatchWindow(file, source.size_bytes)
        position, expected = 0, source.base_offset
        while position < source.size_bytes:
            data, at = window.batch_at(position)
            try:
                header = whole_batch(data, at)
            except TidelogError as error:
                raise RottenError(Damage(path, position, expected, error.message)) from error
            if header.base_offset != expected:
                reason = f"base_offset: {header.base_offset} where {expected} is next"
                raise RottenError(Damage(path, position, expected, reason))
            yield Batch(header, position, memoryview(data)[at : at + header.size_bytes])
            position, expected = position + header.size_bytes, header.end_offset
        if expected != source.end_offset:
            reason = f"the file ends at offset {expected}, the next segment begins at {source.end_offset}"
            raise RottenError(Damage(path, position, expected, reason))
    finally:
        file.close()


def _body(batch: Batch, inflated_bytes_max: int) -> bytes:
    return inflate(batch.header.codec, batch.data[HEADER_BYTES:], inflated_bytes_max)


def _fingerprint(key: bytes) -> bytes:
    """As long as a digest only if it is one: a key cannot pass for another's digest."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class _Pass:
    """What one pass knows while it runs."""

    def __init__(self, job: Compaction, disk: Disk) -> None:
        self._job = job
        self._rules = job.rules
        self._disk = disk
        self._newest: dict[bytes, int] = {}
        self._map_end = job.sources[-1].end_offset
        """The records from here on are in no map: they stay, and remove nothing."""
        self._producers: dict[int, deque[int]] = {}
        self._kept_batches: set[int] = set()
        self._written: _Output | None = None
        self._unread_bytes = 0
        self._counts = dict.fromkeys(("read_bytes", "records_read", "records_kept", "keyless", "unreadable"), 0)
        self._next_horizon_ms: int | None = None
        self._dropped_to = 0

    def steps(self) -> Iterator[Step]:
        yield from self._look()
        self._kept_batches = {base for bases in self._producers.values() for base in bases}
        for group in grouped(self._job.sources, self._rules.segment_bytes):
            if group[0].base_offset >= self._map_end:
                break
            yield from self._clean(group)
        yield Finished(self._map_end, self._next_horizon_ms, **self._counts)

    def clear(self) -> None:
        """Takes back what nobody has taken over."""
        if self._written is not None:
            self._written.discard()

    # --- which records are the newest ---------------------------------------------------------------------------

    def _look(self) -> Iterator[Step]:
        full = False
        for source in self._job.sources:
            if full and source.base_offset >= self._map_end:
                return
            for batch in batches_of(self._disk, self._job.folder, source):
                header = batch.header
                if header.producer_id in self._job.producers:
                    last = self._producers.setdefault(header.producer_id, deque(maxlen=REMEMBERED))
                    last.append(header.base_offset)
                if header.base_offset >= self._job.first_dirty and header.record_count and not full:
                    if self._newest and len(self._newest) + header.record_count > self._rules.keys_max:
                        full, self._map_end = True, header.base_offset
                    else:
                        self._note(batch)
                yield from self._read(batch)

    def _note(self, batch: Batch) -> None:
        header = batch.header
        try:
            body = _body(batch, self._rules.inflated_bytes_max)
            places = list(walk_records(body, header.record_count, header.last_offset_delta))
        except TidelogError:
            return  # counted when it is written
        for place in places:
            if place.key is not None:
                self._newest[_fingerprint(place.key)] = header.base_offset + place.offset_delta

    def _read(self, batch: Batch) -> Iterator[Step]:
        self._counts["read_bytes"] += len(batch.data)
        self._unread_bytes += len(batch.data)
        if self._unread_bytes >= STEP_BYTES:
            read, self._unread_bytes = self._unread_bytes, 0
            yield Progress(read)

    # --- writing them -------------------------------------------------------------------------------------------

    def _clean(self, group: Sequence[Source]) -> Iterator[Step]:
        out = self._written = _Output(self._disk, self._job.folder, group[0].base_offset, self._rules)
        same = len(group) == 1
        for source in group:
            for batch in batches_of(self._disk, self._job.folder, source):
                kept = self._kept(batch)
                same = same and (kept is batch.data or batch.header.is_filler)
                out.take(batch.header, kept)
                yield from self._read(batch)
        if same and out.size_bytes(group[-1].end_offset) == group[0].size_bytes:
            out.discard()
            self._written = None
            return
        size_bytes = out.finish(group[-1].end_offset)
        bases = tuple(source.base_offset for source in group)
        yield Cleaned(bases[0], group[-1].end_offset, size_bytes, bases, self._dropped_to)
        self._written = None  # whoever went on has taken it over

    def _kept(self, batch: Batch) -> Buffer | None:
        """What is left of the batch, `batch.data` itself if it is all; None: nothing but its offsets."""
        header = batch.header
        if header.record_count == 0:
            return batch.data if header.base_offset in self._kept_batches else None
        if header.base_offset >= self._map_end:
            return batch.data
        try:
            body = _body(batch, self._rules.inflated_bytes_max)
            places = list(walk_records(body, header.record_count, header.last_offset_delta))
            kept = [place for place in places if self._stays(header, place)]
            left = self._rewritten(batch, body, places, kept)
        except TidelogError:
            self._counts["unreadable"] += 1
            return batch.data
        self._counts["records_read"] += len(places)
        self._counts["records_kept"] += len(kept)
        self._counts["keyless"] += sum(place.key is None for place in places)
        return left

    def _stays(self, header: BatchHeader, place: Place) -> bool:
        if place.key is None:
            return False
        offset = header.base_offset + place.offset_delta
        if self._newest.get(_fingerprint(place.key), offset) > offset:
            return False
        horizon = header.delete_horizon_ms
        due = horizon is not None and horizon <= self._rules.now_ms
        if place.tombstone and due and self._rules.drops_tombstones and not self._met_unreadable:
            self._dropped_to = max(offset + 1, self._dropped_to)
            return False
        return True

    @property
    def _met_unreadable(self) -> bool:
        """What a tombstone deletes lies before it, and may be in such a batch."""
        return self._counts["unreadable"] > 0

    def _rewritten(self, batch: Batch, body: bytes, places: Sequence[Place], kept: Sequence[Place]) -> Buffer | None:
        header = batch.header
        if not kept:
            return emptied(header) if header.base_offset in self._kept_batches else None
        latest = max(header.base_timestamp + place.timestamp_delta for place in kept)
        if header.is_append_time:
            latest = header.max_timestamp
        tombstones = any(place.tombstone for place in kept)
        # What has become readable since it was cleaned was in no map: what its tombstones delete is still there.
        judged = header.base_offset >= self._job.first_dirty
        if tombstones and judged and header.delete_horizon_ms is None:
            header = with_horizon(header, min(self._rules.now_ms + self._rules.delete_retention_ms, _TIME_MAX))
            shift = batch.header.base_timestamp - header.base_timestamp
            records = b"".join(moved(body, place, place.timestamp_delta + shift) for place in kept)
        elif len(kept) < len(places):
            records = b"".join(body[place.begin : place.end] for place in kept)
        horizon = header.delete_horizon_ms
        if tombstones and horizon is not None and not self._met_unreadable:
            self._next_horizon_ms = min(horizon, self._next_horizon_ms or horizon)
        if header is batch.header and len(kept) == len(places):
            return batch.data
        # A header that says less than its records do is a producer's, and passes on what it says.
        latest = max(NO_TIMESTAMP, min(latest, header.max_timestamp))
        return sealed(header._replace(record_count=len(kept), max_timestamp=latest), deflate(header.codec, records))


class _Output:
    """A segment in the making, and its index."""

    def __init__(self, disk: Disk, folder: str, base_offset: int, rules: CompactionRules) -> None:
        self._disk = disk
        name = f"{folder}/{segment_name(base_offset)}"
        self._path = name + CLEANED_SUFFIX
        self._index_path = name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX + CLEANED_SUFFIX
        self._remove()  # what a pass has left that was broken off
        self._file: DiskFile | None = disk.open(self._path, create=True)
        self._index = SparseIndex(rules.index_interval_bytes)
        self._buffers: list[bytes] = []
        self._buffered_bytes = 0
        self._size_bytes = 0
        self._run_from = base_offset
        """Where the offsets begin that have nothing written yet."""
        self._run_epoch = NO_EPOCH

    def take(self, header: BatchHeader, kept: Buffer | None) -> None:
        if kept is not None:
            self._fill(header.base_offset)
            self._write(bytes(kept))
            self._run_from = header.end_offset
        elif header.leader_epoch != self._run_epoch:
            self._fill(header.base_offset)
        self._run_epoch = header.leader_epoch

    def _fill(self, end_offset: int) -> None:
        for filler in fillers(self._run_from, end_offset, self._run_epoch):
            self._write(filler)
        self._run_from = end_offset

    def _write(self, batch: bytes) -> None:
        header = read_header(batch)
        self._index.note(header.base_offset, self._size_bytes, header.max_timestamp)
        self._size_bytes += len(batch)
        self._buffers.append(batch)
        self._buffered_bytes += len(batch)
        if self._buffered_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        assert self._file is not None
        if self._buffers:
            self._file.append(self._buffers)
        self._buffers, self._buffered_bytes = [], 0

    def finish(self, end_offset: int) -> int:
        """Makes it durable; returns its size in bytes. Not the index, which is a cache."""
        self._fill(end_offset)
        self._flush()
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None
        index = self._disk.open(self._index_path, create=True)
        try:
            index.append([self._index.encode(self._size_bytes)])
        finally:
            index.close()
        return self._size_bytes

    def size_bytes(self, end_offset: int) -> int:
        """As it would be if it ended there."""
        return self._size_bytes + sum(map(len, fillers(self._run_from, end_offset, self._run_epoch)))

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
        self._remove()

    def _remove(self) -> None:
        for path in (self._path, self._index_path):
            if self._disk.kind(path) is not None:
                self._disk.remove(path)


def grouped(sources: Sequence[Source], bytes_max: int) -> Iterator[list[Source]]:
    """Neighbours that become one segment: no more bytes together than a segment may have."""
    group: list[Source] = []
    size = 0
    for source in sources:
        if group and size + source.size_bytes > bytes_max:
            yield group
            group, size = [], 0
        group.append(source)
        size += source.size_bytes
    if group:
        yield group
