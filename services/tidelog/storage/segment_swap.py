"""Puts a segment that compaction has made in the place of those it was made from; a crash at any step leaves the one or the
other (Kafka's `.cleaned` and `.swap`).

1. The new bytes are durable in `<base>.log.cleaned`: worth nothing until
2. the name is `<base>.log.swap`, and that is durable. From now on a start puts it in place.
3. The old files get names that end with `.deleted`, and that is durable: none of them may come back beside the new one.
4. The new file gets its real name. Readers have used it since 3; the old files are removed when there is time.

Two waits for the device, both beside the event loop; what runs on it renames a few files. Only what is durable, committed
and closed is swapped, so no append, flush or truncation meets it, but for a log that starts anew: see `settle_now`.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

from tidelog.errors import TidelogError
from tidelog.ports.disk import Disk
from tidelog.storage.compaction import CLEANED_SUFFIX, Cleaned, Source
from tidelog.storage.recovery import BatchWindow
from tidelog.storage.segment import ASIDE_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, Segment, parse_segment_name
from tidelog.wire.batch import whole_batch

T = TypeVar("T")

SWAP_SUFFIX: Final = ".swap"


class _Stage(Enum):
    COMMITTING = "a start may find the new file or the old ones"
    INSTALLED = "the new file is read; names of old ones may come back"
    DONE = "only .deleted files are left to remove"
    VOID = "given up; nothing is left of it"


class Log(Protocol):
    """What a swap needs of a `PartitionLog`."""

    folder: str
    recovery_point: int
    cuts: int
    drops: int
    swap: "SegmentSwap | None"

    @property
    def segments(self) -> Sequence[Segment]: ...

    @property
    def failure(self) -> str | None: ...

    def end_of(self, segment: Segment) -> int: ...

    def replace_segments(self, old: Sequence[Segment], base_offset: int) -> Segment | None: ...

    def guarded(self, doing: str, step: Callable[[], T]) -> T: ...


def closed_below(log: Log, offset: int) -> tuple[Source, ...]:
    """The closed segments, from the first one on, whose records all lie below `offset` and are durable."""
    found = []
    for segment in log.segments[:-1]:
        end = log.end_of(segment)
        if segment.dirty or end > min(offset, log.recovery_point):
            break
        found.append(Source(segment.base_offset, end, segment.size_bytes))
    return tuple(found)


def flushed_part(log: Log) -> Source | None:
    """The durable part of the segment that holds the recovery point, mostly the active one; None when there is none.

    OSError.
    """
    end = log.recovery_point
    for segment in reversed(log.segments):
        if segment.base_offset < end <= log.end_of(segment):
            found = segment.find(end)
            if found is not None and found[1].base_offset != end:
                return None
            size_bytes = segment.size_bytes if found is None else found[0]
            return Source(segment.base_offset, end, size_bytes)
    return None


class SegmentSwap:
    """`begun`, `sync` (any thread), `install`, `sync` (any thread), `end`, `purge` (any thread).

    `begun`, `install` and `end` raise KAFKA_STORAGE_ERROR, with the log fenced, the others OSError.
    """

    def __init__(self, disk: Disk, log: Log, old: Sequence[Segment], *, drops: bool) -> None:
        """`drops`: tombstones are missing in the new file."""
        self._disk = disk
        self._log = log
        self._old = old
        self._drops = drops
        self._path = old[0].path
        self._stage = _Stage.COMMITTING

    @classmethod
    def begun(cls, disk: Disk, log: Log, cleaned: Cleaned, cuts: int) -> "SegmentSwap | None":
        """Lets the cleaned file take the place of those it was made from, when the log had been cut `cuts` times.

        None when those are no longer what they were.
        """
        old = [s for s in log.segments[:-1] if cleaned.base_offset <= s.base_offset < cleaned.end_offset]
        same = tuple(s.base_offset for s in old) == cleaned.replaces and log.end_of(old[-1]) == cleaned.end_offset
        busy = log.swap is not None and log.swap.live
        if log.failure is not None or log.cuts != cuts or not same or busy:
            return None
        swap = cls(disk, log, old, drops=cleaned.dropped_to > cleaned.base_offset)
        log.guarded("swap", swap._commit)
        log.swap = swap
        return swap

    @property
    def live(self) -> bool:
        """Whether its next step is still to be taken."""
        return self._stage in (_Stage.COMMITTING, _Stage.INSTALLED)

    def _commit(self) -> None:
        for segment in self._old:
            segment.drop_index_file()  # or it could speak for the new file, were that as long
        self._disk.rename(self._path + CLEANED_SUFFIX, self._path + SWAP_SUFFIX)

    def sync(self) -> None:
        self._disk.sync_dir(self._log.folder)

    def install(self) -> bool:
        """After the first `sync`: readers find the new file from here on. False when the log has changed meanwhile."""
        if self._log.failure is not None or not self.live:
            return False
        new = self._log.replace_segments(self._old, self._old[0].base_offset)
        if new is None:
            self._log.guarded("swap", self.settle_now)
            return False
        self._new = new
        self._log.drops += self._drops  # with the first reader that does not find them
        self._log.guarded("swap", self._install)
        return True

    def _install(self) -> None:
        for old in self._old:
            old.set_aside()
        self._new.path = self._path + SWAP_SUFFIX
        self._new.attach()
        self._new.synced_bytes = self._new.size_bytes
        self._stage = _Stage.INSTALLED

    def end(self) -> bool:
        """After the second `sync`. False when there is nothing to do any more; else `purge` is left."""
        if self._log.failure is not None or not self.live:
            return False
        self._log.guarded("swap", self._end)
        return True

    def _end(self) -> None:
        self._stage = _Stage.DONE
        if self._new not in self._log.segments:
            return  # it was below the log's start, and has gone with what was there
        self._new.rename(self._path)
        index = self._new.index_path
        if self._disk.kind(index + CLEANED_SUFFIX) is not None:
            self._disk.rename(index + CLEANED_SUFFIX, index)

    def purge(self) -> None:
        """A large file takes its time to go."""
        for old in self._old:
            try:
                self._disk.remove(old.path.removesuffix(LOG_SUFFIX) + ASIDE_SUFFIX)
            except FileNotFoundError:
                pass  # it went with its log

    def settle_now(self) -> None:
        """The log is about to be cut, and must not find the one or the other: waits for the device."""
        if self._stage is _Stage.COMMITTING:
            self._disk.remove(self._path + SWAP_SUFFIX)
            self.sync()
            self._stage = _Stage.VOID
        elif self._stage is _Stage.INSTALLED:
            self.sync()
            self._end()


def settle_names(disk: Disk, folder: str, names: Iterable[str]) -> list[str]:
    """At the start: ends what a crash has left, and returns the names that are there then."""
    left = list(names)
    for name in [n for n in left if n.endswith((CLEANED_SUFFIX, ASIDE_SUFFIX)) and _is_ours(n)]:
        disk.remove(f"{folder}/{name}")
        left.remove(name)
    for name in [n for n in left if n.endswith(LOG_SUFFIX + SWAP_SUFFIX) and _is_ours(n)]:
        real = name.removesuffix(SWAP_SUFFIX)
        left.remove(name)
        end_offset = _whole_until(disk, f"{folder}/{name}")
        if end_offset is None and real in left:
            disk.remove(f"{folder}/{name}")  # rotten: the old ones may not be
            continue
        base = parse_segment_name(real)
        assert base is not None
        for other in _replaced(left, base, base if end_offset is None else end_offset):
            disk.remove(f"{folder}/{other}")
            left.remove(other)
        disk.sync_dir(folder)
        disk.rename(f"{folder}/{name}", f"{folder}/{real}")
        disk.sync_dir(folder)
        left.append(real)
    return sorted(left)


def _is_ours(name: str) -> bool:
    # A new file that was released before it had its real name has both endings.
    stem = name.rpartition(".")[0].removesuffix(SWAP_SUFFIX + LOG_SUFFIX)
    return parse_segment_name(stem) is not None or parse_segment_name(stem, INDEX_SUFFIX) is not None


def _replaced(names: Iterable[str], base: int, end_offset: int) -> list[str]:
    """Old segments and indexes that the file of [base, end_offset) stands for."""
    of: Callable[[str, str], int | None] = parse_segment_name
    found = [(name, of(name, LOG_SUFFIX), of(name, INDEX_SUFFIX)) for name in names]
    return [
        name
        for name, log, index in found
        if (log is not None and base <= log < end_offset) or (index is not None and base <= index < end_offset)
    ]


def _whole_until(disk: Disk, path: str) -> int | None:
    """Where the records of a swap file end; None when it is not what was written."""
    file = disk.open(path, read_only=True)
    try:
        size, position, end_offset = file.size(), 0, None
        window = BatchWindow(file, size)
        while position < size:
            header = whole_batch(*window.batch_at(position))
            position, end_offset = position + header.size_bytes, header.end_offset
        return end_offset
    except TidelogError:
        return None
    finally:
        file.close()
