"""Logs that the controller does not list: renamed, and kept with their marks until they are listed again or deleted."""

import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

from tidelog.ports.disk import Disk, Entry, EntryKind
from tidelog.storage.checkpoint import LogKey, number
from tidelog.storage.segment import LOG_SUFFIX

STRAY_SUFFIX: Final = "-stray"
"""Suffix of the folder, as in Kafka (KAFKA-15359)."""
NAME_CHARS_MAX: Final = 200
"""Limit of the part of the topic's name in a folder's name, which has at most 255 bytes."""
_NAME: Final = re.compile(rf"(?P<topic>.+)-(?P<partition>\d+)\.(?P<id>[0-9a-f]+)(-\d+)?{STRAY_SUFFIX}")


class Stray(NamedTuple):
    """One log that is set aside."""

    key: LogKey
    folder: str
    size_bytes: int
    named: bool = True
    """False: the folder's name holds only the beginning of the topic's, and nothing else tells the rest."""
    power_lost: bool = False
    """Bytes that were not synced may be missing."""


class Strays:
    """The strays in the data directory `root`."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._strays: dict[str, Stray] = {}
        """Strays by the name of a folder without a turn."""

    def __len__(self) -> int:
        return len(self._strays)

    def __iter__(self) -> Iterator[Stray]:
        return iter(tuple(self._strays.values()))

    def find(self, key: LogKey) -> Stray | None:
        """Returns the stray of this topic, whose id tells it from others whose names begin alike."""
        return self._strays.get(folder_name(key, STRAY_SUFFIX))

    def load(self, name: str, marked: Iterable[LogKey], *, power_lost: bool) -> Stray | None:
        """Takes over a folder of an earlier process. `marked`: what checkpoints name. None: the folder is left alone."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        try:
            topic_id, partition = bytes.fromhex(found["id"]), number(found["partition"])
        except ValueError:
            return None
        seen = LogKey(found["topic"], partition, topic_id)
        if self.find(seen) is not None:
            return None
        same = (key for key in marked if folder_name(key, STRAY_SUFFIX) == folder_name(seen, STRAY_SUFFIX))
        key = next(same, None)
        named = key is not None or len(found["topic"]) < NAME_CHARS_MAX
        folder = f"{self._root}/{name}"
        stray = Stray(key or seen, folder, self._size_bytes(folder), named, power_lost)
        self._strays[folder_name(seen, STRAY_SUFFIX)] = stray
        return stray

    def add(self, key: LogKey, folder: str, size_bytes: int | None) -> Stray:
        """Renames `folder`. OSError leaves everything as it was."""
        size_bytes = self._size_bytes(folder) if size_bytes is None else size_bytes
        aside = free_name(self._disk, self._root, key, STRAY_SUFFIX)
        self._disk.rename(folder, aside)
        stray = self._strays[folder_name(key, STRAY_SUFFIX)] = Stray(key, aside, size_bytes)
        return stray

    def move(self, stray: Stray, folder: str) -> None:
        """Renames the stray to `folder`: it is none any more. OSError leaves everything as it was."""
        self._disk.rename(stray.folder, folder)
        del self._strays[folder_name(stray.key, STRAY_SUFFIX)]

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


def _counts(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and entry.name.endswith(LOG_SUFFIX)


def folder_name(key: LogKey, suffix: str, turn: int = 0) -> str:
    """Name of a folder out of use. The topic id makes it unique, unless its log comes back and goes once more (`turn`)."""
    again = f"-{turn}" if turn else ""
    return f"{key.topic[:NAME_CHARS_MAX]}-{key.partition}.{key.topic_id.hex()}{again}{suffix}"


def free_name(disk: Disk, root: str, key: LogKey, suffix: str) -> str:
    """Path of a folder out of use that is not there yet."""
    paths = (f"{root}/{folder_name(key, suffix, turn)}" for turn in count())
    return next(path for path in paths if disk.kind(path) is None)
