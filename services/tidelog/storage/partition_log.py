"""One partition's log on one broker: ordered segments, the epoch history, and the tail in memory.

Synchronous, one writer: the broker's event loop. Only `Flush.run` may run in another thread. Any input/output error fences
the log: everything is refused until it is opened again (KAFKA-10778, MUT-23), and a sync is never tried twice.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH
from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.epoch_cache import EpochEnd
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.flush import Flush
from tidelog.storage.handles import Handles
from tidelog.storage.offset_index import INDEX_INTERVAL_BYTES
from tidelog.storage.producer_history import ProducerHistory
from tidelog.storage.producer_state import ProducerLimits, ProducerTable
from tidelog.storage.recovery import Damage, Opening, Recovered, hollow, recover, why_damaged
from tidelog.storage.segment import Segment, parse_segment_name
from tidelog.storage.tail import Tail, TailBudget
from tidelog.storage.trouble import Trouble, trouble_of
from tidelog.wire.batch import Batches, BatchHeader, Buffer, corrupt, iter_batches, stamp

SEGMENT_BYTES: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = SEGMENT_BYTES
    """A segment that would grow beyond this is closed and the next begins; one larger batch still fits."""
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    reserve_bytes: int = 0
    """Set aside for the data directory's own small files."""


class LogOwner(Protocol):
    """What a log tells the data directory that holds it."""

    def lower_marks(self, key: LogKey, end_offset: int) -> None:
        """The log is about to be cut: recovery point and high watermark on disk must not stay above, durably."""
        ...

    def move_log_start(self, key: LogKey, log_start_offset: int) -> None:
        """What is below is not kept; durable before the log relies on it."""
        ...

    def data_lost(self, key: LogKey, reason: str) -> None:
        """A failed sync, or damage found in what was written: this directory is not intact (design section 3)."""
        ...


@dataclass(frozen=True, slots=True)
class LogContext:
    """What all logs of a broker share."""

    disk: Disk
    files: Handles
    journal: EpochJournal
    tails: TailBudget
    owner: LogOwner
    config: LogConfig = field(default_factory=LogConfig)
    producers: ProducerLimits = field(default_factory=ProducerLimits)


class Appended(NamedTuple):
    """Offsets of the first and the last record of an append, both inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int


class TimestampOffset(NamedTuple):
    """The first batch with a record at or after the instant: its base offset and its largest timestamp (ms)."""

    offset: int
    timestamp: int
    leader_epoch: int


class PartitionLog:
    """Offsets are exclusive ends unless named `last_...`; `open` builds one."""

    def __init__(self, context: LogContext, key: LogKey, folder: str) -> None:
        self._context = context
        self._disk = context.disk
        self.key = key
        self.folder = folder
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._tail = Tail(context.tails)
        self._failure: str | None = None
        self._trouble: Trouble | None = None
        self._names_unsynced = True
        self._producers = ProducerHistory(context.disk, folder, context.producers)
        self.cuts = 0
        """How often the end was cut: what was known of the bytes before may no longer hold."""
        self.epochs = context.journal.history(key)
        self.damage: Damage | None = None
        """Set when the log is not what it was: it answers KAFKA_STORAGE_ERROR until `discard_damage`."""
        self._stray: list[Segment] = []
        """Segments behind the damage."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0
        """Everything below survives a loss of power."""
        self.recorded_high_watermark = 0
        """As of the last checkpoint, never above the log's end (HOLE-35)."""
        self.cut_bytes = 0
        """How much recovery cut off the end."""
        self.epochs_rebuilt = False
        """Recovery found epochs that the journal did not know, and read the whole log for them."""

    def __repr__(self) -> str:
        state = "damaged" if self.damage else "failed" if self._failure else "open"
        return f"PartitionLog({self.key}, {self.log_start_offset}..{self.log_end_offset}, {self.epochs!r}, {state})"

    # --- opening ------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, context: LogContext, key: LogKey, folder: str, opening: Opening) -> "PartitionLog":
        """Opens the segments in `folder`, which exists; recovers them unless the last stop was clean.

        KAFKA_STORAGE_ERROR on an input/output error. Damage does not raise: the log opens, says so, and refuses to serve.
        """
        log = cls(context, key, folder)
        try:
            log._load(opening)
        except OSError as error:
            raise log._fenced("open", error) from error
        return log

    def _load(self, opening: Opening) -> None:
        names = [entry.name for entry in self._disk.list_dir(self.folder)]
        bases = sorted(base for name in names if (base := parse_segment_name(name)) is not None)
        segments = [self._segment(base) for base in bases]
        for segment in segments:
            segment.attach()
        self.log_start_offset = self.log_end_offset = opening.log_start
        before_start = []
        while len(segments) > 1 and segments[1].base_offset <= opening.log_start:
            before_start.append(segments.pop(0))  # the start had moved on, a crash kept the file
        if not (opening.clean and self._load_clean(segments, opening)):
            self._recover(segments, opening)
        self.recovery_point = min(opening.recovery_point, self.log_end_offset)
        if self.damage is None:
            for segment in before_start:
                segment.remove()  # only now: a start that lies beyond the log's end is none to go by
            if opening.clean:
                self.recovery_point = self.log_end_offset
        for segment in self._segments:
            segment.synced_bytes = segment.size_bytes if self._end_of(segment) <= self.recovery_point else 0
        hw = min(opening.high_watermark, self.log_end_offset)
        self.recorded_high_watermark = min(max(hw, self.log_start_offset), self.log_end_offset)
        self._producers.attach(names)
        if self.damage is None:
            self._producers.restore(self._segments, self.log_start_offset, self.log_end_offset)

    def _load_clean(self, segments: list[Segment], opening: Opening) -> bool:
        """Trusts the files; False when the last one does not end with a whole batch where the marks say it must."""
        end, epoch = self.log_start_offset, self.epochs.latest_epoch
        if segments:
            if segments[0].base_offset > opening.log_start or hollow(segments, default=-1) >= 0:
                return False
            last = segments[-1]
            end, position = last.base_offset, 0
            for at, header in last.walk(last.index.below_position(last.size_bytes)):
                end, position = header.end_offset, at + header.size_bytes
                if header.leader_epoch > epoch:
                    return False  # the journal is older than the log
            if position != last.size_bytes or (end > self.log_start_offset and epoch == NO_EPOCH):
                return False
        if why_damaged(end, opening, valid_follows=False, later_segments=False):
            return False
        self._take(segments, end)
        self._names_unsynced = False
        return True

    def _recover(self, segments: list[Segment], opening: Opening) -> None:
        interval_bytes = self._context.config.index_interval_bytes
        found = recover(segments, opening, self.folder, interval_bytes)
        if segments and found.scanned_from > segments[0].base_offset and not self._history_reaches(segments, found):
            # Epochs that the journal has lost would be missing from every answer about divergence (KIP-320).
            self.epochs_rebuilt = True
            found = recover(segments, replace(opening, epochs_complete=False), self.folder, interval_bytes)
        self._take(segments[: found.keep], found.end_offset)
        history = self.epochs.merged(found.scanned_from, found.epochs, found.end_offset)
        self._context.journal.replace(self.key, history)
        self._stray = segments[found.keep :]
        if found.damage is not None:
            self.damage = found.damage
            return
        self._drop_stray()
        if found.cut_at is not None:
            self.cut_bytes = self._segments[-1].size_bytes - found.cut_at
            self._segments[-1].cut(found.cut_at)

    def _history_reaches(self, segments: list[Segment], found: Recovered) -> bool:
        """Whether the journal tells the epochs below what was read, from the log's start to the first batch of it."""
        entries = self.epochs.entries
        if not entries or entries[0].start_offset > max(self.log_start_offset, segments[0].base_offset):
            return False
        return not found.epochs or self.epochs.epoch_at(found.scanned_from) == found.epochs[0].leader_epoch

    def _take(self, segments: list[Segment], end_offset: int) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.log_end_offset = end_offset

    def _drop_stray(self) -> None:
        if self._stray:
            # From the last one, and durably: a revived segment could fit behind what is written next.
            for segment in reversed(self._stray):
                self.cut_bytes += segment.size_bytes
                segment.remove()
            self._stray = []
            self._disk.sync_dir(self.folder)

    def _segment(self, base_offset: int) -> Segment:
        context = self._context
        interval = context.config.index_interval_bytes
        return Segment(context.disk, context.files, self.folder, base_offset, interval_bytes=interval)

    def _end_of(self, segment: Segment) -> int:
        at = self._bases.index(segment.base_offset)
        return self._bases[at + 1] if at + 1 < len(self._bases) else self.log_end_offset

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """Of the last batch, or of the leader that has begun here since; -1 in an empty history."""
        return self.epochs.latest_epoch

    @property
    def producers(self) -> ProducerTable:
        """What is known of idempotent producers; fed by every append, here and on followers (HOLE-28)."""
        return self._producers.table

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return tuple(self._segments)

    @property
    def failure(self) -> str | None:
        """Why the log refuses to serve; None while it does."""
        return str(self.damage) if self.damage else self._failure

    @property
    def trouble(self) -> Trouble | None:
        """The kind of `failure`; None also when it was closed on purpose."""
        return Trouble.DAMAGE if self.damage else self._trouble

    def _check(self) -> None:
        if self._failure is not None or self.damage is not None:
            raise TidelogError(self.failure or "", ErrorCode.KAFKA_STORAGE_ERROR)

    def _fenced(self, doing: str, error: OSError) -> TidelogError:
        self._failure = f"{self.folder}: {doing} failed: {error}; the log is refused until it is opened again"
        self._trouble = trouble_of(doing, error)
        self._tail.clear()
        return TidelogError(self._failure, ErrorCode.KAFKA_STORAGE_ERROR)

    def fence(self, reason: str) -> None:
        """Refuses everything until it is opened again."""
        self._failure = self._failure or f"{self.folder}: {reason}"
        self._tail.clear()

    # --- epochs -------------------------------------------------------------------------------------------------

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader epoch begins here; durable after the journal's next commit (KAFKA-7415)."""
        self._check()
        if start_offset != self.log_end_offset:
            raise ValueError(
                f"{self.key}: epoch {epoch} cannot start at {start_offset}, the log ends at {self.log_end_offset}"
            )
        self._context.journal.assign(self.key, epoch, start_offset)

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """What a leader answers to OffsetForLeaderEpoch (F15.2)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- appending ----------------------------------------------------------------------------------------------

    def append_as_leader(self, batches: Batches, leader_epoch: int) -> Appended:
        """Gives the batches their offsets and this epoch. They must have passed `validate_produce`.

        FENCED_LEADER_EPOCH when the log has seen a newer epoch.
        """
        self._check()
        if leader_epoch != self.epochs.latest_epoch:
            if leader_epoch < self.epochs.latest_epoch:
                raise TidelogError(
                    f"leader_epoch: {leader_epoch}, the log of {self.key} is at {self.epochs.latest_epoch}",
                    ErrorCode.FENCED_LEADER_EPOCH,
                )
            self.assign_epoch(leader_epoch, self.log_end_offset)
        buffers = stamp(batches, self.log_end_offset, leader_epoch)
        return self._append(buffers, batches.headers, self.log_end_offset + batches.record_count, len(batches.records))

    def append_as_follower(self, records: bytes) -> Appended:
        """Appends a leader's bytes as they are, with one write.

        CORRUPT_MESSAGE, and nothing appended, when a CRC is wrong, the offsets do not go on from the log's end, or an
        epoch is older than one before it.
        """
        self._check()
        end, epoch = self.log_end_offset, self.epochs.latest_epoch
        headers: list[BatchHeader] = []
        news: list[BatchHeader] = []
        for at, header in iter_batches(records):
            if header.base_offset != end:
                raise corrupt(
                    f"base_offset: {header.base_offset} at position {at}, the log of {self.key} goes on at {end}"
                )
            if header.leader_epoch != epoch or epoch < 0:
                if header.leader_epoch < max(epoch, 0):
                    raise corrupt(f"partition_leader_epoch: {header.leader_epoch} at offset {end}, after {epoch}")
                epoch = header.leader_epoch
                news.append(header)
            end = header.end_offset
            headers.append(header)
        if not headers:
            raise corrupt("records: empty, at least one batch is needed")
        appended = self._append([records], headers, end, len(records))
        for header in news:
            self._context.journal.assign(self.key, header.leader_epoch, header.base_offset)
        return appended

    def _append(self, buffers: list[Buffer], headers: Sequence[BatchHeader], end: int, size_bytes: int) -> Appended:
        base = self.log_end_offset
        try:
            segment = self._active(size_bytes)
            try:
                segment.append(buffers, headers, base)
            except OSError:
                # Part of it may be there: take it back, so that a restart finds whole batches (full disk, row 29).
                segment.file().truncate(segment.size_bytes)
                raise
        except OSError as error:
            raise self._fenced("append", error) from error
        self._tail.push(base, end, buffers, size_bytes)
        self.producers.note(headers, base)
        self.log_end_offset = end
        return Appended(base, end - 1, size_bytes)

    def _active(self, incoming_bytes: int) -> Segment:
        """The segment that takes the next append: the last one, or a new one."""
        if self._segments:
            active = self._segments[-1]
            if not active.size_bytes or active.size_bytes + incoming_bytes <= self._context.config.segment_bytes:
                return active
            if active.cut_unsynced:
                # Or a loss of power could bring back what was cut, with the next segment fitting behind it.
                active.file().sync()
                active.cut_unsynced = False
            active.save_index()
            self._producers.save(self._segments, self.log_end_offset)
        segment = self._segment(self.log_end_offset)
        segment.create()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._names_unsynced = True
        return segment

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, end_offset: int, *, min_one: bool = True) -> bytes:
        """Whole batches from the one that holds `offset`, none that ends after `end_offset`, about `bytes_max` at most.

        With `min_one` the first batch comes even if it is larger. Empty at the end. OFFSET_OUT_OF_RANGE outside the log.
        """
        self._check()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise TidelogError(
                f"offset: {offset}, the log of {self.key} holds {self.log_start_offset} to {self.log_end_offset}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if offset >= end_offset or offset == self.log_end_offset:
            return b""
        records = self._tail.read(offset, bytes_max, end_offset, min_one)
        if records is not None:
            return records
        try:
            return self._read_disk(offset, bytes_max, end_offset, min_one)
        except OSError as error:
            raise self._fenced("read", error) from error

    def _read_disk(self, offset: int, bytes_max: int, end_offset: int, min_one: bool) -> bytes:
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        found = segment.find(offset)
        if found is None:
            raise self._rotten(segment, segment.size_bytes, offset, "the file ends before this offset")
        start, first = found
        all_of_it = end_offset >= self._end_of(segment)
        stop = segment.size_bytes if all_of_it else segment.locate(end_offset)
        if stop <= start:
            return b""
        records = segment.read(start, segment.fitting(start, stop, bytes_max, min_one))
        # Rot is never served and never replicated (row 32); what was read from memory was checked when it came.
        expected = first.base_offset
        at = 0
        try:
            for at, header in iter_batches(records):
                if header.base_offset != expected:
                    raise corrupt(f"base_offset: {header.base_offset} where {expected} is next")
                expected = header.end_offset
                at += header.size_bytes
        except TidelogError as error:
            raise self._rotten(segment, start + at, expected, error.message) from error
        return records

    def _rotten(self, segment: Segment, position: int, offset: int, reason: str) -> TidelogError:
        self.damage = Damage(segment.path, position, offset, reason)
        self._tail.clear()
        self._context.owner.data_lost(self.key, str(self.damage))
        return TidelogError(str(self.damage), ErrorCode.KAFKA_STORAGE_ERROR)

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampOffset | None:
        """The first batch with a record at or after the instant, by its header; None when none ends by `end_offset`."""
        self._check()
        try:
            for segment in self._segments:
                if segment.base_offset >= end_offset:
                    break
                if header := segment.locate_time(timestamp_ms):
                    found = TimestampOffset(header.base_offset, header.max_timestamp, header.leader_epoch)
                    return found if header.end_offset <= end_offset else None
        except OSError as error:
            raise self._fenced("read", error) from error
        return None

    def offset_of_max_timestamp(self, end_offset: int) -> TimestampOffset | None:
        """The first batch with the largest timestamp of all that end by `end_offset`; None when none has a timestamp."""
        self._check()
        try:
            latest = max(
                (s.max_timestamp(end_offset) for s in self._segments if s.base_offset < end_offset), default=-1
            )
        except OSError as error:
            raise self._fenced("read", error) from error
        return self.offset_for_timestamp(latest, end_offset) if latest >= 0 else None

    # --- cutting ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Cuts the log's end back to `offset`, or to the start of the batch that holds it; returns the new end.

        Cutting nothing still forgets epochs that begin at the end, or a follower would truncate for ever (KAFKA-10706).
        """
        self._check()
        offset = max(offset, self.log_start_offset)
        if offset < self.log_end_offset:
            try:
                self._cut(offset)
            except OSError as error:
                raise self._fenced("truncate", error) from error
        self._context.journal.truncate_from(self.key, min(offset, self.log_end_offset))
        return self.log_end_offset

    def _cut(self, offset: int) -> None:
        keep = bisect_right(self._bases, offset) - 1
        found = self._segments[keep].find(offset)
        if found is None:
            raise self._rotten(
                self._segments[keep], self._segments[keep].size_bytes, offset, "the file ends before this"
            )
        position, header = found
        if position == 0 and keep > 0:
            keep -= 1
            position = self._segments[keep].size_bytes
        self._cut_at(keep, position, header.base_offset)

    def _cut_at(self, keep: int, position: int, end_offset: int) -> None:
        """Segment `keep` becomes the last one and ends at `position`."""
        self.cuts += 1
        self._tail.clear()
        if end_offset < max(self.recovery_point, self.recorded_high_watermark):
            self._context.owner.lower_marks(self.key, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.recorded_high_watermark = min(self.recorded_high_watermark, end_offset)
        self._stray = self._segments[keep + 1 :] + self._stray
        self._take(self._segments[: keep + 1], end_offset)
        self._drop_stray()
        if self._segments and position < self._segments[-1].size_bytes:
            self._segments[-1].cut(position)
        self._producers.cut(self._segments, self.log_start_offset, end_offset)

    def reset_to(self, offset: int) -> None:
        """Drops everything; the log is empty and goes on at `offset` (a follower below its leader's log start)."""
        self._check()
        try:
            self._cut_at(-1, 0, self.log_start_offset)
            self._producers.forget()
            self._context.owner.move_log_start(self.key, offset)
        except OSError as error:
            raise self._fenced("reset", error) from error
        self._take([], offset)
        self.log_start_offset = self.recorded_high_watermark = self.recovery_point = offset
        self._context.journal.truncate_from(self.key, 0)

    def discard_damage(self) -> int:
        """Cuts the log where the damage begins, so that the rest can be fetched again; returns the new end.

        Only for a replica that has left the in-sync set, or when an operator says so.
        """
        assert self.damage is not None, self
        damage, self.damage = self.damage, None
        try:
            paths = [segment.path for segment in self._segments]
            keep = paths.index(damage.path) if damage.path in paths else len(paths) - 1
            self._context.owner.lower_marks(self.key, damage.offset)
            if damage.offset < self.log_start_offset:
                self._context.owner.move_log_start(self.key, damage.offset)
                self.log_start_offset = damage.offset
            self._cut_at(keep, damage.position, damage.offset)
            self._producers.restore(self._segments, self.log_start_offset, damage.offset)
        except OSError as error:
            raise self._fenced("truncate", error) from error
        self._context.journal.truncate_from(self.key, damage.offset)
        return self.log_end_offset

    # --- durability ---------------------------------------------------------------------------------------------

    @property
    def flushed(self) -> bool:
        """Whether a flush would find nothing to do."""
        names = self._names_unsynced and bool(self._segments)
        return self.recovery_point == self.log_end_offset and not names and not any(s.dirty for s in self._segments)

    def begin_flush(self) -> Flush:
        """Pins the files that have unsynced bytes; `end_flush` must follow, whatever `run` did."""
        self._check()
        dirty = [segment for segment in self._segments if segment.dirty]
        try:
            files = [self._context.files.pin(segment.path) for segment in dirty]
        except OSError as error:
            raise self._fenced("flush", error) from error
        directories = [self.folder, self.folder.rpartition("/")[0]] if self._names_unsynced else []
        flush = Flush(self._disk, files, [s.path for s in dirty], directories, self.log_end_offset, self.cuts)
        self._names_unsynced = False
        return flush

    def end_flush(self, flush: Flush, error: OSError | None = None) -> None:
        """Takes note of the outcome; KAFKA_STORAGE_ERROR when it failed. A cut in between leaves the point where it was."""
        for path in flush.paths:
            self._context.files.unpin(path)
        self._check()  # closed, deleted or fenced meanwhile: the outcome no longer matters
        if error is not None:
            failure = self._fenced("sync", error)
            self._context.owner.data_lost(self.key, failure.message)
            raise failure from error
        if flush.cuts != self.cuts:
            return
        self.recovery_point = max(self.recovery_point, flush.target)
        for segment in self._segments:
            if segment.path in flush.paths:
                segment.cut_unsynced = False
                if self._end_of(segment) <= flush.target:
                    segment.synced_bytes = segment.size_bytes

    def flush(self) -> None:
        """All three steps at once: everything appended so far survives a loss of power. Waits for the device."""
        flush = self.begin_flush()
        self.end_flush(flush, flush.outcome())

    def close(self) -> None:
        """Forgets the files; what was not flushed is left to recovery."""
        if self.failure is None and self._segments:
            try:
                self._segments[-1].save_index()
                self._producers.save(self._segments, self.log_end_offset)
            except OSError as error:
                raise self._fenced("close", error) from error
        self._tail.clear()
        self.producers.clear()
        for segment in (*self._segments, *self._stray):
            segment.close()
        self._failure = self._failure or f"{self.folder}: closed"
