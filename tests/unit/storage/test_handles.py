"""Open files of logs: how many there are, and what is closed when no further one can be opened."""

import errno
from typing import Any

import pytest

from helpers.batches import batch
from helpers.logs import SMALL, lead, new_log
from tidelog.errors import TidelogError
from tidelog.storage.handles import Handles
from tidelog.testing.disk import SimDisk

PATHS = [f"/{number}" for number in range(8)]


class Counted(SimDisk):
    """Has descriptors for so many files."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.left: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        if len(self.left) >= self.most:
            raise OSError(errno.EMFILE, "too many open files", path)
        file = super().open(path, create=create, read_only=read_only)
        self.left.append(path)
        close = file.close

        def closed() -> None:
            self.left.remove(path)
            close()

        file.close = closed  # type: ignore[method-assign]
        return file


@pytest.fixture
def disk() -> Counted:
    return Counted(5)


def test_too_few_descriptors_close_what_was_used_least(disk: Counted) -> None:
    files = Handles(disk, 100)
    for path in PATHS[:5]:
        files.create(path)
    files.pin(PATHS[0])
    files.get(PATHS[1])
    files.create(PATHS[5])
    assert disk.left == [PATHS[0], PATHS[1], PATHS[4], PATHS[5]], "half of those that are not pinned"
    files.get(PATHS[2])


def test_without_anything_to_close_the_error_is_told(disk: Counted) -> None:
    files = Handles(disk, 100)
    for path in PATHS[:5]:
        files.create(path)
        files.pin(path)
    with pytest.raises(OSError, match="too many open files"):
        files.create(PATHS[5])
    files.unpin(PATHS[0])
    files.create(PATHS[5])


def test_another_error_closes_nothing(disk: Counted) -> None:
    files = Handles(disk, 100)
    files.create(PATHS[0])
    disk.fail("create", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        files.create(PATHS[1])
    assert disk.left == [PATHS[0]]


def test_every_file_of_a_pinned_path_is_closed(disk: Counted) -> None:
    """Such as those of a segment that is cut off during a flush and written again at the same offset."""
    files = Handles(disk, 100)
    files.create(PATHS[0])
    files.pin(PATHS[0])
    for _ in range(2):
        files.forget(PATHS[0])
        disk.remove(PATHS[0])
        files.create(PATHS[0])
        files.pin(PATHS[0])
    files.forget(PATHS[0])
    assert disk.left == [PATHS[0]] * 3, "a thread may be using them"
    for _ in range(3):
        files.unpin(PATHS[0])
    assert disk.left == []


def test_a_flush_that_cannot_begin_pins_nothing(disk: Counted) -> None:
    log = new_log(SMALL, disk)
    lead(log, batch(b"a" * 200), 0)
    lead(log, batch(b"b" * 200), 0)
    files = log._context.files
    files.forget(log.segments[1].path)
    disk.fail("open", errno.EIO, path=log.segments[1].path)
    with pytest.raises(TidelogError, match="flush failed"):
        log.begin_flush()
    files.close()
    assert not [path for path in disk.left if path.endswith(".log")]
