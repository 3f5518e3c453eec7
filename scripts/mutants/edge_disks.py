"""Mistakes where disks fail: folders and files that cannot be read, removed or opened."""

import errno
from dataclasses import replace
from typing import Any, Final

from mutants.patching import BySimulator, ByTest, Code, Table, around
from tidelog.broker import revival, scrubber
from tidelog.broker.leader_fetcher import LeaderLink
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.reviver import Reviver
from tidelog.broker.scrubber import Scrubber
from tidelog.errors import TidelogError
from tidelog.storage import checkpoint, handles, partition_log, recovery, strays, tail, topic_marker
from tidelog.storage.checkpoint import OffsetCheckpoint
from tidelog.storage.compaction import Source
from tidelog.storage.data_dir import DataDir
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.handles import Handles
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.log_marks import LogMarks
from tidelog.storage.log_store import LogStore
from tidelog.storage.offset_index import SparseIndex
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_snapshot import ProducerSnapshots
from tidelog.storage.recovery import Damage
from tidelog.storage.reserve import Reserve
from tidelog.storage.segment import Segment

MUTANTS: Final = Table(__name__)

_EVERY: Final = "tests/unit/storage/test_every_fault.py::"
_STORE: Final = "tests/unit/storage/test_log_store.py::"
_REPLAY: Final = "tests/unit/storage/test_producer_replay.py::"
_RETENTION: Final = "tests/unit/broker/test_log_retention.py::"
_HANDLES: Final = "tests/unit/storage/test_handles.py::"
_INDEXES: Final = "tests/unit/storage/test_index_cache.py::"
_POINT: Final = "tests/unit/storage/test_recovery_point.py::"
_START: Final = "tests/unit/broker/test_start.py::"
_FULL: Final = "tests/unit/storage/test_full_disk.py::"
_LOST: Final = "tests/unit/broker/test_lost_index.py::"
_MANAGER: Final = "tests/unit/broker/test_replica_manager.py::"
_CUTS: Final = "tests/unit/broker/test_cuts_together.py::"
_REVIVAL: Final = "tests/unit/broker/test_revival.py::"
_CLEANER: Final = "tests/unit/broker/test_cleaner.py::"


@MUTANTS.mutant("LISTED-FOLDER", ByTest(f"{_STORE}test_a_folder_that_is_none_of_ours_is_not_looked_into"))
@around(LogStore, "_load_folder")
def every_folder_is_listed(original: Any, self: Any, name: str) -> None:
    """A broker looks into every folder of its data directory."""
    topic_marker.topic_id_in(self._disk, f"{self._root}/{name}")
    original(self, name)


@MUTANTS.mutant("UNLISTED-LOG", ByTest(f"{_STORE}test_a_folder_that_cannot_be_listed_takes_one_log_alone"))
@around(LogStore, "_refuse")
def unlisted_log_ends_the_start(_: Any, _self: Any, _tp: Any, reason: str) -> None:
    """A folder of a log that cannot be listed ends the start of the broker."""
    raise OSError(errno.EIO, reason)


@MUTANTS.mutant("UNLISTED-LOG-AT-A-START", ByTest(f"{_EVERY}test_every_call_of_a_start_fails_once[roll-EIO-killed]"))
@around(LogStore, "_refuse")
def one_log_ends_the_start(_: Any, _self: Any, _tp: Any, reason: str) -> None:
    """A folder of a log that cannot be listed ends the start of the broker."""
    raise OSError(errno.EIO, reason)


@MUTANTS.mutant("UNGUARDED-RETENTION", ByTest("tests/unit/broker/test_every_disk_call.py::test_any_call_may_fail[EIO]"))
@around(PartitionLog, "guarded")
def retention_reads_unguarded(original: Any, self: Any, doing: str, step: Any) -> Any:
    """An active segment that retention cannot read ends the broker."""
    return step() if getattr(step, "__name__", "") == "first_timestamp" else original(self, doing, step)


@MUTANTS.mutant(
    "UNLISTED-STRAY", ByTest(f"{_EVERY}test_every_call_of_a_start_fails_once[cut_below_the_high_watermark-EIO-killed]")
)
@around(strays.Strays, "load")
def unlisted_stray_ends_the_start(original: Any, self: Any, name: str, *rest: Any, **named: Any) -> Any:
    """A folder that is set aside and cannot be listed ends the start of the broker."""
    self._size_bytes(f"{self._root}/{name}")
    return original(self, name, *rest, **named)


@MUTANTS.mutant("UNPLACED-BATCH", ByTest(f"{_EVERY}test_every_file_is_damaged_before_a_start[first_append-stopped]"))
@around(SparseIndex, "entry_below")
def first_batch_is_believed(original: Any, self: Any, offset: int) -> Any:
    """A reader takes the offset of the first batch that it reads as the batch says it."""
    return _Anything(), (original(self, offset) or (0, 0))[1]


class _Anything(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@MUTANTS.mutant("UNREAD-INDEX", ByTest(f"{_REPLAY}test_a_cache_that_cannot_be_read_takes_no_log[.index]"))
@around(Segment, "read_index")
def index_must_be_readable(original: Any, self: Any, file: Any) -> Any:
    """A segment whose index cannot be read cannot be read either."""
    if self._disk.kind(self.index_path) is not None:
        self._disk.read(self.index_path)
    return original(self, file)


@MUTANTS.mutant("UNREAD-SNAPSHOT", ByTest(f"{_REPLAY}test_a_cache_that_cannot_be_read_takes_no_log[.snapshot]"))
@around(ProducerSnapshots, "read")
def snapshot_must_be_readable(original: Any, self: Any, offset: int) -> Any:
    """A log whose snapshot of producers cannot be read is refused."""
    self._disk.read(self._path(offset))
    return original(self, offset)


@MUTANTS.mutant("SILENT-FENCE", ByTest(f"{_RETENTION}test_an_old_segment_that_cannot_be_set_aside"))
@around(LogStore, "_release")
def fenced_log_is_not_told(original: Any, self: Any, log_starts: Any) -> Any:
    """A log that is fenced by a checkpoint goes offline with its next use."""
    original(self, log_starts)
    return {}


@MUTANTS.mutant("GONE-SEGMENT", ByTest(f"{_RETENTION}test_an_old_segment_that_cannot_be_set_aside"))
@around(Segment, "set_aside")
def gone_segment_is_an_error(original: Any, self: Any) -> str:
    """An old segment that is gone already takes its log offline."""
    try:
        return str(original(self))
    except FileNotFoundError as error:
        raise OSError(errno.EIO, str(error)) from error


@MUTANTS.mutant("UNTOLD-START", ByTest(f"{_RETENTION}test_a_log_that_fails_under_a_follower_ends_no_task"))
@around(PartitionHost, "move_log_start")
def failed_start_ends_replication(original: Any, self: Any, offset: int) -> bool:
    """A log start that a follower cannot move ends its task."""
    try:
        return bool(original(self, offset))
    except TidelogError as error:
        raise RuntimeError from error


@MUTANTS.mutant("PASSED-OVER", ByTest(f"{_CLEANER}test_a_segment_that_cannot_be_read_takes_its_copy_out"))
def scrub_passes_over(code: Code) -> None:
    """A scrub passes over segments that cannot be read."""
    code.replace(scrubber, "_UNREADABLE", frozenset())


@MUTANTS.mutant("FIRST-ERROR", ByTest(f"{_CLEANER}test_a_segment_that_can_be_read_again_is_whole"))
@around(Scrubber, "_read")
async def first_error_is_damage(original: Any, self: Any, host: Any, part: Any) -> None:
    """One error of a read is damage."""
    try:
        await original(self, host, part)
    except OSError as error:
        self._on_damage(host, Damage(host.log.folder, 0, part.source.base_offset, str(error)))


@MUTANTS.mutant("STALE-SCRUB", ByTest(f"{_CLEANER}test_a_scrub_leaves_out_what_is_compacted_meanwhile"))
def segments_stay_what_they_were(code: Code) -> None:
    """A scrub reads a segment as it was when the round came to its log."""
    code.replace(scrubber._Part, "is_there", lambda self: True)


@MUTANTS.mutant("BELOW-THE-START", ByTest(f"{_CLEANER}test_a_scrub_leaves_out_what_lies_below_the_start"))
@around(scrubber._Part, "is_there")
def what_is_not_served_is_read(_: Any, self: Any) -> bool:
    """A scrub also reads segments that lie below their log's start."""
    return bool(self._host.log is self._log and self._segment in self._log.segments)


@MUTANTS.mutant("FIRST-FOLDER", ByTest(f"{_STORE}test_a_deleted_log_that_cannot_be_removed_keeps_no_other"))
@around(strays, "remove_folder")
def first_folder_ends_the_purge(original: Any, *named: Any) -> None:
    """A deleted log that cannot be removed ends the removal of the others."""
    try:
        original(*named)
    except OSError as error:
        raise RuntimeError from error


@MUTANTS.mutant("GAP-AT-THE-END", ByTest(f"{_STORE}test_an_empty_last_segment_begins_where_the_log_ends"))
@around(PartitionLog, "_load_clean")
def empty_segment_is_believed(original: Any, self: Any, segments: Any, opening: Any) -> bool:
    """After a clean stop, the log ends where its last segment begins, if that is empty."""
    if not segments or segments[-1].size_bytes:
        return bool(original(self, segments, opening))
    self._take(segments, segments[-1].base_offset)
    self._names_unsynced = False
    return True


@MUTANTS.mutant("TAKEN-DESCRIPTORS", ByTest(f"{_HANDLES}test_too_few_descriptors_close_what_was_used_least"))
def descriptors_are_not_given_back(code: Code) -> None:
    """A log keeps its descriptors where another one finds none."""
    code.replace(handles, "NO_DESCRIPTORS", frozenset())


@MUTANTS.mutant("UNKNOWN-SPACE", ByTest(f"{_REVIVAL}test_free_space_that_is_not_known_ends_no_revivals"))
@around(Reviver, "_room_bytes")
def unknown_space_ends_revivals(_: Any, self: Any) -> int:
    """A file system that does not tell its free space ends all revivals."""
    return int(self._logs.room_bytes)


@MUTANTS.mutant("MARKS-OF-DELETED", ByTest(f"{_STORE}test_a_log_made_anew_has_no_marks_of_a_deleted_one"))
@around(LogMarks, "lower_those_of_deleted")
def marks_of_deleted_log_stay(_: Any, _self: Any, _key: Any) -> None:
    """A log that is made anew leaves the marks of a deleted one on disk until the next checkpoint."""


@MUTANTS.mutant("REPLACED-MARKS", ByTest(f"{_STORE}test_a_loss_of_power_brings_back_marks_that_were_replaced"))
@around(OffsetCheckpoint, "installed")
def replaced_marks_are_forgotten(original: Any, self: Any) -> None:
    """A checkpoint whose name is not durable counts as the only one that a loss of power leaves."""
    original(self)
    self._replaced = {}


@MUTANTS.mutant("FORGOTTEN-TWICE", ByTest(f"{_HANDLES}test_every_file_of_a_pinned_path_is_closed"))
@around(Handles, "forget")
def only_the_last_one_is_closed(original: Any, self: Any, path: str) -> None:
    """A file of a pinned path is closed only if it was forgotten last."""
    self._dropped.pop(path, None)
    original(self, path)


@MUTANTS.mutant("LEFT-PINS", ByTest(f"{_HANDLES}test_a_flush_that_cannot_begin_pins_nothing"))
@around(Handles, "pin_all")
def pins_are_left(_: Any, self: Any, paths: Any) -> list[Any]:
    """A flush that cannot open its last file leaves the others pinned."""
    return [self.pin(path) for path in paths]


@MUTANTS.mutant("UNCOUNTED-APPENDS", ByTest("tests/unit/storage/test_tail.py::test_the_budget_counts_what_is_held"))
def only_records_are_counted(code: Code) -> None:
    """The budget of the tails counts records, and nothing of what holds them."""
    code.replace(tail, "_APPEND_BYTES", 0)
    code.replace(tail, "_PART_BYTES", 0)


@MUTANTS.mutant("INDEXES-STAY", ByTest(f"{_INDEXES}test_a_writer_leaves_few_indexes_in_memory"))
@around(IndexCache, "admit")
def indexes_stay(_: Any, self: Any, segment: Any, size_bytes: int) -> None:
    """An index that is in memory stays there."""
    self._held[segment] = size_bytes


@MUTANTS.mutant("UNSAVED-INDEXES", ByTest(f"{_INDEXES}test_a_reader_leaves_few_indexes_in_memory"))
@around(Segment, "offer_index")
def indexes_are_not_saved(_: Any, _self: Any) -> None:
    """An index that was made from its segment has no file, and stays in memory."""


@MUTANTS.mutant("STALE-INDEX", ByTest(f"{_INDEXES}test_a_closed_segment_that_is_written_again_is_not_counted"))
@around(Segment, "_changing_index")
def changing_index_is_counted(_: Any, self: Any) -> Any:
    """The index of a segment that is written goes out of memory as one that its file tells."""
    return self.index


@MUTANTS.mutant("WHOLE-SEGMENT", ByTest(f"{_POINT}test_a_killed_broker_reads_what_was_not_flushed"))
@around(recovery, "_known_up_to")
def whole_segment_is_read(_: Any, _segment: Any, _point: Any) -> None:
    """Recovery after a kill reads the whole segment that holds the recovery point."""


@MUTANTS.mutant("TRUSTED-AFTER-POWER", ByTest(f"{_POINT}test_the_whole_segment_is_read_where_it_must_be[power]"))
@around(partition_log, "recover")
def index_is_trusted_after_power_loss(original: Any, segments: Any, opening: Any, *named: Any) -> Any:
    """Recovery after a loss of power begins at the recovery point."""
    return original(segments, replace(opening, power_lost=False), *named)


@MUTANTS.mutant("EPOCHS-BEFORE", ByTest(f"{_POINT}test_epochs_that_the_journal_lacks_are_read_again"))
@around(partition_log, "history_reaches")
def journal_is_believed(_: Any, _history: Any, _first: Any, _found: Any) -> bool:
    """The journal counts as complete below the recovery point."""
    return True


@MUTANTS.mutant("CACHES-EACH-FLUSH", ByTest(f"{_POINT}test_a_flush_with_little_news_saves_no_caches"))
@around(PartitionLog, "_save_caches")
def caches_are_saved_each_time(_: Any, self: Any) -> None:
    """A log saves its index with every flush."""
    self._segments[-1].offer_index()


@MUTANTS.mutant("LOADED-ON-THE-LOOP", ByTest(f"{_START}test_a_broker_recovers_its_logs_beside_its_event_loop"))
@around(LogStore, "loading")
def logs_are_loaded_on_the_loop(original: Any, self: Any) -> Any:
    """A broker recovers its logs on the event loop."""
    for step in original(self):
        step()
    return iter(())


@MUTANTS.mutant("CUTS-ONE-BY-ONE", ByTest(f"{_CUTS}test_a_chunk_of_many_partitions_is_cut_together"))
@around(LeaderLink, "_cuts")
def cuts_are_not_foreseen(_: Any, _self: Any, _chunk: Any) -> dict[Any, Any]:
    """A follower writes its checkpoints for each log that it cuts."""
    return {}


@MUTANTS.mutant("MARKS-OF-A-CUT", ByTest(f"{_CUTS}test_no_checkpoint_moves_marks_of_a_cut_under_way"))
@around(LogMarks, "take")
def marks_of_a_cut_move(original: Any, self: Any, log: Any) -> None:
    """A checkpoint says of a log that begins anew what no crash has left yet."""
    original(self, log)
    self.recovery_points.update({log.key: log.recovery_point})


@MUTANTS.mutant("MARKS-RISE-AGAIN", ByTest(f"{_CUTS}test_many_cuts_share_their_checkpoints"))
@around(LogMarks, "take")
def marks_rise_again(original: Any, self: Any, log: Any) -> None:
    """The checkpoint before a cut writes the marks as they are."""
    ceilings, self._ceilings = self._ceilings, {}
    original(self, log)
    self._ceilings = ceilings


@MUTANTS.mutant("UNSETTLED-CUT", ByTest("tests/unit/storage/test_crash.py::test_every_cut_and_every_loss"))
@around(PartitionLog, "_settle_cut")
def append_does_not_wait(_: Any, self: Any) -> None:
    """A log that was cut is written before what was removed is gone for good."""
    self._removal_unsynced = self._start_unwritten = False


@MUTANTS.mutant("EARLY-START", ByTest("tests/unit/storage/test_crash.py::test_every_cut_and_every_loss"))
@around(PartitionLog, "reset_to")
def start_is_recorded_at_once(original: Any, self: Any, offset: int, committed: int = 0) -> None:
    """A log that begins anew says where before its old segments are gone for good."""
    original(self, offset, committed)
    self._context.owner.begin_log_start(self.key, offset)


@MUTANTS.mutant("EVERY-MARK", ByTest(f"{_MANAGER}test_a_checkpoint_of_idle_partitions_looks_at_each_once"))
@around(LogMarks, "take")
def every_mark_is_new(original: Any, self: Any, log: Any) -> None:
    """A checkpoint takes the marks of each log as new."""
    log.marked = None
    original(self, log)


@MUTANTS.mutant("READ-ON-THE-LOOP", ByTest(f"{_REVIVAL}test_logs_are_opened_again_beside_the_event_loop"))
@around(LogStore, "begin_reopen")
def log_is_read_on_the_loop(original: Any, self: Any, *asked: Any, **named: Any) -> Any:
    """A log that an error had fenced is read on the event loop."""
    reopening = original(self, *asked, **named)
    if reopening is not None:
        reopening.run()
    return reopening


@MUTANTS.mutant("DELETED-UNDER-A-THREAD", ByTest(f"{_REVIVAL}test_a_log_that_is_being_opened_again_is_deleted_later"))
@around(LogStore, "_close")
def thread_is_not_waited_for(original: Any, self: Any, tp: Any) -> Any:
    """A log is deleted while a thread reads it."""
    self._reopening.discard(tp)
    return original(self, tp)


@MUTANTS.mutant("ORDER-OF-BEFORE", ByTest(f"{_REVIVAL}test_nothing_is_thrown_away_on_an_order_of_before"))
@around(Reviver, "_reopen")
async def order_of_before_counts(original: Any, self: Any, tp: Any, host: Any, _: Any, step: Any) -> Any:
    """Records are thrown away on an order that another one has followed."""
    return await original(self, tp, host, lambda: step, step)


@MUTANTS.mutant("INDEX-ON-THE-LOOP", ByTest(f"{_LOST}test_a_reader_waits_beside_the_event_loop"))
@around(Segment, "finds_index")
def index_is_made_on_the_loop(_: Any, _self: Any) -> bool:
    """A fetch makes a lost index on the event loop."""
    return True


@MUTANTS.mutant("UNTOLD-INDEX", ByTest(f"{_LOST}test_followers_get_what_the_index_was_lost_of"))
@around(PartitionHost, "index_read")
def made_index_wakes_no_follower(_: Any, _self: Any) -> None:
    """A follower hears nothing of an index that has been made."""


@MUTANTS.mutant("UNSCRUBBED-PART", ByTest(f"{_CLEANER}test_rot_in_the_active_segment_of_a_follower"))
def active_segment_is_not_scrubbed(code: Code) -> None:
    """A scrub reads closed segments alone."""
    code.replace(scrubber, "flushed_part", lambda log: None)


@MUTANTS.mutant("UNFLUSHED-PART", ByTest(f"{_CLEANER}test_a_scrub_reads_no_more_than_is_flushed"))
@around(scrubber, "flushed_part")
def whole_active_segment_is_scrubbed(_: Any, log: Any) -> Any:
    """A scrub reads what was not flushed yet."""
    active = log.segments[-1]
    return Source(active.base_offset, log.log_end_offset, active.size_bytes)


@MUTANTS.mutant("FULL-START", ByTest(f"{_FULL}test_a_broker_starts_and_serves_what_it_has"))
@around(LogStore, "_record")
def full_disk_ends_the_start(_: Any, self: Any, _what: str, write: Any) -> None:
    """A broker does not start on a full disk."""
    self._reserve.lend(write)


@MUTANTS.mutant("SETTLED-TOO-SOON", ByTest(f"{_FULL}test_after_a_start_that_could_not_be_recorded"))
@around(DataDir, "record_intact_since")
def loss_of_power_is_over(original: Any, self: Any, broker_epoch: Any, *, recovered: bool = True) -> None:
    """A loss of power is over when the broker registers, whatever could be written of what it took."""
    del recovered
    original(self, broker_epoch, recovered=True)


@MUTANTS.mutant("INDEXES-BEFORE-MARKS", ByTest(f"{_FULL}test_retention_frees_a_full_disk"))
@around(Reserve, "_drop_indexes")
def indexes_give_no_way(_: Any, _self: Any) -> bool:
    """On a full disk without a reserve no checkpoint is written, so that retention frees nothing."""
    return False


@MUTANTS.mutant("FULL-ROLL", ByTest(f"{_FULL}test_a_segment_that_cannot_be_made_fences_no_log"))
@around(PartitionLog, "roll")
def full_disk_fences_a_roll(_: Any, self: Any) -> bool:
    """Retention takes a log offline if a full disk has no room for its next segment."""
    if self.segments[-1].size_bytes:
        self.guarded("roll", self._next_segment)
    return True


@MUTANTS.mutant("ENCODED-ON-THE-LOOP", ByTest(f"{_STORE}test_a_checkpoint_is_encoded_beside_the_event_loop"))
@around(OffsetCheckpoint, "next_file")
def checkpoint_is_encoded_on_the_loop(original: Any, self: Any) -> Any:
    """A checkpoint is encoded on the event loop."""
    content = original(self)
    data = None if content is None else content()
    return None if content is None else lambda: data


@MUTANTS.mutant("UNREADABLE-FOR-EVER", ByTest(f"{_REVIVAL}test_a_segment_that_stays_unreadable_is_fetched_again"))
@around(LogStore, "begin_reopen")
def unreadable_segment_is_read_for_ever(original: Any, self: Any, *asked: Any, **named: Any) -> Any:
    """A copy that is to be fetched again must be readable first."""
    reopening = original(self, *asked, **named)
    return None if reopening is None else replace(reopening, opening=replace(reopening.opening, discards=False))


@MUTANTS.mutant("REOPENED-FOR-EVER", ByTest(f"{_REVIVAL}test_a_copy_that_no_attempt_can_read_is_fetched_again"))
def log_is_opened_as_it_is(code: Code) -> None:
    """A log that no attempt can read is opened as it is again and again."""
    code.replace(revival, "REOPENS", 1 << 30)


@MUTANTS.mutant("UNOPENED-FOR-EVER", ByTest(f"{_REVIVAL}test_a_log_that_no_start_can_read_is_fetched_again"))
@around(Reviver, "_last_told")
def log_that_no_start_can_read_waits(original: Any, self: Any, tp: Any, host: Any) -> Any:
    """A broker forgets what it is told of logs that its start could not read."""
    return None if host is None else original(self, tp, host)


@MUTANTS.mutant("ORDERS-FORGOTTEN", ByTest(f"{_REVIVAL}test_a_copy_that_rots_again_while_it_is_rebuilt_is_cut_again"))
@around(ReplicaManager, "_went_offline")
def copy_forgets_its_orders(original: Any, self: Any, host: Any) -> Any:
    """A copy that fails while it is rebuilt waits for orders that no controller gives."""
    original(self, host)
    host.told_offline = None


@MUTANTS.mutant("FORGOTTEN-FAILURE", ByTest(f"{_REVIVAL}test_a_log_that_cannot_be_listed_counts_as_failed"))
@around(LogStore, "_close")
def failure_is_forgotten(original: Any, self: Any, tp: Any) -> Any:
    """A log that is to be deleted no longer counts as failed, whether that succeeds or not."""
    self.failed.pop(tp, None)
    return original(self, tp)


@MUTANTS.mutant("UNREAD-MARKS", ByTest(f"{_STORE}test_a_small_file_that_cannot_be_read_ends_no_start"))
@around(checkpoint, "read_lines")
def small_file_must_be_readable(original: Any, disk: Any, path: str) -> Any:
    """A broker whose small files cannot be read does not start."""
    if disk.kind(path) is not None:
        disk.read(path)
    return original(disk, path)


@MUTANTS.mutant("UNREAD-JOURNAL", ByTest(f"{_STORE}test_a_small_file_that_cannot_be_read_ends_no_start"))
@around(EpochJournal, "_replay")
def journal_must_be_readable(original: Any, self: Any) -> Any:
    """A broker whose epoch journal cannot be read does not start."""
    if self._disk.kind(self._path) is not None:
        self._disk.read(self._path)
    return original(self)


@MUTANTS.mutant("PASSED-OVER-IN-A-CLUSTER", BySimulator())
def scrub_passes_over_in_a_cluster(code: Code) -> None:
    """A scrub of a whole cluster passes over segments that cannot be read."""
    scrub_passes_over(code)


@MUTANTS.mutant("UNREADABLE-IN-A-CLUSTER", BySimulator())
def unreadable_segment_in_a_cluster(code: Code) -> None:
    """A rotten copy that cannot be read is never fetched again."""
    unreadable_segment_is_read_for_ever(code)


@MUTANTS.mutant("UNREAD-JOURNAL-IN-A-CLUSTER", BySimulator())
def journal_in_a_cluster(code: Code) -> None:
    """A broker of a cluster whose epoch journal cannot be read does not start."""
    journal_must_be_readable(code)
