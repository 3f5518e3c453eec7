"""The disk, as a port. Synchronous: calls that may wait for the device (`sync`, `sync_dir`) belong in `in_background`.

What is promised is POSIX at its strictest (reliability 4.2): bytes survive a loss of power only after `sync` of their
file, a name only after `sync_dir` of its directory, and each may be kept or lost without the other. Every call raises
OSError as the system gives it; a failed sync is never retried, since the kernel may have dropped the pages.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

Buffer = bytes | memoryview
T = TypeVar("T")


class EntryKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A symbolic link, a socket, ...: never ours, never followed."""


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    kind: EntryKind


class DiskFile(Protocol):
    """An open file. `sync` may be called from another thread while the owner appends and reads."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes in order at the end. After an OSError any part of them may be there."""
        ...

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Shorter than asked only at the end of the file."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Returns when the bytes and the size would survive a loss of power (fdatasync)."""
        ...

    def size(self) -> int:
        """Bytes."""
        ...

    def close(self) -> None:
        """Harmless when closed."""
        ...


class DiskLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """One host's file system. Paths are strings with `/`; nothing follows a symbolic link in the last place."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """`create` makes a new file and fails if the name exists."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic within one directory; replaces a file of the new name. From one directory to another a loss of power may
        leave both names or none, until both directories are synced."""
        ...

    def remove(self, path: str) -> None: ...

    def make_dir(self, path: str) -> None:
        """FileExistsError when it is there."""
        ...

    def remove_dir(self, path: str) -> None:
        """Of an empty directory."""
        ...

    def list_dir(self, path: str) -> list[Entry]:
        """Sorted by name."""
        ...

    def kind(self, path: str) -> EntryKind | None:
        """None when there is no such name."""
        ...

    def modified_ms(self, path: str) -> float:
        """Unix time of the last write to a file."""
        ...

    def sync_dir(self, path: str) -> None:
        """Returns when the directory's names would survive a loss of power."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Makes the file and locks it until released or the process ends; BlockingIOError when another process has it."""
        ...

    def free_bytes(self, path: str) -> int:
        """Space left on the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        ...

    def boot_id(self) -> str:
        """Of the running kernel: while it stays the same, no unsynced byte was lost."""
        ...

    def in_background(self, work: Callable[[], T]) -> Awaitable[T]:
        """Runs what waits for the device beside the event loop, which goes on; raises what `work` raises.

        A caller that is cancelled does not stop the work. Several may run at once, in any order (KAFKA-15046).
        """
        ...
