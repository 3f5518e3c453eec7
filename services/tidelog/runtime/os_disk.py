"""The Disk port over the operating system (Linux)."""

import asyncio
import errno
import fcntl
import os
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tidelog.ports.disk import Buffer, Disk, DiskFile, DiskLock, Entry, EntryKind

T = TypeVar("T")

_IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class OsFile:
    """A descriptor; unbuffered, so that what a call accepted is in the kernel and survives a SIGKILL."""

    __slots__ = ("_fd", "_on_sync")

    def __init__(self, fd: int, on_sync: Callable[[float], None]) -> None:
        self._fd = fd
        self._on_sync = on_sync

    def append(self, buffers: Sequence[Buffer]) -> None:
        left = sum(map(len, buffers))
        while left:
            written = os.writev(self._fd, buffers[:_IOV_MAX])
            left -= written
            if left:
                if written == 0 and any(buffers[:_IOV_MAX]):
                    raise OSError(errno.EIO, "writev wrote nothing")
                # A write may be short without an error (signals, a nearly full disk): go on from where it stopped.
                buffers = _behind(buffers, written)

    def pread(self, size_bytes: int, position: int) -> bytes:
        data = os.pread(self._fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size_bytes and (data := os.pread(self._fd, size_bytes - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def sync(self) -> None:
        began_at = time.perf_counter()
        os.fdatasync(self._fd)
        self._on_sync(time.perf_counter() - began_at)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _behind(buffers: Sequence[Buffer], size_bytes: int) -> Sequence[Buffer]:
    """What they hold behind their first `size_bytes`, which are not all."""
    first = 0
    while size_bytes >= len(buffers[first]):
        size_bytes -= len(buffers[first])
        first += 1
    return [memoryview(buffers[first])[size_bytes:], *buffers[first + 1 :]]


class OsLock:
    """An flock on a file; the kernel drops it when the process ends, however it ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsDisk:
    """See `tidelog.ports.disk.Disk`."""

    def __init__(self, on_sync: Callable[[float], None] = lambda seconds: None) -> None:
        """`on_sync` is told the seconds that each file's sync took, in the thread that waited for it."""
        self._on_sync = on_sync

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return OsFile(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644), self._on_sync)

    def read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_dir(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def list_dir(self, path: str) -> list[Entry]:
        with os.scandir(path) as found:
            return sorted(Entry(e.name, _entry_kind(e)) for e in found)

    def kind(self, path: str) -> EntryKind | None:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return EntryKind.FILE
        return EntryKind.DIRECTORY if stat.S_ISDIR(mode) else EntryKind.OTHER

    def modified_ms(self, path: str) -> float:
        return os.stat(path, follow_symlinks=False).st_mtime_ns / 1e6

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return OsLock(fd)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def boot_id(self) -> str:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()

    def in_background(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(None, work)


def _entry_kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return EntryKind.OTHER
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


def os_disk() -> Disk:
    """The real disk, typed as the port so that a drift between them is a type error here."""
    return OsDisk()
