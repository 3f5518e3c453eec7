"""Logs and parts of logs that are set aside in folders of their own until they are wanted again or deleted.

A log that the controller does not list is renamed as a whole and keeps its marks. Of a log that is cut below its high watermark,
as behind an unclean election, the part that goes is kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from tidelog.ports.disk import Disk, Entry, EntryKind
from tidelog.storage.checkpoint import LogKey, number
from tidelog.storage.segment import LOG_SUFFIX, Segment, segment_name

STRAY_SUFFIX: Final = "-stray"
"""Suffix of the folder, as in Kafka (KAFKA-15359)."""
DELETE_SUFFIX: Final = "-delete"
NAME_CHARS_MAX: Final = 175
"""Limit of the part of the topic's name in a folder's name, which has at most 255 bytes."""
_NAME: Final = re.compile(
    rf"(?P<topic>.+)-(?P<partition>\d+)\.(?P<id>[0-9a-f]+)(\.(?P<cut>\d{{20}}))?(-\d+)?{STRAY_SUFFIX}"
)
_TURN: Final = re.compile(rf"-\d+(?={DELETE_SUFFIX}$)")
_CHUNK_BYTES: Final = 1 << 20


class Stray(NamedTuple):
    """One log that is set aside, or what was cut off one."""

    key: LogKey
    folder: str
    size_bytes: int
    named: bool = True
    """False: the folder's name holds only the beginning of the topic's, and nothing else tells the rest."""
    power_lost: bool = False
    """Bytes that were not synced may be missing."""
    cut_at: int | None = None
    """First offset of what was cut off; None: a whole log."""


class Strays:
    """The strays in the data directory `root`."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._strays: dict[str, Stray] = {}
        """Whole logs by the name of a folder without a turn, parts of logs by the path of theirs."""
        self.on_cut: Callable[[Stray, int], None] = lambda stray, records: None
        """Called with what was cut off a log, and how many records it had."""

    def __len__(self) -> int:
        return len(self._strays)

    def __iter__(self) -> Iterator[Stray]:
        return iter(tuple(self._strays.values()))

    def find(self, key: LogKey) -> Stray | None:
        """Returns the stray of this topic, whose id tells it from others whose names begin alike."""
        return self._strays.get(folder_name(key, STRAY_SUFFIX))

    def cuts(self, key: LogKey) -> list[Stray]:
        """Returns what was cut off the log."""
        name = folder_name(key, STRAY_SUFFIX)
        return [each for each in self if each.cut_at is not None and folder_name(each.key, STRAY_SUFFIX) == name]

    def load(self, name: str, marked: Iterable[LogKey], *, power_lost: bool) -> set[LogKey]:
        """Takes over a folder of an earlier process, or leaves it alone. `marked`: what checkpoints name.

        Returns the log whose marks are kept for the folder, if any.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            return set()
        try:
            topic_id, partition = bytes.fromhex(found["id"]), number(found["partition"])
            cut_at = None if found["cut"] is None else int(found["cut"])
        except ValueError:
            return set()
        seen = LogKey(found["topic"], partition, topic_id)
        if cut_at is None and self.find(seen) is not None:
            return set()
        same = (key for key in marked if folder_name(key, STRAY_SUFFIX) == folder_name(seen, STRAY_SUFFIX))
        key = next(same, None)
        named = key is not None or len(found["topic"]) < NAME_CHARS_MAX
        folder = f"{self._root}/{name}"
        try:
            size_bytes = self._size_bytes(folder)
        except OSError:
            size_bytes = 0  # it is kept all the same, and only its size is not told
        stray = self._add(Stray(key or seen, folder, size_bytes, named, power_lost, cut_at))
        return {stray.key} if cut_at is None else set()

    def add(self, key: LogKey, folder: str, size_bytes: int | None) -> Stray:
        """Renames `folder`. OSError leaves everything as it was."""
        size_bytes = self._size_bytes(folder) if size_bytes is None else size_bytes
        aside = free_name(self._disk, self._root, key, STRAY_SUFFIX)
        self._disk.rename(folder, aside)
        return self._add(Stray(key, aside, size_bytes))

    def _add(self, stray: Stray) -> Stray:
        self._strays[_slot(stray)] = stray
        return stray

    def move(self, stray: Stray, folder: str) -> None:
        """Renames the stray to `folder`: it is none any more. OSError leaves everything as it was."""
        self._disk.rename(stray.folder, folder)
        del self._strays[_slot(stray)]

    def delete(self, stray: Stray) -> str:
        """Renames the stray to a folder that may be removed, and returns its path. OSError as of `move`."""
        gone = free_name(self._disk, self._root, stray.key, DELETE_SUFFIX, stray.cut_at)
        self.move(stray, gone)
        return gone

    # --- what is cut off a log --------------------------------------------------------------------------------------

    def begin_cut(
        self,
        key: LogKey,
        offset: int,
        committed: int,
        kept: Segment | None,
        position: int,
        behind: Sequence[Segment],
    ) -> "Cut | None":
        """Begins to set aside what a log holds from `offset` on: the end of `kept` from `position` on, and what lies `behind`.

        None if nothing of it was committed, as in every cut behind a clean election. The folder is durable: a cut that a crash
        breaks off is known by it, when the marks that tell what was committed are lowered already.
        """
        tail = kept if kept is not None and position < kept.size_bytes else None
        begun = any(each.cut_at == offset for each in self.cuts(key))
        if not (offset < committed or begun) or (tail is None and not any(each.size_bytes for each in behind)):
            return None
        folder = free_name(self._disk, self._root, key, STRAY_SUFFIX, offset)
        self._disk.make_dir(folder)
        self._disk.sync_dir(self._root)
        cut = Cut(self._disk, Stray(key, folder, 0, cut_at=offset))
        if tail is not None:
            cut.copy(tail, position)
        return cut

    def end_cut(self, cut: "Cut", records: int) -> None:
        """Counts it among the strays, and tells of it."""
        self.on_cut(self._add(cut.stray._replace(size_bytes=cut.size_bytes)), records)

    def _size_bytes(self, folder: str) -> int:
        return sum(
            self._file_bytes(f"{folder}/{entry.name}") for entry in self._disk.list_dir(folder) if _counts(entry)
        )

    def _file_bytes(self, path: str) -> int:
        file = self._disk.open(path, read_only=True)
        try:
            return file.size()
        finally:
            file.close()


class Cut:
    """A part of a log on its way into its folder, which gets segment files."""

    def __init__(self, disk: Disk, stray: Stray) -> None:
        self._disk = disk
        self.stray = stray
        self.size_bytes = 0

    def copy(self, segment: Segment, position: int) -> None:
        """Copies the end of a segment from `position` on. Durable when it returns: waits for the device.

        It ends at the first byte that cannot be read. An OSError of a write leaves no folder; nothing is cut yet then.
        """
        assert self.stray.cut_at is not None
        path = f"{self.stray.folder}/{segment_name(self.stray.cut_at)}"
        try:
            file = self._disk.open(path, create=True)
            try:
                for data in _readable(segment, position):
                    file.append([data])
                    self.size_bytes += len(data)
                file.sync()
            finally:
                file.close()
            self.sync_names()
        except OSError:
            self._give_up(path)
            raise

    def _give_up(self, path: str) -> None:
        """A copy that is not whole must not take the space for which the next try waits."""
        try:
            self._disk.remove(path)
            self._disk.remove_dir(self.stray.folder)
        except OSError:
            pass  # the next start finds it

    def take(self, segment: Segment) -> None:
        """Renames a whole segment, which needs no space."""
        segment.drop_index_file()
        segment.rename(f"{self.stray.folder}/{segment_name(segment.base_offset)}")
        self.size_bytes += segment.size_bytes

    def sync_names(self) -> None:
        self._disk.sync_dir(self.stray.folder)


def _readable(segment: Segment, position: int) -> Iterator[bytes]:
    while position < segment.size_bytes:
        try:
            data = segment.file().pread(min(_CHUNK_BYTES, segment.size_bytes - position), position)
        except OSError:
            return  # lost already: the rest can be cut all the same
        yield data
        position += len(data)


def _slot(stray: Stray) -> str:
    return folder_name(stray.key, STRAY_SUFFIX) if stray.cut_at is None else stray.folder


def _counts(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and entry.name.endswith(LOG_SUFFIX)


def folder_name(key: LogKey, suffix: str, cut_at: int | None = None, turn: int = 0) -> str:
    """Name of a folder out of use. The topic id makes it unique, unless its log comes back and goes once more (`turn`)."""
    part = "" if cut_at is None else f".{cut_at:020d}"
    again = f"-{turn}" if turn else ""
    return f"{key.topic[:NAME_CHARS_MAX]}-{key.partition}.{key.topic_id.hex()}{part}{again}{suffix}"


def without_turn(path: str) -> str:
    """Name of the deleted folder at `path`, as `folder_name` has it."""
    return _TURN.sub("", path.rpartition("/")[2])


def remove_folder(disk: Disk, folder: str) -> None:
    """Removes a folder of files; harmless when it is gone."""
    if disk.kind(folder) is EntryKind.DIRECTORY:
        for entry in disk.list_dir(folder):
            disk.remove(f"{folder}/{entry.name}")
        disk.remove_dir(folder)


def free_name(disk: Disk, root: str, key: LogKey, suffix: str, cut_at: int | None = None) -> str:
    """Path of a folder out of use that is not there yet."""
    paths = (f"{root}/{folder_name(key, suffix, cut_at, turn)}" for turn in count())
    return next(path for path in paths if disk.kind(path) is None)
