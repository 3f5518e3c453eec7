"""Open files of logs: how many there are, and what is closed when no further one can be opened."""

import errno
from typing import Any

import pytest

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
