"""Space set aside for the directory's own small files, so that a full disk does not keep a broker from writing its notes.

Records fill the disk first. What a checkpoint, the epoch journal or a loss needs to be written down then is taken from here,
and put aside again when there is space (reliability 8.1).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from tidelog.ports.disk import Disk, EntryKind
from tidelog.storage.segment import INDEX_SUFFIX, parse_segment_name
from tidelog.storage.trouble import no_space

T = TypeVar("T")

RESERVE_FILE: Final = ".reserve"
_CHUNK_BYTES: Final = 1 << 20


class Reserve:
    """A file of zeros of `size_bytes`; none when that is 0."""

    def __init__(self, disk: Disk, root: str, size_bytes: int) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/{RESERVE_FILE}"
        self.size_bytes = size_bytes

    @property
    def held(self) -> bool:
        return self._disk.kind(self._path) is not None

    def missing_bytes(self) -> int:
        return 0 if self.held else self.size_bytes

    def release(self) -> bool:
        """Gives the space back; False when there was none."""
        if not self.held:
            return False
        self._disk.remove(self._path)
        return True

    def restore(self) -> None:
        """Sets the space aside again if it can be spared. May wait for the device; OSError leaves no file behind."""
        if not self.size_bytes or self.held or self._disk.free_bytes(self._root) < 2 * self.size_bytes:
            return
        file = self._disk.open(self._path, create=True)
        try:
            # Written, not only made long: a hole has no space of its own.
            for at in range(0, self.size_bytes, _CHUNK_BYTES):
                file.append([bytes(min(_CHUNK_BYTES, self.size_bytes - at))])
            file.sync()
        except OSError:
            self._disk.remove(self._path)
            raise
        finally:
            file.close()

    def lend(self, write: Callable[[], T]) -> T:
        """`write`, and again when the disk is full and something can give way to it. Any thread."""
        while True:
            try:
                return write()
            except OSError as error:
                if not no_space(error) or not (self.release() or self._drop_indexes()):
                    raise

    def _drop_indexes(self) -> bool:
        """Without these small files no retention frees a full disk: files of indexes give way to them, which are made again."""
        freed_bytes = 0
        for folder in self._disk.list_dir(self._root):
            if folder.kind is EntryKind.DIRECTORY:
                freed_bytes += self._drop_indexes_in(f"{self._root}/{folder.name}")
            if freed_bytes >= _CHUNK_BYTES:
                break
        return freed_bytes > 0

    def _drop_indexes_in(self, folder: str) -> int:
        freed_bytes = 0
        with suppress(OSError):  # of a folder that is not ours, or gone
            for name in [each.name for each in self._disk.list_dir(folder)]:
                if parse_segment_name(name, INDEX_SUFFIX) is not None:
                    freed_bytes += len(self._disk.read(f"{folder}/{name}"))
                    self._disk.remove(f"{folder}/{name}")
        return freed_bytes
