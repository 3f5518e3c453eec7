"""Open files of all logs of a broker, opened when they are needed and capped in number.

A broker may hold thousands of segments and a process a thousand descriptors. The least recently used file is closed; one
that a running flush has pinned is not. Where sockets have taken the descriptors, half of the files are closed. An evicted
file may have unsynced bytes: the flush opens it again, and Linux (4.13 and later) reports a failed write-back to the first
sync after it, on a new descriptor too.
"""

import errno
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from tidelog.ports.disk import Disk, DiskFile

OPEN_FILES_MAX: Final = 512
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the machine, has no file descriptor left, which says nothing about a disk."""


class Handles:
    """For the owner's thread only; a pinned file's `sync` may run in another."""

    def __init__(self, disk: Disk, open_files_max: int = OPEN_FILES_MAX) -> None:
        self._disk = disk
        self._open_files_max = open_files_max
        self._open: OrderedDict[str, DiskFile] = OrderedDict()
        self._pins: dict[str, int] = {}
        self._dropped: dict[str, list[DiskFile]] = {}
        """Forgotten while pinned: closed when the last pin goes."""

    def get(self, path: str) -> DiskFile:
        """The file, opened if need be; valid until the next call here."""
        file = self._open.get(path)
        if file is None:
            file = self._open_file(path)
        else:
            self._open.move_to_end(path)
        return file

    def create(self, path: str) -> None:
        self._open_file(path, create=True)

    def _open_file(self, path: str, *, create: bool = False) -> DiskFile:
        try:
            file = self._disk.open(path, create=create)
        except OSError as error:
            idle = [each for each in self._open if each not in self._pins]
            if error.errno not in NO_DESCRIPTORS or not idle:
                raise
            for each in idle[: (len(idle) + 1) // 2]:
                self._open.pop(each).close()
            file = self._disk.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self._open_files_max:
            for candidate in self._open:
                if candidate not in self._pins and candidate != path:
                    self._open.pop(candidate).close()
                    break
        return file

    def pin(self, path: str) -> DiskFile:
        """As `get`, but the file stays open until `unpin`."""
        file = self.get(path)
        self._pins[path] = self._pins.get(path, 0) + 1
        return file

    def pin_all(self, paths: Sequence[str]) -> list[DiskFile]:
        """The files of `paths`, as `pin` gives them; after an OSError none of them is pinned."""
        files: list[DiskFile] = []
        try:
            files.extend(map(self.pin, paths))
        except OSError:
            for path in paths[: len(files)]:
                self.unpin(path)
            raise
        return files

    def unpin(self, path: str) -> None:
        self._pins[path] -= 1
        if self._pins[path] == 0:
            del self._pins[path]
            for dropped in self._dropped.pop(path, ()):
                dropped.close()

    def forget(self, path: str) -> None:
        """Before the file is removed or renamed, and when its log closes."""
        if file := self._open.pop(path, None):
            if path in self._pins:
                self._dropped.setdefault(path, []).append(file)
            else:
                file.close()

    def close(self) -> None:
        for path in list(self._open):
            self.forget(path)
