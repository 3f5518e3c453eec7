"""What all logs of a broker share, and what they tell the data directory that holds them."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.handles import Handles
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.offset_index import INDEX_INTERVAL_BYTES
from tidelog.storage.producer_state import ProducerLimits
from tidelog.storage.strays import Strays
from tidelog.storage.tail import TailBudget

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
        """The log is about to be cut: no mark of it on disk may stay above, durably."""
        ...

    def replace_log_start(self, key: LogKey, log_start_offset: int) -> None:
        """The log begins here now, which may be lower than before; durable when it returns."""
        ...

    def begin_log_start(self, key: LogKey, log_start_offset: int) -> None:
        """The log begins here now; durable with the next checkpoint."""
        ...

    def tells_log_start(self, key: LogKey, log_start_offset: int) -> bool:
        """True if the log begins here after every crash."""
        ...

    def record_dropped(self, key: LogKey, end: int) -> None:
        """Tombstones may be missing below `end` from now on; durable when it returns, else KAFKA_STORAGE_ERROR."""
        ...

    def appending_unmarked(self) -> None:
        """A log is to get batches that may be other bytes than their producers sent, and do not say so. That is durable when
        it returns, else KAFKA_STORAGE_ERROR."""
        ...

    def data_lost(self, key: LogKey, reason: str) -> None:
        """A failed sync, or damage found in what was written: this directory is not intact (design section 3)."""
        ...


@dataclass(frozen=True, slots=True)
class LogContext:
    """What all logs of a broker share."""

    disk: Disk
    files: Handles
    indexes: IndexCache
    journal: EpochJournal
    tails: TailBudget
    owner: LogOwner
    strays: Strays
    config: LogConfig = field(default_factory=LogConfig)
    producers: ProducerLimits = field(default_factory=ProducerLimits)


class Appended(NamedTuple):
    """Offsets of the first and the last record of an append, both inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int
