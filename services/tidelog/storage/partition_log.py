"""One partition's log on one broker: ordered segments, the epoch history, and the tail in memory.

Synchronous, one writer: the broker's event loop. Only `Flush.run` may run in another thread. Any input/output error fences
the log: everything is refused until it is opened again (KAFKA-10778, MUT-23), and a sync is never tried twice.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NoReturn, TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH
from tidelog.ports.disk import DiskFile
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.epoch_cache import EpochCache, EpochEnd
from tidelog.storage.flush import Flush
from tidelog.storage.handles import NO_DESCRIPTORS, Handles
from tidelog.storage.incoming import check_incoming
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.log_context import Appended, LogContext
from tidelog.storage.producer_history import ProducerHistory
from tidelog.storage.producer_state import AS_SENT, ProducerTable, SentCrcs
from tidelog.storage.recovery import Damage, Opening, RottenError, history_reaches, hollow, recover, why_damaged
from tidelog.storage.segment import Segment, parse_segment_name
from tidelog.storage.segment_swap import SegmentSwap, settle_names
from tidelog.storage.strays import Cut
from tidelog.storage.tail import Tail
from tidelog.storage.time_lookup import TimestampOffset, first_at, newest
from tidelog.storage.trouble import Trouble, no_space, trouble_of
from tidelog.wire.batch import NO_CRC, Batches, BatchHeader, Buffer, corrupt, iter_batches, rewritten, stamp

T = TypeVar("T")

_FILES_BESIDE_MAX: Final = 8
CACHES_BYTES_MIN: Final = 1024 * 1024
"""Least growth of a segment after which its caches are saved again."""


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
        self._removal_unsynced = False
        """A loss of power may bring back segments that a cut has removed."""
        self._start_unwritten = False
        """The log begins anew, and no checkpoint says where."""
        self._producers = ProducerHistory(context.disk, folder, context.producers)
        self.cuts = 0
        """How often the end was cut: what was known of the bytes before may no longer hold."""
        self.epochs = context.journal.history(key)
        self._recovered: EpochCache | None = None
        """Epochs as recovery has found them."""
        self.damage: Damage | None = None
        """Set when the log is not what it was: it answers KAFKA_STORAGE_ERROR until `discard_damage`."""
        self._stray: list[Segment] = []
        """Segments behind the damage."""
        self.swap: SegmentSwap | None = None
        """The last one that compaction has begun."""
        self.segment_bytes = context.config.segment_bytes
        """As `LogConfig` has it, for this log; may be changed at any time."""
        self.log_start_offset = 0
        """The first offset that is still served; the checkpoint follows it (`move_log_start`)."""
        self.log_end_offset = 0
        self.recovery_point = 0
        """Everything below survives a loss of power."""
        self.recorded_high_watermark = 0
        """As of the last checkpoint, never above the log's end (HOLE-35)."""
        self.marked: tuple[int, int, int] | None = None
        """High watermark, recovery point and start as checkpoints say or are about to; None where that must be looked at."""
        self.dropped_to = 0
        """Below it compaction may have dropped tombstones, here or where this copy was fetched from."""
        self.drops = 0
        """How often compaction has dropped some here since this log was opened."""
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
        log.load(opening)
        log.join(context)
        return log

    @classmethod
    def beside(cls, context: LogContext, key: LogKey, folder: str) -> "PartitionLog":
        """A log whose `load` may run in another thread, as it shares nothing that changes; it is used after `join`."""
        alone = replace(context, files=Handles(context.disk, _FILES_BESIDE_MAX), indexes=IndexCache())
        return cls(alone, key, folder)

    def load(self, opening: Opening) -> None:
        """The slow part of `open`."""
        try:
            self._load(opening)
        except OSError as error:
            raise self._fenced("open", error) from error

    def join(self, context: LogContext) -> None:
        """Takes its part in what all logs share: `load` has run."""
        if context is not self._context:
            for segment in (*self._segments, *self._stray):
                segment.move_to(context.files, context.indexes)
            self._context.files.close()
            self._context = context
        if self._recovered is not None:
            context.journal.replace(self.key, self._recovered)
            self._recovered = None

    def give_up(self) -> None:
        """Closes what `load` has opened beside the others."""
        self._context.files.close()

    def _load(self, opening: Opening) -> None:
        names = settle_names(self._disk, self.folder, [entry.name for entry in self._disk.list_dir(self.folder)])
        bases = sorted(base for name in names if (base := parse_segment_name(name)) is not None)
        segments = [self._segment(base) for base in bases]
        for segment in segments:
            segment.attach()
        if segments and not opening.start_is_known:
            opening = replace(opening, log_start=max(opening.log_start, segments[0].base_offset))
        self.log_start_offset = self.log_end_offset = opening.log_start
        self.dropped_to = opening.dropped_to
        before_start = []
        while len(segments) > 1 and segments[1].base_offset <= opening.log_start:
            before_start.append(segments.pop(0))  # the start had moved on, a crash kept the file
        if not (opening.clean and self._load_clean(segments, opening)):
            self._recover(segments, opening)
        self.recovery_point = min(opening.recovery_point, self.log_end_offset)
        if self.damage is None and not opening.start_is_durable:
            self._take(before_start + self._segments, self.log_end_offset)  # `release_below` comes for them
        elif self.damage is None:
            for segment in before_start:
                segment.remove()  # only now: a start that lies beyond the log's end is none to go by
        if self.damage is None and opening.clean:
            self.recovery_point = self.log_end_offset
        for segment in self._segments:
            segment.synced_bytes = segment.size_bytes if self.end_of(segment) <= self.recovery_point else 0
        hw = min(opening.high_watermark, self.log_end_offset)
        self.recorded_high_watermark = min(max(hw, self.log_start_offset), self.log_end_offset)
        self._producers.attach(names)
        self._producers.marked_from = 0 if opening.marked else self.log_end_offset
        if self.damage is None:
            self._producers.restore(self._segments, self.log_start_offset, self.log_end_offset)

    def _load_clean(self, segments: list[Segment], opening: Opening) -> bool:
        """Trusts the files; False when the last one does not end with a whole batch where the marks say it must."""
        end, epoch = self.log_start_offset, self.epochs.latest_epoch
        if segments:
            if segments[0].base_offset > opening.log_start or hollow(segments, default=-1) >= 0:
                return False
            filled = segments[-1] if segments[-1].size_bytes or len(segments) == 1 else segments[-2]
            end, position = filled.base_offset, 0
            for at, header in filled.walk(filled.index.below_position(filled.size_bytes)):
                end, position = header.end_offset, at + header.size_bytes
                if header.leader_epoch > epoch:
                    return False  # the journal is older than the log
            if position != filled.size_bytes or (end > self.log_start_offset and epoch == NO_EPOCH):
                return False
            if filled is not segments[-1] and end != segments[-1].base_offset:
                return False  # an empty segment begins where the one before it ends
        if why_damaged(end, opening, valid_follows=False, later_segments=False):
            return False
        self._take(segments, end)
        self._names_unsynced = False
        return True

    def _recover(self, segments: list[Segment], opening: Opening) -> None:
        interval_bytes = self._context.config.index_interval_bytes
        found = recover(segments, opening, self.folder, interval_bytes)
        first = max(self.log_start_offset, segments[0].base_offset) if segments else 0
        if segments and found.scanned_from > segments[0].base_offset and not history_reaches(self.epochs, first, found):
            # Epochs that the journal has lost would be missing from every answer about divergence (KIP-320).
            self.epochs_rebuilt = True
            found = recover(segments, replace(opening, epochs_complete=False), self.folder, interval_bytes)
        self._take(segments[: found.keep], found.end_offset)
        self._recovered = self.epochs.merged(found.scanned_from, found.epochs, found.end_offset)
        self._stray = segments[found.keep :]
        if found.damage is not None:
            self.damage = found.damage
            return
        self._drop_stray()
        if self._removal_unsynced:
            self._sync_removal()
        if found.cut_at is not None:
            self.cut_bytes = self._segments[-1].size_bytes - found.cut_at
            self._segments[-1].cut(found.cut_at)
        for segment in self._segments:
            segment.offer_index()

    def _take(self, segments: list[Segment], end_offset: int) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.log_end_offset = end_offset

    def _drop_stray(self, cut: Cut | None = None) -> None:
        if self._stray:
            # From the last one, and durably: a revived segment could fit behind what is written next.
            for segment in reversed(self._stray):
                self.cut_bytes += segment.size_bytes
                if cut is None:
                    segment.remove()
                else:
                    cut.take(segment)
            self._stray = []
            self._removal_unsynced = True
            if cut is not None:
                cut.sync_names()
                self._sync_removal()

    def _segment(self, base_offset: int) -> Segment:
        context = self._context
        interval = context.config.index_interval_bytes
        shared = context.disk, context.files, context.indexes
        return Segment(*shared, self.folder, base_offset, interval_bytes=interval)

    def end_of(self, segment: Segment) -> int:
        """Where the next segment begins, or the log ends."""
        at = bisect_left(self._bases, segment.base_offset)
        return self._bases[at + 1] if at + 1 < len(self._bases) else self.log_end_offset

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """Of the last batch, or of the leader that has begun here since; -1 in an empty history."""
        return self.epochs.latest_epoch

    @property
    def last_record_epoch(self) -> int:
        """The epoch of the last record, also of one that is no longer kept; -1 where there never was one."""
        return self.epochs.epoch_at(self.log_end_offset - 1)

    @property
    def producers(self) -> ProducerTable:
        """What is known of idempotent producers; fed by every append, here and on followers (HOLE-28)."""
        return self._producers.table

    def sent_crcs(self, offset: int) -> SentCrcs:
        """For a follower that appends what is here from `offset` on."""
        crcs = self._producers.sent_crcs(offset)
        return crcs if crcs is None or not self.producers.rewritten else dict(self.producers.sent(offset))

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
        if doing == "read" and error.errno in NO_DESCRIPTORS:
            return TidelogError(f"{self.folder}: {doing} failed: {error}", ErrorCode.LEADER_NOT_AVAILABLE)
        self._failure = f"{self.folder}: {doing} failed: {error}; the log is refused until it is opened again"
        self._trouble = trouble_of(doing, error)
        self._tail.clear()
        return TidelogError(self._failure, ErrorCode.KAFKA_STORAGE_ERROR)

    def guarded(self, doing: str, step: Callable[[], T]) -> T:
        """What `step` returns; an OSError fences the log. KAFKA_STORAGE_ERROR then, and when it is fenced already."""
        self._check()
        try:
            return step()
        except OSError as error:
            raise self._fenced(doing, error) from error

    def failed(self, doing: str, error: OSError) -> NoReturn:
        """As `guarded`, for what another thread did."""
        raise self._fenced(doing, error) from error

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

    def append_as_leader(self, batches: Batches, leader_epoch: int, append_time_ms: int | None = None) -> Appended:
        """Gives the batches their offsets, this epoch and perhaps a time. They must have passed `validate_produce`.

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
        sent = AS_SENT
        if batches.sent_crc != NO_CRC or append_time_ms is not None:
            crc = batches.headers[0].crc if batches.sent_crc == NO_CRC else batches.sent_crc
            batches, sent = rewritten(batches, append_time_ms), {self.log_end_offset: crc}
        buffers, end = stamp(batches, self.log_end_offset, leader_epoch), self.log_end_offset + batches.record_count
        return self._append(buffers, batches.headers, end, len(batches.records), sent)

    def append_as_follower(self, records: bytes, sent: SentCrcs = AS_SENT) -> Appended:
        """Appends a leader's bytes as they are, with one write; CORRUPT_MESSAGE, and nothing appended: `check_incoming`.

        An empty log that starts inside their first batch takes that whole; the log's start stays where it is. `sent`: the
        leader's `sent_crcs`.
        """
        self._check()
        start, end = self.log_start_offset, self.log_end_offset
        incoming = check_incoming(records, self.key, end=end, epoch=self.epochs.latest_epoch, empty=start == end)
        begins_before = incoming.base_offset < end
        if begins_before:
            dropped_to = self.dropped_to
            self.reset_to(incoming.base_offset)
            if dropped_to:
                self.record_dropped_to(dropped_to)  # it is of the log that these records come from
        if sent is None:
            self._context.owner.appending_unmarked()
            self._producers.marked_from = incoming.end_offset
        appended = self._append([records], incoming.headers, incoming.end_offset, len(records), sent)
        if begins_before:
            self.move_log_start(start)
        for header in incoming.news:
            self._context.journal.assign(self.key, header.leader_epoch, header.base_offset)
        return appended

    def _append(
        self, buffers: list[Buffer], headers: Sequence[BatchHeader], end: int, size_bytes: int, sent: SentCrcs
    ) -> Appended:
        base = self.log_end_offset
        try:
            if self.unsettled:
                self._settle_cut()
            segment = self._active(size_bytes)
            self._opened(segment)
            try:
                segment.append(buffers, headers, base)
            except OSError:
                segment.take_back()
                raise
        except OSError as error:
            raise self._fenced("append", error) from error
        self._tail.push(base, end, buffers, size_bytes)
        self.producers.note(headers, base, sent)
        self.log_end_offset = end
        return Appended(base, end - 1, size_bytes)

    def _opened(self, segment: Segment) -> None:
        """Opens the file, if it is not open. A process that has no descriptor left has no failing disk: nothing is written, and
        LEADER_NOT_AVAILABLE says that it may be later."""
        try:
            segment.file()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            raise TidelogError(f"{segment.path}: {error}", ErrorCode.LEADER_NOT_AVAILABLE) from error

    def _active(self, incoming_bytes: int) -> Segment:
        """The segment that takes the next append: the last one, or a new one."""
        if self._segments:
            active = self._segments[-1]
            if not active.size_bytes or active.size_bytes + incoming_bytes <= self.segment_bytes:
                return active
        return self._next_segment()

    def _next_segment(self) -> Segment:
        if self._segments:
            self._close_active()
        return self._add_segment()

    def _close_active(self) -> None:
        active = self._segments[-1]
        if active.cut_unsynced:
            # Or a loss of power could bring back what was cut, with the next segment fitting behind it.
            active.file().sync()
            active.cut_unsynced = False
        active.offer_index()
        self._producers.save(self._segments, self.log_end_offset)

    def _add_segment(self) -> Segment:
        segment = self._segment(self.log_end_offset)
        segment.create()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._names_unsynced = True
        return segment

    def roll(self) -> bool:
        """Closes the active segment, unless nothing is in it: only a closed one can go or be compacted. False where a full disk
        has no room for the next one; then it stays as it is."""
        self._check()
        if self._segments and self._segments[-1].size_bytes:
            self.guarded("roll", self._close_active)
            try:
                self._add_segment()
            except OSError as error:
                if no_space(error):
                    return False
                raise self._fenced("roll", error) from error
        return True

    # --- reading ------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        bytes_max: int,
        end_offset: int,
        *,
        min_one: bool = True,
        on_lost_index: Callable[[Segment], None] | None = None,
    ) -> bytes:
        """Whole batches from the one that holds `offset`, none that ends after `end_offset`, about `bytes_max` at most.

        With `min_one` the first batch comes even if it is larger. Empty at the end. OFFSET_OUT_OF_RANGE outside the log;
        RottenError where a batch is not what it was. With `on_lost_index` nothing is read from a closed segment whose index must
        first be made from all its headers, which takes long: it is called with that segment.
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
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        if on_lost_index is not None and segment is not self._segments[-1] and not segment.finds_index():
            on_lost_index(segment)
            return b""
        return self.guarded("read", lambda: self._read_disk(segment, offset, bytes_max, end_offset, min_one))

    def _read_disk(self, segment: Segment, offset: int, bytes_max: int, end_offset: int, min_one: bool) -> bytes:
        # Rot is never served and never replicated (row 32); what was read from memory was checked when it came. The offset of a
        # batch is not in its checksum: it follows from the batch before, and from the index.
        start, expected = segment.size_bytes, offset
        base, indexed = segment.index.entry_below(offset) or (segment.base_offset, 0)
        for position, header in segment.walk(indexed):
            if header.base_offset != base:
                raise RottenError(Damage(segment.path, position, base, _out_of_place(header, base)))
            if header.end_offset > offset:
                start, expected = position, base
                break
            base = header.end_offset
        else:
            raise RottenError(Damage(segment.path, start, offset, "the file ends before this offset"))
        all_of_it = end_offset >= self.end_of(segment)
        stop = segment.size_bytes if all_of_it else segment.locate(end_offset)
        if stop <= start:
            return b""
        records = segment.read(start, segment.fitting(start, stop, bytes_max, min_one))
        at = 0
        try:
            for at, header in iter_batches(records):
                if header.base_offset != expected:
                    raise corrupt(_out_of_place(header, expected))
                expected = header.end_offset
                at += header.size_bytes
        except TidelogError as error:
            raise RottenError(Damage(segment.path, start + at, expected, error.message)) from error
        return records

    def condemn(self, damage: Damage) -> TidelogError:
        """Nothing from `damage` on is trusted any more, and nothing before it is served until that is discarded."""
        self.damage = damage
        self._tail.clear()
        self._context.owner.data_lost(self.key, str(damage))
        return TidelogError(str(damage), ErrorCode.KAFKA_STORAGE_ERROR)

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int, start: int = 0) -> TimestampOffset | None:
        """The first batch with a record at or after the instant, by its header, of those that end after `start`; None when none
        ends by `end_offset`. The header may speak of records that are deleted."""
        start = max(start, self.log_start_offset)
        return self.guarded("read", lambda: first_at(self._segments, timestamp_ms, start, end_offset))

    def offset_of_max_timestamp(self, end_offset: int, start: int = 0) -> TimestampOffset | None:
        """The first batch with the largest timestamp, found as by `offset_for_timestamp`; None when none has a timestamp."""
        start = max(start, self.log_start_offset)
        return self.guarded("read", lambda: newest(self._segments, start, end_offset))

    # --- cutting ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, committed: int = 0) -> int:
        """Cuts the log's end back to `offset`, or to the start of the batch that holds it; returns the new end.

        Cutting nothing still forgets epochs that begin at the end, or a follower would truncate for ever (KAFKA-10706).
        Below the log's start nothing is left of it, and it goes on at `offset`. A cut below `committed` is set aside.
        """
        self._check()
        if offset < self.log_start_offset:
            self.reset_to(offset, committed)
            return offset
        if offset < self.log_end_offset:
            self.guarded("truncate", lambda: self._cut(offset, committed))
        self._context.journal.truncate_from(self.key, min(offset, self.log_end_offset))
        return self.log_end_offset

    def batch_start(self, offset: int) -> int:
        """The end of the log if it were cut at `offset`."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if offset < self.log_start_offset or not self._segments:
            return 0
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        found = self.guarded("truncate", lambda: segment.find(offset))
        return 0 if found is None else found[1].base_offset

    def _cut(self, offset: int, committed: int) -> None:
        keep = bisect_right(self._bases, offset) - 1
        found = self._segments[keep].find(offset)
        if found is None:
            segment = self._segments[keep]
            raise self.condemn(Damage(segment.path, segment.size_bytes, offset, "the file ends before this"))
        self._cut_at(keep, found[0], found[1].base_offset, committed)

    def _cut_at(self, keep: int, position: int, end_offset: int, committed: int) -> None:
        """Segment `keep` becomes the last one and ends at `position`; there, the one before it does."""
        if position == 0 and keep >= 0:
            keep -= 1
            position = self._segments[keep].size_bytes if keep >= 0 else 0
        self._begin_cut()
        cut = self._set_aside(keep, position, end_offset, committed)
        records = max(self.log_end_offset, committed) - end_offset
        self._context.owner.lower_marks(self.key, end_offset)
        if end_offset < self.log_start_offset:
            self._context.owner.replace_log_start(self.key, end_offset)  # the batch that held it goes as a whole
            self.log_start_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.recorded_high_watermark = min(self.recorded_high_watermark, end_offset)
        self.dropped_to = min(self.dropped_to, end_offset)
        self._stray = self._segments[keep + 1 :] + self._stray
        self._take(self._segments[: keep + 1], end_offset)
        self._drop_stray(cut)
        if self._segments and position < self._segments[-1].size_bytes:
            self._segments[-1].cut(position)
        self._producers.cut(self._segments, self.log_start_offset, end_offset)
        if cut is not None:
            self._context.strays.end_cut(cut, records)

    def _set_aside(self, keep: int, position: int, end_offset: int, committed: int) -> Cut | None:
        """Begins to set aside what follows `position` of segment `keep`, if some of it was committed."""
        behind = [*self._segments[keep + 1 :], *self._stray]
        kept = self._segments[keep] if keep >= 0 else None
        return self._context.strays.begin_cut(self.key, end_offset, committed, kept, position, behind)

    def record_dropped_to(self, end: int) -> None:
        """Durable when it returns; KAFKA_STORAGE_ERROR when it cannot be, and then nothing changes."""
        self._context.owner.record_dropped(self.key, end)
        self.dropped_to = end

    def _begin_cut(self) -> None:
        self.cuts += 1
        self._tail.clear()
        if self.swap is not None:
            self.swap.settle_now()

    def reset_to(self, offset: int, committed: int = 0) -> None:
        """Drops everything; the log is empty and goes on at `offset` (a follower below its leader's log start).

        A log that begins below `committed` is set aside.
        """
        self._check()
        try:
            self._begin_cut()
            cut = self._set_aside(-1, 0, self.log_start_offset, committed)
            self._context.owner.lower_marks(self.key, 0)
            self.recovery_point = self.recorded_high_watermark = 0
            # A start is not written before the files are gone for good: a log that ends before it starts is damaged.
            self._removal_unsynced = self._start_unwritten = True
            self._stray = self._segments + self._stray
            self._drop_stray(cut)
            self._producers.forget()
            if cut is not None:
                self._context.strays.end_cut(cut, self.log_end_offset - self.log_start_offset)
        except OSError as error:
            raise self._fenced("reset", error) from error
        self._take([], offset)
        self.dropped_to = 0
        self.log_start_offset = self.recorded_high_watermark = self.recovery_point = offset
        self._context.journal.truncate_from(self.key, 0)

    @property
    def unsettled(self) -> bool:
        """A cut is not durable yet. The next append waits for that, as a loss of power must not mix what was cut with what comes
        in its place; until then no checkpoint moves the marks."""
        return self._removal_unsynced or self._start_unwritten

    def _settle_cut(self) -> None:
        """Waits for the device; what has been settled beside the event loop costs nothing."""
        if self._removal_unsynced:
            self._sync_removal()
        if self._start_unwritten:
            self._context.owner.replace_log_start(self.key, self.log_start_offset)
            self._start_unwritten = False

    def _sync_removal(self) -> None:
        self._disk.sync_dir(self.folder)
        self._removal_unsynced = False

    def removal_synced(self, cuts: int) -> None:
        """The folder has been synced since there were so many `cuts`. A new start goes into the next checkpoint."""
        if self.cuts == cuts and self._removal_unsynced:
            self._removal_unsynced = False
            if self._start_unwritten:
                self._context.owner.begin_log_start(self.key, self.log_start_offset)

    def checkpointed(self) -> None:
        """A checkpoint is durable: the log is settled if that says where it begins."""
        if self._start_unwritten and not self._removal_unsynced:
            self._start_unwritten = not self._context.owner.tells_log_start(self.key, self.log_start_offset)

    def untrusted(self) -> list[tuple[str, int, int]]:
        """Files that `discard_damage` cuts, each with the position from which it goes and its size in bytes."""
        assert self.damage is not None, self
        cut = [s for s in self._segments if s.path == self.damage.path]
        after = self._segments[self._segments.index(cut[0]) + 1 :] if cut else self._segments
        gone = [(s.path, 0, s.size_bytes) for s in (*after, *self._stray)]
        return [(s.path, self.damage.position, s.size_bytes) for s in cut] + gone

    def discard_damage(self, committed: int = 0) -> int:
        """Cuts the log where the damage begins, so that the rest can be fetched again; returns the new end.

        Only for a replica that has left the in-sync set, or when an operator says so. `committed` as of `truncate_to`.
        """
        assert self.damage is not None, self
        damage, self.damage = self.damage, None
        try:
            paths = [segment.path for segment in self._segments]
            keep = paths.index(damage.path) if damage.path in paths else len(paths) - 1
            self._cut_at(keep, damage.position, damage.offset, committed)
            self._producers.restore(self._segments, self.log_start_offset, damage.offset)
        except OSError as error:
            raise self._fenced("truncate", error) from error
        self._context.journal.truncate_from(self.key, damage.offset)
        return self.log_end_offset

    # --- what is no longer kept -----------------------------------------------------------------------------------

    def move_log_start(self, offset: int) -> None:
        """Nothing below `offset` is served any more. The files go later: see `release_below`.

        Nothing on disk knows of it yet. A crash before the next checkpoint brings the records back, which is harmless.
        """
        self._check()
        if offset > self.log_end_offset:
            raise ValueError(f"{self.key}: cannot start at {offset}, the log ends at {self.log_end_offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    @property
    def keeps_below_start(self) -> bool:
        """True while there are segments for `release_below`."""
        return len(self._bases) > 1 and self._bases[1] <= self.log_start_offset

    def release_below(self, offset: int) -> list[str]:
        """Takes the segments that end at or before `offset` out of the log; returns files to be removed by anybody.

        `offset` must be durably this log's start: a start after it without these files is a log whose front is missing.
        """
        self._check()
        released = []
        try:
            while len(self._segments) > 1 and self._segments[1].base_offset <= min(offset, self.log_start_offset):
                with suppress(FileNotFoundError):  # of one that is gone already
                    released.append(self._segments[0].set_aside())
                del self._segments[0], self._bases[0]
        except OSError as error:
            raise self._fenced("deletion of old segments", error) from error
        return released

    def pin(self, segment: Segment) -> DiskFile:
        """The segment's file for another thread to read, until `unpin`."""
        return self.guarded("read", lambda: self._context.files.pin(segment.path))

    def unpin(self, path: str) -> None:
        """`path` is what the segment's was when it was pinned."""
        self._context.files.unpin(path)

    # --- compaction -----------------------------------------------------------------------------------------------

    def replace_segments(self, old: Sequence[Segment], base_offset: int) -> Segment | None:
        """A new segment for the same offsets in the place of `old`, to be filled at once; None when they are not all there."""
        at = bisect_left(self._bases, base_offset)
        if self._segments[at : at + len(old)] != list(old) or at + len(old) == len(self._segments):
            return None
        new = self._segment(base_offset)
        self._take([*self._segments[:at], new, *self._segments[at + len(old) :]], self.log_end_offset)
        self._tail.drop_below(self.end_of(new))  # or memory would go on serving what compaction has removed
        return new

    # --- durability ---------------------------------------------------------------------------------------------

    @property
    def flushed(self) -> bool:
        """Whether a flush would find nothing to do."""
        names = (self._names_unsynced and bool(self._segments)) or self._removal_unsynced
        return self.recovery_point == self.log_end_offset and not names and not any(s.dirty for s in self._segments)

    def begin_flush(self) -> Flush:
        """Pins the files that have unsynced bytes; `end_flush` must follow, whatever `run` did."""
        dirty = [segment.path for segment in self._segments if segment.dirty]
        files = self.guarded("flush", lambda: self._context.files.pin_all(dirty))
        names = self._names_unsynced or self._removal_unsynced
        directories = [self.folder, self.folder.rpartition("/")[0]] if names else []
        flush = Flush(self._disk, files, dirty, directories, self.log_end_offset, self.cuts)
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
        self.removal_synced(flush.cuts)
        for segment in self._segments:
            if segment.path in flush.paths:
                segment.cut_unsynced = False
                if self.end_of(segment) <= flush.target:
                    segment.synced_bytes = segment.size_bytes
        self._save_caches()

    def _save_caches(self) -> None:
        """Saves what lets the next process begin at the recovery point: the index, and what is known of producers. Not with every
        flush, as both are written as a whole."""
        if self._segments:
            active = self._segments[-1]
            if active.size_bytes - active.index_file_bytes >= max(CACHES_BYTES_MIN, active.size_bytes // 8):
                active.offer_index()
                self.guarded("read", lambda: self._producers.save(self._segments, self.log_end_offset))

    def flush(self) -> None:
        """All three steps at once: everything appended so far survives a loss of power. Waits for the device."""
        flush = self.begin_flush()
        self.end_flush(flush, flush.outcome())

    def close(self) -> None:
        """Forgets the files; what was not flushed is left to recovery."""
        if self.failure is None and self._segments:
            self._segments[-1].offer_index()
            try:
                self._producers.save(self._segments, self.log_end_offset)
            except OSError as error:
                raise self._fenced("close", error) from error
        self._tail.clear()
        self.producers.clear()
        for segment in (*self._segments, *self._stray):
            segment.close()
        self._failure = self._failure or f"{self.folder}: closed"


def _out_of_place(header: BatchHeader, expected: int) -> str:
    return f"base_offset: {header.base_offset} where {expected} is next"
