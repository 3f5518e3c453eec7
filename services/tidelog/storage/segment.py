"""One file of record batches, and its sparse index."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from tidelog.ports.disk import Buffer, Disk, DiskFile
from tidelog.storage.handles import Handles
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.offset_index import INDEX_INTERVAL_BYTES, NO_TIME, SparseIndex
from tidelog.wire.batch import HEADER_BYTES, BatchHeader, read_header

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
ASIDE_SUFFIX: Final = ".log.deleted"
"""Of a segment that is no longer part of its log, until its file is removed."""
_WINDOW_BYTES: Final = 4096 + HEADER_BYTES


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{LOG_SUFFIX}"


def parse_segment_name(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """The base offset; None when the name is not a segment's."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


class Segment:
    """Batches from `base_offset` on. Positions are bytes from the start of the file.

    It checks only what it needs to find its way; whole batches are checked by who hands them out.
    """

    __slots__ = (
        "_disk",
        "_files",
        "_index",
        "_index_in_file",
        "_indexes",
        "_interval_bytes",
        "_latest",
        "base_offset",
        "cut_unsynced",
        "index_file_bytes",
        "path",
        "size_bytes",
        "synced_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        files: Handles,
        indexes: IndexCache,
        folder: str,
        base_offset: int,
        *,
        interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self._disk = disk
        self._files = files
        self._interval_bytes = interval_bytes
        self._indexes = indexes
        self._index: SparseIndex | None = None
        self._index_in_file = False
        """The file of the index says the same, and it is counted in the cache."""
        self._latest: int | None = None
        """The largest timestamp, as an index said that is not in memory any more."""
        self.path = f"{folder}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.size_bytes = 0
        self.synced_bytes = 0
        """Of them, how many would survive a loss of power."""
        self.cut_unsynced = False
        """A loss of power could bring back what was cut off."""
        self.index_file_bytes = 0
        """Bytes of the segment that the file of its index tells of, as far as this process has saved it."""

    @property
    def dirty(self) -> bool:
        return self.synced_bytes < self.size_bytes or self.cut_unsynced

    def create(self) -> None:
        self._files.create(self.path)
        self._index = SparseIndex(self._interval_bytes)

    def attach(self) -> None:
        """Takes over an existing file; its index is read when it is first needed."""
        self.size_bytes = self._files.get(self.path).size()

    def move_to(self, files: Handles, indexes: IndexCache) -> None:
        """It is opened, and its index is counted, there from now on."""
        self._indexes.release(self)
        self._files, self._indexes = files, indexes
        if self._index_in_file:
            self._count_index()

    def file(self) -> DiskFile:
        return self._files.get(self.path)

    # --- writing ------------------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Removes the part of a failed append that is in the file, as on a full disk, so that a restart finds whole batches.

        Durably: a loss of power could bring it back behind the end of a closed segment. Waits for the device.
        """
        self.file().truncate(self.size_bytes)
        self.file().sync()

    def append(self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], base_offset: int) -> None:
        """`headers` may still carry a producer's offsets; the batches take consecutive ones from `base_offset`."""
        index = self._changing_index()
        self._files.get(self.path).append(buffers)
        position = self.size_bytes
        for header in headers:
            index.note(base_offset, position, header.max_timestamp)
            position += header.size_bytes
            base_offset += header.last_offset_delta + 1
        self.size_bytes = position

    def cut(self, position: int) -> None:
        """Drops everything from `position` on."""
        index = self._changing_index()
        self.file().truncate(position)
        self.size_bytes = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.cut_unsynced = True
        self._fill(index, index.cut(position))
        self.drop_index_file()

    def remove(self) -> None:
        self.close()
        self.drop_index_file()
        self._disk.remove(self.path)

    def set_aside(self) -> str:
        """Gives the file another name, which is quick, for somebody to remove it beside the event loop; returns the name."""
        self.close()
        self.drop_index_file()
        aside = self.path.removesuffix(LOG_SUFFIX) + ASIDE_SUFFIX
        self._disk.rename(self.path, aside)
        return aside

    def rename(self, path: str) -> None:
        self.close()
        self._disk.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Its file and its index are opened again when they are needed."""
        self._files.forget(self.path)
        self.forget_index()

    # --- finding ------------------------------------------------------------------------------------------------

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = self._take_index(*self.read_index(self.file()))
        elif self._index_in_file:
            self._indexes.used(self)
        return index

    @property
    def knows_index(self) -> bool:
        """Whether `index` costs nothing."""
        return self._index is not None

    def finds_index(self) -> bool:
        """True when `index` costs little: it is in memory or in its file, and need not be made from the segment."""
        if self._index is None:
            index, covered = self._index_in_its_file()
            if covered == self.size_bytes:
                self._take_index(index, True)
        return self._index is not None

    @property
    def latest_timestamp(self) -> int:
        """The largest timestamp of all batches; -1 when none has one."""
        return self._latest if self._index is None and self._latest is not None else self.index.max_timestamp

    @property
    def knows_latest_timestamp(self) -> bool:
        """True when `latest_timestamp` costs nothing."""
        return self._index is not None or self._latest is not None

    def _take_index(self, index: SparseIndex, in_file: bool) -> SparseIndex:
        self._index = index
        if in_file:
            self._count_index()
        else:
            self.offer_index()
        return index

    def offer_index(self) -> None:
        """Saves an index that no file tells, so that it can go out of memory. Without a file it stays there."""
        if self._index is not None and not self._index_in_file and self.path.endswith(LOG_SUFFIX):
            try:
                self.save_index()
            except OSError:
                with suppress(OSError):  # what is half written takes space
                    self.drop_index_file()

    def _count_index(self) -> None:
        assert self._index is not None
        self._index_in_file = True
        self._indexes.admit(self, self._index.held_bytes)

    def _changing_index(self) -> SparseIndex:
        """The index, which its file does not tell any more."""
        index, self._latest = self.index, None
        if self._index_in_file:
            self._index_in_file = False
            self._indexes.release(self)
        return index

    def forget_index(self) -> None:
        if self._index is not None:
            self._latest, self._index = self._index.max_timestamp, None
        self._index_in_file = False
        self._indexes.release(self)

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX

    def rebuilt(self, index: SparseIndex) -> None:
        """Recovery has walked the whole file and brings a new index."""
        self.forget_index()
        self._index = index
        self.drop_index_file()

    def save_index(self) -> None:
        """Not synced: a lost or torn index is rebuilt."""
        index = self.index
        self.drop_index_file()
        file = self._disk.open(self.index_path, create=True)
        try:
            file.append([index.encode(self.size_bytes)])
        finally:
            file.close()
        self.index_file_bytes = self.size_bytes
        self._count_index()

    def drop_index_file(self) -> None:
        self.index_file_bytes = 0
        try:
            self._disk.remove(self.index_path)
        except FileNotFoundError:
            pass  # it is a cache, and was not saved yet

    def adopt_index(self, index: SparseIndex, in_file: bool) -> None:
        """Takes what `read_index` has found, unless the segment has one by now. It must not have changed."""
        if self._index is None:
            self._take_index(index, in_file)

    def read_index(self, file: DiskFile) -> tuple[SparseIndex, bool]:
        """The index, and whether it is from its file or from every header of `file`, which is this segment's; in any thread if
        nobody writes to it."""
        index, covered = self._index_in_its_file()
        if covered == self.size_bytes:
            return index, True
        index = SparseIndex(self._interval_bytes)
        self._fill(index, 0, file)
        return index, False

    def _index_in_its_file(self) -> tuple[SparseIndex, int]:
        """The index of so many bytes from the start of the segment: it was saved when those were all."""
        try:
            data = self._disk.read(self.index_path)
        except OSError:
            data = b""  # also where it cannot be read: it is a cache
        return SparseIndex.decode(data, self.size_bytes, self._interval_bytes) or (SparseIndex(self._interval_bytes), 0)

    def known_up_to(self, offset: int) -> tuple[int, BatchHeader, SparseIndex] | None:
        """Position of the batch that begins at `offset` or may be appended there, the header before it, and the index of what
        lies before; None where no index says.

        Reads a part of the headers. Every process that has used the file must have run since the last loss of power.
        """
        index, covered = self._index_in_its_file()
        if not covered:
            return None
        for at, header in self.walk(index.below_offset(offset - 1)):
            if header.end_offset >= offset:
                position = at + header.size_bytes
                self._fill(index, index.cut(position), stop=position)
                return (position, header, index) if header.end_offset == offset else None
        return None

    def _fill(self, index: SparseIndex, position: int, file: DiskFile | None = None, stop: int | None = None) -> None:
        for at, header in self.walk(position, file):
            if at == stop:
                break
            index.note(header.base_offset, at, header.max_timestamp)

    def walk(self, position: int, pinned: DiskFile | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from `position`, a batch start, to the end; CRCs are not checked.

        Ends early at a header that cannot be one. Without a `pinned` file only in the owner's thread.
        """
        window, window_at = b"", position
        while position + HEADER_BYTES <= self.size_bytes:
            if position + HEADER_BYTES > window_at + len(window):
                window, window_at = (pinned or self.file()).pread(_WINDOW_BYTES, position), position
                if len(window) < HEADER_BYTES:
                    return
            header = read_header(window, position - window_at)
            end = position + header.size_bytes
            if header.size_bytes < HEADER_BYTES or end > self.size_bytes:
                return
            yield position, header
            position = end

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends after `offset`; None when all end before."""
        for position, header in self.walk(self.index.below_offset(offset)):
            if header.end_offset > offset:
                return position, header
        return None

    def locate(self, offset: int) -> int:
        """Position of the first batch that ends after `offset`; the size when all end before."""
        found = self.find(offset)
        return self.size_bytes if found is None else found[0]

    def first_timestamp(self) -> int:
        """The largest timestamp of its first batch; -1 when it has none, or there is no batch."""
        return next((header.max_timestamp for _, header in self.walk(0)), NO_TIME)

    def locate_time(self, timestamp: int, start_offset: int = 0) -> BatchHeader | None:
        """The first batch with a record at or after `timestamp`, of those that end after `start_offset`."""
        if self.latest_timestamp < timestamp:
            return None
        walk = self.walk(max(self.index.below_time(timestamp), self.index.below_offset(start_offset)))
        fits = (header for _, header in walk if header.max_timestamp >= timestamp and header.end_offset > start_offset)
        return next(fits, None)

    def max_timestamp(self, end_offset: int, start_offset: int = 0) -> int:
        """The largest timestamp of the batches that end after `start_offset` and at or before `end_offset`; -1 when there
        is none."""
        position, latest = self.index.times_below_offset(end_offset)
        if start_offset > self.base_offset:
            position, latest = self.locate(start_offset), NO_TIME  # the index knows of what lies before, too
        for _, header in self.walk(position):
            if header.end_offset > end_offset:
                return latest
            latest = max(latest, header.max_timestamp)
        return latest

    def fitting(self, start: int, stop: int, bytes_max: int, min_one: bool) -> int:
        """The last batch end at most `bytes_max` after `start` and not after `stop`; with `min_one` at least one."""
        if stop - start <= bytes_max:
            return stop
        end = max(start, self.index.below_position(start + bytes_max))
        for position, header in self.walk(end):
            after = position + header.size_bytes
            if after - start > bytes_max and not (min_one and position == start):
                break
            end = after
        return end

    def read(self, start: int, stop: int) -> bytes:
        return self.file().pread(stop - start, start)
