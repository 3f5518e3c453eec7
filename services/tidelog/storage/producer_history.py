"""The idempotent producers of one log, kept equal to what its records say through starts, cuts and stops (HOLE-28)."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidelog.ports.disk import Disk
from tidelog.storage.producer_snapshot import LastBatch, ProducerSnapshots
from tidelog.storage.producer_state import AS_SENT, ProducerLimits, ProducerTable, SentCrcs
from tidelog.storage.segment import Segment


class ProducerHistory:
    """`segments` are always those of the log, ascending and without a gap. OSError from the disk."""

    __slots__ = ("_snapshots", "marked_from", "table")

    def __init__(self, disk: Disk, folder: str, limits: ProducerLimits) -> None:
        self.table = ProducerTable(limits)
        self._snapshots = ProducerSnapshots(disk, folder)
        self.marked_from = 0
        """From here on each batch that its leader has changed says so. A leader of release 0.2.0 did not see to that."""

    def attach(self, names: Iterable[str]) -> None:
        """Takes over what is in the folder."""
        self._snapshots.attach(names)

    def restore(self, segments: Sequence[Segment], log_start_offset: int, log_end_offset: int) -> None:
        """From the newest snapshot that belongs to this log, and the headers behind it."""
        self._snapshots.drop_above(log_end_offset)
        self.table.clear()
        start = self._load(segments, log_start_offset)
        for segment in segments[max(0, _holding(segments, start)) :]:
            for _, header in segment.walk(segment.index.below_offset(start)):
                if header.end_offset > start:
                    self.table.note((header,), header.base_offset, self.sent_crcs(header.base_offset))

    def sent_crcs(self, offset: int) -> SentCrcs:
        """The argument of `ProducerTable.note` for a batch at `offset` of which nothing else is known."""
        return AS_SENT if offset >= self.marked_from else None

    def _load(self, segments: Sequence[Segment], log_start_offset: int) -> int:
        """Where the records go on that the table does not know yet."""
        for offset in reversed(self._snapshots.offsets):
            snapshot = self._snapshots.read(offset)
            if snapshot is None:
                continue
            if snapshot.after == _last_batch(segments, offset):
                self.table.load(snapshot.producers, snapshot.rewritten)
                return offset
            self._snapshots.drop(offset)
        return log_start_offset

    def save(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        """A snapshot takes the place of one inside the last segment, so that a cut still finds those of segments before."""
        if log_end_offset not in self._snapshots.offsets and (after := _last_batch(segments, log_end_offset)):
            self._snapshots.drop_above(segments[-1].base_offset)
            self._snapshots.save(after, self.table.facts(), self.table.rewritten)

    def cut(self, segments: Sequence[Segment], log_start_offset: int, log_end_offset: int) -> None:
        """The log ends here now. What was forgotten since is read again, so that a gap is told from a repetition."""
        self.marked_from = min(self.marked_from, log_end_offset)
        if self.table.reaches(log_end_offset):
            self.restore(segments, log_start_offset, log_end_offset)
        else:
            self._snapshots.drop_above(log_end_offset)

    def forget(self) -> None:
        """Nothing of the log is left."""
        self.marked_from = 0
        self._snapshots.drop_above(-1)
        self.table.clear()


def _holding(segments: Sequence[Segment], offset: int) -> int:
    """Index of the segment with `offset`; -1 before all."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def _last_batch(segments: Sequence[Segment], end_offset: int) -> LastBatch | None:
    """The one that ends at `end_offset`; None when none does, and nothing can vouch for a snapshot there."""
    at = _holding(segments, end_offset - 1)
    found = segments[at].find(end_offset - 1) if at >= 0 else None
    if found is None or found[1].end_offset != end_offset:
        return None
    return LastBatch(end_offset, found[1].leader_epoch, found[1].crc)
