"""All logs of one broker in one data directory: found and recovered at start, made, deleted, checkpointed, closed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.names import validate_topic_name
from tidelog.ports.disk import Disk, EntryKind
from tidelog.ports.rand import Rand
from tidelog.storage import epoch_journal, strays, topic_marker, unmarked
from tidelog.storage.checkpoint import LogKey, number
from tidelog.storage.checkpoint_run import NEXT_SUFFIX, Checkpoint
from tidelog.storage.data_dir import OWN_FILES, DataDir, intact_since_after_start
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.handles import OPEN_FILES_MAX, Handles
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.log_context import LogConfig, LogContext
from tidelog.storage.log_marks import LOG_STARTS_FILE, MARK_FILES, LogMarks
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import ProducerLimits
from tidelog.storage.recovery import Opening
from tidelog.storage.reopening import Reopening
from tidelog.storage.reserve import RESERVE_FILE, Reserve
from tidelog.storage.store_past import PAST_FILES, StorePast
from tidelog.storage.strays import DELETE_SUFFIX, STRAY_SUFFIX, Stray, Strays
from tidelog.storage.tail import TailBudget
from tidelog.storage.trouble import Trouble, no_space

_KNOWN_FILES: Final = {*OWN_FILES, *PAST_FILES, *MARK_FILES, epoch_journal.FILE_NAME, RESERVE_FILE}


class FailedLog(NamedTuple):
    """A log that is not open, and so refuses everything."""

    reason: str
    topic_id: bytes


class LogStore:
    """Owner of the data directory and of every PartitionLog in it; `open`, then `load`, then use, then `close`."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        data_dir: DataDir,
        config: LogConfig,
        open_files_max: int,
        producers: ProducerLimits,
    ) -> None:
        self._disk = disk
        self._root = root
        self._data_dir = data_dir
        self._reserve = Reserve(disk, root, config.reserve_bytes)
        self.marks = LogMarks(disk, root, self._reserve, self._changed)
        self._journal = EpochJournal(disk, root)
        self.past = StorePast(disk, root, self._reserve)
        self._files = Handles(disk, open_files_max)
        self.strays = Strays(disk, root)
        shared = disk, self._files, IndexCache(), self._journal, TailBudget()
        self._context = LogContext(*shared, self, self.strays, config, producers)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._deleted: list[str] = []
        """Folders of deleted logs whose marks may still be on disk: they tell a deleted log from a lost one."""
        self._purgeable: list[str] = []
        self._set_aside: list[str] = []
        """Files of segments that are below the starts of their logs."""
        self._known: set[LogKey] = set()
        self._reopening: set[TopicPartition] = set()
        """Logs in whose folder a thread is at work."""
        self._lost = False
        self._settled = True
        """True once all that the start has found is on disk."""
        self.failed: dict[TopicPartition, FailedLog] = {}
        """Partitions whose log could not be opened or made."""
        self.notes: list[str] = []
        """What an operator should read after the start: damage, cut tails, unknown names."""
        self.intact_since: int | None = None
        """For the registration; None: since the broker epoch that it gets."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        root: str,
        *,
        cluster_id: str,
        broker_id: int,
        rand: Rand,
        config: LogConfig | None = None,
        open_files_max: int = OPEN_FILES_MAX,
        producers: ProducerLimits | None = None,
    ) -> "LogStore":
        """Locks the directory and reads its small files; see `DataDir.open` for what is refused."""
        root = root.rstrip("/")
        data_dir = DataDir.open(disk, root, cluster_id=cluster_id, broker_id=broker_id, rand=rand)
        try:
            return cls(disk, root, data_dir, config or LogConfig(), open_files_max, producers or ProducerLimits())
        except (OSError, TidelogError):
            data_dir.release()
            raise

    # --- start --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Opens every log, recovering them after an unclean stop; may take long.

        One bad log does not stop the others (KAFKA-5211): see `failed`, `PartitionLog.damage` and `notes`.
        """
        for step in self.loading():
            step()

    def loading(self) -> Iterator[Callable[[], None]]:
        """The steps of `load`, a log each, to be run one after the other in any thread (`in_background`).

        Nothing else may use the store until the last one has ended.
        """
        yield self._begin_load
        for entry in self._disk.list_dir(self._root):
            if entry.kind is EntryKind.DIRECTORY:
                yield partial(self._load_folder, entry.name)
            elif entry.name not in _KNOWN_FILES and not entry.name.endswith((".tmp", NEXT_SUFFIX)):
                self.notes.append(f"{self._root}/{entry.name} is not ours; left alone")
        yield self._settle

    def _begin_load(self) -> None:
        directory = self._data_dir
        self._record("that it has begun", directory.begin_life)
        directory.forget_clean_stop()
        problems = [read.problem for read in (*self.marks.files, self._journal)]
        self.notes += directory.problems + [problem for problem in problems if problem]
        if self.marks.dropped_is_lost:
            self.notes.append(f"{self.marks.dropped.path} is lost; any tombstone of any log may have been dropped")

    def _load_folder(self, name: str) -> None:
        folder = f"{self._root}/{name}"
        if name.endswith(DELETE_SUFFIX):
            self._deleted.append(folder)
            return
        if name.endswith(STRAY_SUFFIX):
            self._load_stray(name)
            return
        if (tp := parse_folder_name(name)) is None:
            self.notes.append(f"{folder} is not a partition of this broker; left alone")
            return
        try:
            topic_id = self._topic_id_of(tp, folder)
        except OSError as error:
            self._refuse(tp, f"{folder} cannot be listed: {error}")
            return
        if topic_id is None:
            self.notes.append(f"{folder} is not a partition of this broker; left alone")
            return
        key = LogKey(tp.topic, tp.partition, topic_id)
        clean = self._data_dir.was_clean and self._journal.problem is None
        self._open_log(key, clean=clean, power_lost=self._data_dir.power_lost)

    def _topic_id_of(self, tp: TopicPartition, folder: str) -> bytes | None:
        topic_id = topic_marker.topic_id_in(self._disk, folder)
        if topic_id is not None:
            return topic_id
        found = unmarked.settle(
            self._disk, tp, folder, self.marks.recovery_points, power_lost=self._data_dir.power_lost
        )
        self.notes += found.notes
        return found.topic_id

    def _refuse(self, tp: TopicPartition, reason: str) -> None:
        """A log whose marker cannot be read is of the topic that the checkpoints name, and keeps their marks."""
        known = {key for key in self._recorded() if (key.topic, key.partition) == tp}
        self._known |= known
        self.failed[tp] = FailedLog(reason, max(known).topic_id if known else b"")
        self._lost = True
        self.notes.append(reason)

    def _load_stray(self, name: str) -> None:
        self._known |= self.strays.load(name, sorted(self.marks.logs()), power_lost=self._data_dir.power_lost)
        self.notes.append(f"{self._root}/{name} was set aside; it is kept for now")

    def _open_log(self, key: LogKey, *, clean: bool, power_lost: bool) -> PartitionLog | None:
        tp = TopicPartition(key.topic, key.partition)
        self._known.add(key)
        opening = Opening(
            clean=clean,
            power_lost=power_lost,
            recovery_point=self.marks.recovery_points.get(key),
            high_watermark=self.marks.high_watermarks.get(key),
            log_start=self.marks.starts.get(key),
            start_is_known=self.marks.starts.complete,
            dropped_to=self.marks.dropped_before(key),
            epochs_complete=self._journal.problem is None,
            marked=self._data_dir.marked,
        )
        try:
            log = PartitionLog.open(self._context, key, self._folder(tp), opening)
        except TidelogError as error:
            self.failed[tp] = FailedLog(error.message, key.topic_id)
            self._lost = True
            self.notes.append(error.message)
            return None
        self._logs[tp] = log
        if self.marks.dropped_is_lost:
            log.dropped_to = log.log_end_offset
            self.marks.dropped.update({key: log.dropped_to})
        if log.epochs_rebuilt:
            self.notes.append(
                f"{log.folder}: the leader epoch journal has lost epochs of it; it was read from its start"
            )
        if log.damage is not None:
            self._lost = True
            self.notes.append(str(log.damage))
        elif log.cut_bytes:
            self.notes.append(
                f"{log.folder}: {log.cut_bytes} bytes of a torn tail cut, the log ends at {log.log_end_offset}"
            )
        return log

    def _settle(self) -> None:
        """What recovery found is durable before anything new happens; only then is a loss of power over and done."""
        directory = self._data_dir
        self._forget_missing()
        self._record("leader epochs", self._journal.settle)
        for log in self._logs.values():
            if log.damage is None:
                self.marks.recovery_points.update({log.key: log.recovery_point})
                self.marks.high_watermarks.update({log.key: log.recorded_high_watermark})
                if self.marks.raise_start(log.key, log.log_start_offset):
                    self.notes.append(f"{log.folder}: {LOG_STARTS_FILE} is lost; it starts at {log.log_start_offset}")
        for marks in self.marks.files:
            self._record(marks.path, marks.write)
        self._purgeable, self._deleted = self._deleted, []
        self.intact_since = intact_since_after_start(
            directory.previous_intact_since,
            was_clean=directory.was_clean,
            same_boot=not directory.power_lost,
            damaged=self._lost,
        )
        if self._lost or directory.power_lost:
            self._record_intact_since(self.intact_since)
        self.restore_reserve()

    def _record(self, what: str, write: Callable[[], None]) -> None:
        """A broker on a full disk starts all the same: it can be read, and its retention makes room."""
        try:
            self._reserve.lend(write)
        except OSError as error:
            if not no_space(error):
                raise
            self._settled = False
            self.notes.append(f"{self._root}: the disk is full: {what} could not be written at the start: {error}")

    def restore_reserve(self) -> None:
        """Sets space aside for the small files again, if there is any. Waits for the device."""
        try:
            self._reserve.restore()
        except OSError as error:
            self.notes.append(f"{self._root}: no space could be set aside: {error}")

    @property
    def room_bytes(self) -> int:
        """Free space, less what is to be set aside again."""
        return self._disk.free_bytes(self._root) - self._reserve.missing_bytes()

    def _forget_missing(self) -> None:
        """Drops the marks of logs that are not there. A log with committed records that is gone is a loss, unless it was
        deleted, or its names went with the power (then the directory is not intact anyway)."""
        gone = self._recorded() - self._known
        deleted = {strays.without_turn(path) for path in self._deleted}
        for key in sorted(gone):
            was_deleted = strays.folder_name(key, DELETE_SUFFIX) in deleted
            if self.marks.high_watermarks.get(key) and not self._data_dir.power_lost and not was_deleted:
                self._lost = True
                self.notes.append(
                    f"{self._root}/{key}: the folder of topic {key.topic_id.hex()} is gone, and with it records"
                )
            self._forget(key)

    def _recorded(self) -> set[LogKey]:
        """Logs that the small files name."""
        return self.marks.logs() | set(self._journal.logs())

    def _forget(self, key: LogKey) -> None:
        self.marks.forget(key)
        self._journal.forget(key)

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def data_dir(self) -> DataDir:
        return self._data_dir

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._logs

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """None when there is no such log; KAFKA_STORAGE_ERROR when it is there and could not be opened."""
        if tp in self.failed:
            raise TidelogError(self.failed[tp].reason, ErrorCode.KAFKA_STORAGE_ERROR)
        return self._logs.get(tp)

    def stored_topic_id(self, tp: TopicPartition) -> bytes | None:
        """Of the topic whose log lies in this partition's folder, also of one that could not be opened."""
        log = self._logs.get(tp)
        if log is not None:
            return log.key.topic_id
        return self.failed[tp].topic_id if tp in self.failed else None

    def registered(self, broker_epoch: int) -> None:
        """The broker has this epoch now; a directory that had lost something is intact since here."""
        if self.intact_since is None:
            self.intact_since = broker_epoch
            self._record_intact_since(broker_epoch)

    def expire_producers(self, now: float) -> None:
        """It is `now` (monotonic seconds): idempotent producers that have been silent for too long are forgotten."""
        self._context.producers.now = now
        for log in self._logs.values():
            log.producers.expire()

    # --- making and deleting ------------------------------------------------------------------------------------

    def create(self, tp: TopicPartition, topic_id: bytes) -> PartitionLog:
        """The log of this partition, new or as it is.

        INCONSISTENT_TOPIC_ID when the folder belongs to an earlier topic of the name (HOLE-10). Nothing is synced: the
        names become durable with the first flush.
        """
        existing = self.get(tp)
        if existing is not None:
            if existing.key.topic_id != topic_id:
                raise TidelogError(
                    f"topic_id: {topic_id.hex()}, {existing.folder} holds topic {existing.key.topic_id.hex()}",
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                )
            return existing
        folder = self._folder(tp)
        key = LogKey(tp.topic, tp.partition, topic_id)
        if (stray := self.strays.find(key)) is not None and self._disk.kind(folder) is None:
            return self._bring_back(key, stray)
        try:
            self.marks.lower_those_of_deleted(key)
            if self._disk.kind(folder) is None:
                self._disk.make_dir(folder)
            else:
                topic_marker.clear_unmarked(self._disk, folder, power_lost=False)
            topic_marker.write(self._disk, folder, topic_id)
        except (OSError, TidelogError) as error:
            reason = f"{folder}: cannot be made: {error}"
            self.failed[tp] = FailedLog(reason, topic_id)
            raise TidelogError(reason, ErrorCode.KAFKA_STORAGE_ERROR) from error
        log = PartitionLog.open(self._context, key, folder, Opening(clean=True, power_lost=False))
        self._logs[tp] = log
        return log

    def _bring_back(self, key: LogKey, stray: Stray) -> PartitionLog:
        """The log of a stray that is listed again, with the records and marks that it had."""
        tp = TopicPartition(key.topic, key.partition)
        try:
            self.strays.move(stray, self._folder(tp))
        except OSError as error:
            raise TidelogError(f"{stray.folder}: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        log = self._open_log(key, clean=False, power_lost=stray.power_lost)
        if log is None:
            raise TidelogError(self.failed[tp].reason, ErrorCode.KAFKA_STORAGE_ERROR)
        if log.damage is not None:
            self.data_lost(key, str(log.damage))
        return log

    def reopen(self, tp: TopicPartition, *, high_watermark: int = 0, discard: bool = False) -> PartitionLog | None:
        """All three steps of opening a log again at once; None: there is nothing to open, the next `create` makes it."""
        reopening = self.begin_reopen(tp, high_watermark=high_watermark, discard=discard)
        if reopening is None:
            return None
        reopening.run()
        return self.end_reopen(reopening)

    def begin_reopen(self, tp: TopicPartition, *, high_watermark: int = 0, discard: bool = False) -> Reopening | None:
        """Begins to open a log again that an error had fenced. Until `end_reopen` it cannot be deleted.

        What had been written must be there, or the log is damaged now: this replica may be in an in-sync set, or go on
        leading. With `discard` it is in none, and what cannot be trusted is cut, to be fetched again; a failed sync needs
        that, since what followed the recovery point may never reach the device (reliability 8.1).
        KAFKA_STORAGE_ERROR or OSError if it still fails; then everything stays as it was.
        """
        old = self._logs.get(tp)
        opening = Opening(clean=False, power_lost=False)
        if old is not None:
            key, synced, sync_failed = old.key, old.recovery_point, old.trouble is Trouble.SYNC
            if sync_failed and not discard:
                raise ValueError(f"{tp}: after a failed sync nothing above {synced} can be trusted")
            old.close()
            if old.damage is not None:
                synced = min(synced, old.damage.offset)  # so that recovery reads what has rotted since it was synced
            end = 0 if discard or old.unsettled else old.log_end_offset
            # Where it starts is in the checkpoints of this process, and maybe in none on disk.
            opening = replace(opening, recovery_point=synced, end_offset=end, start_is_durable=False)
        else:
            topic_id = (
                topic_marker.topic_id_in(self._disk, self._folder(tp)) if self._disk.kind(self._folder(tp)) else None
            )
            if topic_id is None:
                self.failed.pop(tp, None)
                return None
            key = LogKey(tp.topic, tp.partition, topic_id)
            synced, sync_failed = self.marks.recovery_points.get(key), False
            # The start could not recover it, so what a loss of power has left is still there.
            opening = replace(opening, recovery_point=synced, power_lost=self._data_dir.power_lost)
        opening = replace(
            opening,
            high_watermark=max(high_watermark, self.marks.high_watermarks.get(key)),
            log_start=self.marks.starts.get(key),
            dropped_to=self.marks.dropped.get(key),
            marked=self._data_dir.marked,
            discards=discard,
        )
        self._reopening.add(tp)
        log = PartitionLog.beside(self._context, key, self._folder(tp))
        return Reopening(tp, log, opening, old, discard=discard, cut_to=synced if sync_failed else None)

    def give_up_reopen(self, reopening: Reopening) -> None:
        """Instead of `end_reopen`: everything stays as it was."""
        self._reopening.discard(reopening.tp)
        reopening.log.give_up()

    def end_reopen(self, reopening: Reopening) -> PartitionLog:
        """`run` has succeeded. KAFKA_STORAGE_ERROR when what cannot be trusted cannot be cut."""
        tp, log, old, opening = reopening.tp, reopening.log, reopening.old, reopening.opening
        self._reopening.discard(tp)
        log.join(self._context)
        self._logs[tp] = log
        self._known.add(log.key)
        self.failed.pop(tp, None)
        if reopening.discard and log.damage is not None:
            log.discard_damage(opening.high_watermark)
        if reopening.cut_to is not None:
            log.truncate_to(min(reopening.cut_to, log.log_end_offset), opening.high_watermark)
        if log.damage is not None and (old is None or old.damage is None):
            self.data_lost(log.key, str(log.damage))
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Renames the folder, which is quick; `purge` removes it. Harmless when there is no such log.

        KAFKA_STORAGE_ERROR keeps the log, closed: until a repetition succeeds it was not flushed, so no stop is clean.
        """
        if (key := self._close(tp)) is not None:
            folder = self._folder(tp)
            gone = strays.free_name(self._disk, self._root, key, DELETE_SUFFIX)
            try:
                self._disk.rename(folder, gone)
            except OSError as error:
                raise TidelogError(f"{folder}: cannot be deleted: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
            self._gone(key, gone)
        self._forget_log(tp)

    def set_aside(self, tp: TopicPartition, high_watermark: int) -> Stray | None:
        """Renames the folder of a log that is not listed, and keeps its marks; None when there is no record in it.

        `create` brings it back, `delete_stray` ends it. KAFKA_STORAGE_ERROR as of `delete`.
        """
        log = self._logs.get(tp)
        if log is None and tp not in self.failed:
            return None
        if log is not None and log.failure is None:
            if log.log_end_offset == 0:
                self.delete(tp)
                return None
            log.recorded_high_watermark = min(high_watermark, log.log_end_offset)
            self.marks.take(log)
        stray = None
        if (key := self._close(tp)) is not None:
            folder = self._folder(tp)
            try:
                stray = self.strays.add(key, folder, None if log is None else log.size_bytes)
            except OSError as error:
                raise TidelogError(f"{folder}: cannot be set aside: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        self._forget_log(tp)
        return stray

    def delete_stray(self, stray: Stray) -> None:
        """Deletes it as `delete` does a log. OSError keeps it."""
        gone = self.strays.delete(stray)
        if stray.cut_at is None:
            self._gone(stray.key, gone)
        else:
            self._purgeable.append(gone)  # no mark tells of it

    def _close(self, tp: TopicPartition) -> LogKey | None:
        """Closes the log, if it is open; None when nothing is in its folder that could be named."""
        if tp in self._reopening:
            reason = f"{self._folder(tp)} is being opened again"
            raise TidelogError(reason, ErrorCode.KAFKA_STORAGE_ERROR)
        log = self._logs.get(tp)
        folder = self._folder(tp)
        if self._disk.kind(folder) is None:
            return None
        topic_id = log.key.topic_id if log else topic_marker.topic_id_in(self._disk, folder)
        if topic_id is None:
            return None
        if log is not None:
            log.close()
        return LogKey(tp.topic, tp.partition, topic_id)

    def _forget_log(self, tp: TopicPartition) -> None:
        """Its folder is out of the way. Until then a log that could not be opened goes on counting as failed."""
        self._logs.pop(tp, None)
        self.failed.pop(tp, None)

    def _gone(self, key: LogKey, folder: str) -> None:
        self._deleted.append(folder)
        self._known.discard(key)
        self._forget(key)

    def purge(self) -> None:
        """Removes the files of deleted logs, those deleted before the last checkpoint, and of segments that are no longer
        kept (an executor's work).

        What cannot be removed is left to the next start, and the last OSError about it is raised in the end.
        """
        deleted, self._purgeable = self._purgeable, []
        aside, self._set_aside = self._set_aside, []
        failed: OSError | None = None
        steps = [partial(self._disk.remove, path) for path in aside]
        steps += [partial(strays.remove_folder, self._disk, folder) for folder in deleted]
        for step in steps:
            try:
                step()
            except FileNotFoundError:
                pass  # a segment went with its log
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _folder(self, tp: TopicPartition) -> str:
        """A folder in the data directory, whatever the name. TidelogError for one that no topic may have."""
        if tp.partition < 0:
            raise TidelogError(f"partition is {tp.partition}, partitions begin at 0", ErrorCode.INVALID_REQUEST)
        return f"{self._root}/{validate_topic_name(tp.topic)}-{tp.partition}"

    # --- durability ---------------------------------------------------------------------------------------------

    def write_epochs(self) -> None:
        """Every epoch assigned so far, in any log, is with the kernel: one write. `sync_epochs` makes them durable.

        A journal that has failed is replaced by a new file: the old one is not trusted with another sync.
        """
        try:
            self._journal.write()
        except OSError:
            try:
                self._reserve.lend(self._journal.rewrite)
            except OSError as error:
                raise self._broken("the epoch journal", error) from error

    def sync_epochs(self) -> None:
        """Waits for the device (`in_background`). A failure shows at the next write."""
        try:
            self._journal.sync()
        except OSError as error:
            raise self._broken("the epoch journal", error) from error

    def begin_checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Checkpoint:
        """Collects what is to be written; partitions that are not named keep what was recorded (HOLE-08)."""
        for tp, high_watermark in high_watermarks.items():
            if (log := self._logs.get(tp)) and not log.unsettled:
                log.recorded_high_watermark = min(high_watermark, log.log_end_offset)
        for log in self._logs.values():
            self.marks.take(log)
        self.write_epochs()
        log_starts = self.marks.starts.stored()
        small = (*self.marks.files, self.past)
        files = [(each, content) for each in small if (content := each.next_file()) is not None]
        deleted = tuple(self._deleted)
        shared = self._disk, self._root, self._journal, self._reserve
        return Checkpoint(*shared, files, self.marks.lowerings, deleted, log_starts)

    def end_checkpoint(
        self, checkpoint: Checkpoint, error: OSError | None = None
    ) -> Mapping[TopicPartition, TidelogError]:
        """Puts the new files in force, unless a log was cut below its marks meanwhile: the next checkpoint comes.

        Returns the logs that are fenced now, since their old segments cannot be set aside.

        The directory is not synced here: an older checkpoint is always safe.
        """
        if error is None and checkpoint.lowerings == self.marks.lowerings:
            try:
                for marks, _ in checkpoint.files:
                    self._disk.rename(marks.path + NEXT_SUFFIX, marks.path)
                    marks.installed()
            except OSError as failed:
                error = failed
            else:
                self._purgeable += checkpoint.deleted
                self._deleted = self._deleted[len(checkpoint.deleted) :]
                if not self._settled:
                    self._settled = True
                    self._record_intact_since(self.intact_since)
                return self._release(checkpoint.log_starts)
        if error is not None:
            if no_space(error):
                self._reserve.release()  # for the next one
            raise self._broken("the checkpoint", error) from error
        return {}

    def durable_start(self, log: PartitionLog) -> int:
        """The log begins there or later after the end of this process, and after a loss of power once `sync_names` has run."""
        return self.marks.starts.durable(log.key)

    def sync_names(self) -> None:
        """The last checkpoint survives a loss of power. Waits for the device (`in_background`)."""
        self._disk.sync_dir(self._root)

    def _changed(self, key: LogKey) -> None:
        """The next checkpoint looks at what it says of this log."""
        log = self._logs.get(TopicPartition(key.topic, key.partition))
        if log is not None and log.key == key:
            log.marked = None

    def _release(self, log_starts: Mapping[LogKey, int]) -> dict[TopicPartition, TidelogError]:
        """Segments below starts that are durable are no longer needed; `purge` removes the files."""
        fenced: dict[TopicPartition, TidelogError] = {}
        for tp, log in self._logs.items():
            if log.keeps_below_start and log.failure is None:
                try:
                    self._set_aside += log.release_below(log_starts.get(log.key, 0))
                except TidelogError as error:
                    fenced[tp] = error
        return fenced

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, TidelogError]:
        """All three steps at once."""
        checkpoint = self.begin_checkpoint(high_watermarks)
        try:
            checkpoint.run()
        except OSError as error:
            self.end_checkpoint(checkpoint, error)
        return self.end_checkpoint(checkpoint)

    def lower_marks(self, key: LogKey, end_offset: int) -> None:
        """See `LogOwner`."""
        self.marks.lower(key, end_offset)

    def replace_log_start(self, key: LogKey, log_start_offset: int) -> None:
        """See `LogOwner`."""
        self.marks.replace_start(key, log_start_offset)

    def begin_log_start(self, key: LogKey, log_start_offset: int) -> None:
        """See `LogOwner`."""
        self.marks.starts.update({key: log_start_offset})

    def tells_log_start(self, key: LogKey, log_start_offset: int) -> bool:
        """See `LogOwner`."""
        return self.marks.starts.tells(key, log_start_offset)

    def record_dropped(self, key: LogKey, end: int) -> None:
        """See `LogOwner`."""
        try:
            self.marks.record_dropped(key, end)
        except OSError as error:
            raise self._broken("which tombstones are dropped", error) from error

    def appending_unmarked(self) -> None:
        """See `LogOwner`."""
        if self._data_dir.marks:
            try:
                self._reserve.lend(self._data_dir.record_unmarked)
            except OSError as error:
                raise self._broken("that batches may have been changed", error) from error

    def data_lost(self, key: LogKey, reason: str) -> None:
        """See `LogOwner`. The next registration says that the directory is intact only since then."""
        self.notes.append(f"{key}: {reason}")
        self._lost = True
        self.intact_since = None
        self._record_intact_since(None)

    def _record_intact_since(self, broker_epoch: int | None) -> None:
        try:
            self._reserve.lend(lambda: self._data_dir.record_intact_since(broker_epoch, recovered=self._settled))
        except OSError as error:
            self.notes.append(f"{self._root}: what it may have lost could not be recorded: {error}")

    def _broken(self, what: str, error: OSError) -> TidelogError:
        return TidelogError(f"{self._root}: {what} could not be written: {error}", ErrorCode.KAFKA_STORAGE_ERROR)

    # --- stop ---------------------------------------------------------------------------------------------------

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int) -> bool:
        """Flushes and closes everything; the clean-shutdown marker is written last, and only if nothing failed.

        Returns whether it was. Waits for the device.
        """
        clean = not self._lost and not self.failed
        for log in self._logs.values():
            clean = _close_log(log) and clean
        try:
            if self._disk.free_bytes(self._root) < self._reserve.size_bytes:
                self._reserve.release()
            self.checkpoint(high_watermarks)
            self._disk.sync_dir(self._root)
            if clean:
                self._data_dir.mark_clean(broker_epoch)
        except (OSError, TidelogError) as error:
            self.notes.append(str(error))
            clean = False
        self.abandon()
        return clean

    def abandon(self) -> None:
        """Lets go of the directory without a flush, as a killed process would."""
        self._files.close()
        self._journal.close()
        self._data_dir.release()


def _close_log(log: PartitionLog) -> bool:
    if log.failure is not None:
        return False
    try:
        if not log.flushed:
            log.flush()
        log.close()
    except TidelogError:
        return False
    return True


def parse_folder_name(name: str) -> TopicPartition | None:
    """`<topic>-<partition>`; None when it is not."""
    topic, dash, partition = name.rpartition("-")
    try:
        return TopicPartition(topic, number(partition)) if dash and topic else None
    except ValueError:
        return None
