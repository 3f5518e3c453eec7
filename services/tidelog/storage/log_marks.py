"""The small files of a data directory that say of each log how far it is committed, synced and cleaned, and where it starts.

A mark may be too low after a crash, and never too high: a log that ends below one has lost records. So marks are lowered,
durably, before a log is cut.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import OFFSET_MAX, LogKey, OffsetCheckpoint
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.reserve import Reserve

HIGH_WATERMARKS_FILE: Final = "replication-offset-checkpoint"
RECOVERY_POINTS_FILE: Final = "recovery-point-offset-checkpoint"
LOG_STARTS_FILE: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS_FILE: Final = "cleaner-offset-checkpoint"
DROPPED_FILE: Final = "dropped-tombstone-checkpoint"
MARK_FILES: Final = frozenset(
    {HIGH_WATERMARKS_FILE, RECOVERY_POINTS_FILE, LOG_STARTS_FILE, CLEANER_OFFSETS_FILE, DROPPED_FILE}
)


class LogMarks:
    def __init__(self, disk: Disk, root: str, reserve: Reserve, on_changed: Callable[[LogKey], None]) -> None:
        """`on_changed`: the next checkpoint must look at this log, though the log itself has not changed."""
        self.high_watermarks = OffsetCheckpoint(disk, f"{root}/{HIGH_WATERMARKS_FILE}")
        self.recovery_points = OffsetCheckpoint(disk, f"{root}/{RECOVERY_POINTS_FILE}")
        self.starts = OffsetCheckpoint(disk, f"{root}/{LOG_STARTS_FILE}")
        self.cleaner_offsets = OffsetCheckpoint(disk, f"{root}/{CLEANER_OFFSETS_FILE}")
        self.dropped = OffsetCheckpoint(disk, f"{root}/{DROPPED_FILE}")
        self.dropped_is_lost = not self.dropped.complete and (self.dropped.found or self.cleaner_offsets.found)
        self._of_ends = self.high_watermarks, self.recovery_points, self.cleaner_offsets
        """No log may end below one of these."""
        self.files = self.high_watermarks, self.recovery_points, self.starts, self.cleaner_offsets, self.dropped
        self.lowerings = 0
        """A checkpoint that began before the last one says too much."""
        self._ceilings: dict[LogKey, int] = {}
        """Ends of logs that are about to be cut: until then no checkpoint says more of them."""
        self._reserve = reserve
        self._on_changed = on_changed

    def logs(self) -> set[LogKey]:
        return {key for marks in self.files for key in marks.logs()}

    def end(self, log: PartitionLog) -> int:
        """Everything below had been there: it was synced, committed, or is held."""
        return max(log.log_end_offset, self.recovery_points.get(log.key), self.high_watermarks.get(log.key))

    def take(self, log: PartitionLog) -> None:
        """Takes over what is new of this log, for the next checkpoint. Most logs have nothing new."""
        marks = (log.recorded_high_watermark, log.recovery_point, log.log_start_offset)
        if marks == log.marked or log.damage is not None or log.unsettled:
            return
        key, ceiling = log.key, self._ceilings.get(log.key)
        high_watermark, recovery_point, start = marks
        log.marked = marks if ceiling is None else None
        if ceiling is not None:
            high_watermark, recovery_point = min(high_watermark, ceiling), min(recovery_point, ceiling)
        self.high_watermarks.update({key: high_watermark})
        self.recovery_points.update({key: recovery_point})
        # Not above what is synced: a loss of power must not leave a log that ends before it starts.
        self.raise_start(key, min(start, recovery_point))

    def raise_start(self, key: LogKey, start: int) -> bool:
        """Returns whether it was lower."""
        if start <= self.starts.get(key):
            return False
        self.starts.update({key: start})
        return True

    def names_synced(self) -> None:
        """The names of the files in place are durable."""
        for marks in self.files:
            marks.names_synced()

    def forget(self, key: LogKey) -> None:
        for marks in self.files:
            marks.forget(key)

    # --- before a log is cut ----------------------------------------------------------------------------------------

    def expect_cuts(self, ends: Mapping[LogKey, int]) -> bool:
        """Lowers the marks of logs that are about to be cut, down to their ends then, for the next checkpoint to write; until
        `cuts_made`. Returns whether there is anything to write: if not, the cuts wait for nothing."""
        above = {key: end for key, end in ends.items() if any(marks.exceeds(key, end) for marks in self._of_ends)}
        for key, end in above.items():
            self._ceilings[key] = min(end, self._ceilings.get(key, end))
            for marks in self._of_ends:
                marks.update({key: min(marks.get(key), end)})
            self._on_changed(key)
        return bool(above)

    def cuts_made(self, ends: Mapping[LogKey, int]) -> None:
        """Or given up: then the next checkpoint raises the marks again."""
        for key in ends:
            self._ceilings.pop(key, None)
            self._on_changed(key)

    def lower(self, key: LogKey, end_offset: int) -> None:
        """Durable when it returns. The mark of dropped tombstones may be higher after a crash: then followers copy more than
        they must. OSError."""
        self.dropped.update({key: min(self.dropped.get(key), end_offset)})
        for marks in self._of_ends:
            if marks.exceeds(key, end_offset):
                self._on_changed(key)
                self.lowerings += 1
                marks.update({key: min(marks.get(key), end_offset)})
                self._reserve.lend(marks.write)

    def lower_those_of_deleted(self, key: LogKey) -> None:
        """A deleted log has left its marks on disk, or in a checkpoint that is under way. They would tell of a new log of the
        same topic that it has lost records. OSError."""
        self.lower(key, 0)
        if self.starts.exceeds(key, 0):
            self.replace_start(key, 0)

    # --- starts and dropped tombstones ------------------------------------------------------------------------------

    def replace_start(self, key: LogKey, log_start_offset: int) -> None:
        """It may be lower than before; durable when it returns. OSError."""
        self.lowerings += 1
        self.starts.update({key: log_start_offset})
        self.starts.write()

    def record_dropped(self, key: LogKey, end: int) -> None:
        """Durable when it returns. OSError."""
        self.lowerings += 1
        self.dropped.update({key: end})
        self._reserve.lend(self.dropped.write)

    def dropped_before(self, key: LogKey) -> int:
        """Returns where dropped tombstones may end in a log that is opened. While that is lost, anywhere: 0 would let a
        follower keep what a dropped tombstone has deleted. A leader's mark ends where its log does."""
        if self.dropped_is_lost:
            self.dropped.update({key: OFFSET_MAX})
        return self.dropped.get(key)
