"""Where each leader epoch starts in a log. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.ids import NO_EPOCH, NO_OFFSET


class EpochStart(NamedTuple):
    """`leader_epoch` has all records from `start_offset` up to the next entry."""

    leader_epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end?": the epoch that was found, and its exclusive end."""

    leader_epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class EpochCache:
    """The epoch history of one log: strictly growing epochs and start offsets.

    Followers ask the leader for the end of their last epoch and cut back to it; comparing high watermarks instead loses
    or forks records when two replicas restart in a row (KIP-101). An epoch that ends up without records leaves no entry
    once the next one starts, so that the history equals the one rebuilt from the log (I7).
    """

    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._entries: list[EpochStart] = []
        self.latest_epoch = NO_EPOCH
        """Of the last entry, kept because every record asks for it; -1 when empty. Epoch 0 is an epoch (KAFKA-10432)."""
        for epoch, start in entries:
            self.assign(epoch, start)

    def __repr__(self) -> str:
        return f"EpochCache({', '.join(f'{e}@{s}' for e, s in self._entries)})"

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start: int) -> bool:
        """`epoch` starts at `start`, also when nothing has been written in it yet (KAFKA-7415). True if that was news.

        The latest epoch again changes nothing: its start never moves. An older epoch is a caller's mistake: ValueError.
        """
        if epoch < 0 or start < 0:
            raise ValueError(f"epoch {epoch} from offset {start}: neither may be negative")
        if epoch == self.latest_epoch:
            return False
        if epoch < self.latest_epoch:
            raise ValueError(f"epoch {epoch} from offset {start} is older than {self!r}")
        self.truncate_from(start)
        self._entries.append(EpochStart(epoch, start))
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Largest known epoch at or below `epoch`, and its end (F15.2, KIP-279).

        An epoch before all entries ends where they begin; one above all is undefined: this log never saw it.
        """
        if epoch < 0 or epoch > self.latest_epoch:
            return UNDEFINED_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        later = next(i for i, entry in enumerate(self._entries) if entry.leader_epoch > epoch)
        found = self._entries[later - 1].leader_epoch if later else epoch
        return EpochEnd(found, self._entries[later].start_offset)

    def epoch_at(self, offset: int) -> int:
        """Epoch of the record at `offset`; -1 before all entries."""
        return next((e for e, start in reversed(self._entries) if start <= offset), NO_EPOCH)

    def truncate_from(self, end: int) -> bool:
        """Forgets epochs that start at or after `end`; True if there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end:
            self._entries.pop()
        self.latest_epoch = self._entries[-1].leader_epoch if self._entries else NO_EPOCH
        return len(self._entries) != before

    def merged(self, scanned_from: int, scanned: Iterable[EpochStart], log_end_offset: int) -> "EpochCache":
        """This history below `scanned_from`, what the batches say from there on, and an epoch begun at the very end.

        The last is a leader's that wrote nothing; one that claims to start beyond the end was lost with its records.
        """
        merged = EpochCache(entry for entry in self._entries if entry.start_offset < scanned_from)
        for epoch, start in scanned:
            if epoch > merged.latest_epoch:
                merged.assign(epoch, start)
        for epoch, start in self._entries:
            if start == log_end_offset and epoch > merged.latest_epoch:
                merged.assign(epoch, start)
        return merged
